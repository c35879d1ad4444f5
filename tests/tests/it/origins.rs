//! Rows A10, A11 and A42 of the features: several servers behind one site, and how requests fare when some of
//! them fail.

use std::{
    collections::HashMap,
    io::{Read as _, Write as _},
    net::SocketAddr,
    os::unix::net::UnixListener,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use tests::{
    Accelerator, Answer, Client, Gate, Request, ScriptedOrigin, accelerator::Setup, certificate::Certificate,
    eventually, on_one_core, on_one_core_and_on_two, origin::NobodyThere,
};

on_one_core! {
    a10_a_page_has_a_server_of_its_own,
    a10_a_backup_serves_when_others_are_down,
    a11_an_unreachable_member_is_ejected_unnoticed,
    a11_what_may_not_be_repeated_is_not,
    a10_a_unix_socket_is_asked,
    a42_tls_with_an_origin_is_verified,
}

on_one_core_and_on_two! {
    a42_a_visitor_stays_with_a_server,
    a42_an_operator_takes_a_server_out,
    a10_servers_take_turns_by_their_weight,
    a10_the_least_busy_server_is_asked,
    a11_a_member_killed_under_load_fails_no_request,
    a10_probes_detect_unhealthy_and_recovered_origins,
}

fn origins(count: usize) -> Vec<ScriptedOrigin> {
    let named = |number: usize| {
        let origin = ScriptedOrigin::start();
        origin.otherwise(move |_, reply| reply.answer(&named(number)));
        origin
    };
    (0..count).map(named).collect()
}

/// A server's answer, its number, which may not be stored.
fn named(number: usize) -> Answer {
    Answer::new(200, number.to_string()).header("Cache-Control", "no-store")
}

fn before(origins: &[ScriptedOrigin], cores: &str) -> Setup {
    let urls: Vec<String> = origins.iter().map(ScriptedOrigin::url).collect();
    Accelerator::before(&urls.join(",")).flag("--cores", cores)
}

/// Name of the server that answers the client's next request.
fn who(client: &mut Client, path: &str) -> String {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: site.test\r\n\r\n").as_bytes());
    client.response("GET").expect_status(200).text()
}

fn counts(client: &mut Client, requests: usize) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for number in 0..requests {
        *counts.entry(who(client, &format!("/{number}"))).or_default() += 1;
    }
    counts
}

fn a10_servers_take_turns_by_their_weight(cores: &str) {
    let origins = origins(3);
    let [a, b, c] = [0, 1, 2].map(|at: usize| origins[at].url());
    let accelerator =
        Accelerator::before(&format!("{a} weight=3, {b},{c} weight=2")).flag("--cores", cores).start();
    let counted = counts(&mut accelerator.connect(), 60);
    let of = |name: &str| counted.get(name).copied().unwrap_or(0);
    // Each core has its own rotation, and a path is asked for by the core that owns it: two rotations that both end
    // in the middle of a turn are off by one.
    let off_max = usize::from(cores != "1");
    let is_fair = |(name, fair): (&str, usize)| of(name).abs_diff(fair) <= off_max;
    assert!([("0", 30), ("1", 10), ("2", 20)].into_iter().all(is_fair), "{counted:?}");
    let said = accelerator.ask(&["origins"]);
    let table = String::from_utf8_lossy(&said.stdout).into_owned();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 4, "{table}");
    let asked = format!(" {} ", of("0"));
    assert!(lines[1].starts_with("up ") && lines[1].contains(&asked) && lines[1].ends_with(&a), "{table}");
}

fn a10_a_page_has_a_server_of_its_own(cores: &str) {
    let mut origins = origins(3);
    let accelerator = before(&origins, cores).flag("--balance", "hash").flag("--eject-after", "1").start();
    let mut client = accelerator.connect();
    let ask = |client: &mut Client| -> Vec<String> {
        (0..40).map(|page| who(client, &format!("/page/{page}"))).collect()
    };
    let first = ask(&mut client);
    assert_eq!(ask(&mut client), first);
    assert_eq!(ask(&mut accelerator.connect()), first, "whoever asks");
    let of = |name: &str| first.iter().filter(|server| *server == name).count();
    assert!([of("0"), of("1"), of("2")].iter().all(|count| *count > 2), "{first:?}");
    // A server that goes leaves the other servers' pages where they are.
    origins.remove(1).kill();
    let moved = ask(&mut client);
    for (before, after) in first.iter().zip(&moved) {
        assert!(after != "1" && (before == "1" || before == after), "{first:?} {moved:?}");
    }
}

