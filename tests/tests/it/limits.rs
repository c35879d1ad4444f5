//! Limits: how much and how slowly one connection may send, and how much memory all of them may take.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use tests::{
    Accelerator, Answer, Client, Request, ScriptedOrigin, accelerator::Setup, certificate::Certificate,
    connections::connect_with_small_window, content::content, eventually, on_one_core,
    on_one_core_and_on_two,
};

on_one_core! {
    a30_only_readers_below_the_minimum_rate_are_cut,
    a30_a_connection_brings_so_many_requests,
    a30_heads_and_bodies_have_their_measures,
}

on_one_core_and_on_two! {
    a30_idle_connections_make_room_at_the_memory_limit,
    a30_so_many_handshakes_are_under_way,
}

fn before(origin: &ScriptedOrigin, cores: &str) -> Setup {
    Accelerator::before(&origin.url()).flag("--cores", cores)
}

fn site(body: &[u8]) -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.answers("/", Answer::new(200, body).header("Cache-Control", "max-age=600"));
    origin
}

fn narrow(accelerator: &Accelerator) -> TcpStream {
    connect_with_small_window(accelerator.address()).expect("the server listens")
}

fn a30_only_readers_below_the_minimum_rate_are_cut(cores: &str) {
    let body = content(9, 0, 30_000_000);
    let origin = site(&body);
    // A client that reads a megabyte a second is slow, and one that reads a byte each 50 ms is too slow.
    let accelerator = before(&origin, cores)
        .limit("send_rate_min", "100KiB")
        .limit("send_rate_grace", "1s")
        .limit("send_stall_max", "1h")
        .start();
    accelerator.get("/").expect_status(200);
    let ask = |stream: &mut TcpStream| {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n").expect("sent");
    };
    let mut slow = TcpStream::connect(accelerator.address()).expect("connected");
    ask(&mut slow);
    let mut too_slow = narrow(&accelerator);
    ask(&mut too_slow);
    let is_cut = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut left, mut piece) = (3_000_000, [0; 50_000]);
            while left > 0 {
                let read = slow.read(&mut piece).expect("it is served");
                assert!(read > 0, "it is served");
                left -= read.min(left);
                thread::sleep(Duration::from_millis(5));
            }
        });
        scope.spawn(move || {
            // Bytes that arrived earlier can be read for long after the reset.
            let begun = Instant::now();
            let is_over = || is_cut.load(Relaxed) || begun.elapsed() > tests::PATIENCE;
            while !is_over() && too_slow.read(&mut [0; 1]).is_ok_and(|read| read > 0) {
                thread::sleep(Duration::from_millis(50));
            }
        });
        eventually("it is counted", || accelerator.stat().count("limits.send_rate") == 1);
        is_cut.store(true, Relaxed);
    });
    assert_eq!(accelerator.stat().count("limits.send_stall"), 0);
}

fn a30_a_connection_brings_so_many_requests(cores: &str) {
    let origin = site(b"here");
    let certificate = Certificate::of(&["localhost"]);
    let accelerator = before(&origin, cores)
        .flag("--tls-listen", "127.0.0.1:0")
        .flag("--tls-cert", &certificate.file().display().to_string())
        .flag("--tls-key", &certificate.key().display().to_string())
        .limit("requests_per_connection_max", "3")
        .start();
    let mut client = accelerator.connect();
    for number in 1..=3 {
        // The second request is a miss.
        let path = if number == 2 { "/?new" } else { "/" };
        client.send(format!("GET {path} HTTP/1.1\r\nHost: site.test\r\n\r\n").as_bytes());
        let answer = client.response("GET");
        assert_eq!(answer.header("Connection"), (number == 3).then_some("close"), "{number}");
    }
    assert!(client.until_closed().1.is_empty());
    // Requests that were pipelined after the last answer are not answered.
    let mut client = accelerator.connect();
    client.send(&b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n".repeat(5));
    for _ in 0..3 {
        client.response("GET").expect_status(200);
    }
    assert!(client.until_closed().1.is_empty());
    let url = format!("https://localhost:{}/", accelerator.secured().port());
    let output = Command::new("curl")
        .args(["--disable", "--silent", "--http2", "--noproxy", "*", "--max-time", "60", "--cacert"])
        .arg(certificate.file())
        .args(["--write-out", "%{http_version} %{num_connects}\n"])
        .args(vec![&url; 7].into_iter().flat_map(|url| [url.as_str(), "--output", "/dev/null"]))
        .output()
        .expect("curl is installed");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.lines().all(|line| line.starts_with("2 ")), "{output:?}");
    assert_eq!(said.lines().filter(|line| line.ends_with(" 1")).count(), 3, "three connections: {said}");
    assert_eq!(accelerator.stat().count("limits.requests_per_connection"), 4);
}

