//! The record of a run: Markdown for readers and JSON for programs, both with a description of the machine.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use lab::paired::machine::Machine;
use lab::paired::spread::{Ratio, Spread, Verdict};
use lab::paired::{Sample, Series, spread};
use lab::report::{Report, Table, text};

/// A scenario with the results of all its contenders.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Comparison {
    /// Short name without spaces.
    pub(crate) scenario: String,
    /// Description in one sentence.
    pub(crate) what: String,
    /// Unit of work, such as "hit" or "message".
    pub(crate) unit: String,
    /// Results of the contenders, in the order in which they were measured.
    pub(crate) series: Vec<Series>,
}

impl Comparison {
    /// Returns the series of a contender, if it took part.
    pub(crate) fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    /// Returns the median cost of a contender in microseconds of CPU per unit, if it took part and completed
    /// units.
    pub(crate) fn cost(&self, name: &str) -> Option<f64> {
        let costs: Vec<f64> = self.series(name)?.costs_us().into_iter().flatten().collect();
        spread::median(&costs)
    }

    /// Returns the cheapest of `names` by median CPU time, without doubtful series.
    pub(crate) fn cheapest<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Option<&Series> {
        self.least(names, Sample::cpu_us_per_unit)
    }

    /// Returns the series of `names` with the smallest median of a figure, without doubtful series.
    pub(crate) fn least<'a>(
        &self,
        names: impl IntoIterator<Item = &'a str>,
        figure: fn(&Sample) -> Option<f64>,
    ) -> Option<&Series> {
        let middle =
            |series: &Series| spread::median(&series.each(figure).into_iter().flatten().collect::<Vec<_>>());
        names
            .into_iter()
            .filter_map(|name| self.series(name))
            .filter(|series| series.doubt().is_none())
            .filter_map(|series| Some((series, middle(series)?)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(series, _)| series)
    }

    /// Formats the scenario as a Markdown table with ratios to `reference`, or to the first contender if
    /// `reference` did not take part.
    pub(crate) fn table(&self, reference: &str) -> String {
        let first = self.series.first().map_or(reference, |series| &series.name);
        let reference = self.series(reference).map_or(first, |series| &series.name);
        let unit = &self.unit;
        let units = unit.strip_suffix('y').map_or_else(|| format!("{unit}s"), |stem| format!("{stem}ies"));
        let mut text = format!(
            "### {}\n{}\n\n| | CPU µs/{unit} | MAD | min…max | user | × {reference} (95%) | {units}/s | server's CPU \
             | switches/1000 {units} | RSS MiB | others' CPU | |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
            self.scenario, self.what
        );
        let reference = self.series(reference).map(Series::costs_us).unwrap_or_default();
        for series in &self.series {
            let costs = series.costs_us();
            let known: Vec<f64> = costs.iter().copied().flatten().collect();
            let Some(cost) = Spread::of(&known) else {
                let _ = writeln!(text, "| {} | nothing was done | | | | | | | | | | |", series.name);
                continue;
            };
            let middle = |value: fn(&Sample) -> f64| {
                let done = series.samples.iter().filter(|sample| sample.units > 0);
                spread::median(&done.map(value).collect::<Vec<_>>()).unwrap_or(0.0)
            };
            let ratio = Ratio::paired(&costs, &reference).map_or_else(String::new, |ratio| {
                format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.low, ratio.high)
            });
            let _ = writeln!(
                text,
                "| {} | {:.2} | {:.2} | {:.2}…{:.2} | {:.0}% | {} | {:.0} | {:.0}% | {:.0} | {:.0} | {:.0}% | {} |",
                series.name,
                cost.median,
                cost.mad,
                cost.min,
                cost.max,
                100.0 * middle(|s| s.cpu_user_s / (s.cpu_user_s + s.cpu_system_s).max(1e-9)),
                ratio,
                middle(|s| s.units as f64 / s.wall_s),
                100.0 * middle(|s| (s.cpu_user_s + s.cpu_system_s) / s.wall_s),
                middle(
                    |s| 1e3 * (s.switches_voluntary + s.switches_involuntary) as f64 / s.units.max(1) as f64
                ),
                middle(|s| s.rss_bytes as f64 / f64::from(1 << 20)),
                100.0 * middle(|s| s.foreign_share),
                series.doubt().unwrap_or(""),
            );
        }
        text
    }
}

