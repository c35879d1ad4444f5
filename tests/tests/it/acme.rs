//! Automatic certificates, from Pebble with the failures that it injects, and from an authority of our own
//! for answers that Pebble does not give.
//!
//! A test whose program `tests/install-clients.sh` did not install is skipped, and says so.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::Duration,
};

use rcgen::{CertificateParams, KeyPair, PublicKeyData};
use rustix::process::Signal;
use serde_json::{Value, json};
use tests::{
    Accelerator, Answer, Request, ScriptedOrigin,
    accelerator::Setup,
    eventually,
    pebble::{Pebble, free_ports},
};

/// A year and a half, for certificates that need no renewal.
pub(crate) const LONG_S: u32 = 47_000_000;

/// The parts of a server's environment that survive a restart: origin, state directory and ports.
pub(crate) struct Place {
    pub(crate) origin: ScriptedOrigin,
    state: tempfile::TempDir,
    pub(crate) ports: [u16; 2],
}

impl Place {
    pub(crate) fn new() -> Self {
        let origin = ScriptedOrigin::start();
        origin.answers("/", Answer::new(200, "a page").header("Cache-Control", "max-age=600"));
        Self { origin, state: tempfile::tempdir().expect("a directory"), ports: free_ports() }
    }

    fn accelerator(&self, setup: Setup, directory: &str, authorities: Option<PathBuf>) -> Setup {
        let [http, tls] = self.ports;
        let setup = setup
            .flag("--listen", &format!("127.0.0.1:{http}"))
            .flag("--tls-listen", &format!("127.0.0.1:{tls}"))
            .flag("--state", self.state.path().to_str().expect("a path"))
            .flag("--acme-directory", directory)
            .flag("--acme-retry", "1s");
        match authorities {
            Some(file) => setup.flag("--acme-ca-file", file.to_str().expect("a path")),
            None => setup,
        }
    }

    pub(crate) fn with(&self, pebble: &Pebble, domains: &str) -> Setup {
        let setup = Accelerator::before(&self.origin.url()).flag("--acme-domain", domains);
        self.accelerator(setup, &pebble.directory_url(), Some(pebble.authorities()))
    }

    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}/", self.ports[1])
    }

    /// Fetches a page over HTTPS, and trusts only this root.
    pub(crate) fn ask(&self, root: &Path, host: &str) -> Output {
        curl(&["--fail", "--cacert", root.to_str().expect("a path")], &self.url(host))
    }

    pub(crate) fn is_shown(&self, root: &Path, host: &str) -> bool {
        self.ask(root, host).stdout == b"a page"
    }

    fn files(&self) -> Vec<PathBuf> {
        files_below(self.state.path().join("acme"))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        let files = self.files();
        files.into_iter().find(|path| path.ends_with(name)).unwrap_or_else(|| panic!("no file {name}"))
    }
}

/// Returns a directory and all paths below it.
pub(crate) fn files_below(directory: PathBuf) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![directory]);
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory");
            open.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
        found.push(path);
    }
    found
}

fn curl(arguments: &[&str], url: &str) -> Output {
    Command::new("curl")
        .args(["--disable", "--noproxy", "*", "--silent", "--show-error", "--max-time", "20"])
        .args(["--connect-to", "::127.0.0.1:"])
        .args(arguments)
        .arg(url)
        .output()
        .expect("curl is installed: run tests/install-packages.sh")
}

fn certificates(accelerator: &Accelerator) -> Vec<Value> {
    accelerator.stat().document()["certificates"].as_array().expect("certificates").clone()
}

pub(crate) fn error(accelerator: &Accelerator, name: &str) -> String {
    let found = certificates(accelerator).into_iter().find(|of| of["names"][0] == name);
    found.expect("it is told of")["error"].as_str().unwrap_or_default().to_owned()
}

/// Returns the serial number of the certificate that the server shows.
pub(crate) fn serial(ports: [u16; 2], host: &str) -> String {
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!(
            "openssl s_client -connect 127.0.0.1:{} -servername {host} </dev/null 2>/dev/null | openssl x509 -noout -serial",
            ports[1]
        ))
        .output()
        .expect("openssl is installed: run tests/install-packages.sh");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A certificate is obtained by http-01 from a server that redirects all other requests to https. Its files
