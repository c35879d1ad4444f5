//! docs/benchmarks.md as a whole, the charts, and the README's part.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use lab::paired::machine::Machine;
use lab::paired::spread::Verdict;

use crate::pages::chart::Chart;
use crate::pages::contenders::{is_ours, is_peer, is_reference, shown};
use crate::pages::markdown::{list, order, paragraph, ratio, table};
use crate::pages::shelf::{Shelf, comparison};
use crate::pages::{cache, claims, feed, mail, pressure, queues};

/// What begins and ends the README's part.
const BEGIN: &str = "<!-- made by `make benchmarks-page`, from the records -->";
const END: &str = "<!-- until here -->";

/// Each file that is made, from the root of the repository, with its text.
pub(crate) fn files(shelf: &Shelf, root: &Path) -> Result<Vec<(String, String)>, String> {
    let readme = fs::read_to_string(root.join("README.md")).map_err(|why| format!("README.md: {why}"))?;
    let mut all = vec![("docs/benchmarks.md".to_owned(), whole(shelf)?)];
    for server in SERVERS {
        all.push((format!("docs/benchmarks/{}.svg", server.name), server.chart(shelf)?.draw()));
    }
    all.push(("README.md".to_owned(), with_part(&readme, &part(shelf)?)?));
    Ok(all)
}

fn whole(shelf: &Shelf) -> Result<String, String> {
    let mut out = String::from("# Benchmarks\n\n");
    paragraph(
        &mut out,
        "This page is made from the records in [bench/records](../bench/records) and [docs/lab](lab/README.md) by `make \
         benchmarks-page`: no figure in it was typed in, and what the program loses at is taken from the same records. Each \
         table names its record; `make record-html RECORD=bench/records/NAME.json` shows one as a page with drawings.",
    );
    let links = [
        "[the accelerator](#the-accelerator)",
        "[the feed](#the-feed)",
        "[mail](#mail)",
        "[the queues](#the-queues)",
        "[the lab](#the-lab)",
        "[all records](#all-records)",
    ];
    paragraph(&mut out, &links.join(" · "));
    out.push_str("## Where it was measured, and how to read it\n\n");
    paragraph(&mut out, &machine(shelf));
    paragraph(
        &mut out,
        "It is a virtual machine that shares its host, so that only ratios count. Contenders are measured in turns, again and \
         again; costs are medians over the rounds, in CPU time of the server's whole process tree. A ratio is the median of the \
         rounds' own ratios, with its 95% bootstrap interval in brackets. A bound that lies inside an interval is *too noisy to \
         say*, neither met nor missed. How it is done: [bench](../bench/README.md), \
         [the instruments](decisions/004-lab-instruments.md).",
    );
    cache::section(&mut out, shelf)?;
    feed::section(&mut out, shelf)?;
    mail::section(&mut out, shelf)?;
    queues::section(&mut out, shelf)?;
    claims::section(&mut out, shelf);
    records(&mut out, shelf);
    // One end of the file, however it was put together.
    out.truncate(out.trim_end().len());
    out.push('\n');
    Ok(out)
}

/// The machine, once: every record must be of the same, or they are all named.
fn machine(shelf: &Shelf) -> String {
    let described = |machine: &Machine| {
        format!(
            "{} × {}, {:.0} GiB of memory, {}, Linux {}, {}",
            machine.cores,
            machine.cpu,
            machine.memory_mib as f64 / 1024.0,
            if machine.virtualised { "virtual" } else { "bare metal" },
            // What follows the first dash is the build of the host's kernel, which changed under us.
            machine.kernel.split('-').next().unwrap_or_default(),
            machine.rustc.split(" (").next().unwrap_or_default(),
        )
    };
    let all: BTreeSet<String> = shelf.machines().map(described).collect();
    let all: Vec<String> = all.into_iter().collect();
    format!("Everything here was measured on {}.", all.join("; and on "))
}

