//! `--scenario servers`: start, fill, and rounds of phases, for each contender in turn.
//!
//! ```text
//!   start ─ idle ─ fill ─ warm ─ rounds of ┌ calm       hot objects alone
//!                                          └ pressure   Zipf with scans, over all of the store
//!         ─ cold: objects all over the store, as fast as they are answered ─ ours: stop, start, kill, start
//!         ─ rounds of ┌ calm       hot objects alone
//!                     └ inserting  hot objects beside others that come in as fast as they can
//! ```
//! The phases alternate, so that other load on the machine affects each of them. A figure is the median over
//! the rounds of a ratio of two neighbouring phases.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab::experiments::bheap_paging::group::Group;
use lab::experiments::scratch::Scratch;
use lab::paired::place::free_port;
use lab::paired::spread::Draws;
use lab::peers::PeerError;
use lab::pressure::requests::Requests;
use rustix::process::{Pid, Signal, kill_process};

use crate::pressure::contenders::{Contender, Ground, Server, start};
use crate::pressure::load::{Client, LoadOutcome, Pace, give_way, load};
use crate::pressure::metrics::Metrics;
use crate::pressure::origin::Origin;
use crate::pressure::row::{Late, Round, Row, Warm};
use crate::pressure::threads::{between, major_faults};

/// Number of the most popular objects, which count as hot.
pub(crate) const HOT: usize = 1000;
/// Number of objects requested after a start.
const WARM_SAMPLE: usize = 1000;
/// Time until new objects are on the disk: the flush interval and a second.
const FLUSHED: Duration = Duration::from_secs(2);
/// Time limit for reading the file's directory after a start, and the polling interval.
const KNOWN_WAIT: Duration = Duration::from_secs(60);
const KNOWN_POLL: Duration = Duration::from_millis(20);
const SEED: u64 = 20_100_611;
/// First number of the objects to insert, which the other phases never request.
const INSERTED_FROM: u64 = 1 << 40;
/// Lateness in microseconds above which a sample counts as late.
const LATE_US: u64 = 1_000;

/// Conditions that are the same for all contenders.
pub(crate) struct Bench {
    pub(crate) origin: Origin,
    pub(crate) hot: HashSet<u64>,
    pub(crate) server: usize,
    pub(crate) memory_mib: u64,
    pub(crate) store_mib: u64,
    pub(crate) objects: u64,
    pub(crate) rate: u64,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) connections: usize,
}

/// Returns the most popular objects. They are found by drawing requests and counting, because ranks are
/// spread over the object numbers.
pub(crate) fn hot(objects: u64) -> HashSet<u64> {
    let mut counts = std::collections::HashMap::<u64, u32>::new();
    for id in Requests::new(objects, SEED + 1).filter(|id| *id < objects).take(HOT * 400) {
        *counts.entry(id).or_default() += 1;
    }
    let mut all: Vec<(u64, u32)> = counts.into_iter().collect();
    all.sort_unstable_by_key(|(id, count)| (std::cmp::Reverse(*count), *id));
    all.truncate(HOT);
    all.into_iter().map(|(id, _)| id).collect()
}

impl Bench {
    /// Runs all phases of one contender.
    pub(crate) fn contender(
        &self,
        contender: Contender,
        program: &Path,
        scratch: &Scratch,
    ) -> Result<Row, PeerError> {
        let directory = scratch.path().join(contender.name());
        fs::create_dir_all(&directory)?;
        let group = Group::create().map_err(|error| PeerError::failed(error.to_string()))?;
        group.limit(self.memory_mib << 20)?;
        let ground = Ground {
            contender,
            program,
            directory: &directory,
            group: &group,
            core: self.server,
            origin_port: self.origin.port,
            memory_mib: self.memory_mib,
            store_mib: self.store_mib,
            objects: self.objects,
            ports: (free_port()?, free_port()?),
        };
        let mut row =
            Row { name: contender.name().into(), version: contender.version(program), ..Row::default() };
        // A server that fails under its memory limit is a result, not an error.
        if let Err(error) = self.phases(&ground, &mut row) {
            row.remarks.push(error.to_string());
        }
        fs::remove_dir_all(&directory)?;
        Ok(row)
    }

