//! Test that the hit path allocates nothing, counted on the loop's own thread, with a real client on a real
//! socket.
//!
//! The core runs on the test's thread, because allocations are counted per thread. The client is another
//! thread. (Reads and writes per hit are counted from outside, by strace, in `tests/tests/it/syscalls.rs`.
//! Lints forbid `Mutex` and `RwLock` in this crate; `engine::cold_mutex::ColdMutex` is for code off this path.)
#![allow(clippy::disallowed_methods, reason = "a client that blocks")]

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use allocations::{Allocations, CountingAllocator};
use engine::{
    cores::{clock, watch::Watch},
    journal::{Journal, Scribe},
    store::{BodyLength, Hash, NewObject},
};

use crate::{
    client::{http1, transport::Transport},
    coding::Coding,
    config::{Config, Methods, Origin, PathRule, Site, SiteRules},
    core::{store_s, test_core, with_core},
    counters::Counter,
    head::response_head::{BLANK, Flags, StoredMeta},
    purging::{
        bans::Ban,
        invalidations::{Invalidation, What},
    },
    request::{client_ip::Peer, dependent::Dependent, key},
    site::SiteTable,
    tags,
};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

const REQUESTS: usize = 2_000;
const WARM_UP: usize = 200;

/// Stores an answer under `http://site/PATH`.
fn store(path: &str, body: &[u8], tail: &[u8]) {
    let mut key = Vec::new();
    assert!(key::of_url(&format!("http://{}{path}", host_before(path)), &SiteTable::default(), &mut key));
    put(
        with_core(|core| core.storage.store.hash(&key)),
        &key,
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nETag: \"tag\"\r\n",
        body,
        tail,
        200,
    );
}

/// Returns the host for a path; a site's path begins with a port.
fn host_before(path: &str) -> &'static str {
    if path.starts_with(':') { "x.site" } else { "site" }
}

fn put(hash: Hash, key: &[u8], head: &[u8], body: &[u8], tail: &[u8], status: u16) {
    insert(hash, key, head, body, tail, meta(head, body, status));
}

fn meta(head: &[u8], body: &[u8], status: u16) -> StoredMeta {
    let now_s = clock::unix_s();
    let is_spec = status == 0;
    StoredMeta {
        // Age and ttl keep their number of digits during the test, however slow the machine is.
        born_s: now_s - 2000,
        date_s: now_s - 2000,
        origin_ms: 200,
        last_modified_s: None,
        body_bytes: Some(body.len() as u64),
        head_bytes: head.len() as u32,
        etag_at: if is_spec { 0 } else { (head.len() as u32).saturating_sub(7) },
        etag_bytes: if is_spec { 0 } else { 5 },
        status,
        flags: if is_spec { Flags::VARY_SPEC } else { Flags::NO_SET_COOKIE },
        lifetime_s: 7000,
        ..BLANK
    }
}

fn insert(hash: Hash, key: &[u8], head: &[u8], body: &[u8], tail: &[u8], meta: StoredMeta) {
    let now_s = clock::unix_s();
    with_core(|core| {
        let body_length = BodyLength::Exact(body.len() as u64);
        let expires_s = store_s(now_s) + 3600;
        let new = NewObject {
            hash,
            key,
            head,
            extra: &tags::section(&(1..=500).collect::<Vec<_>>()),
            meta: meta.pack(),
            body: body_length,
            expires_s,
            now_s: store_s(now_s),
        };
        core.storage.shard.borrow_mut().insert(new, body, tail).expect("room");
    });
}

/// Stores an answer and its encoded variant.
fn store_coded(path: &str, body: &[u8], coded: &[u8]) {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: \"tag\"\r\n";
    let meta = StoredMeta { flags: Flags::MAY_BE_CODED.with(Flags::NO_SET_COOKIE), ..meta(head, body, 200) };
    store_with_twin(path, head, body, meta, Coding::Gzip, coded);
}

