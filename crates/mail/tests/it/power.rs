//! `durability = power` on a disk that loses unsynced sectors: whatever subset of them survives a power loss,
//! each mail that was answered with 250 before is there and whole, and no half mail is.
//!
//! The power fails between a write and its sync. `MAIL_POWER_LOSSES` says how often (`make soak`); for each
//! loss a service is started on what the disk kept. The seed decides after which write the power fails and
//! what is lost; the threads' schedule decides what the senders have sent by then.

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crate::common::{ask, config, first_processor};
use engine::log::{Disk, format::SEGMENTS_AT, simulated::SimulatedDisk};
use mail::{
    Config, Mailstore, Server,
    config::{Durability, Retention},
    mailboxes::{Mailboxes, Scope},
};

const STORE_BYTES: u64 = 128 << 20;
const SENDERS: u64 = 3;
/// Power losses of one service's run.
const LOSSES_A_LIFE: usize = 4;

#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 33) as usize) % bound
    }
}

/// A mail that follows from its number: of a few bytes, of some sectors, or of many; some mails share a body.
fn text(number: u64) -> String {
    let body = match number % 4 {
        0 => "short".to_owned(),
        1 => "a body that many have in common ".repeat(60),
        2 => format!("{number} of its own ").repeat(number as usize * 7919 % 300),
        _ => format!("{number}\r\n").repeat(number as usize * 104_729 % 9000),
    };
    format!("Subject: {number}\r\n\r\n{body}\r\nthe end")
}

/// A disk whose power fails right after a write, before the sync that would follow: the remaining state is
/// put aside with the mails acknowledged until then, and the service goes on.
#[derive(Debug)]
struct Losing {
    disk: SimulatedDisk,
    promised: Mutex<BTreeSet<u64>>,
    losses: Mutex<Losses>,
}

#[derive(Debug)]
struct Losses {
    random: Random,
    writes_until: usize,
    left: Vec<(BTreeSet<u64>, SimulatedDisk)>,
}

impl Losing {
    fn new(seed: u64) -> Self {
        Self {
            disk: SimulatedDisk::new(SEGMENTS_AT + STORE_BYTES),
            promised: Mutex::default(),
            losses: Mutex::new(Losses {
                random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
                writes_until: 5,
                left: Vec::new(),
            }),
        }
    }

    fn losses(&self) -> usize {
        self.losses.lock().unwrap().left.len()
    }
}

impl Disk for Losing {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn write(&self, offset: u64, words: &[AtomicU64]) -> io::Result<()> {
        self.disk.write(offset, words)?;
        let mut losses = self.losses.lock().unwrap();
        let Losses { random, writes_until, left } = &mut *losses;
        *writes_until = writes_until.saturating_sub(1);
        if *writes_until == 0 && left.len() < LOSSES_A_LIFE {
            *writes_until = 1 + random.below(25);
            // The acknowledged mails are read before the disk's state: in the other order a mail could be
            // acknowledged in between.
            let promised = self.promised.lock().unwrap().clone();
            left.push((promised, self.disk.after_power_loss(|states| random.below(states))));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.disk.punch(offset, bytes)
    }
}

/// Sends mails until the power has failed often enough; notes each number once its mail is answered with 250.
fn send(smtp: SocketAddr, next: &AtomicU64, disk: &Losing) {
    let mut client = crate::common::greeted(smtp);
    while disk.losses() < LOSSES_A_LIFE {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let reply = client.mail(&format!("p{}@x.test", number % 5), &text(number));
        assert!(reply.starts_with("250"), "{number}: {reply}");
        disk.promised.lock().unwrap().insert(number);
    }
}

/// Numbers of all stored mails; each mail must be whole.
fn found(store: &Mailstore) -> BTreeSet<u64> {
    let mut numbers = BTreeSet::new();
    for summary in ask(store.list(&Scope::All, 0, 100_000)).unwrap() {
        let number: u64 = String::from_utf8(summary.subject.to_vec()).unwrap().parse().unwrap();
        let mail = ask(store.mail(summary.id)).unwrap().expect("what is listed can be read");
        assert!(mail.raw.ends_with(format!("{}\r\n", text(number)).as_bytes()), "mail {number} is whole");
        assert!(numbers.insert(number), "mail {number} is there once");
    }
    numbers
}

#[test]
fn what_got_its_250_survives_the_power() {
    let losses: u64 = std::env::var("MAIL_POWER_LOSSES").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let config = Config {
        durability: Durability::Power,
        store_bytes: STORE_BYTES,
        cores: vec![first_processor()],
        retention: Retention { per_inbox_max: 100_000, ..Retention::default() },
        ..config()
    };
    let mut promises = 0;
    for life in 0..losses.div_ceil(LOSSES_A_LIFE as u64) {
        let disk = Arc::new(Losing::new(life + 1));
        let server = Server::start_on(config.clone(), Arc::clone(&disk) as Arc<dyn Disk>, None).unwrap();
        let header = server.store_header();
        let smtp = server.addresses().smtp;
        let next = Arc::new(AtomicU64::new(0));
        let senders: Vec<_> = (0..SENDERS)
            .map(|_| {
                let (next, disk) = (Arc::clone(&next), Arc::clone(&disk));
                thread::spawn(move || send(smtp, &next, &disk))
            })
            .collect();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        drop(server);
        let left = std::mem::take(&mut disk.losses.lock().unwrap().left);
        for (loss, (promised, left)) in left.into_iter().enumerate() {
            let server = Server::start_on(config.clone(), Arc::new(left), Some(header)).unwrap();
            let found = found(&server.mailstore());
            let lost: Vec<_> = promised.difference(&found).collect();
            assert!(lost.is_empty(), "life {life}, loss {loss}: {lost:?} of {} are lost", promised.len());
            promises += promised.len();
        }
    }
    assert!(
        promises as u64 > losses,
        "only {promises} mails had their 250 when the power went {losses} times"
    );
}
