//! Tests of which producers a slow consumer holds and for how long, with a simulated clock, on a core without
//! sockets.

use std::{net::SocketAddr, rc::Rc, time::Duration};

use crate::{
    client::{
        connection::{ConnId, Transport, Writer},
        serve::Arrival,
    },
    delivery::{backlog::HOLD, hot_path_tests::cores, work::Work},
    mesh::core::{Core, Local},
};

const HELLO: &[u8] = b"CONNECT {\"verbose\":false,\"pedantic\":false}\r\n";
/// Bytes per millisecond that a consumer must read to lose nothing: 4 MiB per second.
const PACE_A_MS: usize = (4 << 20) / 1000 + 1;
/// Bytes per millisecond that a flooding producer sends while it is not held.
const FLOOD_A_MS: usize = 512 << 10;

/// Test setup: a core with several producers and one consumer of all their messages.
struct Scene {
    local: Rc<Local>,
    consumer: ConnId,
    producers: Vec<TestProducer>,
    now_ms: u64,
}

struct TestProducer {
    id: ConnId,
    /// Bytes that the producer sends in each millisecond.
    bytes: usize,
    message: Vec<u8>,
    sent: usize,
    held_ms: u64,
}

fn enter(core: &mut Core) -> ConnId {
    let arrival = Arrival::new(core, SocketAddr::from(([127, 0, 0, 1], 1)), Transport::default());
    let id = core.enter(arrival, Writer::Task, true);
    core.process(id, HELLO);
    id
}

impl Scene {
    /// Builds a scene with one producer for each pair: bytes per millisecond, and bytes per message.
    fn new(producers: &[(usize, usize)]) -> Self {
        let local = cores(1).remove(0);
        let (consumer, producers) = {
            let core = &mut *local.core.borrow_mut();
            let consumer = enter(core);
            core.process(consumer, b"SUB > 1\r\n");
            let producing = |&(bytes, size): &(usize, usize)| TestProducer {
                id: enter(core),
                bytes,
                message: format!("PUB a {size}\r\n{}\r\n", "x".repeat(size)).into_bytes(),
                sent: 0,
                held_ms: 0,
            };
            (consumer, producers.iter().map(producing).collect())
        };
        Self { local, consumer, producers, now_ms: 1_000_000 }
    }

    /// Simulates a millisecond in which the consumer reads this many bytes. Returns whether it is still
    /// connected.
    fn step(&mut self, take: usize) -> bool {
        let core = &mut *self.local.core.borrow_mut();
        self.now_ms += 1;
        core.turn.now_ms = self.now_ms;
        core.outputs.end_holds(self.now_ms, &mut core.links);
        for producing in &mut self.producers {
            producing.held_ms += u64::from(core.outputs.connections[producing.id].is_held());
            let mut left = producing.bytes;
            while left > 0 && !core.outputs.connections[producing.id].is_held() {
                core.turn.work = Work::of(u64::MAX);
                core.process(producing.id, &producing.message);
                producing.sent += producing.message.len();
                left = left.saturating_sub(producing.message.len());
            }
        }
        let crate::delivery::outputs::Outputs { connections, chunks, .. } = &mut core.outputs;
        let outbox = &mut connections[self.consumer].outbox;
        let mut take = take.min(outbox.bytes());
        while take > 0 {
            let bytes = take.min(outbox.front().len());
            outbox.written(chunks, bytes);
            take -= bytes;
        }
        core.outputs.relieve(self.consumer, &mut core.links);
        let is_too_long = core.outputs.held_too_long(Duration::from_secs(1), self.now_ms).is_some();
        !is_too_long && core.outputs.connections[self.consumer].closing.is_none()
    }

    fn waits(&self) -> usize {
        self.local.core.borrow().outputs.connections[self.consumer].outbox.bytes()
    }
}

/// A consumer that reads nothing holds its flooding producer a single time, and never holds a producer that
/// added little to its backlog.
#[test]
fn a_stuck_consumer_holds_its_flooder_once() {
    let mut scene = Scene::new(&[(FLOOD_A_MS, 4096), (100, 100), (FLOOD_A_MS / 20, 4096)]);
    let mut steps = 0;
    while scene.step(0) {
        steps += 1;
        assert!(steps < 2000, "{} bytes wait", scene.waits());
    }
    let held: Vec<u64> = scene.producers.iter().map(|producing| producing.held_ms).collect();
    assert!((1..=HOLD.as_millis() as u64).contains(&held[0]), "{held:?}");
    assert_eq!(held[1..], [0, 0], "under a sixteenth");
}

