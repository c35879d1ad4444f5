//! Cores start, are pinned, drain, and fail loudly.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use engine::{
    cores::{Cores, CoresConfig, available, clock, run::CoreFailure, run::StartError},
    meter::Registry,
};

/// Timeout. The tests are fast, but the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

fn config(name: &'static str, count: usize) -> CoresConfig {
    let processors = available().unwrap();
    CoresConfig { cores: processors.into_iter().cycle().take(count).collect(), name, ..Default::default() }
}

#[test]
fn cores_are_pinned_named_and_run_local_tasks() {
    let config = config("pins", 3);
    let processors = config.cores.clone();
    let (say, said) = mpsc::channel();
    let cores = Cores::start(config, move |context| {
        let say = say.clone();
        async move {
            // Not `Send`: the value stays on its core until it is dropped.
            let local = std::rc::Rc::new(std::cell::Cell::new(0));
            let task = tokio::task::spawn_local({
                let local = std::rc::Rc::clone(&local);
                async move { local.set(available().unwrap().len()) }
            });
            task.await.unwrap();
            let helper = tokio::task::spawn_blocking(|| {
                (available().unwrap(), std::thread::current().name().map(ToOwned::to_owned))
            });
            let name = std::thread::current().name().map(ToOwned::to_owned);
            let here = rustix::thread::sched_getcpu();
            say.send((context.index, context, name, here, local.get(), helper.await.unwrap())).unwrap();
        }
    })
    .unwrap();
    cores.join().unwrap();
    let mut all: Vec<_> = said.iter().collect();
    all.sort_by_key(|(index, ..)| *index);
    assert_eq!(all.len(), 3);
    for (index, context, name, here, usable, (helper_usable, helper_name)) in all {
        assert_eq!((context.index, context.cores), (index, 3));
        assert_eq!(context.processor, processors[index]);
        assert!(context.pinned);
        assert_eq!(here, processors[index]);
        assert_eq!(usable, 1, "a task of the core sees one processor");
        assert_eq!(name.as_deref(), Some(format!("pins-{index}").as_str()));
        assert_eq!(helper_usable, available().unwrap(), "helpers must not be pinned to the loop's processor");
        assert_eq!(helper_name.as_deref(), Some(format!("pins-{index}h").as_str()));
    }
}

#[test]
fn an_unavailable_processor_is_named_in_the_error() {
    let config = CoresConfig { cores: vec![1023], name: "none", ..Default::default() };
    let error = Cores::start(config, |_| async {}).unwrap_err();
    assert!(matches!(error, StartError::NoSuchProcessor { processor: 1023, .. }));
    assert!(
        error.to_string().starts_with("processor 1023 is not available: this process may use ["),
        "{error}"
    );
}

#[test]
fn parts_must_be_as_many_as_cores() {
    let error = Cores::start_each(config("parts", 2), vec![()], |_, ()| async {}).unwrap_err();
    assert!(matches!(error, StartError::Parts { parts: 1, cores: 2 }));
}

#[test]
fn drain_lets_the_main_futures_end() {
    let finished = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&finished);
    let (say, said) = mpsc::channel();
    let mut cores = Cores::start(config("drain", 2), move |context| {
        let (count, say) = (Arc::clone(&count), say.clone());
        async move {
            say.send(context.shutdown.is_requested()).unwrap();
            context.shutdown.requested().await;
            assert!(context.shutdown.is_requested());
            // A second wait returns at once.
            context.shutdown.requested().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    })
    .unwrap();
    assert_eq!(cores.count(), 2);
    assert_eq!([said.recv(), said.recv()], [Ok(false), Ok(false)]);
    assert_eq!(cores.drain(PATIENCE).unwrap().cut, Vec::<usize>::new());
    assert_eq!(finished.load(Ordering::Relaxed), 2);
    assert!(cores.drain(PATIENCE).unwrap().cut.is_empty(), "draining twice is no mistake");
    cores.join().unwrap();
}