fn records(out: &mut String, shelf: &Shelf) {
    out.push_str("## All records\n\n");
    let mut found =
        lab::report::Table::new("", &[("record", ""), ("taken", ""), ("of commit", ""), ("has", "")]);
    let date = |date: &str| date.replace('T', " ").trim_end_matches('Z').to_owned();
    for kept in &shelf.paired {
        let mut has: Vec<&str> = kept.record.comparisons.iter().map(|one| one.scenario.as_str()).collect();
        let tables: Vec<&str> =
            kept.record.tables.iter().filter_map(|one| one.title.split([',', ':']).next()).collect();
        let tables: BTreeSet<&str> = tables.into_iter().collect();
        has.extend(tables);
        found.row([kept.link(), date(&kept.record.date), kept.record.commit.clone(), has.join(", ")]);
    }
    for kept in &shelf.pressure {
        let record = &kept.record;
        let has = [
            ("servers", record.rows.is_empty()),
            ("cold hits", record.cold.is_empty()),
            ("libraries", record.stores.is_empty()),
            ("starts", record.starts.is_empty()),
        ];
        let has: Vec<&str> = has.iter().filter(|(_, empty)| !empty).map(|(name, _)| *name).collect();
        found.row([kept.link(), date(&record.date), record.commit.clone(), has.join(", ")]);
    }
    for kept in &shelf.experiments {
        let names: Vec<&str> = kept.record.experiments.iter().map(|one| one.name.as_str()).collect();
        found.row([kept.link(), date(&kept.record.date), String::new(), names.join(", ")]);
    }
    found.row([
        "[results](lab/results.json)".to_owned(),
        date(&shelf.lab.record.date),
        String::new(),
        format!("all {} experiments", shelf.lab.record.experiments.len()),
    ]);
    table(out, &found);
}

/// A server of the README.
struct Server {
    name: &'static str,
    bench: &'static str,
    scenario: &'static str,
    /// What is measured, and what the reference is called.
    unit: &'static str,
    reference: &'static str,
    anchor: &'static str,
    loses: fn(&Shelf) -> Result<String, String>,
}

const SERVERS: [Server; 3] = [
    Server {
        name: "cache",
        bench: cache::BENCH,
        scenario: cache::SCENARIO,
        unit: "A hit of 1 KiB",
        reference: "the limit",
        anchor: "what-the-accelerator-loses-at",
        loses: cache_loses,
    },
    Server {
        name: "feed",
        bench: feed::BENCH,
        scenario: feed::SCENARIO,
        unit: "A message to one consumer",
        reference: "the floor",
        anchor: "what-the-feed-loses-at",
        loses: feed_loses,
    },
    Server {
        name: "mail",
        bench: mail::BENCH,
        scenario: mail::SCENARIO,
        unit: "A mail of 4 KiB, stored",
        reference: "smtp-sink",
        anchor: "what-mail-loses-at",
        loses: mail_loses,
    },
];

impl Server {
    fn chart(&self, shelf: &Shelf) -> Result<Chart, String> {
        let kept = shelf.beside_peers(self.bench, self.scenario)?;
        let record = &kept.record;
        let found = comparison(record, self.scenario);
        let rows: Vec<_> = order(record, found)
            .iter()
            // The reference is the line at 1; the second way of ours is on the page.
            .filter(|name| !is_reference(name) && *name != "ours-shared")
            .filter_map(|name| {
                let ratio = ratio(found?, name, &record.reference)?;
                Some((shown(name, &record.versions), is_ours(name), ratio, is_peer(name)))
            })
            .collect();
        let ours = rows.iter().find(|row| row.1).ok_or_else(|| format!("{}: ours is missing", kept.path))?;
        let next = rows
            .iter()
            .filter(|row| row.3)
            .min_by(|a, b| a.2.median.total_cmp(&b.2.median))
            .ok_or_else(|| format!("{}: no peer", kept.path))?;
        Ok(Chart {
            finding: format!(
                "{}: {:.2} × {}; next, {}: {:.2} ×",
                self.unit, ours.2.median, self.reference, next.0, next.2.median
            ),
            what: format!("CPU time of the server, on one core; less is better; {}", kept.name()),
            reference: self.reference.to_owned(),
            rows: rows.into_iter().map(|(name, ours, ratio, _)| (name, ours, ratio)).collect(),
        })
    }
}

