//! The program under test as a running process.

use std::{
    io::{BufRead, BufReader, Read, Write as _},
    net::SocketAddr,
    path::Path,
    process::{Child, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Instant,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Client, PATIENCE, Request, Response, Stat, client::fetch, eventually, program};

/// A running `nighttrain cache`. Killed, by its process id, when dropped; its output is printed then if the
/// test failed.
#[derive(Debug)]
pub struct Accelerator {
    child: Child,
    printed: Printed,
    listen: SocketAddr,
    admin: SocketAddr,
    _state: tempfile::TempDir,
    _file: Option<tempfile::NamedTempFile>,
}

/// Flags and environment with which an [`Accelerator`] is started.
#[derive(Debug)]
pub struct Setup {
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// Configuration file, if any.
    file: Option<tempfile::NamedTempFile>,
}

/// Lines that a process printed so far, on both streams.
type Printed = Arc<Mutex<Vec<String>>>;

impl Setup {
    /// Sets a flag: `flag("--memory", "64MiB")`. The last one counts.
    #[must_use]
    pub fn flag(mut self, name: &str, value: &str) -> Self {
        match self.arguments.iter().position(|argument| argument == name) {
            Some(at) => value.clone_into(&mut self.arguments[at + 1]),
            None => self.arguments.extend([name.to_owned(), value.to_owned()]),
        }
        self
    }

    /// Puts the store on this file, of this length (`"128MiB"`).
    ///
    /// # Panics
    /// When the path is not UTF-8.
    #[must_use]
    pub fn store_in(self, file: &Path, size: &str) -> Self {
        self.flag("--store", file.to_str().expect("a path in UTF-8")).flag("--store-size", size)
    }

    /// Sets an option by its name in the configuration, through the environment:
    /// `limit("request_head_time_max", "500ms")`.
    #[must_use]
    pub fn limit(mut self, name: &str, value: &str) -> Self {
        self.environment.push((format!("NIGHTTRAIN_CACHE_{}", name.to_uppercase()), value.to_owned()));
        self
    }

    /// Sets an environment variable; unlike [`Setup::limit`], the name gets no prefix.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the program and waits until it prints that it is ready.
    ///
    /// # Panics
    /// When the program ends before that, or is not ready within [`PATIENCE`].
    #[track_caller]
    pub fn start(self) -> Accelerator {
        let state = tempfile::tempdir().expect("a temporary directory");
        let mut child = self.command(&state).spawn().expect("the program starts");
        let printed = Printed::default();
        collect(child.stdout.take(), &printed);
        collect(child.stderr.take(), &printed);
        let start = Instant::now();
        let (listen, admin) = loop {
            if let (Some(listen), Some(admin)) = (bound(&printed, "cache"), bound(&printed, "admin")) {
                break (listen, admin);
            }
            let ended = child.try_wait().expect("a child can be waited for");
            if ended.is_some() || start.elapsed() > PATIENCE {
                let _ = child.kill();
                let _ = child.wait();
                panic!("the program did not say where it listens ({ended:?}):\n{}", text(&printed));
            }
            thread::sleep(std::time::Duration::from_millis(5));
        };
        let running = Accelerator { child, printed, listen, admin, _state: state, _file: self.file };
        eventually("/readyz says 200", || running.admin_get("/readyz").status() == 200);
        running
    }

    /// Runs the program until it ends by itself.
    ///
    /// # Panics
    /// When the program still runs after [`PATIENCE`].
    #[track_caller]
    pub fn run_to_its_end(self) -> Output {
        let state = tempfile::tempdir().expect("a temporary directory");
        let mut child = self.command(&state).spawn().expect("the program starts");
        let start = Instant::now();
        while child.try_wait().expect("a child can be waited for").is_none() {
            if start.elapsed() > PATIENCE {
                let _ = child.kill();
                panic!("the program goes on: {:?}", child.wait_with_output());
            }
            thread::sleep(std::time::Duration::from_millis(5));
        }
        child.wait_with_output().expect("a child that has ended has an output")
    }

    fn command(&self, state: &tempfile::TempDir) -> std::process::Command {
        let mut command = program::command();
        command.arg("cache").args(&self.arguments);
        if !self.arguments.iter().any(|argument| argument == "--state") {
            command.arg("--state").arg(state.path());
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

impl Accelerator {
    /// Prepares an accelerator in front of this origin, with free ports, one core and 64 MiB. A test sets
    /// other values on the result.
    pub fn before(origin: &str) -> Setup {
        Self::with(None).flag("--origin", origin)
    }

    /// Prepares an accelerator with this text as its configuration file, otherwise like
    /// [`Accelerator::before`].
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn configured(text: &str) -> Setup {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(text.as_bytes()).expect("written");
        let path = file.path().to_str().expect("a path in UTF-8").to_owned();
        Self::with(Some(file)).flag("--config", &path)
    }

    fn with(file: Option<tempfile::NamedTempFile>) -> Setup {
        Setup { arguments: Vec::new(), environment: Vec::new(), file }
            .flag("--listen", "127.0.0.1:0")
            .flag("--admin", "127.0.0.1:0")
            .flag("--memory", "64MiB")
            .flag("--cores", &crate::cores(1).expect("a machine has a processor"))
    }

    /// Waits until the store's file has been read: on a busy machine the program answers requests before
    /// that.
    #[track_caller]
    #[must_use]
    pub fn warm(self) -> Self {
        eventually("the store's file has been read", || self.stat().number("store.file_warming") == 0.0);
        self
    }

    /// Address where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.listen
    }

    /// Address where clients connect with TLS.
    ///
    /// # Panics
    /// When the program does not listen for TLS.
    #[track_caller]
    pub fn secured(&self) -> SocketAddr {
        bound_to(&self.printed, "cache", "https").expect("it says where it listens for https")
    }

    /// Address of the admin port.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Opens a new connection.
    #[track_caller]
    pub fn connect(&self) -> Client {
        Client::connect(self.listen)
    }

    /// Sends one request on a connection of its own.
    #[track_caller]
    pub fn fetch(&self, request: &Request) -> Response {
        fetch(self.listen, request)
    }

    /// Sends a plain `GET` on a connection of its own.
    #[track_caller]
    pub fn get(&self, target: &str) -> Response {
        self.fetch(&Request::get(target))
    }

    /// Sends a plain `GET` to the admin port. `Host` is the port's own address, because the port refuses
    /// other names: else a web page could make a visitor's browser query the port under the page's own name.
    #[track_caller]
    pub fn admin_get(&self, target: &str) -> Response {
        fetch(self.admin, &Request::get(target).header("Host", &self.admin.to_string()))
    }

    /// Returns the counters, as `nighttrain stat --json` prints them.
    #[track_caller]
    pub fn stat(&self) -> Stat {
        let output = self.ask(&["stat", "--json"]);
        assert!(output.status.success(), "nighttrain stat --json: {output:?}");
        Stat::parse(&output.stdout)
    }

    /// Runs a command that talks to the admin port, to its end.
    #[track_caller]
    pub fn ask(&self, arguments: &[&str]) -> Output {
        let mut command = program::command();
        command.args(arguments).arg("--admin").arg(self.admin.to_string());
        command.output().expect("the program runs")
    }

    /// Sends a signal to the program.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("our own child may be signalled");
    }

    /// Waits until the program ends.
    ///
    /// # Panics
    /// When the program does not end within [`PATIENCE`].
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the program ends", || {
            status = self.child.try_wait().expect("a child can be waited for");
            status.is_some()
        });
        status.expect("it has ended")
    }

    /// Returns whether the program is still running.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    /// Returns the program's output so far.
    pub fn printed(&self) -> String {
        text(&self.printed)
    }
}