#[test]
fn drain_aborts_unresponsive_cores_after_the_timeout() {
    struct Noted(Arc<AtomicBool>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicBool::new(false));
    let note = Arc::clone(&dropped);
    let mut cores = Cores::start(config("deaf", 2), move |context| {
        let noted = Noted(Arc::clone(&note));
        async move {
            if context.index == 1 {
                let _noted = noted;
                std::future::pending::<()>().await;
            } else {
                std::mem::forget(noted);
                context.shutdown.requested().await;
            }
        }
    })
    .unwrap();
    let begun = Instant::now();
    assert_eq!(cores.drain(Duration::from_millis(100)).unwrap().cut, [1]);
    assert!(begun.elapsed() >= Duration::from_millis(100));
    assert!(dropped.load(Ordering::Relaxed), "a future that is cut is dropped");
    cores.join().unwrap();
}

#[test]
fn a_core_that_never_yields_is_called_stuck() {
    let release = Arc::new(AtomicBool::new(false));
    let released = Arc::clone(&release);
    let (say, said) = mpsc::channel();
    let mut cores = Cores::start(config("stuck", 1), move |_| {
        let (released, say) = (Arc::clone(&released), say.clone());
        async move {
            say.send(()).unwrap();
            while !released.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    })
    .unwrap();
    said.recv().unwrap();
    let failure = cores.drain(Duration::from_millis(10)).unwrap_err();
    assert_eq!(failure, CoreFailure::Stuck { core: "stuck-0".into() });
    release.store(true, Ordering::Relaxed);
    cores.join().unwrap();
}

#[test]
fn a_panicking_core_is_named_and_stops_others() {
    let cores = Cores::start(config("panics", 2), |context| async move {
        if context.index == 1 {
            panic!("invariant {} is broken", 7);
        }
        std::future::pending::<()>().await;
    })
    .unwrap();
    expect_panic(cores.join().unwrap_err(), "panics-1", "invariant 7 is broken");
}

/// A panic in `make` before the first await is handled like any other.
#[test]
fn a_panic_while_making_the_future_is_reported() {
    let cores = Cores::start(config("making", 2), |context| {
        assert_ne!(context.index, 0, "made badly");
        std::future::pending::<()>()
    })
    .unwrap();
    let CoreFailure::Panicked { core, message } = cores.join().unwrap_err() else { panic!("not a panic") };
    assert_eq!(core, "making-0");
    assert!(message.contains("made badly"), "{message}");
}

/// A failure of one loop is reported even if another loop is stuck.
#[test]
fn a_failure_is_reported_despite_a_stuck_core() {
    let release = Arc::new(AtomicBool::new(false));
    let released = Arc::clone(&release);
    let (say, said) = mpsc::channel();
    let (stuck, is_stuck) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let parts = vec![None, Some(is_stuck)];
        let cores =
            Cores::start_each(config("both", 2), parts, move |_, is_stuck: Option<mpsc::Receiver<()>>| {
                let (released, stuck) = (Arc::clone(&released), stuck.clone());
                async move {
                    if let Some(is_stuck) = is_stuck {
                        is_stuck.recv().unwrap();
                        panic!("while the other is stuck");
                    }
                    stuck.send(()).unwrap();
                    while !released.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            })
            .unwrap();
        say.send(cores.join()).unwrap();
    });
    let failure = said.recv_timeout(PATIENCE).expect("join waits for the stuck one").unwrap_err();
    release.store(true, Ordering::Relaxed);
    expect_panic(failure, "both-1", "while the other is stuck");
}

#[test]
fn a_panicking_task_stops_all_cores() {
    let mut cores = Cores::start(config("tasks", 2), |context| async move {
        if context.index == 0 {
            // The handle is dropped, so only the hook sees the panic.
            drop(tokio::task::spawn_local(async { panic!("in a task") }));
        }
        std::future::pending::<()>().await;
    })
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime
        .block_on(async { tokio::time::timeout(PATIENCE, cores.ended()).await.expect("nobody has ended") });
    expect_panic(cores.drain(PATIENCE).unwrap_err(), "tasks-0", "in a task");
    expect_panic(cores.join().unwrap_err(), "tasks-0", "in a task");
}

