//! Several accelerators that share keys make one fetch.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use tests::{
    Accelerator, Answer, Gate, Next, Request, Response, ScriptedOrigin,
    accelerator::Setup,
    content::{content, differs},
    eventually,
    nats_cluster::{NatsCluster, Way},
    on_one_core, on_one_core_and_on_two,
    origin::{Reply, Seen},
    pebble::free_ports,
    siege::server::connect_as_guest,
};

on_one_core! {
    a38_private_requests_bypass_the_peers,
    a38_a_peer_that_is_killed_is_nobodys_error,
    a38_the_answer_of_a_dead_peer_is_resumed,
    a38_a_stopped_peer_is_skipped_until_its_return,
    a38_the_answer_of_a_silent_peer_is_resumed,
}

on_one_core_and_on_two! {
    a38_blocks_are_fetched_once_for_all,
    a38_the_owner_fetches_and_repeated_answers_are_kept,
    a38_many_clients_of_three_instances_are_one_fetch,
    a38_what_varies_is_fetched_once_for_each_variant,
    a38_a_large_object_comes_through_its_owner,
    a38_a_visitor_sees_what_it_has_changed,
    a38_tags_come_with_what_they_are_of,
}

const NAMES: [&str; 3] = ["a", "b", "c"];
const SECRET: &str = "what three of them know, and no others";

/// Accelerators that share keys, in front of one origin.
struct Sharing {
    all: Vec<Accelerator>,
    _secret: tempfile::NamedTempFile,
}

fn secret() -> tempfile::NamedTempFile {
    let mut secret = tempfile::NamedTempFile::new().expect("a file");
    writeln!(secret, "{}", SECRET.replace(' ', "-")).expect("written");
    secret
}

fn with_peers(setup: Setup, secret: &tempfile::NamedTempFile) -> Setup {
    // A busy machine must not make a test's peer count as unreachable.
    setup.flag("--peers-secret", secret.path().to_str().expect("a path")).flag("--peers-patience", "20s")
}

fn start(origin: &ScriptedOrigin, cores: &str) -> Sharing {
    start_with(origin, cores, |setup| setup)
}

fn start_with(origin: &ScriptedOrigin, cores: &str, more: impl Fn(Setup) -> Setup) -> Sharing {
    start_through(origin, cores, more, |at| at)
}

/// Starts them with proxies: each peer is reached at the address that `way_to` returns.
fn start_through(
    origin: &ScriptedOrigin,
    cores: &str,
    more: impl Fn(Setup) -> Setup,
    mut way_to: impl FnMut(SocketAddr) -> SocketAddr,
) -> Sharing {
    let (ports, secret): ([u16; 3], _) = (free_ports(), secret());
    let addresses: Vec<_> = ports.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))).collect();
    let asked_at: Vec<_> = addresses.iter().map(|at| way_to(*at)).collect();
    let members: Vec<_> = NAMES.iter().zip(&asked_at).map(|(name, at)| format!("{name}={at}")).collect();
    let one = |(at, asked_at): (&SocketAddr, &SocketAddr)| {
        let setup = Accelerator::before(&origin.url())
            .flag("--cores", cores)
            .flag("--purge-from", "127.0.0.1")
            .flag("--peers-listen", &at.to_string())
            .flag("--peers-address", &asked_at.to_string())
            .flag("--peers-members", &members.join(","));
        more(with_peers(setup, &secret)).start()
    };
    Sharing { all: addresses.iter().zip(&asked_at).map(one).collect(), _secret: secret }
}

/// Returns the name of the instance that owns the key of a path.
fn owner(instance: &Accelerator, path: &str) -> String {
    let output = instance.ask(&["explain", "--json", &format!("http://site.test{path}")]);
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let steps = said["steps"].as_array().expect("steps").clone();
    let step = steps.iter().find(|step| step["state"] == "owner").unwrap_or_else(|| panic!("{said:#}"));
    step["name"].as_str().expect("a name").to_owned()
}

impl Sharing {
    /// Returns a path whose key belongs to this instance.
    fn path_of(&self, index: usize, prefix: &str) -> String {
        let mut paths = (0..).map(|number| format!("/{prefix}{number}"));
        paths.find(|path| owner(&self.all[0], path) == NAMES[index]).expect("there is one")
    }

    fn count(&self, index: usize, what: &str) -> u64 {
        self.all[index].stat().count(what)
    }

    fn sum(&self, what: &str) -> u64 {
        (0..self.all.len()).map(|index| self.count(index, what)).sum()
    }
}

/// Returns whether the instance that answered the client had a hit: it writes the last entry of
/// `Cache-Status`.
fn is_hit(response: &Response) -> bool {
    response.head.headers.joined("cache-status").rsplit(',').next().is_some_and(|last| last.contains("; hit"))
}

fn page(text: &str) -> Answer {
    Answer::new(200, text).header("Cache-Control", "max-age=600").header("ETag", &format!("\"{text}\""))
}

