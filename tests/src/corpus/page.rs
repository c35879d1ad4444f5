//! The page about the tables: the same bytes for the same results.

use std::fmt::Write as _;

use super::{
    Came, Shown, Table,
    origins::{Kind, versions},
    table::{Row, unescaped},
};

const HEAD: &str = "\
# What ambiguous messages come to

Written by `make smuggling` from `tests/corpus/`, whose README says what each row asserts; a test compares this page with
what the tables come to, so it changes with the accelerator and not after it. Line ends are shown as `⏎`; what is long is
shortened.

";

/// What stands before what other origins made of it.
const OTHERS: &str = "; others: ";

/// Characters of what is sent that are shown.
const SENT_MAX: usize = 330;

/// The whole page.
#[must_use]
pub fn whole(parts: &[String]) -> String {
    let mut page = HEAD.to_owned();
    let _ = writeln!(page, "{}\n", behind());
    page + &parts.join("\n")
}

/// Which origins it was run before.
fn behind() -> String {
    format!("The other origins: {}.", versions())
}

/// Whether a part of the page is in it as it stands; where other versions of the origins are installed than those of the
/// page, without what they made of it.
#[must_use]
pub fn holds(page: &str, part: &str) -> bool {
    if page.contains(&behind()) {
        return page.contains(part);
    }
    let without = |text: &str| -> Vec<String> {
        let ours =
            |line: &str| line.split_once(OTHERS).map_or(line.to_owned(), |(ours, _)| format!("{ours} |"));
        text.lines().map(ours).collect()
    };
    let (page, part) = (without(page), without(part));
    page.windows(part.len()).any(|lines| lines == part)
}

/// A table's part.
pub(super) fn part(table: Table, rows: &[Row], ours: &Came, others: &[(Kind, Came)]) -> String {
    let (title, columns) = match table {
        Table::Requests => (
            "Requests",
            "| row | sent | rule | we answer | connection | the origin is asked |\n|---|---|---|---|---|---|\n",
        ),
        Table::Responses => (
            "Responses",
            "| row | the origin sends | rule | the client gets | connection | kept? |\n|---|---|---|---|---|---|\n",
        ),
        Table::Poisoning => (
            "Poisoning",
            "| row | one client sends | the origin adds | rule | what another gets |\n|---|---|---|---|---|\n",
        ),
    };
    let mut part = format!("## {title}\n\n");
    let _ = writeln!(part, "{} rows.", rows.len());
    let mut section = "";
    for (at, (row, came)) in rows.iter().zip(ours).enumerate() {
        if section != row.section {
            section = &row.section;
            let _ = write!(part, "\n### {section}\n\n{columns}");
        }
        let Ok(shown) = came else { continue };
        let others: Vec<_> = others.iter().map(|(kind, came)| (*kind, came[at].as_ref().ok())).collect();
        part += &line(table, row, shown, &others);
    }
    part
}

fn line(table: Table, row: &Row, shown: &Shown, others: &[(Kind, Option<&Shown>)]) -> String {
    let Row { name, rule, .. } = row;
    let remark = row.all('?').map(|remark| format!(" — {remark}")).collect::<String>();
    let Shown { said, end, .. } = shown;
    match table {
        Table::Requests => {
            // Whether another origin hears of the beginning before the fault comes is a matter of who is quicker.
            let is_part = row.one('~') == "part";
            let differences = if is_part { String::new() } else { differences(shown, others) };
            let asked = match shown.origin.as_slice() {
                [] if is_part => "the beginning".to_owned(),
                [] => "nothing".to_owned(),
                lines => lines.iter().map(|line| code(line)).collect::<Vec<_>>().join(", then "),
            };
            let others = if differences.is_empty() { differences } else { format!("{OTHERS}{differences}") };
            let sent = code(&wire(&row.wire('>')));
            format!("| {name} | {sent} | {rule} | {said}{remark} | {end} | {asked}{others} |\n")
        }
        Table::Responses => {
            let kept = shown.origin.join("");
            let request = row.wire('>');
            let request =
                if request.len() > 4 { format!("to {}: ", code(&wire(&request))) } else { String::new() };
            let later = match wire(&row.wire('%')) {
                later if later.is_empty() => later,
                later => format!(", later {}", code(&later)),
            };
            let then = match row.one('!') {
                "close" => ", and closes",
                "stall" => ", and stalls",
                _ => "",
            };
            format!(
                "| {name} | {request}{}{later}{then} | {rule} | {}{remark} | {end} | {kept} |\n",
                code(&wire(&row.wire('<'))),
                said.trim_end()
            )
        }
        Table::Poisoning => {
            let adds: Vec<String> = row.all('<').map(|field| code(field.trim())).collect();
            format!(
                "| {name} | {} | {} | {rule} | {said}{remark} |\n",
                code(&wire(&row.wire('>'))),
                adds.join(" ")
            )
        }
    }
}

/// What the other origins made of it, where it was something else; a fault of theirs is told by its status.
fn differences(ours: &Shown, others: &[(Kind, Option<&Shown>)]) -> String {
    let counted = |line: &String| {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let body = words.get(3).copied().unwrap_or_default();
        let bytes = unescaped(body).map_or(0, |body| body.len());
        format!("{} {} {} {bytes}", words[0], words[1], words.get(2).copied().unwrap_or_default())
    };
    let want: Vec<String> = ours.origin.iter().map(counted).collect();
    let mut said = Vec::new();
    for (kind, theirs) in others {
        let Some(theirs) = theirs else { continue };
        let is_same = theirs.said == ours.said
            && theirs.origin.len() == want.len()
            && theirs.origin.iter().zip(&want).all(|(is, want)| same(*kind, is, want));
        if is_same {
            continue;
        }
        let asked: Vec<String> = theirs.origin.iter().map(|line| code(line)).collect();
        let asked = if asked.is_empty() { "nothing".to_owned() } else { asked.join(", then ") };
        said.push(format!("{} {asked} ({})", kind.name(), theirs.said));
    }
    said.join(", ")
}

/// nginx does not say how long a body in chunks was.
fn same(kind: Kind, is: &str, want: &str) -> bool {
    let without_length = |line: &str| line.rsplit_once(' ').map(|(rest, _)| rest.to_owned());
    is == want || kind == Kind::Nginx && without_length(is) == without_length(want)
}

/// Bytes as they are shown.
fn wire(bytes: &[u8]) -> String {
    let shown =
        bytes.escape_ascii().to_string().replace("\\r\\n", "⏎").replace("\\'", "'").replace("\\\"", "\"");
    shortened(&shown)
}

/// Text without its middle, where it is long.
pub(super) fn shortened(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= SENT_MAX {
        return text.to_owned();
    }
    let begin: String = characters[..SENT_MAX / 2].iter().collect();
    let end: String = characters[characters.len() - SENT_MAX / 2..].iter().collect();
    format!("{begin} … {end}")
}

/// As code within a cell.
fn code(text: &str) -> String {
    let text = text.replace('|', "\\|");
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}
