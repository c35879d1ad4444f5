//! The committed records, and the search for the newest one with a scenario.
//!
//! A table ("the cost of a hit beside peers") comes from the newest record that measured its scenarios with
//! all required contenders, so a later run of one part does not replace the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use lab::paired::machine::Machine;
use lab::report::{Judgement, Table};
use serde::Deserialize;

use crate::pages::{contenders, mail};
use crate::pressure::{self, cold::Cold, row::Row, start_again::Start, stores::Replay};
use crate::record::{Comparison, Figure, Record};

/// Minimum number of peers in a comparison that the page shows.
const PEERS_MIN: usize = 2;

/// All committed records, the newest last.
#[derive(Debug)]
pub(crate) struct RecordSet {
    pub(crate) paired: Vec<RecordFile<Record>>,
    pub(crate) pressure: Vec<RecordFile<Pressure>>,
    /// Records of single experiments, from before one run covered all of them.
    pub(crate) experiments: Vec<RecordFile<Lab>>,
    /// `docs/lab/results.json`: the run that covers all claims.
    pub(crate) lab: RecordFile<Lab>,
}

/// A record and the path of its file.
#[derive(Debug)]
pub(crate) struct RecordFile<T> {
    /// Path relative to the root of the repository.
    pub(crate) path: String,
    pub(crate) record: T,
}

impl<T> RecordFile<T> {
    /// Returns links from `docs/` to the record's text and to its samples.
    pub(crate) fn links(&self) -> String {
        let json = format!("../{}", self.path);
        let text = json.replace(".json", ".md");
        format!("[Record]({text}) ([all samples]({json}))")
    }

    /// Returns a short link for a table cell.
    pub(crate) fn link(&self) -> String {
        format!("[{}](../{})", self.name(), self.path)
    }

    /// Returns a link from the README.
    pub(crate) fn readme_link(&self) -> String {
        format!("[{}]({})", self.name(), self.path.replace(".json", ".md"))
    }

    /// Returns the file's name without its extension.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".json")
    }
}

/// A record of `make bench PART=pressure`, reduced to the fields that the page shows.
#[derive(Debug, Deserialize)]
pub(crate) struct Pressure {
    pub(crate) date: String,
    pub(crate) commit: String,
    pub(crate) machine: Machine,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) rows: Vec<Row>,
    pub(crate) cold: Vec<Cold>,
    pub(crate) stores: Vec<Replay>,
    pub(crate) starts: Vec<Start>,
    pub(crate) figures: Vec<pressure::figures::Figure>,
}

/// A run of the lab's experiments.
#[derive(Debug, Deserialize)]
pub(crate) struct Lab {
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) experiments: Vec<Experiment>,
}

/// Results of one experiment.
#[derive(Debug, Deserialize)]
pub(crate) struct Experiment {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) tables: Vec<Table>,
    #[serde(default)]
    pub(crate) verdicts: Vec<Judgement>,
    pub(crate) seconds: f64,
}

/// A record of any kind, recognised by the fields that only this kind has.
#[derive(Debug)]
pub(crate) enum AnyRecord {
    Paired(Record),
    Pressure(Pressure),
    Lab(Lab),
}

/// Parses a record of any kind.
pub(crate) fn parse(text: &str) -> Result<AnyRecord, String> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|why| why.to_string())?;
    let has = |name: &str| value.get(name).is_some();
    let parsed = if has("experiments") {
        serde_json::from_value(value).map(AnyRecord::Lab)
    } else if has("comparisons") {
        serde_json::from_value(value).map(AnyRecord::Paired)
    } else if has("starts") {
        serde_json::from_value(value).map(AnyRecord::Pressure)
    } else {
        return Err("neither a bench's record nor a run of experiments".into());
    };
    parsed.map_err(|why| why.to_string())
}

