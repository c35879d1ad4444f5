//! Reasons why a test of the suite fails, or why the accelerator answers a check as it does.
//!
//! `reasons.txt` is written for people: a line at the margin is part of a reason, an indented line names
//! tests that the reason is for, `#` begins a comment. One sentence can thus serve many tests.

use std::collections::{BTreeMap, BTreeSet};

use super::judgement::{Judgement, Kind, Verdict};

/// Reasons by test.
#[derive(Debug, Default)]
pub struct Reasons {
    texts: Vec<String>,
    by_test: BTreeMap<String, usize>,
}

impl Reasons {
    /// Parses the file.
    ///
    /// # Errors
    /// A sentence that names the line at fault.
    pub fn parse(file: &str) -> Result<Self, String> {
        let mut reasons = Self::default();
        let mut in_text = false;
        for (line, number) in file.lines().zip(1..) {
            let tests = line.trim();
            if tests.is_empty() || line.starts_with('#') {
                in_text = false;
            } else if !line.starts_with(' ') {
                match reasons.texts.last_mut().filter(|_| in_text) {
                    Some(text) => *text += &format!(" {tests}"),
                    None => reasons.texts.push(tests.to_owned()),
                }
                in_text = true;
            } else {
                in_text = false;
                let text =
                    reasons.texts.len().checked_sub(1).ok_or(format!("line {number}: no reason yet"))?;
                for test in tests.split_whitespace() {
                    if reasons.by_test.insert(test.to_owned(), text).is_some() {
                        return Err(format!("line {number}: {test} has a reason already"));
                    }
                }
            }
        }
        Ok(reasons)
    }

    /// Iterates over all tests that have a reason.
    pub fn tests(&self) -> impl Iterator<Item = &str> {
        self.by_test.keys().map(String::as_str)
    }

    /// Returns the reason for a test.
    #[must_use]
    pub fn of(&self, test: &str) -> Option<&str> {
        self.by_test.get(test).map(|&text| self.texts[text].as_str())
    }

    /// Iterates over the reasons in the file's order, each with those of `tests` that it is for.
    pub fn grouped<'a>(&'a self, tests: &BTreeSet<&'a str>) -> impl Iterator<Item = (&'a str, Vec<&'a str>)> {
        let of = |text: usize| {
            let has = |id: &&str| self.by_test.get(*id) == Some(&text);
            tests.iter().copied().filter(has).collect::<Vec<_>>()
        };
        let all: Vec<_> = (0..self.texts.len()).map(|text| (self.texts[text].as_str(), of(text))).collect();
        all.into_iter().filter(|(_, tests)| !tests.is_empty())
    }

    /// Returns what does not fit: failures without a reason, and reasons for tests that pass or do not exist.
    #[must_use]
    pub fn compare(&self, judgement: &Judgement) -> Vec<String> {
        let without = judgement
            .failed()
            .filter(|test| self.of(&test.id).is_none())
            .map(|test| format!("{} fails, and reasons.txt does not say why", test.id));
        let kinds: BTreeMap<&str, Kind> =
            judgement.tests().map(|(_, test)| (test.id.as_str(), test.kind)).collect();
        let idle = self.by_test.keys().filter_map(|id| match kinds.get(id.as_str()) {
            None => Some(format!("{id} is no test of the suite, but has a reason in reasons.txt")),
            Some(Kind::Check) => None,
            Some(_) if *judgement.of(id) != Verdict::Passed => None,
            Some(_) => Some(format!("{id} passes: take it out of reasons.txt")),
        });
        without.chain(idle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::judgement, *};

    #[test]
    fn a_reason_may_span_lines_and_tests() {
        let file = "# A comment.\nNobody asks\nfor it.\n  a b\n  c\n\nOther.\n  d\n";
        let reasons = Reasons::parse(file).expect("it is right");
        assert_eq!(reasons.of("c"), Some("Nobody asks for it."));
        assert_eq!(reasons.of("d"), Some("Other."));
        assert_eq!(reasons.of("e"), None);
        let grouped: Vec<_> = reasons.grouped(&BTreeSet::from(["d", "b"])).collect();
        assert_eq!(grouped, [("Nobody asks for it.", vec!["b"]), ("Other.", vec!["d"])]);
        assert_eq!(Reasons::parse("  a\n").unwrap_err(), "line 1: no reason yet");
        assert_eq!(Reasons::parse("x\n  a\n  a\n").unwrap_err(), "line 3: a has a reason already");
    }

    #[test]
    fn failures_and_reasons_must_fit() {
        let list = r#"[{"id": "g", "name": "G", "tests": [
            {"id": "fails", "name": "", "kind": "required", "depends_on": []},
            {"id": "passes", "name": "", "kind": "optimal", "depends_on": []},
            {"id": "asks", "name": "", "kind": "check", "depends_on": []}]}]"#;
        let results = judgement::results(r#"{"fails": ["Assertion", "x"], "passes": true, "asks": true}"#);
        let judgement = Judgement::new(judgement::groups(list), &results);
        let compare = |file: &str| Reasons::parse(file).expect("it is right").compare(&judgement);
        assert_eq!(compare("x\n  fails asks\n"), [""; 0]);
        assert_eq!(compare(""), ["fails fails, and reasons.txt does not say why"]);
        assert_eq!(compare("x\n  fails passes\n"), ["passes passes: take it out of reasons.txt"]);
        assert_eq!(
            compare("x\n  fails gone\n"),
            ["gone is no test of the suite, but has a reason in reasons.txt"]
        );
    }
}