fn a10_the_least_busy_server_is_asked(cores: &str) {
    let origins = origins(2);
    let (gate, waiting) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    for (number, origin) in origins.iter().enumerate() {
        let (gate, waiting) = (gate.clone(), Arc::clone(&waiting));
        origin.on("/slow", move |_, reply| {
            waiting.fetch_add(1, Ordering::Relaxed);
            gate.pass();
            reply.answer(&named(number))
        });
    }
    let accelerator = before(&origins, cores).flag("--balance", "least-busy").start();
    let mut clients = Vec::new();
    for number in 0..6 {
        let mut client = accelerator.connect();
        client.send(format!("GET /slow?{number} HTTP/1.1\r\nHost: site.test\r\n\r\n").as_bytes());
        eventually("it is asked", || waiting.load(Ordering::Relaxed) > number);
        clients.push(client);
    }
    gate.open();
    for client in &mut clients {
        client.response("GET").expect_status(200);
    }
    assert_eq!([origins[0].count("/slow"), origins[1].count("/slow")], [3, 3]);
}

fn a10_a_backup_serves_when_others_are_down(cores: &str) {
    let mut origins = origins(2);
    let text = format!("{} backup, {}", origins[0].url(), origins[1].url());
    let accelerator = Accelerator::before(&text).flag("--cores", cores).start();
    let mut client = accelerator.connect();
    assert_eq!(counts(&mut client, 10), HashMap::from([("1".to_owned(), 10)]));
    origins.remove(1).kill();
    assert_eq!(counts(&mut client, 10), HashMap::from([("0".to_owned(), 10)]));
}

fn a11_an_unreachable_member_is_ejected_unnoticed(cores: &str) {
    let nobody = NobodyThere::new();
    let origins = origins(1);
    let accelerator = Accelerator::before(&format!("http://{}, {}", nobody.address(), origins[0].url()))
        .flag("--cores", cores)
        .flag("--eject-after", "3")
        .flag("--eject-time", "1h")
        .start();
    let mut client = accelerator.connect();
    assert_eq!(counts(&mut client, 30), HashMap::from([("0".to_owned(), 30)]));
    let stat = accelerator.stat();
    assert_eq!((stat.count("requests.origin_retries"), stat.count("errors.origin_ejections")), (3, 1));
    // The request body has not been sent by then, so the request can go to another server.
    client.send(b"POST / HTTP/1.1\r\nHost: site.test\r\nContent-Length: 3\r\n\r\nabc");
    client.response("POST").expect_status(200);
    assert_eq!(origins[0].all_seen().pop().expect("it was asked").body, b"abc");
    let table = String::from_utf8_lossy(&accelerator.ask(&["origins"]).stdout).into_owned();
    assert!(table.contains("ejected "), "{table}");
}

fn a11_what_may_not_be_repeated_is_not(cores: &str) {
    let origins = origins(2);
    for origin in &origins {
        for path in ["/broken", "/told"] {
            origin.on(path, move |_, reply| {
                if path == "/told" {
                    reply.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")?;
                }
                Ok(tests::Next::Close)
            });
        }
    }
    let accelerator = before(&origins, cores).start();
    let total = |path: &str| origins[0].count(path) + origins[1].count(path);
    let ask = |method: &str, path: &str| {
        let mut client = accelerator.connect();
        let body = if method == "GET" { "" } else { "Content-Length: 1\r\n" };
        let end = if method == "GET" { "" } else { "x" };
        client.send(format!("{method} {path} HTTP/1.1\r\nHost: site.test\r\n{body}\r\n{end}").as_bytes());
        client.response(method).expect_status(502);
    };
    ask("POST", "/broken");
    assert_eq!(total("/broken"), 1, "it may have been done");
    ask("PUT", "/broken");
    assert_eq!(total("/broken"), 2, "its body has gone");
    ask("GET", "/broken");
    assert_eq!(total("/broken"), 4, "each server once");
    ask("GET", "/told");
    assert_eq!(total("/told"), 1, "the client has heard of it");
}