fn peers(instance: &Accelerator) -> Value {
    let said: Value = serde_json::from_slice(&instance.admin_get("/cluster").body).expect("JSON");
    said["peers"].clone()
}

fn standing(instance: &Accelerator, name: &str) -> String {
    let all = peers(instance);
    let peer = all.as_array().expect("a list").iter().find(|peer| peer["name"] == name);
    peer.map_or(String::new(), |peer| peer["standing"].as_str().expect("a word").to_owned())
}

fn a38_the_owner_fetches_and_repeated_answers_are_kept(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|_, reply| reply.answer(&page("hello")));
    let sharing = start(&origin, cores);
    for (index, name) in NAMES.iter().enumerate() {
        let (x, y) = ((index + 1) % 3, (index + 2) % 3);
        let path = sharing.path_of(index, "page");
        for one in &sharing.all {
            assert_eq!(owner(one, &path), *name, "all see the same");
        }
        let first = sharing.all[x].get(&path).expect_status(200);
        assert_eq!(first.text(), "hello");
        assert_eq!(origin.count(&path), 1);
        // The answer came through the owner, which has added its `Via`, too.
        assert_eq!(first.head.headers.joined("via").split(',').count(), 2, "{}", first.text_of_head());
        assert!(first.head.headers.first("nighttrain-peer").is_none(), "that was for us alone");
        assert!(is_hit(&sharing.all[index].get(&path).expect_status(200)), "its owner has stored it");
        // On the first request the instance does not keep the answer; on the second it does.
        let second = sharing.all[x].get(&path).expect_status(200);
        assert!(!is_hit(&second), "{}", second.text_of_head());
        let third = sharing.all[x].get(&path).expect_status(200);
        assert!(is_hit(&third), "{}", third.text_of_head());
        assert_eq!(sharing.all[y].get(&path).expect_status(200).text(), "hello");
        assert_eq!(origin.count(&path), 1, "one fetch for all");
    }
    assert_eq!(sharing.sum("cluster.peers_hits"), 6, "the second time, and the other one, of each page");
    assert_eq!(sharing.sum("cluster.peers_not_kept"), 6);
    assert_eq!(sharing.sum("cluster.peers_failures"), 0);
    assert!(sharing.sum("cluster.peers_served") >= 9);
    let all = peers(&sharing.all[0]);
    assert_eq!(all.as_array().map(Vec::len), Some(3), "{all}");
    assert_eq!((standing(&sharing.all[0], "a"), standing(&sharing.all[0], "b")), ("own".into(), "up".into()));
    let table = String::from_utf8(sharing.all[0].ask(&["stat"]).stdout).expect("text");
    assert!(table.contains("(this one)"), "{table}");
    let metrics = sharing.all[0].admin_get("/metrics").text();
    assert!(metrics.contains("cache_peer_up{peer=\"b\"} 1"), "{metrics}");
}

/// Sends `each` requests for a path to every instance, each on a thread of its own, and returns the threads.
fn ask_all(sharing: &Sharing, path: &str, each: usize) -> Vec<thread::JoinHandle<Response>> {
    let mut asking = Vec::new();
    for one in &sharing.all {
        for _ in 0..each {
            let (address, request) = (one.address(), Request::get(path));
            asking.push(thread::spawn(move || tests::client::fetch(address, &request)));
        }
    }
    asking
}

/// Starts an origin that answers with a page of this content once its gate is open.
fn held_origin(content: &'static str) -> (ScriptedOrigin, Gate) {
    let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
    let held = gate.clone();
    origin.otherwise(move |_, reply| {
        held.pass();
        reply.answer(&page(content))
    });
    (origin, gate)
}

fn a38_many_clients_of_three_instances_are_one_fetch(cores: &str) {
    // A thousand clients in all, from one address.
    const EACH: usize = 334;
    let (origin, gate) = held_origin("slow");
    let sharing = start_with(&origin, cores, |setup| setup.flag("--connections-per-client-max", "0"));
    let asking = ask_all(&sharing, "/slow", EACH);
    for one in &sharing.all {
        eventually("all have come", || one.stat().count("requests.received") >= EACH as u64);
    }
    eventually("the origin is asked", || origin.count("/slow") == 1);
    gate.open();
    for client in asking {
        let response = client.join().expect("no thread panics").expect_status(200);
        assert_eq!(response.text(), "slow");
    }
    assert_eq!(origin.count("/slow"), 1);
    assert_eq!(sharing.sum("cluster.peers_failures"), 0);
}