/// Stores an answer that its origin sent encoded, and its decoded variant.
fn store_decoded(path: &str, coded: &[u8], body: &[u8]) {
    let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: text/html\r\nETag: \"tag\"\r\n";
    let meta = StoredMeta {
        flags: Flags::MAY_BE_DECODED.with(Flags::NO_SET_COOKIE),
        coding: Coding::Gzip,
        ..meta(head, coded, 200)
    };
    store_with_twin(path, head, coded, meta, Coding::Decoded, body);
}

fn store_with_twin(
    path: &str,
    head: &[u8],
    body: &[u8],
    of_object: StoredMeta,
    coding: Coding,
    content: &[u8],
) {
    let mut key = Vec::new();
    assert!(key::of_url(&format!("http://{}{path}", host_before(path)), &SiteTable::default(), &mut key));
    let hash = with_core(|core| core.storage.store.hash(&key));
    insert(hash, &key, head, body, &[], of_object);
    let sequence =
        with_core(|core| core.storage.shard.borrow().lookup_owned(hash, &key).expect("stored").sequence());
    let twin = with_core(|core| {
        Dependent::Encoded { sequence, coding }.place(hash, &mut key, |key| core.storage.store.hash(key))
    });
    let of_twin = StoredMeta { etag_at: 0, etag_bytes: 0, coding, ..meta(&[], content, 200) };
    insert(twin, &key, &[], content, &[], of_twin);
}

/// Stores the variant for `gzip` of an answer that varies by Accept-Encoding.
fn store_variant(path: &str, body: &[u8]) {
    let mut key = Vec::new();
    assert!(key::of_url(&format!("http://{}{path}", host_before(path)), &SiteTable::default(), &mut key));
    let primary = with_core(|core| core.storage.store.hash(&key));
    put(primary, &key, b"accept-encoding", &[], &[], 0);
    let generation =
        with_core(|core| core.storage.shard.borrow().lookup_owned(primary, &key).expect("stored").sequence());
    let head = b"GET / HTTP/1.1\r\nHost: site\r\nAccept-Encoding: gzip\r\n\r\n";
    let mut slots = wire::http1::head::HeaderSlots::new();
    let parsed =
        wire::http1::head::parse_request(head, &mut slots, &wire::http1::head::HeadLimits::default());
    let Ok(wire::http1::head::Progress::Complete((head, _))) = parsed else { panic!("a valid head") };
    let variant = Dependent::Variant { generation, names: b"accept-encoding", fields: &head.headers };
    let hash = with_core(|core| variant.place(primary, &mut key, |key| core.storage.store.hash(key)));
    put(hash, &key, b"HTTP/1.1 200 OK\r\nVary: Accept-Encoding\r\nETag: \"tag\"\r\n", body, &[], 200);
}

/// Sends `request` `times` times and reads as many answers, each of which must begin with `status` and be as
/// long as the first.
fn ask(stream: &mut TcpStream, request: &[u8], at_once: usize, times: usize, status: &str) {
    let batch = request.repeat(at_once);
    let mut buffer = vec![0; 1 << 20];
    let mut length = 0;
    for _ in 0..times / at_once {
        stream.write_all(&batch).expect("sent");
        let mut have = 0;
        loop {
            let read = stream.read(&mut buffer[have..]).expect("an answer");
            assert!(read > 0, "the connection ended: {}", String::from_utf8_lossy(&buffer[..have]));
            have += read;
            if length == 0 {
                length = whole_answer(&buffer[..have], request.starts_with(b"HEAD"), status).unwrap_or(0);
            }
            if length > 0 && have >= length * at_once {
                break;
            }
        }
        assert_eq!(have, length * at_once, "answers of one length");
        assert!(buffer.starts_with(status.as_bytes()), "{}", String::from_utf8_lossy(&buffer[..200]));
    }
}

