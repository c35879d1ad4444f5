//! Client certificates by site: which clients are accepted, and what the origin is sent. Neither a connection
//! made for another site nor a stored answer is a way around the rule.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tests::{
    Accelerator, Answer, Request, ScriptedOrigin,
    certificate::{Authority, Certificate},
    on_one_core, on_one_core_and_on_two,
};

on_one_core! {
    a12_the_origin_learns_the_clients_certificate,
    a12_the_certificate_rule_holds_on_every_connection,
    a12_answers_to_certificates_are_shared_only_if_permitted,
}

on_one_core_and_on_two! {
    a12_no_ticket_is_a_way_around_a_certificate,
}

const FIELD: &str = "X-Client-Cert";

/// Three sites of one origin: one demands certificates of an authority, one accepts them but does not demand
/// them, one demands certificates of another authority.
struct Sites {
    origin: ScriptedOrigin,
    accelerator: Accelerator,
    server: Certificate,
    alice: PathBuf,
    bob: PathBuf,
    late: PathBuf,
    stranger: PathBuf,
    _authorities: [Authority; 2],
}

impl Sites {
    fn start(cores: &str) -> Self {
        let origin = ScriptedOrigin::start();
        origin.otherwise(|request, reply| {
            let who = request.header(FIELD).unwrap_or("nobody");
            let kind = match request.path() {
                "/shared" => "public, max-age=600",
                "/vary" => "public, max-age=600",
                "/passed" => "no-store",
                _ => "max-age=600",
            };
            let mut answer = Answer::new(200, who).header("Cache-Control", kind);
            if request.path() == "/vary" {
                answer = answer.header("Vary", FIELD);
            }
            reply.answer(&answer)
        });
        let (ours, theirs) = (Authority::named("ours"), Authority::named("theirs"));
        let server = Certificate::of(&["open.example", "members.example", "wish.example", "other.example"]);
        let site = |host: &str, authority: &Authority, what: &str| {
            format!(
                "[[cache.site]]\nhosts = [\"{host}\"]\ntls-client-ca = \"{}\"\ntls-client = \"{what}\"\n",
                authority.file().display()
            )
        };
        let configuration = format!(
            "[cache]\norigin = \"{}\"\ntls-listen = \"127.0.0.1:0\"\ntls-cert = \"{}\"\ntls-key = \"{}\"\n{}{}{}",
            origin.url(),
            server.file().display(),
            server.key().display(),
            site("members.example", &ours, "required"),
            site("wish.example", &ours, "asked"),
            site("other.example", &theirs, "required"),
        );
        let setup = Accelerator::configured(&configuration).flag("--cores", cores);
        Self {
            accelerator: setup.flag("--trusted-proxies", "127.0.0.2").start(),
            origin,
            server,
            alice: ours.signs("alice", 2090),
            bob: ours.signs("bob", 2090),
            late: ours.signs("late", 2020),
            stranger: theirs.signs("alice", 2090),
            _authorities: [ours, theirs],
        }
    }

    /// Requests a path of a host with curl, and returns status and content.
    fn ask(
        &self,
        how: &[&str],
        shown: Option<&Path>,
        host: &str,
        path: &str,
    ) -> Result<(u16, String), String> {
        let port = self.accelerator.secured().port();
        let mut command = Command::new("curl");
        command
            .args(["--disable", "--noproxy", "*", "--silent", "--show-error", "--max-time", "60"])
            .args(["--connect-to", &format!("::127.0.0.1:{port}"), "--write-out", "\n%{http_code}"])
            .arg("--cacert")
            .arg(self.server.file())
            .args(how);
        if let Some(shown) = shown {
            command.arg("--cert").arg(shown);
        }
        let output = command.arg(format!("https://{host}{path}")).output().expect("curl is installed");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let text = String::from_utf8(output.stdout).expect("text");
        let (content, status) = text.rsplit_once('\n').expect("a status");
        Ok((status.parse().expect("a number"), content.to_owned()))
    }

    fn well(&self, how: &[&str], shown: Option<&Path>, host: &str, path: &str) -> String {
        let (status, content) = self.ask(how, shown, host, path).expect("an answer");
        assert_eq!(status, 200, "{content}");
        content
    }
}