    fn phases(&self, ground: &Ground<'_>, row: &mut Row) -> Result<(), PeerError> {
        let mut running = start(ground)?;
        let idle = Metrics::of(running.admin_port);
        if let Some(before) = idle {
            // The lateness of a sleeping loop is not sampled, so occasional requests for one object keep the
            // loop awake.
            let one = std::iter::repeat(self.hot.iter().copied().min().unwrap_or(0));
            let seconds = self.seconds * self.rounds as f64;
            self.ask(&running, Pace::Due(BARELY_A_SECOND), Some(seconds), one, row);
            row.idle = Metrics::of(running.admin_port).map(|now| late_of(&(now - &before)));
        }
        println!("  {} objects are asked for once …", self.objects);
        let filled = self.ask(&running, Pace::AtOnce, None, self.permuted(), row);
        row.fill_per_s = filled.per_second();
        row.fill_mib_per_s = filled.body_bytes as f64 / filled.seconds / f64::from(1 << 20);
        alive(&mut running, "filled", &filled)?;
        println!("  after {:.0} s; {} rounds of phases …", filled.seconds, self.rounds);
        sleep(FLUSHED);

        let hot: Vec<u64> = self.hot.iter().copied().collect();
        // Each hot object is requested twice, so that the store moves it to where it keeps popular objects.
        self.ask(&running, Pace::AtOnce, None, hot.iter().chain(&hot).copied(), row);
        let mut mixed = Requests::new(self.objects, SEED);
        // An uncounted round comes first, in which memory and disk tiers settle.
        self.ask(&running, self.due(), Some(self.seconds), mixed.by_ref(), row);
        let mut under_load = Metrics::default();
        for round in 0..self.rounds {
            let calm_us = self.calm(&mut running, &hot, round, row)?;
            let mut found = Round { calm_us, ..Round::default() };
            self.pressure(ground, &running, &mut mixed, row, &mut found, &mut under_load)?;
            row.rounds.push(found);
        }
        if under_load.looks() > 0 {
            row.under_load = Some(late_of(&under_load));
            row.disk_wait_us = Some(under_load.value("loop_disk_wait_microseconds") as u64);
        }
        self.cold(&mut running, row)?;
        let usage = running.tree.usage()?;
        row.rss_mib = usage.rss_bytes >> 20;
        if ground.contender.is_ours() {
            sleep(FLUSHED);
            // Dropping the server asks it to end, and waits for that.
            drop(running);
            let running = start(ground)?;
            row.after_stop = Some(self.warm(&running));
            sleep(FLUSHED);
            if let Some(process) = i32::try_from(running.tree.id()).ok().and_then(Pid::from_raw) {
                kill_process(process, Signal::KILL).map_err(std::io::Error::from)?;
            }
            drop(running);
            let again = start(ground)?;
            row.after_kill = Some(self.warm(&again));
            return self.inserting(again, &hot, row);
        }
        self.inserting(running, &hot, row)
    }

    /// Measures hot objects alone, and during inserts. This phase comes last, because a store that inserts
    /// fast evicts much of what the other phases request.
    fn inserting(&self, mut running: Server, hot: &[u64], row: &mut Row) -> Result<(), PeerError> {
        self.ask(&running, Pace::AtOnce, None, hot.iter().chain(hot).copied(), row);
        for round in 0..self.rounds {
            let before_inserts_us = self.calm(&mut running, hot, self.rounds + round, row)?;
            let (inserts_us, insert_mib_per_s) = self.inserts(&running, hot, round, row);
            let found = std::mem::take(&mut row.rounds[round]);
            row.rounds[round] = Round { before_inserts_us, inserts_us, insert_mib_per_s, ..found };
        }
        Ok(())
    }

