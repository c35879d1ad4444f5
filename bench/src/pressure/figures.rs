//! Figures of Nighttrain with their bounds and verdicts.
//!
//! A ratio is computed per round, and its verdict follows [`lab::paired::spread`]: *met* if the whole 95%
//! interval of its median is within the bound, *not met* if all of it is beyond, *too noisy to say* in
//! between.

use lab::paired::spread::{ROUNDS_MIN, Ratio, Spread, Verdict, median};
use serde::{Deserialize, Serialize};

use crate::pressure::cold::Cold;
use crate::pressure::report::Record;
use crate::pressure::resident::Resident;
use crate::pressure::row::{Late, Round, Row};
use crate::pressure::start_again::Start;
use crate::pressure::stores::Replay;

/// Number of answers per major page fault that a loop may have with `kernel` paging; with `direct` paging it
/// may have none.
const ANSWERS_A_FAULT_KERNEL: u64 = 10_000_000;
const HOT_TIMES_MAX: f64 = 2.0;
const INSERT_TIMES_MAX: f64 = 1.25;
const COLD_SHARE_MIN: f64 = 0.8;
/// Maximum number of reads per object. A few reads at the edge of a block may be repeated; more would mean
/// that objects are read twice.
const READS_AN_OBJECT_MAX: f64 = 1.005;
const LATER_THAN_IDLE_US_MAX: f64 = 1_000.0;
/// Minimum number of lateness samples for a p99.99.
const LOOKS_MIN: u64 = 10_000;
const ABOVE_UNCHECKED_NS_MAX: f64 = 50.0;
const START_CLEAN_S_MAX: f64 = 10.0;
const START_KILLED_S_MAX: f64 = 30.0;
const START_OBJECTS: u64 = 10_000_000;
const METADATA_BYTES_MAX: f64 = 64.0;

/// A measured value with its bound and verdict, one line of the report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Name of the server or store.
    pub(crate) of: String,
    /// Description of the measurement.
    pub(crate) what: String,
    pub(crate) found: String,
    pub(crate) bound: String,
    pub(crate) verdict: Verdict,
}

