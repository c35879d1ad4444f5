//! The results as data: `docs/conformance/smuggling.tsv` has one line per case, with tabs between the cells.
//!
//! Bytes are shown with `⏎` for CRLF and escapes for control characters, so no cell contains a tab or a line
//! end.

use super::{
    CaseResult, Table,
    origins::Kind,
    table::{Row, unescaped},
};

/// Largest number of characters of a message that are shown.
const SHOWN_MAX: usize = 330;

/// Titles of the columns before those of the other origins.
const COLUMNS: [&str; 9] = [
    "table",
    "attack",
    "case",
    "rule",
    "client sends",
    "origin sends",
    "answer",
    "connection",
    "origin asked, or answer stored",
];

/// Title of the last column.
const REMARK: &str = "remark";

/// A row of a table with its result. A cell that the table does not have is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Table of the row.
    pub table: Table,
    /// Class of attack: the row's section.
    pub attack: String,
    /// The row's name.
    pub name: String,
    /// The deciding text, such as `RFC 9112 §6.3`.
    pub rule: String,
    /// Bytes that the client sends; in poisoning, the attacker.
    pub client_sends: String,
    /// Bytes that the origin sends; in poisoning, the fields that it adds to its answer.
    pub origin_sends: String,
    /// Statuses that the client gets; in poisoning, the second client's answer.
    pub answer: String,
    /// State of the client's connection afterwards.
    pub connection: String,
    /// Requests that the origin gets, or `stored` and `not stored`.
    pub effect: String,
    /// Each other origin's reading, in the order of [`Kind::ALL`]; empty where it equals that of the scripted
    /// origin.
    pub others: [String; Kind::ALL.len()],
    /// Remarks in the table.
    pub remark: String,
}

impl Case {
    /// Makes the case of a row and its results.
    pub(super) fn of(table: Table, row: &Row, ours: &CaseResult, others: &[Option<&CaseResult>]) -> Self {
        let mut case = Self {
            table,
            attack: row.section.clone(),
            name: row.name.clone(),
            rule: row.rule.clone(),
            client_sends: shown(&row.wire('>')),
            origin_sends: String::new(),
            answer: ours.answer.clone(),
            connection: ours.connection.clone(),
            effect: ours.effect.join(", then "),
            others: Kind::ALL.map(|_| String::new()),
            remark: row.all('?').collect::<Vec<_>>().join(" "),
        };
        match table {
            Table::Requests => {
                let is_part = row.one('~') == "part";
                if ours.effect.is_empty() {
                    case.effect = if is_part { "only the beginning" } else { "nothing" }.to_owned();
                }
                // With a fault in the middle of a message, timing decides whether another origin reads its
                // beginning; so its reading is not recorded.
                if !is_part {
                    for (cell, (kind, theirs)) in case.others.iter_mut().zip(Kind::ALL.iter().zip(others)) {
                        *cell = theirs.map_or_else(String::new, |theirs| difference(ours, *kind, theirs));
                    }
                }
            }
            Table::Responses => case.origin_sends = origin_sends(row),
            Table::Poisoning => {
                case.origin_sends = row.all('<').map(str::trim).collect::<Vec<_>>().join("⏎");
            }
        }
        case
    }

    /// Returns the case without the other origins' readings.
    fn without_others(&self) -> Self {
        Self { others: Kind::ALL.map(|_| String::new()), ..self.clone() }
    }

    /// Returns the line of the data file, without its line end.
    fn line(&self) -> String {
        let own = [
            self.table.name(),
            &self.attack,
            &self.name,
            &self.rule,
            &self.client_sends,
            &self.origin_sends,
            &self.answer,
            &self.connection,
            &self.effect,
        ];
        let others = self.others.iter().map(String::as_str);
        own.into_iter().chain(others).chain([self.remark.as_str()]).collect::<Vec<_>>().join("\t")
    }

    /// Parses a line of the data file.
    fn parse(line: &str) -> Result<Self, String> {
        let mut cells = line.split('\t');
        let mut cell = || cells.next().map(str::to_owned).ok_or_else(|| format!("too few cells: {line}"));
        let name = cell()?;
        let table = Table::ALL.into_iter().find(|table| table.name() == name);
        let case = Self {
            table: table.ok_or_else(|| format!("no table has this name: {line}"))?,
            attack: cell()?,
            name: cell()?,
            rule: cell()?,
            client_sends: cell()?,
            origin_sends: cell()?,
            answer: cell()?,
            connection: cell()?,
            effect: cell()?,
            others: [cell()?, cell()?, cell()?, cell()?, cell()?],
            remark: cell()?,
        };
        if cells.next().is_some() { Err(format!("too many cells: {line}")) } else { Ok(case) }
    }
}

/// Content of the data file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Names and versions of the other origins, in the order of [`Kind::ALL`].
    pub origins: [String; Kind::ALL.len()],
    /// All cases, table by table.
    pub cases: Vec<Case>,
}

impl Record {
    /// Makes the record of a run, with the versions of the origins that are installed.
    #[must_use]
    pub fn new(cases: Vec<Case>) -> Self {
        Self { origins: Kind::ALL.map(Kind::title), cases }
    }

