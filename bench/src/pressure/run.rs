//! Runs the selected scenarios one after the other and writes the record.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use lab::experiments::bheap_paging::group::Group;
use lab::experiments::scratch::Scratch;
use lab::paired::machine::{self, Machine};
use lab::paired::tree::Cores;
use lab::peers::PeerError;
use lab::placement::restrict;

use crate::pressure::accounting::DelayAccounting;
use crate::pressure::contenders::Contender;
use crate::pressure::origin::Origin;
use crate::pressure::report::Record;
use crate::pressure::servers::{Bench, HOT, hot};
use crate::pressure::{
    COLD, Options, RESIDENT, ROUNDS, SCENARIOS, SERVERS, START, STORES, cold, resident, start_again, stores,
};
use crate::selection;

pub(crate) use lab::experiments::store_pressure::STORE_TIMES_MEMORY;

/// Average size of an object with its metadata, for computing the number of objects that fills a store.
const OBJECT_BYTES: u64 = 5_300;
/// Percentage of the store that the objects requested by popularity fill; the rest is for scans.
const FILLED_PERCENT: u64 = 90;
/// Percentage of the store that `cold` fills.
const COLD_FILLED_PERCENT: u64 = 85;

pub(crate) fn run(options: &Options) -> Result<(), PeerError> {
    let mut options = options.clone();
    let quick = options.selection.quick;
    if quick {
        (options.memory_mib, options.seconds, options.rate, options.connections) = (48, 0.5, 500, 8);
        options.objects = options.objects.or(Some(2_000));
    }
    let rounds = options.selection.pairs(ROUNDS);
    selection::known("scenario", &options.selection.scenario, SCENARIOS.iter().map(|(name, ..)| *name))?;
    let contenders = options.selection.contenders(&Contender::ALL, Contender::name)?;
    // The scenarios need a memory limit, so a machine without memory cgroups is refused at once.
    drop(Group::create().map_err(|error| PeerError::failed(error.to_string()))?);
    let wants = |scenario: &str| options.selection.has_scenario(scenario);
    let scratch = Scratch::on_disk(options.directory.as_deref())?;
    // The peers run as another user, who must be able to enter the directory.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
    let store_mib = options.memory_mib * STORE_TIMES_MEMORY;
    let objects = options
        .objects
        .unwrap_or_else(|| (store_mib << 20) / OBJECT_BYTES * FILLED_PERCENT / 100)
        .max(HOT as u64 * 2);
    let accounting = DelayAccounting::on();
    let mut record = described(&options, store_mib, objects, accounting.is_some());
    if wants(COLD) {
        let store_bytes = store_mib << 20;
        let filling = store_bytes / OBJECT_BYTES * COLD_FILLED_PERCENT / 100;
        let objects = if quick { COLD_OBJECTS_QUICK } else { filling };
        let memory_bytes = options.memory_mib << 20;
        record.cold = cold::run(
            scratch.path(),
            memory_bytes,
            store_bytes,
            objects,
            rounds,
            options.seconds.min(COLD_SECONDS_MAX),
        )?;
    }
    if wants(RESIDENT) {
        record.resident = resident::run(quick)?;
    }
    if wants(STORES) {
        let memory_mib = options.stores_memory_mib;
        record.stores = stores::run(scratch.path(), memory_mib, quick, &mut record.remarks)?;
        if !cfg!(feature = "libraries") {
            record.remarks.push("without foyer and segcache: build with --features libraries".into());
        }
    }
    if wants(START) {
        record.starts = start_again::run(scratch.path(), options.start_objects, quick)?;
    }
    if wants(SERVERS) {
        servers(&options, store_mib, objects, &contenders, &scratch, &mut record)?;
    }
    drop(accounting);
    println!("{}", record.text());
    println!("{}", record.write(&options.selection.records())?.display());
    Ok(())
}

/// Number of objects for `cold` in a quick run: they exceed the third of the memory that is for objects.
const COLD_OBJECTS_QUICK: u64 = 8_000;
/// Maximum seconds of a round of cold hits, whose rate is soon steady.
const COLD_SECONDS_MAX: f64 = 3.0;

fn servers(
    options: &Options,
    store_mib: u64,
    objects: u64,
    contenders: &[Contender],
    scratch: &Scratch,
    record: &mut Record,
) -> Result<(), PeerError> {
    let cores = Cores::allowed()?;
    let (Some(&server), Some(&other)) = (cores.first(), cores.last()) else {
        return Err(PeerError::failed("no processor may be used"));
    };
    if server == other {
        record.remarks.push("one core for the server and its load: latencies are of both".into());
    }
    // This is the last scenario, because everything that this process starts from now on inherits the
    // restriction.
    restrict(&[other])?;
    let bench = Bench {
        origin: Origin::start()?,
        hot: hot(objects),
        server,
        memory_mib: options.memory_mib,
        store_mib,
        objects,
        rate: options.rate,
        seconds: options.seconds,
        rounds: options.selection.pairs(ROUNDS),
        connections: options.connections,
    };
    for contender in contenders {
        let program = match contender.program() {
            Ok(program) => program,
            Err(why) => {
                record.remarks.push(why);
                continue;
            }
        };
        println!("{} …", contender.name());
        let row = bench.contender(*contender, &program, scratch)?;
        for remark in &row.remarks {
            println!("({remark})");
        }
        record.rows.push(row);
    }
    Ok(())
}

fn described(options: &Options, store_mib: u64, objects: u64, is_wait_counted: bool) -> Record {
    let Options { memory_mib, rate, seconds, connections, selection, .. } = options;
    let rounds = selection.pairs(ROUNDS);
    let mut remarks = Vec::new();
    if selection.quick {
        remarks.push("--quick: shows that everything works, and measures nothing".into());
    }
    if !is_wait_counted {
        remarks.push("what a loop waits for the disk is not counted: kernel.task_delayacct is off".into());
    }
    Record {
        date: machine::date(),
        commit: machine::commit(),
        // The machine is described before this process binds itself to one core.
        machine: Some(Machine::here()),
        settings: vec![
            ("memory allowed, page cache included".into(), format!("{memory_mib} MiB")),
            ("store".into(), format!("{store_mib} MiB ({STORE_TIMES_MEMORY} times)")),
            ("objects by popularity".into(), objects.to_string()),
            ("requests due".into(), format!("{rate} a second on {connections} connections")),
            ("phases".into(), format!("{rounds} rounds of {seconds} s each")),
        ],
        is_wait_counted,
        remarks,
        ..Record::default()
    }
}
