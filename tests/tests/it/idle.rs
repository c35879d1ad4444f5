//! A server without requests sleeps: its threads' wake-ups are counted, not timed.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use tests::{PATIENCE, program};

/// Time for which the threads are watched.
const WATCHED: Duration = Duration::from_secs(3);
/// Most wake-ups of all threads together in that time. Loops with a periodic tick wake more than a thousand
/// times.
const WAKES_MAX: u64 = 15;
/// Most anonymous memory outside of the stores, which are empty.
const ANONYMOUS_KIB_MAX: u64 = 40 << 10;

struct Everything {
    child: Child,
    _state: tempfile::TempDir,
}

impl Everything {
    /// Starts all servers on free ports, with the mail store in a new file, and waits until the last address
    /// is printed.
    fn start() -> Self {
        let state = tempfile::tempdir().expect("a directory");
        let mut command = program::command();
        command.args(["serve", "--admin", "127.0.0.1:0", "--state"]).arg(state.path());
        for listener in ["CACHE_LISTEN", "FEED_LISTEN", "FEED_MONITOR", "MAIL_SMTP", "MAIL_HTTP"] {
            command.env(format!("NIGHTTRAIN_{listener}"), "127.0.0.1:0");
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        assert!(said.any(|line| line.starts_with("admin: ")), "it does not start");
        Self { child, _state: state }
    }

    fn of_proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).expect("it runs")
    }

    /// Returns the number of voluntary context switches of each thread: name, thread id, count.
    fn sleeps(&self) -> Vec<(String, String, u64)> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it runs");
        let of_task = |task: fs::DirEntry| {
            let number = task.file_name().to_string_lossy().into_owned();
            let status = fs::read_to_string(task.path().join("status")).ok()?;
            let name = status.lines().next()?.split_whitespace().nth(1)?.to_owned();
            Some((name, number, field(&status, "voluntary_ctxt_switches:")))
        };
        tasks.flatten().filter_map(of_task).collect()
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        // The process may have ended by itself; its test has noticed that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the field is there");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn an_idle_server_sleeps_and_uses_little_memory() {
    let everything = Everything::start();
    let start = Instant::now();
    // Waits until the work of the start is over, and the feed's first ping to its client after two seconds.
    loop {
        let before = everything.sleeps();
        thread::sleep(WATCHED);
        let mut woke: Vec<(String, u64)> = Vec::new();
        for (name, number, times) in everything.sleeps() {
            let earlier =
                before.iter().find(|(_, known, _)| *known == number).map_or(0, |(_, _, times)| *times);
            if times > earlier {
                woke.push((name, times - earlier));
            }
        }
        let wakes: u64 = woke.iter().map(|(_, times)| times).sum();
        if wakes <= WAKES_MAX {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{wakes} wake-ups in {WATCHED:?} with nothing to do: {woke:?}");
    }
    let status = everything.of_proc("status");
    let anonymous_kib = field(&status, "RssAnon:");
    assert!(anonymous_kib <= ANONYMOUS_KIB_MAX, "{anonymous_kib} KiB of anonymous memory: {status}");
}
