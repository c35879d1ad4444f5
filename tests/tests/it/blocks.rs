//! Objects in slices: only requested slices are fetched, versions are never mixed, and whole or in part the
//! bytes are the origin's.

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Client, Request, ScriptedOrigin,
    accelerator::Setup,
    byteranges,
    client::{End, Response},
    content::{content, differs},
    on_one_core, on_one_core_and_on_two,
    origin::{Next, Reply, Seen},
};

on_one_core! {
    a39_a_range_fetches_only_the_slices_it_touches,
    a39_conditions_and_heads_are_answered_without_a_block,
    a39_slices_require_a_strong_validator_and_ranges,
    a39_slices_stay_stored_when_the_origin_fails,
    a39_who_does_not_read_has_two_blocks_fetched,
    a39_only_if_cached_asks_nobody,
    blocks_stay_with_their_member,
    ranges_far_apart_fetch_no_blocks,
}

on_one_core_and_on_two! {
    versions_that_differ_again_leave_a_note,
    a39_an_origin_that_ignores_ranges_is_remembered,
    a39_whole_answers_and_ranges_come_from_slices,
    a39_a_block_that_many_want_is_fetched_once,
    a39_blocks_outlive_a_revalidation,
    a39_bytes_of_two_versions_never_mix,
    a39_a_purge_hides_every_block,
    a39_an_object_larger_than_memory_goes_through_it,
    a39_blocks_survive_a_kill,
    a6_several_ranges_come_from_memory_and_slices,
}

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 448 << 10;

/// A film at an origin, in successive versions, which it sends in ranges.
struct Film {
    bytes: u64,
    version: AtomicU64,
    /// Total bytes of 206 bodies.
    sent_in_parts: AtomicU64,
    parts: AtomicUsize,
    /// First byte from which on range requests are answered with 503.
    fails_from: AtomicU64,
    sends_no_parts: AtomicBool,
    max_age_s: u64,
    /// Number of the server; each server has another entity tag for the same bytes.
    server: usize,
}

impl Film {
    fn new(bytes: u64) -> Arc<Self> {
        Self::fresh_for(bytes, 600)
    }

    fn fresh_for(bytes: u64, max_age_s: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            version: AtomicU64::new(0),
            sent_in_parts: AtomicU64::new(0),
            parts: AtomicUsize::new(0),
            fails_from: AtomicU64::new(u64::MAX),
            sends_no_parts: AtomicBool::new(false),
            max_age_s,
            server: 0,
        })
    }

    /// Makes this the film of another server, with entity tags of its own.
    fn of_server(self: Arc<Self>, server: usize) -> Arc<Self> {
        Arc::new(Self { server, ..Arc::into_inner(self).expect("nobody else has it") })
    }

    fn shown_by(self: &Arc<Self>, origin: &ScriptedOrigin) {
        let film = Arc::clone(self);
        origin.on("/film", move |asked, reply| film.answer(asked, reply));
    }

    fn answer(&self, asked: &Seen, reply: &mut Reply<'_>) -> io::Result<Next> {
        let version = self.version.load(Ordering::SeqCst);
        let tag = match self.server {
            0 => format!("\"v{version}\""),
            server => format!("\"v{version}-{server}\""),
        };
        let with = |answer: Answer| {
            answer
                .header("Cache-Control", &format!("max-age={}", self.max_age_s))
                .header("Accept-Ranges", "bytes")
                .header("Content-Type", "video/x-test")
                .header("ETag", &tag)
        };
        if asked.header("if-none-match") == Some(&tag) {
            return reply.answer(&with(Answer::new(304, "")));
        }
        let is_same = asked.header("if-range").is_none_or(|said| said == tag);
        let range = asked.header("range").filter(|_| is_same && !self.sends_no_parts.load(Ordering::SeqCst));
        let Some(range) = range.and_then(|said| part(said, self.bytes)) else {
            let head = with(Answer::until_close(200, "")).header("Content-Length", &self.bytes.to_string());
            reply.send(&head.head_bytes())?;
            let mut at = 0;
            while at < self.bytes && !reply.stopped() {
                let now = (self.bytes - at).min(64 << 10);
                reply.send(&content(version, at, now as usize))?;
                at += now;
            }
            return Ok(Next::Close);
        };
        if range.start >= self.fails_from.load(Ordering::SeqCst) {
            return reply.answer(&Answer::new(503, "not now"));
        }
        self.parts.fetch_add(1, Ordering::SeqCst);
        self.sent_in_parts.fetch_add(range.end - range.start, Ordering::SeqCst);
        let said = format!("bytes {}-{}/{}", range.start, range.end - 1, self.bytes);
        let body = content(version, range.start, (range.end - range.start) as usize);
        reply.answer(&with(Answer::new(206, body)).header("Content-Range", &said))
    }

    fn parts(&self) -> usize {
        self.parts.load(Ordering::SeqCst)
    }
}

