//! Benchmark: producers and consumers that verify every message, and measure throughput and latency.
//!
//! ```text
//!  producer threads ──messages stamped──▶ server ──▶ consumer threads: checksum, sequence per producer, latency
//!        ▲                                                  │ progress of each consumer with each producer
//!        └──────────────── window (without a rate) ◀────────┘
//! ```
//! *Without a rate* a producer publishes as fast as it can, at most a window ahead of the slowest consumer.
//! Only throughput is reported then, because the latency would depend on the window. *With a rate* each
//! message is due at a fixed time; its latency is measured from that time, whatever delays it, including this
//! program.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use engine::meter::{Distribution, Histogram};
use wire::nats::stamp::{self, Stamp};

use super::{
    client::{Client, ClientError, ReceiveOutcome},
    target::Target,
};

/// Maximum number of producers, and of consumers; each is a thread.
pub(crate) const THREADS_MAX: usize = 1024;
/// Bytes by which a producer may be ahead of its slowest consumer.
const WINDOW_BYTES: usize = 4 << 20;
const WINDOW_MESSAGES_MIN: u64 = 16;
const WINDOW_MESSAGES_MAX: u64 = 16_384;
/// Time without any arrivals after which the benchmark ends.
const STUCK: Duration = Duration::from_secs(10);
/// Interval at which a waiting thread checks whether it can continue.
const POLL: Duration = Duration::from_micros(50);
/// Interval at which a producer reads from its connection, to answer pings.
const LISTEN_EVERY: Duration = Duration::from_secs(1);
const CONSUMER_WAIT: Duration = Duration::from_millis(100);
/// Time before a message is due at which its producer stops sleeping and busy-waits.
const SPIN: Duration = Duration::from_micros(100);

/// Parameters of a benchmark.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Server to connect to.
    pub(crate) target: Target,
    /// Total number of messages, divided among the producers.
    pub(crate) messages: u64,
    /// Size of each payload in bytes, at least [`stamp::SIZE_MIN`].
    pub(crate) size: usize,
    /// Number of producers; each publishes to its own subject.
    pub(crate) producers: usize,
    /// Number of consumers; each receives every message.
    pub(crate) consumers: usize,
    /// Total rate in messages per second; `None`: as fast as possible.
    pub(crate) rate: Option<u64>,
    /// Common prefix of the subjects: one or more tokens, followed by the producer's own token.
    pub(crate) subject: String,
}

/// Result of a benchmark.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// Number of messages published.
    pub(crate) published: u64,
    /// Number of messages that arrived intact, summed over all consumers.
    pub(crate) received: u64,
    /// Number of messages that should have arrived but did not, summed over all consumers.
    pub(crate) lost: u64,
    /// Number of messages that arrived twice, or after a later message of the same producer.
    pub(crate) out_of_order: u64,
    /// Number of messages with a wrong checksum.
    pub(crate) damaged: u64,
    /// Time from the first message to the last arrival; without consumers, to the last publish.
    pub(crate) elapsed: Duration,
    /// Nanoseconds from the time at which each message was due to its arrival; only with a rate.
    pub(crate) latency: Option<Distribution>,
}

impl Outcome {
    /// Returns whether every message arrived once, in order and undamaged.
    pub(crate) fn is_intact(&self) -> bool {
        self.lost == 0 && self.out_of_order == 0 && self.damaged == 0
    }
}

/// A benchmark in progress.
pub(crate) struct BenchRun {
    shared: Arc<BenchState>,
    producers: Vec<JoinHandle<Result<(), ClientError>>>,
    consumers: Vec<JoinHandle<Result<Tally, ClientError>>>,
}

struct BenchState {
    plan: Plan,
    begun: Instant,
    published: AtomicU64,
    /// Numbers of messages that have arrived, at index `consumer * producers + producer`.
    progress: Vec<AtomicU64>,
    producers_left: AtomicU64,
    is_over: AtomicBool,
}

#[derive(Default)]
struct Tally {
    received: u64,
    out_of_order: u64,
    damaged: u64,
    last: Option<Duration>,
    latency: Distribution,
}

impl BenchState {
    /// Returns the number of messages that this producer sends; the first producers send the remainder.
    fn share(&self, producer: usize) -> u64 {
        let producers = self.plan.producers as u64;
        self.plan.messages / producers + u64::from((producer as u64) < self.plan.messages % producers)
    }

