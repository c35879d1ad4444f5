//! Pebble, Let's Encrypt's certificate authority for tests, as a process of its own; and a resolver for it
//! that resolves every name to this machine.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
};

use crate::{certificate::Certificate, clients::installed, eventually};

/// Returns ports that are free now and outside of the range from which the system assigns ports.
///
/// # Panics
/// If there are none.
#[must_use]
pub fn free_ports<const N: usize>() -> [u16; N] {
    const FROM: u32 = 11_000;
    const MANY: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    std::array::from_fn(|_| {
        let free = (0..MANY).find_map(|_| {
            // Each process of a run begins at another port.
            let at = std::process::id().wrapping_mul(97).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
            let port = u16::try_from(FROM + at % MANY).expect("below 65536");
            TcpListener::bind(("127.0.0.1", port)).ok().map(|_| port)
        });
        free.expect("a port")
    })
}

/// A running Pebble. Killed when dropped.
#[derive(Debug)]
pub struct Pebble {
    program: PathBuf,
    directory: tempfile::TempDir,
    certificate: Certificate,
    resolver: Resolver,
    ports: [u16; 2],
    environment: Vec<(String, String)>,
    child: Option<Child>,
}

impl Pebble {
    /// Starts a Pebble that validates names at these ports (http-01, tls-alpn-01) and issues certificates for
    /// `lifetime_s` seconds, or twice as long with the profile `longer`; `None` if it is not installed.
    ///
    /// # Panics
    /// If Pebble does not start.
    #[must_use]
    pub fn start([http, tls]: [u16; 2], lifetime_s: u32, environment: &[(&str, &str)]) -> Option<Self> {
        let mut pebble = Self::prepare([http, tls], lifetime_s, environment)?;
        pebble.begin();
        Some(pebble)
    }

    /// Prepares a Pebble that does not run yet.
    ///
    /// # Panics
    /// If its files cannot be written.
    #[must_use]
    pub fn prepare([http, tls]: [u16; 2], lifetime_s: u32, environment: &[(&str, &str)]) -> Option<Self> {
        let program = installed("acme/pebble")?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let certificate = Certificate::of(&["localhost", "127.0.0.1"]);
        let ports: [u16; 2] = free_ports();
        let config = format!(
            r#"{{"pebble": {{
                "listenAddress": "127.0.0.1:{}", "managementListenAddress": "127.0.0.1:{}",
                "certificate": "{}", "privateKey": "{}",
                "httpPort": {http}, "tlsPort": {tls},
                "domainBlocklist": ["refused.example"],
                "retryAfter": {{"authz": 1, "order": 1}}, "keyAlgorithm": "ecdsa",
                "profiles": {{
                    "default": {{"description": "as asked for", "validityPeriod": {lifetime_s}}},
                    "longer": {{"description": "twice as long", "validityPeriod": {}}}
                }}
            }}}}"#,
            ports[0],
            ports[1],
            certificate.file().display(),
            certificate.key().display(),
            lifetime_s * 2,
        );
        fs::write(directory.path().join("config.json"), config).expect("written");
        // Pebble refuses a nonce in twenty on its own account; here only for a test that asks for it.
        let defaults = [("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "0")];
        let environment = defaults.iter().chain(environment);
        let environment =
            environment.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let resolver = Resolver::start();
        Some(Self { program, directory, certificate, resolver, ports, environment, child: None })
    }

    /// Starts Pebble without any state of an earlier run.
    ///
    /// # Panics
    /// If Pebble does not start.
    pub fn begin(&mut self) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_file()).expect("a file");
        let child = Command::new(&self.program)
            .arg("-config")
            .arg(self.directory.path().join("config.json"))
            .args(["-dnsserver", &self.resolver.address.to_string()])
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .spawn()
            .expect("Pebble starts");
        self.child = Some(child);
        eventually("Pebble answers", || curl(&[], &self.directory_url()).is_some());
    }

    /// Ends Pebble.
    pub fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// URL of the ACME directory.
    #[must_use]
    pub fn directory_url(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.ports[0])
    }

    /// Path of the CA certificate for Pebble's own HTTPS server.
    #[must_use]
    pub fn authorities(&self) -> PathBuf {
        self.certificate.file()
    }

    /// Counts the occurrences of a text in Pebble's log.
    #[must_use]
    pub fn said(&self, what: &str) -> usize {
        fs::read_to_string(self.log_file()).unwrap_or_default().matches(what).count()
    }

    /// Counts the orders made so far.
    #[must_use]
    pub fn orders(&self) -> usize {
        self.said("Added order ")
    }

    /// Fetches the root certificate, and returns its path.
    ///
    /// # Panics
    /// If Pebble does not return it.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        let root = curl(&[], &format!("https://127.0.0.1:{}/roots/0", self.ports[1])).expect("a root");
        let path = self.directory.path().join("root.pem");
        fs::write(&path, root).expect("written");
        path
    }

    /// Sets the renewal window (RFC 3339 times) that Pebble suggests for this certificate from now on.
    ///
    /// # Panics
    /// If Pebble refuses it.
    pub fn would_like_renewed(&self, certificate: &Path, start: &str, end: &str) {
        let pem = fs::read_to_string(certificate).expect("a file");
        let from = pem.find("-----BEGIN CERTIFICATE-----").expect("a certificate");
        let window = serde_json::json!({ "suggestedWindow": { "start": start, "end": end } });
        let body = serde_json::json!({ "Certificate": &pem[from..], "ARIResponse": window.to_string() });
        let url = format!("https://127.0.0.1:{}/set-renewal-info/", self.ports[1]);
        curl(&["--fail", "--data", &body.to_string()], &url).expect("taken");
    }

    /// Makes all names unknown to the resolver, or known again.
    pub fn forget(&self, is_forgotten: bool) {
        self.resolver.is_empty.store(is_forgotten, Ordering::Relaxed);
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        self.end();
        if thread::panicking() {
            eprintln!("--- Pebble:\n{}---", fs::read_to_string(self.log_file()).unwrap_or_default());
        }
    }
}

