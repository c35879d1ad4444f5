//! A core's side of disk reads: its pending reads, its queue of reads that wait for a helper, and the tasks
//! to wake.
//!
//! *Memory:* plain memory of the core. *Writer:* the core, in [`Reads::read`] and [`Reads::settle`]. A task
//! waits on its [`PendingRead`], which may move to another core.

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

/// Interval at which pending reads are checked for a timeout.
const OVERDUE_EVERY: Duration = Duration::from_millis(250);

/// A range of bytes to be read from a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Index of the source in the list given to the pool.
    pub source: usize,
    /// Offset of the first byte.
    pub at: u64,
    /// Number of bytes; at least one.
    pub bytes: u32,
}

/// Reasons why a read was not begun. Each is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadRefusal {
    /// The queue is full: [`ReadPoolConfig::waiting_max`].
    #[error("too many reads are queued for the disk")]
    Queue,
    /// All buffers that are large enough are in use: [`ReadPoolConfig::buffer_bytes`].
    #[error("no read buffer is free")]
    Buffers,
    /// The length is zero, exceeds [`READ_BYTES_MAX`] after alignment, or ends beyond the largest offset.
    #[error("unsupported read length of {0} bytes")]
    Length(u32),
}

/// Reasons why a disk read failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The disk returned an error.
    #[error("cannot read {} bytes at {} from the disk: {}", extent.bytes, extent.at, words(*kind, *os))]
    Disk {
        /// Range that was to be read.
        extent: Extent,
        /// Kind of the error.
        kind: io::ErrorKind,
        /// Error number of the system, if there is one.
        os: Option<i32>,
    },
    /// The source ends before the extent does.
    #[error("short read: {} bytes at {} were requested, {got} are there", extent.bytes, extent.at)]
    Short {
        /// Range that was to be read.
        extent: Extent,
        /// Number of bytes of the range that exist.
        got: usize,
    },
    /// The bytes read differ from those that were written.
    #[error("{} bytes at {} are damaged: {damage}", extent.bytes, extent.at)]
    Damaged {
        /// Range that was read.
        extent: Extent,
        /// Damage that was found.
        damage: Damage,
    },
    /// The read took longer than [`ReadPoolConfig::wait_ms_max`].
    #[error("disk read of {} bytes at {} timed out", .0.bytes, .0.at)]
    TooSlow(Extent),
}

fn words(kind: io::ErrorKind, os: Option<i32>) -> io::Error {
    os.map_or_else(|| io::Error::from(kind), io::Error::from_raw_os_error)
}

/// Order from a core to a helper thread to read an extent.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) id: u64,
    /// Core that sent the order.
    pub(super) core: usize,
    pub(super) extent: Extent,
    pub(super) buffer: Buffer,
    /// Offset from which the helper reads: the extent's offset, rounded down to a whole block.
    pub(super) aligned_at: u64,
    pub(super) aligned_bytes: usize,
}

/// Answer from a helper to an order.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) id: u64,
    pub(super) helper: usize,
    pub(super) extent: Extent,
    pub(super) outcome: Result<Block, ReadError>,
}

/// Message between cores and helpers, for [`Reads::settle`].
#[derive(Debug)]
pub struct Message(pub(super) Kind);

#[derive(Debug)]
pub(super) enum Kind {
    Read(Order),
    Answer(Answer),
    Stop,
}

/// State shared by all tasks that wait for one read.
#[derive(Debug, Default)]
struct SharedRead {
    outcome: OnceLock<Result<Block, ReadError>>,
    settled: Notify,
}

impl SharedRead {
    fn settle(&self, outcome: Result<Block, ReadError>) {
        // A read has one outcome: the disk's or the timeout, whichever comes first.
        let _ = self.outcome.set(outcome);
        self.settled.notify_waiters();
    }
}

/// A pending disk read. Dropping it stops only the waiting, not the read.
#[derive(Debug)]
pub struct PendingRead(Arc<SharedRead>);