/// Returns the length of the first answer, if it is complete.
fn whole_answer(bytes: &[u8], is_head: bool, status: &str) -> Option<usize> {
    let text = String::from_utf8_lossy(bytes);
    let head = text.find("\r\n\r\n")? + 4;
    assert!(text.starts_with(status), "{text}");
    assert!(text[..head].contains("; hit"), "{text}");
    if is_head || status.contains("304") {
        return Some(head);
    }
    if text[..head].contains("chunked") {
        return text.find("\r\nX-Tail: 1\r\n\r\n").map(|at| at + 15);
    }
    let at = text.find("Content-Length: ")? + 16;
    let end = at + text[at..].find('\r')?;
    Some(head + text[at..end].parse::<usize>().expect("a length"))
}

struct Case {
    name: &'static str,
    request: String,
    at_once: usize,
    status: &'static str,
}

fn cases() -> Vec<Case> {
    let browser = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0\r\n\
        Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8\r\n\
        Accept-Language: de-CH,de;q=0.9,en;q=0.8\r\nAccept-Encoding: gzip\r\nReferer: http://site/\r\n\
        Cookie: session=0123456789abcdef; theme=night\r\nSec-Fetch-Dest: document\r\n";
    let get = |path: &str, more: &str| format!("GET {path} HTTP/1.1\r\nHost: site\r\n{more}\r\n");
    let coded_had = format!("{browser}If-None-Match: \"tag-gz\"\r\n");
    let case = |name, request, at_once, status| Case { name, request, at_once, status };
    vec![
        case("a hit of 1 KiB", get("/1k", ""), 1, "HTTP/1.1 200 OK"),
        case("sixteen pipelined", get("/1k", ""), 16, "HTTP/1.1 200 OK"),
        case("a browser's request", get("/1k", browser), 1, "HTTP/1.1 200 OK"),
        case("an absolute target", get("http://site/1k", ""), 1, "HTTP/1.1 200 OK"),
        case("a hit of 64 KiB", get("/64k", browser), 1, "HTTP/1.1 200 OK"),
        case("HEAD", get("/1k", "").replace("GET", "HEAD"), 1, "HTTP/1.1 200 OK"),
        case("304", get("/1k", "If-None-Match: \"other\", W/\"tag\"\r\n"), 1, "HTTP/1.1 304 Not Modified"),
        case("206", get("/64k", "Range: bytes=100-299\r\n"), 1, "HTTP/1.1 206 Partial Content"),
        case("a variant", get("/vary", browser), 1, "HTTP/1.1 200 OK"),
        case("trailers", get("/tail", ""), 1, "HTTP/1.1 200 OK"),
        case("coded", get("/coded", browser), 1, "HTTP/1.1 200 OK"),
        case("coded, sixteen pipelined", get("/coded", browser), 16, "HTTP/1.1 200 OK"),
        case("coded, 304", get("/coded", &coded_had), 1, "HTTP/1.1 304 Not Modified"),
        case("an origin's coding", get("/decoded", browser), 1, "HTTP/1.1 200 OK"),
        case("decoded", get("/decoded", "Accept-Encoding: br\r\n"), 1, "HTTP/1.1 200 OK"),
        case("decoded, sixteen pipelined", get("/decoded", ""), 16, "HTTP/1.1 200 OK"),
        case(
            "decoded, 304",
            get("/decoded", "If-None-Match: \"tag-id\"\r\n"),
            1,
            "HTTP/1.1 304 Not Modified",
        ),
        case("decoded, 206", get("/decoded", "Range: bytes=9-99\r\n"), 1, "HTTP/1.1 206 Partial Content"),
        case("a coding that is not there", get("/coded", "Accept-Encoding: br\r\n"), 1, "HTTP/1.1 200 OK"),
    ]
}