fn a30_heads_and_bodies_have_their_measures(cores: &str) {
    let origin = site(b"here");
    origin.on("/upload", |_, reply| reply.answer(&Answer::new(200, "taken")));
    let configuration = format!(
        "[cache]\norigin = \"{0}\"\nrequest-line-bytes-max = \"1KiB\"\nrequest-headers-max = 10\n\
         request-body-bytes-max = \"1KiB\"\n[[cache.site]]\nhosts = [\"large.test\"]\norigin = \"{0}\"\n\
         request-body-bytes-max = \"1MiB\"\n",
        origin.url()
    );
    let accelerator = Accelerator::configured(&configuration).flag("--cores", cores).start();
    let with = |count: usize| {
        (1..count).fold(Request::get("/"), |request, number| request.header(&format!("X-{number}"), "y"))
    };
    assert_eq!(accelerator.fetch(&with(10)).status(), 200);
    assert_eq!(accelerator.fetch(&with(11)).status(), 431);
    assert_eq!(accelerator.get(&format!("/?{}", "x".repeat(900))).status(), 200);
    assert_eq!(accelerator.get(&format!("/?{}", "x".repeat(1100))).status(), 414);
    let upload = |host: &str, bytes: usize| {
        let mut client = accelerator.connect();
        let head = format!("POST /upload HTTP/1.1\r\nHost: {host}\r\nContent-Length: {bytes}\r\n\r\n");
        client.send(&[head.as_bytes(), &vec![b'x'; bytes]].concat());
        client.response("POST").status()
    };
    assert_eq!((upload("any.test", 1024), upload("any.test", 1025)), (200, 413));
    assert_eq!((upload("large.test", 100_000), upload("large.test", (1 << 20) + 1)), (200, 413));
    // The limits over HTTP/2.
    let curl = |arguments: &[String]| {
        let output = Command::new("curl")
            .args([
                "--disable",
                "--silent",
                "--http2-prior-knowledge",
                "--noproxy",
                "*",
                "--output",
                "/dev/null",
            ])
            .args(["--write-out", "%{http_code}"])
            .args(arguments)
            .output();
        String::from_utf8(output.expect("curl is installed").stdout).expect("text")
    };
    let url = format!("http://{}/", accelerator.address());
    let many: Vec<String> = (0..11).flat_map(|n| ["--header".to_owned(), format!("X-{n}: y")]).collect();
    assert_eq!(curl(&[many, vec![url.clone()]].concat()), "431");
    assert_eq!(curl(&[format!("{url}?{}", "x".repeat(1100))]), "414");
    assert_eq!(accelerator.stat().count("limits.request_head_bytes"), 4);
}

fn a30_idle_connections_make_room_at_the_memory_limit(cores: &str) {
    let origin = site(b"here");
    // Room for sixteen connections on each core.
    let accelerator = before(&origin, cores).limit("connection_bytes_max", "64KiB").start();
    accelerator.get("/").expect_status(200);
    let mut idle: Vec<Client> = Vec::new();
    for number in 0..200 {
        let mut client = accelerator.connect();
        // A new connection finds room because an idle one has been closed by then, or gets a 503.
        if client.try_send(b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n").is_ok() {
            let status = client.response("GET").status();
            assert!(status == 200 || status == 503, "{number}: {status}");
        }
        idle.push(client);
    }
    let stat = accelerator.stat();
    assert!(stat.count("limits.idle_evicted") > 100, "{stat:?}");
    assert!(stat.count("bytes.connections") <= 2 * (64 << 10), "{stat:?}");
    drop(idle);
    eventually("nothing is counted of who has gone", || accelerator.stat().count("bytes.connections") == 0);
    // Connections that are not idle stay, and new ones are refused.
    let mut busy: Vec<Client> = Vec::new();
    let mut refused = 0;
    for _ in 0..60 {
        let mut client = accelerator.connect();
        _ = client.try_send(b"GET / HTTP/1.1\r\nHost: si");
        busy.push(client);
        refused = accelerator.stat().count("limits.connection_bytes");
    }
    assert!(refused > 0);
    drop(busy);
    eventually("there is room again", || {
        accelerator.stat().count("bytes.connections") == 0 && accelerator.get("/").status() == 200
    });
}

fn a30_so_many_handshakes_are_under_way(cores: &str) {
    let origin = site(b"here");
    let certificate = Certificate::of(&["localhost"]);
    let accelerator = before(&origin, cores)
        .flag("--tls-listen", "127.0.0.1:0")
        .flag("--tls-cert", &certificate.file().display().to_string())
        .flag("--tls-key", &certificate.key().display().to_string())
        .limit("handshakes_max", "4")
        .limit("handshake_time_max", "1h")
        .start();
    let stuck: Vec<TcpStream> =
        (0..40).map(|_| TcpStream::connect(accelerator.secured()).expect("connected")).collect();
    eventually("those beyond are closed", || accelerator.stat().count("limits.handshakes") >= 32);
    assert_eq!(accelerator.stat().count("limits.handshakes_failed"), 0);
    accelerator.get("/").expect_status(200);
    drop(stuck);
    let url = format!("https://localhost:{}/", accelerator.secured().port());
    eventually("there is room again", || {
        let mut curl = Command::new("curl");
        curl.args(["--disable", "--silent", "--noproxy", "*", "--max-time", "60", "--cacert"]);
        curl.arg(certificate.file()).arg(&url).output().expect("curl is installed").stdout == b"here"
    });
}