    fn slowest(&self, producer: usize) -> Option<u64> {
        let all = self.progress.iter().skip(producer).step_by(self.plan.producers);
        all.map(|arrived| arrived.load(Ordering::Acquire)).min()
    }

    fn window(&self) -> u64 {
        let messages = (WINDOW_BYTES / self.plan.size) as u64 / self.plan.producers as u64;
        messages.clamp(WINDOW_MESSAGES_MIN, WINDOW_MESSAGES_MAX)
    }

    fn subject(&self, producer: usize) -> String {
        format!("{}.{producer}", self.plan.subject)
    }
}

/// Connects all clients, and starts the benchmark once all consumers have subscribed.
///
/// # Errors
/// [`ClientError`] if a client cannot connect.
///
/// # Panics
/// If the plan has no messages, no producers, more threads than [`THREADS_MAX`] or too small a size. These
/// are errors of the caller.
pub(crate) fn start(plan: Plan) -> Result<BenchRun, ClientError> {
    assert!(plan.producers > 0 && plan.producers <= THREADS_MAX && plan.consumers <= THREADS_MAX, "threads");
    assert!(plan.messages > 0 && plan.size >= stamp::SIZE_MIN && plan.rate != Some(0), "messages");
    let mut consumers = Vec::new();
    for number in 0..plan.consumers {
        let mut client = Client::connect(&plan.target, &format!("bench consumer {number}"))?;
        client.subscribe(format!("{}.*", plan.subject).as_bytes(), b"", b"1");
        client.confirm()?;
        consumers.push(client);
    }
    let mut producers = Vec::new();
    for number in 0..plan.producers {
        producers.push(Client::connect(&plan.target, &format!("bench producer {number}"))?);
    }
    let shared = Arc::new(BenchState {
        progress: (0..plan.consumers * plan.producers).map(|_| AtomicU64::new(0)).collect(),
        producers_left: AtomicU64::new(plan.producers as u64),
        plan,
        begun: Instant::now(),
        published: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    });
    let consumers = (0..).zip(consumers).map(|(number, client)| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || consume(&shared, number, client))
    });
    let consumers = consumers.collect();
    let producers = (0..).zip(producers).map(|(number, client)| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || {
            let outcome = produce(&shared, number, client);
            shared.producers_left.fetch_sub(1, Ordering::AcqRel);
            outcome
        })
    });
    let producers = producers.collect();
    Ok(BenchRun { shared, producers, consumers })
}

impl BenchRun {
    /// Returns the messages published and the messages received so far, each with its final total.
    pub(crate) fn progress(&self) -> [(u64, u64); 2] {
        let plan = &self.shared.plan;
        let received = self.shared.progress.iter().map(|arrived| arrived.load(Ordering::Relaxed)).sum();
        [
            (self.shared.published.load(Ordering::Relaxed), plan.messages),
            (received, plan.messages * plan.consumers as u64),
        ]
    }