fn a38_what_varies_is_fetched_once_for_each_variant(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|seen, reply| {
        let of = seen.header("x-kind").unwrap_or("none").to_owned();
        reply.answer(&page(&of).header("Vary", "X-Kind"))
    });
    let sharing = start(&origin, cores);
    let path = sharing.path_of(0, "kinds");
    for _ in 0..4 {
        for one in &sharing.all {
            for kind in ["red", "blue"] {
                let response = one.fetch(&Request::get(&path).header("X-Kind", kind)).expect_status(200);
                assert_eq!(response.text(), kind);
                assert!(response.head.headers.joined("vary").to_ascii_lowercase().contains("x-kind"));
            }
        }
    }
    assert_eq!(origin.count(&path), 2);
    // A purge drops all variants on all instances. The owner of the key is purged first, because the others
    // ask it.
    for one in &sharing.all {
        one.fetch(&Request::new("PURGE", &path)).expect_status(200);
    }
    for one in &sharing.all {
        assert_eq!(one.fetch(&Request::get(&path).header("X-Kind", "red")).expect_status(200).text(), "red");
    }
    assert_eq!(origin.count(&path), 3);
}

/// Returns the script of a film, which is sent whole or in ranges.
fn film(bytes: usize) -> impl Fn(&Seen, &mut Reply<'_>) -> io::Result<Next> + Send + Sync + 'static {
    move |seen, reply| {
        let answer = |status, body: Vec<u8>| {
            Answer::new(status, body)
                .header("Cache-Control", "max-age=600")
                .header("Accept-Ranges", "bytes")
                .header("ETag", "\"film\"")
        };
        match part(seen, bytes) {
            None => reply.answer(&answer(200, content(1, 0, bytes))),
            Some((first, last)) => {
                let said = format!("bytes {first}-{last}/{bytes}");
                let body = content(1, first as u64, last + 1 - first);
                reply.answer(&answer(206, body).header("Content-Range", &said))
            }
        }
    }
}

/// Returns the first and the last byte of the requested range.
fn part(seen: &Seen, bytes: usize) -> Option<(usize, usize)> {
    let (first, last) = seen.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, last.parse().unwrap_or(bytes - 1)))
}

const MIB: usize = 1 << 20;

fn a38_a_large_object_comes_through_its_owner(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.otherwise(film(3 * MIB));
    let sharing = start(&origin, cores);
    let path = sharing.path_of(1, "film");
    for round in 0..3 {
        for one in &sharing.all {
            let whole = one.get(&path).expect_status(200).whole();
            assert_eq!((whole.body.len(), differs(1, 0, &whole.body)), (3 * MIB, None), "round {round}");
            let range = Request::get(&path).header("Range", "bytes=2000000-2999999");
            let part = one.fetch(&range).expect_status(206).whole();
            assert_eq!((part.body.len(), differs(1, 2_000_000, &part.body)), (1_000_000, None));
            let head = one.fetch(&Request::new("HEAD", &path)).expect_status(200);
            assert_eq!(head.header("content-length"), Some((3 * MIB).to_string().as_str()));
        }
    }
    assert_eq!(origin.count(&path), 1);
}

fn a38_blocks_are_fetched_once_for_all(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.otherwise(film(3 * MIB));
    let sharing = start_with(&origin, cores, |setup| setup.flag("--blocks-from", "1MiB"));
    let path = sharing.path_of(2, "film");
    for one in &sharing.all {
        let range = Request::get(&path).header("Range", "bytes=1000000-1000999");
        let part = one.fetch(&range).expect_status(206).whole();
        assert_eq!((part.body.len(), differs(1, 1_000_000, &part.body)), (1_000, None));
        let whole = one.get(&path).expect_status(200).whole();
        assert_eq!((whole.body.len(), differs(1, 0, &whole.body)), (3 * MIB, None));
    }
    let mut parts: Vec<_> = origin.seen(&path).iter().filter_map(|seen| part(seen, 3 * MIB)).collect();
    parts.sort_unstable();
    let all = parts.len();
    parts.dedup();
    assert_eq!(parts.len(), all, "each block once: {parts:?}");
    assert_eq!(all, (3 * MIB).div_ceil(448 << 10));
}

fn a38_private_requests_bypass_the_peers(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|seen, reply| {
        let answer = match seen.path() {
            path if path.starts_with("/private") => Answer::new(200, "x").header("Cache-Control", "private"),
            _ => page("x"),
        };
        reply.answer(&answer)
    });
    let sharing = start(&origin, cores);
    let vias = |path: &str| -> Vec<usize> {
        let seen = origin.seen(path);
        seen.iter().map(|seen| seen.headers.joined("via").split(',').count()).collect()
    };
    let [post, login, cookie, private] =
        ["post", "login", "cookie", "private"].map(|prefix| sharing.path_of(1, prefix));
    let x = &sharing.all[0];
    x.fetch(&Request::new("POST", &post).body(b"x")).expect_status(200);
    assert_eq!(vias(&post), [1]);
    x.fetch(&Request::get(&login).header("Authorization", "Basic eDp5")).expect_status(200);
    assert_eq!(vias(&login), [1]);
    // An answer with explicit freshness is shared by all visitors; its fetch carries the visitor's cookies.
    x.fetch(&Request::get(&cookie).header("Cookie", "a=1")).expect_status(200);
    assert_eq!(vias(&cookie), [2]);
    assert_eq!(origin.seen(&cookie)[0].header("cookie"), Some("a=1"));
    let of_client = origin.seen(&cookie)[0].headers.joined("x-forwarded-for");
    assert_eq!(of_client, "127.0.0.1, 127.0.0.1", "the visitor, and who asked for it");
    // The first request goes through the owner, since no one knows yet that the answer is private; later ones
    // do not.
    for _ in 0..3 {
        x.get(&private).expect_status(200);
    }
    assert_eq!(vias(&private), [2, 1, 1]);
    assert!(origin.all_seen().iter().all(|seen| seen.header("nighttrain-peer").is_none()));
    // A client that claims to be a peer is treated as a client.
    let mark = "v1;asker=b;id=1;number=1;epoch=0;sequence=0;mac=AAAA";
    x.fetch(&Request::get(&sharing.path_of(0, "liar")).header("Nighttrain-Peer", mark)).expect_status(200);
}