/// A bound with the measured ratio and the verdict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// The claim in words.
    pub(crate) what: String,
    /// Upper bound of the ratio.
    pub(crate) bound: f64,
    /// The measured ratio.
    pub(crate) ratio: Option<Ratio>,
    /// The verdict.
    pub(crate) verdict: Verdict,
    /// Remark for the reader; may be empty.
    pub(crate) remark: String,
}

impl Figure {
    /// Judges whether `contender` costs at most `bound` times as much as `reference`, within one comparison.
    pub(crate) fn at_most(
        what: String,
        bound: f64,
        contender: Option<&Series>,
        reference: Option<&Series>,
    ) -> Self {
        Self::of(what, bound, contender, reference, Sample::cpu_us_per_unit)
    }

    /// Judges whether a figure of `contender` is at most `bound` times `reference`'s, within one comparison.
    pub(crate) fn of(
        what: String,
        bound: f64,
        contender: Option<&Series>,
        reference: Option<&Series>,
        figure: fn(&Sample) -> Option<f64>,
    ) -> Self {
        let (Some(contender), Some(reference)) = (contender, reference) else {
            let absent = if contender.is_none() {
                "the contender did not take part"
            } else {
                "no reference took part"
            };
            return Self { what, bound, ratio: None, verdict: Verdict::NotMeasured, remark: absent.into() };
        };
        let ratio = Ratio::paired(&contender.each(figure), &reference.each(figure));
        let doubt =
            [contender, reference].into_iter().find_map(|series| Some((&series.name, series.doubt()?)));
        let (verdict, remark) = match (&ratio, doubt) {
            (None, _) => (Verdict::NotMeasured, "no round has both".to_owned()),
            (Some(_), Some((name, doubt))) => (Verdict::TooNoisy, format!("{name}: {doubt}")),
            (Some(ratio), None) => {
                (Verdict::at_most(bound, ratio), format!("{} against {}", contender.name, reference.name))
            }
        };
        Self { what, bound, ratio, verdict, remark }
    }

    /// Formats the figure as one line of text.
    pub(crate) fn line(&self) -> String {
        let measured = self.ratio.map_or_else(String::new, |ratio| {
            format!(": {:.2} ({:.2}–{:.2}, {} rounds)", ratio.median, ratio.low, ratio.high, ratio.rounds)
        });
        let remark = if self.remark.is_empty() { String::new() } else { format!(" [{}]", self.remark) };
        format!("{}{measured} → {}{remark}", self.what, self.verdict.words())
    }
}

/// Line width of tables in a record, wide enough that no column is left out.
const TABLE_WIDTH: usize = 400;
/// Line width of tables on a terminal.
const TERMINAL_WIDTH: usize = 140;

/// Results of a whole run of a bench.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Name of the bench, such as "bench-cache".
    pub(crate) name: String,
    /// Start of the run, UTC.
    pub(crate) date: String,
    /// The measured commit, followed by `+` if tracked files were modified.
    pub(crate) commit: String,
    /// The machine of the run.
    pub(crate) machine: Machine,
    /// Settings of the run: rounds, seconds, cores, sizes.
    pub(crate) settings: BTreeMap<String, String>,
    /// Version that each contender's program reports.
    pub(crate) versions: BTreeMap<String, String>,
    /// Contender to which the ratios in the tables refer.
    pub(crate) reference: String,
    /// Results of each scenario.
    pub(crate) comparisons: Vec<Comparison>,
    /// Bounds with their verdicts.
    pub(crate) figures: Vec<Figure>,
    /// Measurements other than costs per unit, such as latencies and sizes.
    #[serde(default)]
    pub(crate) tables: Vec<Table>,
    /// Measurements by other programs, as they printed them.
    pub(crate) attached: BTreeMap<String, serde_json::Value>,
    /// Remarks, for example on what was skipped and why.
    pub(crate) remarks: Vec<String>,
}