fn curl(arguments: &[&str], url: &str) -> Option<Vec<u8>> {
    let output = Command::new("curl")
        .args(["--disable", "--noproxy", "*", "--silent", "--insecure", "--max-time", "20"])
        .args(arguments)
        .arg(url)
        .output()
        .expect("curl is installed: run tests/install-packages.sh");
    output.status.success().then_some(output.stdout)
}

/// A resolver that answers each A query with this machine's address, over TCP, which Pebble uses.
#[derive(Debug)]
struct Resolver {
    address: SocketAddr,
    is_empty: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
}

impl Resolver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (is_empty, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (empty, over) = (Arc::clone(&is_empty), Arc::clone(&is_over));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let empty = Arc::clone(&empty);
                thread::spawn(move || answer_all(stream, &empty));
            }
        });
        Self { address, is_empty, is_over }
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the listener, which waits for one more connection.
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers all queries of a connection; each message is preceded by its length (RFC 1035 §4.2.2).
fn answer_all(mut stream: TcpStream, is_empty: &AtomicBool) {
    let mut length = [0; 2];
    while stream.read_exact(&mut length).is_ok() {
        let mut question = vec![0; usize::from(u16::from_be_bytes(length))];
        if stream.read_exact(&mut question).is_err() {
            return;
        }
        let Some(answer) = answer(&question, is_empty.load(Ordering::Relaxed)) else { return };
        let length = u16::try_from(answer.len()).expect("an answer is short").to_be_bytes();
        if stream.write_all(&[&length[..], &answer].concat()).is_err() {
            return;
        }
    }
}

/// Returns the answer to a query (RFC 1035 §4.1).
fn answer(question: &[u8], is_empty: bool) -> Option<Vec<u8>> {
    let name = question.get(12..)?.iter().position(|byte| *byte == 0)? + 13;
    let kind = question.get(name..name + 2)?;
    let is_answered = kind == [0, 1] && !is_empty;
    let code = if is_empty { 3 } else { 0 };
    let mut answer =
        [&question[..2], &[0x81, 0x80 | code, 0, 1, 0, u8::from(is_answered), 0, 0, 0, 0]].concat();
    answer.extend_from_slice(question.get(12..name + 4)?);
    if is_answered {
        answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1]);
    }
    Some(answer)
}