fn a38_a_visitor_sees_what_it_has_changed(cores: &str) {
    let (origin, version) = (ScriptedOrigin::start(), Arc::new(AtomicU64::new(1)));
    let now = Arc::clone(&version);
    origin.otherwise(move |seen, reply| {
        if seen.method == "POST" {
            now.fetch_add(1, SeqCst);
            return reply.answer(&Answer::new(200, "changed"));
        }
        reply.answer(&page(&now.load(SeqCst).to_string()))
    });
    let sharing = start(&origin, cores);
    let path = sharing.path_of(2, "basket");
    for one in &sharing.all {
        assert_eq!(one.get(&path).expect_status(200).text(), "1");
    }
    let x = &sharing.all[0];
    x.fetch(&Request::new("POST", &path).body(b"more")).expect_status(200);
    assert_eq!(x.get(&path).expect_status(200).text(), "2", "its owner had the old one");
    assert_eq!(sharing.all[2].get(&path).expect_status(200).text(), "2", "and has the new one by that");
    assert_eq!(x.get(&path).expect_status(200).text(), "2");
}

fn a38_tags_come_with_what_they_are_of(cores: &str) {
    let (origin, version) = (ScriptedOrigin::start(), Arc::new(AtomicU64::new(1)));
    let now = Arc::clone(&version);
    origin.otherwise(move |_, reply| {
        let answer = page(&now.load(SeqCst).to_string());
        reply.answer(&answer.header("Surrogate-Key", "one two").header("xkey", "three"))
    });
    let sharing = start(&origin, cores);
    let path = sharing.path_of(0, "tagged");
    for tag in ["one", "two", "three"] {
        let before = version.load(SeqCst).to_string();
        for one in &sharing.all {
            eventually("it is stored there", || {
                let response = one.get(&path).expect_status(200);
                assert_eq!(response.text(), before);
                assert!(response.header("surrogate-key").is_none() && response.header("xkey").is_none());
                is_hit(&response)
            });
        }
        version.fetch_add(1, SeqCst);
        // The owner is purged first, so that no instance gets the old version from it.
        for one in &sharing.all {
            let purged = one.ask(&["purge", "--tag", tag]);
            assert!(purged.status.success(), "{purged:?}");
        }
        for one in &sharing.all {
            assert_eq!(one.get(&path).expect_status(200).text(), version.load(SeqCst).to_string(), "{tag}");
        }
    }
}

fn a38_a_peer_that_is_killed_is_nobodys_error(cores: &str) {
    let (origin, gate) = held_origin("slow");
    let sharing = start(&origin, cores);
    let path = sharing.path_of(1, "slow");
    let others: Vec<_> = [0, 2]
        .iter()
        .flat_map(|index| {
            let address = sharing.all[*index].address();
            let path = path.clone();
            (0..10).map(move |_| {
                let request = Request::get(&path);
                thread::spawn(move || tests::client::fetch(address, &request))
            })
        })
        .collect();
    for index in [0, 2] {
        let one = &sharing.all[index];
        eventually("they wait", || one.stat().count("requests.received") >= 10);
        eventually("it is asked", || one.stat().count("cluster.peers_asked") >= 2);
    }
    eventually("the origin is asked", || origin.count(&path) == 1);
    sharing.all[1].signal(Signal::KILL);
    // Each instance fetches for itself, or from the new owner of the key.
    eventually("the origin is asked again", || origin.count(&path) >= 2);
    gate.open();
    for client in others {
        assert_eq!(client.join().expect("no thread panics").expect_status(200).text(), "slow");
    }
    assert!(origin.count(&path) <= 3, "at most one for each: {}", origin.count(&path));
    assert_eq!(standing(&sharing.all[0], "b"), "out");
    // The keys of the dead instance belong to others at once, and the keys of the others stay where they are.
    let before = origin.all_seen().len();
    let other = sharing.path_of(2, "stays");
    for index in [0, 2] {
        sharing.all[index].get(&other).expect_status(200);
    }
    assert_eq!(origin.all_seen().len(), before + 1);
}

