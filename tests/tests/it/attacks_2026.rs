//! Attacks on caches and proxies that were published in 2025 and 2026, each with its smallest input. Attacks that older
//! tests already show are in `tests/corpus`, `http2_attacks.rs` and `bad_client.rs`.
//! A test's comment names the publication.

use std::{
    collections::HashSet,
    fs,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use tests::{
    Accelerator, Answer, Client, Nginx, PATIENCE, Request, Response, ScriptedOrigin,
    certificate::Certificate, connections::connect_with_small_window, content::content, on_one_core,
    on_one_core_and_on_two,
};

on_one_core! {
    a_header_bomb_of_an_origin_is_502,
    a_length_that_lies_reaches_no_origin,
    a_target_without_a_path_is_the_root,
    an_origin_is_verified_for_each_name,
    spellings_of_one_page_leave_the_hot_set,
    a_spelling_shares_no_visitors_page,
    an_expectation_never_moves_the_next_request,
}

on_one_core_and_on_two! {
    a_burst_at_the_idle_limit_harms_nobody,
    slow_readers_of_a_large_hit_hold_little,
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PROTOCOL_ERROR: u32 = 1;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Returns a frame of HTTP/2 (RFC 9113 §4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = u32::try_from(payload.len()).expect("short").to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Reads a frame, and returns its kind, flags, stream and payload.
fn read_frame(stream: &mut TcpStream) -> io::Result<(u8, u8, u32, Vec<u8>)> {
    let mut header = [0; 9];
    stream.read_exact(&mut header)?;
    let mut payload = vec![0; u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize];
    stream.read_exact(&mut payload)?;
    Ok((header[3], header[4], u32::from_be_bytes([header[5], header[6], header[7], header[8]]), payload))
}

/// Encodes fields as literals without indexing (RFC 7541 §6.2.2).
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let string = |text: &str| [&[u8::try_from(text.len()).expect("below 127")], text.as_bytes()].concat();
    fields.iter().flat_map(|(name, value)| [vec![0], string(name), string(value)].concat()).collect()
}

/// Returns the process's resident memory.
fn resident_bytes(accelerator: &Accelerator) -> u64 {
    let path = format!("/proc/{}/status", accelerator.pid().as_raw_nonzero());
    let status = fs::read_to_string(path).expect("the process is running");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a resident size");
    let kib = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kib.expect("a number of KiB") << 10
}

fn is_hit(answer: &Response) -> bool {
    answer.header("cache-status").is_some_and(|said| said.contains("; hit"))
}

/// An origin that speaks HTTP/2 in cleartext, answers each stream with the same frames, and never ends a
/// connection.
struct RawOrigin {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl RawOrigin {
    /// Starts the origin; `answer` makes the frames that answer a stream.
    fn start(answer: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let asked = Arc::new(AtomicUsize::new(0));
        let (count, answer) = (Arc::clone(&asked), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (count, answer) = (Arc::clone(&count), Arc::clone(&answer));
                // An error means that the accelerator has ended the connection.
                thread::spawn(move || Self::converse(stream, &count, &*answer));
            }
        });
        Self { address, asked }
    }

    fn converse(
        mut stream: TcpStream,
        count: &AtomicUsize,
        answer: &(impl Fn(u32) -> Vec<u8> + ?Sized),
    ) -> io::Result<()> {
        stream.read_exact(&mut [0; PREFACE.len()])?;
        stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
        loop {
            match read_frame(&mut stream)? {
                (HEADERS, _, id, _) => {
                    count.fetch_add(1, Relaxed);
                    stream.write_all(&answer(id))?;
                }
                (SETTINGS, 0, _, _) => stream.write_all(&frame(SETTINGS, 1, 0, &[]))?,
                _ => {}
            }
        }
    }
}

/// CVE-2026-49975, the HTTP/2 bomb, from an origin: one HPACK entry of 4,000 bytes and 4,000 references of a
/// byte each decode to 16 MB of fields from 8 KB. The answers' streams stay open, so whatever is decoded
/// would be held.
fn a_header_bomb_of_an_origin_is_502(cores: &str) {
    const REQUESTS: usize = 200;
    const HELD_BYTES_MAX: u64 = 32 << 20;
    let entry = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4000]].concat();
    let bomb = [&entry[..], &[0xbe; 4000]].concat();
    let in_the_head = RawOrigin::start({
        let bomb = bomb.clone();
        move |id| frame(HEADERS, END_HEADERS, id, &[&[0x88], &bomb[..]].concat())
    });
    let in_an_interim = RawOrigin::start({
        let bomb = bomb.clone();
        move |id| frame(HEADERS, END_HEADERS, id, &[block(&[(":status", "103")]), bomb.clone()].concat())
    });
    let in_the_trailers = RawOrigin::start(move |id| {
        let head = frame(
            HEADERS,
            END_HEADERS,
            id,
            &[&[0x88], &block(&[("cache-control", "max-age=600")])[..]].concat(),
        );
        let trailers = frame(HEADERS, END_STREAM | END_HEADERS, id, &bomb);
        [head, frame(DATA, 0, id, b"hello"), trailers].concat()
    });
    for (place, origin) in
        [("head", &in_the_head), ("interim answer", &in_an_interim), ("trailers", &in_the_trailers)]
    {
        let setup = Accelerator::before(&format!("http://{}", origin.address)).flag("--cores", cores);
        let accelerator = setup.flag("--origin-protocol", "http2").start();
        let before = resident_bytes(&accelerator);
        let mut clients: Vec<Client> = (0..REQUESTS).map(|_| accelerator.connect()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(&Request::get(&format!("/{number}")).bytes());
        }
        for client in &mut clients {
            let answer = client.response("GET");
            if place == "trailers" {
                // The head has been sent by then, so the answer is visibly cut.
                assert!(answer.end != tests::End::Complete || answer.status() == 502, "{place}: {answer:?}");
            } else {
                assert_eq!(answer.status(), 502, "{place}: {}", answer.text_of_head());
            }
        }
        let growth = resident_bytes(&accelerator).saturating_sub(before);
        assert!(growth < HELD_BYTES_MAX, "{place}: {growth} bytes are held");
        let asked = origin.asked.load(Relaxed);
        assert!(asked >= REQUESTS, "{place}: each was asked for: {asked}");
        assert!(!is_hit(&accelerator.get("/0")), "{place}: nothing of it is stored");
    }
}

