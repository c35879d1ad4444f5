//! Writer of the page about a run: the same results give the same bytes, wherever and whenever the suite ran.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use super::{
    judgement::{Count, Judgement, Kind, Said, Test, Verdict},
    reasons::Reasons,
};

/// Package and version that the page is about; `tests/clients/conformance/package.json` installs it.
const SUITE: &str = "http-cache-tests 0.4.5";

const HEAD: &str = "\
# What passes of the public suite for RFC 9111

Written by `make conformance`; what is said by hand stands in `tests/clients/conformance/reasons.txt`. A test compares
this page with what the suite says, so it changes with the accelerator and not after it.

";

const COUNTED: &str = "
Counted as the suite's own page counts: a test has passed when its result is `true` and every test that it depends on
has passed. *Required* is what the RFC demands, *optimal* what saves requests to the origin; a *check* asks what a cache
does, and no answer is wrong. A test that failed in its *setup* did not come to its point; one that is *undecided*
depends on a test that did not pass. Tests for browsers alone are left out. Surrogate-Control (a note of the W3C of 2001,
which newer versions of the suite have replaced by RFC 9213's CDN-Cache-Control) is listed below and not counted.
";

/// Writes the page.
#[must_use]
pub fn write(judgement: &Judgement, reasons: &Reasons, flags: &str) -> String {
    let mut page = HEAD.to_owned();
    let _ = write!(
        page,
        "The suite is npm's [{SUITE}](https://www.npmjs.com/package/http-cache-tests) (BSD-3-Clause; the names of the\n\
         tests are its own). Its client asks `nighttrain cache {flags}`, behind which is its origin.\n\n"
    );
    page += "| | required | optimal | check: yes |\n|---|--:|--:|--:|\n";
    for (name, counted) in [("counted", true), ("Surrogate-Control, not counted", false)] {
        let [required, optimal, check] = Kind::ALL.map(|kind| of(judgement.count(kind, counted)));
        let _ = writeln!(page, "| {name} | {required} | {optimal} | {check} |");
    }
    page += COUNTED;
    write_failures(&mut page, judgement, reasons);
    for group in &judgement.groups {
        let _ = write!(
            page,
            "\n## {}\n\n| test | what it tests | kind | result |\n|---|---|---|---|\n",
            group.name
        );
        for test in &group.tests {
            page += &row(test, judgement.of(&test.id), reasons);
        }
    }
    page
}

/// Formats a count as "3 of 5".
#[must_use]
pub fn of(count: Count) -> String {
    format!("{} of {}", count.passed, count.all)
}

fn write_failures(page: &mut String, judgement: &Judgement, reasons: &Reasons) {
    let failed: BTreeSet<&str> = judgement.failed().map(|test| test.id.as_str()).collect();
    page.push_str("\n## Required and optimal that do not pass, and why\n\n");
    if failed.is_empty() {
        page.push_str("None.\n");
    }
    for (reason, tests) in reasons.grouped(&failed) {
        let tests: Vec<String> = tests.iter().map(|id| format!("`{id}`")).collect();
        let _ = writeln!(page, "- {reason} ({}: {})", tests.len(), tests.join(", "));
    }
}

fn row(test: &Test, verdict: &Verdict, reasons: &Reasons) -> String {
    let mut result = words(test.kind, verdict);
    // The reasons of failed required and optimal tests stand above the tables.
    if let (Kind::Check, Some(reason)) = (test.kind, reasons.of(&test.id)) {
        result += &format!(" — {reason}");
    }
    let cell = |text: &str| text.replace('|', "\\|");
    format!("| `{}` | {} | {} | {} |\n", test.id, cell(&test.name), test.kind.name(), cell(&result))
}

/// Returns the verdict in words.
#[must_use]
pub fn words(kind: Kind, verdict: &Verdict) -> String {
    let (passed, failed) = if kind == Kind::Check { ("yes", "no") } else { ("passed", "failed") };
    let with =
        |what: &str, why: &str| if why.is_empty() { what.to_owned() } else { format!("{what}: {why}") };
    match verdict {
        Verdict::Passed => passed.to_owned(),
        Verdict::Failed(why) => with(failed, why),
        Verdict::SetupFailed(why) => with("setup failed", why),
        Verdict::Undecided(on, said) => {
            let itself = match said {
                Said::Passed => passed.to_owned(),
                Said::Failed(why) => with(failed, why),
                Said::SetupFailed(why) => with("setup failed", why),
            };
            let on: Vec<String> = on.iter().map(|id| format!("`{id}`")).collect();
            format!("undecided, for want of {}; itself {itself}", on.join(" and "))
        }
        Verdict::NotRun => "not run".to_owned(),
    }
}

/// Returns the tests whose rows differ between two pages, as `was` and `is`; a missing row is an empty
/// string.
#[must_use]
pub fn changed(was: &str, is: &str) -> BTreeMap<String, (String, String)> {
    let (was, is) = (rows(was), rows(is));
    let ids: BTreeSet<&str> = was.keys().chain(is.keys()).copied().collect();
    let row = |rows: &BTreeMap<&str, &str>, id: &str| (*rows.get(id).unwrap_or(&"")).to_owned();
    let both = ids.into_iter().map(|id| (id.to_owned(), (row(&was, id), row(&is, id))));
    both.filter(|(_, (was, is))| was != is).collect()
}

fn rows(page: &str) -> BTreeMap<&str, &str> {
    let id = |line: &str| -> Option<usize> { line.strip_prefix("| `")?.find("` |") };
    page.lines().filter_map(|line| Some((&line[3..3 + id(line)?], line))).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::judgement, *};

    fn page(result: &str, reasons: &str) -> String {
        let list = r#"[{"id": "g", "name": "Group", "tests": [
            {"id": "one", "name": "`A|B`", "kind": "required", "depends_on": []},
            {"id": "two", "name": "C?", "kind": "check", "depends_on": ["one"]}]}]"#;
        let results = judgement::results(&format!(r#"{{"one": {result}, "two": true}}"#));
        let judgement = Judgement::new(judgement::groups(list), &results);
        write(&judgement, &Reasons::parse(reasons).expect("it is right"), "--flag")
    }

    #[test]
    fn the_page_lists_failures_reasons_and_changes() {
        let fails = page(r#"["Assertion", "not so"]"#, "Because.\n  one\nNobody knows.\n  two\n");
        let passes = page("true", "Nobody knows.\n  two\n");
        assert!(fails.contains("| counted | 0 of 1 | 0 of 0 | 0 of 1 |"), "{fails}");
        assert!(fails.contains("- Because. (1: `one`)"), "{fails}");
        assert!(fails.contains("| `one` | `A\\|B` | required | failed: not so |"), "{fails}");
        assert!(fails.contains("undecided, for want of `one`; itself yes — Nobody knows. |"), "{fails}");
        assert!(passes.contains("| counted | 1 of 1 | 0 of 0 | 1 of 1 |"), "{passes}");
        assert!(passes.contains("| `two` | C? | check | yes — Nobody knows. |"), "{passes}");

        assert_eq!(changed(&fails, &fails), BTreeMap::new());
        let changed = changed(&fails, &passes);
        assert_eq!(changed.keys().collect::<Vec<_>>(), ["one", "two"]);
        assert!(changed["one"].1.ends_with("passed |"), "{changed:?}");
        // A test that only one of the two pages has is a change, too.
        assert_eq!(super::changed("", &passes).len(), 2);
        assert_eq!(super::changed(&passes, "").len(), 2);
    }
}
