//! Verdicts on the suite's results, counted as the suite's own page counts them (its `determineTestResult`).
//!
//! A test has passed when its result is `true` **and** each test that it depends on has passed; a check that
//! another test depends on has passed when its answer is yes. So a result that proves nothing does not count:
//! a cache that never serves stale answers does not pass the test that forbids a stale answer in some case.

use std::collections::BTreeMap;

use serde_json::Value;

/// The group that is listed but not counted: Surrogate-Control is a W3C note of 2001, which the suite's
/// authors have since replaced by RFC 9213's CDN-Cache-Control.
pub const NOT_COUNTED: &str = "surrogate-control";

/// Importance of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The RFC requires the behaviour.
    Required,
    /// The behaviour saves requests to the origin.
    Optimal,
    /// The test asks what a cache does; no answer is wrong.
    Check,
}

impl Kind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [Kind; 3] = [Kind::Required, Kind::Optimal, Kind::Check];

    /// Returns the suite's word for the kind.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Required => "required",
            Kind::Optimal => "optimal",
            Kind::Check => "check",
        }
    }

    fn parse(name: &str) -> Self {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        kind.unwrap_or_else(|| panic!("a kind of test that is not known: {name}"))
    }
}

/// Result of a test, from the suite's client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The result is `true`.
    Passed,
    /// The tested behaviour is not there; the text is the suite's.
    Failed(String),
    /// The test failed before it reached its point; the text is the suite's.
    SetupFailed(String),
}

/// Results by the test's id.
pub type Results = BTreeMap<String, Said>;

/// A group of tests.
#[derive(Debug, Clone)]
pub struct Group {
    /// The suite's id for it.
    pub id: String,
    /// Heading of the group.
    pub name: String,
    /// Tests of the group, in the suite's order.
    pub tests: Vec<Test>,
}

/// A test, as the suite describes it.
#[derive(Debug, Clone)]
pub struct Test {
    /// Id, unique in the suite.
    pub id: String,
    /// Description of the test, in Markdown.
    pub name: String,
    /// Importance of the test.
    pub kind: Kind,
    /// Ids of the tests that must pass before this one proves anything.
    pub depends_on: Vec<String>,
}

/// Verdict on a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Passed; for a check: yes.
    Passed,
    /// Failed, with the suite's text; for a check: no.
    Failed(String),
    /// Failed in its setup, with the suite's text.
    SetupFailed(String),
    /// The result proves nothing, because these tests have not passed; the second field is the result itself.
    Undecided(Vec<String>, Said),
    /// The suite's client reported no result.
    NotRun,
}

/// All tests and the verdicts on them.
#[derive(Debug)]
pub struct Judgement {
    /// Groups of tests, in the suite's order.
    pub groups: Vec<Group>,
    verdicts: BTreeMap<String, Verdict>,
}

/// Number of tests of one kind that passed, and their total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Tests that passed.
    pub passed: usize,
    /// All tests of the kind.
    pub all: usize,
}

impl Judgement {
    /// Decides on each test.
    #[must_use]
    pub fn new(groups: Vec<Group>, results: &Results) -> Self {
        let tests: BTreeMap<&str, &Test> =
            groups.iter().flat_map(|group| &group.tests).map(|test| (test.id.as_str(), test)).collect();
        let verdicts = tests.values().map(|test| (test.id.clone(), verdict(test, &tests, results))).collect();
        Self { groups, verdicts }
    }

    /// Returns the verdict on a test.
    #[must_use]
    pub fn of(&self, id: &str) -> &Verdict {
        self.verdicts.get(id).unwrap_or(&Verdict::NotRun)
    }

    /// Counts the passed tests of a kind, in the groups that are counted or in the one that is not.
    #[must_use]
    pub fn count(&self, kind: Kind, counted: bool) -> Count {
        let mut count = Count::default();
        for test in self.tests().filter(|(group, test)| test.kind == kind && group.is_counted() == counted) {
            count.all += 1;
            count.passed += usize::from(*self.of(&test.1.id) == Verdict::Passed);
        }
        count
    }

