//! A run as a page of Markdown: every claim with its verdict and an explanation.
//!
//! This module renders `docs/lab/README.md`: the table comes from the run, the paragraphs from
//! [`crate::experiments::explained`]. A paragraph on what has changed since publication is shown only for a
//! claim that does not hold as published.

use std::{collections::BTreeMap, fmt::Write as _};

use super::{Judgement, Verdict};
use crate::{
    experiment::{Options, Outcome},
    experiments::explained::explained,
    paired::machine::{Machine, date},
};

/// Renders the page for these outcomes. `page` is the file name of the HTML page in the same directory, if
/// there is one; without it the result is the record's page in `docs/lab`, next to the JSON of the run.
#[must_use]
pub fn render(outcomes: &[Outcome], options: &Options, page: Option<&str>) -> String {
    let mut out = String::new();
    let quick = if options.quick { " in a quick run" } else { "" };
    put(&mut out, format_args!("# What became of the claims\n\nMeasured on {}{quick}, ", date()));
    machine(&mut out);
    out.push_str(
        "\n\nThis file is written by `make lab`; what is said by hand stands in \
         `crates/lab/src/experiments/explained.rs`.",
    );
    match page {
        Some(page) => {
            let page = page.replace(' ', "%20");
            put(&mut out, format_args!(" The same run with its figures, tables and notes: [{page}]({page})."));
        }
        None => out.push_str(
            "\n\nThe same run with its figures, tables and notes is [results.json](results.json); `make record-html \
             RECORD=docs/lab/results.json` makes a page of it, on which two of the figures can be played with.",
        ),
    }
    let claims = by_claim(outcomes);
    tally(&mut out, &claims);
    table(&mut out, &claims);
    refusals(&mut out, outcomes);
    for (_, judged) in claims {
        claim(&mut out, &judged);
    }
    durations(&mut out, outcomes);
    out
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    _ = out.write_fmt(text);
}

fn machine(out: &mut String) {
    let machine = Machine::here();
    put(
        out,
        format_args!(
            "{}, {} processors for this process, {} MiB of memory{}, Linux {}, nighttrain {}.",
            machine.cpu,
            machine.cores,
            machine.memory_mib,
            if machine.virtualised { ", virtual" } else { "" },
            machine.kernel,
            env!("CARGO_PKG_VERSION")
        ),
    );
}

/// A verdict with its experiment.
struct ClaimVerdict<'o> {
    experiment: &'static str,
    judgement: &'o Judgement,
}

/// Groups the verdicts by the claim's number, so that C9 comes before C10.
fn by_claim(outcomes: &[Outcome]) -> BTreeMap<(u32, &str), Vec<ClaimVerdict<'_>>> {
    let mut claims: BTreeMap<(u32, &str), Vec<ClaimVerdict<'_>>> = BTreeMap::new();
    for outcome in outcomes {
        let Ok(report) = &outcome.result else { continue };
        for judgement in &report.verdicts {
            let claim = judgement.claim.as_str();
            let number = claim.trim_start_matches('C').parse().unwrap_or(u32::MAX);
            let judged = ClaimVerdict { experiment: outcome.experiment.name, judgement };
            claims.entry((number, claim)).or_default().push(judged);
        }
    }
    claims
}

fn tally(out: &mut String, claims: &BTreeMap<(u32, &str), Vec<ClaimVerdict<'_>>>) {
    let all: Vec<Verdict> = claims.values().flatten().map(|judged| judged.judgement.verdict).collect();
    let counts: Vec<String> = [
        Verdict::Holds,
        Verdict::HoldsWithAnotherFigure,
        Verdict::DoesNotHoldHere,
        Verdict::CannotBeTestedHere,
        Verdict::TooNoisyToSay,
    ]
    .into_iter()
    .map(|verdict| (verdict, all.iter().filter(|one| **one == verdict).count()))
    .filter(|(_, count)| *count > 0)
    .map(|(verdict, count)| format!("{} {count} × {}", verdict.mark(), verdict.words()))
    .collect();
    put(out, format_args!("\n\n{} verdicts on {} claims: {}.\n", all.len(), claims.len(), counts.join(", ")));
}