/// Returns the result of a stream: the first byte of its field block, or the error code that ended the stream
/// or the connection.
fn outcome(stream: &mut TcpStream, id: u32) -> Result<u8, u32> {
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes[..4].try_into().expect("four bytes"));
    loop {
        match read_frame(stream).expect("an answer") {
            (HEADERS, _, of, payload) if of == id => return Ok(payload[0]),
            (RST_STREAM, _, of, payload) if of == id => return Err(number(&payload)),
            (GOAWAY, _, _, payload) => return Err(number(&payload[4..])),
            _ => {}
        }
    }
}

/// HAProxy's CVE-2026-33555 and its relatives over HTTP/2: a request whose content differs from its declared
/// length (RFC 9113 §8.1.1) never becomes a complete HTTP/1 request, and an origin connection that carried
/// part of it is never used again.
fn a_length_that_lies_reaches_no_origin(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request, reply| {
        let text =
            format!("{} {} {}", request.method, request.target, String::from_utf8_lossy(&request.body));
        reply.answer(&Answer::new(200, text).header("Cache-Control", "no-store"))
    });
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let head = |length: &str, flags: u8| {
        let fields =
            [(":method", "POST"), (":scheme", "http"), (":path", "/lie"), (":authority", "site.test")];
        frame(HEADERS, END_HEADERS | flags, 1, &block(&[&fields[..], &[("content-length", length)]].concat()))
    };
    let data = |bytes: &[u8], flags: u8| frame(DATA, flags, 1, bytes);
    let trailers = || frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&[("x-sum", "1")]));
    let smuggled = b"GET /smuggled HTTP/1.1\r\nHost: site.test\r\n\r\n";
    // In rows with a second part, the origin may have the first part by then.
    let rows: Vec<(&str, Vec<u8>, Vec<u8>)> = vec![
        ("the head ends it", head("5", END_STREAM), vec![]),
        ("an empty frame ends it", head("5", 0), data(b"", END_STREAM)),
        ("trailers end it", head("5", 0), trailers()),
        ("too little", head("5", 0), data(b"abc", END_STREAM)),
        ("too little, and an empty frame", [head("5", 0), data(b"abc", 0)].concat(), data(b"", END_STREAM)),
        ("too little, and trailers", [head("5", 0), data(b"abc", 0)].concat(), trailers()),
        ("too much", head("5", 0), data(b"hello!", END_STREAM)),
        ("too much without an end", head("5", 0), data(b"hello!", 0)),
        ("a request beyond the end", head("5", 0), data(&[b"hello", &smuggled[..]].concat(), END_STREAM)),
        ("a request where nothing is said to be", head("0", 0), data(smuggled, END_STREAM)),
    ];
    let get = [(":method", "GET"), (":scheme", "http"), (":path", "/honest"), (":authority", "site.test")];
    for (what, first, second) in &rows {
        for is_apart in [false, true] {
            if is_apart && *what == "a request where nothing is said to be" {
                // Without content the request is complete and may be answered before the second part arrives.
                continue;
            }
            let mut stream = TcpStream::connect(accelerator.address()).expect("connected");
            stream.set_read_timeout(Some(PATIENCE)).expect("set");
            let begun = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(SETTINGS, 1, 0, &[]), first].concat();
            if is_apart {
                stream.write_all(&begun).expect("sent");
                // Either order is correct; the pause makes both happen.
                thread::sleep(Duration::from_millis(30));
                stream.write_all(second).expect("sent");
            } else {
                stream.write_all(&[&begun[..], second].concat()).expect("sent");
            }
            assert_eq!(outcome(&mut stream, 1), Err(PROTOCOL_ERROR), "{what}, apart: {is_apart}");
            // The error ends the stream only; the connection continues.
            stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, 3, &block(&get))).expect("sent");
            assert_eq!(outcome(&mut stream, 3), Ok(0x88), "{what}: the connection goes on");
            for number in 0..3 {
                let honest = Request::new("POST", &format!("/honest/{number}")).body(b"whole");
                let answer = accelerator.fetch(&honest).expect_status(200);
                assert_eq!(answer.text(), format!("POST /honest/{number} whole"), "{what}");
            }
        }
    }
    let targets: HashSet<String> = origin.all_seen().into_iter().map(|seen| seen.target).collect();
    assert!(!targets.contains("/lie") && !targets.contains("/smuggled"), "{targets:?}");
    // Part of a request may have reached the origin before the error was seen, but no other request may
    // follow it.
    for part in origin.nonsense() {
        assert!(
            part.starts_with("POST /lie ") && !part.contains("honest") && !part.contains("smuggled"),
            "{part}"
        );
    }
}

