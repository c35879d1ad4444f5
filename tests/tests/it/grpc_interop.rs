//! gRPC's own interoperability tests through the accelerator: all cases, over cleartext HTTP/2 and over TLS.
//!
//! The program is `tests/clients/grpc`; if `tests/install-clients.sh` did not build it, the test says so and
//! is skipped.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use tests::{
    Accelerator, certificate::Certificate, clients::installed, node::succeeds, on_one_core_and_on_two,
};

on_one_core_and_on_two! {
    all_cases_pass_in_the_clear,
    all_cases_pass_over_tls,
}

const CASES: usize = 14;

/// The suite's server; it ends when this is dropped.
struct Service {
    child: Child,
    port: u16,
}

impl Service {
    /// Starts the server; `None` if the program is not installed.
    fn start(arguments: &[&OsStr]) -> Option<Self> {
        let mut child = Command::new(installed("grpc/grpc")?)
            .arg("server")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("its output")).read_line(&mut line).expect("its port");
        Some(Self { child, port: line.trim().parse().expect("a port") })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Runs all cases against an address.
fn run_cases(arguments: &[&OsStr]) {
    let Some(program) = installed("grpc/grpc") else { return };
    let said = succeeds(Command::new(program).arg("client").args(arguments));
    let passed: Vec<&str> = said.lines().collect();
    assert_eq!((passed.len(), passed.last()), (CASES + 1, Some(&"ok")), "{said}");
}

fn all_cases_pass_in_the_clear(cores: &str) {
    let Some(service) = Service::start(&[]) else { return };
    let accelerator = Accelerator::before(&format!("http://127.0.0.1:{}", service.port))
        .flag("--cores", cores)
        .flag("--origin-protocol", "http2")
        .start();
    run_cases(&[accelerator.address().to_string().as_ref()]);
}

fn all_cases_pass_over_tls(cores: &str) {
    let (theirs, ours) = (Certificate::of(&["localhost"]), Certificate::of(&["localhost"]));
    let Some(service) = Service::start(&[theirs.file().as_ref(), theirs.key().as_ref()]) else { return };
    let accelerator = Accelerator::before(&format!("https://127.0.0.1:{}", service.port))
        .flag("--cores", cores)
        .flag("--origin-tls-name", "localhost")
        .flag("--origin-tls-ca", &theirs.file().display().to_string())
        .flag("--tls-listen", "127.0.0.1:0")
        .flag("--tls-cert", &ours.file().display().to_string())
        .flag("--tls-key", &ours.key().display().to_string())
        .start();
    run_cases(&[accelerator.secured().to_string().as_ref(), ours.file().as_ref()]);
}
