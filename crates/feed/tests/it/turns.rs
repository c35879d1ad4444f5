//! One client's operations cost much: other clients still get their turns in between, on its core and on
//! others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::common::{Client, start};
use feed::Counter;

/// Tokens of each pattern; there are 2^`TOKENS` patterns.
const TOKENS: u32 = 12;
const PUBLISHES: usize = 600;

#[test]
fn others_have_their_turns_beside_an_expensive_write() {
    for loops in [1, 2] {
        let server = start(loops, |_| {});
        let mut attacker = Client::new(&server);
        let pattern = |bits: u32| {
            let token = |at| if bits >> at & 1 == 0 { "a" } else { "*" };
            (0..TOKENS).map(token).collect::<Vec<_>>().join(".")
        };
        let words: String =
            (0..1_u32 << TOKENS).map(|bits| format!("SUB {} {bits}\r\n", pattern(bits))).collect();
        attacker.send(words.as_bytes());
        attacker.ping();
        let (mut consumer, mut producer) = (Client::new(&server), Client::new(&server));
        consumer.subscribe("honest", "1");
        let is_done = Arc::new(AtomicBool::new(false));
        let attacking = {
            let is_done = Arc::clone(&is_done);
            thread::spawn(move || {
                let root = "a.".repeat(TOKENS as usize - 1);
                let write: String = (0..PUBLISHES).map(|at| format!("PUB {root}x{at}.b 0\r\n\r\n")).collect();
                attacker.send(write.as_bytes());
                attacker.ping();
                is_done.store(true, Ordering::Relaxed);
            })
        };
        let mut trips = 0;
        while !is_done.load(Ordering::Relaxed) {
            producer.publish("honest", format!("{trips}").as_bytes());
            assert_eq!(consumer.payload(), format!("{trips}").as_bytes());
            trips += 1;
        }
        attacking.join().expect("it was answered");
        assert!(trips > 20, "{trips} round trips beside {PUBLISHES} publishes, on {loops} loops");
    }
}

/// A message from another core, to more subscribers than one turn serves, stays before the messages published
/// later; a PONG means that everything published before it is delivered.
#[test]
fn a_backlog_of_another_core_keeps_its_order() {
    const SUBSCRIPTIONS: usize = 20_000;
    let server = start(2, |_| {});
    let (mut many, mut producer) = (Client::new(&server), Client::new(&server));
    let words: String = (0..SUBSCRIPTIONS).map(|sid| format!("SUB s {sid}\r\n")).collect();
    many.send(words.as_bytes());
    many.ping();
    let mut last = Client::new(&server);
    last.subscribe("s", "1");
    for round in 0..5 {
        producer.publish("s", round.to_string().as_bytes());
    }
    // Messages published before their producer's PONG are delivered before any later PONG.
    producer.ping();
    let got = last.until_pong();
    assert_eq!(got.len(), 5, "{got:?}");
    let got = many.until_pong();
    assert_eq!(got.len(), 5 * SUBSCRIPTIONS);
    assert!(server.counted(Counter::TurnsEnded) > 0);
    assert_eq!(server.counted(Counter::MessagesOut), 5 * (SUBSCRIPTIONS as u64 + 1));
}