/// Requests to which a site's rules apply without preventing a hit.
fn cases_of_a_site() -> Vec<Case> {
    let head = |target: &str, more: &str| format!("GET {target} HTTP/1.1\r\nHost: X.site:81\r\n{more}\r\n");
    let cookies = "Cookie: _ga=GA1.2.3; consent=yes; theme=night\r\n";
    let case = |name, request| Case { name, request, at_once: 1, status: "HTTP/1.1 200 OK" };
    vec![
        case("a site's hit", head("/1k", cookies)),
        case("sorted and ignored parameters", head("/1k?b=2&utm_source=x&a=1&c&utm_campaign=y&a=0", cookies)),
        case(
            "a variant by cookies that do not count",
            head("/vary", cookies).replace("\r\n\r\n", "\r\nAccept-Encoding: gzip\r\n\r\n"),
        ),
    ]
}

#[test]
fn a34_hits_of_a_site_with_rules_allocate_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .expect("a runtime");
    runtime.block_on(async {
        let origin = Origin::http("127.0.0.1", 9);
        let patterns =
            |names: &[&str]| names.iter().map(|name| name.parse().expect("a pattern")).collect::<Vec<_>>();
        let rules = SiteRules {
            ignore_query: patterns(&["fbclid", "utm_*"]),
            sort_query: true,
            methods: Methods::of(["GET", "HEAD"]).ok(),
            bypass_cookies: Some(patterns(&["session", "wp_*"])),
            bypass_headers: vec!["X-Preview".into()],
            paths: vec![PathRule { pass: true, ..PathRule::of("/admin/*").expect("a path") }],
            ..SiteRules::default()
        };
        let hosts = vec!["*.site".parse().expect("a host")];
        let sites = vec![Site { hosts, origin: origin.clone(), rules }];
        let _inbox = test_core::install_with(Config { sites, ..Config::new(origin) }, 1, 16);
        for path in ["/1k", "/1k?a=1&a=0&b=2&c"] {
            store(&format!(":81{path}"), &[b'x'; 1024], &[]);
        }
        store_variant(":81/vary", &[b'z'; 1024]);
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut allocations = Allocations::new().expect("the counting allocator");
        for case in cases_of_a_site() {
            let counts = measure(&listener, address, &case, &mut allocations).await;
            assert!(counts.is_zero(), "{}: {counts} in {REQUESTS} requests", case.name);
        }
        with_core(|core| {
            let asked = (REQUESTS + WARM_UP) * cases_of_a_site().len();
            assert_eq!(core.observers.counters.value(Counter::Hits), asked as u64);
        });
    });
}

#[test]
fn hits_allocate_nothing() {
    hits_without_allocations(None);
}

#[test]
fn a26_hits_allocate_nothing_while_the_log_is_read() {
    let journal = Journal::create(1, 4 << 20, true).expect("memory");
    hits_without_allocations(Some(journal.scribe()));
    assert!(journal.records() >= (REQUESTS * cases().len()) as u64, "{} records", journal.records());
}