/// Varnish's VSV00018 and its relatives: a target in absolute form without a path means the root (RFC 9110
/// §4.2.3), in the key and at the origin; for OPTIONS it means the whole server (RFC 9112 §3.2.4).
fn a_target_without_a_path_is_the_root(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request, reply| {
        let text =
            format!("{} {} {}", request.method, request.target, request.header("host").unwrap_or_default());
        reply.answer(&Answer::new(200, text).header("Cache-Control", "max-age=600"))
    });
    let certificate = Certificate::of(&["site.test"]);
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--tls-listen", "127.0.0.1:0")
        .flag("--tls-cert", &certificate.file().display().to_string())
        .flag("--tls-key", &certificate.key().display().to_string())
        .start();
    let over_tls = |method: &str, target: &str| {
        let output = Command::new("curl")
            .args([
                "--disable",
                "--noproxy",
                "*",
                "--silent",
                "--show-error",
                "--max-time",
                "60",
                "--http1.1",
            ])
            .args(["--connect-to", &format!("::127.0.0.1:{}", accelerator.secured().port())])
            .args(["--request", method, "--request-target", target, "--cacert"])
            .arg(certificate.file())
            .args(["--write-out", " %{http_code} %header{cache-status}", "https://site.test/"])
            .output()
            .expect("curl is installed: run tests/install-packages.sh");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let in_the_clear = |method: &str, target: &str| {
        let answer = accelerator.fetch(&Request::new(method, target));
        let status = answer.header("cache-status").unwrap_or_default();
        format!("{} {} {status}", answer.text(), answer.status())
    };
    let rows = |scheme: &str| {
        [
            ("GET", format!("{scheme}://site.test"), "GET / site.test 200", false),
            ("GET", "/".to_owned(), "GET / site.test 200", true),
            ("GET", format!("{scheme}://SITE.test"), "GET / site.test 200", true),
            ("GET", format!("{scheme}://site.test?x"), "GET /?x site.test 200", false),
            ("GET", "/?x".to_owned(), "GET /?x site.test 200", true),
            ("GET", format!("{scheme}://site.test/?x"), "GET /?x site.test 200", true),
            ("GET", format!("{scheme}://site.test?"), "GET /? site.test 200", false),
            ("OPTIONS", "*".to_owned(), "OPTIONS * site.test 200", false),
            ("OPTIONS", format!("{scheme}://site.test"), "OPTIONS * site.test 200", false),
            ("OPTIONS", format!("{scheme}://site.test/"), "OPTIONS / site.test 200", false),
            ("OPTIONS", format!("{scheme}://site.test?x"), "OPTIONS /?x site.test 200", false),
        ]
    };
    for (method, target, right, is_stored) in rows("http") {
        let said = in_the_clear(method, &target);
        assert!(said.starts_with(right), "{method} {target}: {said}");
        assert_eq!(said.contains("; hit"), is_stored, "{method} {target}: {said}");
    }
    for (method, target, right, is_stored) in rows("https") {
        let said = over_tls(method, &target);
        assert!(said.starts_with(right), "{method} {target} under TLS: {said}");
        assert_eq!(said.contains("; hit"), is_stored, "{method} {target} under TLS: {said}");
    }
    // A target of the other scheme belongs to another server.
    assert!(in_the_clear("GET", "https://site.test").contains(" 421 "));
    // OPTIONS over HTTP/2, where no target is in absolute form.
    let mut stream = TcpStream::connect(accelerator.address()).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    let asked = [(":method", "OPTIONS"), (":scheme", "http"), (":path", "*"), (":authority", "h2.test")];
    let asked = frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&asked));
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &asked].concat()).expect("sent");
    assert_eq!(outcome(&mut stream, 1), Ok(0x88));
    let last = origin.all_seen().pop().expect("it was asked");
    assert_eq!((last.target.as_str(), last.header("host")), ("*", Some("h2.test")));
}

