//! A soak: 20 producers and 50 consumers that connect and disconnect, some of them abruptly. On an open
//! connection nothing is lost, and nothing arrives twice or out of order; when all have left, the server is
//! as small as before.
//!
//! Every connection of a producer has a number of its own and counts from 0. A consumer that connected before
//! a producer began, and stays until the producer has ended in order, must receive all of its messages; any
//! other consumer must receive a range without a gap. `NIGHTTRAIN_SOAK_SECONDS` is the duration: 20 by
//! default, 600 in `make soak`.

use std::{
    collections::HashMap,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

#[expect(dead_code, reason = "the program needs more of it")]
#[path = "../../../crates/nighttrain/src/tools/nats/client.rs"]
mod client;
#[path = "../../../crates/nighttrain/src/tools/nats/target.rs"]
mod target;

use client::Client;
use target::Target;
use tests::{PATIENCE, eventually, feed::Feed};
use wire::nats::stamp::{self, Stamp};

const PRODUCERS: u64 = 20;
const CONSUMERS: u64 = 50;
const SECONDS: u64 = 20;
/// Messages that a producer sends before it pauses.
const BURST: u64 = 40;
const PAUSE: Duration = Duration::from_millis(20);
/// Lifetime of a connection: 0.1 to 3 s.
const LIFE_MS: std::ops::Range<u64> = 100..3_000;
/// Every fifth consumer subscribes to all producers.
const WIDE: u64 = 5;

/// xorshift64: the same seed gives the same run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn life(&mut self) -> Duration {
        Duration::from_millis(LIFE_MS.start + self.below(LIFE_MS.end - LIFE_MS.start))
    }
}

/// A producer's connection that has ended in order: the server has all of its messages.
#[derive(Clone, Copy)]
struct Done {
    slot: u64,
    began: Instant,
    messages: u64,
}

#[derive(Default)]
struct Books {
    next_id: AtomicU32,
    done: Mutex<HashMap<u32, Done>>,
    is_over: AtomicBool,
    published: AtomicU64,
    received: AtomicU64,
    complete: AtomicU64,
    killed: AtomicU64,
}

fn connect(target: &Target, name: &str) -> Client {
    Client::connect(target, name).expect("the server is there")
}

fn produce(slot: u64, target: &Target, books: &Books) {
    let mut random = Random(0x9e37_79b9 + slot);
    let subject = format!("soak.{slot}");
    let mut payload = vec![b'.'; 100];
    while !books.is_over.load(Ordering::Acquire) {
        let mut client = connect(target, &subject);
        let id = books.next_id.fetch_add(1, Ordering::AcqRel);
        let (began, life) = (Instant::now(), random.life());
        let mut sequence = 0;
        while began.elapsed() < life && !books.is_over.load(Ordering::Acquire) {
            for _ in 0..BURST {
                stamp::stamp(&mut payload, Stamp { producer: id, sequence, intended_ns: 0 });
                client.publish(subject.as_bytes(), b"", &payload).expect("it is sent");
                sequence += 1;
            }
            client.flush().expect("it is sent");
            thread::sleep(PAUSE);
        }
        books.published.fetch_add(sequence, Ordering::AcqRel);
        if random.below(3) == 0 {
            // Closed abruptly.
            books.killed.fetch_add(1, Ordering::AcqRel);
        } else {
            client.confirm().expect("the server has it all");
            books.done.lock().expect("no panic").insert(id, Done { slot, began, messages: sequence });
        }
    }
}

/// Range of messages that a consumer has received from one producer's connection.
#[derive(Clone, Copy)]
struct Stretch {
    first: u64,
    next: u64,
}

