//! Thread that encodes and decodes content, so that the event loops do not have to.
//!
//! ```text
//!  core that owns the object                      code-0 (lower priority than the loops)
//!  Coders::give ── Job: content ──ring──▶ copies pinned content, unpins it, encodes or decodes
//!       ▲ PoolFull: counted, requested again later      │
//!  JobResult ◀──────────────── ring ────────────────────┘
//! ```
//! *Memory:* content up to [`COPIED_BYTES_MAX`] is copied by its core; longer content stays pinned in the
//! store until the thread reaches it. *Bounds:* over all cores [`JOBS_MAX`] jobs, [`JOBS_BYTES_MAX`] bytes of
//! content and [`PINNED_MAX`] pins, because a low-priority thread may be late, and each pin holds a segment
//! that the store may need back. Results that no core has stored yet may together be as large as the longest
//! result, because decoded content is longer than its encoding. At most [`WAITING_MAX`] requests of a core
//! wait for decoded content. The thread itself holds the content and the result of one job, and the coder's
//! memory.

use std::{
    cell::RefCell,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use engine::{
    cores::{
        give_way,
        mesh::{Mesh, Receiver, Sender},
    },
    share::{ClientBudget, CommonPart, Share},
    store::{Hash, PinnedObject},
    sys::span::Span,
};
use tokio::sync::oneshot;

use crate::{
    coding::{Coding, Compress},
    encoding::{decoders::decoded, encoders::encoded},
};

/// Maximum number of jobs that wait or run, over all cores.
pub(crate) const JOBS_MAX: usize = 64;
/// Maximum bytes of content of all jobs together.
pub(crate) const JOBS_BYTES_MAX: usize = 64 << 20;
/// Maximum number of jobs whose content is pinned.
pub(crate) const PINNED_MAX: usize = 4;
/// Minimum room for results in bytes, so that short results of several objects do not wait for each other.
const RESULTS_BYTES_MIN: usize = 1 << 20;
/// Maximum number of requests on one core that wait for decoded content.
const WAITING_MAX: usize = 4096;
/// Maximum size of content that a core copies itself: this takes some ten microseconds, as long as a hit with
/// its system calls.
pub(crate) const COPIED_BYTES_MAX: u64 = 64 * 1024;
/// Maximum memory of a coder: the Brotli decoder, with a window of 16 MiB and its other state.
const CODER_BYTES_MAX: u64 = 20 << 20;
/// Maximum memory of any other coder.
const ENCODER_BYTES_MAX: u64 = 4 << 20;
/// Time that a stop waits for the running job before it abandons the thread.
const END_GRACE: Duration = Duration::from_secs(1);

/// Content to be encoded or decoded.
pub(crate) struct Job {
    /// Hash of the object.
    pub(crate) hash: Hash,
    /// Key of the object.
    pub(crate) key: Vec<u8>,
    /// Hash of the encoded variant, under which the result is stored.
    pub(crate) twin: Hash,
    /// Coding of the result.
    pub(crate) coding: Coding,
    /// Coding in which the content is stored.
    pub(crate) sent: Coding,
    /// Sequence number that identifies the object among those stored under this key over time.
    pub(crate) sequence: u64,
    pub(crate) content: Content,
    /// Maximum size of decoded content.
    pub(crate) decoded_bytes_max: u64,
}

/// Location of content.
pub(crate) enum Content {
    Copied(Vec<u8>),
    Pinned(PinnedObject),
}

impl Content {
    fn bytes(&self) -> u64 {
        match self {
            Self::Copied(bytes) => bytes.len() as u64,
            Self::Pinned(object) => object.body_bytes(),
        }
    }
}

/// Result of a job.
pub(crate) struct JobResult {
    pub(crate) hash: Hash,
    pub(crate) key: Vec<u8>,
    pub(crate) twin: Hash,
    pub(crate) coding: Coding,
    /// Sequence number that identifies the object among those stored under this key over time.
    pub(crate) sequence: u64,
    pub(crate) came: CodecOutcome,
    /// Length of the object's content.
    pub(crate) bytes: u64,
    /// Reservation for the result, held until it is stored.
    _room: Option<Room>,
}

/// Outcome of a job.
pub(crate) enum CodecOutcome {
    /// The encoded or decoded content.
    Content(Vec<u8>),
    /// No result, now or later: the content would not shrink, is damaged, or is too long when decoded.
    Nothing,
    /// No result now: there was no memory for it.
    Refused,
}

/// Reply to a request that waits for decoded content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeReply {
    /// The request must look the object up again.
    LookAgain,
    /// The content cannot be decoded at the moment.
    Refused,
}