impl PendingRead {
    /// Waits for the read and returns its bytes.
    ///
    /// # Errors
    /// Returns a [`ReadError`] if the read fails; all tasks that wait for the same read get the same error.
    pub async fn settled(self) -> Result<Block, ReadError> {
        loop {
            let mut settled = std::pin::pin!(self.0.settled.notified());
            // Registered before the check, so that an outcome set in between is not missed.
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
    /// Pending reads: at most `waiting_max` plus those that are at helpers.
    pending: HashMap<Extent, OutstandingRead>,
    /// Reads that wait for a free helper.
    queue: VecDeque<Order>,
    /// For each helper, the number of this core's reads that it is working on.
    under_way: Box<[usize]>,
    ids: u64,
    /// Time at which pending reads were last checked for timeouts.
    looked_ns: u64,
}

/// State that tells whether a core has pending reads to check for timeouts. Used by one thread at a time; atomic
/// because it is made before the core's thread.
#[derive(Debug, Default)]
struct Timing {
    is_pending: AtomicBool,
    /// Notified when the first pending read begins.
    began: Notify,
}

/// Handle through which a core reads from the disk. It belongs to the core's thread.
#[derive(Debug)]
pub struct Reads {
    state: RefCell<State>,
    timing: Arc<Timing>,
    sender: Sender<Message>,
    core: usize,
    /// Number of cores; in the mesh, the endpoints of the helpers follow those of the cores.
    cores: usize,
    depth: usize,
    waiting_max: usize,
    wait_ns_max: u64,
    /// Block size of each source.
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

    /// Begins a read of an extent, or joins a pending read of exactly the same extent. Never waits: it sends
    /// a message, and at most one system call wakes a helper.
    ///
    /// # Errors
    /// Returns a [`ReadRefusal`] if no read was begun.
    ///
    /// # Panics
    /// Panics if the pool has no such source.
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

    /// Waits until a buffer of the largest size is returned, for a caller that got [`ReadRefusal::Buffers`]
    /// and can wait. The caller that has waited longest is woken first; another may still take the buffer
    /// before it. After other refusals this may never end: give it a deadline.
    pub fn room(&self) -> impl Future<Output = ()> + use<> {
        let buffers = Arc::clone(&self.buffers);
        async move { buffers.room().await }
    }

    /// Wakes the tasks whose reads have ended, and hands queued reads to the helpers. Empties `messages`.
    pub fn settle(&self, messages: &mut Vec<Message>) {
        let now_ns = clock::monotonic_ns();
        let state = &mut *self.state.borrow_mut();
        for message in messages.drain(..) {
            let Kind::Answer(answer) = message.0 else { panic!("a core received an order") };
            state.under_way[answer.helper] -= 1;
            self.counters.sub(ReadCounter::UnderWay, 1);
            match &answer.outcome {
                Ok(_) => {}
                Err(ReadError::Damaged { .. }) => self.counters.add(ReadCounter::Damaged, 1),
                Err(_) => self.counters.add(ReadCounter::Failed, 1),
            }
            // The tasks that waited may be gone, and other tasks may wait for a new read of the same extent.
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

    /// Ends the wait for reads that have taken longer than the maximum time: their tasks get an error.
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

    /// Returns the helper with the fewest reads of this core, if it may take another; the first among equals,
    /// so that a light load wakes few helpers.
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
        assert!(sent.is_ok(), "more orders than a helper's queue depth");
    }
}

/// Receiver of a core's answers. It belongs to one task of that core.
#[derive(Debug)]
pub struct Completions {
    receiver: Receiver<Message>,
    timing: Arc<Timing>,
}

impl Completions {
    /// Creates the receiver for the core of `reads`.
    pub(super) fn new(receiver: Receiver<Message>, reads: &Reads) -> Self {
        Self { receiver, timing: Arc::clone(&reads.timing) }
    }

    /// Waits for messages, or until pending reads must be checked for timeouts, and appends the messages to
    /// `into`. The caller then calls [`Reads::settle`] in either case.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with I/O and time, or in a runtime other than that of its first wait.
    pub async fn next(&mut self, into: &mut Vec<Message>) {
        // Cancel-safe: no message is taken before the wait is over.
        while !self.timing.is_pending.load(Relaxed) {
            tokio::select! {
                _ = self.receiver.recv_batch(into) => return,
                () = self.timing.began.notified() => {}
            }
        }
        let _ = tokio::time::timeout(OVERDUE_EVERY, self.receiver.recv_batch(into)).await;
    }
}
