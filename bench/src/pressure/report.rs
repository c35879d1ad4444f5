//! The record as text and as JSON: a table for each scenario, then every figure with its bound and its
//! verdict.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use lab::paired::machine::Machine;
use lab::paired::spread::median;
use serde::Serialize;

use crate::pressure::cold::Cold;
use crate::pressure::figures::Figure;
use crate::pressure::resident::Resident;
use crate::pressure::row::{Row, Warm};
use crate::pressure::start_again::Start;
use crate::pressure::stores::Replay;

/// Results of a whole run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Record {
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) machine: Option<Machine>,
    pub(crate) settings: Vec<(String, String)>,
    /// True if the kernel measures waits for the disk (delay accounting).
    pub(crate) is_wait_counted: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) cold: Vec<Cold>,
    pub(crate) resident: Vec<Resident>,
    pub(crate) stores: Vec<Replay>,
    pub(crate) starts: Vec<Start>,
    pub(crate) remarks: Vec<String>,
}

impl Record {
    pub(crate) fn text(&self) -> String {
        let mut text = format!("# bench-pressure, {}\n\n", self.date);
        if let Some(machine) = &self.machine {
            let Machine { cpu, cores, kernel, .. } = machine;
            let _ = writeln!(text, "Commit {}. {cpu}, {cores} cores, {kernel}.\n", self.commit);
        }
        for (name, value) in &self.settings {
            let _ = writeln!(text, "- {name}: {value}");
        }
        self.servers(&mut text);
        self.in_one_process(&mut text);
        figures(&self.figures(), &mut text);
        for row in &self.rows {
            for remark in &row.remarks {
                let _ = writeln!(text, "- {}: {remark}", row.name);
            }
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "- {remark}");
        }
        for row in &self.rows {
            let _ = writeln!(text, "- {}: {}", row.name, row.version);
        }
        text
    }

    fn servers(&self, text: &mut String) {
        if self.rows.is_empty() {
            return;
        }
        text.push_str(
            "\n## Servers\nMedians of the rounds. Latencies are of hot objects, µs from due, p50 / p99 / p99.9.\n\n\
             | | hit % | answered % | alone | under pressure | while inserting | CPU µs/request | cold hits/s | (stored %) \
             | reads/cold hit | major faults, all / loop | late > 1 ms, idle / under pressure | fill /s | insert MiB/s \
             | RSS MiB |\n\
             |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        );
        for row in &self.rows {
            let late = match (row.idle, row.under_load) {
                (Some(idle), Some(loaded)) => {
                    format!("{} of {} / {} of {}", idle.late, idle.looks, loaded.late, loaded.looks)
                }
                _ => "–".into(),
            };
            let _ = writeln!(
                text,
                "| {} | {:.1} | {:.1} | {} | {} | {} | {:.1} | {:.0} | {:.0} | {} | {} / {} | {late} | {:.0} | {:.1} | {} |",
                row.name,
                row.middle(|round| round.hit_percent),
                row.middle(|round| round.answered_percent),
                row.three(|round| round.calm_us),
                row.three(|round| round.pressure_us),
                row.three(|round| round.inserts_us),
                row.middle(|round| round.cpu_us),
                row.cold_per_s,
                row.cold_hit_percent,
                reads(row.reads_an_object),
                row.major_faults,
                row.loop_major_faults,
                row.fill_per_s,
                row.middle(|round| round.insert_mib_per_s),
                row.rss_mib,
            );
        }
        text.push('\n');
        for row in &self.rows {
            for (what, warm) in [("a clean stop", &row.after_stop), ("kill -9", &row.after_kill)] {
                if let Some(Warm { ready_s, known_s, kept_percent }) = warm {
                    let known = known_s.map_or("never knows its file".to_owned(), |known_s| {
                        format!("knows its file after {known_s:.2} s")
                    });
                    let _ = writeln!(
                        text,
                        "- {} answers {ready_s:.2} s after {what}, {known}, and then has {kept_percent:.1}% of what it is asked for",
                        row.name
                    );
                }
            }
        }
    }

    fn in_one_process(&self, text: &mut String) {
        if !self.cold.is_empty() {
            text.push_str(
                "\n## Cold hits, in one process\n\n\
                 | paging | raw reads/s | CPU µs | cold hits/s | CPU µs | reads/hit | fill MiB/s |\n|---|--:|--:|--:|--:|--:|--:|\n",
            );
            for cold in &self.cold {
                let _ = writeln!(
                    text,
                    "| {} | {:.0} | {:.1} | {:.0} | {:.1} | {} | {:.0} |",
                    cold.paging,
                    median(&cold.raw_per_s).unwrap_or(0.0),
                    cold.raw_cpu_us,
                    median(&cold.cold_per_s).unwrap_or(0.0),
                    cold.cold_cpu_us,
                    reads(cold.reads_an_object),
                    cold.fill_mib_per_s
                );
            }
        }
        if !self.stores.is_empty() {
            text.push_str(
                "\n## Stores, in one process\n\n\
                 | trace | store | hit % | from disk % | CPU µs/request | requests/s | process grew by, MiB |\n\
                 |---|---|--:|--:|--:|--:|--:|\n",
            );
            for store in &self.stores {
                let _ = writeln!(
                    text,
                    "| {} | {} | {:.1} | {:.1} | {:.2} | {:.0} | {:.0} |",
                    store.trace,
                    store.store,
                    store.hit_percent(),
                    store.disk_hits as f64 * 100.0 / store.requests.max(1) as f64,
                    store.cpu_us,
                    store.requests as f64 / store.seconds.max(1e-9),
                    store.resident_mib
                );
            }
            text.push('\n');
            for store in &self.stores {
                if let Some(remark) = &store.remark {
                    let _ = writeln!(text, "- {}, {}: {remark}", store.store, store.trace);
                }
            }
        }
    }

    /// Writes `bench-pressure-DATE.json` and `.md` into `directory`; returns the path of the `.md` file.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<PathBuf> {
        #[derive(Serialize)]
        struct Whole<'a> {
            #[serde(flatten)]
            record: &'a Record,
            figures: Vec<Figure>,
        }
        std::fs::create_dir_all(directory)?;
        // Some systems do not allow colons in file names.
        let stem = format!("bench-pressure-{}", self.date.replace(':', ""));
        let whole = Whole { record: self, figures: self.figures() };
        let json = serde_json::to_string_pretty(&whole)? + "\n";
        std::fs::write(directory.join(format!("{stem}.json")), json)?;
        let text = directory.join(format!("{stem}.md"));
        std::fs::write(&text, self.text())?;
        Ok(text)
    }
}