/// Channel to a request that waits.
pub(crate) type Reply = oneshot::Sender<DecodeReply>;

/// Messages between the cores and the thread.
pub(crate) enum Word {
    Job(Box<Order>),
    Made(Box<JobResult>),
    Stop,
}

/// A job on its way to the thread.
pub(crate) struct Order {
    /// Core to which the result is sent.
    core: usize,
    job: Job,
    place: Place,
}

/// Current usage of the pool's bounds.
#[derive(Debug, Default)]
struct PoolUsage {
    jobs: AtomicUsize,
    bytes: AtomicUsize,
    pinned: AtomicUsize,
    results: AtomicUsize,
    results_bytes_max: usize,
}

impl PoolUsage {
    fn of(compress: &Compress) -> Arc<Self> {
        let results_bytes_max = bytes_as_usize(compress.bytes_max).max(RESULTS_BYTES_MIN);
        Arc::new(Self { results_bytes_max, ..Self::default() })
    }
}

/// A job's reservation in the pool's bounds, released on drop.
struct Place {
    used: Arc<PoolUsage>,
    bytes: usize,
    pins: usize,
}

impl Place {
    fn take(used: &Arc<PoolUsage>, bytes: usize, is_pinned: bool) -> Option<Self> {
        let place = Self { used: Arc::clone(used), bytes, pins: usize::from(is_pinned) };
        let jobs = used.jobs.fetch_add(1, Relaxed) + 1;
        let all_bytes = used.bytes.fetch_add(bytes, Relaxed) + bytes;
        let pins = used.pinned.fetch_add(place.pins, Relaxed) + place.pins;
        // If two jobs compete for the last reservation, both may be refused.
        (jobs <= JOBS_MAX && all_bytes <= JOBS_BYTES_MAX && pins <= PINNED_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.used.jobs.fetch_sub(1, Relaxed);
        self.used.bytes.fetch_sub(self.bytes, Relaxed);
        self.used.pinned.fetch_sub(self.pins, Relaxed);
    }
}

/// Reservation for a result, released on drop.
struct Room {
    used: Arc<PoolUsage>,
    bytes: usize,
}

impl Room {
    fn take(used: &Arc<PoolUsage>, bytes: usize) -> Option<Self> {
        let room = Self { used: Arc::clone(used), bytes };
        let all_bytes = used.results.fetch_add(bytes, Relaxed) + bytes;
        (all_bytes <= used.results_bytes_max).then_some(room)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.used.results.fetch_sub(self.bytes, Relaxed);
    }
}

/// The pool has no room for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolFull;

/// A core's access to the thread.
pub(crate) struct Coders {
    core: usize,
    /// Index of the thread in the mesh.
    thread: usize,
    sender: Sender<Word>,
    used: Arc<PoolUsage>,
    /// Encoded variants that are being made or read; at most [`JOBS_MAX`].
    under_way: RefCell<Vec<UnderWay>>,
}

/// An encoded variant that is being made or read.
struct UnderWay {
    twin: Hash,
    /// Replies to requests that cannot be answered without the variant.
    waiting: Vec<Reply>,
}

impl Coders {
    /// Registers an encoded variant as being made or read, and returns true if it was not registered before.
    /// A caller that gets true must call [`leave`](Self::leave) at the end. `reply` is answered at that time,
    /// or now if there is no room.
    ///
    /// # Errors
    /// [`PoolFull`] if too many variants are being made, or too many requests wait.
    pub(crate) fn enter(&self, twin: Hash, reply: Option<Reply>) -> Result<bool, PoolFull> {
        let mut under_way = self.under_way.borrow_mut();
        let at = under_way.iter().position(|known| known.twin == twin);
        let waiting: usize = under_way.iter().map(|known| known.waiting.len()).sum();
        let is_full =
            at.is_none() && under_way.len() >= JOBS_MAX || reply.is_some() && waiting >= WAITING_MAX;
        if is_full {
            tell(reply, DecodeReply::Refused);
            return Err(PoolFull);
        }
        match at {
            Some(at) => under_way[at].waiting.extend(reply),
            None => under_way.push(UnderWay { twin, waiting: reply.into_iter().collect() }),
        }
        Ok(at.is_none())
    }