/// Varnish's CVE-2026-40396: connections are idle until just before or after their limit and then send two
/// hundred requests at once, while the loop closes them. Each connection gets all its answers in order, or
/// ends without any.
fn a_burst_at_the_idle_limit_harms_nobody(cores: &str) {
    const REQUESTS: usize = 200;
    const IDLE_MS: u64 = 200;
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request, reply| {
        let kept = if request.target.starts_with("/stored") { "max-age=600" } else { "no-store" };
        reply.answer(&Answer::new(200, &request.target).header("Cache-Control", kept))
    });
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("idle_time_max", &format!("{IDLE_MS}ms"))
        .start();
    let target = |number: usize| match number % 20 {
        19 => format!("/passed/{number}"),
        _ => format!("/stored/{}", number % 20),
    };
    let burst: Vec<u8> = (0..REQUESTS).flat_map(|number| Request::get(&target(number)).bytes()).collect();
    let (answered, closed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for round in 0..4 {
        thread::scope(|scope| {
            for client in 0..30 {
                let (accelerator, burst) = (&accelerator, &burst);
                let (answered, closed, target) = (&answered, &closed, &target);
                scope.spawn(move || {
                    let mut connection = accelerator.connect();
                    connection.get("/stored/0").expect_status(200);
                    thread::sleep(Duration::from_millis(IDLE_MS - 20 + round + client * 2));
                    if connection.try_send(burst).is_err() {
                        closed.fetch_add(1, Relaxed);
                        return;
                    }
                    for number in 0..REQUESTS {
                        match connection.try_response("GET") {
                            Some(answer) => {
                                assert_eq!(
                                    answer.expect_status(200).text(),
                                    target(number),
                                    "request {number}"
                                );
                            }
                            None if number == 0 => {
                                closed.fetch_add(1, Relaxed);
                                return;
                            }
                            None => panic!("it was closed after {number} of {REQUESTS} answers"),
                        }
                    }
                    answered.fetch_add(1, Relaxed);
                });
            }
        });
    }
    assert_eq!(answered.load(Relaxed) + closed.load(Relaxed), 120);
    assert_eq!(accelerator.get("/stored/0").expect_status(200).text(), "/stored/0");
}

/// Apache Traffic Server, July 2026: an HTTP/2 connection to an origin, verified for one name, must not be
/// used for another name at the same address.
fn an_origin_is_verified_for_each_name(cores: &str) {
    let certificate = Certificate::of(&["one.test"]);
    let configure = |directory: &str, address: SocketAddr| {
        format!(
            "daemon off; master_process off; pid {directory}/pid;\nevents {{ worker_connections 256; }}\nhttp {{\n\
             access_log off; client_body_temp_path {directory}/b; proxy_temp_path {directory}/p;\n\
             fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;\n\
             server {{ listen {address} ssl http2; ssl_certificate {}; ssl_certificate_key {};\n\
             location / {{ return 200 \"$ssl_server_name\"; }} }} }}\n",
            certificate.file().display(),
            certificate.key().display(),
        )
    };
    let nginx = Nginx::configured(configure, Stdio::null);
    let site = |name: &str| {
        format!(
            "[[cache.site]]\nhosts = [\"{name}\"]\norigin = \"https://{}\"\norigin-tls-name = \"{name}\"\n\
             origin-tls-ca = \"{}\"\n",
            nginx.address(),
            certificate.file().display()
        )
    };
    let accelerator =
        Accelerator::configured(&(site("one.test") + &site("two.test"))).flag("--cores", cores).start();
    let get = |host: &str, path: &str| accelerator.fetch(&Request::get(path).header("Host", host));
    for round in 0..10 {
        let path = format!("/{round}");
        assert_eq!(get("one.test", &path).expect_status(200).text(), "one.test");
        assert_eq!(get("two.test", &path).status(), 502, "its certificate is for one.test");
    }
    let stat = accelerator.stat();
    assert!(stat.count("requests.origin_http2_requests") >= 10, "{:#}", stat.document());
    assert!(stat.count("requests.origin_http2_connects") < 10, "connections are used again");
}

