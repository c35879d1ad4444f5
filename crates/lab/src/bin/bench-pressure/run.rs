//! The run: start, fill, and the phases, for each contender in turn.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use lab::experiments::bheap_paging::group::Group;
use lab::experiments::scratch::Scratch;
use lab::experiments::store_pressure::STORE_TIMES_MEMORY;
use lab::paired::machine::{self, Machine};
use lab::paired::spread::Draws;
use lab::paired::tree::Cores;
use lab::pressure::requests::Requests;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::contenders::{Contender, Ground, Running, start};
use crate::load::{Client, Done, Pace, load};
use crate::origin::Origin;
use crate::report::{Record, Row, Warm};
use crate::threads::{between, major_faults};
use crate::{BenchError, Options, raw};

/// Objects that count as hot: the most popular.
const HOT: usize = 1000;
/// Bytes of an object and of what a store keeps beside it, for the number that fills a store.
const OBJECT_BYTES: u64 = 5_300;
/// Of the store, what the objects asked for by popularity fill; scans have the rest.
const FILLED_PERCENT: u64 = 90;
/// Reads that the disk has at once, for itself as with our helpers.
const DISK_THREADS: usize = 16;
/// What the disk is tried on by --quick.
const RAW_BYTES_QUICK: u64 = 16 << 20;
/// Objects asked for after a start.
const WARM_SAMPLE: usize = 1000;
/// What was just stored is on the disk after that: the flush interval and a second.
const FLUSHED: Duration = Duration::from_secs(2);
const SEED: u64 = 20_100_611;
/// Numbers that no Zipf and no scan of the measured phases asks for: for inserting.
const INSERTED_FROM: u64 = 1 << 40;

pub(crate) fn run(options: &Options) -> Result<(), BenchError> {
    let mut options = options.clone();
    if options.quick {
        (options.memory_mib, options.seconds, options.rate, options.connections) = (48, 0.5, 500, 8);
        options.objects = options.objects.or(Some(2_000));
    }
    // Before anything else: without a limit there is no pressure.
    drop(Group::create().map_err(|error| BenchError::failed(error.to_string()))?);
    let chosen = chosen(&options)?;
    let cores = Cores::allowed()?;
    let (Some(&server), Some(&other)) = (cores.first(), cores.last()) else {
        return Err(BenchError::failed("no processor may be used"));
    };
    // As it is before this process ties itself to one core.
    let machine = Machine::here();
    let mut ours = CpuSet::new();
    ours.set(other);
    sched_setaffinity(None, &ours).map_err(std::io::Error::from)?;
    let scratch = Scratch::on_disk(options.directory.as_deref())?;
    // The peers run as somebody else and must be able to pass.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
    let store_mib = options.memory_mib * STORE_TIMES_MEMORY;
    let objects = options
        .objects
        .unwrap_or_else(|| (store_mib << 20) / OBJECT_BYTES * FILLED_PERCENT / 100)
        .max(HOT as u64 * 2);
    let bench = Bench { origin: Origin::start()?, hot: hot(objects), server, store_mib, objects, options };
    let mut record = bench.record(machine, server == other);
    if bench.wants("disk") {
        record.disk = Some(bench.disk(&scratch)?);
    }
    for contender in chosen {
        let program = match contender.program() {
            Ok(program) => program,
            Err(why) => {
                record.remarks.push(why);
                continue;
            }
        };
        println!("{} …", contender.name());
        let row = bench.contender(contender, &program, &scratch)?;
        for remark in &row.remarks {
            println!("({remark})");
        }
        record.rows.push(row);
    }
    println!("{}", record.text());
    println!("{}", record.write(&bench.options.records)?.display());
    Ok(())
}

fn chosen(options: &Options) -> Result<Vec<Contender>, BenchError> {
    let known = |name: &String| name == "disk" || Contender::ALL.iter().any(|known| known.name() == *name);
    if let Some(unknown) = options.only.iter().find(|name| !known(name)) {
        let names = Contender::ALL.map(Contender::name).join(", ");
        return Err(BenchError::failed(format!("there is no contender {unknown}; there are disk, {names}")));
    }
    let wanted = |contender: &Contender| {
        options.only.is_empty() || options.only.iter().any(|name| name == contender.name())
    };
    Ok(Contender::ALL.into_iter().filter(wanted).collect())
}

