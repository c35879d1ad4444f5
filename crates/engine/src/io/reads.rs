//! A core's side of reading: which reads are pending, which wait for a helper, which tasks are woken.
//!
//! *Where:* plain memory of the core. *Who writes:* the core, in [`Reads::read`] and [`Reads::settle`]. A task waits on
//! what is behind its [`PendingRead`], which may cross to another core.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque, hash_map::Entry},
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::sync::Notify;

use super::{
    buffers::{Block, Buffer, Buffers, READ_BYTES_MAX},
    counters::ReadCounter,
    pool::ReadPoolConfig,
    source::Damage,
};
use crate::{
    cores::{
        clock,
        mesh::{Receiver, Sender},
    },
    meter::{CoreCounters, Recorder},
};

/// How often reads are looked at that take too long, while there are any.
const OVERDUE_EVERY: Duration = Duration::from_millis(250);

/// What is read: so many bytes of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Number of the source, in the order that the pool was given them.
    pub source: usize,
    /// The first byte.
    pub at: u64,
    /// How many; at least one.
    pub bytes: u32,
}

/// Why a read was not begun. Each is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadRefusal {
    /// As many reads wait as may: [`ReadPoolConfig::waiting_max`].
    #[error("too many reads wait for the disk already")]
    Queue,
    /// All buffers that are large enough are in use: [`ReadPoolConfig::buffer_bytes`].
    #[error("no buffer is free for a read")]
    Buffers,
    /// No bytes, or more than [`READ_BYTES_MAX`] with what alignment adds, or beyond what an offset can say.
    #[error("a read of {0} bytes is not possible")]
    Length(u32),
}

/// Why a read brought nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The disk failed.
    #[error("the disk failed to read {} bytes at {}: {}", extent.bytes, extent.at, words(*kind, *os))]
    Disk {
        /// What was to be read.
        extent: Extent,
        /// What kind of failure.
        kind: io::ErrorKind,
        /// Its number, if the system gave one.
        os: Option<i32>,
    },
    /// The source ends before the extent does.
    #[error("{} bytes at {} were to be read, and only {got} are there", extent.bytes, extent.at)]
    Short {
        /// What was to be read.
        extent: Extent,
        /// Bytes of it that are there.
        got: usize,
    },
    /// What was read is not what was written.
    #[error("{} bytes at {} are damaged: {damage}", extent.bytes, extent.at)]
    Damaged {
        /// What was read.
        extent: Extent,
        /// How it is known.
        damage: Damage,
    },
    /// The disk took longer than [`ReadPoolConfig::wait_ms_max`].
    #[error("the disk has not read {} bytes at {} in time", .0.bytes, .0.at)]
    TooSlow(Extent),
}

fn words(kind: io::ErrorKind, os: Option<i32>) -> io::Error {
    os.map_or_else(|| io::Error::from(kind), io::Error::from_raw_os_error)
}

/// What a helper is asked to do.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) id: u64,
    /// Who asks.
    pub(super) core: usize,
    pub(super) extent: Extent,
    pub(super) buffer: Buffer,
    /// The extent, widened to whole blocks.
    pub(super) aligned_at: u64,
    pub(super) aligned_bytes: usize,
}

/// What became of it.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) helper: usize,
    pub(super) extent: Extent,
    pub(super) outcome: Result<Block, ReadError>,
}

/// What passes between cores and helpers. For [`Reads::settle`].
#[derive(Debug)]
pub struct Message(pub(super) Kind);

#[derive(Debug)]
pub(super) enum Kind {
    Read(Order),
    Answer(Answer),
    Stop,
}

/// What all tasks that wait for one read share.
#[derive(Debug, Default)]
struct SharedRead {
    outcome: OnceLock<Result<Block, ReadError>>,
    settled: Notify,
}

impl SharedRead {
    fn settle(&self, outcome: Result<Block, ReadError>) {
        // A read has one outcome: the disk's or the deadline's, whichever comes first.
        let _ = self.outcome.set(outcome);
        self.settled.notify_waiters();
    }
}

/// A read that is under way. Dropping it gives up waiting, no more.
#[derive(Debug)]
pub struct PendingRead(Arc<SharedRead>);

impl PendingRead {
    /// What was read.
    ///
    /// # Errors
    /// [`ReadError`]; all who wait for the same read get the same.
    pub async fn settled(self) -> Result<Block, ReadError> {
        loop {
            let mut settled = std::pin::pin!(self.0.settled.notified());
            // Before the look, so that what is settled in between is not missed.
            settled.as_mut().enable();
            if let Some(outcome) = self.0.outcome.get() {
                return outcome.clone();
            }
            settled.await;
        }
    }
}

