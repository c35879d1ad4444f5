//! What was found: a row for each contender, and what our figures say to their bounds.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use lab::paired::machine::Machine;
use serde::Serialize;

/// Loop threads may fault so often: once in so many answers, by the way of paging.
const ANSWERS_A_FAULT_KERNEL: u64 = 10_000_000;
const HOT_TIMES_MAX: f64 = 2.0;
const INSERT_TIMES_MAX: f64 = 1.25;
const COLD_SHARE_MIN: f64 = 0.8;

/// A start with a store that is there already.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Warm {
    /// From the start of the process to its first good answer.
    pub(crate) ready_s: f64,
    /// Of the objects that were asked for, those that the origin was not asked for.
    pub(crate) kept_percent: f64,
}

/// One contender.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Objects a second and MiB a second while it was filled.
    pub(crate) fill_per_s: f64,
    pub(crate) fill_mib_per_s: f64,
    /// Microseconds from due of hot objects, p50, p99, p99.9: alone, among all, and while others are inserted.
    pub(crate) calm_us: [f64; 3],
    pub(crate) pressure_us: [f64; 3],
    pub(crate) inserts_us: [f64; 3],
    pub(crate) insert_mib_per_s: f64,
    /// Under pressure.
    pub(crate) hit_percent: f64,
    pub(crate) cpu_us: f64,
    pub(crate) answered_percent: f64,
    pub(crate) major_faults: u64,
    pub(crate) loop_major_faults: u64,
    pub(crate) answers: u64,
    /// Looks of our loop at the clock, and those more than a millisecond late.
    pub(crate) late: Option<(u64, u64)>,
    /// Objects all over the store, one after the other, that did not come from the origin.
    pub(crate) cold_per_s: f64,
    pub(crate) cold_hit_percent: f64,
    pub(crate) rss_mib: u64,
    pub(crate) after_stop: Option<Warm>,
    pub(crate) after_kill: Option<Warm>,
    pub(crate) remarks: Vec<String>,
}

/// All of them, and where it was.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) machine: Machine,
    pub(crate) settings: Vec<(String, String)>,
    /// Reads a second of the disk itself, microseconds of CPU for each, threads.
    pub(crate) disk: Option<(f64, f64, usize)>,
    pub(crate) rows: Vec<Row>,
    pub(crate) remarks: Vec<String>,
}

