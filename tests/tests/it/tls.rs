//! TLS with clients (A12): curl and h2load as clients, certificates by name, new certificates while requests
//! are under way, and connections that do not speak TLS.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Command, Output, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Request, ScriptedOrigin, certificate::Certificate, content::content, eventually,
    on_one_core,
};

on_one_core! {
    a12_a13_curl_gets_and_sends_by_every_version,
    a12_each_name_is_shown_its_certificate,
    a12_plain_http_redirects_and_https_sends_hsts,
    a12_a_slow_handshake_ends_and_holds_up_nobody,
}

fn before(origin: &ScriptedOrigin, certificate: &Certificate, cores: &str) -> tests::accelerator::Setup {
    Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--tls-listen", "127.0.0.1:0")
        .flag("--tls-cert", &certificate.file().display().to_string())
        .flag("--tls-key", &certificate.key().display().to_string())
}

fn curl(certificate: &Certificate, port: u16, arguments: &[&str]) -> Output {
    Command::new("curl")
        .args(["--disable", "--noproxy", "*", "--silent", "--show-error", "--fail", "--max-time", "60"])
        .args(["--connect-to", &format!("::127.0.0.1:{port}")])
        .arg("--cacert")
        .arg(certificate.file())
        .args(arguments)
        .output()
        .expect("curl is installed: run tests/install-packages.sh")
}