#[test]
fn a_panicking_helper_stops_all_cores() {
    let cores = Cores::start(config("help", 2), |context| async move {
        if context.index == 0 {
            drop(tokio::task::spawn_blocking(|| panic!("in a helper")));
        }
        std::future::pending::<()>().await;
    })
    .unwrap();
    expect_panic(cores.join().unwrap_err(), "help-0h", "in a helper");
}

fn expect_panic(failure: CoreFailure, of: &str, with: &str) {
    let CoreFailure::Panicked { core, message } = &failure else { panic!("{failure}") };
    assert_eq!(core, of);
    assert!(message.starts_with(with) && message.contains("cores_run.rs:"), "{message}");
}

#[test]
fn an_error_in_one_core_stops_the_others() {
    let cores = Cores::start(config("errors", 2), |context| async move {
        if context.index == 0 {
            return Err("no origin");
        }
        std::future::pending::<Result<(), &str>>().await
    })
    .unwrap();
    let failure = cores.join().unwrap_err();
    assert_eq!(failure, CoreFailure::Failed { core: "errors-0".into(), message: "no origin".into() });
    assert_eq!(failure.to_string(), "errors-0 failed: no origin");
}

#[test]
fn a_blocked_loop_is_seen_as_late() {
    let (say, said) = mpsc::channel();
    let mut cores = Cores::start(config("late", 1), move |context| {
        let say = say.clone();
        async move {
            // The timer is set when its task first runs.
            tokio::time::sleep(Duration::from_millis(50)).await;
            std::thread::sleep(Duration::from_millis(100));
            // Firings due in the first 10 ms of that are at least 90 ms late. The loop's own task records
            // them.
            while context.lateness.read().max() < 90_000_000 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            say.send(()).unwrap();
            context.shutdown.requested().await;
        }
    })
    .unwrap();
    said.recv_timeout(PATIENCE).expect("a stall of 100 ms is not seen");
    let mut registry = Registry::new();
    registry.register(cores.lateness());
    let rows = registry.snapshot().rows();
    cores.drain(PATIENCE).unwrap();
    let row = |name: &str, quantile: Option<&str>| {
        let row = rows.iter().find(|(n, labels, _)| {
            n == name
                && labels.iter().find(|(label, _)| *label == "quantile").map(|(_, q)| q.as_str()) == quantile
        });
        let (_, labels, value) = row.unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(labels[..2], [("server", "late".to_owned()), ("core", "0".to_owned())]);
        *value
    };
    assert!(row("loop_lateness_seconds", Some("1")) >= 0.090);
    assert!(row("loop_lateness_seconds_count", None) >= 9.0, "the missed ones count too");
    assert!(row("loop_stalls_total", None) >= 1.0);
    assert!(row("loop_stalled_microseconds_total", None) >= 90_000.0);
}

#[test]
fn the_clocks_agree_with_the_standard_library() {
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    // The coarse clock stands still for up to a tick of the kernel.
    let coarse = Duration::from_millis(20);
    let (s, ms) = (clock::unix_s(), clock::unix_ms());
    let after = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(u128::from(ms) >= (before - coarse).as_millis() && u128::from(ms) <= after.as_millis());
    assert!(s >= (before - coarse).as_secs() && s <= after.as_secs());
    let (first, then, second) = (clock::monotonic_ns(), clock::now(), clock::monotonic_ns());
    assert!(first <= second && then <= clock::now());
    let ms = clock::monotonic_ms();
    let fine = clock::monotonic_ns() / 1_000_000;
    assert!(
        (fine.saturating_sub(1_000)..=fine).contains(&ms),
        "{ms} ms by the coarse clock, {fine} by the fine one"
    );
    assert!(clock::now_system() >= std::time::UNIX_EPOCH + before);
}