/// Returns all objects from `nighttrain objects --json`.
fn objects(accelerator: &Accelerator) -> Vec<Value> {
    let output = accelerator.ask(&["objects", "--json", "--limit", "10000"]);
    assert!(output.status.success(), "{output:?}");
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    said["objects"].as_array().expect("rows").clone()
}

/// Effect that the spellings of one page had on a store.
struct Overflow {
    /// Percentage of the store that the spellings occupy at the end.
    share: u64,
    /// Percentage of requests for the hot set that were hits meanwhile.
    hits: u64,
}

/// Web Cache Overflow (2026): one page is requested under ever new keys. `spell` makes the spelling of
/// `/page` for a number.
fn overflow(cores: &str, spell: impl Fn(usize) -> String, cookie: impl Fn(usize) -> String) -> Overflow {
    const PAGE: usize = 10_000;
    const HOT: usize = 400;
    const COLD: usize = 2_000;
    const SPELLINGS: usize = 6_000;
    const STORE: u64 = 16 << 20;
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request, reply| {
        reply.answer(
            &Answer::new(200, content(request.target.len() as u64, 0, PAGE))
                .header("Cache-Control", "max-age=600"),
        )
    });
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--memory", "16MiB").start();
    let mut client = accelerator.connect();
    let hot = |number: usize| format!("/hot/{}", number % HOT);
    // A full store: the hot set, a quarter of it, was requested several times, the other pages once.
    for number in 0..COLD {
        client.get(&format!("/cold/{number}")).expect_status(200);
    }
    for number in 0..3 * HOT {
        client.get(&hot(number)).expect_status(200);
    }
    let (mut asked, mut hits) = (0, 0);
    for number in 0..SPELLINGS {
        let request = Request::get(&spell(number)).header("Cookie", &cookie(number));
        client.exchange(&request).expect_status(200);
        if number % 3 == 0 {
            asked += 1;
            hits += u64::from(is_hit(&client.get(&hot(number / 3))));
        }
    }
    let mut share = 0;
    for row in objects(&accelerator) {
        let is_other = row["url"].as_str().is_some_and(|url| url.contains("/hot/") || url.contains("/cold/"));
        share += if is_other { 0 } else { row["body_bytes"].as_u64().expect("a number") };
    }
    Overflow { share: share * 100 / STORE, hits: hits * 100 / asked }
}

/// Web Cache Overflow (2026), measured: the table of `docs/guide/sites.md`, "One page under many addresses".
fn spellings_of_one_page_leave_the_hot_set(cores: &str) {
    let none = |_: usize| "a=b".to_owned();
    // Each letter of the page's name stays, is capitalized or is percent-encoded, so that each number has its
    // own spelling.
    let letters = |number: usize, other: fn(char) -> String| {
        let name = "thepageofallpages".char_indices();
        name.map(|(at, letter)| if number >> at & 1 == 1 { other(letter) } else { letter.to_string() })
            .collect::<String>()
    };
    let rows: [(&str, Overflow); 5] = [
        ("?x=1, ?x=2", overflow(cores, |number| format!("/page?x={number}"), none)),
        (
            "case",
            overflow(
                cores,
                |number| format!("/{}", letters(number, |l| l.to_ascii_uppercase().to_string())),
                none,
            ),
        ),
        (
            "%41",
            overflow(
                cores,
                |number| format!("/{}", letters(number, |l| format!("%{:02x}", u32::from(l)))),
                none,
            ),
        ),
        (
            "//",
            overflow(
                cores,
                |number| format!("/{}page", format!("{number:b}").replace('0', "./").replace('1', "/")),
                none,
            ),
        ),
        ("cookies", overflow(cores, |_| "/page".to_owned(), |number| format!("a={number}"))),
    ];
    for (kind, Overflow { share, hits }) in rows {
        eprintln!("{kind}: {share} % of the store, {hits} % hits of the hot set");
        let (share_max, hits_min) = match kind {
            "?x=1, ?x=2" => (50, 95),
            "cookies" => (1, 95),
            // Each spelling is a different path.
            _ => (85, 30),
        };
        assert!(share <= share_max, "{kind}: {share} % of the store");
        assert!(hits >= hits_min, "{kind}: {hits} % hits of the hot set");
    }
}

