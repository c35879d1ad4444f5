//! The section about TLS and HTTP/2, part of the accelerator's.

use askama::Template;
use lab::report::Table;

use crate::record::Record;

use crate::pages::cache::cheaper_peers;
use crate::pages::markdown::{costs_beside, goals as judged, table};
use crate::pages::record_set::{RecordFile, RecordSet, comparison};

pub(crate) const BENCH: &str = "bench-tls";

/// A table: its heading and description, the reference of its ratios, and its scenarios with their headings.
struct Part {
    heading: &'static str,
    words: &'static str,
    beside: &'static str,
    scenarios: &'static [(&'static str, &'static str)],
}

const PARTS: [Part; 4] = [
    Part {
        heading: "A hit under TLS",
        words: "CPU time of the server for one hit over HTTP/1.1 under TLS 1.3 on one core, 64 connections that are kept, and \
                how many times that of nighttrain.",
        beside: "ours",
        scenarios: &[("tls-1k", "1 KiB"), ("tls-64k", "64 KiB")],
    },
    Part {
        heading: "A handshake",
        words: "CPU time of the server for one connection: a handshake of TLS 1.3, one hit of 1 KiB, the end; and how many \
                times that of nighttrain.",
        beside: "ours",
        scenarios: &[
            ("full-ecdsa", "full, ECDSA P-256"),
            ("full-rsa", "full, RSA-2048"),
            ("resumed-ecdsa", "resumed, ECDSA P-256"),
        ],
    },
    Part {
        heading: "A hit over HTTP/2 under TLS",
        words: "CPU time of the server for one hit by connections and streams of each, and how many times that of nighttrain.",
        beside: "ours",
        scenarios: &[
            ("h2-1k-1x10", "1 KiB, 1 × 10"),
            ("h2-1k-1x100", "1 KiB, 1 × 100"),
            ("h2-1k-10x10", "1 KiB, 10 × 10"),
            ("h2-1k-10x100", "1 KiB, 10 × 100"),
            ("h2-64k-10x10", "64 KiB, 10 × 10"),
        ],
    },
    Part {
        heading: "A hit over HTTP/2 in the clear",
        words: "The same without TLS, and how many times that of *a bare HTTP/2 loop*: one in C that decodes no field and always \
                sends the same answer, with one write for all that one read brought.",
        beside: "limit-h2",
        scenarios: &[
            ("h2c-1k-1x10", "1 KiB, 1 × 10"),
            ("h2c-1k-1x100", "1 KiB, 1 × 100"),
            ("h2c-1k-10x10", "1 KiB, 10 × 10"),
            ("h2c-1k-10x100", "1 KiB, 10 × 100"),
            ("h2c-64k-10x10", "64 KiB, 10 × 10"),
        ],
    },
];

/// Returns the newest record that has every scenario of [`PARTS`].
fn newest(set: &RecordSet) -> Option<&RecordFile<Record>> {
    set.newest(BENCH, |record| {
        let mut scenarios = PARTS.iter().flat_map(|part| part.scenarios);
        scenarios.all(|(name, _)| comparison(record, name).is_some())
    })
}

/// Template of the section about TLS and HTTP/2.
#[derive(Debug, Template)]
#[template(path = "tls.md", escape = "none")]
struct Section {
    links: String,
    link: String,
    parts: Vec<SectionPart>,
    tables: Vec<(String, String)>,
}

#[derive(Debug)]
struct SectionPart {
    heading: &'static str,
    words: &'static str,
    table: String,
}

/// Renders the section; empty if there is no record.
pub(crate) fn section(set: &RecordSet) -> Result<String, String> {
    let Some(newest) = newest(set) else { return Ok(String::new()) };
    let mut parts = Vec::new();
    for part in &PARTS {
        let table = table(&costs_beside(&newest.record, part.scenarios, part.beside, 2)?);
        parts.push(SectionPart { heading: part.heading, words: part.words, table });
    }
    let untitled = |found: &Table| table(&Table { title: String::new(), ..found.clone() });
    let tables = newest.record.tables.iter().map(|found| (found.title.clone(), untitled(found))).collect();
    Section { links: newest.links(), link: newest.link(), parts, tables }
        .render()
        .map_err(|why| why.to_string())
}

/// Returns a sentence for each peer that is cheaper in a scenario, with a link to the record.
pub(crate) fn losses(set: &RecordSet) -> Vec<String> {
    let Some(newest) = newest(set) else { return Vec::new() };
    let scenarios = newest.record.comparisons.iter();
    scenarios.flat_map(|found| cheaper_peers(newest, &found.scenario, &format!("a {}", found.unit))).collect()
}

pub(crate) fn goals(set: &RecordSet) -> Option<String> {
    let found = set.bounds(BENCH);
    (!found.is_empty()).then(|| judged(&found))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::record::{Comparison, Figure};
    use lab::paired::machine::Machine;
    use lab::paired::{Sample, Series};

    use super::*;

    /// Builds a record in which Nighttrain costs twice the floor and half of nginx, except in one scenario,
    /// where nginx is cheaper.
    fn record() -> Record {
        let sample = |cost: f64| Sample {
            units: 100_000,
            wall_s: 1.0,
            cpu_user_s: cost / 10.0,
            ..Sample::nothing(String::new())
        };
        let series = |name: &str, cost: f64| Series {
            name: name.into(),
            samples: vec![Sample { doubts: Vec::new(), ..sample(cost) }; 3],
        };
        let scenarios = PARTS.iter().flat_map(|part| part.scenarios);
        let comparisons: Vec<Comparison> = scenarios
            .map(|(scenario, _)| {
                let floor = scenario.starts_with("h2c-").then(|| series("limit-h2", 1.0));
                let nginx = if *scenario == "full-rsa" { 1.0 } else { 4.0 };
                let ours = [series("ours", 2.0), series("nginx", nginx)];
                Comparison {
                    scenario: (*scenario).into(),
                    what: format!("{scenario}."),
                    unit: "hit".into(),
                    series: floor.into_iter().chain(ours).collect(),
                }
            })
            .collect();
        let of = |name| comparisons[0].series(name);
        let figures = vec![Figure::at_most("a bound (tls-1k)".into(), 0.7, of("ours"), of("nginx"))];
        Record {
            name: BENCH.into(),
            date: "2026-11-24T18:00:00Z".into(),
            commit: "abc".into(),
            machine: Machine::here(),
            settings: BTreeMap::new(),
            versions: BTreeMap::from([("nginx".into(), "nginx/1.22.1".into())]),
            reference: "limit-h2".into(),
            comparisons,
            figures,
            tables: Vec::new(),
            attached: BTreeMap::new(),
            remarks: Vec::new(),
        }
    }

    #[test]
    fn tls_records_are_on_the_page() {
        let mut set = RecordSet::read(&lab::paired::place::workspace()).unwrap();
        set.paired.retain(|kept| kept.record.name != BENCH);
        let said = |set: &RecordSet| (section(set).unwrap() + &goals(set).unwrap_or_default(), losses(set));
        assert_eq!(said(&set), (String::new(), Vec::new()));
        set.paired.push(RecordFile { path: "bench/records/bench-tls-x.json".into(), record: record() });
        let (page, losses) = said(&set);
        for part in [
            "| nginx 1.22.1 | 4.00 | 2.00 (2.00–2.00) |",
            "**nighttrain**",
            "a bound (tls-1k)",
            "a bare HTTP/2 loop",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert!(losses[0].contains("full-rsa: a hit costs 2.00"), "{losses:?}");
    }
}