/// are readable by their owner only, and after a restart no new order is made. Three of ten nonces are
/// refused.
#[test]
fn a36_an_http_01_certificate_is_obtained_and_kept() {
    let place = Place::new();
    let Some(pebble) = Pebble::start(place.ports, LONG_S, &[("PEBBLE_WFE_NONCEREJECT", "30")]) else {
        return;
    };
    let root = pebble.root();
    let setup = || {
        let setup = place.with(&pebble, "a.example,b.example");
        setup.flag("--acme-challenge", "http-01").limit("https_only", "true")
    };
    let mut accelerator = setup().start();
    for host in ["a.example", "b.example"] {
        eventually("its certificate is shown", || place.is_shown(&root, host));
    }
    assert_eq!(accelerator.get("/").status(), 301);
    let asked = place.origin.all_seen();
    assert!(asked.iter().all(|seen| seen.path() == "/"), "the origin hears of no challenge: {asked:?}");
    assert!(accelerator.stat().count("requests.acme_challenges_answered") >= 2);
    // With no challenge open, such a path is a normal request.
    let path = "/.well-known/acme-challenge/x";
    assert_eq!(accelerator.fetch(&Request::get(path)).status(), 301);
    for path in place.files() {
        let mode = fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    }
    let table = String::from_utf8(accelerator.ask(&["stat"]).stdout).expect("text");
    assert!(table.contains("\ncertificates\n  a.example  for another "), "{table}");
    let all = certificates(&accelerator);
    assert_eq!((all.len(), &all[1]["names"][0], &all[1]["error"]), (2, &json!("b.example"), &Value::Null));
    assert!(all[0]["renewal_s"].as_i64() < all[0]["until_s"].as_i64() && all[0]["renewal_s"].is_i64());
    assert!(!accelerator.printed().contains("PRIVATE KEY"));
    let (orders, shown) = (pebble.orders(), serial(place.ports, "a.example"));
    // SIGKILL, as if the machine stopped; not a graceful stop.
    accelerator.signal(Signal::KILL);
    accelerator.wait();
    let accelerator = setup().start();
    assert!(place.is_shown(&root, "a.example"), "it is there at once");
    eventually("its authority was asked when to renew", || accelerator.printed().contains("set to"));
    assert_eq!((pebble.orders(), serial(place.ports, "a.example")), (orders, shown));
}

/// Hosts of the configured sites get certificates by tls-alpn-01, with the configured profile. A client that
/// offers the protocol while no challenge is open is refused.
#[test]
fn a36_sites_get_their_certificates_by_tls_alpn_01() {
    let place = Place::new();
    let Some(pebble) = Pebble::start(place.ports, LONG_S / 2, &[]) else { return };
    let root = pebble.root();
    let text = format!(
        "[cache]\nacme-profile = \"longer\"\nacme-challenge = [\"tls-alpn-01\"]\nacme-contact = [\"admin@a.example\"]\n\
         [[cache.site]]\nhosts = [\"a.example\", \"*.a.example\"]\norigin = \"{0}\"\n\
         [[cache.site]]\nhosts = [\"b.example\"]\norigin = \"{0}\"\n",
        place.origin.url()
    );
    let accelerator = place
        .accelerator(Accelerator::configured(&text), &pebble.directory_url(), Some(pebble.authorities()))
        .start();
    for host in ["a.example", "b.example"] {
        eventually("its certificate is shown", || place.is_shown(&root, host));
    }
    let printed = accelerator.printed();
    assert!(printed.contains("*.a.example: a wildcard certificate"), "{printed}");
    let until = certificates(&accelerator)[0]["until_s"].as_i64().expect("a date");
    let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs().cast_signed();
    assert!(until - now > i64::from(LONG_S / 2) + 1000, "the profile counts");
    let alpn = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{}", place.ports[1])])
        .args(["-servername", "a.example", "-alpn", "acme-tls/1"])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl is installed: run tests/install-packages.sh");
    let said = String::from_utf8_lossy(&alpn.stderr).into_owned();
    assert!(said.contains("no application protocol"), "{said}");
}