impl Record {
    /// Computes all figures of Nighttrain.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let mut figures = Vec::new();
        for row in self.rows.iter().filter(|row| row.is_ours() && !row.rounds.is_empty()) {
            figures.extend(self.of_server(row));
        }
        figures.extend(self.cold.iter().flat_map(of_cold));
        figures.extend(self.resident.iter().map(of_resident));
        figures.extend(of_stores(&self.stores));
        figures.extend(self.starts.iter().flat_map(of_start));
        figures
    }

    fn of_server(&self, row: &Row) -> Vec<Figure> {
        let mut figures = Vec::new();
        let mut say = |what: &str, found: String, bound: String, verdict: Verdict| {
            figures.push(Figure { of: row.name.clone(), what: what.into(), found, bound, verdict });
        };
        let allowed = if row.name == "ours-kernel" { row.answers / ANSWERS_A_FAULT_KERNEL } else { 0 };
        say(
            "major faults of the loop under pressure",
            format!("{} in {} answers", row.loop_major_faults, row.answers),
            format!("at most {allowed}"),
            yes(row.loop_major_faults <= allowed),
        );
        match row.disk_wait_us {
            Some(us) => say(
                "the loop's wait for the disk (write-back), under pressure",
                format!("{us} µs"),
                "0".into(),
                if self.is_wait_counted { yes(us == 0) } else { Verdict::NotMeasured },
            ),
            None => say(
                "the loop's wait for the disk (write-back), under pressure",
                "–".into(),
                "0".into(),
                Verdict::NotMeasured,
            ),
        }
        if let (Some(idle), Some(loaded)) = (row.idle, row.under_load) {
            let (found, verdict) = later(&idle, &loaded);
            say("p99.99 of the loop's lateness", found, "1 ms beyond the idle loop's".into(), verdict);
        }
        for (at, quantile) in [(1, "p99"), (2, "p99.9")] {
            let (found, verdict) =
                times(row, |round| (round.pressure_us[at], round.calm_us[at]), HOT_TIMES_MAX);
            let peers = self.peers_times(|round| (round.pressure_us[at], round.calm_us[at]));
            say(
                &format!("{quantile} of resident hits under pressure, times that without"),
                found,
                format!("at most {HOT_TIMES_MAX} (peers: {peers})"),
                verdict,
            );
        }
        let (found, verdict) =
            times(row, |round| (round.inserts_us[1], round.before_inserts_us[1]), INSERT_TIMES_MAX);
        let mib = row.middle(|round| round.insert_mib_per_s);
        let peers = self.peers_times(|round| (round.inserts_us[1], round.before_inserts_us[1]));
        say(
            &format!("p99 of resident hits beside sustained inserts ({mib:.0} MiB/s), times that without"),
            found,
            format!("at most {INSERT_TIMES_MAX} (peers: {peers})"),
            verdict,
        );
        if let Some(reads) = row.reads_an_object {
            say(
                "reads of the disk for each cold hit",
                format!("{reads:.3}"),
                format!("one (at most {READS_AN_OBJECT_MAX})"),
                yes(reads <= READS_AN_OBJECT_MAX),
            );
        }
        if let Some((peer, best)) = self.best_peer(|round| -round.hit_percent) {
            let own = row.spread(|round| round.hit_percent);
            say(
                "hit ratio at equal bytes",
                format!("{}%", own.as_ref().map_or_else(|| "–".into(), |own| within(own, 1))),
                format!("at least {}'s {:.1}%", peer, -best.median),
                own.map_or(Verdict::NotMeasured, |own| less(&negated(&own), &best)),
            );
        }
        if let Some((peer, best)) = self.best_peer(|round| round.cpu_us) {
            let own = row.spread(|round| round.cpu_us);
            say(
                "CPU µs a request",
                own.as_ref().map_or_else(|| "–".into(), |own| within(own, 1)),
                format!("at most {peer}'s {:.1}", best.median),
                own.map_or(Verdict::NotMeasured, |own| less(&own, &best)),
            );
        }
        figures
    }

    /// Iterates over the peers that answered requests.
    fn peers(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.is_ours() && row.answers > 0)
    }

    /// Returns the peer with the smallest median of a value.
    fn best_peer(&self, value: impl Fn(&Round) -> f64) -> Option<(&str, Spread)> {
        self.peers()
            .filter_map(|row| Some((row.name.as_str(), row.spread(&value)?)))
            .min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))
    }

    fn peers_times(&self, of: impl Fn(&Round) -> (f64, f64)) -> String {
        let each: Vec<String> = self
            .peers()
            .map(|row| {
                let ratios: Vec<f64> = row.rounds.iter().map(|round| of(round).0 / of(round).1).collect();
                format!("{} {:.1}", row.name, median(&ratios).unwrap_or(f64::NAN))
            })
            .collect();
        if each.is_empty() { "none".into() } else { each.join(", ") }
    }
}

fn yes(met: bool) -> Verdict {
    if met { Verdict::Met } else { Verdict::NotMet }
}

/// Judges a ratio of two values of each round, which may be at most `most`.
fn times(row: &Row, of: impl Fn(&Round) -> (f64, f64), most: f64) -> (String, Verdict) {
    let (above, below): (Vec<_>, Vec<_>) = row.rounds.iter().map(of).unzip();
    at_most(&above, &below, most)
}

fn at_most(above: &[f64], below: &[f64], most: f64) -> (String, Verdict) {
    let all = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
    Ratio::paired(&all(above), &all(below)).map_or_else(
        || ("–".into(), Verdict::NotMeasured),
        |ratio| {
            let found = format!("{:.2} ({:.2}–{:.2})", ratio.median, ratio.low, ratio.high);
            (found, Verdict::at_most(most, &ratio))
        },
    )
}