fn part(said: &str, complete: u64) -> Option<Range<u64>> {
    let (first, last) = said.strip_prefix("bytes=")?.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    Some(first..(last + 1).min(complete))
}

fn setup(origin: &ScriptedOrigin, cores: &str) -> Setup {
    Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--memory", "64MiB")
        .flag("--blocks-from", "1MiB")
        .flag("--purge-from", "127.0.0.1")
        .flag("--client-cache-control", "obey")
}

fn ranged(range: &str) -> Request {
    Request::get("/film").header("Range", &format!("bytes={range}"))
}

/// Requests a range and checks its bytes.
#[track_caller]
fn expect_part(
    running: &Accelerator,
    range: &str,
    want: Range<u64>,
    version: u64,
    complete: u64,
) -> Response {
    let got = running.fetch(&ranged(range)).expect_status(206).whole();
    let said = format!("bytes {}-{}/{complete}", want.start, want.end - 1);
    assert_eq!(got.header("content-range"), Some(&*said));
    assert_eq!(got.body.len() as u64, want.end - want.start);
    assert_eq!(differs(version, want.start, &got.body), None);
    got
}

fn status_of(response: &Response) -> &str {
    response.header("cache-status").expect("each answer has one")
}

fn a39_a_range_fetches_only_the_slices_it_touches(cores: &str) {
    const BYTES: u64 = 10 << 30;
    let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES));
    film.shown_by(&origin);
    let running = setup(&origin, cores).start();
    let from = BYTES / 2 + 12_345;
    let first = expect_part(&running, &format!("{from}-{}", from + 99), from..from + 100, 0, BYTES);
    assert!(status_of(&first).contains("fwd=uri-miss") && status_of(&first).contains("stored"), "{first:?}");
    assert_eq!((film.parts(), film.sent_in_parts.load(Ordering::SeqCst)), (1, BLOCK));
    // Another request in the same slice does not reach the origin.
    let again = expect_part(&running, &format!("{from}-{}", from + 99), from..from + 100, 0, BYTES);
    assert!(status_of(&again).contains("hit"), "{again:?}");
    assert_eq!(film.parts(), 1);
    // A range across the edge of two slices far behind: two more slices are fetched, and no whole answer.
    let edge = (BYTES / BLOCK - 10) * BLOCK;
    let there = expect_part(&running, &format!("{}-{}", edge - 5, edge + 4), edge - 5..edge + 5, 0, BYTES);
    assert!(status_of(&there).contains("fwd=partial"), "{there:?}");
    assert_eq!(film.parts(), 3);
    // The end of the film.
    expect_part(&running, "-7", BYTES - 7..BYTES, 0, BYTES);
    let whole = origin.seen("/film").iter().filter(|seen| seen.header("range").is_none()).count();
    assert_eq!((film.parts(), whole), (4, 1));
    let stat = running.stat();
    assert_eq!(stat.count("requests.objects_in_blocks"), 1);
    assert_eq!(stat.count("requests.blocks_fetched"), 4);
    let explained = running.ask(&["explain", "http://site.test/film"]);
    let words = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(words.contains("slices of 448 KiB") && words.contains("4 of them"), "{words}");
}

