//! The whole of docs/benchmarks.md, the charts, and the README's part.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use askama::Template;
use lab::paired::machine::Machine;
use lab::paired::spread::Verdict;

use crate::pages::chart::Chart;
use crate::pages::contenders::{is_ours, is_peer, is_reference, plain, shown};
use crate::pages::markdown::{order, ratio, reflow, table};
use crate::pages::record_set::{RecordSet, comparison};
use crate::pages::{cache, claims, feed, mail, pressure, queues};

/// Lines around the generated part of the README.
const BEGIN: &str = "<!-- made by `make benchmarks-page`, from the records -->";
const END: &str = "<!-- until here -->";

/// Returns the path of each generated file, relative to the root of the repository, with its text.
pub(crate) fn files(set: &RecordSet, root: &Path) -> Result<Vec<(String, String)>, String> {
    let readme = fs::read_to_string(root.join("README.md")).map_err(|why| format!("README.md: {why}"))?;
    let mut all = vec![("docs/benchmarks.md".to_owned(), whole(set)?)];
    for server in SERVERS {
        all.push((format!("docs/benchmarks/{}.svg", server.name), server.chart(set)?.draw()));
    }
    all.push(("README.md".to_owned(), with_part(&readme, &part(set)?)?));
    Ok(all)
}

/// Template of docs/benchmarks.md.
#[derive(Debug, Template)]
#[template(path = "benchmarks.md", escape = "none")]
struct Whole {
    machines: String,
    cache: String,
    feed: String,
    mail: String,
    queues: String,
    lab: String,
    records: String,
}

fn whole(set: &RecordSet) -> Result<String, String> {
    let whole = Whole {
        machines: machines(set),
        cache: cache::section(set)?,
        feed: feed::section(set)?,
        mail: mail::section(set)?,
        queues: queues::section(set)?,
        lab: claims::section(set)?,
        records: records(set),
    };
    Ok(reflow(&whole.render().map_err(|why| why.to_string())?))
}

/// Describes each machine of the records once.
fn machines(set: &RecordSet) -> String {
    let described = |machine: &Machine| {
        format!(
            "{} × {}, {:.0} GiB of memory, {}, Linux {}, {}",
            machine.cores,
            machine.cpu,
            machine.memory_mib as f64 / 1024.0,
            if machine.virtualised { "virtual" } else { "bare metal" },
            // The part after the first dash names the build of the host's kernel, which changes often.
            machine.kernel.split('-').next().unwrap_or_default(),
            machine.rustc.split(" (").next().unwrap_or_default(),
        )
    };
    let all: BTreeSet<String> = set.machines().map(described).collect();
    let all: Vec<String> = all.into_iter().collect();
    all.join("; and on ")
}

fn records(set: &RecordSet) -> String {
    let mut found =
        lab::report::Table::new("", &[("record", ""), ("taken", ""), ("of commit", ""), ("has", "")]);
    let date = |date: &str| date.replace('T', " ").trim_end_matches('Z').to_owned();
    for kept in &set.paired {
        let mut has: Vec<&str> = kept.record.comparisons.iter().map(|one| one.scenario.as_str()).collect();
        let tables: Vec<&str> =
            kept.record.tables.iter().filter_map(|one| one.title.split([',', ':']).next()).collect();
        let tables: BTreeSet<&str> = tables.into_iter().collect();
        has.extend(tables);
        found.row([kept.link(), date(&kept.record.date), kept.record.commit.clone(), has.join(", ")]);
    }
    for kept in &set.pressure {
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
    for kept in &set.experiments {
        let names: Vec<&str> = kept.record.experiments.iter().map(|one| one.name.as_str()).collect();
        found.row([kept.link(), date(&kept.record.date), String::new(), names.join(", ")]);
    }
    found.row([
        "[results](lab/results.json)".to_owned(),
        date(&set.lab.record.date),
        String::new(),
        format!("all {} experiments", set.lab.record.experiments.len()),
    ]);
    table(&found)
}

/// A server in the README, with the bench and scenario of its chart.
struct Server {
    name: &'static str,
    bench: &'static str,
    scenario: &'static str,
    /// Name of the unit of work.
    unit: &'static str,
    /// Name of the reference program, whose cost no server can be far below.
    reference: &'static str,
}

const SERVERS: [Server; 3] = [
    Server {
        name: "cache",
        bench: cache::BENCH,
        scenario: cache::SCENARIO,
        unit: "1 KiB hit",
        reference: "a bare event loop",
    },
    Server {
        name: "feed",
        bench: feed::BENCH,
        scenario: feed::SCENARIO,
        unit: "message to one consumer",
        reference: "a bare relay",
    },
    Server {
        name: "mail",
        bench: mail::BENCH,
        scenario: mail::SCENARIO,
        unit: "4 KiB mail",
        reference: "smtp-sink",
    },
];

impl Server {
    fn chart(&self, set: &RecordSet) -> Result<Chart, String> {
        let kept = set.beside_peers(self.bench, self.scenario)?;
        let record = &kept.record;
        let found = comparison(record, self.scenario);
        let rows: Vec<_> = order(record, found)
            .iter()
            // The reference is the chart's line at 1, and `ours-shared` appears in docs/benchmarks.md only.
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
                "CPU time of a {}: {:.2} × {}{}; the best peer, {}: {:.2} ×",
                self.unit,
                ours.2.median,
                self.reference,
                if self.reference == "smtp-sink" { ", which stores nothing" } else { "" },
                next.0,
                next.2.median
            ),
            what: format!("server on one core, less is better; record {}", kept.name()),
            reference: self.reference.to_owned(),
            rows: rows.into_iter().map(|(name, ours, ratio, _)| (name, ours, ratio)).collect(),
        })
    }
}

