//! Slow twin of filter expressions: it evaluates each test by itself, then repeatedly the innermost group.
//!
//! The twin parses the printed form, whose grammar is small: texts and patterns in quotes, numbers without, `&&`,
//! `||` and `!(`. Patterns are simulated state by state, with the one regex engine that the real
//! implementation does not use.

use regex_automata::{
    nfa::thompson::{self, pikevm::PikeVM},
    util::syntax,
};
use wire::filter::{Field, Kind, Record};

/// Fields of each kind, with and without `*`. The id is the name without the `*`.
pub(crate) const FIELDS: [Field<&str>; 7] = [
    Field { name: "req.url", id: "req.url", kind: Kind::Text, of_request: true },
    Field { name: "req.http.*", id: "req.http.", kind: Kind::Text, of_request: true },
    Field { name: "obj.http.*", id: "obj.http.", kind: Kind::Text, of_request: false },
    Field { name: "obj.status", id: "obj.status", kind: Kind::Number, of_request: false },
    Field { name: "obj.age", id: "obj.age", kind: Kind::Duration, of_request: false },
    Field { name: "obj.ttl", id: "obj.ttl", kind: Kind::Duration, of_request: false },
    Field { name: "obj.size", id: "obj.size", kind: Kind::Bytes, of_request: false },
];

/// A record with fields, by their whole names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Thing {
    pub(crate) texts: Vec<(String, Vec<u8>)>,
    pub(crate) numbers: Vec<(String, i64)>,
}

impl Record<&str> for Thing {
    fn texts(&self, field: &str, name: &str) -> impl Iterator<Item = &[u8]> {
        self.texts
            .iter()
            .filter(move |(of, _)| of.strip_prefix(field) == Some(name))
            .map(|(_, text)| &text[..])
    }

    fn number(&self, field: &str) -> Option<i64> {
        self.numbers.iter().find(|(of, _)| of == field).map(|(_, number)| *number)
    }
}

/// A test as printed, with the value unquoted.
#[derive(Debug, Clone)]
pub(crate) struct Test {
    pub(crate) field: String,
    pub(crate) operator: String,
    pub(crate) value: String,
}

impl Test {
    pub(crate) fn holds(&self, thing: &Thing) -> bool {
        let operator = &self.operator[..];
        let number = thing.numbers.iter().find(|(of, _)| *of == self.field).map(|(_, number)| *number);
        if let Some(wanted) = self.number() {
            return match operator {
                "==" => number == Some(wanted),
                "!=" => number != Some(wanted),
                "<" => number.is_some_and(|number| number < wanted),
                "<=" => number.is_some_and(|number| number <= wanted),
                ">" => number.is_some_and(|number| number > wanted),
                ">=" => number.is_some_and(|number| number >= wanted),
                _ => panic!("{self:?}"),
            };
        }
        let texts = thing.texts.iter().filter(|(of, _)| *of == self.field).map(|(_, text)| text.clone());
        let values: Vec<Vec<u8>> =
            texts.chain(number.map(|number| number.to_string().into_bytes())).collect();
        match operator {
            "==" => values.iter().any(|value| value == self.value.as_bytes()),
            "!=" => values.iter().all(|value| value != self.value.as_bytes()),
            "~" => values.iter().any(|value| self.is_found_in(value)),
            "!~" => !values.is_empty() && !values.iter().any(|value| self.is_found_in(value)),
            _ => panic!("{self:?}"),
        }
    }

    /// Returns the value as a number; `None` if the test is not a numeric comparison.
    pub(crate) fn number(&self) -> Option<i64> {
        let is_number = ["obj.status", "obj.age", "obj.ttl", "obj.size"].contains(&&self.field[..]);
        if !is_number || self.operator.contains('~') {
            return None;
        }
        let units = [
            ("us", 1),
            ("ms", 1_000),
            ("s", 1_000_000),
            ("m", 60_000_000),
            ("h", 3_600_000_000),
            ("d", 86_400_000_000),
            ("w", 604_800_000_000),
            ("y", 31_536_000_000_000),
            ("B", 1),
            ("KiB", 1_024),
            ("MiB", 1_048_576),
            ("GiB", 1_073_741_824),
            ("", 1_i64),
        ];
        let of_unit = |(unit, worth): (&str, i64)| {
            let number: i64 = self.value.strip_suffix(unit)?.parse().ok()?;
            Some(number * worth)
        };
        Some(units.into_iter().find_map(of_unit).expect("a number as it prints"))
    }

    fn is_found_in(&self, value: &[u8]) -> bool {
        let machine = PikeVM::builder()
            .syntax(syntax::Config::new().unicode(false).utf8(false))
            .thompson(thompson::Config::new().utf8(false))
            .build(&self.value)
            .expect("what the parser took");
        machine.is_match(&mut machine.create_cache(), value)
    }
}

/// Splits a printed expression into its tests and the text around them, with a `t` for each test.
pub(crate) fn apart(printed: &str) -> (Vec<Test>, String) {
    let (mut tests, mut around, mut rest) = (Vec::new(), String::new(), printed);
    while let Some(first) = rest.chars().next() {
        if "!()&| ".contains(first) {
            around.extend(Some(first).filter(|&c| c != ' '));
            rest = &rest[1..];
            continue;
        }
        let (field, behind) = rest.split_once(' ').expect("a blank behind a field");
        let (operator, behind) = behind.split_once(' ').expect("a blank behind an operator");
        let value_len = match behind.strip_prefix('"') {
            Some(_) => {
                let is_last = |at: &usize| {
                    !behind[at + 1..].starts_with('"')
                        && behind[..=*at].matches('"').count().is_multiple_of(2)
                };
                1 + behind.match_indices('"').map(|(at, _)| at).find(is_last).expect("a quote behind a text")
            }
            None => behind.find([' ', ')']).unwrap_or(behind.len()),
        };
        let (value, behind) = behind.split_at(value_len);
        let value = match value.strip_prefix('"') {
            Some(value) => value[..value.len() - 1].replace("\"\"", "\""),
            None => value.to_owned(),
        };
        tests.push(Test { field: field.to_owned(), operator: operator.to_owned(), value });
        around.push('t');
        rest = behind;
    }
    (tests, around)
}

/// Returns whether a printed expression is true, given the verdicts of its tests.
pub(crate) fn holds(around: &str, verdicts: impl IntoIterator<Item = bool>) -> bool {
    let mut verdicts = verdicts.into_iter();
    let mut text: String = around
        .chars()
        .map(|c| if c == 't' { digit(verdicts.next().expect("a verdict each")) } else { c })
        .collect();
    while let Some(open) = text.rfind('(') {
        let close = open + text[open..].find(')').expect("a group's end");
        let verdict = flat(&text[open + 1..close]);
        text.replace_range(open..=close, &digit(verdict).to_string());
    }
    flat(&text)
}

fn digit(verdict: bool) -> char {
    if verdict { '1' } else { '0' }
}

/// Evaluates text without groups: 1 and 0, `!` before them, `&&` and `||` between.
fn flat(text: &str) -> bool {
    text.split("||").any(|all| all.split("&&").all(|one| matches!(one, "1" | "!0")))
}