/// A consumer that never reads reconnects thirty times: the few free holds belong to its address, not to each
/// connection.
#[test]
fn consumers_that_reconnect_hold_nobody() {
    let mut scene = Scene::new(&[(FLOOD_A_MS, 4096)]);
    scene.local.core.borrow_mut().outputs.marks = crate::delivery::backlog::Marks::of(4 << 20);
    for _ in 0..30 {
        while scene.step(0) {}
        let core = &mut *scene.local.core.borrow_mut();
        scene.consumer = enter(core);
        core.turn.work = Work::of(u64::MAX);
        core.process(scene.consumer, b"SUB > 1\r\n");
    }
    let held_ms = scene.producers[0].held_ms;
    assert!(held_ms <= 5 * HOLD.as_millis() as u64, "{held_ms} ms");
}

/// A new consumer whose address has no free hold left loses nothing if it reads.
#[test]
fn a_new_consumer_pays_by_taking() {
    let mut scene = Scene::new(&[(FLOOD_A_MS, 4096)]);
    let free = engine::accounts::ClientKey::of(std::net::Ipv4Addr::LOCALHOST.into());
    while scene.local.core.borrow_mut().outputs.slow.free_holds.take(free, scene.now_ms) {}
    for ms in 1..3_000 {
        assert!(scene.step(PACE_A_MS), "cut after {ms} ms");
    }
    // The consumer has caught up and then falls behind again: the bytes that it has read since count as
    // credit for new holds.
    while scene.waits() > 0 {
        scene.producers[0].bytes = 0;
        assert!(scene.step(8 << 20));
    }
    scene.producers[0].bytes = FLOOD_A_MS;
    let held_ms = scene.producers[0].held_ms;
    while scene.step(0) {}
    assert!(scene.producers[0].held_ms >= held_ms + HOLD.as_millis() as u64, "nobody was held");
}

/// A consumer that reads at the nominal rate loses nothing in six simulated seconds, although producers would
/// send a hundred times as much.
#[test]
fn a_consumer_at_its_pace_loses_nothing() {
    for (flooders, size, burst_ms) in
        [(1, 100, 1), (1, 100_000, 1), (1, 1 << 20, 10), (4, 4096, 50), (12, 4096, 20)]
    {
        let mut scene = Scene::new(&vec![(FLOOD_A_MS, size); flooders]);
        let mut most = 0;
        for ms in 1..6_000 {
            let take = if ms % burst_ms == 0 { PACE_A_MS * burst_ms } else { 0 };
            assert!(scene.step(take), "cut after {ms} ms: {flooders} producers, messages of {size}");
            most = most.max(scene.waits());
        }
        assert!(most > 47 << 20, "{most}: it was never slow");
    }
}

/// A producer that sends an eighth of the traffic is held for less time than the producer that sends the
/// rest, and gets most of its messages through.
#[test]
fn a_hold_is_in_proportion() {
    let mut scene = Scene::new(&[(FLOOD_A_MS, 4096), (1024, 1024)]);
    let steps = 5_000;
    for _ in 0..steps {
        assert!(scene.step(8 * 1024));
    }
    let [flooder, small] = &scene.producers[..] else { panic!("two producers") };
    assert!(flooder.held_ms > 4_000, "{}", flooder.held_ms);
    assert!(small.sent > steps * 1024 / 2, "{} bytes in {} ms of holds", small.sent, small.held_ms);
}

/// A consumer earns the right to hold producers by reading: one that reads at a tenth of the nominal rate
/// soon cannot hold them any more, and is cut off.
#[test]
fn a_trickle_does_not_pay_for_holds() {
    let mut scene = Scene::new(&[(FLOOD_A_MS, 4096)]);
    let mut steps = 0;
    while scene.step(PACE_A_MS / 10) {
        steps += 1;
    }
    let held_ms = scene.producers[0].held_ms;
    assert!(steps < 1000 && held_ms <= 3 * HOLD.as_millis() as u64, "{held_ms} ms of {steps}");
}
