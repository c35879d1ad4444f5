//! Helpers shared by the program's own tests.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use assert_cmd::cargo::CommandCargoExt;

/// The program, without the developer's `NIGHTTRAIN_` environment variables.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("nighttrain").expect("cargo has built it");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("NIGHTTRAIN_") {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Exit code and output of a finished run.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ended {
    let output = command.output().expect("it runs");
    Ended {
        code: output.status.code().expect("it ended by itself"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// Writes a configuration file into a directory of its own.
pub(crate) fn configuration(text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("n.toml");
    std::fs::write(&path, text).expect("a file");
    let path = path.to_str().expect("text").to_owned();
    (directory, path)
}

/// A running server of the program; killed on drop.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) cache: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) stdout: BufReader<std::process::ChildStdout>,
    pub(crate) announced: String,
}

impl Running {
    /// Starts the server and reads its announcement.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut announced = String::new();
        while !announced.contains("admin: listening") {
            if stdout.read_line(&mut announced).expect("text") == 0 {
                let output = child.wait_with_output().expect("an end");
                panic!("it ended: {announced}{}", String::from_utf8_lossy(&output.stderr));
            }
        }
        let address = |what: &str| {
            let line = announced.lines().find_map(|line| line.strip_prefix(what)).expect("an address");
            line.strip_prefix(": listening on http://").expect("an address").parse().expect("an address")
        };
        Self { cache: address("cache"), admin: address("admin"), child, stdout, announced }
    }

    /// Sends the process a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)
            .expect("our child");
    }

    /// Waits for the process to end; returns its exit code and its log.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        // Far longer than any machine needs: one test that hangs must not hang the whole run.
        while self.child.try_wait().expect("our child").is_none() {
            assert!(start.elapsed() < Duration::from_secs(60), "it goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
        let code = self.child.wait().expect("it has ended").code();
        let mut log = String::new();
        let mut stderr = self.child.stderr.take().expect("piped");
        std::io::Read::read_to_string(&mut stderr, &mut log).expect("text");
        (code, log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended by itself.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