/// An origin that decodes targets as many frameworks do, cuts them at the frameworks' delimiters, and shows
/// each visitor their own `/account`; `says` is its `Cache-Control`.
fn decoding_origin(says: Option<&'static str>) -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.otherwise(move |request, reply| {
        let mut decoded = Vec::new();
        let mut rest = request.path().as_bytes();
        while let [first, after @ ..] = rest {
            let code = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
            let code = code.and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|_| *first == b'%');
            decoded.push(code.unwrap_or(*first));
            rest = if code.is_some() { &after[2..] } else { after };
        }
        let mut segments: Vec<&[u8]> = Vec::new();
        let end = decoded.iter().position(|byte| b";?#\n\0".contains(byte)).unwrap_or(decoded.len());
        for segment in decoded[..end].split(|byte| matches!(byte, b'/' | b'\\')) {
            match segment {
                b".." => drop(segments.pop()),
                b"" | b"." => {}
                _ => segments.push(segment),
            }
        }
        let visitor = request.header("cookie").unwrap_or("nobody");
        let text = match &segments[..] {
            [b"account", ..] => format!("account of {visitor}"),
            _ => "for all".to_owned(),
        };
        let answer = Answer::new(200, text);
        reply.answer(&match says {
            Some(says) => answer.header("Cache-Control", says),
            None => answer,
        })
    });
    origin
}

/// Gotta cache 'em all (Doyhenard, 2024) and Caddy's traversals by an encoded slash (August 2026): paths are
/// compared byte by byte, so a rule may miss or match a path that the origin takes for another page. A
/// session's cookie in `bypass-cookies` protects all of them, and a `ttl` shares no visitor's page if the
/// origin could read the path in another way.
fn a_spelling_shares_no_visitors_page(cores: &str) {
    /// Rows of a target, the `path` rule that it matches, and whether the origin takes it for `/account`.
    const ROWS: [(&str, &str, bool); 18] = [
        ("/account", "/account*", true),
        ("/account/x.css", "/account*", true),
        ("/account;x.css", "/account*", true),
        ("/account%0a.css", "/account*", true),
        ("/account%00.css", "/account*", true),
        ("/account%3fx.css", "/account*", true),
        ("/account%23x.css", "/account*", true),
        ("/account%3bx.css", "/account*", true),
        ("/%61ccount", "", true),
        ("//account", "", true),
        ("/static/..%2faccount", "/static/*", true),
        ("/static/%2e%2e/account", "/static/*", true),
        ("/static/../account", "/static/*", true),
        ("/static/..;/account", "/static/*", false),
        ("/static/..%5caccount", "/static/*", true),
        ("/static%2f..%2faccount", "", true),
        ("/static/x/..%2f..%2faccount", "/static/*", true),
        ("/static/x.css", "/static/*", false),
    ];
    let rules = "[[cache.path]]\npath = \"/account*\"\npass = true\n\
                 [[cache.path]]\npath = \"/static/*\"\nttl = \"1h\"\n";
    for has_bypass in [true, false] {
        // With `bypass-cookies`, not even the origin's `public` shares a page. Without it, the origin sends
        // no `Cache-Control` and only a plain path is shared.
        let origin = decoding_origin(has_bypass.then_some("public, max-age=600"));
        let bypass = if has_bypass { "bypass-cookies = [\"session\"]\n" } else { "" };
        let text = format!("[cache]\norigin = \"{}\"\n{bypass}{rules}", origin.url());
        let accelerator = Accelerator::configured(&text).flag("--cores", cores).start();
        let visit = |target: &str, visitor: &str| {
            accelerator.fetch(&Request::get(target).header("Cookie", visitor)).expect_status(200)
        };
        for (target, rule, is_account) in ROWS {
            let said = accelerator.ask(&["explain", "--json", &format!("http://site.test{target}")]);
            let said: Value = serde_json::from_slice(&said.stdout).expect("JSON");
            let steps = said["steps"].as_array().expect("steps");
            let step = steps.iter().find(|step| step["state"] == "site" && step["decision"] == "path");
            let words = step.map_or("", |step| step["words"].as_str().expect("words"));
            assert_eq!(step.is_some(), !rule.is_empty(), "{target}: {said:#}");
            assert!(words.contains(rule), "{target}: {words}");
            let before = origin.all_seen().len();
            let anna = visit(target, "session=anna");
            let ben = visit(target, "session=ben");
            let nobody = accelerator.get(target).expect_status(200);
            let seen = origin.all_seen();
            assert_eq!(seen[before].target, target, "the origin sees what was asked for");
            let page = |visitor: &str| {
                if is_account { format!("account of {visitor}") } else { "for all".to_owned() }
            };
            if has_bypass {
                assert_eq!(anna.text(), page("session=anna"), "{target}");
                assert_eq!(ben.text(), page("session=ben"), "{target}");
                for answer in [&anna, &ben] {
                    let status = answer.header("cache-status").unwrap_or_default();
                    assert!(status.contains("detail=bypass-cookie"), "{target}: {status}");
                }
            }
            if is_account {
                for answer in [&ben, &nobody] {
                    assert_ne!(answer.text(), page("session=anna"), "{target}, bypass-cookies: {has_bypass}");
                }
            }
            if !has_bypass {
                assert_eq!(is_hit(&ben), target == "/static/x.css", "{target}: only a plain path is shared");
            }
        }
        // A target contains no fragment (RFC 9112 §3.2).
        for target in ["/account#x.css", "/static/..#/account"] {
            accelerator.fetch(&Request::get(target)).expect_status(400);
        }
    }
}