/// Returns `Met` if every value of `own` is at most every value of `other`, and `TooNoisy` if they overlap.
fn less(own: &Spread, other: &Spread) -> Verdict {
    if own.rounds < ROUNDS_MIN || other.rounds < ROUNDS_MIN {
        Verdict::TooNoisy
    } else if own.max <= other.min {
        Verdict::Met
    } else if own.min > other.max {
        Verdict::NotMet
    } else {
        Verdict::TooNoisy
    }
}

fn negated(spread: &Spread) -> Spread {
    Spread { median: -spread.median, min: -spread.max, max: -spread.min, ..*spread }
}

fn within(spread: &Spread, digits: usize) -> String {
    format!("{:.digits$} ({:.digits$}–{:.digits$})", spread.median, spread.min, spread.max)
}

/// Compares the p99.99 lateness under load with the idle loop's. The histogram gives only a range for each,
/// so there is a verdict only if the ranges leave no doubt.
fn later(idle: &Late, loaded: &Late) -> (String, Verdict) {
    let between = |(low, high): (f64, f64)| format!("{low:.0} to {high:.0} µs");
    let found = format!(
        "{}, idle {} ({} and {} looks)",
        between(loaded.p9999_us),
        between(idle.p9999_us),
        loaded.looks,
        idle.looks
    );
    let verdict = if loaded.p9999_us.1 <= idle.p9999_us.0 + LATER_THAN_IDLE_US_MAX {
        // With fewer samples, the reported value is the maximum, which is above the p99.99; `Met` holds all
        // the same.
        Verdict::Met
    } else if loaded.p9999_us.0 > idle.p9999_us.1 + LATER_THAN_IDLE_US_MAX
        && loaded.looks >= LOOKS_MIN
        && idle.looks >= LOOKS_MIN
    {
        Verdict::NotMet
    } else {
        Verdict::TooNoisy
    };
    (found, verdict)
}

fn of_cold(cold: &Cold) -> [Figure; 3] {
    let of = format!("store, {}", cold.paging);
    let shares: Vec<f64> =
        cold.cold_per_s.iter().zip(&cold.raw_per_s).map(|(cold, raw)| cold / raw).collect();
    // The verdict's rule needs an upper bound, so it judges the share that is missing to the disk's rate.
    let lacks: Vec<f64> = shares.iter().map(|share| 1.0 - share).collect();
    let (_, verdict) = at_most(&lacks, &vec![1.0; lacks.len()], 1.0 - COLD_SHARE_MIN);
    let figure = |what: &str, found, bound: String, verdict| Figure {
        of: of.clone(),
        what: what.into(),
        found,
        bound,
        verdict,
    };
    [
        figure(
            "cold hits, share of raw random reads of the same sizes by as many helpers",
            Spread::of(&shares).map_or_else(|| "–".into(), |share| within(&share, 2)),
            format!("at least {COLD_SHARE_MIN}"),
            verdict,
        ),
        figure(
            "reads of the disk for each cold hit",
            cold.reads_an_object.map_or_else(|| "–".into(), |reads| format!("{reads:.3}")),
            format!("one (at most {READS_AN_OBJECT_MAX})"),
            cold.reads_an_object.map_or(Verdict::NotMeasured, |reads| yes(reads <= READS_AN_OBJECT_MAX)),
        ),
        figure(
            "major faults of the loop during cold hits",
            cold.loop_major_faults.to_string(),
            "0".into(),
            yes(cold.loop_major_faults == 0),
        ),
    ]
}

fn of_resident(resident: &Resident) -> Figure {
    let above: Vec<f64> =
        resident.hit_ns.iter().zip(&resident.unchecked_ns).map(|(hit, unchecked)| hit - unchecked).collect();
    // The value is judged as a ratio to 1, so that the rule about intervals applies.
    let (found, verdict) = at_most(&above, &vec![1.0; above.len()], ABOVE_UNCHECKED_NS_MAX);
    Figure {
        of: "store".into(),
        what: format!(
            "ns of a resident hit of 1 KiB above an unchecked read, {} objects {}",
            resident.objects, resident.order
        ),
        found: format!("{found}; unchecked {:.0}", median(&resident.unchecked_ns).unwrap_or(0.0)),
        bound: format!("at most {ABOVE_UNCHECKED_NS_MAX}"),
        verdict,
    }
}