/// Joins the README's sentences about losses; [`NOWHERE`] if there are none.
fn sentences(losses: impl IntoIterator<Item = Option<String>>) -> String {
    let all: Vec<String> = losses.into_iter().flatten().collect();
    if all.is_empty() { NOWHERE.into() } else { all.join(". ") }
}

const NOWHERE: &str = "nowhere in this record";

fn cache_losses(set: &RecordSet) -> String {
    let traces = pressure::memory_traces(set);
    let worst =
        traces.iter().max_by(|a, b| (a.3 - a.1).total_cmp(&(b.3 - b.1))).filter(|worst| worst.3 > worst.1);
    let trace = worst.map(|(trace, ours, best, theirs)| {
        format!(
            "With a store in memory, {ours:.1}% of the requests of the trace *{trace}* are hits; {} has {theirs:.1}%",
            plain(best)
        )
    });
    let inserts = pressure::insert_loss(set).map(|(before, beside)| {
        format!("Inserts at full speed raise the p99 of hits from {before:.1} to {beside:.1} ms")
    });
    sentences([cache::miss_loss(set), trace, inserts])
}

fn feed_losses(set: &RecordSet) -> String {
    let churn = feed::churn_p99(set).filter(|(ours, theirs)| ours > theirs).map(|(ours, theirs)| {
        format!(
            "while 50,000 subscriptions a second come and go, the p99 latency of other messages is {:.1} ms; nats-server's is \
             {:.1} ms",
            ours / 1e3,
            theirs / 1e3
        )
    });
    sentences([churn])
}

fn mail_losses(set: &RecordSet) -> Result<String, String> {
    let kept = set.beside_peers(mail::BENCH, mail::SCENARIO)?;
    let bounds = set.bounds(mail::BENCH);
    let undecided = bounds.iter().filter(|(figure, _)| figure.verdict == Verdict::TooNoisy).count();
    let missed = kept.record.remarks.iter().map(|remark| mail::missed(remark, false));
    let rest = [
        Some("MailHog and Inbucket were not measured".to_owned()),
        (undecided > 0).then(|| {
            format!("{undecided} of {} goals could not be decided: the results vary too much", bounds.len())
        }),
        mail::others(&kept.record.remarks)
            .map(|share| format!("Other programs used {share} of the server's core")),
    ];
    Ok(sentences(missed.chain(rest)))
}

/// Template of the generated part of the README.
#[derive(Debug, Template)]
#[template(path = "readme.md", escape = "none")]
struct Part {
    requests: String,
    request_records: Option<String>,
    cache: PartOfServer,
    feed: PartOfServer,
    mail: PartOfServer,
}

#[derive(Debug)]
struct PartOfServer {
    finding: String,
    losses: String,
}

fn part(set: &RecordSet) -> Result<String, String> {
    let [cache, feed, mail] = SERVERS.map(|server| server.chart(set).map(|chart| chart.finding));
    let (requests, request_records) = cache::requests(set)?;
    let part = Part {
        requests,
        request_records,
        cache: PartOfServer { finding: cache?, losses: cache_losses(set) },
        feed: PartOfServer { finding: feed?, losses: feed_losses(set) },
        mail: PartOfServer { finding: mail?, losses: mail_losses(set)? },
    };
    Ok(reflow(&part.render().map_err(|why| why.to_string())?))
}

/// Returns the README with its generated part replaced.
fn with_part(readme: &str, part: &str) -> Result<String, String> {
    let missing = || format!("README.md lacks the line {BEGIN} or {END}");
    let (before, rest) = readme.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}\n\n{part}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_changes_between_the_marks_only() {
        let readme = format!("# Title\n\n{BEGIN}\nold\n{END}\n\nrest\n");
        let new = with_part(&readme, "new\n").unwrap();
        assert_eq!(new, format!("# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nrest\n"));
        assert!(with_part("# Title\n", "new\n").is_err());
    }
}