fn table(out: &mut String, claims: &BTreeMap<(u32, &str), Vec<ClaimVerdict<'_>>>) {
    out.push_str("\n| claim | published | here | verdict | experiment |\n|---|---|---|---|---|\n");
    for ((_, name), judged) in claims {
        for ClaimVerdict { experiment, judgement } in judged {
            put(
                out,
                format_args!(
                    "| [{name}](#{}) | {} | {} | {} {} | `{experiment}` |\n",
                    name.to_lowercase(),
                    cell(&judgement.article),
                    cell(&judgement.ours),
                    judgement.verdict.mark(),
                    judgement.verdict.words()
                ),
            );
        }
    }
}

/// Escapes text for a table cell.
fn cell(text: &str) -> String {
    text.replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;").replace(['\n', '\r'], " ")
}

fn refusals(out: &mut String, outcomes: &[Outcome]) {
    for outcome in outcomes {
        if let Err(refusal) = &outcome.result {
            let name = outcome.experiment.name;
            let claims = outcome.experiment.claims.join(", ");
            put(out, format_args!("\n`{name}` ({claims}) has no report: {}.\n", cell(&refusal.to_string())));
        }
    }
}

fn claim(out: &mut String, judged: &[ClaimVerdict<'_>]) {
    let Some(first) = judged.first() else { return };
    let name = first.judgement.claim.as_str();
    put(out, format_args!("\n## {name}\n\n"));
    for ClaimVerdict { judgement, .. } in judged {
        put(
            out,
            format_args!(
                "- {} **{}**: {}. Published: {}.\n",
                judgement.verdict.mark(),
                judgement.verdict.words(),
                cell(judgement.ours.trim_end_matches('.')),
                cell(judgement.article.trim_end_matches('.'))
            ),
        );
    }
    let Some(explained) = explained(name) else { return };
    put(out, format_args!("\n{}\n", explained.why));
    if judged.iter().any(|one| one.judgement.verdict != Verdict::Holds) {
        put(out, format_args!("\n*Where it comes out otherwise:* {}\n", explained.otherwise));
    }
}

fn durations(out: &mut String, outcomes: &[Outcome]) {
    let total: f64 = outcomes.iter().map(|outcome| outcome.seconds).sum();
    let each: Vec<String> =
        outcomes.iter().map(|one| format!("`{}` {:.0} s", one.experiment.name, one.seconds)).collect();
    put(out, format_args!("\n## How long it took\n\n{:.1} minutes: {}.\n", total / 60.0, each.join(", ")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Refusal, Report};

    const TRIED: Experiment = Experiment {
        name: "tried",
        claims: &["C9", "C10"],
        title: "Tried",
        statement: "It is so.",
        source: "Somebody",
        run: |_| {
            let mut report = Report::default();
            report.judge("C10", "as | published", "the same", Verdict::Holds);
            report.judge("C9", "10 M", "1 <M>", Verdict::HoldsWithAnotherFigure);
            Ok(report)
        },
    };
    const REFUSED: Experiment =
        Experiment { name: "refused", run: |_| Err(Refusal::Missing("a disk".into())), ..TRIED };

    #[test]
    fn the_markdown_explains_each_claim_with_its_verdict() {
        static BOTH: [Experiment; 2] = [TRIED, REFUSED];
        let options = Options::default();
        let outcomes: Vec<Outcome> = BOTH.iter().map(|one| Outcome::of(one, &options)).collect();
        let text = render(&outcomes, &options, Some("index.html"));
        assert!(
            text.contains("2 verdicts on 2 claims: ● 1 × holds, ◐ 1 × holds with another figure."),
            "{text}"
        );
        assert!(text.contains("| [C10](#c10) | as \\| published | the same | ● holds | `tried` |"), "{text}");
        assert!(text.contains("1 &lt;M>"), "{text}");
        assert!(text.contains("`refused` (C9, C10) has no report: cannot be tested here: a disk."), "{text}");
        let (nine, ten) = (text.find("## C9").unwrap(), text.find("## C10").unwrap());
        assert!(nine < ten, "by number");
        let otherwise = |claim| explained(claim).unwrap().otherwise;
        assert!(text[nine..ten].contains(otherwise("C9")));
        assert!(text[ten..].contains(explained("C10").unwrap().why) && !text.contains(otherwise("C10")));
        assert!(text.contains("[index.html](index.html)"));
        assert!(render(&outcomes, &options, None).contains("RECORD=docs/lab/results.json"));
    }
}
