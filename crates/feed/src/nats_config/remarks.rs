//! Remarks on lines of a valid file that deserve attention, or whose meaning has changed with this version.

use std::path::Path;

use super::text::{Entry, Fault, Line, LocatedValue, Surroundings, Value, parse};

/// Key for denied subjects in a block of permissions.
const DENY: &str = "deny";
/// Keys for the permission to answer requests.
const RESPONSES: [&str; 3] = ["allow_responses", "allow_response", "publish_allow_responses"];
/// Keys for the permission to publish.
const PUBLISH: [&str; 3] = ["pub", "publish", "import"];
/// Prefix of the reply subjects that client libraries use.
const INBOX: &str = "_INBOX.";

/// Returns the remarks on a file, in the order of its lines; none if the file cannot be parsed.
pub fn remarks(text: &str, path: &Path, around: &dyn Surroundings) -> Vec<Fault> {
    let (entries, files) = parse(text, path, around);
    let mut remarks = Vec::new();
    of_entries(&entries.unwrap_or_default(), &mut remarks);
    remarks.sort_by_key(|remark: &Fault| (remark.file.clone(), remark.line));
    remarks.into_iter().map(|remark| remark.placed(&files)).collect()
}

fn of_entries(entries: &[Entry], remarks: &mut Vec<Fault>) {
    for entry in entries {
        let key = entry.key.to_ascii_lowercase();
        if key == DENY {
            for (line, _) in
                texts(&entry.value).into_iter().filter(|(_, text)| text.contains(char::is_whitespace))
            {
                remarks.push(Fault::new(
                    line,
                    "a deny of a queue group now also keeps the subject from its members' wildcard subscriptions, and \
                     plain denies apply as well",
                ));
            }
        } else if RESPONSES.contains(&key.as_str()) && !is_off(&entry.value) {
            remarks.push(Fault::new(
                entry.line,
                "each response now counts, however many arrive at once: set `max` if a request has several answers",
            ));
        } else if PUBLISH.contains(&key.as_str()) {
            let all = published(&entry.value);
            if let Some((line, _)) = all.iter().find(|(_, text)| text.starts_with(INBOX)) {
                remarks.push(Fault::new(
                    *line,
                    "a requester no longer needs permission to publish to its reply subject: leave _INBOX out unless \
                     this user answers requests",
                ));
            }
        }
        of_value(&entry.value, remarks);
    }
}

fn of_value(value: &LocatedValue, remarks: &mut Vec<Fault>) {
    match &value.value {
        Value::Text(_) => {}
        Value::Block(entries) => of_entries(entries, remarks),
        Value::List(list) => list.iter().for_each(|one| of_value(one, remarks)),
    }
}

/// Returns the subjects on which a user may publish. The value is a string, a list, or a block with `allow`.
fn published(value: &LocatedValue) -> Vec<(Line, &str)> {
    match &value.value {
        Value::Block(entries) => {
            let allowed = entries.iter().filter(|entry| entry.key.eq_ignore_ascii_case("allow"));
            allowed.flat_map(|entry| texts(&entry.value)).collect()
        }
        _ => texts(value),
    }
}

fn texts(value: &LocatedValue) -> Vec<(Line, &str)> {
    match &value.value {
        Value::Text(text) => vec![(value.line, text.as_str())],
        Value::List(list) => list.iter().flat_map(texts).collect(),
        Value::Block(_) => Vec::new(),
    }
}

fn is_off(value: &LocatedValue) -> bool {
    matches!(&value.value, Value::Text(text) if ["false", "no", "off"].iter().any(|off| text.eq_ignore_ascii_case(off)))
}