/// Adds the fields that the origin sends with a film.
fn of_film(answer: Answer) -> Answer {
    answer.header("Cache-Control", "max-age=600").header("ETag", "\"film\"").header("Accept-Ranges", "bytes")
}

/// Returns a range of the film for a request with `If-Range`, and counts it; `None` without a range.
fn rest_of_film(seen: &Seen, bytes: usize, counted: &AtomicUsize) -> Option<Answer> {
    let (first, last) = part(seen, bytes)?;
    assert_eq!(seen.header("if-range"), Some("\"film\""));
    counted.fetch_add(1, SeqCst);
    let body = content(1, first as u64, last + 1 - first);
    Some(of_film(Answer::new(206, body)).header("Content-Range", &format!("bytes {first}-{last}/{bytes}")))
}

fn a38_the_answer_of_a_dead_peer_is_resumed(cores: &str) {
    const BYTES: usize = 3 * MIB;
    let (origin, gate, rests) = (ScriptedOrigin::start(), Gate::new(), Arc::new(AtomicUsize::new(0)));
    let (held, counted) = (gate.clone(), Arc::clone(&rests));
    origin.otherwise(move |seen, reply| {
        if let Some(rest) = rest_of_film(seen, BYTES, &counted) {
            return reply.answer(&rest);
        }
        let begin = of_film(Answer::until_close(200, "")).header("Content-Length", &BYTES.to_string());
        reply.send(&begin.head_bytes())?;
        reply.send(&content(1, 0, BYTES / 2))?;
        held.pass();
        reply.send(&content(1, BYTES as u64 / 2, BYTES / 2))?;
        Ok(Next::Close)
    });
    let sharing = start(&origin, cores);
    let path = sharing.path_of(1, "film");
    let x = &sharing.all[0];
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let (address, request) = (x.address(), Request::get(&path));
            thread::spawn(move || tests::client::fetch(address, &request))
        })
        .collect();
    eventually("half of it is there", || x.stat().count("bytes.from_peers") >= BYTES as u64 / 4);
    sharing.all[1].signal(Signal::KILL);
    for client in clients {
        let response = client.join().expect("no thread panics").expect_status(200).whole();
        assert_eq!((response.body.len(), differs(1, 0, &response.body)), (BYTES, None));
    }
    assert_eq!((rests.load(SeqCst), x.stat().count("cluster.peers_resumed")), (1, 1));
    gate.open();
}

fn a38_the_answer_of_a_silent_peer_is_resumed(cores: &str) {
    const BYTES: usize = 3 * MIB;
    let (origin, rests) = (ScriptedOrigin::start(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&rests);
    origin.otherwise(move |seen, reply| {
        if let Some(rest) = rest_of_film(seen, BYTES, &counted) {
            return reply.answer(&rest);
        }
        reply.answer(&of_film(Answer::new(200, content(1, 0, BYTES))))
    });
    // The origin may be silent for an hour, so that only the peer's own timeout can end the wait within the
    // test's time.
    let more =
        |setup: Setup| setup.flag("--peers-patience", "2s").limit("origin_between_bytes_time_max", "1h");
    let mut ways = Vec::new();
    let sharing = start_through(&origin, cores, more, |at| {
        ways.push(Way::to(at));
        ways[ways.len() - 1].address()
    });
    let path = sharing.path_of(1, "film");
    // The owner stores the film.
    sharing.all[1].get(&path).expect_status(200);
    ways[1].delay(Duration::from_millis(20));
    let x = &sharing.all[0];
    let (address, request) = (x.address(), Request::get(&path));
    let client = thread::spawn(move || tests::client::fetch(address, &request));
    let came = || x.stat().count("bytes.from_peers");
    eventually("some of it is there", || came() >= BYTES as u64 / 8);
    ways[1].cut();
    assert!(came() < BYTES as u64, "all of it was there before");
    let response = client.join().expect("no thread panics").expect_status(200).whole();
    assert_eq!((response.body.len(), differs(1, 0, &response.body)), (BYTES, None));
    assert_eq!((rests.load(SeqCst), x.stat().count("cluster.peers_resumed")), (1, 1));
    assert_eq!(standing(x, "b"), "out");
    ways[1].open();
}

fn a38_a_stopped_peer_is_skipped_until_its_return(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|_, reply| reply.answer(&page("x")));
    let sharing = start_with(&origin, cores, |setup| setup.flag("--peers-patience", "500ms"));
    let x = &sharing.all[0];
    let paths: Vec<_> = ["one", "two", "three"].iter().map(|prefix| sharing.path_of(1, prefix)).collect();
    sharing.all[1].signal(Signal::STOP);
    for path in &paths {
        assert_eq!(x.get(path).expect_status(200).text(), "x");
        // A busy machine may make another peer look silent as well.
        assert!((1..=2).contains(&origin.count(path)), "{}", origin.count(path));
    }
    assert_eq!(standing(x, "b"), "out");
    assert!(x.stat().count("cluster.peers_failures") >= 1);
    sharing.all[1].signal(Signal::CONT);
    let mut number = 0;
    eventually("it is asked again", || {
        number += 1;
        x.get(&format!("/again{number}")).expect_status(200);
        standing(x, "b") == "up"
    });
}