fn a39_whole_answers_and_ranges_come_from_slices(cores: &str) {
    const BYTES: u64 = 7 * BLOCK + 123;
    let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES));
    film.shown_by(&origin);
    let running = setup(&origin, cores).start();
    for turn in 0..3 {
        let whole = running.get("/film").expect_status(200).whole();
        assert_eq!(whole.header("content-length"), Some(&*BYTES.to_string()));
        assert_eq!((whole.body.len() as u64, differs(0, 0, &whole.body)), (BYTES, None));
        assert_eq!(status_of(&whole).contains("hit"), turn > 0, "{whole:?}");
        assert_eq!(film.parts(), 8, "each block once");
    }
    for (range, want) in [
        ("0-0".to_owned(), 0..1),
        ("0-".to_owned(), 0..BYTES),
        ("1-".to_owned(), 1..BYTES),
        ("-1".to_owned(), BYTES - 1..BYTES),
        (format!("-{}", 2 * BYTES), 0..BYTES),
        (format!("{}-{}", BLOCK - 1, BLOCK - 1), BLOCK - 1..BLOCK),
        (format!("{BLOCK}-{BLOCK}"), BLOCK..BLOCK + 1),
        (format!("{}-{}", BLOCK - 1, 3 * BLOCK), BLOCK - 1..3 * BLOCK + 1),
        (format!("{}-{}", 7 * BLOCK, 9 * BLOCK), 7 * BLOCK..BYTES),
        (format!("{}-{}", BYTES - 1, BYTES - 1), BYTES - 1..BYTES),
    ] {
        expect_part(&running, &range, want, 0, BYTES);
    }
    running.fetch(&ranged(&format!("{BYTES}-"))).expect_status(416);
    let same = running.fetch(&ranged("5-9").header("If-Range", "\"v0\"")).expect_status(206).whole();
    assert_eq!(same.body, content(0, 5, 5));
    let other = running.fetch(&ranged("5-9").header("If-Range", "\"v1\"")).expect_status(200).whole();
    assert_eq!((other.body.len() as u64, differs(0, 0, &other.body)), (BYTES, None));
    assert_eq!(film.parts(), 8);
    // Ranges of pipelined requests.
    let mut client = running.connect();
    let mut both = ranged("3-6").bytes();
    both.extend_from_slice(&ranged(&format!("{}-{}", BLOCK, BLOCK + 3)).bytes());
    client.send(&both);
    assert_eq!(client.response("GET").expect_status(206).body, content(0, 3, 4));
    assert_eq!(client.response("GET").expect_status(206).body, content(0, BLOCK, 4));
}

fn a39_conditions_and_heads_are_answered_without_a_block(cores: &str) {
    let (origin, film) = (ScriptedOrigin::start(), Film::new(5 * MIB));
    film.shown_by(&origin);
    let running = setup(&origin, cores).start();
    let head = running.fetch(&Request::new("HEAD", "/film")).expect_status(200);
    assert_eq!(head.header("content-length"), Some(&*(5 * MIB).to_string()));
    assert_eq!(head.header("accept-ranges"), Some("bytes"));
    running.fetch(&Request::get("/film").header("If-None-Match", "\"v0\"")).expect_status(304);
    running.fetch(&ranged("0-4").header("If-None-Match", "\"v0\"")).expect_status(304);
    running.fetch(&ranged(&format!("{}-", 6 * MIB))).expect_status(416);
    assert_eq!((film.parts(), origin.count("/film")), (0, 1));
    let listed = running.ask(&["objects"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("/film") && listed.contains("5.00 MiB"), "{listed}");
    running.get("/film").expect_status(200).whole();
    let listed = running.ask(&["objects", "--json"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(listed.matches("/film").count(), 1, "blocks are not listed: {listed}");
}

fn a39_a_block_that_many_want_is_fetched_once(cores: &str) {
    const CLIENTS: usize = 30;
    const BYTES: u64 = 6 * BLOCK;
    let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES));
    film.shown_by(&origin);
    let running = setup(&origin, cores).start();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| running.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let from = (number as u64 * 91_111) % (2 * BLOCK);
        client.send(&ranged(&format!("{from}-{}", from + BLOCK)).bytes());
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let from = (number as u64 * 91_111) % (2 * BLOCK);
        let got = client.response("GET").expect_status(206).whole();
        assert_eq!((got.body.len() as u64, differs(0, from, &got.body)), (BLOCK + 1, None));
    }
    assert_eq!(film.parts(), 3);
    assert_eq!(origin.seen("/film").iter().filter(|seen| seen.header("range").is_none()).count(), 1);
}