/// Every version of TLS with every version of HTTP.
const WAYS: [[&str; 4]; 4] = [
    ["--tlsv1.2", "--tls-max", "1.2", "--http1.1"],
    ["--tlsv1.2", "--tls-max", "1.2", "--http2"],
    ["--tlsv1.3", "--tls-max", "1.3", "--http1.1"],
    ["--tlsv1.3", "--tls-max", "1.3", "--http2"],
];

/// Forged certificate fields from a client, in every spelling.
const FORGED: [&str; 8] = [
    "--header",
    "X-Client-Cert: CN=root",
    "--header",
    "x_client-cert: CN=root",
    "--header",
    "X-Client-Cert-Names: DNS:root",
    "--header",
    "x-client-cert_fingerprint: 00",
];

fn a12_the_origin_learns_the_clients_certificate(cores: &str) {
    let sites = Sites::start(cores);
    let (alice, late, stranger) = (&*sites.alice, &*sites.late, &*sites.stranger);
    for way in &WAYS {
        let forging = [&way[..], &FORGED].concat();
        for how in [&way[..], &forging] {
            assert_eq!(sites.well(how, Some(alice), "members.example", "/passed"), "CN=alice");
            assert_eq!(sites.well(how, Some(alice), "wish.example", "/passed"), "CN=alice");
            assert_eq!(sites.well(how, None, "wish.example", "/passed"), "nobody");
            assert_eq!(sites.well(how, Some(alice), "open.example", "/passed"), "nobody");
            assert_eq!(sites.well(how, Some(stranger), "other.example", "/passed"), "CN=alice");
        }
        for (shown, host) in [
            (None, "members.example"),
            (Some(stranger), "members.example"),
            (Some(late), "members.example"),
            (Some(stranger), "wish.example"),
            (Some(late), "wish.example"),
            (Some(alice), "other.example"),
        ] {
            // curl's message depends on the alert, so only the failure is checked here; the counters are
            // checked below.
            let refused = sites.ask(way, shown, host, "/passed");
            assert!(refused.is_err(), "{way:?} {host}: {refused:?}");
        }
    }
    for seen in sites.origin.all_seen() {
        let [fingerprint, names] =
            ["X-Client-Cert-Fingerprint", "X-Client-Cert-Names"].map(|name| seen.header(name));
        match seen.header(FIELD) {
            None => assert_eq!((fingerprint, names), (None, None)),
            Some(_) => {
                assert!(fingerprint.is_some_and(|text| text.len() == 64));
                assert_eq!(names, Some("DNS:alice.example"));
            }
        }
        let all = format!("{:?}", seen.headers).to_ascii_lowercase().replace('_', "-");
        assert!(!all.contains("root") && all.matches("x-client-cert").count() <= 3, "{all}");
    }
    assert_eq!(sites.accelerator.stat().count("limits.handshakes_failed"), 6 * WAYS.len() as u64);
}

