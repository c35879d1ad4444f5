//! A soak of a leaf node: 20 producers and 50 consumers, half of them here and half at the hub, which is
//! killed again and again. Nothing arrives twice or out of its producer's order. Between clients that are
//! both here and stay connected, nothing is lost; messages that core NATS may lose between the two sides are
//! counted and reported. Memory stays flat.
//!
//! `NIGHTTRAIN_SOAK_SECONDS` is the duration: 16 by default, with a hub that is killed every 4 s; 600 in
//! `make soak`, every 20 s.

use std::{
    collections::HashMap,
    fs,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::{Duration, Instant},
};

use async_nats::{Client, ConnectOptions};
use futures_util::StreamExt as _;
use tests::{PATIENCE, eventually, feed::Feed, hub::Hub};

const PRODUCERS: usize = 20;
const CONSUMERS: usize = 50;
const SECONDS: u64 = 16;
/// Lifetime of the hub, in a short soak and in a long one.
const HUB_LIFE: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(20));
/// Messages that a producer sends before it pauses.
const BURST: u64 = 5;
const PAUSE: Duration = Duration::from_millis(25);
/// Every fifth consumer subscribes to all producers, each other consumer to two.
const WIDE: usize = 5;
/// Growth of memory that is allowed after the first quarter of the time, beyond a quarter of its size then.
const GROWTH_BYTES: u64 = 32 << 20;

/// Counts of all clients together.
#[derive(Default)]
struct Books {
    is_over: AtomicBool,
    published: AtomicU64,
    received: AtomicU64,
    /// Messages that arrived twice or out of order.
    wrong: AtomicU64,
    /// Lost messages between clients that are both here.
    lost_here: AtomicU64,
    /// Lost messages between the two sides.
    lost_across: AtomicU64,
}

/// Returns whether a client is here; half of the clients are at the hub.
fn is_here(slot: usize) -> bool {
    slot.is_multiple_of(2)
}

async fn connect(address: std::net::SocketAddr) -> Client {
    let options = ConnectOptions::new().connection_timeout(PATIENCE).max_reconnects(None);
    let options = options.reconnect_delay_callback(|_| Duration::from_millis(50));
    options.connect(address.to_string()).await.expect("it is let in")
}

async fn produce(slot: usize, client: Client, books: Arc<Books>) {
    let mut number = 0_u64;
    while !books.is_over.load(Acquire) {
        for _ in 0..BURST {
            let sent = client.publish(format!("soak.{slot}"), number.to_string().into()).await;
            if sent.is_ok() {
                number += 1;
                books.published.fetch_add(1, Relaxed);
            }
        }
        let _ = client.flush().await;
        tokio::time::sleep(PAUSE).await;
    }
}

async fn consume(slot: usize, client: Client, books: Arc<Books>) {
    let subjects = if slot.is_multiple_of(WIDE) {
        vec!["soak.*".to_owned()]
    } else {
        [slot, 7 * slot + 3].map(|of| format!("soak.{}", of % PRODUCERS)).to_vec()
    };
    let mut all = Vec::new();
    for subject in subjects {
        all.push(client.subscribe(subject).await.expect("it is taken"));
    }
    client.flush().await.expect("it is there");
    let mut all = futures_util::stream::select_all(all);
    let mut next: HashMap<usize, u64> = HashMap::new();
    while let Some(message) = all.next().await {
        let of = message.subject.strip_prefix("soak.").and_then(|of| of.parse().ok());
        let number = std::str::from_utf8(&message.payload).ok().and_then(|text| text.parse().ok());
        let (of, number): (usize, u64) = (of.expect("a producer"), number.expect("a number"));
        books.received.fetch_add(1, Relaxed);
        let expected = next.insert(of, number + 1);
        match expected {
            Some(expected) if number < expected => _ = books.wrong.fetch_add(1, Relaxed),
            Some(expected) if number > expected => {
                let both_here = is_here(slot) && is_here(of);
                let lost = if both_here { &books.lost_here } else { &books.lost_across };
                lost.fetch_add(number - expected, Relaxed);
            }
            _ => {}
        }
    }
}

fn resident_bytes(id: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{id}/statm")).unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn until_joined(feed: &Feed) {
    eventually("the hub is joined", || feed.page("/leafz")["leafnodes"] == 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f15_a_leaf_loses_nothing_when_hubs_are_killed() {
    let Some(mut hub) = Hub::open() else { return };
    let seconds: Option<u64> = std::env::var("NIGHTTRAIN_SOAK_SECONDS")
        .ok()
        .map(|text| text.parse().expect("NIGHTTRAIN_SOAK_SECONDS is a number"));
    let life = if seconds.is_some() { HUB_LIFE.1 } else { HUB_LIFE.0 };
    let time = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let feed = Feed::start_joined("", &["--cores", "0,1", "--leaf", &hub.url()]);
    until_joined(&feed);
    let books = Arc::<Books>::default();
    let at = |slot| if is_here(slot) { feed.address() } else { hub.address() };
    let mut tasks = Vec::new();
    for slot in 0..CONSUMERS {
        tasks.push(tokio::spawn(consume(slot, connect(at(slot)).await, Arc::clone(&books))));
    }
    for slot in 0..PRODUCERS {
        tasks.push(tokio::spawn(produce(slot, connect(at(slot)).await, Arc::clone(&books))));
    }
    let began = Instant::now();
    let mut early_bytes = 0;
    let mut kills = 0;
    while began.elapsed() < time {
        tokio::time::sleep(life.min(time)).await;
        hub.kill();
        kills += 1;
        tokio::time::sleep(Duration::from_millis(200)).await;
        hub.begin();
        until_joined(&feed);
        if early_bytes == 0 && began.elapsed() >= time / 4 {
            early_bytes = resident_bytes(feed.id());
        }
    }
    let of = |number: &AtomicU64| number.load(Relaxed);
    // Messages still arrive after the last kill.
    let before = of(&books.received);
    eventually("messages come", || of(&books.received) > before + 1000);
    let late_bytes = resident_bytes(feed.id());
    books.is_over.store(true, Release);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let said = format!(
        "{} published, {} received, {kills} kills: {} twice or late, {} lost here, {} lost across; {} and {} MiB",
        of(&books.published),
        of(&books.received),
        of(&books.wrong),
        of(&books.lost_here),
        of(&books.lost_across),
        early_bytes >> 20,
        late_bytes >> 20,
    );
    eprintln!("{said}");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    assert_eq!((of(&books.wrong), of(&books.lost_here)), (0, 0), "{said}");
    assert!(late_bytes <= early_bytes + early_bytes / 4 + GROWTH_BYTES, "{said}");
}