impl Record {
    /// Formats tables, figures with their verdicts, and remarks for a terminal.
    pub(crate) fn outcome_text(&self) -> String {
        let mut text = String::new();
        for table in &self.tables {
            text::table(&mut text, table, TERMINAL_WIDTH);
            text.push('\n');
        }
        for figure in &self.figures {
            let _ = writeln!(text, "{}", figure.line());
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "({remark})");
        }
        text
    }

    /// Adds tables, figures with their verdicts, and remarks to a page.
    pub(crate) fn add_to(&self, report: &mut Report) {
        report.tables.extend(self.tables.iter().cloned());
        for figure in &self.figures {
            report.note(figure.line());
        }
        for remark in &self.remarks {
            report.note(remark.clone());
        }
    }

    /// Formats the record as Markdown: verdicts first, then each scenario, then machine and versions.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("# {} · {} · {}\n\n", self.name, self.date, self.commit);
        for figure in &self.figures {
            let _ = writeln!(text, "- {}", figure.line());
        }
        for remark in &self.remarks {
            let _ = writeln!(text, "- *{remark}*");
        }
        for comparison in &self.comparisons {
            let _ = write!(text, "\n{}", comparison.table(&self.reference));
        }
        for table in &self.tables {
            let mut columns = String::new();
            text::table(&mut columns, table, TABLE_WIDTH);
            let _ = write!(text, "\n```\n{columns}```\n");
        }
        for (name, value) in &self.attached {
            let _ = write!(text, "\n### {name}\n```json\n{value:#}\n```\n");
        }
        let machine = &self.machine;
        let _ = write!(
            text,
            "\n### Where and how\n- {} × {}, {} MiB, {}; Linux {}; TCP {}; load before {}; {}\n",
            machine.cores,
            machine.cpu,
            machine.memory_mib,
            if machine.virtualised { "a virtual machine" } else { "bare metal" },
            machine.kernel,
            machine.congestion_control,
            machine.load_before,
            machine.rustc,
        );
        for (name, value) in &self.settings {
            let _ = writeln!(text, "- {name}: {value}");
        }
        for (name, version) in &self.versions {
            let _ = writeln!(text, "- {name}: {version}");
        }
        text.push_str(
            "\nMedians over interleaved rounds. × is the median of the rounds' ratios with the 95% bootstrap \
             interval of that median; a bound inside the interval, fewer than three rounds, or a doubtful sample \
             is \"too noisy to say\". CPU is user and system time of the server's whole process tree.\n",
        );
        text
    }

    /// Writes `NAME-DATE.json` and `NAME-DATE.md` into `directory`; returns the path of the `.md` file.
    ///
    /// # Errors
    /// An I/O error if a file cannot be written.
    pub(crate) fn write(&self, directory: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(directory)?;
        // Some systems do not allow colons in file names.
        let stem = format!("{}-{}", self.name, self.date.replace(':', ""));
        fs::write(directory.join(format!("{stem}.json")), serde_json::to_string_pretty(self)? + "\n")?;
        let text = directory.join(format!("{stem}.md"));
        fs::write(&text, self.text())?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::paired::Latency;

    fn series(name: &str, costs_us: &[f64]) -> Series {
        let sample = |cost: &f64| Sample {
            units: 100_000,
            wall_s: 1.0,
            cpu_user_s: cost / 40.0,
            cpu_system_s: cost * 3.0 / 40.0,
            switches_voluntary: 50,
            switches_involuntary: 50,
            rss_bytes: 3 << 20,
            foreign_share: 0.01,
            latency: Some(Latency { p50_us: 1.0 / cost, p95_us: None, p99_us: 2.0, last_us: None }),
            doubts: Vec::new(),
        };
        Series { name: name.into(), samples: costs_us.iter().map(sample).collect() }
    }

    fn record() -> Record {
        let mut doubtful = series("doubtful", &[1.0, 1.0, 1.0]);
        doubtful.samples[1].doubts.push("0.4% misses".into());
        let comparison = Comparison {
            scenario: "one-1k-64".into(),
            what: "one URL".into(),
            unit: "hit".into(),
            series: vec![
                series("limit", &[5.0, 5.0, 5.0]),
                series("ours", &[6.0, 6.0, 6.0]),
                series("a", &[12.0, 10.0, 12.0]),
                series("b", &[20.0, 21.0, 22.0]),
                doubtful,
            ],
        };
        let best = comparison.cheapest(["a", "b", "doubtful", "absent"]);
        let figures = vec![
            Figure::at_most(
                "within 1.3 of the limit".into(),
                1.3,
                comparison.series("ours"),
                comparison.series("limit"),
            ),
            Figure::at_most("within 0.8 of the best".into(), 0.8, comparison.series("ours"), best),
            Figure::at_most("doubt".into(), 9.0, comparison.series("doubtful"), comparison.series("limit")),
            Figure::at_most("absent".into(), 1.0, comparison.series("absent"), best),
        ];
        Record {
            name: "bench-x".into(),
            date: "2026-11-21T01:58:14Z".into(),
            commit: "abc".into(),
            machine: Machine::here(),
            settings: BTreeMap::from([("rounds".into(), "3".into())]),
            versions: BTreeMap::from([("a".into(), "a 1.0".into())]),
            reference: "limit".into(),
            comparisons: vec![comparison],
            figures,
            tables: Vec::new(),
            attached: BTreeMap::from([("store".into(), serde_json::json!({"metadata_bytes": 60}))]),
            remarks: vec!["c is not installed".into()],
        }
    }

    #[test]
    fn doubtful_contenders_are_not_the_cheapest() {
        let record = record();
        let best = record.comparisons[0].cheapest(["b", "a", "doubtful"]).unwrap();
        assert_eq!(best.name, "a");
        // The order depends on the figure: the contender with the higher CPU cost has the lower latency.
        let quickest = record.comparisons[0].least(["b", "a", "doubtful"], Sample::p50_us).unwrap();
        assert_eq!(quickest.name, "b");
    }

    #[test]
    fn ratios_without_the_reference_are_to_the_first() {
        let table = record().comparisons[0].table("nobody");
        assert!(table.contains("× limit (95%)") && table.contains("1.20 (1.20–1.20)"), "{table}");
    }

    #[test]
    fn figures_say_met_doubtful_and_absent() {
        let record = record();
        let verdicts: Vec<Verdict> = record.figures.iter().map(|figure| figure.verdict).collect();
        assert_eq!(verdicts, [Verdict::Met, Verdict::Met, Verdict::TooNoisy, Verdict::NotMeasured]);
        assert_eq!(
            record.figures[0].line(),
            "within 1.3 of the limit: 1.20 (1.20–1.20, 3 rounds) → met [ours against limit]"
        );
        assert!(record.figures[2].line().contains("0.4% misses"));
    }

    #[test]
    fn records_are_written_and_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let record = record();
        let path = record.write(directory.path()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        for part in
            ["| ours | 6.00 |", "1.20 (1.20–1.20)", "25%", "c is not installed", "a 1.0", "metadata_bytes"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let json = fs::read_to_string(path.with_extension("json")).unwrap();
        let back: Record = serde_json::from_str(&json).unwrap();
        assert_eq!(back.text(), text);
    }
}