/// Computes the figures of the libraries. Hit ratios are the same in every run; CPU times come from a single
/// run.
fn of_stores(stores: &[Replay]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for own in stores.iter().filter(|store| store.ours) {
        let peers = || {
            stores.iter().filter(|peer| !peer.ours && peer.trace == own.trace && peer.on_disk == own.on_disk)
        };
        let best = peers().max_by(|a, b| a.hit_percent().total_cmp(&b.hit_percent()));
        let cheapest = peers().min_by(|a, b| a.cpu_us.total_cmp(&b.cpu_us));
        let (Some(best), Some(cheapest)) = (best, cheapest) else { continue };
        let place = if own.on_disk { "memory and disk" } else { "memory" };
        figures.push(Figure {
            of: own.store.clone(),
            what: format!("hit ratio at equal bytes of {place}, trace {}", own.trace),
            found: format!("{:.1}%", own.hit_percent()),
            bound: format!("at least {}'s {:.1}%", best.store, best.hit_percent()),
            verdict: yes(own.hit_percent() >= best.hit_percent()),
        });
        figures.push(Figure {
            of: own.store.clone(),
            what: format!("CPU µs a request, trace {}", own.trace),
            found: format!("{:.2}", own.cpu_us),
            bound: format!("at most {}'s {:.2}", cheapest.store, cheapest.cpu_us),
            verdict: yes(own.cpu_us <= cheapest.cpu_us),
        });
    }
    figures
}

