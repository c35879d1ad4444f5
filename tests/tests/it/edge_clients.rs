//! Third-party clients over TLS and HTTP/2: Go's, Python's, and h2spec, which tests each rule of HTTP/2
//! separately. curl and h2load are in `tls.rs`, a browser in `edge_pages.rs`.
//!
//! A test whose client `tests/install-clients.sh` did not install is skipped, and says so.

use std::{fs, process::Command};

use tests::{
    Accelerator, Answer, Next, ScriptedOrigin,
    certificate::Certificate,
    clients::installed,
    node::{source_tree, succeeds},
    on_one_core,
};

on_one_core! {
    a12_a13_go_and_python_clients_are_served,
    a13_h2spec_finds_what_rfc_9113_took_back,
}

struct Edge {
    accelerator: Accelerator,
    certificate: Certificate,
    _origin: ScriptedOrigin,
}

impl Edge {
    fn start(cores: &str) -> Self {
        let origin = ScriptedOrigin::start();
        origin.answers("/page", Answer::new(200, "a page").header("Cache-Control", "max-age=600"));
        origin.on("/echo", |request, reply| reply.answer(&Answer::new(200, &request.body)));
        origin.on("/events", |_, reply| {
            reply.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\r\n",
            )?;
            for number in 0..3 {
                reply.send(format!("data: {number}\n\n").as_bytes())?;
            }
            // The events never end.
            reply.stall();
            Ok(Next::Close)
        });
        let certificate = Certificate::of(&["localhost"]);
        let accelerator = Accelerator::before(&origin.url())
            .flag("--cores", cores)
            .flag("--tls-listen", "127.0.0.1:0")
            .flag("--tls-cert", &certificate.file().display().to_string())
            .flag("--tls-key", &certificate.key().display().to_string())
            .start();
        Self { accelerator, certificate, _origin: origin }
    }

    fn site(&self) -> String {
        format!("https://localhost:{}", self.accelerator.secured().port())
    }
}

fn a12_a13_go_and_python_clients_are_served(cores: &str) {
    let edge = Edge::start(cores);
    if let Some(program) = installed("edge/client") {
        let said = succeeds(Command::new(program).arg(edge.site()).arg(edge.certificate.file()));
        assert_eq!(said, "ok\n");
    }
    if let Some(python) = installed("python/bin/python") {
        let script = source_tree().join("tests/clients/python/edge.py");
        let said = succeeds(Command::new(python).arg(script).arg(edge.site()).arg(edge.certificate.file()));
        assert_eq!(said, "ok\n");
    }
}

/// Cases of h2spec from RFC 7540 that RFC 9113 dropped: a stream may depend on itself, because such
/// priorities are ignored (§5.3.2).
const TAKEN_BACK: [&str; 2] =
    ["5.3.1: Sends HEADERS frame that depend on itself", "5.3.1: Sends PRIORITY frame that depend on itself"];
/// Case that does not apply without TLS: a connection that does not begin with HTTP/2's preface is HTTP/1.1,
/// and gets a 400 before it is closed.
const OF_HTTP_1: &str = "3.5: Sends invalid connection preface";

fn a13_h2spec_finds_what_rfc_9113_took_back(cores: &str) {
    let Some(program) = installed("edge/h2spec") else { return };
    let edge = Edge::start(cores);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("report.xml");
    for is_secured in [true, false] {
        let address = if is_secured { edge.accelerator.secured() } else { edge.accelerator.address() };
        // h2spec exits with a failure if one of its cases fails; the report says which.
        let output = Command::new(&program)
            .args(["--host", "localhost", "--port", &address.port().to_string(), "--path", "/page"])
            .args(["--timeout", "5", "--junit-report"])
            .arg(&file)
            .args(is_secured.then_some(["--tls", "--insecure"]).into_iter().flatten())
            .output()
            .expect("it can be started");
        let report = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let cases: Vec<&str> = report.split("<testcase ").skip(1).collect();
        assert_eq!(cases.len(), 145, "{report}");
        let attribute = |case: &str, name: &str| {
            let value = case.split(&format!("{name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
            value.expect("an attribute").to_owned()
        };
        let failed: Vec<String> = cases
            .into_iter()
            .filter(|case| case.contains("<failure") || case.contains("<error"))
            .map(|case| {
                let package = attribute(case, "package");
                format!("{}: {}", package.rsplit('/').next().unwrap_or(""), attribute(case, "classname"))
            })
            .collect();
        let expected: Vec<&str> = (!is_secured).then_some(OF_HTTP_1).into_iter().chain(TAKEN_BACK).collect();
        assert_eq!(failed, expected, "TLS: {is_secured}");
    }
}