fn a11_a_member_killed_under_load_fails_no_request(cores: &str) {
    let mut origins = origins(3);
    let address = origins[1].address();
    let accelerator = Arc::new(
        before(&origins, cores)
            .flag("--eject-after", "2")
            .flag("--eject-time", "200ms")
            .flag("--slow-start", "1s")
            .start(),
    );
    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let (accelerator, is_over) = (Arc::clone(&accelerator), Arc::clone(&is_over));
            thread::spawn(move || {
                let mut connection = accelerator.connect();
                let mut asked = 0;
                while !is_over.load(Ordering::Relaxed) {
                    who(&mut connection, &format!("/{client}/{asked}"));
                    asked += 1;
                }
                asked
            })
        })
        .collect();
    let asked = |origin: &ScriptedOrigin| origin.all_seen().len();
    eventually("all are asked", || origins.iter().all(|origin| asked(origin) > 50));
    origins.remove(1).kill();
    eventually("it is left alone", || accelerator.stat().count("errors.origin_ejections") > 0);
    let before = asked(&origins[0]);
    eventually("the others are asked", || asked(&origins[0]) > before + 100);
    let back = ScriptedOrigin::start_at(address);
    back.otherwise(|_, reply| reply.answer(&named(1)));
    eventually("it is asked again", || asked(&back) > 50);
    is_over.store(true, Ordering::Relaxed);
    // A client that saw anything but 200 has panicked.
    let all: usize = clients.into_iter().map(|client| client.join().expect("no errors")).sum();
    assert!(all > 300, "{all}");
}

fn a10_probes_detect_unhealthy_and_recovered_origins(cores: &str) {
    let origins = origins(2);
    let is_well = [Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true))];
    for (origin, is_well) in origins.iter().zip(&is_well) {
        let is_well = Arc::clone(is_well);
        origin.on("/healthz", move |request, reply| {
            assert_eq!(request.header("host"), Some("app.internal"));
            // The status is good, but the content is not.
            let text = if is_well.load(Ordering::Relaxed) { "all systems ready" } else { "still starting" };
            let (first, second) = text.as_bytes().split_at(7);
            reply.answer(&Answer::chunked(200, &[first, second], &[]))
        });
        origin.answers("/stored", Answer::new(200, "kept").header("Cache-Control", "max-age=600"));
    }
    let accelerator = before(&origins, cores)
        .flag("--host", "app.internal")
        .flag("--probe", "/healthz")
        .flag("--probe-interval", "20ms")
        .flag("--probe-window", "4")
        .flag("--probe-threshold", "3")
        .flag("--probe-status", "200")
        .flag("--probe-body", "systems ready")
        .flag("--slow-start", "0s")
        .start();
    let states = || {
        let said = accelerator.ask(&["origins", "--json"]);
        let said: serde_json::Value = serde_json::from_slice(&said.stdout).expect("JSON");
        let state = |at: usize| said["origins"][at]["state"].as_str().expect("a state").to_owned();
        (state(0), state(1))
    };
    let is = |a: &str, b: &str| states() == (a.to_owned(), b.to_owned());
    let mut client = accelerator.connect();
    assert_eq!(who(&mut client, "/stored"), "kept");
    is_well[0].store(false, Ordering::Relaxed);
    eventually("one is sick", || is("sick", "up"));
    assert_eq!(counts(&mut client, 10), HashMap::from([("1".to_owned(), 10)]));
    is_well[1].store(false, Ordering::Relaxed);
    eventually("both are", || is("sick", "sick"));
    let asked = origins[0].count("/x") + origins[1].count("/x");
    let answer = accelerator.get("/x").expect_status(502);
    assert!(answer.text().contains("All of the website"), "{}", answer.text());
    assert_eq!(origins[0].count("/x") + origins[1].count("/x"), asked, "nobody is asked");
    assert_eq!(accelerator.get("/stored").expect_status(200).text(), "kept");
    is_well[0].store(true, Ordering::Relaxed);
    eventually("one is well again", || is("up", "sick"));
    assert_eq!(counts(&mut client, 10), HashMap::from([("0".to_owned(), 10)]));
    let stat = accelerator.stat();
    assert!(stat.count("requests.origin_probes") > stat.count("errors.origin_probes_failed"));
    assert!(stat.count("errors.origin_probes_failed") >= 4);
}

