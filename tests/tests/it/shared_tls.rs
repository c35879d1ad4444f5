//! One table of certificates for all servers of a process (A12): the accelerator, the feed, mail's SMTP and
//! pages, the admin server; and all present the new certificate after a reload.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tests::{certificate::Certificate, eventually, pebble::free_ports, program};

/// All servers in one process, with the accelerator's certificates.
struct Everything {
    child: Child,
    certificate: Certificate,
    /// Ports of the accelerator's https, the feed, SMTP, SMTPS, the mail pages, and the admin server.
    ports: [u16; 6],
    directory: tempfile::TempDir,
}

impl Everything {
    fn start() -> Self {
        let certificate = Certificate::of(&["a.example", "127.0.0.1"]);
        let directory = tempfile::tempdir().expect("a directory");
        let ports: [u16; 6] = free_ports();
        let [https, feed, smtp, smtps, pages, admin] = ports.map(|port| format!("\"127.0.0.1:{port}\""));
        let text = format!(
            "admin = {admin}\nadmin-tls = true\nadmin-ca-file = \"{cert}\"\n\
             [cache]\nlisten = \"127.0.0.1:0\"\nmemory = \"64MiB\"\norigin = \"http://127.0.0.1:9\"\n\
             tls-listen = {https}\ntls-cert = \"{cert}\"\ntls-key = \"{key}\"\n\
             [feed]\nlisten = {feed}\nmonitor = \"127.0.0.1:0\"\ntls-shared = true\ntls-handshake-first = true\n\
             [mail]\nsmtp = {smtp}\nsmtps = {smtps}\nhttp = {pages}\nstore = \"anon\"\nstore-size = \"128MiB\"\n\
             tls-shared = true\nhttp-tls = true\n",
            cert = certificate.file().display(),
            key = certificate.key().display(),
        );
        std::fs::write(directory.path().join("n.toml"), text).expect("written");
        let mut command = program::command();
        command.args(["serve", "--state"]).arg(directory.path()).arg("--config");
        let child =
            command.arg(directory.path().join("n.toml")).stdout(Stdio::null()).spawn().expect("it starts");
        let all = Self { child, certificate, ports, directory };
        eventually("the admin server answers", || all.stat(&[]).is_some());
        all
    }

    /// Output of `nighttrain stat`, if the admin server answers.
    fn stat(&self, flags: &[&str]) -> Option<String> {
        let mut command = program::command();
        let command =
            command.arg("stat").arg("--config").arg(self.directory.path().join("n.toml")).args(flags);
        let output = command.output().expect("the program runs");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Serial number of the certificate that a port presents.
    fn serial(&self, port: u16, more: &str) -> String {
        let script = format!(
            "openssl s_client -connect 127.0.0.1:{port} {more} </dev/null 2>/dev/null | openssl x509 -noout -serial"
        );
        let output = Command::new("sh").args(["-c", &script]).output().expect("openssl is installed");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn serials(&self) -> Vec<String> {
        let [https, feed, smtp, smtps, pages, admin] = self.ports;
        let plain = [https, feed, smtps, pages, admin]
            .into_iter()
            .map(|port| self.serial(port, "-servername a.example"));
        plain.chain([self.serial(smtp, "-starttls smtp -servername a.example")]).collect()
    }

    fn curl(&self, url: &str) -> String {
        let output = Command::new("curl")
            .args(["--disable", "--noproxy", "*", "--silent", "--fail", "--max-time", "20", "--cacert"])
            .arg(self.certificate.file())
            .arg(url)
            .output()
            .expect("curl is installed: run tests/install-packages.sh");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// An SMTP session under TLS, kept open.
    fn session(&self) -> Session {
        let mut child = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{}", self.ports[3])])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl is installed: run tests/install-packages.sh");
        let (into, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut session = Session { child, into, from: BufReader::new(from) };
        assert!(session.line().starts_with("220 "));
        session
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Session {
    child: Child,
    into: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Session {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("an answer");
        line
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a12_all_servers_use_the_processs_current_certificates() {
    let all = Everything::start();
    let before = all.serials();
    assert!(
        before[0].starts_with("serial=") && before.iter().all(|serial| *serial == before[0]),
        "{before:?}"
    );
    let [.., pages, admin] = all.ports;
    assert!(all.curl(&format!("https://127.0.0.1:{pages}/")).contains("<html"), "pages by https");
    assert!(all.curl(&format!("https://127.0.0.1:{admin}/healthz")).contains("ok"));
    // Plain http gets no answer there.
    assert_eq!(all.curl(&format!("http://127.0.0.1:{pages}/")), "");
    let table = all.stat(&["--admin-name", "a.example"]).expect("the name is in its certificate");
    assert!(table.contains("  a.example, 127.0.0.1  for another "), "{table}");
    assert_eq!(all.stat(&["--admin-name", "b.example"]), None, "this name is not");
    let mut session = all.session();
    // Silent connections hold up no other.
    let _silent: Vec<_> = all.ports.iter().map(|port| TcpStream::connect(("127.0.0.1", *port))).collect();

    all.certificate.renew(&["a.example", "127.0.0.1", "c.example"]);
    kill_process(Pid::from_child(&all.child), Signal::HUP).expect("our own child may be signalled");
    eventually("another one is shown", || all.serial(all.ports[0], "-servername a.example") != before[0]);
    let after = all.serials();
    assert!(after[0] != before[0] && after.iter().all(|serial| *serial == after[0]), "{after:?}");
    // The open session is not disturbed.
    session.into.write_all(b"NOOP\r\n").expect("it is there");
    assert!(session.line().starts_with("250 "));
    assert!(all.stat(&["--admin-name", "c.example"]).is_some());
}

#[test]
fn a12_missing_shared_certificates_are_reported_at_start() {
    let said = |command: &str, flags: &[&str]| {
        let state = tempfile::tempdir().expect("a directory");
        let output = program::command()
            .arg(command)
            .args(["--admin", "127.0.0.1:0", "--state"])
            .arg(state.path())
            .args(flags)
            .output()
            .expect("the program runs");
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("text")
    };
    let mail = ["--smtp", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let shared = said("mail", &[&mail[..], &["--tls-shared"]].concat());
    assert!(shared.contains("tls-shared: no certificates to share"), "{shared}");
    let pages = said("mail", &[&mail[..], &["--http-tls"]].concat());
    assert!(pages.contains("http-tls: needs tls-cert"), "{pages}");
    let admin = said("cache", &["--demo", "--listen", "127.0.0.1:0", "--admin-tls"]);
    assert!(admin.contains("admin-tls: no certificates are available"), "{admin}");
}