#[derive(Debug)]
struct OutstandingRead {
    id: u64,
    asked_ns: u64,
    read: Arc<SharedRead>,
}

#[derive(Debug)]
struct State {
    /// At most `waiting_max` and what helpers have.
    pending: HashMap<Extent, OutstandingRead>,
    /// For a helper to be free.
    queue: VecDeque<Order>,
    /// For each helper: reads of ours that it has.
    under_way: Box<[usize]>,
    ids: u64,
    /// When deadlines were last looked at.
    looked_ns: u64,
}

/// Whether a core's reads have to be timed. Of one thread; atomic because a task must be `Send`.
#[derive(Debug, Default)]
struct Timing {
    is_pending: AtomicBool,
    /// The first of them has begun.
    began: Notify,
}

/// What a core reads by. It belongs to the core's thread.
#[derive(Debug)]
pub struct Reads {
    state: RefCell<State>,
    timing: Arc<Timing>,
    sender: Sender<Message>,
    core: usize,
    /// The helpers' endpoints come after those of the cores.
    cores: usize,
    depth: usize,
    waiting_max: usize,
    wait_ns_max: u64,
    /// Of each source.
    blocks: Arc<[usize]>,
    buffers: Arc<Buffers>,
    counters: CoreCounters<ReadCounter>,
    latency: Recorder,
}

impl Reads {
    pub(super) fn new(
        config: &ReadPoolConfig,
        core: usize,
        sender: Sender<Message>,
        blocks: Arc<[usize]>,
        buffers: Arc<Buffers>,
        counters: CoreCounters<ReadCounter>,
        latency: Recorder,
    ) -> Self {
        let state = State {
            pending: HashMap::with_capacity(config.waiting_max + config.helpers * config.depth),
            queue: VecDeque::with_capacity(config.waiting_max),
            under_way: vec![0; config.helpers].into(),
            ids: 0,
            looked_ns: 0,
        };
        Self {
            state: RefCell::new(state),
            timing: Arc::default(),
            sender,
            core,
            cores: config.cores,
            depth: config.depth,
            waiting_max: config.waiting_max,
            wait_ns_max: config.wait_ms_max * 1_000_000,
            blocks,
            buffers,
            counters,
            latency,
        }
    }

    /// Asks for an extent, or joins a pending read of the very same extent. Never waits: it hands a message over, and
    /// at most one system call wakes a helper.
    ///
    /// # Errors
    /// [`ReadRefusal`], and nothing was begun.
    ///
    /// # Panics
    /// If the pool has no such source.
    pub fn read(&self, extent: Extent) -> Result<PendingRead, ReadRefusal> {
        let block = self.blocks[extent.source] as u64;
        let aligned_at = extent.at / block * block;
        let aligned_bytes = extent
            .at
            .checked_add(extent.bytes.into())
            .and_then(|end| end.checked_next_multiple_of(block))
            .and_then(|end| usize::try_from(end - aligned_at).ok())
            .filter(|bytes| extent.bytes > 0 && *bytes <= READ_BYTES_MAX)
            .ok_or(ReadRefusal::Length(extent.bytes))?;
        let state = &mut *self.state.borrow_mut();
        let free = self.free_helper(&state.under_way);
        let vacant = match state.pending.entry(extent) {
            Entry::Occupied(pending) => {
                self.counters.add(ReadCounter::Joined, 1);
                return Ok(PendingRead(Arc::clone(&pending.get().read)));
            }
            Entry::Vacant(vacant) => vacant,
        };
        if free.is_none() && state.queue.len() >= self.waiting_max {
            self.counters.add(ReadCounter::RefusedQueue, 1);
            return Err(ReadRefusal::Queue);
        }
        let Some(buffer) = self.buffers.take(aligned_bytes) else {
            self.counters.add(ReadCounter::RefusedBuffers, 1);
            return Err(ReadRefusal::Buffers);
        };
        let id = state.ids;
        state.ids += 1;
        let read = Arc::<SharedRead>::default();
        vacant.insert(OutstandingRead { id, asked_ns: clock::monotonic_ns(), read: Arc::clone(&read) });
        if !self.timing.is_pending.swap(true, Relaxed) {
            self.timing.began.notify_one();
        }
        let order = Order { id, core: self.core, extent, buffer, aligned_at, aligned_bytes };
        match free {
            Some(helper) => {
                self.hand_over(helper, order, &mut state.under_way);
                self.sender.flush();
            }
            None => {
                state.queue.push_back(order);
                self.counters.add(ReadCounter::Waiting, 1);
            }
        }
        Ok(PendingRead(read))
    }

