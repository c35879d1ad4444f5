//! An explanation as a readable table: one aligned row for each step, with its text wrapped at 80 columns.

use serde_json::Value;

/// Width of the explanatory text, in columns.
const WORDS_COLUMNS: usize = 80;

/// Formats the JSON of `/explain` as text lines.
pub(crate) fn text(said: &Value) -> String {
    let of = |value: &Value, name: &str| plain(value[name].as_str().unwrap_or_default());
    let steps = said["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let width = |name: &str| steps.iter().map(|step| of(step, name).chars().count()).max().unwrap_or(0);
    let (states, decisions) = (width("state"), width("decision"));
    let mut text = format!("{} {}\n\n", of(said, "method"), of(said, "url"));
    for step in steps {
        let mut words = of(step, "words");
        if step["section"].is_string() {
            words.push_str(&format!(" ({})", of(step, "section")));
        }
        let (mut state, mut decision) = (of(step, "state"), of(step, "decision"));
        for line in folded(&words) {
            text.push_str(format!("{state:states$}  {decision:decisions$}  {line}").trim_end());
            text.push('\n');
            (state, decision) = Default::default();
        }
    }
    text
}

/// Wraps the text at [`WORDS_COLUMNS`] columns and returns at least one line. A longer word gets a line of
/// its own.
fn folded(words: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut columns = 0;
    for word in words.split(' ') {
        let more = word.chars().count();
        if columns > 0 && columns + 1 + more > WORDS_COLUMNS {
            lines.push(String::new());
            columns = 0;
        }
        if let Some(line) = lines.last_mut() {
            if columns > 0 {
                line.push(' ');
                columns += 1;
            }
            line.push_str(word);
            columns += more;
        }
    }
    lines
}

/// Replaces control characters, so that text from an origin or a visitor cannot move the terminal's cursor.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_aligned_wrapped_and_sanitized() {
        let long = "word ".repeat(28);
        let said = serde_json::json!({
            "method": "GET",
            "url": "http://a/",
            "steps": [
                { "state": "recv", "decision": "lookup", "words": long.trim(), "section": "RFC 9111 §4" },
                { "state": "freshness", "decision": "no", "words": "an\u{1b}[2J end" },
            ],
        });
        let first = "word ".repeat(16);
        let rest = "word ".repeat(12);
        let want = format!(
            "GET http://a/\n\nrecv       lookup  {}\n                   {rest}(RFC 9111 §4)\n\
             freshness  no      an\u{fffd}[2J end\n",
            first.trim(),
        );
        assert_eq!(text(&said), want);
    }
}