fn of_start(started: &Start) -> [Figure; 2] {
    let most = if started.after == "kill -9" { START_KILLED_S_MAX } else { START_CLEAN_S_MAX };
    let is_full = started.objects >= START_OBJECTS;
    let said = |met: bool| if is_full { yes(met) } else { Verdict::NotMeasured };
    let is_whole = started.found == started.objects;
    [
        Figure {
            of: "store".into(),
            what: format!(
                "seconds of a start with {} objects after {}, cold page cache",
                started.objects, started.after
            ),
            found: format!("{:.2}, {} objects found", started.seconds, started.found),
            bound: format!("at most {most} with {START_OBJECTS} objects"),
            verdict: said(started.seconds <= most && is_whole),
        },
        Figure {
            of: "store".into(),
            what: format!("bytes of metadata an object after {}", started.after),
            found: format!("{:.1} (directory {:.1})", started.metadata_bytes, started.directory_bytes),
            bound: format!("at most {METADATA_BYTES_MAX}"),
            verdict: said(started.metadata_bytes <= METADATA_BYTES_MAX),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(hit_percent: f64, cpu_us: f64) -> Round {
        Round {
            calm_us: [50.0, 100.0, 200.0],
            pressure_us: [60.0, 150.0, 500.0],
            before_inserts_us: [50.0, 100.0, 200.0],
            inserts_us: [60.0, 120.0, 300.0],
            insert_mib_per_s: 30.0,
            hit_percent,
            answered_percent: 100.0,
            cpu_us,
        }
    }

    fn row(name: &str, hits: [f64; 3], cpu_us: [f64; 3]) -> Row {
        let rounds = hits.into_iter().zip(cpu_us).map(|(hits, cpu)| round(hits, cpu)).collect();
        Row { name: name.into(), answers: 1000, rounds, ..Row::default() }
    }

    fn verdicts(figures: &[Figure]) -> Vec<Verdict> {
        figures.iter().map(|figure| figure.verdict).collect()
    }

    #[test]
    fn servers_are_judged_beside_the_best_peer() {
        let mut dead = row("squid", [99.0; 3], [0.1; 3]);
        (dead.answers, dead.rounds) = (0, Vec::new());
        let mut ours = row("ours-direct", [60.0, 61.0, 60.5], [20.0, 21.0, 40.0]);
        ours.reads_an_object = Some(2.0);
        ours.disk_wait_us = Some(0);
        let record = Record {
            rows: vec![ours, row("nginx", [59.0, 58.0, 60.0], [30.0; 3]), dead],
            is_wait_counted: true,
            ..Record::default()
        };
        use Verdict::{Met, NotMet, TooNoisy};
        // The figures in order: faults, disk wait, p99 ratio 1.5, p99.9 ratio 2.5, inserts 1.2, two reads per
        // object, hits, and CPU times that overlap.
        assert_eq!(
            verdicts(&record.figures()),
            [Met, Met, Met, NotMet, Met, NotMet, Met, TooNoisy],
            "{:#?}",
            record.figures()
        );
    }

    #[test]
    fn doubtful_lateness_is_not_judged() {
        let late = |looks, low, high| Late { looks, late: 0, p9999_us: (low, high) };
        let verdict = |idle: &Late, loaded: &Late| later(idle, loaded).1;
        assert_eq!(verdict(&late(300, 100.0, 200.0), &late(900, 500.0, 1_000.0)), Verdict::Met);
        assert_eq!(verdict(&late(300, 100.0, 200.0), &late(900, 1_000.0, 2_000.0)), Verdict::TooNoisy);
        let (idle, loaded) = (late(20_000, 100.0, 200.0), late(20_000, 2_000.0, 5_000.0));
        assert_eq!(verdict(&idle, &loaded), Verdict::NotMet);
        assert_eq!(verdict(&idle, &late(900, 2_000.0, 5_000.0)), Verdict::TooNoisy, "too few looks");
    }

    #[test]
    fn cold_hits_are_a_share_of_the_disk() {
        let mut cold = Cold {
            paging: "direct".into(),
            raw_per_s: vec![100.0, 110.0, 90.0],
            cold_per_s: vec![85.0, 95.0, 76.0],
            raw_cpu_us: 9.0,
            cold_cpu_us: 20.0,
            reads_an_object: Some(1.0),
            loop_major_faults: 0,
            fill_mib_per_s: 100.0,
        };
        assert_eq!(verdicts(&of_cold(&cold)), [Verdict::Met; 3]);
        (cold.cold_per_s, cold.loop_major_faults) = (vec![50.0; 3], 1);
        assert_eq!(verdicts(&of_cold(&cold)), [Verdict::NotMet, Verdict::Met, Verdict::NotMet]);
    }

    #[test]
    fn stores_of_equal_bytes_are_compared() {
        let store = |name: &str, ours, on_disk, hits, cpu_us| Replay {
            store: name.into(),
            trace: "scans".into(),
            ours,
            on_disk,
            requests: 100,
            memory_hits: hits,
            disk_hits: 0,
            cpu_us,
            seconds: 1.0,
            resident_mib: 1.0,
            remark: None,
        };
        let stores = [
            store("ours", true, false, 50, 2.0),
            store("foyer", false, false, 49, 1.0),
            store("foyer hybrid", false, true, 80, 0.5),
        ];
        assert_eq!(verdicts(&of_stores(&stores)), [Verdict::Met, Verdict::NotMet]);
        let start = |objects, found| Start {
            after: "kill -9".into(),
            objects,
            found,
            seconds: 20.0,
            metadata_bytes: 40.0,
            directory_bytes: 33.0,
        };
        let full = START_OBJECTS;
        assert_eq!(verdicts(&of_start(&start(full, full))), [Verdict::Met; 2]);
        assert_eq!(verdicts(&of_start(&start(full, full - 1))), [Verdict::NotMet, Verdict::Met]);
        assert_eq!(verdicts(&of_start(&start(1000, 1000))), [Verdict::NotMeasured; 2]);
    }

    #[test]
    fn resident_hits_are_judged_by_their_surplus() {
        let resident = |more: f64| Resident {
            objects: 1000,
            order: "evenly",
            unchecked_ns: vec![100.0, 120.0, 90.0],
            hit_ns: vec![100.0 + more, 120.0 + more, 90.0 + more],
        };
        assert_eq!(of_resident(&resident(40.0)).verdict, Verdict::Met);
        assert_eq!(of_resident(&resident(60.0)).verdict, Verdict::NotMet);
    }
}