    /// Waits until a buffer of the largest size comes back, for a caller that was answered [`ReadRefusal::Buffers`] and can
    /// wait. The caller that has waited longest is woken first; another may still be faster. It does not end by itself
    /// after other refusals: give it a deadline.
    pub fn room(&self) -> impl Future<Output = ()> + use<> {
        let buffers = Arc::clone(&self.buffers);
        async move { buffers.room().await }
    }

    /// Wakes the tasks whose reads have ended, and hands the reads that wait to the helpers. Empties `messages`.
    pub fn settle(&self, messages: &mut Vec<Message>) {
        let now_ns = clock::monotonic_ns();
        let state = &mut *self.state.borrow_mut();
        for message in messages.drain(..) {
            let Kind::Answer(answer) = message.0 else { panic!("a core was sent an order") };
            state.under_way[answer.helper] -= 1;
            self.counters.sub(ReadCounter::UnderWay, 1);
            match &answer.outcome {
                Ok(_) => {}
                Err(ReadError::Damaged { .. }) => self.counters.add(ReadCounter::Damaged, 1),
                Err(_) => self.counters.add(ReadCounter::Failed, 1),
            }
            // The tasks that waited may have given up, and others may wait for a new read of the same extent.
            if let Entry::Occupied(pending) = state.pending.entry(answer.extent)
                && pending.get().id == answer.id
            {
                let waiting = pending.remove();
                self.latency.record(now_ns.saturating_sub(waiting.asked_ns));
                waiting.read.settle(answer.outcome);
            }
        }
        while let Some(helper) = self.free_helper(&state.under_way) {
            let Some(order) = state.queue.pop_front() else { break };
            self.counters.sub(ReadCounter::Waiting, 1);
            self.hand_over(helper, order, &mut state.under_way);
        }
        self.sender.flush();
        if now_ns.saturating_sub(state.looked_ns) >= OVERDUE_EVERY.as_nanos() as u64 {
            state.looked_ns = now_ns;
            self.give_up(now_ns, state);
        }
        self.timing.is_pending.store(!state.pending.is_empty(), Relaxed);
    }

    /// Ends the reads whose tasks have waited too long.
    fn give_up(&self, now_ns: u64, state: &mut State) {
        state.pending.retain(|extent, waiting| {
            let overdue = now_ns.saturating_sub(waiting.asked_ns) > self.wait_ns_max;
            if overdue {
                self.counters.add(ReadCounter::TooSlow, 1);
                waiting.read.settle(Err(ReadError::TooSlow(*extent)));
            }
            !overdue
        });
    }

    /// The helper that has least of ours, if it may have more; of equals the first, so that a light load wakes few.
    fn free_helper(&self, under_way: &[usize]) -> Option<usize> {
        let (helper, has) = under_way.iter().enumerate().min_by_key(|(_, has)| **has)?;
        (*has < self.depth).then_some(helper)
    }

    fn hand_over(&self, helper: usize, order: Order, under_way: &mut [usize]) {
        under_way[helper] += 1;
        self.counters.add(ReadCounter::Begun, 1);
        self.counters.add(ReadCounter::ReadBytes, order.aligned_bytes as u64);
        self.counters.add(ReadCounter::UnderWay, 1);
        let sent = self.sender.send(self.cores + helper, Message(Kind::Read(order)));
        assert!(sent.is_ok(), "a helper has more than its depth");
    }
}

/// Where a core's answers come in. It belongs to one task of that core.
#[derive(Debug)]
pub struct Completions {
    receiver: Receiver<Message>,
    timing: Arc<Timing>,
}

impl Completions {
    /// Of the core that reads by `reads`.
    pub(super) fn new(receiver: Receiver<Message>, reads: &Reads) -> Self {
        Self { receiver, timing: Arc::clone(&reads.timing) }
    }

    /// Appends what has come to `into`, after waiting until there is something or it is time to look for reads that
    /// take too long; [`Reads::settle`] is to be called either way.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time, or away from that of its first wait.
    pub async fn next(&mut self, into: &mut Vec<Message>) {
        // Safe to cut: nothing is taken out before the wait is over.
        while !self.timing.is_pending.load(Relaxed) {
            tokio::select! {
                _ = self.receiver.recv_batch(into) => return,
                () = self.timing.began.notified() => {}
            }
        }
        let _ = tokio::time::timeout(OVERDUE_EVERY, self.receiver.recv_batch(into)).await;
    }
}