fn a39_blocks_outlive_a_revalidation(cores: &str) {
    const BYTES: u64 = 3 * BLOCK;
    let (origin, film) = (ScriptedOrigin::start(), Film::fresh_for(BYTES, 0));
    film.shown_by(&origin);
    let running = setup(&origin, cores).start();
    for turn in 0..4 {
        let whole = running.get("/film").expect_status(200).whole();
        assert_eq!((whole.body.len() as u64, differs(0, 0, &whole.body)), (BYTES, None));
        assert_eq!(film.parts(), 3, "{turn}");
    }
    let asked = origin.seen("/film");
    let validated = asked.iter().filter(|seen| seen.header("if-none-match") == Some("\"v0\"")).count();
    assert!(validated >= 3, "{asked:?}");
    // With another version, every slice of the old one is out of reach.
    film.version.store(1, Ordering::SeqCst);
    let whole = running.get("/film").expect_status(200).whole();
    assert_eq!((whole.body.len() as u64, differs(1, 0, &whole.body)), (BYTES, None));
    assert_eq!(film.parts(), 6);
}

fn a39_bytes_of_two_versions_never_mix(cores: &str) {
    const BYTES: u64 = 40 * BLOCK;
    let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES));
    film.shown_by(&origin);
    let running = setup(&origin, cores).start();
    // Stored slices of the old version may be served while fresh; when a missing slice is fetched, the change
    // is noticed.
    expect_part(&running, "0-9", 0..10, 0, BYTES);
    let mut client = running.connect();
    client.send(&Request::get("/film").bytes());
    client.head("GET");
    let begun = client.body_exactly(1000);
    assert_eq!(differs(0, 0, &begun), None);
    film.version.store(1, Ordering::SeqCst);
    let (rest, _, end) = client.rest_of_body();
    assert_eq!(differs(0, 1000, &rest), None, "one version or none");
    assert_eq!(end, End::Closed, "{} bytes of {BYTES}", rest.len());
    assert_eq!(running.stat().count("requests.blocks_lost"), 1);
    for _ in 0..2 {
        let whole = running.get("/film").expect_status(200).whole();
        assert_eq!((whole.body.len() as u64, differs(1, 0, &whole.body)), (BYTES, None));
    }
    // A range that is requested during the change gets the new version and is not cut.
    film.version.store(2, Ordering::SeqCst);
    running.fetch(&Request::new("PURGE", "/film")).expect_status(200);
    expect_part(&running, "0-9", 0..10, 2, BYTES);
    film.version.store(3, Ordering::SeqCst);
    let from = 30 * BLOCK;
    expect_part(&running, &format!("{from}-{}", from + 9), from..from + 10, 3, BYTES);
}

fn a39_a_purge_hides_every_block(cores: &str) {
    const BYTES: u64 = 3 * BLOCK;
    let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES));
    film.shown_by(&origin);
    let running = setup(&origin, cores).start();
    running.get("/film").expect_status(200).whole();
    // Other bytes under the same entity tag: a purge says that the stored bytes are wrong.
    running.fetch(&Request::new("PURGE", "/film")).expect_status(200);
    running.get("/film").expect_status(200).whole();
    assert_eq!(film.parts(), 6);
    let purged = running.ask(&["purge", "--all"]);
    assert!(purged.status.success(), "{purged:?}");
    running.get("/film").expect_status(200).whole();
    assert_eq!(film.parts(), 9);
}

fn a39_slices_require_a_strong_validator_and_ranges(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = content(0, 0, 3 << 20);
    let plain = Answer::new(200, &body).header("Cache-Control", "max-age=600");
    for (path, answer) in [
        ("/weak", plain.clone().header("ETag", "W/\"v\"").header("Accept-Ranges", "bytes")),
        ("/none", plain.clone().header("Accept-Ranges", "bytes")),
        ("/date", plain.clone().header("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")),
        ("/no-ranges", plain.clone().header("ETag", "\"v\"")),
        ("/says-none", plain.header("ETag", "\"v\"").header("Accept-Ranges", "none")),
    ] {
        origin.answers(path, answer);
    }
    let running = setup(&origin, cores).start();
    for path in ["/weak", "/none", "/date", "/no-ranges", "/says-none"] {
        for _ in 0..2 {
            assert_eq!(running.get(path).expect_status(200).whole().body, body, "{path}");
        }
        assert!(origin.seen(path).iter().all(|seen| seen.header("range").is_none()), "{path}");
    }
    assert_eq!(running.stat().count("requests.objects_in_blocks"), 0);
}