/// An IP address gets a certificate: it is validated by its name in the reverse tree, and shown to clients
/// without SNI.
#[test]
fn a36_an_address_has_a_certificate() {
    for challenge in ["tls-alpn-01", "http-01"] {
        let place = Place::new();
        let Some(pebble) = Pebble::start(place.ports, LONG_S, &[]) else { return };
        let root = pebble.root();
        let _accelerator =
            place.with(&pebble, "a.example,127.0.0.1").flag("--acme-challenge", challenge).start();
        eventually("the address's certificate is shown", || place.is_shown(&root, "127.0.0.1"));
        eventually("the name's certificate is shown", || place.is_shown(&root, "a.example"));
    }
}

/// Certificates that are valid for some seconds are renewed without any failure for clients. A certificate of
/// long validity is renewed when its authority suggests it.
#[test]
fn a36_certificates_are_renewed_in_time_or_when_suggested() {
    let place = Place::new();
    let Some(pebble) = Pebble::start(place.ports, 15, &[("PEBBLE_AUTHZREUSE", "100")]) else { return };
    let root = pebble.root();
    let accelerator = place.with(&pebble, "a.example").start();
    eventually("its certificate is shown", || place.is_shown(&root, "a.example"));
    let mut seen = vec![serial(place.ports, "a.example")];
    while seen.len() < 3 {
        // On a slow machine a certificate may have just expired, but there is always one.
        let shown = curl(&["--insecure", "--fail"], &place.url("a.example"));
        assert!(shown.stdout == b"a page", "{shown:?}");
        let now = serial(place.ports, "a.example");
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        assert!(pebble.orders() < 50, "{}", accelerator.printed());
    }
    eventually("one that is valid is shown", || place.is_shown(&root, "a.example"));
    drop((accelerator, pebble));

    let place = Place::new();
    let Some(pebble) = Pebble::start(place.ports, LONG_S, &[]) else { return };
    let root = pebble.root();
    let accelerator = place.with(&pebble, "a.example").start();
    eventually("its certificate is shown", || place.is_shown(&root, "a.example"));
    let before = serial(place.ports, "a.example");
    pebble.would_like_renewed(&place.file("a.example.pem"), "2021-01-03T00:00:00Z", "2021-01-07T00:00:00Z");
    accelerator.signal(Signal::HUP);
    eventually("it is renewed", || serial(place.ports, "a.example") != before);
    assert!(place.is_shown(&root, "a.example"));
    eventually("the next one stays", || accelerator.printed().matches("as the CA suggests").count() >= 2);
    assert_eq!(pebble.orders(), 2, "{}", accelerator.printed());
}

/// Sites that a reload adds get certificates; those of removed sites are not renewed any more.
#[test]
fn a36_sites_added_by_a_reload_get_certificates() {
    let place = Place::new();
    let Some(pebble) = Pebble::start(place.ports, LONG_S, &[]) else { return };
    let root = pebble.root();
    let text = |hosts: &[&str]| -> String {
        let site =
            |host| format!("[[cache.site]]\nhosts = [\"{host}\"]\norigin = \"{}\"\n", place.origin.url());
        hosts.iter().map(site).collect()
    };
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("n.toml");
    fs::write(&file, text(&["a.example", "b.example"])).expect("written");
    let setup = Accelerator::configured("").flag("--config", file.to_str().expect("a path"));
    let accelerator = place.accelerator(setup, &pebble.directory_url(), Some(pebble.authorities())).start();
    for host in ["a.example", "b.example"] {
        eventually("its certificate is shown", || place.is_shown(&root, host));
    }
    let before = serial(place.ports, "b.example");
    fs::write(&file, text(&["b.example", "c.example"])).expect("written");
    accelerator.signal(Signal::HUP);
    eventually("the new one's certificate is shown", || place.is_shown(&root, "c.example"));
    assert_eq!(serial(place.ports, "b.example"), before);
    let names = || certificates(&accelerator).iter().map(|of| of["names"][0].clone()).collect::<Vec<_>>();
    assert_eq!(names(), ["b.example", "c.example"]);
    assert!(!place.is_shown(&root, "a.example"), "nobody asks for it any more");
    assert_eq!(pebble.orders(), 3);
    // The site is added again, and its stored certificate is used.
    fs::write(&file, text(&["a.example"])).expect("written");
    accelerator.signal(Signal::HUP);
    eventually("it is shown again", || place.is_shown(&root, "a.example"));
    assert_eq!(pebble.orders(), 3, "{}", accelerator.printed());
}