/// The objects that are asked for most: found by asking, because ranks are spread over the numbers.
fn hot(objects: u64) -> HashSet<u64> {
    let mut counts = std::collections::HashMap::<u64, u32>::new();
    for id in Requests::new(objects, SEED + 1).filter(|id| *id < objects).take(HOT * 400) {
        *counts.entry(id).or_default() += 1;
    }
    let mut all: Vec<(u64, u32)> = counts.into_iter().collect();
    all.sort_unstable_by_key(|(id, count)| (std::cmp::Reverse(*count), *id));
    all.truncate(HOT);
    all.into_iter().map(|(id, _)| id).collect()
}

struct Bench {
    origin: Origin,
    hot: HashSet<u64>,
    server: usize,
    store_mib: u64,
    objects: u64,
    options: Options,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        self.options.only.is_empty() || self.options.only.iter().any(|only| only == name)
    }

    fn record(&self, machine: Machine, shared: bool) -> Record {
        let Options { memory_mib, rate, seconds, connections, quick, .. } = self.options;
        let mut remarks = Vec::new();
        if shared {
            remarks.push("one core for the server and its load: latencies are of both".into());
        }
        if quick {
            remarks.push("--quick: shows that everything works, and measures nothing".into());
        }
        Record {
            date: machine::date(),
            commit: machine::commit(),
            machine,
            settings: vec![
                ("memory allowed, page cache included".into(), format!("{memory_mib} MiB")),
                ("store".into(), format!("{} MiB ({STORE_TIMES_MEMORY} times)", self.store_mib)),
                ("objects by popularity".into(), self.objects.to_string()),
                ("requests due".into(), format!("{rate} a second on {connections} connections")),
                ("each phase".into(), format!("{seconds} s")),
            ],
            disk: None,
            rows: Vec::new(),
            remarks,
        }
    }

    fn disk(&self, scratch: &Scratch) -> Result<(f64, f64, usize), BenchError> {
        let path = scratch.path().join("raw");
        let bytes = if self.options.quick { RAW_BYTES_QUICK } else { self.store_mib << 20 };
        let mut out = std::io::BufWriter::with_capacity(1 << 20, fs::File::create_new(&path)?);
        // Nothing that a disk could leave out.
        let mut draws = Draws::new(SEED);
        for _ in 0..bytes / 8 {
            out.write_all(&draws.bits().to_ne_bytes())?;
        }
        out.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
        let raw = raw::read(&path, self.objects, DISK_THREADS, self.options.seconds)?;
        fs::remove_file(&path)?;
        println!(
            "the disk itself: {:.0} reads a second, {:.0} MiB/s, {:.1} µs of CPU each",
            raw.reads_per_second,
            raw.bytes_per_second / f64::from(1 << 20),
            raw.cpu_us
        );
        Ok((raw.reads_per_second, raw.cpu_us, DISK_THREADS))
    }

    fn contender(&self, contender: Contender, program: &Path, scratch: &Scratch) -> Result<Row, BenchError> {
        let directory = scratch.path().join(contender.name());
        fs::create_dir_all(&directory)?;
        let group = Group::create().map_err(|error| BenchError::failed(error.to_string()))?;
        group.limit(self.options.memory_mib << 20)?;
        let ground = Ground {
            contender,
            program,
            directory: &directory,
            group: &group,
            core: self.server,
            origin_port: self.origin.port,
            memory_mib: self.options.memory_mib,
            store_mib: self.store_mib,
            objects: self.objects,
        };
        let mut row =
            Row { name: contender.name().into(), version: contender.version(program), ..Row::default() };
        // A server that does not survive its limit is a result.
        if let Err(error) = self.phases(&ground, &mut row) {
            row.remarks.push(error.to_string());
        }
        fs::remove_dir_all(&directory)?;
        Ok(row)
    }

    fn phases(&self, ground: &Ground<'_>, row: &mut Row) -> Result<(), BenchError> {
        let mut running = start(ground)?;
        let filled = self.ask(&running, Pace::AtOnce, None, self.permuted(), row);
        row.fill_per_s = filled.per_second();
        row.fill_mib_per_s = filled.body_bytes as f64 / filled.seconds / f64::from(1 << 20);
        alive(&mut running, "filled", &filled)?;
        sleep(FLUSHED);

        let due = Pace::Due(self.options.rate);
        let seconds = Some(self.options.seconds);
        let hot: Vec<u64> = self.hot.iter().copied().collect();
        let mut draws = Draws::new(SEED);
        let mut alone = || hot[draws.below(hot.len())];
        // Once, so that they are where a store keeps what is hot.
        self.ask(&running, Pace::AtOnce, None, hot.iter().chain(&hot).copied(), row);
        let calm = self.ask(&running, due, seconds, std::iter::repeat_with(&mut alone), row);
        row.calm_us = calm.hot_us();
        alive(&mut running, "calm", &calm)?;

        let mut mixed = Requests::new(self.objects, SEED);
        // As much again before it counts: the tiers find their balance.
        self.ask(&running, due, seconds, mixed.by_ref(), row);
        self.pressure(ground, &running, mixed, row)?;

        let before = self.origin.requests();
        let mut draws = Draws::new(SEED + 2);
        let anywhere = std::iter::repeat_with(|| draws.bits() % self.objects);
        let cold = self.ask(&running, Pace::AtOnce, seconds, anywhere, row);
        let missed = (self.origin.requests() - before).min(cold.answered);
        row.cold_per_s = (cold.answered - missed) as f64 / cold.seconds;
        row.cold_hit_percent = 100.0 - percent(missed, cold.answered);
        alive(&mut running, "cold", &cold)?;

        self.inserts(&running, due, row);
        let usage = running.tree.usage()?;
        row.rss_mib = usage.rss_bytes >> 20;
        if ground.contender.is_ours() {
            sleep(FLUSHED);
            // Dropping asks it to end, and waits.
            drop(running);
            let running = start(ground)?;
            row.after_stop = Some(self.warm(&running));
            sleep(FLUSHED);
            if let Some(process) = i32::try_from(running.tree.id()).ok().and_then(Pid::from_raw) {
                kill_process(process, Signal::KILL).map_err(std::io::Error::from)?;
            }
            drop(running);
            row.after_kill = Some(self.warm(&start(ground)?));
        }
        Ok(())
    }

    fn pressure(
        &self,
        ground: &Ground<'_>,
        running: &Running,
        mixed: Requests,
        row: &mut Row,
    ) -> Result<(), BenchError> {
        let late_before = lateness(running.admin_port);
        let (asked, faults, usage) =
            (self.origin.requests(), major_faults(running.tree.id()), running.tree.usage()?);
        let done = self.ask(running, Pace::Due(self.options.rate), Some(self.options.seconds), mixed, row);
        let after = running.tree.usage()?;
        let cpu_s = after.cpu_user_s + after.cpu_system_s - usage.cpu_user_s - usage.cpu_system_s;
        row.cpu_us = cpu_s * 1e6 / done.answered.max(1) as f64;
        let faults_after = major_faults(running.tree.id());
        (row.major_faults, row.loop_major_faults) = between(&faults, &faults_after, ground.contender.loops());
        let missed = (self.origin.requests() - asked).min(done.answered);
        row.hit_percent = 100.0 - percent(missed, done.answered);
        row.answers = done.answered;
        let due = (self.options.rate as f64 * self.options.seconds) as u64;
        row.answered_percent = percent(done.answered, due);
        row.pressure_us = done.hot_us();
        if let (Some(before), Some(now)) = (late_before, lateness(running.admin_port)) {
            row.late = Some((now.0 - before.0, now.1 - before.1));
        }
        Ok(())
    }

    /// Hot objects at their due times beside others that come in as fast as they can.
    fn inserts(&self, running: &Running, due: Pace, row: &mut Row) {
        let seconds = Some(self.options.seconds);
        let hot: Vec<u64> = self.hot.iter().copied().collect();
        let mut draws = Draws::new(SEED + 3);
        let alone = std::iter::repeat_with(|| hot[draws.below(hot.len())]);
        let (asked, inserted) = std::thread::scope(|scope| {
            let workers = (self.options.connections / 8).max(1);
            let inserting = scope.spawn(move || {
                load(running.port, workers, Pace::AtOnce, seconds, INSERTED_FROM.., &HashSet::new())
            });
            let asked = load(running.port, self.options.connections, due, seconds, alone, &self.hot);
            (asked, inserting.join().unwrap_or_default())
        });
        row.inserts_us = asked.hot_us();
        row.insert_mib_per_s = inserted.body_bytes as f64 / inserted.seconds.max(0.001) / f64::from(1 << 20);
        note(&asked, row);
        note(&inserted, row);
    }

    fn warm(&self, running: &Running) -> Warm {
        let before = self.origin.requests();
        let mut client = Client::new(running.port);
        let mut draws = Draws::new(SEED + 4);
        let answered = (0..WARM_SAMPLE).filter(|_| client.fetch(draws.bits() % self.objects).is_ok()).count();
        // What is not answered is not kept.
        let missed = self.origin.requests() - before + (WARM_SAMPLE - answered) as u64;
        Warm { ready_s: running.ready_s, kept_percent: 100.0 - percent(missed, WARM_SAMPLE as u64) }
    }

    fn ask(
        &self,
        running: &Running,
        pace: Pace,
        seconds: Option<f64>,
        ids: impl Iterator<Item = u64> + Send,
        row: &mut Row,
    ) -> Done {
        let done = load(running.port, self.options.connections, pace, seconds, ids, &self.hot);
        note(&done, row);
        done
    }

    /// All objects that are asked for by popularity, in an order of its own.
    fn permuted(&self) -> impl Iterator<Item = u64> + Send + use<> {
        let objects = self.objects;
        // A prime larger than any number of objects here is a step that meets each once.
        const STEP: u64 = 4_294_967_291;
        (0..objects).map(move |number| (u128::from(number) * u128::from(STEP) % u128::from(objects)) as u64)
    }
}