    /// Requests hot objects only, at their due times.
    fn calm(
        &self,
        running: &mut Server,
        hot: &[u64],
        round: usize,
        row: &mut Row,
    ) -> Result<[f64; 3], PeerError> {
        let mut draws = Draws::new(SEED + round as u64);
        let alone = std::iter::repeat_with(|| hot[draws.below(hot.len())]);
        let calm = self.ask(running, self.due(), Some(self.seconds), alone, row);
        alive(running, "calm", &calm)?;
        Ok(calm.hot_us())
    }

    fn due(&self) -> Pace {
        Pace::Due(self.rate)
    }

    fn pressure(
        &self,
        ground: &Ground<'_>,
        running: &Server,
        mixed: &mut Requests,
        row: &mut Row,
        round: &mut Round,
        under_load: &mut Metrics,
    ) -> Result<(), PeerError> {
        let metrics = Metrics::of(running.admin_port);
        let (asked, faults, usage) =
            (self.origin.requests(), major_faults(running.tree.id()), running.tree.usage()?);
        let done = self.ask(running, self.due(), Some(self.seconds), mixed, row);
        let after = running.tree.usage()?;
        let cpu_s = after.cpu_user_s + after.cpu_system_s - usage.cpu_user_s - usage.cpu_system_s;
        let (all, of_loops) = between(&faults, &major_faults(running.tree.id()), ground.contender.loops());
        let missed = (self.origin.requests() - asked).min(done.answered);
        let answered = done.answered.max(1) as f64;
        round.pressure_us = done.hot_us();
        round.cpu_us = cpu_s * 1e6 / answered;
        round.hit_percent = 100.0 - percent(missed, done.answered);
        round.answered_percent = percent(done.answered, (self.rate as f64 * self.seconds) as u64);
        row.answers += done.answered;
        row.major_faults += all;
        row.loop_major_faults += of_loops;
        if let (Some(before), Some(now)) = (metrics, Metrics::of(running.admin_port)) {
            *under_load += &(now - &before);
        }
        Ok(())
    }

    /// Requests hot objects at their due times while other objects are inserted at full speed; returns the
    /// latencies, and the MiB/s of the inserts.
    fn inserts(&self, running: &Server, hot: &[u64], round: usize, row: &mut Row) -> ([f64; 3], f64) {
        let seconds = Some(self.seconds);
        let mut draws = Draws::new(SEED + 100 + round as u64);
        let alone = std::iter::repeat_with(|| hot[draws.below(hot.len())]);
        let first = INSERTED_FROM + ((round as u64) << 32);
        let (asked, inserted) = std::thread::scope(|scope| {
            let workers = (self.connections / 8).max(1);
            let inserting = scope.spawn(move || {
                give_way();
                load(running.port, workers, Pace::AtOnce, seconds, first.., &HashSet::new())
            });
            let asked = load(running.port, self.connections, self.due(), seconds, alone, &self.hot);
            (asked, inserting.join().unwrap_or_default())
        });
        note(&asked, row);
        note(&inserted, row);
        let mib = inserted.body_bytes as f64 / f64::from(1 << 20);
        (asked.hot_us(), mib / inserted.seconds.max(0.001))
    }

    fn cold(&self, running: &mut Server, row: &mut Row) -> Result<(), PeerError> {
        let (before, metrics) = (self.origin.requests(), Metrics::of(running.admin_port));
        let mut draws = Draws::new(SEED + 2);
        let anywhere = std::iter::repeat_with(|| draws.bits() % self.objects);
        let cold = self.ask(running, Pace::AtOnce, Some(self.seconds), anywhere, row);
        let missed = (self.origin.requests() - before).min(cold.answered);
        row.cold_per_s = (cold.answered - missed) as f64 / cold.seconds;
        row.cold_hit_percent = 100.0 - percent(missed, cold.answered);
        if let (Some(before), Some(now)) = (metrics, Metrics::of(running.admin_port)) {
            let between = now - &before;
            let hits = between.value("store_file_hits");
            row.reads_an_object = (hits > 0.0).then(|| between.value("store_reads") / hits);
        }
        alive(running, "cold", &cold)
    }