/// A CA that is down at the start, then comes up, goes down, and forgets all accounts and orders.
#[test]
fn a36_an_authority_that_is_down_is_waited_for() {
    let place = Place::new();
    let Some(mut pebble) = Pebble::prepare(place.ports, 20, &[]) else { return };
    let accelerator = place.with(&pebble, "a.example").start();
    eventually("that is told", || error(&accelerator, "a.example").contains("no answer from the CA"));
    assert_eq!(accelerator.get("/").body, b"a page", "who comes by http is served");
    let without = curl(&["--insecure"], &place.url("a.example"));
    assert!(!without.status.success(), "nothing is shown that nobody vouches for: {without:?}");
    pebble.begin();
    let root = pebble.root();
    eventually("its certificate is shown", || place.is_shown(&root, "a.example"));
    assert_eq!(error(&accelerator, "a.example"), "");
    let before = serial(place.ports, "a.example");
    pebble.end();
    eventually("the renewal fails", || error(&accelerator, "a.example").contains("no answer from the CA"));
    assert_eq!(serial(place.ports, "a.example"), before, "the previous one is valid");
    pebble.begin();
    let root = pebble.root();
    eventually("it is renewed of one that has forgotten us", || place.is_shown(&root, "a.example"));
}

/// A name that the CA refuses, and one that it cannot resolve, hold up no other name; once the cause is gone,
/// the certificate is obtained.
#[test]
fn a36_what_is_refused_is_told_and_tried_again() {
    let place = Place::new();
    let Some(pebble) = Pebble::start(place.ports, LONG_S, &[]) else { return };
    let root = pebble.root();
    pebble.forget(true);
    let accelerator = place.with(&pebble, "refused.example,a.example").start();
    eventually("both are told of", || {
        error(&accelerator, "refused.example").contains("refused by the CA (rejectedIdentifier)")
            && error(&accelerator, "a.example").contains("a.example: refused by the CA (")
    });
    pebble.forget(false);
    eventually("its certificate is shown", || place.is_shown(&root, "a.example"));
    assert!(error(&accelerator, "refused.example").contains("rejectedIdentifier"));
    assert!(accelerator.stat().count("errors.certificates_failed") >= 2);
    let table = String::from_utf8(accelerator.ask(&["stat"]).stdout).expect("text");
    assert!(table.contains("  refused.example  none yet, refused by the CA"), "{table}");
}

/// A process that is killed at any moment continues its order after the restart.
#[test]
fn a36_a_killed_process_continues_its_order() {
    let place = Place::new();
    let sleeps = [("PEBBLE_VA_NOSLEEP", "0"), ("PEBBLE_VA_SLEEPTIME", "4")];
    let Some(pebble) = Pebble::start(place.ports, LONG_S, &sleeps) else { return };
    let root = pebble.root();
    // A validation that finds no server is refused, and then a new order is allowed.
    let mut refused = 0;
    let refusals = |accelerator: &Accelerator| accelerator.printed().matches("refused by the CA").count();
    for pause_ms in [0, 300, 900, 2000] {
        let mut accelerator = place.with(&pebble, "a.example").flag("--acme-challenge", "http-01").start();
        eventually("it has an order", || {
            let is_there =
                |path: &PathBuf| path.ends_with("a.example.json") || path.ends_with("a.example.pem");
            place.files().iter().any(is_there)
        });
        thread::sleep(Duration::from_millis(pause_ms));
        accelerator.signal(Signal::KILL);
        accelerator.wait();
        refused += refusals(&accelerator);
    }
    let accelerator = place.with(&pebble, "a.example").flag("--acme-challenge", "http-01").start();
    eventually("its certificate is shown", || place.is_shown(&root, "a.example"));
    refused += refusals(&accelerator);
    assert_eq!(pebble.orders(), 1 + refused, "{}", accelerator.printed());
    assert_eq!(pebble.said("There are now 2 accounts"), 0, "one account");
}