    /// Returns whether every thread has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.producers.iter().all(JoinHandle::is_finished)
            && self.consumers.iter().all(JoinHandle::is_finished)
    }

    /// Waits for the end of the benchmark.
    ///
    /// # Errors
    /// [`ClientError`] if a connection broke. Missing messages are not an error, but counted in
    /// [`Outcome::lost`].
    pub(crate) fn finish(self) -> Result<Outcome, ClientError> {
        let mut failure = None;
        for producer in self.producers {
            if let Err(error) = joined(producer) {
                failure = Some(error);
                self.shared.is_over.store(true, Ordering::Release);
            }
        }
        let sent_by = self.shared.begun.elapsed();
        let mut outcome = Outcome {
            published: self.shared.published.load(Ordering::Acquire),
            elapsed: sent_by,
            ..Outcome::default()
        };
        let mut arrived_by = Duration::ZERO;
        let mut latency = Distribution::default();
        let consumers = self.consumers.len() as u64;
        for consumer in self.consumers {
            match joined(consumer) {
                Ok(tally) => {
                    outcome.received += tally.received;
                    outcome.out_of_order += tally.out_of_order;
                    outcome.damaged += tally.damaged;
                    latency.merge(&tally.latency);
                    if let Some(last) = tally.last {
                        arrived_by = arrived_by.max(last);
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        if !arrived_by.is_zero() {
            outcome.elapsed = arrived_by;
        }
        outcome.lost = (outcome.published * consumers).saturating_sub(outcome.received);
        outcome.latency = self.shared.plan.rate.map(|_| latency);
        Ok(outcome)
    }
}

fn joined<T>(thread: JoinHandle<Result<T, ClientError>>) -> Result<T, ClientError> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn produce(shared: &BenchState, number: usize, mut client: Client) -> Result<(), ClientError> {
    let plan = &shared.plan;
    let (subject, count, window) = (shared.subject(number), shared.share(number), shared.window());
    let mut payload = vec![b'.'; plan.size];
    let mut listened = Instant::now();
    let mut sequence = 0;
    // With a rate, producers alternate: the n-th message of a producer is number n × producers + `number`
    // overall.
    let due = |sequence: u64| {
        let nth = sequence * plan.producers as u64 + number as u64;
        plan.rate
            .map(|rate| Duration::from_nanos((u128::from(nth) * 1_000_000_000 / u128::from(rate)) as u64))
    };
    while sequence < count && !shared.is_over.load(Ordering::Acquire) {
        let now = shared.begun.elapsed();
        let allowed = match plan.rate {
            // Publishes all messages that are due by now.
            Some(_) => {
                let mut allowed = sequence;
                while allowed < count && due(allowed).is_some_and(|due| due <= now) {
                    allowed += 1;
                }
                allowed
            }
            None => shared.slowest(number).map_or(count, |slowest| (slowest + window).min(count)),
        };
        if allowed == sequence {
            match due(sequence) {
                Some(due) if due > now + SPIN => thread::sleep(due - now - SPIN),
                Some(_) => std::hint::spin_loop(),
                None => thread::sleep(POLL),
            }
        }
        for next in sequence..allowed {
            let intended = due(next).unwrap_or(now);
            let intended_ns = u64::try_from(intended.as_nanos()).unwrap_or(u64::MAX);
            stamp::stamp(&mut payload, Stamp { producer: number as u32, sequence: next, intended_ns });
            client.publish(subject.as_bytes(), b"", &payload)?;
        }
        client.flush()?;
        shared.published.fetch_add(allowed - sequence, Ordering::AcqRel);
        sequence = allowed;
        if listened.elapsed() > LISTEN_EVERY {
            client.receive(Duration::ZERO, |_| {})?;
            listened = Instant::now();
        }
    }
    // Without consumers, this confirms that the server has received all messages.
    client.confirm()
}

fn consume(shared: &BenchState, number: usize, mut client: Client) -> Result<Tally, ClientError> {
    let plan = &shared.plan;
    let mut tally = Tally::default();
    let latency = Histogram::new();
    let mut expected = vec![0; plan.producers];
    let mut moved = Instant::now();
    loop {
        let received = client.receive(CONSUMER_WAIT, |message| {
            let Ok(stamp) = stamp::verify(message.payload) else {
                tally.damaged += 1;
                return;
            };
            let Some(next) = expected.get_mut(stamp.producer as usize) else {
                tally.damaged += 1;
                return;
            };
            tally.received += 1;
            if stamp.sequence < *next {
                tally.out_of_order += 1;
            } else {
                *next = stamp.sequence + 1;
            }
            if plan.rate.is_some() {
                let now = u64::try_from(shared.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                latency.record(now.saturating_sub(stamp.intended_ns));
            }
        })?;
        if received != ReceiveOutcome::Nothing {
            moved = Instant::now();
            tally.last = Some(shared.begun.elapsed());
            for (arrived, next) in shared.progress.iter().skip(number * plan.producers).zip(&expected) {
                arrived.store(*next, Ordering::Release);
            }
        }
        let all_sent = shared.producers_left.load(Ordering::Acquire) == 0;
        let is_complete = all_sent && tally.received >= shared.published.load(Ordering::Acquire);
        let is_stuck = moved.elapsed() > STUCK && (all_sent || plan.rate.is_none());
        if is_complete || is_stuck || shared.is_over.load(Ordering::Acquire) {
            break;
        }
    }
    if !shared.is_over.load(Ordering::Acquire) && shared.producers_left.load(Ordering::Acquire) > 0 {
        // A consumer has given up, and producers must not wait for it.
        shared.is_over.store(true, Ordering::Release);
    }
    tally.latency = latency.read();
    Ok(tally)
}
