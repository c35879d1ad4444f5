//! Installs and runs the suite's own programs.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::judgement::{self, Group, Results};
use crate::{Accelerator, node, program};

/// Longest time that the suite's client may take for all tests. Usually it takes a quarter of a minute; it
/// has no timeout of its own, so a request without an answer would hold it for ever.
const CLIENT_TIME_MAX: Duration = Duration::from_secs(180);

/// Clients that run side by side when single tests are run again: they wait most of the time.
const CLIENTS: usize = 4;

/// Flag that makes the cache obey the client's `Cache-Control`, set if the program has it: the suite tests
/// this.
const OBEY: (&str, &str) = ("--client-cache-control", "obey");

/// The suite's origin with the accelerator in front of it. Both are ended on drop.
#[derive(Debug)]
pub struct Suite {
    /// Flags of the accelerator, besides its addresses.
    pub flags: String,
    directory: PathBuf,
    accelerator: Accelerator,
    _origin: Origin,
}

/// A child process, killed on drop.
#[derive(Debug)]
struct Origin(Child);

impl Drop for Origin {
    fn drop(&mut self) {
        // The process may have ended already; the tests that use it have noticed that.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the text of `reasons.txt` in the source tree.
///
/// # Panics
/// If the file cannot be read.
#[must_use]
pub fn reasons() -> String {
    fs::read_to_string(own_file("reasons.txt")).expect("the reasons are in the source tree")
}

fn own_file(name: &str) -> PathBuf {
    node::source_tree().join("tests/clients/conformance").join(name)
}

impl Suite {
    /// Installs the suite if necessary, and starts the two servers on free ports.
    ///
    /// # Panics
    /// If the installation or the start fails.
    #[must_use]
    pub fn start() -> Self {
        let directory = node::cache_tests();
        let (origin, address) = start_origin(&directory);
        let mut flags = vec![("--cookies", "rfc")];
        flags.extend(knows(OBEY.0).then_some(OBEY));
        let setup =
            flags.iter().fold(Accelerator::before(&address), |setup, (flag, to)| setup.flag(flag, to));
        let flags = flags.iter().map(|(flag, to)| format!("{flag} {to}")).collect::<Vec<_>>().join(" ");
        Self { flags, directory, accelerator: setup.start(), _origin: origin }
    }

    /// Returns the suite's tests.
    ///
    /// # Panics
    /// If they cannot be listed.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        judgement::groups(&node::succeeds(
            Command::new("node").arg(own_file("list.mjs")).arg(&self.directory).stdin(Stdio::null()),
        ))
    }

    /// Runs all tests.
    ///
    /// # Panics
    /// If the suite's client cannot be run or prints nothing.
    #[must_use]
    pub fn results(&self) -> Results {
        judgement::results(&self.client(""))
    }

    /// Runs these tests, each with a client of its own, a few side by side.
    ///
    /// # Panics
    /// See [`Suite::results`].
    #[must_use]
    pub fn again<'a>(&self, tests: &'a [String]) -> Results {
        let mut results = Results::new();
        for few in tests.chunks(CLIENTS) {
            thread::scope(|scope| {
                let run = |id: &'a String| (id, scope.spawn(move || judgement::single(&self.client(id))));
                let running: Vec<_> = few.iter().map(run).collect();
                let said = running.into_iter().map(|(id, run)| (id.clone(), run.join().expect("it ran")));
                results.extend(said);
            });
        }
        results
    }

    /// Runs the suite's client for one test, or for all when `test` is empty. Returns its output.
    fn client(&self, test: &str) -> String {
        let printed = tempfile::NamedTempFile::new().expect("a temporary file");
        let output = |file: &tempfile::NamedTempFile| Stdio::from(file.reopen().expect("a file of our own"));
        let errors = tempfile::NamedTempFile::new().expect("a temporary file");
        // Environment variables that npm would set for `npm run cli --base=… --id=…`.
        let mut client = Command::new("node")
            .args(["--no-warnings", "cli.mjs"])
            .current_dir(&self.directory)
            .env("npm_config_base", format!("http://{}", self.accelerator.address()))
            .env("npm_config_id", test)
            .env("npm_package_config_id", test)
            .stdin(Stdio::null())
            .stdout(output(&printed))
            .stderr(output(&errors))
            .spawn()
            .expect("node is there (tests/install-packages.sh)");
        let start = Instant::now();
        let ended = loop {
            if let Some(status) = client.try_wait().expect("a child can be waited for") {
                break status;
            }
            if start.elapsed() > CLIENT_TIME_MAX {
                let _ = client.kill();
                let _ = client.wait();
                panic!("the suite's client did not end in {CLIENT_TIME_MAX:?}: a request has no answer");
            }
            thread::sleep(Duration::from_millis(20));
        };
        let text = |file: &tempfile::NamedTempFile| fs::read_to_string(file.path()).expect("text");
        assert!(ended.success(), "the suite's client: {ended}\n{}", text(&errors));
        text(&printed)
    }
}

/// Starts the suite's origin server. Returns it with its URL.
fn start_origin(directory: &PathBuf) -> (Origin, String) {
    let mut child = Command::new("node")
        .args(["--no-warnings", "--require"])
        .arg(own_file("loopback.cjs"))
        .arg("server/server.mjs")
        .current_dir(directory)
        .env("npm_config_protocol", "http")
        .env("npm_config_port", "0")
        // The server writes its process id into a file, which is not needed.
        .env("npm_config_pidfile", "/dev/null")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::from(File::create("/dev/null").expect("there is one")))
        .spawn()
        .expect("node is there (tests/install-packages.sh)");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let origin = Origin(child);
    let address = lines.find_map(|line| line.strip_prefix("Listening on ").map(str::to_owned));
    let address = address.expect("the suite's origin says where it listens");
    // The server logs each odd request; its output must be read, or the full pipe would block it.
    thread::spawn(move || lines.for_each(drop));
    (origin, address.trim_end_matches('/').to_owned())
}

/// Returns whether the program has this flag.
fn knows(flag: &str) -> bool {
    let help = program::command().args(["cache", "--help"]).output().expect("the program runs");
    String::from_utf8_lossy(&help.stdout).split_whitespace().any(|word| word == flag)
}