/// A proxy to a peer that records the requests.
struct Overheard {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Overheard {
    fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
        let of_thread = Arc::clone(&heard);
        thread::spawn(move || {
            for from in listener.incoming().map_while(Result::ok) {
                let Ok(to) = TcpStream::connect(target) else { continue };
                let (heard, back) = (Arc::clone(&of_thread), to.try_clone().expect("a socket"));
                let mut forth = from.try_clone().expect("a socket");
                thread::spawn(move || io::copy(&mut { back }, &mut { from }));
                thread::spawn(move || {
                    let (mut to, mut bytes) = (to, [0; 16 << 10]);
                    while let Ok(read @ 1..) = forth.read(&mut bytes) {
                        heard.lock().expect("no thread panics with it").extend_from_slice(&bytes[..read]);
                        if to.write_all(&bytes[..read]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, heard }
    }

    /// Returns the last request.
    fn last(&self) -> Vec<u8> {
        let heard = self.heard.lock().expect("no thread panics with it").clone();
        let text = String::from_utf8(heard).expect("heads alone");
        let at = text.rfind("GET ").expect("one has come");
        text.as_bytes()[at..].to_vec()
    }
}

/// Sends these bytes to a peer's port, and returns the answer.
fn said_to(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(tests::PATIENCE)).expect("a time");
    stream.write_all(bytes).expect("sent");
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(read @ 1..) => answer.extend_from_slice(&piece[..read]),
            Ok(0) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a38_forged_and_replayed_peer_requests_are_refused() {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|_, reply| reply.answer(&page("x")));
    let ([port_a, port_b], secret): ([u16; 2], _) = (free_ports(), secret());
    let [at_a, at_b] = [port_a, port_b].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let overheard = Overheard::to(at_b);
    let members = format!("a={at_a},b={}", overheard.address);
    let setup = |listen: SocketAddr, told: SocketAddr| {
        let setup = Accelerator::before(&origin.url())
            .flag("--peers-listen", &listen.to_string())
            .flag("--peers-address", &told.to_string())
            .flag("--peers-members", &members);
        with_peers(setup, &secret).start()
    };
    let (a, b) = (setup(at_a, at_a), setup(at_b, overheard.address));
    let path = (0..).map(|number| format!("/p{number}")).find(|path| owner(&a, path) == "b").expect("one");
    assert_eq!(a.get(&path).expect_status(200).text(), "x");
    assert_eq!((origin.count(&path), b.stat().count("cluster.peers_served")), (1, 1));

    let asked = overheard.last();
    let text = String::from_utf8(asked.clone()).expect("text");
    assert!(
        text.contains("Nighttrain-Peer: v1;asker=a;") && !text.contains(&SECRET.replace(' ', "-")),
        "{text}"
    );
    let plain = "GET / HTTP/1.1\r\nHost: site.test\r\n\r\n".to_owned();
    let forged = [
        plain.clone(),
        plain.replace(
            "\r\n\r\n",
            "\r\nNighttrain-Peer: v1;asker=a;id=1;number=1;epoch=0;sequence=0;mac=AA\r\n\r\n",
        ),
        text.replacen(&path, "/other", 1),
        text.replacen("site.test", "site.tesu", 1),
        text.replace(";sequence=0", ";sequence=9"),
        text.replacen("\r\n", "\r\nCookie: a=1\r\n", 1),
    ];
    for bytes in &forged {
        let answer = said_to(at_b, bytes.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 403 "), "{bytes}{answer}");
    }
    assert_eq!(b.stat().count("cluster.peers_forged"), forged.len() as u64);
    let again = said_to(at_b, &asked);
    assert!(again.starts_with("HTTP/1.1 403 ") && !again.contains("Nighttrain-Peer"), "{again}");
    assert_eq!(b.stat().count("cluster.peers_replayed"), 1);
    // A request that was signed for one peer is refused by another.
    assert!(said_to(at_a, &asked).starts_with("HTTP/1.1 403 "));
    // An impostor at a peer's address is not believed.
    let other = Accelerator::before(&origin.url())
        .flag("--peers-listen", "127.0.0.1:0")
        .flag("--peers-address", "127.0.0.1:9")
        .flag("--peers-members", &format!("c=127.0.0.1:9,b={at_b}"));
    let mut wrong = tempfile::NamedTempFile::new().expect("a file");
    writeln!(wrong, "another-secret-of-twenty-four-letters").expect("written");
    let other = with_peers(other, &wrong).start();
    let path =
        (0..).map(|number| format!("/q{number}")).find(|path| owner(&other, path) == "b").expect("one");
    assert_eq!(other.get(&path).expect_status(200).text(), "x");
    assert_eq!((origin.count(&path), standing(&other, "b")), (1, "out".to_owned()));
}

/// Requests beyond a peer's limit of requests or connections go to the origin.
#[test]
fn a38_requests_beyond_a_peers_limit_reach_the_origin() {
    for (bound, counted) in [
        ("--peers-requests-max", "limits.peers_requests"),
        ("--peers-connections-max", "limits.peers_connections"),
    ] {
        let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
        let held = gate.clone();
        origin.otherwise(move |seen, reply| {
            // Answers through the owner are slow.
            if seen.headers.joined("via").contains(',') {
                held.pass();
            }
            reply.answer(&page("x"))
        });
        let sharing = start_with(&origin, &tests::cores(1).expect("one"), |setup| setup.flag(bound, "1"));
        let paths: Vec<_> = ["one", "two"].iter().map(|prefix| sharing.path_of(1, prefix)).collect();
        let (address, request) = (sharing.all[0].address(), Request::get(&paths[0]));
        let first = thread::spawn(move || tests::client::fetch(address, &request));
        eventually("the owner fetches it", || origin.count(&paths[0]) == 1);
        assert_eq!(sharing.all[0].get(&paths[1]).expect_status(200).text(), "x");
        assert_eq!(origin.seen(&paths[1])[0].headers.joined("via").split(',').count(), 1);
        assert_eq!(sharing.sum(counted), 1, "{bound}");
        assert_eq!(standing(&sharing.all[0], "b"), "up", "that is no fault of it");
        gate.open();
        assert_eq!(first.join().expect("no thread panics").expect_status(200).text(), "x");
    }
}

/// An instance that fetches many keys leaves a key to its peer. The peer has not heard of that and asks the
/// busy instance for the same key: neither waits for the other.
#[test]
fn a38_peers_in_dispute_over_ownership_do_not_deadlock() {
    const BUSY: usize = 64;
    let (origin, gate) = held_origin("x");
    let ([port_a, port_b], secret): ([u16; 2], _) = (free_ports(), secret());
    let [at_a, at_b] = [port_a, port_b].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let [a, b] = [at_a, at_b].map(|listen| {
        let setup = Accelerator::before(&origin.url())
            .flag("--peers-listen", &listen.to_string())
            .flag("--peers-members", &format!("a={at_a},b={at_b}"));
        with_peers(setup, &secret).start()
    });
    let mut of_b = (0..).map(|number| format!("/p{number}")).filter(|path| owner(&a, path) == "b");
    let path = of_b.next().expect("one");
    let asking = |one: &Accelerator, path: String| {
        let (address, request) = (one.address(), Request::get(&path));
        thread::spawn(move || tests::client::fetch(address, &request))
    };
    let mut clients: Vec<_> = of_b.take(BUSY).map(|other| asking(&b, other)).collect();
    eventually("it fetches many", || origin.all_seen().len() == BUSY);
    assert_eq!((owner(&b, &path), owner(&a, &path)), ("a".to_owned(), "b".to_owned()));
    clients.extend([asking(&a, path.clone()), asking(&b, path.clone())]);
    eventually("the origin is asked for it", || origin.count(&path) >= 1);
    gate.open();
    for client in clients {
        assert_eq!(client.join().expect("no thread panics").expect_status(200).text(), "x");
    }
    assert!(origin.count(&path) <= 2, "{}", origin.count(&path));
}

fn in_cluster(
    origin: &ScriptedOrigin,
    cluster: &NatsCluster,
    secret: &tempfile::NamedTempFile,
    name: &str,
) -> Accelerator {
    let [port] = free_ports();
    let setup = Accelerator::before(&origin.url())
        .flag("--purge-from", "127.0.0.1")
        .flag("--cluster", &cluster.urls())
        .flag("--cluster-name", name)
        .flag("--cluster-lease", "3s")
        .flag("--peers-listen", &format!("127.0.0.1:{port}"));
    with_peers(setup, secret).start()
}

fn knows(instance: &Accelerator, names: &[&str]) -> bool {
    let said: Value = serde_json::from_slice(&instance.admin_get("/cluster").body).expect("JSON");
    let peers: Vec<_> =
        said["peers"].as_array().expect("a list").iter().map(|peer| peer["name"].clone()).collect();
    said["joined"] == true && peers == names
}

#[test]
fn a38_peers_share_keys_and_purges_hold_everywhere() {
    let Some(cluster) = NatsCluster::start() else { return };
    let (origin, version, secret) = (ScriptedOrigin::start(), Arc::new(AtomicU64::new(1)), secret());
    let (now, gate) = (Arc::clone(&version), Gate::new());
    let held = gate.clone();
    origin.otherwise(move |seen, reply| {
        let version = now.load(SeqCst);
        if seen.path().starts_with("/slow") && version == 2 {
            held.pass();
        }
        reply.answer(&page(&version.to_string()))
    });
    let mut all: Vec<_> = NAMES.iter().map(|name| in_cluster(&origin, &cluster, &secret, name)).collect();
    let each_knows = |all: &[Accelerator], names: &[&str]| {
        for one in all {
            eventually("it knows who is there", || knows(one, names));
        }
    };
    each_knows(&all, &NAMES);
    let purge = |from: &Accelerator, what: &[&str]| {
        let output = from.ask(&[&["purge", "--everywhere"], what].concat());
        assert!(output.status.success(), "{output:?}");
    };
    // A page is fetched once for all instances, and once more after each purge, whichever instance it comes
    // from.
    let all_get = |all: &[Accelerator], path: &str, want: u64| {
        for _ in 0..3 {
            for one in all {
                assert_eq!(one.get(path).expect_status(200).text(), want.to_string(), "{path}");
            }
        }
    };
    all_get(&all, "/page", 1);
    assert_eq!(origin.count("/page"), 1);

    // Everything is purged while a fetch through a peer is under way: its answer is only for the clients that
    // began it.
    let path =
        (0..).map(|number| format!("/slow{number}")).find(|path| owner(&all[0], path) == "b").expect("one");
    version.store(2, SeqCst);
    purge(&all[0], &["--all"]);
    let early: Vec<_> = [0, 1, 2]
        .iter()
        .map(|index: &usize| {
            let (address, request) = (all[*index].address(), Request::get(&path));
            thread::spawn(move || tests::client::fetch(address, &request))
        })
        .collect();
    eventually("it is fetched", || origin.count(&path) == 1);
    for one in [&all[0], &all[2]] {
        eventually("the others wait for it", || one.stat().count("cluster.peers_asked") >= 1);
    }
    version.store(3, SeqCst);
    purge(&all[2], &[&format!("http://site.test{path}")]);
    for one in &all {
        assert_eq!(
            one.get(&path).expect_status(200).text(),
            "3",
            "who asks after the purge has nothing older"
        );
    }
    gate.open();
    for client in early {
        // A client whose request was repeated because of the purge has the new version.
        let text = client.join().expect("no thread panics").expect_status(200).text();
        assert!(text == "2" || text == "3", "{text}");
    }
    all_get(&all, &path, 3);

    // Purges of each kind, from each instance: one fetch each time.
    for (from, what) in
        [(0, &["http://site.test/page"][..]), (1, &["--ban", "req.url ~ ^/page"]), (2, &["--all"])]
    {
        let (now, before) = (version.fetch_add(1, SeqCst) + 1, origin.count("/page"));
        purge(&all[from], what);
        all_get(&all, "/page", now);
        assert_eq!(origin.count("/page"), before + 1, "{what:?}");
    }

    // An instance ends and comes back: only its share of the keys moves.
    let paths: Vec<_> = (0..30).map(|number| format!("/of{number}")).collect();
    let owners: Vec<_> = paths.iter().map(|path| owner(&all[0], path)).collect();
    let now = version.load(SeqCst);
    paths.iter().for_each(|path| all_get(&all, path, now));
    all[2].signal(Signal::KILL);
    drop(all.pop());
    each_knows(&all, &["a", "b"]);
    for (path, was) in paths.iter().zip(&owners) {
        let is = owner(&all[0], path);
        assert!(is == *was || was == "c", "{path}: {was} {is}");
        all_get(&all, path, now);
        assert!(origin.count(path) <= 2, "{path}");
    }
    all.push(in_cluster(&origin, &cluster, &secret, "c"));
    each_knows(&all, &NAMES);
    assert_eq!(paths.iter().map(|path| owner(&all[1], path)).collect::<Vec<_>>(), owners);
}

/// Clients without the secret have no more connections at the peers' port than elsewhere; peers may have as
/// many as they need.
#[test]
fn a38_strangers_at_the_peer_port_are_limited() {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|_, reply| reply.answer(&page("x")));
    let cores = tests::cores(1).expect("one");
    let sharing = start_with(&origin, &cores, |setup| setup.flag("--connections-per-client-max", "2"));
    let path = sharing.path_of(1, "page");
    let at = peers(&sharing.all[0])[1]["address"].as_str().expect("an address").parse().expect("HOST:PORT");
    let strangers: Vec<_> = (0..4).map(|_| connect_as_guest(at).expect("it is listened there")).collect();
    eventually("two of four are closed", || {
        let metrics = sharing.all[1].admin_get("/metrics").text();
        metrics.lines().any(|line| line == "cache_client_connections_refused_total 2")
    });
    sharing.all[0].get(&path).expect_status(200);
    let asked = peers(&sharing.all[0])[1].clone();
    assert_eq!((&asked["asks"], &asked["failures"]), (&1.into(), &0.into()), "{asked}");
    drop(strangers);
}