fn note(done: &Done, row: &mut Row) {
    if let Some(failure) = &done.failure {
        row.remarks.push(format!(
            "{} of {} requests failed, the first: {failure}",
            done.failed,
            done.failed + done.answered
        ));
    }
}

fn alive(running: &mut Running, phase: &str, done: &Done) -> Result<(), BenchError> {
    match running.tree.ended()? {
        Some(status) => Err(BenchError::failed(format!("it ended while it was {phase}: {status}"))),
        None if done.answered == 0 => {
            Err(BenchError::failed(format!("nothing was answered while it was {phase}")))
        }
        None => Ok(()),
    }
}

fn percent(part: u64, of: u64) -> f64 {
    part as f64 * 100.0 / of.max(1) as f64
}

/// Looks of all our loops at the clock so far, and those that were more than a millisecond late.
fn lateness(admin_port: u16) -> Option<(u64, u64)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, admin_port)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bench.example\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    late_of(&text)
}

fn late_of(metrics: &str) -> Option<(u64, u64)> {
    let number = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    let (mut all, mut within) = (None, None);
    for line in metrics.lines() {
        if line.starts_with("loop_lateness_seconds_count") {
            all = Some(all.unwrap_or(0) + number(line)? as u64);
        } else if line.starts_with("loop_lateness_seconds_bucket") && line.contains("le=\"0.001\"") {
            within = Some(within.unwrap_or(0) + number(line)? as u64);
        }
    }
    Some((all?, all? - within?.min(all?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lateness_is_read_from_the_metrics() {
        let metrics = "# TYPE loop_lateness_seconds histogram\n\
                       loop_lateness_seconds_bucket{server=\"cache\",core=\"0\",le=\"0.0001\"} 5\n\
                       loop_lateness_seconds_bucket{server=\"cache\",core=\"0\",le=\"0.001\"} 8\n\
                       loop_lateness_seconds_count{server=\"cache\",core=\"0\"} 10\n\
                       loop_lateness_seconds_bucket{server=\"cache\",core=\"1\",le=\"0.001\"} 7\n\
                       loop_lateness_seconds_count{server=\"cache\",core=\"1\"} 7\n";
        assert_eq!(late_of(metrics), Some((17, 2)));
        assert_eq!(late_of("nothing"), None);
    }

    #[test]
    fn hot_objects_are_those_that_are_asked_for() {
        let hot = hot(10_000);
        assert_eq!(hot.len(), HOT);
        let asked = Requests::new(10_000, 3).filter(|id| *id < 10_000).take(20_000);
        let share = asked.filter(|id| hot.contains(id)).count() as f64 / 20_000.0;
        // The first thousand of ten thousand have three quarters of a Zipf law of 0.99.
        assert!((0.65..0.85).contains(&share), "{share}");
    }
}