    /// Unregisters an encoded variant after it has been made, or has failed, and answers the requests that
    /// wait for it.
    pub(crate) fn leave(&self, twin: Hash, told: DecodeReply) {
        let mut under_way = self.under_way.borrow_mut();
        if let Some(at) = under_way.iter().position(|known| known.twin == twin) {
            tell(under_way.swap_remove(at).waiting, told);
        }
    }

    /// Sends a job to the thread.
    ///
    /// # Errors
    /// [`PoolFull`] if there is no room for the job.
    pub(crate) fn give(&self, job: Job) -> Result<(), PoolFull> {
        let bytes = usize::try_from(job.content.bytes()).map_err(|_| PoolFull)?;
        let is_pinned = matches!(job.content, Content::Pinned(_));
        let place = Place::take(&self.used, bytes, is_pinned).ok_or(PoolFull)?;
        // The ring has room for every job that can hold a reservation.
        let given = self.sender.send(self.thread, Word::Job(Box::new(Order { core: self.core, job, place })));
        assert!(given.is_ok(), "core {} submitted more jobs than there are slots", self.core);
        self.sender.flush();
        Ok(())
    }
}

/// Sends a reply to the waiting requests. A request that is gone no longer needs it.
pub(crate) fn tell(waiting: impl IntoIterator<Item = Reply>, told: DecodeReply) {
    for reply in waiting {
        let _ = reply.send(told);
    }
}

/// The coding thread. Dropping this ends the thread; waiting jobs are abandoned.
pub(crate) struct CodingPool {
    stop: Sender<Word>,
    stopping: Arc<AtomicBool>,
    cores: usize,
    thread: Option<JoinHandle<()>>,
    /// Disconnected once the thread has ended.
    ended: mpsc::Receiver<()>,
}

/// A core's access to the thread, and the receiver of its results.
pub(crate) type OfCore = (Coders, Receiver<Word>);

/// Returns the maximum memory of the thread: content, its result (which may take twice its size while the
/// vector grows), earlier results that are not stored yet, and the coder.
pub(crate) fn bytes_max(compress: &Compress) -> u64 {
    4 * compress.bytes_max + CODER_BYTES_MAX
}

impl CodingPool {
    /// Starts the thread for `cores` cores. Returns each core's access to it.
    ///
    /// # Errors
    /// Returns an error if the kernel cannot create the thread, or the descriptors that wake it.
    pub(crate) fn start(
        compress: &Compress,
        cores: usize,
        budget: Option<&Arc<ClientBudget>>,
    ) -> io::Result<(Self, Vec<OfCore>)> {
        // A core has at most `JOBS_MAX` unfinished jobs, and the owner of the pool sends one message.
        let mesh = Mesh::new(cores + 1, 1, JOBS_MAX)?;
        let mut endpoints = mesh.into_endpoints().into_iter();
        let used = PoolUsage::of(compress);
        let of_cores = (0..cores)
            .zip(&mut endpoints)
            .map(|(core, endpoint)| {
                let (sender, receiver) = endpoint.split();
                let used = Arc::clone(&used);
                (Coders { core, thread: cores, sender, used, under_way: RefCell::default() }, receiver)
            })
            .collect();
        let (Some(own), Some(stop)) = (endpoints.next(), endpoints.next()) else {
            unreachable!("the mesh was made with two endpoints more than cores")
        };
        let stopping = Arc::new(AtomicBool::new(false));
        let (alive, ended) = mpsc::channel();
        let is_stopping = Arc::clone(&stopping);
        let (sender, receiver) = own.split();
        let memory = Share::new(CommonPart::within(budget), bytes_as_usize(bytes_max(compress)), 1);
        let thread = std::thread::Builder::new().name("code-0".to_owned()).spawn(move || {
            run(&sender, receiver, &is_stopping, memory);
            drop(alive);
        })?;
        let stop = stop.split().0;
        Ok((Self { stop, stopping, cores, thread: Some(thread), ended }, of_cores))
    }
}

impl Drop for CodingPool {
    fn drop(&mut self) {
        self.stopping.store(true, Relaxed);
        // This ring carries a single message, so there is room.
        let _ = self.stop.send(self.cores, Word::Stop);
        self.stop.flush();
        // No message is ever sent on this channel: it only disconnects.
        let has_ended = self.ended.recv_timeout(END_GRACE) == Err(mpsc::RecvTimeoutError::Disconnected);
        if let Some(thread) = self.thread.take().filter(|_| has_ended) {
            // A panic of the thread would have ended the process.
            let _ = thread.join();
        }
    }
}

fn run(sender: &Sender<Word>, mut receiver: Receiver<Word>, is_stopping: &AtomicBool, mut memory: Share) {
    give_way("the compression thread");
    let mut batch = Vec::new();
    loop {
        receiver.recv_batch_blocking(&mut batch);
        for word in batch.drain(..) {
            let Order { core, job, place } = match word {
                Word::Stop => return,
                Word::Job(_) if is_stopping.load(Relaxed) => continue,
                Word::Job(order) => *order,
                Word::Made(_) => unreachable!("results go to cores"),
            };
            let made = Word::Made(Box::new(make(job, place, &mut memory)));
            // The ring has room for all jobs of a core.
            assert!(sender.send(core, made).is_ok(), "more results than jobs");
            sender.flush();
        }
    }
}

/// Returns the bytes of memory that a job needs: its content, its result (which may take twice its size while
/// the vector grows), and the coder.
fn needed(job: &Job) -> u64 {
    let bytes = job.content.bytes();
    match (job.coding, job.sent) {
        (Coding::Decoded, Coding::Brotli) => bytes + 2 * job.decoded_bytes_max + CODER_BYTES_MAX,
        (Coding::Decoded, _) => bytes + 2 * job.decoded_bytes_max + ENCODER_BYTES_MAX,
        _ => 3 * bytes + ENCODER_BYTES_MAX,
    }
}

fn bytes_as_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Encodes or decodes content, if there is memory for it.
fn make(job: Job, place: Place, memory: &mut Share) -> JobResult {
    let used = Arc::clone(&place.used);
    let has_memory = memory.allows(used.results.load(Relaxed) + bytes_as_usize(needed(&job)));
    let made = if has_memory {
        coded(job, &place)
    } else {
        let Job { hash, key, twin, coding, sequence, content, .. } = job;
        JobResult {
            hash,
            key,
            twin,
            coding,
            sequence,
            came: CodecOutcome::Refused,
            bytes: content.bytes(),
            _room: None,
        }
    };
    memory.allows(used.results.load(Relaxed));
    made
}

fn coded(job: Job, place: &Place) -> JobResult {
    let Job { hash, key, twin, coding, sent, sequence, content, decoded_bytes_max } = job;
    let bytes = content.bytes();
    let content = match content {
        Content::Copied(content) => content,
        // The object is unpinned before the coder begins.
        Content::Pinned(object) => copied(bytes, |at| object.body(at)),
    };
    let made = match coding {
        Coding::Decoded => decoded(sent, &content, decoded_bytes_max),
        coding => encoded(coding, &content),
    };
    let room = Room::take(&place.used, made.as_ref().map_or(0, Vec::len));
    let came = match made {
        None => CodecOutcome::Nothing,
        Some(_) if room.is_none() => CodecOutcome::Refused,
        Some(made) => CodecOutcome::Content(made),
    };
    JobResult { hash, key, twin, coding, sequence, came, bytes, _room: room }
}

/// Copies `bytes` bytes of a body. `run` returns the contiguous bytes that start at a position.
pub(crate) fn copied<'o>(bytes: u64, run: impl Fn(u64) -> Span<'o>) -> Vec<u8> {
    let mut content = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    while (content.len() as u64) < bytes {
        let run = run(content.len() as u64);
        assert!(!run.is_empty(), "a body is as long as it says");
        run.copy_to(&mut content);
    }
    content
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_in_number_and_in_bytes() {
        let used = Arc::new(PoolUsage::default());
        let places: Vec<Place> = (0..JOBS_MAX).filter_map(|_| Place::take(&used, 1, false)).collect();
        assert_eq!(places.len(), JOBS_MAX);
        assert!(Place::take(&used, 1, false).is_none());
        drop(places);
        let large = Place::take(&used, JOBS_BYTES_MAX - 1, true).expect("room");
        assert!(Place::take(&used, 2, false).is_none());
        assert!(Place::take(&used, 1, true).is_some());
        drop(large);
        let pinned: Vec<Place> = (0..=PINNED_MAX).filter_map(|_| Place::take(&used, 1, true)).collect();
        assert_eq!(pinned.len(), PINNED_MAX);
        assert!(Place::take(&used, 1, false).is_some());
        drop(pinned);
        assert_eq!(used.pinned.load(Relaxed), 0);
        assert_eq!((used.jobs.load(Relaxed), used.bytes.load(Relaxed)), (0, 0));
    }

    #[test]
    fn a_twin_is_encoded_once_at_a_time() {
        let (pool, mut of_cores) = CodingPool::start(&Compress::default(), 2, None).expect("a thread");
        let (coders, _) = of_cores.remove(0);
        let hash = |number: usize| Hash::seeded(&number.to_le_bytes(), 0);
        assert_eq!(coders.enter(hash(0), None), Ok(true));
        assert_eq!(coders.enter(hash(0), None), Ok(false));
        (1..JOBS_MAX).for_each(|number| assert_eq!(coders.enter(hash(number), None), Ok(true)));
        assert_eq!(coders.enter(hash(JOBS_MAX), None), Err(PoolFull));
        coders.leave(hash(0), DecodeReply::LookAgain);
        assert_eq!(coders.enter(hash(0), None), Ok(true));
        drop(pool);
    }

    #[test]
    fn waiters_are_bounded_and_notified_once() {
        let (_pool, mut of_cores) = CodingPool::start(&Compress::default(), 1, None).expect("a thread");
        let (coders, _) = of_cores.remove(0);
        let hash = |number: usize| Hash::seeded(&number.to_le_bytes(), 0);
        let wait = |number| {
            let (reply, told) = oneshot::channel();
            (coders.enter(hash(number), Some(reply)), told)
        };
        let mut all: Vec<_> = (0..WAITING_MAX).map(|number| wait(number % JOBS_MAX)).collect();
        assert_eq!(all.iter().filter(|(entered, _)| *entered == Ok(true)).count(), JOBS_MAX);
        let (entered, mut told) = wait(1);
        assert_eq!((entered, told.try_recv()), (Err(PoolFull), Ok(DecodeReply::Refused)));
        assert_eq!(coders.enter(hash(1), None), Ok(false), "who does not wait takes no place");
        coders.leave(hash(1), DecodeReply::LookAgain);
        for (number, (_, told)) in all.iter_mut().enumerate() {
            assert_eq!(told.try_recv().is_ok(), number % JOBS_MAX == 1, "{number}");
        }
        assert_eq!(wait(1).0, Ok(true), "there is room again");
    }

    #[test]
    fn results_that_nobody_takes_are_bounded() {
        let used = PoolUsage::of(&Compress { bytes_max: 6 << 20, ..Compress::default() });
        let job = |sent, content: &[u8]| Job {
            hash: Hash::seeded(b"o", 0),
            key: b"o".to_vec(),
            twin: Hash::seeded(b"t", 0),
            coding: Coding::Decoded,
            sent,
            sequence: 1,
            content: Content::Copied(content.to_vec()),
            decoded_bytes_max: 1 << 20,
        };
        let coded = crate::encoding::encoders::encode(Coding::Gzip, &vec![0; 1 << 20]).expect("gzip");
        let mut memory = Share::new(Arc::default(), usize::MAX / 2, 1);
        let mut run = |sent| {
            make(job(sent, &coded), Place::take(&used, coded.len(), false).expect("a place"), &mut memory)
        };
        let held: Vec<_> = (0..6).map(|_| run(Coding::Gzip)).collect();
        assert!(
            held.iter()
                .all(|made| matches!(&made.came, CodecOutcome::Content(made) if made.len() == 1 << 20))
        );
        assert!(matches!(run(Coding::Gzip).came, CodecOutcome::Refused));
        assert!(matches!(run(Coding::Zstd).came, CodecOutcome::Nothing), "it is not in that coding");
        drop(held);
        assert!(matches!(run(Coding::Gzip).came, CodecOutcome::Content(_)));
        assert_eq!((used.jobs.load(Relaxed), used.results.load(Relaxed)), (0, 0));
    }
}