fn cache_loses(shelf: &Shelf) -> Result<String, String> {
    let traces = pressure::memory_traces(shelf);
    let (trace, ours, best, theirs) = traces
        .iter()
        .max_by(|a, b| (a.3 - a.1).total_cmp(&(b.3 - b.1)))
        .ok_or("no record of libraries beside each other")?;
    Ok(format!(
        "in memory alone its store keeps {ours:.1}% of what the trace *{trace}* asks for, where {best} keeps {theirs:.1}%; and \
         inserts as fast as one core takes them move the p99 of hits"
    ))
}

fn feed_loses(shelf: &Shelf) -> Result<String, String> {
    let (ours, theirs) = feed::churn_p99(shelf).ok_or("no record of a flow beside churn")?;
    Ok(format!(
        "beside 50,000 subscribes and unsubscribes a second, p99 of a flow was {:.1} ms, nats-server's {:.1} ms",
        ours / 1e3,
        theirs / 1e3
    ))
}

fn mail_loses(shelf: &Shelf) -> Result<String, String> {
    let kept = shelf.beside_peers(mail::BENCH, mail::SCENARIO)?;
    let bounds = shelf.bounds(mail::BENCH);
    let noisy = bounds.iter().filter(|(figure, _)| figure.verdict == Verdict::TooNoisy).count();
    let is_quiet = kept.record.remarks.iter().all(|remark| !remark.contains("not a quiet machine"));
    let lost = kept.record.remarks.iter().filter_map(|remark| remark.strip_suffix(" → not met"));
    let lost: String = lost.map(|what| format!("{what}; ")).collect();
    Ok(format!(
        "{}MailHog and Inbucket were not measured here, {noisy} of {} bounds were too noisy to say{}",
        if lost.is_empty() { "nowhere among these; ".to_owned() } else { lost },
        bounds.len(),
        if is_quiet { "" } else { ", and the machine was not quiet" }
    ))
}

/// What stands in the README between the marks.
fn part(shelf: &Shelf) -> Result<String, String> {
    let mut out = String::new();
    for server in SERVERS {
        let chart = server.chart(shelf)?;
        out.push_str(&format!("![{}.](docs/benchmarks/{}.svg)\n\n", chart.finding, server.name));
        let loses = (server.loses)(shelf)?;
        paragraph(
            &mut out,
            &format!("Where it loses: {loses} ([all of it](docs/benchmarks.md#{})).", server.anchor),
        );
    }
    list(
        &mut out,
        [
            "*The limit* is an event loop that parses nothing and always sends the same answer; *the floor* a relay in C that \
             matches nothing; *smtp-sink*, of Postfix, throws the mail away. They are what nobody can be much below.",
            "All tables, the machine and how it was measured: [docs/benchmarks.md](docs/benchmarks.md).",
        ],
    );
    Ok(out)
}

/// The README with its part renewed.
fn with_part(readme: &str, part: &str) -> Result<String, String> {
    let missing = || format!("README.md lacks the line {BEGIN} or {END}");
    let (before, rest) = readme.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}\n\n{part}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_keeps_what_is_not_between_the_marks() {
        let readme = format!("# Title\n\n{BEGIN}\nold\n{END}\n\nrest\n");
        let new = with_part(&readme, "new\n").unwrap();
        assert_eq!(new, format!("# Title\n\n{BEGIN}\n\nnew\n{END}\n\nrest\n"));
        assert!(with_part("# Title\n", "new\n").is_err());
    }
}
