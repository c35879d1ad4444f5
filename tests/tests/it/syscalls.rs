//! System calls of a hit: one read and one write, besides its share of waits. strace counts them on a run of
//! known length.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tests::{
    Accelerator, Answer, Client, Request, ScriptedOrigin, content::content, eventually, on_one_core,
    on_one_core_and_on_two,
};

on_one_core! {
    pipelined_hits_share_their_reads_and_writes,
}

on_one_core_and_on_two! {
    a_hit_makes_one_read_and_one_write,
    a_large_hit_needs_two_more_calls,
}

const ROUNDS: u64 = 500;
const CLIENTS: u64 = 4;

fn a_hit_makes_one_read_and_one_write(cores: &str) {
    for size in [1 << 10, 60 << 10] {
        let (_origin, accelerator, mut clients) = start(cores, size);
        let Some((calls, ticks)) = traced(&accelerator, cores, || ask(&mut clients, size)) else { return };
        let hits = ROUNDS * CLIENTS;
        expect_about(&calls, &READS, hits, 2 * ticks, size);
        expect_about(&calls, &WRITES, hits, 0, size);
        let waits = count(&calls, &WAITS);
        // One wait that finds the next request, and one more for a loop that polls before it sleeps.
        assert!(waits <= 2 * hits + ticks + SLACK, "{waits} waits for {hits} hits: {calls:?}");
        let others: u64 =
            calls.values().sum::<u64>() - count(&calls, &READS) - count(&calls, &WRITES) - waits;
        let others = others - bells(&calls, ticks);
        assert!(others <= SLACK, "{others} other system calls for {hits} hits of {size} bytes: {calls:?}");
    }
}

/// Lets each client send [`ROUNDS`] requests, one after the other.
fn ask(clients: &mut [Client], size: usize) {
    let request = Request::get("/page").bytes();
    for _ in 0..ROUNDS {
        for client in &mut *clients {
            client.send(&request);
            assert_eq!(client.response("GET").expect_status(200).body.len(), size);
        }
    }
}

/// A large hit needs two calls more: the head is sent, then references to the body's pages go into a pipe and
/// from there into the socket.
fn a_large_hit_needs_two_more_calls(cores: &str) {
    let size = 64 << 10;
    let (_origin, accelerator, mut clients) = start(cores, size);
    let Some((calls, ticks)) = traced(&accelerator, cores, || ask(&mut clients, size)) else { return };
    let hits = ROUNDS * CLIENTS;
    expect_about(&calls, &READS, hits, 2 * ticks, size);
    expect_about(&calls, &["sendto"], hits, 0, size);
    expect_about(&calls, &["vmsplice"], hits, 0, size);
    expect_about(&calls, &["splice"], hits, 0, size);
    let waits = count(&calls, &WAITS);
    let others = calls.values().sum::<u64>() - count(&calls, &READS) - 3 * hits - waits;
    let others = others - bells(&calls, ticks);
    assert!(others <= 4 * SLACK, "{others} other system calls for {hits} hits of {size} bytes: {calls:?}");
}

fn pipelined_hits_share_their_reads_and_writes(cores: &str) {
    let (_origin, accelerator, mut clients) = start(cores, 100);
    let eight = Request::get("/page").bytes().repeat(8);
    let Some((calls, ticks)) = traced(&accelerator, cores, || {
        for _ in 0..ROUNDS {
            for client in &mut clients {
                client.send(&eight);
                for _ in 0..8 {
                    assert_eq!(client.response("GET").expect_status(200).body.len(), 100);
                }
            }
        }
    }) else {
        return;
    };
    let batches = ROUNDS * CLIENTS;
    expect_about(&calls, &READS, batches, 2 * ticks, 100);
    expect_about(&calls, &WRITES, batches, 0, 100);
}

const READS: [&str; 7] = ["read", "readv", "recvfrom", "recvmsg", "recvmmsg", "preadv", "preadv2"];
const WRITES: [&str; 7] = ["write", "writev", "sendto", "sendmsg", "sendmmsg", "sendfile", "splice"];
const WAITS: [&str; 3] = ["epoll_wait", "epoll_pwait", "epoll_pwait2"];
/// Calls that belong to no hit: tasks that run ten times a second, and a thread that wakes once a second.
const SLACK: u64 = 60;
/// Interval of the timer by which a busy loop measures its lateness; each expiry is a wait, a read, and a
/// read that finds nothing more.
const TICK: Duration = Duration::from_millis(10);