    fn warm(&self, running: &Server) -> Warm {
        let waiting = Instant::now();
        let known_s = loop {
            let metrics = Metrics::of(running.admin_port).unwrap_or_default();
            let is_over = waiting.elapsed() > KNOWN_WAIT || metrics.value("store_file_lost") > 0.0;
            if metrics.value("store_file_warming") == 0.0 || is_over {
                break (!is_over).then(|| running.ready_s + waiting.elapsed().as_secs_f64());
            }
            sleep(KNOWN_POLL);
        };
        let before = self.origin.requests();
        let mut client = Client::new(running.port);
        let mut draws = Draws::new(SEED + 4);
        let answered = (0..WARM_SAMPLE).filter(|_| client.fetch(draws.bits() % self.objects).is_ok()).count();
        // An object without an answer counts as not kept.
        let missed = self.origin.requests() - before + (WARM_SAMPLE - answered) as u64;
        Warm { ready_s: running.ready_s, known_s, kept_percent: 100.0 - percent(missed, WARM_SAMPLE as u64) }
    }

    fn ask(
        &self,
        running: &Server,
        pace: Pace,
        seconds: Option<f64>,
        ids: impl Iterator<Item = u64> + Send,
        row: &mut Row,
    ) -> LoadOutcome {
        let done = load(running.port, self.connections, pace, seconds, ids, &self.hot);
        note(&done, row);
        done
    }

    /// Iterates over all objects with a popularity, in a permuted order.
    fn permuted(&self) -> impl Iterator<Item = u64> + Send + use<> {
        let objects = self.objects;
        // The step is a prime larger than any number of objects here, so each object occurs once.
        const STEP: u64 = 4_294_967_291;
        (0..objects).map(move |number| (u128::from(number) * u128::from(STEP) % u128::from(objects)) as u64)
    }
}

/// Requests per second that keep an idle loop awake without loading it; its lateness is sampled 100 times per
/// second.
const BARELY_A_SECOND: u64 = 200;

fn late_of(metrics: &Metrics) -> Late {
    Late {
        looks: metrics.looks(),
        late: metrics.later_than_us(LATE_US),
        p9999_us: metrics.lateness_us(0.9999).unwrap_or((0.0, 0.0)),
    }
}

fn note(done: &LoadOutcome, row: &mut Row) {
    if let Some(failure) = &done.failure {
        row.remarks.push(format!(
            "{} of {} requests failed, the first: {failure}",
            done.failed,
            done.failed + done.answered
        ));
    }
}

fn alive(running: &mut Server, phase: &str, done: &LoadOutcome) -> Result<(), PeerError> {
    match running.tree.ended()? {
        Some(status) => Err(PeerError::failed(format!("it ended while it was {phase}: {status}"))),
        None if done.answered == 0 => {
            Err(PeerError::failed(format!("nothing was answered while it was {phase}")))
        }
        None => Ok(()),
    }
}

fn percent(part: u64, of: u64) -> f64 {
    part as f64 * 100.0 / of.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_objects_are_those_that_are_asked_for() {
        let hot = hot(10_000);
        assert_eq!(hot.len(), HOT);
        let asked = Requests::new(10_000, 3).filter(|id| *id < 10_000).take(20_000);
        let share = asked.filter(|id| hot.contains(id)).count() as f64 / 20_000.0;
        // In a Zipf distribution with exponent 0.99, the first thousand of ten thousand objects get three
        // quarters of the requests.
        assert!((0.65..0.85).contains(&share), "{share}");
    }
}