/// An authority of our own, over HTTP on this machine. `order` answers a new order, `issue` a request for a
/// certificate.
struct Authority {
    server: ScriptedOrigin,
}

impl Authority {
    fn start() -> Self {
        let server = ScriptedOrigin::start();
        let url = server.url();
        let of = |path: &str| format!("{url}{path}");
        let directory = json!({
            "newNonce": of("/nonce"), "newAccount": of("/account"), "newOrder": of("/order"),
        });
        let answer =
            |status, body: &Value| Answer::new(status, body.to_string()).header("Replay-Nonce", "bm9uY2U");
        server.answers("/dir", answer(200, &directory));
        server.answers("/nonce", answer(200, &json!("")));
        server.answers(
            "/account",
            answer(201, &json!({ "status": "valid" })).header("Location", &of("/account/1")),
        );
        Self { server }
    }

    fn directory(&self) -> String {
        format!("{}/dir", self.server.url())
    }

    fn answers(&self, path: &str, status: u16, body: &Value, more: &[(&str, &str)]) {
        let answer = Answer::new(status, body.to_string()).header("Replay-Nonce", "bm9uY2U");
        self.server
            .answers(path, more.iter().fold(answer, |answer, (name, value)| answer.header(name, value)));
    }
}

/// The authority's rate limit says how long to wait; an operator's request does not shorten that.
#[test]
fn a36_a_limit_of_the_authoritys_is_kept_to() {
    let (place, authority) = (Place::new(), Authority::start());
    let problem = json!({
        "type": "urn:ietf:params:acme:error:rateLimited", "detail": "too many certificates already issued",
    });
    authority.answers("/order", 429, &problem, &[("Retry-After", "3600")]);
    let setup = || {
        let setup = Accelerator::before(&place.origin.url()).flag("--acme-domain", "a.example");
        place.accelerator(setup, &authority.directory(), None)
    };
    let mut accelerator = setup().start();
    eventually("that is told", || {
        error(&accelerator, "a.example").contains("too many certificates already issued")
    });
    accelerator.signal(Signal::HUP);
    eventually("the wish was heard", || accelerator.printed().contains("reload: "));
    accelerator.signal(Signal::KILL);
    accelerator.wait();
    let accelerator = setup().start();
    let retry_s = certificates(&accelerator)[0]["retry_s"].as_i64().expect("a time");
    let now_s = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_secs().cast_signed();
    assert!((3400..=3600).contains(&(retry_s - now_s)), "{}", retry_s - now_s);
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(authority.server.count("/order"), 1);
}

/// Public key of a certificate request, for which another certificate is signed.
struct KeyOf(Vec<u8>);

impl PublicKeyData for KeyOf {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

fn base64url(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'-' => 62,
        _ => 63,
    };
    let digits: Vec<u32> = text.bytes().map(value).collect();
    digits
        .chunks(4)
        .flat_map(|four| {
            let bits = four.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - four.len()));
            bits.to_be_bytes()[1..four.len()].to_vec()
        })
        .collect()
}