/// HTTP/1.1 must die (Kettle, 2025): 0.CL by `Expect` and by ambiguous lengths, with an origin that answers
/// at once and takes the bytes that follow for the next request.
fn an_expectation_never_moves_the_next_request(cores: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    // All bytes received on each connection.
    let came: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let kept = Arc::clone(&came);
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let kept = Arc::clone(&kept);
            let number = {
                let mut all = kept.lock().expect("not poisoned");
                all.push(Vec::new());
                all.len() - 1
            };
            thread::spawn(move || -> io::Result<()> {
                let (mut unread, mut piece) = (Vec::new(), [0; 4096]);
                loop {
                    while let Some(at) = unread.windows(4).position(|end| end == b"\r\n\r\n") {
                        let head = String::from_utf8_lossy(&unread[..at]).into_owned();
                        unread.drain(..at + 4);
                        let target = head.split(' ').nth(1).unwrap_or_default();
                        let answer = Answer::new(200, target).header("Cache-Control", "no-store");
                        stream.write_all(&answer.bytes("GET"))?;
                    }
                    let read = stream.read(&mut piece)?;
                    if read == 0 {
                        return Ok(());
                    }
                    unread.extend_from_slice(&piece[..read]);
                    kept.lock().expect("not poisoned")[number].extend_from_slice(&piece[..read]);
                }
            });
        }
    });
    let accelerator = Accelerator::before(&format!("http://{address}")).flag("--cores", cores).start();
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: site.test\r\nX-A: b";
    let length = smuggled.len();
    // The second field says whether the request is refused as ambiguous.
    let rows = [
        (format!("Expect: 100-continue\r\nContent-Length: {length}"), false),
        (format!("Expect: 100-Continue\r\nContent-Length: {length}"), false),
        (format!("Expect: y 100-continue\r\nContent-Length: {length}"), false),
        (format!("Expect: 100-continue, y\r\nContent-Length: {length}"), false),
        (format!("Expect:\r\nContent-Length: {length}"), false),
        (format!("Expect: 100-continue\r\nExpect: y\r\nContent-Length: {length}"), false),
        (format!("Expect: 100-continue\r\nContent-Length: +{length}"), true),
        (format!("Content-Length: +{length}"), true),
        (format!(" Content-Length: {length}"), true),
        (format!("Content-Length : {length}"), true),
        (format!("Expect: 100-continue\r\n Content-Length: {length}"), true),
        (format!("\tContent-Length: {length}"), true),
        (format!("Content-Length: {length}\r\n\x20"), true),
        (format!("Content-Length:\r\n {length}"), true),
        (format!("Content-Length: {length}\r\nContent-Length: 0"), true),
        (format!("Content-Length: 0, {length}"), true),
    ];
    for (fields, is_refused) in &rows {
        for method in ["POST", "GET"] {
            for is_at_once in [true, false] {
                let head = format!("{method} /early HTTP/1.1\r\nHost: site.test\r\n{fields}\r\n\r\n");
                let mut client = accelerator.connect();
                if is_at_once {
                    client.send(format!("{head}{smuggled}").as_bytes());
                } else {
                    client.send(head.as_bytes());
                }
                let answer = client.response(method);
                assert_eq!(answer.status(), if *is_refused { 400 } else { 200 }, "{method} {fields:?}");
                if *is_refused {
                    assert_eq!(client.until_closed().1, b"", "{method} {fields:?}");
                }
                for number in 0..3 {
                    let target = format!("/victim/{number}");
                    assert_eq!(
                        accelerator.get(&target).expect_status(200).text(),
                        target,
                        "{method} {fields:?}"
                    );
                }
            }
        }
    }
    // On a connection where a request was answered before its content was sent, no other client's request may
    // follow. (An origin that takes the content for a request harms only itself: the accelerator closed the
    // connection.)
    for bytes in came.lock().expect("not poisoned").iter() {
        let text = String::from_utf8_lossy(bytes);
        for (at, _) in text.match_indices("/early ") {
            let behind = &text[at..];
            let head_end = behind.find("\r\n\r\n").expect("a whole head");
            let behind = &behind[head_end + 4..];
            let content = behind.strip_prefix(smuggled).unwrap_or(behind);
            assert!(
                content.is_empty() || behind.len() > content.len(),
                "a request stands where the content of another is due: {text}"
            );
        }
    }
    let all = came.lock().expect("not poisoned").concat();
    let text = String::from_utf8_lossy(&all);
    assert!(!text.contains("Content-Length : ") && !text.contains("+4"), "no length goes on in two readings");
}