fn a39_an_origin_that_ignores_ranges_is_remembered(cores: &str) {
    const BYTES: u64 = 5 * BLOCK;
    let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES));
    film.sends_no_parts.store(true, Ordering::SeqCst);
    film.shown_by(&origin);
    let running = setup(&origin, cores).start();
    for _ in 0..4 {
        let whole = running.get("/film").expect_status(200).whole();
        assert_eq!((whole.body.len() as u64, differs(0, 0, &whole.body)), (BYTES, None));
    }
    // The requests are one for the head, one for a slice, and then one for each client.
    assert_eq!(origin.count("/film"), 6);
    let stat = running.stat();
    assert_eq!((stat.count("requests.blocks_fetched"), stat.count("requests.blocks_lost")), (0, 1));
    let last = running.get("/film").whole();
    assert!(status_of(&last).contains("no-ranges"), "{last:?}");
}

fn a39_slices_stay_stored_when_the_origin_fails(cores: &str) {
    const BYTES: u64 = 10 * BLOCK;
    let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES));
    film.fails_from.store(4 * BLOCK, Ordering::SeqCst);
    film.shown_by(&origin);
    let running = setup(&origin, cores).start();
    let cut = running.get("/film");
    assert_eq!((cut.end, cut.body.len() as u64), (End::Closed, 4 * BLOCK), "{}", cut.text_of_head());
    assert_eq!(differs(0, 0, &cut.body), None);
    // A range in the failing part is passed to the origin, and its error passed on.
    running.fetch(&ranged(&format!("{}-{}", 5 * BLOCK, 5 * BLOCK + 3))).expect_status(503);
    film.fails_from.store(u64::MAX, Ordering::SeqCst);
    let whole = running.get("/film").expect_status(200).whole();
    assert_eq!((whole.body.len() as u64, differs(0, 0, &whole.body)), (BYTES, None));
    assert_eq!(film.parts(), 10, "what had come stayed");
}

fn a39_an_object_larger_than_memory_goes_through_it(cores: &str) {
    const BYTES: u64 = 100 * MIB + 7;
    let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES));
    film.shown_by(&origin);
    let running = setup(&origin, cores).flag("--memory", "24MiB").start();
    for _ in 0..2 {
        let mut client = running.connect();
        client.send(&Request::get("/film").bytes());
        client.head("GET");
        let mut at = 0;
        loop {
            match client.body_piece(1 << 20) {
                Ok(piece) => {
                    assert_eq!(differs(0, at, &piece), None);
                    at += piece.len() as u64;
                }
                Err((end, _)) => {
                    assert_eq!((end, at), (End::Complete, BYTES));
                    break;
                }
            }
        }
    }
    let whole = origin.seen("/film").iter().filter(|seen| seen.header("range").is_none()).count();
    assert_eq!(whole, 1, "its head stays, as it is asked for each time");
}

fn a39_who_does_not_read_has_two_blocks_fetched(cores: &str) {
    const BYTES: u64 = 1000 * BLOCK;
    const CLIENTS: u64 = 20;
    let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES));
    film.shown_by(&origin);
    let running = setup(&origin, cores).start();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| running.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&ranged(&format!("{}-", number as u64 * 40 * BLOCK)).bytes());
    }
    for client in &mut clients {
        client.head("GET");
    }
    // Each client causes fetches of the slice that it is sent, of those that fit into the sockets, and of one
    // ahead.
    running.get("/none");
    assert!(film.parts() as u64 <= CLIENTS * 18, "{} parts", film.parts());
    for (number, client) in clients.iter_mut().enumerate().take(3) {
        let piece = client.body_exactly(1000);
        assert_eq!(differs(0, number as u64 * 40 * BLOCK, &piece), None);
    }
}