fn a12_the_certificate_rule_holds_on_every_connection(cores: &str) {
    let sites = Sites::start(cores);
    let (alice, stranger) = (&*sites.alice, &*sites.stranger);
    for way in &WAYS {
        for (made_for, shown, host, status) in [
            // No certificate was requested for this connection, or one of another authority.
            ("open.example", None, "members.example", 421),
            ("open.example", Some(alice), "members.example", 421),
            ("open.example", None, "wish.example", 421),
            ("other.example", Some(stranger), "members.example", 421),
            ("other.example", Some(stranger), "wish.example", 421),
            ("members.example", Some(alice), "other.example", 421),
            ("wish.example", None, "members.example", 421),
            // Both sites trust the same authority, so the certificate counts at both.
            ("wish.example", Some(alice), "members.example", 200),
            ("members.example", Some(alice), "wish.example", 200),
            // A site without the rule answers on any connection.
            ("members.example", Some(alice), "open.example", 200),
        ] {
            let host_field = format!("Host: {host}");
            let how = [&way[..], &["--header", &host_field]].concat();
            let answered = sites.ask(&how, shown, made_for, "/passed").expect("an answer");
            assert_eq!(answered.0, status, "{way:?} {made_for} {host}: {answered:?}");
            if status == 200 {
                assert_eq!(answered.1, if host == "open.example" { "nobody" } else { "CN=alice" });
            }
        }
    }
    assert_eq!(sites.accelerator.stat().count("requests.certificates_wanted"), 7 * WAYS.len() as u64);
    // Without TLS at the accelerator there is no client certificate, even if a trusted proxy claims one.
    let port = sites.accelerator.secured().port();
    let plain = |host: &str| Request::get("/passed").header("Host", host).header(FIELD, "CN=root");
    let sent_on = sites.accelerator.fetch(&plain("members.example")).expect_status(301);
    assert_eq!(sent_on.header("Location"), Some("https://members.example/passed"), "{port}");
    assert_eq!(sites.accelerator.fetch(&plain("wish.example")).expect_status(200).text(), "nobody");
    assert_eq!(sites.accelerator.fetch(&plain("open.example")).expect_status(200).text(), "nobody");
    let proxy = tests::connections::connect_from([127, 0, 0, 2], sites.accelerator.address());
    let mut proxy = tests::Client::over(proxy.expect("connected")).expect("a client");
    proxy.send(
        b"GET /passed HTTP/1.1\r\nHost: members.example\r\nX-Forwarded-Proto: https\r\nX-Client-Cert: CN=root\r\n\r\n",
    );
    proxy.response("GET").expect_status(421);
    // Trailers cannot forge the fields either.
    let mut client = sites.accelerator.connect();
    client.send(
        b"POST /trailers HTTP/1.1\r\nHost: open.example\r\nTransfer-Encoding: chunked\r\n\r\n\
          1\r\nx\r\n0\r\nX-Client-Cert: CN=root\r\nX_Client_Cert_Names: DNS:root\r\nX-Sum: 1\r\n\r\n",
    );
    client.response("POST").expect_status(200);
    let seen = &sites.origin.seen("/trailers")[0];
    let trailers = format!("{:?}", seen.trailers);
    assert!(trailers.contains("X-Sum") && !trailers.contains("root"), "{trailers}");
}

fn a12_answers_to_certificates_are_shared_only_if_permitted(cores: &str) {
    let sites = Sites::start(cores);
    let (alice, bob) = (&*sites.alice, &*sites.bob);
    let ask = |shown, host, path| sites.well(&["--http2"], shown, host, path);
    for host in ["members.example", "wish.example"] {
        // The origin says that the answer may be shared.
        assert_eq!(ask(Some(alice), host, "/shared"), "CN=alice");
        assert_eq!(ask(Some(bob), host, "/shared"), "CN=alice");
        // The origin does not say so, or says that the answer varies by the certificate.
        for path in ["/own", "/vary"] {
            for _ in 0..2 {
                assert_eq!(ask(Some(alice), host, path), "CN=alice", "{host}{path}");
                assert_eq!(ask(Some(bob), host, path), "CN=bob", "{host}{path}");
            }
        }
    }
    assert_eq!(ask(None, "wish.example", "/shared"), "CN=alice");
    // An answer for clients without a certificate is not served to clients with one.
    for _ in 0..2 {
        assert_eq!(ask(None, "wish.example", "/open"), "nobody");
        assert_eq!(ask(Some(alice), "wish.example", "/open"), "CN=alice");
        assert_eq!(ask(None, "wish.example", "/vary"), "nobody");
    }
    let of_wish = |path: &str| {
        let seen = sites.origin.seen(path);
        seen.iter().filter(|seen| seen.header("Host") == Some("wish.example")).count()
    };
    assert_eq!((of_wish("/shared"), of_wish("/open")), (1, 3), "nobody's is stored for nobody");
    let said = sites.accelerator.ask(&["explain", "https://members.example/own"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("requires a client certificate"), "{said}");
}

/// Makes one connection with `openssl s_client`, and returns its output.
fn s_client(port: u16, arguments: &[&str]) -> Output {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-ign_eof"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("openssl is installed");
    let mut asked = child.stdin.take().expect("piped");
    let request = b"GET /passed HTTP/1.1\r\nHost: members.example\r\nConnection: close\r\n\r\n";
    // A refused client cannot send any more, so the error is ignored.
    let _ = std::io::Write::write_all(&mut asked, request);
    child.wait_with_output().expect("it ends")
}

fn a12_no_ticket_is_a_way_around_a_certificate(cores: &str) {
    let sites = Sites::start(cores);
    let port = sites.accelerator.secured().port();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let alice = sites.alice.display().to_string();
    for version in ["-tls1_2", "-tls1_3"] {
        let session = directory.path().join(version).display().to_string();
        let known = ["-servername", "members.example", "-cert", &alice, "-key", &alice];
        // The client resumes with her ticket, and her certificate still counts.
        let first = s_client(port, &[&known[..], &[version, "-sess_out", &session]].concat());
        let again = s_client(port, &[&known[..], &[version, "-sess_in", &session]].concat());
        for (output, how) in [(&first, "New, "), (&again, "Reused, ")] {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains(how) && said.contains("CN=alice"), "{version} {how}: {said}");
        }
        // A ticket that was issued without a certificate, for a site that does not demand one.
        for host in ["open.example", "wish.example"] {
            let session = directory.path().join(format!("{version}-{host}")).display().to_string();
            let unknown = s_client(port, &["-servername", host, version, "-sess_out", &session]);
            assert!(String::from_utf8_lossy(&unknown.stdout).contains(" 421 "), "{unknown:?}");
            let tried = s_client(port, &["-servername", "members.example", version, "-sess_in", &session]);
            let said = format!(
                "{}{}",
                String::from_utf8_lossy(&tried.stdout),
                String::from_utf8_lossy(&tried.stderr)
            );
            assert!(!said.contains("Reused, ") && !said.contains("HTTP/1.1 200"), "{said}");
            assert!(said.contains("alert") || said.contains("ALERT"), "{version} {host}: {said}");
        }
    }
    let told: Vec<_> =
        sites.origin.seen("/passed").iter().map(|seen| seen.header(FIELD).map(str::to_owned)).collect();
    assert_eq!(told, vec![Some("CN=alice".to_owned()); 4]);
}