    /// Parses the data file.
    ///
    /// # Errors
    /// The first line that differs from the format of [`Self::text`].
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines();
        let titles: Vec<&str> = lines.next().unwrap_or_default().split('\t').collect();
        let origins = titles.strip_prefix(&COLUMNS).and_then(|rest| rest.strip_suffix(&[REMARK]));
        let origins = origins.ok_or("the titles of the columns differ")?;
        let origins: Vec<String> = origins.iter().map(|&origin| origin.to_owned()).collect();
        let origins: [String; Kind::ALL.len()] =
            origins.try_into().map_err(|_| "the number of origins differs")?;
        let cases = lines.map(Case::parse).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { origins, cases })
    }

    /// Returns the text of the data file.
    #[must_use]
    pub fn text(&self) -> String {
        let origins = self.origins.iter().map(String::as_str);
        let titles: Vec<&str> = COLUMNS.into_iter().chain(origins).chain([REMARK]).collect();
        let mut text = titles.join("\t") + "\n";
        for case in &self.cases {
            text += &(case.line() + "\n");
        }
        text
    }

    /// Returns the lines of a table that a run would add (`+`) or remove (`-`). The other origins' readings
    /// count only if their installed versions are those of the record.
    #[must_use]
    pub fn changes(&self, table: Table, cases: &[Case]) -> Vec<String> {
        let are_same_origins = self.origins == Kind::ALL.map(Kind::title);
        let line = |case: &Case| if are_same_origins { case.line() } else { case.without_others().line() };
        let recorded: Vec<String> = self.cases.iter().filter(|case| case.table == table).map(line).collect();
        let new: Vec<String> = cases.iter().map(line).collect();
        let added = new.iter().filter(|line| !recorded.contains(line)).map(|line| format!("+ {line}"));
        let removed = recorded.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
        added.chain(removed).collect()
    }
}

/// Returns the origin's bytes as a cell shows them, with later bytes and the end of the connection.
fn origin_sends(row: &Row) -> String {
    let later = match shown(&row.wire('%')) {
        later if later.is_empty() => later,
        later => format!(", later {later}"),
    };
    let then = match row.one('!') {
        "close" => ", then closes",
        "stall" => ", then stalls",
        _ => "",
    };
    format!("{}{later}{then}", shown(&row.wire('<')))
}

/// Returns another origin's requests and the client's status where they differ from the scripted origin's;
/// else nothing.
fn difference(ours: &CaseResult, kind: Kind, theirs: &CaseResult) -> String {
    let counted = |line: &String| {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let body = words.get(3).copied().unwrap_or_default();
        let bytes = unescaped(body).map_or(0, |body| body.len());
        format!("{} {} {} {bytes}", words[0], words[1], words.get(2).copied().unwrap_or_default())
    };
    let want: Vec<String> = ours.effect.iter().map(counted).collect();
    let is_same = theirs.answer == ours.answer
        && theirs.effect.len() == want.len()
        && theirs.effect.iter().zip(&want).all(|(is, want)| are_same(kind, is, want));
    if is_same {
        return String::new();
    }
    let asked = if theirs.effect.is_empty() { "nothing".to_owned() } else { theirs.effect.join(", then ") };
    format!("{asked} ({})", theirs.answer)
}

/// Compares two readings. nginx does not log the length of a chunked body, so for it the length is ignored.
fn are_same(kind: Kind, is: &str, want: &str) -> bool {
    let without_length = |line: &str| line.rsplit_once(' ').map(|(rest, _)| rest.to_owned());
    is == want || kind == Kind::Nginx && without_length(is) == without_length(want)
}

/// Returns bytes as a cell shows them.
fn shown(bytes: &[u8]) -> String {
    let text =
        bytes.escape_ascii().to_string().replace("\\r\\n", "⏎").replace("\\'", "'").replace("\\\"", "\"");
    shortened(&text)
}

/// Cuts the middle out of a long text.
pub(super) fn shortened(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= SHOWN_MAX {
        return text.to_owned();
    }
    let begin: String = characters[..SHOWN_MAX / 2].iter().collect();
    let end: String = characters[characters.len() - SHOWN_MAX / 2..].iter().collect();
    format!("{begin} … {end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_file() {
        let case = Case {
            table: Table::Requests,
            attack: "Chunked bodies".to_owned(),
            name: "one".to_owned(),
            rule: "RFC 9112 §7.1".to_owned(),
            client_sends: "GET / HTTP/1.1⏎⏎".to_owned(),
            origin_sends: String::new(),
            answer: "400".to_owned(),
            connection: "closed".to_owned(),
            effect: "nothing".to_owned(),
            others: Kind::ALL.map(|kind| format!("{kind:?}")),
            remark: String::new(),
        };
        let origins = Kind::ALL.map(|kind| kind.name().to_owned());
        let record = Record { origins, cases: vec![case.clone(), case] };
        assert_eq!(Record::parse(&record.text()), Ok(record.clone()));
        assert!(Record::parse("table\n").is_err() && Record::parse(&(record.text() + "requests\n")).is_err());
    }
}