/// Starts with one stored page and clients that are connected and served once: all later requests are hits on
/// kept connections.
fn start(cores: &str, size: usize) -> (ScriptedOrigin, Accelerator, Vec<Client>) {
    let origin = ScriptedOrigin::start();
    origin.answers("/page", Answer::new(200, content(1, 0, size)).header("Cache-Control", "max-age=3600"));
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| accelerator.connect()).collect();
    for client in &mut clients {
        for _ in 0..10 {
            client.get("/page").expect_status(200);
        }
    }
    (origin, accelerator, clients)
}

fn count(calls: &BTreeMap<String, u64>, names: &[&str]) -> u64 {
    names.iter().filter_map(|name| calls.get(*name)).sum()
}

/// Counts the calls that arm a loop's timer when it wakes, and disarm it when it has slept for two intervals:
/// at most one an interval.
#[track_caller]
fn bells(calls: &BTreeMap<String, u64>, ticks: u64) -> u64 {
    let bells = count(calls, &["timerfd_settime"]);
    assert!(bells <= ticks + SLACK, "bells were set {bells} times in the time of {ticks} rings: {calls:?}");
    bells
}

#[track_caller]
fn expect_about(calls: &BTreeMap<String, u64>, names: &[&str], wanted: u64, ticking: u64, size: usize) {
    let found = count(calls, names);
    let kind = names[0];
    assert!(found >= wanted, "strace saw only {found} of {wanted} {kind}s: {calls:?}");
    assert!(
        found <= wanted + ticking + SLACK,
        "{found} {kind}s for {wanted} answers of {size} bytes, {ticking} for the clock: {calls:?}"
    );
}

/// Runs `work` under strace and returns how often each system call was made, by all threads, and how often
/// the timers of all loops can have expired in that time. Returns `None`, with the reason on stderr, if
/// tracing is not permitted.
fn traced(
    accelerator: &Accelerator,
    cores: &str,
    work: impl FnOnce(),
) -> Option<(BTreeMap<String, u64>, u64)> {
    let start = Instant::now();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let table = directory.path().join("calls");
    let pid = accelerator.pid().as_raw_nonzero().to_string();
    let tracer = Command::new("strace")
        .args(["-f", "-c", "-p", &pid, "-o"])
        .arg(&table)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut tracer = match tracer {
        Ok(tracer) => Tracer(tracer),
        Err(error) => {
            eprintln!(
                "nothing counted: strace cannot be run ({error}); tests/install-packages.sh installs it"
            );
            return None;
        }
    };
    let mut refused = false;
    eventually("every thread is traced", || {
        refused = tracer.0.try_wait().expect("a child can be waited for").is_some();
        refused || every_thread_is_traced(&pid)
    });
    if refused {
        eprintln!(
            "nothing counted: strace may not trace here (see kernel.yama.ptrace_scope, or the container's seccomp)"
        );
        return None;
    }
    work();
    // strace writes its table and detaches when it is interrupted.
    rustix::process::kill_process(rustix::process::Pid::from_child(&tracer.0), rustix::process::Signal::INT)
        .expect("our own child may be signalled");
    tracer.0.wait().expect("a child can be waited for");
    let loops = cores.split(',').count() as u64;
    let ticks = loops * (start.elapsed().as_millis() / TICK.as_millis()) as u64;
    let text = fs::read_to_string(&table).expect("strace wrote its table");
    let calls = parse(&text);
    assert!(!calls.is_empty(), "no system call in strace's table:\n{text}");
    Some((calls, ticks))
}

/// Kills strace on drop; it must not outlive the test.
struct Tracer(Child);

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn every_thread_is_traced(pid: &str) -> bool {
    let Ok(threads) = fs::read_dir(Path::new("/proc").join(pid).join("task")) else { return false };
    threads.flatten().all(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
    })
}

/// Parses strace's table: share, seconds, µs a call, calls, errors (often none), name.
fn parse(table: &str) -> BTreeMap<String, u64> {
    let mut calls = BTreeMap::new();
    for line in table.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(number), Some(name)) = (words.get(3).and_then(|word| word.parse().ok()), words.last())
        else {
            continue;
        };
        if *name != "total" {
            calls.insert((*name).to_owned(), number);
        }
    }
    calls
}