#[test]
fn a12_an_unusable_client_ca_is_refused_at_start() {
    let origin = ScriptedOrigin::start();
    let (server, authority) = (Certificate::of(&["a.example"]), Authority::named("ours"));
    let (empty, ca) = (server.file().with_file_name("empty.pem"), authority.file().display().to_string());
    std::fs::write(&empty, "nothing").expect("written");
    let path = |path: PathBuf| path.display().to_string();
    let key = path(server.key());
    for (said, place, says) in [
        (vec![("tls-client-ca", "/nowhere.pem")], "tls-client-ca", "cannot read /nowhere.pem: "),
        (vec![("tls-client-ca", &*path(empty))], "tls-client-ca", "empty.pem: no certificate in it (PEM)"),
        (vec![("tls-client-ca", &*key)], "tls-client-ca", "key.pem: no certificate in it (PEM)"),
        (vec![("tls-client", "required")], "tls-client-ca", "is missing"),
        (vec![("tls-client-ca", &*ca), ("tls-client", "yes")], "tls-client", "required, asked or none"),
        (
            vec![("tls-client-ca", &*ca), ("tls-client-header", "Host")],
            "tls-client-header",
            "such as X-Client-Cert",
        ),
    ] {
        let lines: String = said.iter().map(|(key, value)| format!("{key} = \"{value}\"\n")).collect();
        for before in ["", "[[cache.site]]\nhosts = [\"b.example\"]\n"] {
            let configuration = format!(
                "[cache]\norigin = \"{}\"\ntls-listen = \"127.0.0.1:0\"\ntls-cert = \"{}\"\ntls-key = \"{}\"\n{before}{lines}",
                origin.url(),
                server.file().display(),
                server.key().display()
            );
            let output = Accelerator::configured(&configuration).run_to_its_end();
            let printed = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(3), "{printed}");
            assert!(printed.contains(place) && printed.contains(says), "{place}: {says}: {printed}");
        }
    }
    let alone = Accelerator::before(&origin.url()).flag("--tls-client-ca", &ca).run_to_its_end();
    let printed = String::from_utf8_lossy(&alone.stderr).into_owned();
    assert!(alone.status.code() == Some(3) && printed.contains("tls-cert"), "{printed}");
}