fn a39_blocks_survive_a_kill(cores: &str) {
    const BYTES: u64 = 20 * BLOCK + 5;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("store");
    let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES));
    film.shown_by(&origin);
    let with_file = || setup(&origin, cores).store_in(&file, "128MiB");
    let mut running = with_file().start().warm();
    let whole = running.get("/film").expect_status(200).whole();
    assert_eq!((whole.body.len() as u64, differs(0, 0, &whole.body)), (BYTES, None));
    tests::eventually("it is on the file", || running.stat().count("store.file_objects") >= 21);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    running.signal(Signal::KILL);
    running.wait();
    let running = with_file().start().warm();
    let before = film.parts();
    let whole = running.get("/film").expect_status(200).whole();
    assert_eq!((whole.body.len() as u64, differs(0, 0, &whole.body)), (BYTES, None));
    assert_eq!(film.parts(), before, "all of it was on the file");
    expect_part(
        &running,
        &format!("{}-{}", 9 * BLOCK - 2, 9 * BLOCK + 1),
        9 * BLOCK - 2..9 * BLOCK + 2,
        0,
        BYTES,
    );
}

fn a39_only_if_cached_asks_nobody(cores: &str) {
    let (origin, film) = (ScriptedOrigin::start(), Film::new(10 * BLOCK));
    film.shown_by(&origin);
    let running = setup(&origin, cores).start();
    expect_part(&running, "0-9", 0..10, 0, 10 * BLOCK);
    let only = |range: &str| running.fetch(&ranged(range).header("Cache-Control", "only-if-cached"));
    assert_eq!(only("5-14").expect_status(206).body, content(0, 5, 10));
    only(&format!("5-{BLOCK}")).expect_status(504);
    assert_eq!((film.parts(), origin.count("/film")), (1, 2));
}

fn a6_several_ranges_come_from_memory_and_slices(cores: &str) {
    const BYTES: u64 = 9 * BLOCK + 1;
    let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES));
    film.shown_by(&origin);
    let small = content(0, 0, 100_000);
    let answer = Answer::new(200, &small).header("Cache-Control", "max-age=600").header("ETag", "\"s\"");
    origin.answers("/small", answer.header("Content-Type", "video/x-test"));
    let running = setup(&origin, cores).start();
    running.get("/small").expect_status(200).whole();
    for (path, complete, ranges) in [
        ("/small", 100_000, vec![(0, 0), (500, 40_999), (99_000, 99_999)]),
        (
            "/film",
            BYTES,
            vec![(7, 9), (BLOCK - 3, BLOCK + 3), (5 * BLOCK, 8 * BLOCK), (BYTES - 1, BYTES - 1)],
        ),
    ] {
        let said: Vec<_> = ranges.iter().map(|(first, last)| format!("{first}-{last}")).collect();
        let said = format!("bytes={}", said.join(", "));
        for _ in 0..2 {
            let request = Request::get(path).header("Range", &said);
            let got = running.fetch(&request).expect_status(206).whole();
            assert_eq!(got.header("content-range"), None);
            let parts = byteranges::parts(&got, complete);
            assert_eq!(parts.len(), ranges.len());
            for (part, (want, last)) in parts.iter().zip(&ranges) {
                assert_eq!(part.content_type.as_deref(), Some("video/x-test"));
                assert_eq!((part.first, part.bytes.len() as u64), (*want, last - want + 1));
                assert_eq!(differs(0, part.first, &part.bytes), None);
            }
        }
        // Ranges out of order get the whole object, adjacent ones are merged, and ranges beyond the end get a
        // 416.
        let ask = |range: &str| running.fetch(&Request::get(path).header("Range", range));
        let back = ask("bytes=1000-1001,0-1").expect_status(200).whole();
        assert_eq!((back.body.len() as u64, differs(0, 0, &back.body)), (complete, None));
        assert_eq!(ask("bytes=0-1,2-3").expect_status(206).whole().body, content(0, 0, 4));
        ask(&format!("bytes={complete}-,{}-", 2 * complete)).expect_status(416);
    }
    // The next answer on the same connection begins in the right place.
    let mut client = running.connect();
    for _ in 0..3 {
        client.send(&Request::get("/small").header("Range", "bytes=0-1,5000-5001").bytes());
        assert_eq!(byteranges::parts(&client.response("GET").expect_status(206), 100_000).len(), 2);
    }
}