fn a42_a_visitor_stays_with_a_server(cores: &str) {
    let mut origins = origins(3);
    for origin in &origins {
        origin.answers(
            "/stored",
            Answer::new(200, "kept").header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT"),
        );
    }
    let accelerator = before(&origins, cores).flag("--sticky-cookie", "train").start();
    let ask = |path: &str, cookie: Option<&str>| {
        let mut request = Request::get(path);
        if let Some(cookie) = cookie {
            request = request.header("Cookie", &format!("a=b; {cookie}"));
        }
        let answer = accelerator.fetch(&request).expect_status(200);
        let set = answer.header("set-cookie").map(|set| set.split(';').next().expect("one").to_owned());
        (answer.text(), set)
    };
    let (first, cookie) = ask("/", None);
    let cookie = cookie.expect("it is told to stay");
    assert!(cookie.starts_with("train="), "{cookie}");
    for _ in 0..10 {
        assert_eq!(ask("/", Some(&cookie)), (first.clone(), None));
    }
    // A stored answer is shared by all clients without other cookies, and sets no cookie.
    for _ in 0..3 {
        let answer = accelerator.fetch(&Request::get("/stored").header("Cookie", &cookie));
        assert_eq!(answer.expect_status(200).header("set-cookie"), None);
    }
    assert_eq!(origins.iter().map(|origin| origin.count("/stored")).sum::<usize>(), 1);
    // When a server is gone, its clients move to another server and stay there.
    let place: usize = first.parse().expect("its number");
    origins.remove(place).kill();
    let (second, moved) = ask("/", Some(&cookie));
    assert_ne!(second, first);
    let moved = moved.expect("it is told where");
    assert_eq!(ask("/", Some(&moved)), (second, None));
    // A cookie that names no server is replaced.
    assert!(ask("/", Some("train=zz")).1.is_some());
}

fn a42_an_operator_takes_a_server_out(cores: &str) {
    let origins = origins(2);
    let accelerator = before(&origins, cores).flag("--sticky-cookie", "train").start();
    let mut client = accelerator.connect();
    let set = |state: &str| {
        let said = accelerator.ask(&["origins", &origins[0].url(), "--set", state]);
        assert_eq!(String::from_utf8_lossy(&said.stdout), format!("{} set to {state}\n", origins[0].url()));
    };
    let of_first = || {
        let answers = || accelerator.get("/");
        let answer = (0..10).map(|_| answers()).find(|answer| answer.text() == "0").expect("its turn comes");
        answer.header("set-cookie").expect("a cookie").split(';').next().expect("one").to_owned()
    };
    let cookie = of_first();
    let stays = || accelerator.fetch(&Request::get("/").header("Cookie", &cookie)).text();
    set("drain");
    assert_eq!(counts(&mut client, 10), HashMap::from([("1".to_owned(), 10)]), "no new visitors");
    assert_eq!(stays(), "0", "those who stay");
    set("down");
    assert_eq!(stays(), "1", "nobody");
    set("auto");
    assert_eq!(counts(&mut client, 10).len(), 2);
    let said = accelerator.ask(&["origins", "http://nobody.test", "--set", "down"]);
    assert!(!said.status.success());
    assert!(String::from_utf8_lossy(&said.stderr).contains("unknown server"), "{said:?}");
}

fn a10_a_unix_socket_is_asked(cores: &str) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("app.sock");
    let accelerator = Accelerator::before(&format!("unix:{}", path.display())).flag("--cores", cores).start();
    accelerator.get("/").expect_status(502);
    let listener = UnixListener::bind(&path).expect("a socket");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut stream = stream;
                let mut room = [0; 4096];
                while stream.read(&mut room).is_ok_and(|bytes| bytes > 0) {
                    let answer =
                        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nCache-Control: no-store\r\n\r\nunix";
                    let _ = stream.write_all(answer.as_bytes());
                }
            });
        }
    });
    let mut client = accelerator.connect();
    for number in 0..5 {
        assert_eq!(who(&mut client, &format!("/{number}")), "unix");
    }
    assert!(accelerator.stat().count("requests.origin_connects") <= 1, "it is kept");
}

/// An accelerator with TLS, used as an origin server.
fn secured(certificate: &Certificate, origin: &ScriptedOrigin) -> (Accelerator, SocketAddr) {
    let accelerator = Accelerator::before(&origin.url())
        .flag("--name", "inner")
        .flag("--tls-listen", "127.0.0.1:0")
        .flag("--tls-cert", &certificate.file().display().to_string())
        .flag("--tls-key", &certificate.key().display().to_string())
        .start();
    let address = accelerator.secured();
    (accelerator, address)
}

