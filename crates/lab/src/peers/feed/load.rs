//! Load generator: flows of one producer and its consumers, either as fast as the server can relay or at a
//! fixed rate.
//!
//! One thread serves all its flows with epoll, on the load cores of the bench. In a *closed loop*, a producer
//! may be a window ahead of its slowest consumer, so that the server's handling of slow consumers does not
//! affect the figure. In an *open loop*, messages are due at fixed times, however late earlier ones are. A
//! message's latency counts from its due time, and the thread polls instead of waiting, so that its own
//! wake-ups are not measured.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::paired::Work;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;

use super::ends::{Consumer, Producer, SCRATCH_BYTES};
use super::wire::Wire;
use crate::peers::PeerError;

/// Time that a server gets to announce a subscription to another server. A slower server loses messages, and
/// the sample is rejected.
const TOLD_WAIT: Duration = Duration::from_millis(100);
/// Time without any delivery after which a server counts as stuck.
const STUCK: Duration = Duration::from_secs(10);
/// Maximum number of pre-encoded messages.
const BATCH_MESSAGES_MAX: u64 = 512;
const EVENTS_MAX: usize = 128;
/// Number of rounds of the closed loop between two readings of the clock.
const ROUNDS_A_LOOK: u32 = 16;

/// Number and kind of the flows of a load.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Number of flows, each with one producer and its own consumers.
    pub flows: usize,
    /// Consumers per flow.
    pub consumers: usize,
    /// Payload size of each message.
    pub payload_bytes: usize,
    /// Maximum number of messages by which a producer may be ahead of its slowest consumer; 0 in an open
    /// loop, which has no window.
    pub window: u64,
    /// Messages that each producer sends per second; `None` for as many as possible.
    pub per_second: Option<u64>,
}

impl Shape {
    /// Returns the number of pre-encoded messages, which is at most the window if there is one.
    fn batch(&self) -> u64 {
        if self.window == 0 { BATCH_MESSAGES_MAX } else { BATCH_MESSAGES_MAX.min(self.window) }
    }

    /// Returns the size of the consumers' read buffer: at least three payloads.
    fn scratch_bytes(&self) -> usize {
        SCRATCH_BYTES.max(3 * self.payload_bytes)
    }
}

/// A producer and its consumers.
#[derive(Debug)]
pub struct Flow {
    producer: Producer,
    consumers: Vec<Consumer>,
}

impl Flow {
    /// Connects the consumers, then the producer; a minimal server ([`Wire::Floor`]) tells them apart by that
    /// order.
    ///
    /// # Errors
    /// `PeerError` if a client cannot connect.
    pub fn connect(wire: Wire, address: SocketAddr, shape: &Shape, id: usize) -> Result<Self, PeerError> {
        Self::across(wire, address, address, shape, id)
    }

    /// Connects the consumers to another server, and waits until that server has announced the subscriptions
    /// to the producer's server.
    ///
    /// # Errors
    /// `PeerError` if a client cannot connect.
    pub fn across(
        wire: Wire,
        address: SocketAddr,
        consumers_at: SocketAddr,
        shape: &Shape,
        id: usize,
    ) -> Result<Self, PeerError> {
        let subject = format!("bench.{id}");
        let number = id as u32;
        let consumers = (0..shape.consumers)
            .map(|n| Consumer::connect(wire, consumers_at, &subject, shape.payload_bytes, n, number))
            .collect::<Result<_, _>>()?;
        if consumers_at != address {
            std::thread::sleep(TOLD_WAIT);
        }
        let producer =
            Producer::connect(wire, address, &subject, shape.payload_bytes, number, shape.batch() as usize)?;
        Ok(Self { producer, consumers })
    }

    fn slowest(&self) -> Option<u64> {
        self.consumers.iter().map(|consumer| consumer.received).min()
    }

    fn deliveries(&self) -> u64 {
        self.consumers.iter().map(|consumer| consumer.received).sum()
    }
}