/// An origin's servers have different entity tags for the same object, like Apache's tags that are made of
/// inodes; all slices of an object come from one server.
fn blocks_stay_with_their_member(cores: &str) {
    const BYTES: u64 = 20 << 20;
    let servers: Vec<_> = (0..3)
        .map(|server| {
            let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES).of_server(server));
            film.shown_by(&origin);
            (origin, film)
        })
        .collect();
    let urls: Vec<String> = servers.iter().map(|(origin, _)| origin.url()).collect();
    for balance in ["round-robin", "random", "least-busy"] {
        let running =
            Accelerator::before(&urls.join(",")).flag("--cores", cores).flag("--balance", balance).start();
        for _ in 0..3 {
            let (got, end) = whole_film(&running);
            assert_eq!((got, end), (BYTES, End::Complete), "{balance}");
        }
        let stat = running.stat();
        assert_eq!(stat.count("requests.blocks_lost"), 0, "{balance}");
        assert_eq!(
            stat.count("requests.blocks_fetched"),
            BYTES.div_ceil(BLOCK),
            "{balance}: each block once"
        );
    }
    let from: Vec<usize> = servers.iter().map(|(_, film)| film.parts()).collect();
    assert_eq!(from.iter().sum::<usize>() as u64, 3 * BYTES.div_ceil(BLOCK), "{from:?}");
}

/// Fetches the film, and returns the bytes received and the way in which the body ended.
fn whole_film(running: &Accelerator) -> (u64, End) {
    let mut client = running.connect();
    client.send(&Request::get("/film").bytes());
    assert_eq!(client.head("GET").status, 200);
    client.drain_body()
}

/// A film that has another version for each slice is passed on after two attempts.
fn versions_that_differ_again_leave_a_note(cores: &str) {
    const BYTES: u64 = 3 * BLOCK;
    let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES));
    let asked = AtomicU64::new(0);
    let in_origin = Arc::clone(&film);
    origin.on("/film", move |request, reply| {
        // Each answer has a version of its own.
        in_origin.version.store(asked.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        in_origin.answer(request, reply)
    });
    let running = setup(&origin, cores).start();
    let mut whole = 0;
    for _ in 0..6 {
        let mut client = running.connect();
        client.send(&Request::get("/film").bytes());
        assert_eq!(client.head("GET").status, 200);
        whole += u64::from(client.drain_body() == (BYTES, End::Complete));
    }
    assert!(whole >= 4, "{whole} of six came whole");
    let said = running.ask(&["explain", "http://site.test/film"]);
    let words = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(words.contains("different versions"), "{words}");
}

/// A request for 32 ranges of a byte each, in 32 slices, is passed on and fetches no slices.
fn ranges_far_apart_fetch_no_blocks(cores: &str) {
    const BYTES: u64 = 40 * BLOCK;
    let (origin, film) = (ScriptedOrigin::start(), Film::new(BYTES));
    let in_origin = Arc::clone(&film);
    origin.on("/film", move |asked, reply| match asked.header("range") {
        Some(range) if range.contains(',') => {
            let parts = Answer::new(206, "parts").header("ETag", "\"v0\"");
            reply.answer(&parts.header("Content-Type", "multipart/byteranges; boundary=b"))
        }
        _ => in_origin.answer(asked, reply),
    });
    let running = setup(&origin, cores).start();
    let ranges: Vec<String> = (0..32).map(|block| format!("{0}-{0}", block * BLOCK)).collect();
    let got = running.fetch(&ranged(&ranges.join(","))).expect_status(206).whole();
    assert_eq!((got.text().as_str(), film.parts()), ("parts", 0));
    assert!(status_of(&got).contains("detail=range-alone"), "{got:?}");
    // Stored slices are sent from the store, and a few missing ones are fetched as before.
    let two = running.fetch(&ranged(&format!("0-0,{BLOCK}-{BLOCK}"))).expect_status(206).whole();
    assert!(two.header("content-type").is_some_and(|said| said.contains("multipart")), "{two:?}");
    assert_eq!(film.parts(), 2);
}