fn whole(output: Output) -> Vec<u8> {
    assert!(output.status.success(), "curl: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn a12_a13_curl_gets_and_sends_by_every_version(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = content(3, 0, 3_000_000);
    let pieces: Vec<&[u8]> = body.chunks(10_007).collect();
    origin.answers("/large", Answer::new(200, &body).header("Cache-Control", "max-age=600"));
    origin.answers("/chunked", Answer::chunked(200, &pieces, &[]).header("Cache-Control", "max-age=600"));
    origin.answers("/passed", Answer::new(200, &body).header("Cache-Control", "no-store"));
    origin.answers("/small", Answer::new(200, "small").header("Cache-Control", "max-age=600"));
    origin.on("/upload", |request, reply| reply.answer(&Answer::new(200, &request.body)));
    let certificate = Certificate::of(&["www.example.org"]);
    let accelerator = before(&origin, &certificate, cores).start();
    let port = accelerator.secured().port();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("upload");
    std::fs::write(&file, &body).expect("written");
    let upload = format!("@{}", file.display());
    for version in [["--tlsv1.2", "--tls-max", "1.2"], ["--tlsv1.3", "--tls-max", "1.3"]] {
        for http in ["--http1.1", "--http2"] {
            let ask = |path: &str, more: &[&str]| {
                let url = format!("https://www.example.org{path}");
                let arguments = [&version[..], &[http], more, &[url.as_str()]].concat();
                whole(curl(&certificate, port, &arguments))
            };
            for path in ["/large", "/chunked", "/passed", "/large", "/chunked"] {
                assert!(ask(path, &[]) == body, "{version:?} {http} {path}");
            }
            assert_eq!(ask("/small", &[]), b"small");
            assert!(ask("/upload", &["--data-binary", &upload]) == body, "{version:?} {http}");
            assert_eq!(ask("/large", &["--range", "10-19"]), body[10..20]);
            let spoken = ask("/small", &["--write-out", "%{http_version}", "--output", "/dev/null"]);
            assert_eq!(spoken, if http == "--http2" { &b"2"[..] } else { b"1.1" });
            let head = String::from_utf8(ask("/large", &["--head"])).expect("text");
            assert!(head.to_ascii_lowercase().contains("cache-status: nighttrain; hit"), "{head}");
        }
    }
    // Each page was fetched once, for https, over any protocol.
    assert_eq!((origin.count("/large"), origin.count("/chunked"), origin.count("/small")), (1, 1, 1));
    let seen = origin.seen("/small");
    assert_eq!(seen[0].header("X-Forwarded-Proto"), Some("https"));
}

fn a12_each_name_is_shown_its_certificate(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/", Answer::new(200, "here").header("Cache-Control", "max-age=600"));
    let first = Certificate::of(&["first.example"]);
    let second = Certificate::of(&["second.example", "*.second.example"]);
    let pair = |certificate: &Certificate| {
        let (file, key) = (certificate.file(), certificate.key());
        format!("tls-cert = {:?}\ntls-key = {:?}\n", file.display(), key.display())
    };
    let configuration = format!(
        "[cache]\norigin = \"{}\"\ntls-listen = \"127.0.0.1:0\"\n{}\
         [[cache.site]]\nhosts = [\"second.example\", \"*.second.example\"]\n{}",
        origin.url(),
        pair(&first),
        pair(&second)
    )
    .replace("= \"\\\"", "= \"")
    .replace("\\\"\"", "\"");
    let accelerator = Accelerator::configured(&configuration).flag("--cores", cores).start();
    let port = accelerator.secured().port();
    for (certificate, host, is_trusted) in [
        (&first, "first.example", true),
        (&second, "second.example", true),
        (&second, "www.second.example", true),
        (&first, "www.second.example", false),
        (&second, "first.example", false),
        (&first, "nobody.example", false),
    ] {
        let output = curl(certificate, port, &[&format!("https://{host}/")]);
        assert_eq!(
            output.status.success(),
            is_trusted,
            "{host}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    // A name without a certificate gets the first certificate, which a client without verification accepts.
    assert_eq!(whole(curl(&first, port, &["--insecure", "https://nobody.example/"])), b"here");
    // A request for another certificate's host, on a connection for this one.
    let other = ["--http2", "--header", "Host: first.example", "https://second.example/"];
    let output = curl(&second, port, &other);
    assert!(String::from_utf8_lossy(&output.stderr).contains("421"), "{output:?}");
    let covered = ["--http2", "--header", "Host: www.second.example", "https://second.example/"];
    assert_eq!(whole(curl(&second, port, &covered)), b"here");
    assert_eq!(accelerator.stat().count("requests.misdirected"), 1);
}

fn a12_plain_http_redirects_and_https_sends_hsts(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/", Answer::new(200, "here").header("Cache-Control", "max-age=600"));
    let own = Answer::new(200, "own").header("Cache-Control", "max-age=600");
    origin.answers("/own", own.header("strict-transport-security", "max-age=5"));
    let certificate = Certificate::of(&["localhost"]);
    let setup = before(&origin, &certificate, cores).limit("https_only", "true").flag("--hsts", "1h");
    let accelerator = setup.flag("--trusted-proxies", "127.0.0.1").start();
    let port = accelerator.secured().port();
    for (method, host, target, status, location) in [
        ("GET", "a.example", "/x?y=1", 301, "https://a.example/x?y=1".to_owned()),
        ("POST", "a.example", "/", 308, "https://a.example/".to_owned()),
        ("GET", "a.example:8080", "/", 301, format!("https://a.example:{port}/")),
        ("GET", "[::1]:80", "/", 301, format!("https://[::1]:{port}/")),
    ] {
        let answer =
            accelerator.fetch(&Request::new(method, target).header("Host", host)).expect_status(status);
        assert_eq!(answer.header("Location"), Some(location.as_str()));
        assert_eq!(answer.header("Strict-Transport-Security"), None, "RFC 6797 §7.2");
    }
    assert!(origin.all_seen().is_empty());
    // A trusted proxy that terminates TLS sets `X-Forwarded-Proto`.
    let behind = Request::get("/").header("Host", "a.example").header("X-Forwarded-Proto", "https");
    assert_eq!(accelerator.fetch(&behind).expect_status(200).text(), "here");
    for http in ["--http1.1", "--http2"] {
        for (path, says) in
            [("/", "max-age=3600"), ("/", "max-age=3600"), ("/own", "max-age=5"), ("/own", "max-age=5")]
        {
            let url = format!("https://localhost:{port}{path}");
            let head =
                String::from_utf8(whole(curl(&certificate, port, &[http, "--head", &url]))).expect("text");
            let told: Vec<_> = head
                .lines()
                .filter(|line| line.to_ascii_lowercase().starts_with("strict-transport-security:"))
                .collect();
            assert_eq!(told.len(), 1, "{head}");
            assert!(told[0].ends_with(says), "{head}");
        }
    }
    let said = accelerator.ask(&["explain", "http://a.example/"]);
    assert!(String::from_utf8_lossy(&said.stdout).contains("https only"), "{said:?}");
}

#[test]
fn a12_a_hundred_reloads_under_load_fail_no_request() {
    let origin = ScriptedOrigin::start();
    origin.answers("/", Answer::new(200, content(1, 0, 1000)).header("Cache-Control", "max-age=600"));
    let certificate = Certificate::of(&["localhost"]);
    let cores = tests::cores(2).or_else(|| tests::cores(1)).expect("a processor");
    let accelerator = before(&origin, &certificate, &cores).start();
    let url = format!("https://{}/", accelerator.secured());
    // Connections that stay open, and connections that are opened all the time.
    let load = |arguments: &[&str]| {
        Command::new("h2load").args(arguments).arg(&url).stdout(Stdio::piped()).spawn().expect("h2load")
    };
    let mut staying = load(&["-D", "4", "-c", "4", "-m", "4"]);
    let mut coming = 0;
    for round in 0..100 {
        if round % 3 == 0 {
            certificate.renew(&["localhost"]);
        }
        accelerator.signal(Signal::HUP);
        let output = load(&["-n", "4", "-c", "2"]).wait_with_output().expect("it ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("4 succeeded, 0 failed, 0 errored, 0 timeout"), "{text}");
        coming += 1;
    }
    assert_eq!(coming, 100);
    let mut text = String::new();
    staying.stdout.take().expect("piped").read_to_string(&mut text).expect("text");
    staying.wait().expect("it ends");
    assert!(text.contains(" 0 failed, 0 errored, 0 timeout"), "{text}");
    // The last certificate is presented.
    eventually("the last certificate is shown", || {
        let arguments = [&format!("https://localhost:{}/", accelerator.secured().port()) as &str];
        curl(&certificate, accelerator.secured().port(), &arguments).status.success()
    });
}

#[test]
fn a12_a_bad_certificate_leaves_the_old_one() {
    let origin = ScriptedOrigin::start();
    origin.answers("/", Answer::new(200, "here").header("Cache-Control", "max-age=600"));
    let certificate = Certificate::of(&["localhost"]);
    let kept = std::fs::read(certificate.file()).expect("there");
    let accelerator = before(&origin, &certificate, &tests::cores(1).expect("a processor")).start();
    let port = accelerator.secured().port();
    std::fs::write(certificate.file(), "no certificate").expect("written");
    accelerator.signal(Signal::HUP);
    eventually("it says what is wrong", || {
        accelerator.printed().contains("cert.pem: no certificate in it (PEM)")
    });
    std::fs::write(certificate.file(), kept).expect("written");
    assert_eq!(whole(curl(&certificate, port, &[&format!("https://localhost:{port}/")])), b"here");
}

#[test]
fn a12_unusable_certificates_are_reported_at_the_start() {
    let origin = ScriptedOrigin::start();
    let (one, other) = (Certificate::of(&["a"]), Certificate::of(&["b"]));
    let path = |path: std::path::PathBuf| path.display().to_string();
    let nowhere = path(one.file().with_file_name("nowhere.pem"));
    for (certificate, key, says) in [
        (path(one.file()), path(other.key()), "key.pem: keys may not be consistent"),
        (nowhere.clone(), path(one.key()), "nowhere.pem: No such file"),
        (path(one.file()), nowhere, "nowhere.pem: No such file"),
        (path(one.key()), path(one.key()), "key.pem: no certificate in it (PEM)"),
        (path(one.file()), path(one.file()), "cert.pem: no private key in it (PEM)"),
    ] {
        let setup = Accelerator::before(&origin.url()).flag("--tls-listen", "127.0.0.1:0");
        let output = setup.flag("--tls-cert", &certificate).flag("--tls-key", &key).run_to_its_end();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(
            said.contains(says) || says.contains("consistent") && said.contains(" with "),
            "{says}: {said}"
        );
    }
    let output = Accelerator::before(&origin.url()).flag("--tls-listen", "127.0.0.1:0").run_to_its_end();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(3) && said.contains("tls-cert"), "{said}");
}

fn a12_a_slow_handshake_ends_and_holds_up_nobody(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/", Answer::new(200, "here").header("Cache-Control", "max-age=600"));
    let certificate = Certificate::of(&["localhost"]);
    let accelerator = before(&origin, &certificate, cores).limit("request_head_time_max", "300ms").start();
    let secured = accelerator.secured();
    let mut stuck: Vec<TcpStream> =
        (0..40).map(|_| TcpStream::connect(secured).expect("connected")).collect();
    for (number, stream) in stuck.iter_mut().enumerate() {
        // No byte; the beginning of a ClientHello; plain HTTP; garbage.
        let begun: &[u8] = match number % 4 {
            0 => b"",
            1 => &[0x16, 3, 1, 2, 0, 1, 0],
            2 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            _ => &[0xff; 100],
        };
        stream.write_all(begun).expect("sent");
    }
    let url = format!("https://localhost:{}/", secured.port());
    assert_eq!(whole(curl(&certificate, secured.port(), &[&url])), b"here");
    for mut stream in stuck {
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let mut rest = Vec::new();
        // A reset ends the connection too.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.len() < 100, "an alert at most");
    }
    eventually("each is counted", || accelerator.stat().count("limits.handshakes_failed") == 40);
    assert_eq!(whole(curl(&certificate, secured.port(), &[&url])), b"here");
}

/// The commands of `docs/guide/tls.md` do what the guide says.
#[test]
fn a12_the_guides_commands_work() {
    let Some(output) = tests::guide::run("tls.md") else { return };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("HTTP/2 200"), "{said}");
}