impl Drop for Accelerator {
    fn drop(&mut self) {
        let ended = self.child.try_wait().ok().flatten();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let state =
                ended.map_or("was running".to_owned(), |status| format!("had ended by itself: {status}"));
            eprintln!("--- nighttrain cache ({state}) had printed:\n{}---", text(&self.printed));
        }
    }
}

/// Finds the address in a line such as `cache: listening on http://127.0.0.1:41234`.
fn bound(printed: &Printed, what: &str) -> Option<SocketAddr> {
    bound_to(printed, what, "http")
}

fn bound_to(printed: &Printed, what: &str, scheme: &str) -> Option<SocketAddr> {
    let start = format!("{what}: listening on {scheme}://");
    let lines = printed.lock().unwrap();
    let rest = lines.iter().find_map(|line| line.split_once(&start))?.1;
    rest.split(|c: char| c.is_whitespace() || c == '/').next()?.parse().ok()
}

fn text(printed: &Printed) -> String {
    printed.lock().unwrap().iter().map(|line| format!("{line}\n")).collect()
}

fn collect(stream: Option<impl Read + Send + 'static>, printed: &Printed) {
    let (stream, printed) = (stream.expect("the stream is piped"), Arc::clone(printed));
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            printed.lock().unwrap().push(line);
        }
    });
}