impl RecordSet {
    /// Reads all records below `root`.
    ///
    /// # Errors
    /// A message with the file's name if it cannot be read.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let directory = "bench/records";
        let mut names: Vec<String> = fs::read_dir(root.join(directory))
            .map_err(|why| format!("{directory}: {why}"))?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.ends_with(".json"))
            .collect();
        names.sort_unstable();
        let (mut paired, mut pressure, mut experiments) = (Vec::new(), Vec::new(), Vec::new());
        for name in names {
            let path = format!("{directory}/{name}");
            match file(root, &path)? {
                AnyRecord::Paired(record) => paired.push(RecordFile { path, record }),
                AnyRecord::Pressure(record) => pressure.push(RecordFile { path, record }),
                AnyRecord::Lab(record) => experiments.push(RecordFile { path, record }),
            }
        }
        paired.sort_by(|a, b| a.record.date.cmp(&b.record.date));
        pressure.sort_by(|a, b| a.record.date.cmp(&b.record.date));
        let path = "docs/lab/results.json".to_owned();
        let AnyRecord::Lab(record) = file(root, &path)? else {
            return Err(format!("{path}: no run of experiments"));
        };
        Ok(Self { paired, pressure, experiments, lab: RecordFile { path, record } })
    }

    /// Returns the newest record of `bench` that has this scenario with Nighttrain and enough peers.
    pub(crate) fn beside_peers(&self, bench: &str, scenario: &str) -> Result<&RecordFile<Record>, String> {
        self.newest(bench, |record| {
            comparison(record, scenario).is_some_and(|found| {
                let peers = found.series.iter().filter(|series| contenders::is_peer(&series.name)).count();
                found.series("ours").is_some() && peers >= PEERS_MIN
            })
        })
        .ok_or_else(|| format!("no record of {bench} has {scenario} with ours and {PEERS_MIN} peers"))
    }

    /// Returns the newest record of `bench` that satisfies `wanted`.
    pub(crate) fn newest(
        &self,
        bench: &str,
        wanted: impl Fn(&Record) -> bool,
    ) -> Option<&RecordFile<Record>> {
        self.paired.iter().rev().find(|kept| kept.record.name == bench && wanted(&kept.record))
    }

    /// Returns the newest record of `bench-pressure` that satisfies `wanted`.
    pub(crate) fn pressed(&self, wanted: impl Fn(&Pressure) -> bool) -> Option<&RecordFile<Pressure>> {
        self.pressure.iter().rev().find(|kept| wanted(&kept.record))
    }

    /// Returns every bound of `bench` once, with its latest verdict.
    pub(crate) fn bounds(&self, bench: &str) -> Vec<(&Figure, &RecordFile<Record>)> {
        let mut found: BTreeMap<&str, (usize, &Figure, &RecordFile<Record>)> = BTreeMap::new();
        let mut order = 0;
        for kept in self.paired.iter().filter(|kept| kept.record.name == bench) {
            for figure in kept.record.figures.iter().filter(|figure| figure.ratio.is_some()) {
                let place = found.get(figure.what.as_str()).map_or_else(
                    || {
                        order += 1;
                        order
                    },
                    |(place, ..)| *place,
                );
                found.insert(&figure.what, (place, figure, kept));
            }
        }
        let mut all: Vec<_> = found.into_values().collect();
        all.sort_by_key(|(place, ..)| *place);
        all.into_iter().map(|(_, figure, kept)| (figure, kept)).collect()
    }

    /// Returns the records that newer ones replace: newer records have each of their scenarios (with peers if
    /// they have peers) and each of their tables.
    pub(crate) fn superseded(&self) -> Vec<&str> {
        let (mut kept, mut seen) = (Vec::new(), BTreeSet::new());
        let all = self.paired.iter().rev().map(|one| (&one.path, subjects(&one.record)));
        let all = all.chain(self.pressure.iter().rev().map(|one| (&one.path, pressed_subjects(&one.record))));
        for (path, subjects) in all {
            let known = seen.len();
            seen.extend(subjects);
            if seen.len() > known {
                kept.push(path);
            }
        }
        let lab = &self.lab.record;
        let is_in_lab = |one: &Experiment| lab.experiments.iter().any(|known| known.name == one.name);
        let is_new = |one: &&RecordFile<Lab>| {
            one.record.date > lab.date || !one.record.experiments.iter().all(is_in_lab)
        };
        kept.extend(self.experiments.iter().filter(is_new).map(|one| &one.path));
        let paths = self.paired.iter().map(|one| &one.path).chain(self.pressure.iter().map(|one| &one.path));
        let paths = paths.chain(self.experiments.iter().map(|one| &one.path));
        paths.filter(|path| !kept.contains(path)).map(String::as_str).collect()
    }

    /// Iterates over the machines of all records.
    pub(crate) fn machines(&self) -> impl Iterator<Item = &Machine> {
        let paired = self.paired.iter().map(|kept| &kept.record.machine);
        let pressure = self.pressure.iter().map(|kept| &kept.record.machine);
        let experiments = self.experiments.iter().map(|kept| &kept.record.machine);
        paired.chain(pressure).chain(experiments).chain(std::iter::once(&self.lab.record.machine))
    }
}

/// Returns the subjects of a record: its scenarios, those with peers once more, its tables, and measurements
/// by other programs.
fn subjects(record: &Record) -> Vec<String> {
    let name = &record.name;
    let mut all = Vec::new();
    for one in &record.comparisons {
        let peers = one.series.iter().filter(|series| contenders::is_peer(&series.name)).count();
        all.push(format!("{name} {}", one.scenario));
        if peers >= PEERS_MIN && one.series("ours").is_some() {
            all.push(format!("{name} {} beside peers", one.scenario));
        }
    }
    // Titles are compared only up to their first digit or comma, because figures may follow.
    let start = |title: &str| {
        title.split(|c: char| c.is_ascii_digit() || c == ',').next().unwrap_or_default().to_owned()
    };
    let is_shown =
        |title: &str| name != mail::BENCH || mail::TABLES.iter().any(|shown| title.starts_with(shown));
    let tables = record.tables.iter().filter(|table| is_shown(&table.title));
    all.extend(tables.map(|table| format!("{name}: {}", start(&table.title))));
    all.extend(record.attached.keys().map(|key| format!("{name}: {key}")));
    all
}

fn pressed_subjects(record: &Pressure) -> Vec<String> {
    let all = [
        ("servers", record.rows.is_empty()),
        ("servers beside peers", record.rows.len() <= PEERS_MIN),
        ("cold", record.cold.is_empty()),
        ("stores", record.stores.is_empty()),
        ("starts", record.starts.is_empty()),
    ];
    all.into_iter()
        .filter(|(_, is_missing)| !is_missing)
        .map(|(name, _)| format!("pressure {name}"))
        .collect()
}

fn file(root: &Path, path: &str) -> Result<AnyRecord, String> {
    let text = fs::read_to_string(root.join(path)).map_err(|why| format!("{path}: {why}"))?;
    parse(&text).map_err(|why| format!("{path}: {why}"))
}

/// Finds a scenario in a record.
pub(crate) fn comparison<'a>(record: &'a Record, scenario: &str) -> Option<&'a Comparison> {
    record.comparisons.iter().find(|comparison| comparison.scenario == scenario)
}

/// Finds a table by the beginning of its title.
pub(crate) fn table<'a>(tables: &'a [Table], title: &str) -> Option<&'a Table> {
    tables.iter().find(|table| table.title.starts_with(title))
}