fn a42_tls_with_an_origin_is_verified(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = tests::content::content(5, 0, 3_000_000);
    origin.answers("/large", Answer::new(200, &body).header("Cache-Control", "max-age=600"));
    origin.on("/echo", |request, reply| {
        reply.answer(&Answer::new(200, &request.body).header("Cache-Control", "no-store"))
    });
    let certificate = Certificate::of(&["localhost", "app.internal"]);
    let (_inner, address) = secured(&certificate, &origin);
    let before = |name: Option<&str>, trusted: &Certificate| {
        let mut setup = Accelerator::before(&format!("https://127.0.0.1:{}", address.port()))
            .flag("--cores", cores)
            .flag("--host", "localhost")
            .flag("--origin-tls-ca", &trusted.file().display().to_string());
        if let Some(name) = name {
            setup = setup.flag("--origin-tls-name", name);
        }
        setup.start()
    };
    let accelerator = before(Some("localhost"), &certificate);
    for _ in 0..2 {
        assert!(accelerator.get("/large").expect_status(200).body == body);
    }
    let mut client = accelerator.connect();
    for length in [3, 100_000] {
        let sent = &body[..length];
        let head = format!("POST /echo HTTP/1.1\r\nHost: site.test\r\nContent-Length: {length}\r\n\r\n");
        client.send(&[head.as_bytes(), sent].concat());
        assert!(client.response("POST").expect_status(200).body == sent);
    }
    // The certificate does not cover the origin's address; a certificate of another issuer is not accepted
    // either.
    before(None, &certificate).get("/large").expect_status(502);
    let stranger = Certificate::of(&["localhost"]);
    before(Some("localhost"), &stranger).get("/large").expect_status(502);
    assert_eq!(origin.count("/large"), 1);
}

#[test]
fn a10_what_is_wrong_with_an_origin_is_said() {
    for (flags, said) in [
        (vec!["--origin", "http://a:1,b:2"], "perhaps http://b:2"),
        (vec!["--origin", "http://a:1, http://a:1"], "duplicate server"),
        (vec!["--origin", "http://a:1 backup"], "all servers are backups"),
        (vec!["--origin", "http://a:1", "--balance", "fair"], "round-robin, random, least-busy or hash"),
        (vec!["--origin", "http://a:1", "--probe", "healthz"], "invalid path"),
        (vec!["--origin", "http://a:1", "--probe-status", "fine"], "invalid status"),
        (vec!["--origin", "http://a:1", "--sticky-cookie", "a b"], "invalid cookie name"),
        (
            vec!["--origin", "https://a", "--origin-tls-ca", "/nowhere/ca.pem"],
            "cannot read /nowhere/ca.pem: ",
        ),
        (vec!["--origin", "https://a", "--origin-tls-cert", "/nowhere/c.pem"], "must be set together"),
    ] {
        let flags: Vec<&str> =
            ["cache", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"].into_iter().chain(flags).collect();
        let output = tests::program::command().args(&flags).output().expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(said), "{flags:?}: {told}");
    }
}

#[test]
fn a10_the_guides_commands_work() {
    let Some(output) = tests::guide::run("origins.md") else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.matches("200\n").count(), 6, "{said}");
    let first = said.lines().find(|line| line.ends_with("http://127.0.0.1:3001"));
    assert!(first.is_some_and(|line| line.starts_with("ejected")), "{said}");
    assert!(said.ends_with("\"origin_http2_requests\":1\n"), "{said}");
}

#[test]
fn a42_an_origin_at_an_ipv6_address_works() {
    // A machine may have no IPv6.
    let Ok(listener) = std::net::TcpListener::bind("[::1]:0") else { return };
    let address = listener.local_addr().expect("a bound socket has an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4096];
            let _ = std::io::Read::read(&mut stream, &mut head);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nsix";
            let _ = std::io::Write::write_all(&mut stream, answer);
        }
    });
    let accelerator = Accelerator::before(&format!("http://{address}")).start();
    assert_eq!(accelerator.fetch(&Request::get("/")).expect_status(200).text(), "six");
}
