//! Private network namespaces: tests and instruments that run in one do not touch the host's network.
//!
//! Each namespace is kept alive by a child process that ends when this process does (its standard input
//! closes); the kernel then removes its interfaces and shapers. A thread that is moved into a namespace
//! creates its sockets, and starts its programs, there (setns(2)).

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    os::fd::AsFd,
    process::{Child, Command, Stdio},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A namespace that exists until this is dropped. Its loopback is up, and it has no other interface.
#[derive(Debug)]
pub struct Namespace {
    keeper: Child,
    entrance: File,
}

impl Namespace {
    /// Creates a namespace.
    ///
    /// # Errors
    /// Returns the reason as a sentence if none can be created here.
    pub fn new() -> Result<Self, String> {
        let mut keeper = Command::new("unshare")
            .args(["--net", "--", "sh", "-ec", "ip link set lo up; echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare: {error} (on Debian: apt-get install util-linux)"))?;
        let mut word = String::new();
        if let Some(out) = keeper.stdout.take() {
            // If the line cannot be read, `word` does not contain it, and the check below reports that.
            let _ = BufReader::new(out).read_line(&mut word);
        }
        if word.trim() != "ready" {
            let mut said = String::new();
            if let Some(mut err) = keeper.stderr.take() {
                let _ = err.read_to_string(&mut said);
            }
            let _ = keeper.wait();
            return Err(format!("no network namespace: {}", said.trim()));
        }
        let path = format!("/proc/{}/ns/net", keeper.id());
        match File::open(&path) {
            Ok(entrance) => Ok(Self { keeper, entrance }),
            Err(error) => {
                let _ = keeper.kill();
                let _ = keeper.wait();
                Err(format!("{path}: {error}"))
            }
        }
    }

    /// Returns the id of the process that keeps the namespace alive; `ip link … netns NUMBER` accepts this
    /// id.
    #[must_use]
    pub fn keeper(&self) -> u32 {
        self.keeper.id()
    }

    /// Runs a closure within the namespace, on a separate thread: its sockets, threads and programs are
    /// created there.
    ///
    /// # Errors
    /// Returns a text if the thread cannot be moved or has panicked.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, String> {
        thread::scope(|scope| {
            let moved = scope.spawn(|| {
                self.enter()?;
                Ok(work())
            });
            moved.join().unwrap_or_else(|_| Err("the thread in the namespace panicked".to_owned()))
        })
    }

    /// Moves the calling thread into the namespace, for good.
    ///
    /// # Errors
    /// Returns a text if the thread cannot be moved.
    pub fn enter(&self) -> Result<(), String> {
        move_into_link_name_space(self.entrance.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| format!("cannot enter a network namespace: {errno}"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // The process ends when its input is closed.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

/// Runs a program of iproute2: `command("ip", &["link", "add", …])`.
///
/// # Errors
/// Returns a text if the program is not installed, or its error output if it fails.
pub fn command(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error} (on Debian: apt-get install iproute2)"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
    }
}