fn reads(each: Option<f64>) -> String {
    each.map_or_else(|| "–".into(), |each| format!("{each:.3}"))
}

fn figures(figures: &[Figure], text: &mut String) {
    text.push_str("\n## Figures\n\n| of | figure | found | bound | |\n|---|---|--:|---|---|\n");
    for Figure { of, what, found, bound, verdict } in figures {
        let _ = writeln!(text, "| {of} | {what} | {found} | {bound} | {} |", verdict.words());
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pressure::row::Round;

    #[test]
    fn records_are_text_and_json() {
        let round = Round { hit_percent: 60.0, calm_us: [1.0; 3], ..Round::default() };
        let row = |name: &str| Row {
            name: name.into(),
            rounds: vec![round.clone(); 3],
            answers: 10,
            ..Row::default()
        };
        let record = Record {
            date: "2026-11-21T01:02:03Z".into(),
            machine: Some(Machine::here()),
            settings: vec![("memory".into(), "96 MiB".into())],
            rows: vec![row("ours-direct"), row("nginx")],
            remarks: vec!["tiny".into()],
            ..Record::default()
        };
        let directory = tempfile::tempdir().unwrap();
        let path = record.write(directory.path()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("| ours-direct | 60.0 |") && text.contains("- tiny"), "{text}");
        let json = std::fs::read_to_string(path.with_extension("json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["rows"][1]["name"], "nginx");
        assert!(json["figures"].as_array().is_some_and(|figures| figures.len() > 5), "{json}");
    }
}