impl Record {
    pub(crate) fn text(&self) -> String {
        let mut text = format!("# bench-pressure, {}\n\n", self.date);
        let _ = writeln!(
            text,
            "Commit {}. {}, {} cores, {}.\n",
            self.commit, self.machine.cpu, self.machine.cores, self.machine.kernel
        );
        for (name, value) in &self.settings {
            let _ = writeln!(text, "- {name}: {value}");
        }
        text.push_str(
            "\n| | hit % | answered % | hot p50 / p99 / p99.9 alone, µs | under pressure | while inserting | CPU µs/request \
             | cold hits/s | (stored %) | major faults, all / loop | late > 1 ms | fill /s | insert MiB/s | RSS MiB |\n\
             |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
        );
        for row in &self.rows {
            let three = |us: [f64; 3]| format!("{:.0} / {:.0} / {:.0}", us[0], us[1], us[2]);
            let late = row.late.map_or_else(|| "–".into(), |(all, late)| format!("{late} of {all}"));
            let _ = writeln!(
                text,
                "| {} | {:.1} | {:.1} | {} | {} | {} | {:.1} | {:.0} | {:.0} | {} / {} | {late} | {:.0} | {:.1} | {} |",
                row.name,
                row.hit_percent,
                row.answered_percent,
                three(row.calm_us),
                three(row.pressure_us),
                three(row.inserts_us),
                row.cpu_us,
                row.cold_per_s,
                row.cold_hit_percent,
                row.major_faults,
                row.loop_major_faults,
                row.fill_per_s,
                row.insert_mib_per_s,
                row.rss_mib,
            );
        }
        if let Some((reads, cpu_us, threads)) = self.disk {
            let _ = writeln!(
                text,
                "| disk itself, {threads} threads | | | | | | {cpu_us:.1} | {reads:.0} | | | | | | |"
            );
        }
        text.push('\n');
        for row in &self.rows {
            for (what, warm) in [("a clean stop", &row.after_stop), ("kill -9", &row.after_kill)] {
                if let Some(Warm { ready_s, kept_percent }) = warm {
                    let _ = writeln!(
                        text,
                        "- {} answers {ready_s:.2} s after {what}, and has {kept_percent:.1}% of what it was asked for",
                        row.name
                    );
                }
            }
        }
        for figure in self.figures() {
            let _ = writeln!(text, "- {figure}");
        }
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

    /// Our figures against their bounds, and the best peer's beside them.
    pub(crate) fn figures(&self) -> Vec<String> {
        let mut figures = Vec::new();
        let peers = || self.rows.iter().filter(|row| !row.name.starts_with("ours") && row.answers > 0);
        let best_hits = peers().map(|row| row.hit_percent).fold(f64::NAN, f64::max);
        let best_cpu = peers().map(|row| row.cpu_us).fold(f64::NAN, f64::min);
        for row in self.rows.iter().filter(|row| row.name.starts_with("ours") && row.answers > 0) {
            let mut say = |what: String, met: bool| {
                figures.push(format!("{}: {what}: {}", row.name, if met { "met" } else { "not met" }));
            };
            for (at, quantile) in [(1, "p99"), (2, "p99.9")] {
                let times = row.pressure_us[at] / row.calm_us[at];
                say(
                    format!(
                        "{quantile} of hot objects under pressure {times:.2} times that without (at most {HOT_TIMES_MAX})"
                    ),
                    times <= HOT_TIMES_MAX,
                );
            }
            let allowed = if row.name == "ours-kernel" { row.answers / ANSWERS_A_FAULT_KERNEL } else { 0 };
            say(
                format!(
                    "{} major faults of the loop in {} answers (at most {allowed})",
                    row.loop_major_faults, row.answers
                ),
                row.loop_major_faults <= allowed,
            );
            let times = row.inserts_us[1] / row.calm_us[1];
            say(
                format!(
                    "p99 of hot objects while others are inserted {times:.2} times that without (at most {INSERT_TIMES_MAX})"
                ),
                times <= INSERT_TIMES_MAX,
            );
            if let Some((reads, _, _)) = self.disk {
                let share = row.cold_per_s / reads;
                say(
                    format!("cold hits {share:.2} of the disk's own rate (at least {COLD_SHARE_MIN})"),
                    share >= COLD_SHARE_MIN,
                );
            }
            if best_hits.is_finite() {
                say(
                    format!("hit ratio {:.1}%, the best peer's {best_hits:.1}%", row.hit_percent),
                    row.hit_percent >= best_hits,
                );
                say(
                    format!("CPU {:.1} µs a request, the best peer's {best_cpu:.1}", row.cpu_us),
                    row.cpu_us <= best_cpu,
                );
            }
        }
        figures
    }

    /// Writes `bench-pressure-DATE.json` and `.md` into `directory`; answers the text's path.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<PathBuf> {
        std::fs::create_dir_all(directory)?;
        // Colons are no part of a file name on every system.
        let stem = format!("bench-pressure-{}", self.date.replace(':', ""));
        let json = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(directory.join(format!("{stem}.json")), json)?;
        let text = directory.join(format!("{stem}.md"));
        std::fs::write(&text, self.text())?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, hit_percent: f64, cpu_us: f64) -> Row {
        Row {
            name: name.into(),
            hit_percent,
            cpu_us,
            answers: 1000,
            calm_us: [50.0, 100.0, 200.0],
            pressure_us: [60.0, 150.0, 500.0],
            inserts_us: [60.0, 120.0, 300.0],
            cold_per_s: 900.0,
            ..Row::default()
        }
    }

    #[test]
    fn figures_are_ours_against_their_bounds_and_the_best_peer() {
        let mut dead = row("squid", 99.0, 0.1);
        dead.answers = 0;
        let record = Record {
            date: "2026-11-21T01:02:03Z".into(),
            commit: "abc".into(),
            machine: Machine::here(),
            settings: vec![("memory".into(), "96 MiB".into())],
            disk: Some((1000.0, 9.0, 16)),
            rows: vec![row("ours-direct", 60.0, 20.0), row("nginx", 59.0, 30.0), dead],
            remarks: vec!["tiny".into()],
        };
        let figures = record.figures();
        let verdicts: Vec<bool> = figures.iter().map(|figure| figure.ends_with(": met")).collect();
        // p99 1.5, p99.9 2.5, no faults, inserts 1.2, cold 0.9, hits, CPU; who did not answer is no peer.
        assert_eq!(verdicts, [true, false, true, true, true, true, true], "{figures:#?}");
        let directory = tempfile::tempdir().unwrap();
        let path = record.write(directory.path()).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert!(
            text.contains("| ours-direct | 60.0 |") && text.contains("disk itself, 16 threads"),
            "{text}"
        );
    }
}