    /// Iterates over the counted tests that have not passed; checks cannot fail.
    pub fn failed(&self) -> impl Iterator<Item = &Test> {
        let counted = self.tests().filter(|(group, test)| group.is_counted() && test.kind != Kind::Check);
        counted.map(|(_, test)| test).filter(|test| *self.of(&test.id) != Verdict::Passed)
    }

    /// Iterates over all tests with their groups.
    pub fn tests(&self) -> impl Iterator<Item = (&Group, &Test)> {
        self.groups.iter().flat_map(|group| group.tests.iter().map(move |test| (group, test)))
    }
}

impl Group {
    /// Returns whether the group's tests are counted in the figures.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.id != NOT_COUNTED
    }
}

fn verdict(test: &Test, tests: &BTreeMap<&str, &Test>, results: &Results) -> Verdict {
    let Some(said) = results.get(&test.id) else { return Verdict::NotRun };
    let missing: Vec<String> =
        test.depends_on.iter().filter(|id| !has_passed(id, tests, results)).cloned().collect();
    if !missing.is_empty() {
        return Verdict::Undecided(missing, said.clone());
    }
    match said.clone() {
        Said::Passed => Verdict::Passed,
        Said::Failed(why) => Verdict::Failed(why),
        Said::SetupFailed(why) => Verdict::SetupFailed(why),
    }
}

/// Recursion ends because the suite's dependencies have no circles; its own page relies on that, too.
fn has_passed(id: &str, tests: &BTreeMap<&str, &Test>, results: &Results) -> bool {
    let depends_on = tests.get(id).map_or(&[][..], |test| &test.depends_on);
    results.get(id) == Some(&Said::Passed) && depends_on.iter().all(|id| has_passed(id, tests, results))
}

/// Parses the tests from the output of `list.mjs`.
///
/// # Panics
/// If the text is not the output of `list.mjs`.
#[must_use]
pub fn groups(list: &str) -> Vec<Group> {
    let list: Value = serde_json::from_str(list).unwrap_or_else(|error| panic!("list.mjs: {error}: {list}"));
    let text = |value: &Value| value.as_str().expect("list.mjs prints text there").to_owned();
    let array = |value: &Value| value.as_array().expect("list.mjs prints a list there").clone();
    let test = |test: &Value| Test {
        id: text(&test["id"]),
        name: text(&test["name"]),
        kind: Kind::parse(&text(&test["kind"])),
        depends_on: array(&test["depends_on"]).iter().map(text).collect(),
    };
    let group = |group: &Value| Group {
        id: text(&group["id"]),
        name: text(&group["name"]),
        tests: array(&group["tests"]).iter().map(test).collect(),
    };
    array(&list).iter().map(group).collect()
}

/// Parses the results that the suite's client prints: `true`, or the error's name and message.
///
/// # Panics
/// If the text is not the client's output.
#[must_use]
pub fn results(printed: &str) -> Results {
    let results: Value = serde_json::from_str(printed)
        .unwrap_or_else(|error| panic!("the suite's client printed no results: {error}: {printed}"));
    let results = results.as_object().expect("results by id");
    let said = |result: &Value| match result {
        Value::Bool(true) => Said::Passed,
        result => {
            let words = plain(result[1].as_str().unwrap_or_default());
            if result[0] == "Setup" { Said::SetupFailed(words) } else { Said::Failed(words) }
        }
    };
    results.iter().map(|(id, result)| (id.clone(), said(result))).collect()
}

/// Parses the client's output for a single test: a sign and a message below a heading.
///
/// # Panics
/// If there is no such heading.
#[must_use]
pub fn single(printed: &str) -> Said {
    let (_, said) = printed
        .rsplit_once("==== Results")
        .unwrap_or_else(|| panic!("the suite's client printed no result: {printed}"));
    let (sign, words) = said.split_once(" - ").unwrap_or((said, ""));
    let words = plain(words);
    match sign.rsplit(|c: char| c.is_whitespace()).next().unwrap_or_default() {
        "✅" | "Y" => Said::Passed,
        "🔹" | "↻" => Said::SetupFailed(words),
        _ => Said::Failed(words),
    }
}