/// A certificate for another name, or one that cannot be parsed, is not shown; the right one is, once it is
/// issued.
#[test]
fn a36_a_certificate_for_another_name_is_refused() {
    let (place, authority) = (Place::new(), Authority::start());
    let url = authority.server.url();
    let order = |status: &str| {
        json!({
            "status": status, "authorizations": [], "finalize": format!("{url}/finalize"),
            "identifiers": [{ "type": "dns", "value": "a.example" }], "certificate": format!("{url}/certificate"),
        })
    };
    let location = format!("{url}/order/1");
    authority.answers("/order", 201, &order("ready"), &[("Location", &location)]);
    let states = std::sync::Arc::new(std::sync::Mutex::new(("ready", String::new())));
    let (asked, signed, given) = (states.clone(), states.clone(), states.clone());
    let reply_with = |body: Value| Answer::new(200, body.to_string()).header("Replay-Nonce", "bm9uY2U");
    let (first, second) = (order("ready"), order("valid"));
    authority.server.on("/order/1", move |_, reply| {
        let is_ready = asked.lock().expect("alive").0 == "ready";
        reply.answer(&reply_with(if is_ready { first.clone() } else { second.clone() }))
    });
    let processing = order("processing");
    // Certificates that are issued: the first for another name, the second for the right one.
    let issuer_key = KeyPair::generate().expect("a key");
    let issuer = rcgen::Issuer::new(CertificateParams::default(), issuer_key);
    let names = std::sync::Mutex::new(vec!["a.example", "other.example"]);
    authority.server.on("/finalize", move |request, reply| {
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        let payload: Value =
            serde_json::from_slice(&base64url(body["payload"].as_str().expect("text"))).expect("JSON");
        let csr = base64url(payload["csr"].as_str().expect("a request"));
        let at = csr.windows(4).position(|four| four == [3, 0x42, 0, 4]).expect("a key of P-256") + 3;
        let key = KeyOf(csr[at..at + 65].to_vec());
        let name = names.lock().expect("alive").pop().unwrap_or("a.example");
        let params = CertificateParams::new([name.to_owned()]).expect("a name");
        *signed.lock().expect("alive") = ("valid", params.signed_by(&key, &issuer).expect("signed").pem());
        reply.answer(&reply_with(processing.clone()))
    });
    authority.server.on("/certificate", move |_, reply| {
        let mut states = given.lock().expect("alive");
        states.0 = "ready";
        reply.answer(&Answer::new(200, &states.1).header("Replay-Nonce", "bm9uY2U"))
    });
    let setup = Accelerator::before(&place.origin.url())
        .flag("--acme-domain", "a.example")
        .flag("--acme-retry", "3s");
    let setup = place.accelerator(setup, &authority.directory(), None).flag("--acme-retry", "3s");
    let accelerator = setup.start();
    let want = "a certificate for other.example, not for a.example";
    eventually("that is told", || error(&accelerator, "a.example").contains(want));
    assert!(!curl(&["--insecure"], &place.url("a.example")).status.success(), "it is not shown");
    eventually("the right one is shown", || {
        curl(&["--insecure"], &place.url("a.example")).stdout == b"a page"
    });
    assert_eq!(error(&accelerator, "a.example"), "");
    assert_eq!(authority.server.count("/order"), 2, "an order that came to nothing is over");
}

/// Configuration errors are reported at the start.
#[test]
fn a36_configuration_errors_are_reported_at_the_start() {
    let place = Place::new();
    let said = |flags: &[(&str, &str)]| {
        let setup = flags
            .iter()
            .fold(Accelerator::before(&place.origin.url()), |setup, (name, value)| setup.flag(name, value));
        let output = setup.run_to_its_end();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("text")
    };
    let directory = ("--acme-directory", "https://ca.example/dir");
    for (flags, want) in [
        (&[directory][..], "acme-domain: is missing"),
        (&[("--acme-domain", "a.example")], "acme-directory: is missing"),
        (&[directory, ("--acme-domain", "*.a.example")], "dns-01"),
        (
            &[directory, ("--acme-domain", "a.example"), ("--acme-ca-file", "/nowhere")],
            "cannot read /nowhere: ",
        ),
        (&[("--acme-directory", "http://ca.example/dir")], "without https"),
        (&[directory, ("--acme-domain", "a.example"), ("--state", "/dev/null")], "/dev/null"),
    ] {
        let text = said(flags);
        assert!(text.contains(want), "{want}: {text}");
    }
}

#[test]
fn a36_the_guides_commands_do_what_it_says() {
    if tests::clients::installed("acme/pebble").is_none() {
        return;
    }
    let Some(output) = tests::guide::run("certificates.md") else { return };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("HTTP/2 200\n") && said.contains("  127.0.0.1  for another 89 d"), "{said}");
}