fn consume(slot: u64, target: &Target, books: &Books) {
    let mut random = Random(0x2545_f491 + slot);
    let wide = slot.is_multiple_of(WIDE);
    let wanted = [slot % PRODUCERS, (7 * slot + 3) % PRODUCERS];
    let mine = |of: u64| wide || wanted.contains(&of);
    while !books.is_over.load(Ordering::Acquire) {
        let mut client = connect(target, &format!("consumer {slot}"));
        if wide {
            client.subscribe(b"soak.*", b"", b"1");
        } else {
            client.subscribe(format!("soak.{}", wanted[0]).as_bytes(), b"", b"1");
            if wanted[1] != wanted[0] {
                client.subscribe(format!("soak.{}", wanted[1]).as_bytes(), b"", b"2");
            }
        }
        client.confirm().expect("subscribed");
        let (began, life) = (Instant::now(), random.life());
        let mut had: HashMap<u32, Stretch> = HashMap::new();
        let receive = |client: &mut Client, had: &mut HashMap<u32, Stretch>| {
            client
                .receive(Duration::from_millis(20), |message| {
                    let stamp = stamp::verify(message.payload).expect("undamaged");
                    let stretch = had
                        .entry(stamp.producer)
                        .or_insert(Stretch { first: stamp.sequence, next: stamp.sequence });
                    assert_eq!(stamp.sequence, stretch.next, "of producer {}", stamp.producer);
                    stretch.next += 1;
                    books.received.fetch_add(1, Ordering::Relaxed);
                })
                .expect("the server does not cut off who reads");
        };
        while began.elapsed() < life && !books.is_over.load(Ordering::Acquire) {
            receive(&mut client, &mut had);
        }
        if random.below(3) == 0 {
            books.killed.fetch_add(1, Ordering::AcqRel);
            continue;
        }
        // All messages of producers that began after this consumer and have ended by now must arrive.
        let due: Vec<(u32, Done)> = books
            .done
            .lock()
            .expect("no panic")
            .iter()
            .filter(|(_, done)| done.began > began && mine(done.slot) && done.messages > 0)
            .map(|(id, done)| (*id, *done))
            .collect();
        let asked = Instant::now();
        for (id, done) in due {
            loop {
                match had.get(&id) {
                    Some(stretch) if stretch.next == done.messages => {
                        assert_eq!(stretch.first, 0, "the first message of producer {id} is missing");
                        break;
                    }
                    had => assert!(
                        asked.elapsed() < PATIENCE,
                        "producer {id} sent {}, and {:?} came",
                        done.messages,
                        had.map(|stretch| (stretch.first, stretch.next))
                    ),
                }
                receive(&mut client, &mut had);
            }
            books.complete.fetch_add(1, Ordering::AcqRel);
        }
    }
}

fn resident_bytes(id: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{id}/statm")).expect("it runs");
    let pages: u64 = statm.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
    pages * rustix::param::page_size() as u64
}

fn open_files(id: u32) -> usize {
    fs::read_dir(format!("/proc/{id}/fd")).expect("it runs").count()
}

#[test]
fn changing_clients_lose_no_message_and_leak_nothing() {
    let seconds = std::env::var("NIGHTTRAIN_SOAK_SECONDS")
        .map_or(SECONDS, |text| text.parse().expect("NIGHTTRAIN_SOAK_SECONDS is a number"));
    let feed = Feed::start("");
    let target: Target = feed.address().to_string().parse().expect("an address");
    drop(connect(&target, "first"));
    let has_nobody = |feed: &Feed| feed.page("/connz")["num_connections"] == 0;
    eventually("the first one has left", || has_nobody(&feed));
    let files_before = open_files(feed.id());

    let books = Arc::new(Books::default());
    let mut threads = Vec::new();
    for slot in 0..CONSUMERS {
        let (target, books) = (target.clone(), Arc::clone(&books));
        threads.push(thread::spawn(move || consume(slot, &target, &books)));
    }
    for slot in 0..PRODUCERS {
        let (target, books) = (target.clone(), Arc::clone(&books));
        threads.push(thread::spawn(move || produce(slot, &target, &books)));
    }
    let (began, whole) = (Instant::now(), Duration::from_secs(seconds));
    let mut resident_half_way = 0;
    while began.elapsed() < whole && !threads.iter().any(thread::JoinHandle::is_finished) {
        thread::sleep(Duration::from_millis(100));
        if resident_half_way == 0 && began.elapsed() > whole / 2 {
            resident_half_way = resident_bytes(feed.id());
        }
    }
    let resident_after = resident_bytes(feed.id());
    books.is_over.store(true, Ordering::Release);
    for thread in threads {
        thread.join().expect("nobody found anything wrong");
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Acquire);
    eprintln!(
        "{seconds} s: {} messages published, {} received; {} stretches complete, {} connections killed, {} MiB half \
         way, {} MiB after",
        count(&books.published),
        count(&books.received),
        count(&books.complete),
        count(&books.killed),
        resident_half_way >> 20,
        resident_after >> 20,
    );
    assert!(count(&books.received) > count(&books.published), "several consumers hear each producer");
    assert!(count(&books.complete) > 0 && count(&books.killed) > 0, "both kinds of ends were seen");
    assert!(
        resident_after < resident_half_way + resident_half_way / 4 + (16 << 20),
        "{resident_half_way} bytes half way, {resident_after} after"
    );
    eventually("all have left", || has_nobody(&feed));
    eventually("their files are closed", || open_files(feed.id()) <= files_before);
    let varz = feed.page("/varz");
    assert_eq!((&varz["connections"], &varz["slow_consumers"]), (&0.into(), &0.into()), "{varz}");
    if tests::feed::peer().is_none() {
        assert_eq!(varz["subscriptions"], 0, "{varz}");
    }
}