/// Removes from the suite's message all that differs from run to run.
fn plain(words: &str) -> String {
    // The body is the test's random id, or an error page with the request's id.
    if words.contains(" body is ") {
        return "The body is another".to_owned();
    }
    let words: Vec<&str> = words.split_whitespace().collect();
    let is_url = |word: &str| word.contains("http://");
    let words: Vec<&str> = words.into_iter().map(|word| if is_url(word) { "…" } else { word }).collect();
    // A date has six words, and the last is GMT.
    let mut plain: Vec<&str> = Vec::new();
    for word in words {
        let is_date = word.starts_with("GMT") && plain.len() >= 5 && plain[plain.len() - 1].contains(':');
        if is_date {
            plain.truncate(plain.len() - 5);
            plain.push("a date");
        } else {
            plain.push(word);
        }
    }
    plain.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(id: &str, kind: Kind, depends_on: &[&str]) -> Test {
        let depends_on = depends_on.iter().map(|&id| id.to_owned()).collect();
        Test { id: id.to_owned(), name: id.to_owned(), kind, depends_on }
    }

    #[test]
    fn dependents_of_a_failure_do_not_count() {
        let group = |id: &str, tests| Group { id: id.to_owned(), name: id.to_owned(), tests };
        let groups = vec![
            group(
                "first",
                vec![
                    test("asked", Kind::Check, &[]),
                    test("near", Kind::Required, &["asked"]),
                    test("far", Kind::Optimal, &["near"]),
                    test("alone", Kind::Required, &[]),
                ],
            ),
            group(NOT_COUNTED, vec![test("aside", Kind::Required, &[])]),
        ];
        let mut results = results(
            r#"{"asked": ["Assertion", "no"], "near": true, "far": true, "alone": true, "aside": ["Setup", "x"]}"#,
        );
        let judgement = Judgement::new(groups.clone(), &results);
        assert_eq!(*judgement.of("near"), Verdict::Undecided(vec!["asked".to_owned()], Said::Passed));
        assert_eq!(*judgement.of("far"), Verdict::Undecided(vec!["near".to_owned()], Said::Passed));
        assert_eq!(judgement.count(Kind::Required, true), Count { passed: 1, all: 2 });
        assert_eq!(judgement.count(Kind::Required, false), Count { passed: 0, all: 1 });
        assert_eq!(judgement.failed().map(|test| test.id.as_str()).collect::<Vec<_>>(), ["near", "far"]);

        results.insert("asked".to_owned(), Said::Passed);
        results.remove("alone");
        let judgement = Judgement::new(groups, &results);
        assert_eq!(judgement.count(Kind::Optimal, true), Count { passed: 1, all: 1 });
        assert_eq!(judgement.failed().map(|test| test.id.as_str()).collect::<Vec<_>>(), ["alone"]);
    }

    #[test]
    fn single_and_full_runs_are_judged_alike() {
        let head =
            "Running x\n=== Client request 1\n    GET http://127.0.0.1:1/\n\u{1b}[32m==== Results\u{1b}[0m\n";
        let alone = |sign: &str| single(&format!("{head}{sign} - Response 2 comes\nfrom cache\n"));
        let words = "Response 2 comes from cache".to_owned();
        assert_eq!(single(&format!("{head}✅ - \n")), Said::Passed);
        assert_eq!(single(&format!("{head}Y - \n")), Said::Passed);
        assert_eq!(alone("⛔️"), Said::Failed(words.clone()));
        assert_eq!(alone("⚠️"), Said::Failed(words.clone()));
        assert_eq!(alone("N"), Said::Failed(words.clone()));
        assert_eq!(alone("🔹"), Said::SetupFailed(words));
    }

    #[test]
    fn run_specific_details_are_left_out() {
        for (said, want) in [
            (r#"Response body is "0badcafe-0000", not "01""#, "The body is another"),
            (
                "request to http://127.0.0.1:4711/test/1 failed, reason: closed",
                "request to … failed, reason: closed",
            ),
            (
                r#"header Date is "Mon, 23 Nov 2026 10:53:55 GMT", not "Mon, 23 Nov 2026 10:53:58 GMT""#,
                "header Date is a date not a date",
            ),
            ("Response 2 status is 502, not 200", "Response 2 status is 502, not 200"),
        ] {
            assert_eq!(plain(said), want);
        }
    }
}