/// Runs flows as fast as possible for `run`, and then until every sent message has arrived. Each delivery
/// counts as a unit.
///
/// # Errors
/// `PeerError` if a message is lost or damaged, or the server is stuck.
pub fn closed_loop(mut flows: Vec<Flow>, shape: &Shape, run: Duration) -> Result<Work, PeerError> {
    let poll = epoll::create(CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
    for (f, flow) in flows.iter().enumerate() {
        let readable = EventFlags::IN;
        for (c, consumer) in flow.consumers.iter().enumerate() {
            epoll::add(&poll, consumer.stream(), tag(f, c + 1), readable).map_err(std::io::Error::from)?;
        }
        let both = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        epoll::add(&poll, flow.producer.stream(), tag(f, 0), both).map_err(std::io::Error::from)?;
    }
    let mut scratch = vec![0; shape.scratch_bytes()];
    let mut events = Vec::with_capacity(EVENTS_MAX);
    let begun = Instant::now();
    let mut moved = begun;
    let mut seen = 0;
    let mut is_over = false;
    let mut round = 0u32;
    loop {
        let mut all_arrived = true;
        let mut more_to_send = false;
        let elapsed_s = if shape.per_second.is_some() { begun.elapsed().as_secs_f64() } else { 0.0 };
        let count = flows.len() as f64;
        for (f, flow) in flows.iter_mut().enumerate() {
            let slowest = flow.slowest().unwrap_or(flow.producer.stamped);
            let mut room = (slowest + shape.window).saturating_sub(flow.producer.stamped);
            if let Some(per_second) = shape.per_second {
                // The flows are offset, so that their messages are not all due at the same moment.
                let due = elapsed_s * per_second as f64 + f as f64 / count;
                room = room.min((due as u64).saturating_sub(flow.producer.stamped));
            }
            let allowed = if is_over { 0 } else { room };
            // A batch that is partly sent is continued; a new one starts when the window has room for half a
            // batch.
            if !flow.producer.is_idle() || allowed >= shape.batch() / 2 {
                flow.producer.send(allowed, |_| 0)?;
            }
            more_to_send |= flow.producer.is_idle() && allowed >= 2 * shape.batch();
            all_arrived &= flow.producer.is_idle() && slowest == flow.producer.stamped;
        }
        round = round.wrapping_add(1);
        if round.is_multiple_of(ROUNDS_A_LOOK) || is_over {
            let now = Instant::now();
            is_over = is_over || now.duration_since(begun) >= run;
            let deliveries = flows.iter().map(|flow| flow.deliveries() + flow.producer.stamped).sum();
            if deliveries != seen {
                (seen, moved) = (deliveries, now);
            } else if now.duration_since(moved) > STUCK {
                return Err(PeerError::failed(format!("nothing moved for {} s", STUCK.as_secs())));
            }
        }
        if is_over && all_arrived {
            break;
        }
        // The loop does not wait while a producer can send.
        let wait = Timespec { tv_sec: 0, tv_nsec: if more_to_send && !is_over { 0 } else { 1_000_000 } };
        events.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(std::io::Error::from(error).into()),
        }
        for event in &events {
            let (f, end) = untag(event.data);
            let flow = &mut flows[f];
            match end.checked_sub(1) {
                Some(consumer) => {
                    flow.consumers[consumer].receive(&mut scratch, |_| {})?;
                }
                None => flow.producer.hear(&mut scratch)?,
            }
        }
    }
    if shape.consumers == 0 {
        for flow in &mut flows {
            flow.producer.wait_until_taken(&mut scratch)?;
        }
    }
    let deliveries: u64 = flows.iter().map(Flow::deliveries).sum();
    let units =
        if shape.consumers == 0 { flows.iter().map(|flow| flow.producer.stamped).sum() } else { deliveries };
    Ok(Work { units, wall_s: Some(begun.elapsed().as_secs_f64()), ..Work::default() })
}

fn tag(flow: usize, end: usize) -> EventData {
    EventData::new_u64(((flow as u64) << 32) | end as u64)
}

fn untag(data: EventData) -> (usize, usize) {
    let tag = data.u64();
    ((tag >> 32) as usize, (tag & u64::from(u32::MAX)) as usize)
}

/// Runs one flow at a fixed rate: `per_second` messages for `run`. Returns the latencies in nanoseconds, in
/// order of arrival.
///
/// # Errors
/// The errors of [`closed_loop`].
pub fn open_loop(flow: Flow, per_second: u64, run: Duration) -> Result<Vec<u64>, PeerError> {
    let Flow { mut producer, mut consumers } = flow;
    let count = (run.as_secs_f64() * per_second as f64) as u64;
    let mut latencies = Vec::with_capacity(count as usize * consumers.len());
    let mut scratch = vec![0; SCRATCH_BYTES];
    let begun = Instant::now();
    let due_ns = |n: u64| n * 1_000_000_000 / per_second;
    let nanoseconds = || u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut moved_ns = 0;
    let mut rounds = 0u32;
    while latencies.len() < count as usize * consumers.len() {
        let now_ns = nanoseconds();
        let due = (now_ns * per_second / 1_000_000_000 + 1).min(count);
        if producer.stamped < due || !producer.is_idle() {
            producer.send(due - producer.stamped, due_ns)?;
        }
        for consumer in &mut consumers {
            let something = consumer.receive(&mut scratch, |stamp| {
                latencies.push(nanoseconds().saturating_sub(stamp.intended_ns));
            })?;
            if something {
                moved_ns = now_ns;
            }
        }
        rounds = rounds.wrapping_add(1);
        if rounds.is_multiple_of(1024) {
            producer.hear(&mut scratch)?;
        }
        if now_ns.saturating_sub(moved_ns) > STUCK.as_nanos() as u64 {
            return Err(PeerError::failed(format!("nothing arrived for {} s", STUCK.as_secs())));
        }
    }
    Ok(latencies)
}