fn hits_without_allocations(scribe: Option<Scribe>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .expect("a runtime");
    runtime.block_on(async {
        let _inbox = test_core::install_logged(Config::new(Origin::http("127.0.0.1", 9)), 1, 16, scribe);
        store("/1k", &[b'x'; 1024], &[]);
        store("/64k", &[b'y'; 65536], &[]);
        store("/tail", b"a body", b"X-Tail: 1\r\n");
        store_variant("/vary", &[b'z'; 1024]);
        store_coded("/coded", &[b'c'; 4096], &[b'g'; 2000]);
        store_decoded("/decoded", &[b'g'; 2000], &[b'd'; 4096]);
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut allocations = Allocations::new().expect("the counting allocator");
        // The cases: before a purge; after purges of other objects; and after two bans, one whose result is
        // remembered, and one that is evaluated each time.
        let ban = |text: &str| What::Ban(Ban::parse(text.as_bytes(), &[]).expect("an expression"));
        for (number, purges) in [
            vec![],
            vec![What::Tags([501].into())],
            vec![
                ban("obj.http.x-none ~ [0-9]{3}"),
                ban("req.http.accept-language ~ ^fr && req.url ~ [0-9]k"),
            ],
        ]
        .into_iter()
        .enumerate()
        {
            for what in purges {
                let number = with_core(|core| core.purges.invalidations.youngest()) + 1;
                let purge = Invalidation { number, what, is_soft: false };
                with_core(|core| core.purges.invalidations.apply(&purge));
            }
            for case in cases() {
                let counts = measure(&listener, address, &case, &mut allocations).await;
                let name = case.name;
                assert!(counts.is_zero(), "{name}, {number}: {counts} in {REQUESTS} requests");
            }
        }
        with_core(|core| {
            let hits = core.observers.counters.value(Counter::Hits);
            let asked =
                |case: &Case| REQUESTS / case.at_once * case.at_once + WARM_UP / case.at_once * case.at_once;
            assert_eq!(hits, 3 * cases().iter().map(asked).sum::<usize>() as u64);
            let coded = cases()
                .into_iter()
                .filter(|case| case.name == "coded" || case.name.starts_with("coded, six"));
            assert_eq!(
                core.observers.counters.value(Counter::HitsCoded),
                3 * coded.map(|case| asked(&case)).sum::<usize>() as u64
            );
            let decoded = cases()
                .into_iter()
                .filter(|case| case.name.starts_with("decoded") && !case.name.ends_with("304"));
            assert_eq!(
                core.observers.counters.value(Counter::HitsDecoded),
                3 * decoded.map(|case| asked(&case)).sum::<usize>() as u64
            );
            let large = cases().into_iter().find(|case| case.name == "a hit of 64 KiB").expect("a case");
            assert_eq!(core.observers.counters.value(Counter::BodiesLent), 3 * asked(&large) as u64);
        });
    });
}

struct TellOnPanic(Arc<tokio::sync::Notify>);

impl Drop for TellOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.notify_one();
        }
    }
}

async fn measure(
    listener: &tokio::net::TcpListener,
    address: SocketAddr,
    case: &Case,
    allocations: &mut Allocations,
) -> allocations::Counts {
    // A `Notify` is the only signal whose receipt neither allocates nor frees.
    let told = Arc::new(tokio::sync::Notify::new());
    let tell = Arc::clone(&told);
    let (go, told_to_go) = std::sync::mpsc::channel();
    let (stop, told_to_stop) = std::sync::mpsc::channel::<()>();
    let (request, at_once, status) = (case.request.clone(), case.at_once, case.status);
    let client = std::thread::spawn(move || {
        // The signal is also sent if the client fails, so that the test does not wait for ever.
        let _failed = TellOnPanic(Arc::clone(&tell));
        let mut stream = TcpStream::connect(address).expect("a connection");
        ask(&mut stream, request.as_bytes(), at_once, WARM_UP / at_once * at_once, status);
        tell.notify_one();
        told_to_go.recv().expect("the test says so");
        ask(&mut stream, request.as_bytes(), at_once, REQUESTS, status);
        tell.notify_one();
        told_to_stop.recv().expect("the test says so");
    });
    let (stream, peer) = listener.accept().await.expect("the client");
    let member = with_core(|core| core.clients.turns.join(peer.ip()));
    let served = tokio::task::spawn_local(async move {
        let peer = Peer::new(peer, false, &[]);
        http1::serve(Transport::plain(stream), Watch::new(), peer, Vec::new(), &member).await
    });
    told.notified().await;
    // A failed send means that the client has failed; joining it shows how.
    let _ = go.send(());
    allocations.mark().expect("this thread");
    told.notified().await;
    let counts = allocations.since_mark().expect("this thread");
    let _ = stop.send(());
    client.join().expect("the client's checks held");
    served.await.expect("the connection ended");
    counts
}