/// Apache Traffic Server's idle attack, with answers: ten thousand clients request a stored answer of 100 MB
/// and read a byte now and then. The answer is in memory once; each connection holds only a few KiB.
fn slow_readers_of_a_large_hit_hold_little(cores: &str) {
    // Two runs at once would need more file descriptors than a process usually has.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock();
    const READERS: usize = 10_000;
    const BYTES: usize = 100_000_000;
    /// Default `client-memory`: bytes that clients may make `nighttrain cache` hold.
    const CLIENT_MEMORY: u64 = 236 << 20;
    const READER_BYTES_MAX: u64 = 16 << 10;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).expect("raised");
    let origin = ScriptedOrigin::start();
    let body = content(3, 0, BYTES);
    // Answered in ranges, because files of that length are stored in parts.
    origin.on("/large", move |asked, reply| {
        let range = asked.header("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let answer = match range {
            Some((first, last)) => {
                let (first, last): (usize, usize) =
                    (first.parse().expect("a number"), last.parse().expect("a number"));
                let last = last.min(BYTES - 1);
                let part = Answer::new(206, &body[first..=last]);
                part.header("Content-Range", &format!("bytes {first}-{last}/{BYTES}"))
            }
            None => Answer::new(200, &body),
        };
        let answer = answer.header("Cache-Control", "max-age=6000").header("Accept-Ranges", "bytes");
        reply.answer(&answer.header("ETag", "\"1\""))
    });
    origin.answers("/page", Answer::new(200, "here").header("Cache-Control", "max-age=6000"));
    // The time limits that would cut these readers are off: memory must be bounded without them.
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--memory", "512MiB")
        .limit("connections_max", "11000")
        .limit("send_rate_min", "0B")
        .limit("send_stall_max", "1h")
        .start();
    for target in ["/large", "/page", "/large"] {
        accelerator.get(target).expect_status(200);
    }
    let asked = origin.count("/large");
    let before = resident_bytes(&accelerator);
    let request = Request::get("/large").bytes();
    let mut readers: Vec<TcpStream> = Vec::new();
    for number in 0..READERS {
        let stream = connect_with_small_window(accelerator.address());
        let mut stream = stream.unwrap_or_else(|error| panic!("{number}: {error}"));
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.write_all(&request).expect("sent");
        readers.push(stream);
    }
    let mut most = 0;
    for round in 0..3 {
        for (number, stream) in readers.iter_mut().enumerate() {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{number} in round {round}: {error}"));
        }
        most = most.max(resident_bytes(&accelerator));
        assert_eq!(accelerator.get("/page").expect_status(200).text(), "here", "others are answered");
    }
    let growth = most.saturating_sub(before);
    eprintln!("{READERS} slow readers of {BYTES} bytes: {growth} bytes more are resident");
    assert!(growth < CLIENT_MEMORY && growth < READERS as u64 * READER_BYTES_MAX, "{growth} bytes");
    assert_eq!(accelerator.stat().count("limits.send_rate"), 0, "nobody was cut");
    assert_eq!(origin.count("/large"), asked, "all are answered from the store");
}
