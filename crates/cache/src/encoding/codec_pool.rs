//! The thread that codes content, and decodes it, so that no loop does.
//!
//! ```text
//!  core that owns the object                      code-0 (gives way to the loops)
//!  Coders::give ── Job: content ──ring──▶ copies what is pinned, lets go of it, encodes or decodes
//!       ▲ PoolFull: counted, asked for again later      │
//!  JobResult ◀──────────────── ring ────────────────────────┘
//! ```
//! *Where the data live:* content up to [`COPIED_BYTES_MAX`] is copied by its core; longer content stays in the store,
//! pinned, until the thread comes to it. *Bounds:* of all cores together [`JOBS_MAX`] jobs, [`JOBS_BYTES_MAX`] bytes of
//! content and [`PINNED_MAX`] pins, for a thread that gives way may come to them late, and each holds a segment that the
//! store may want back; as many bytes of results that no core has stored yet as the longest has, for what is decoded is
//! longer than what it was; [`WAITING_MAX`] requests of a core that wait for what is decoded; of the thread itself one job's
//! content, what is made of it, and the coder's memory.

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

/// Jobs that wait or are under way, of all cores.
pub(crate) const JOBS_MAX: usize = 64;
/// Bytes of content that they are about.
pub(crate) const JOBS_BYTES_MAX: usize = 64 << 20;
/// Of these jobs, those whose content is pinned.
pub(crate) const PINNED_MAX: usize = 4;
/// Bytes of results for which there is room in any case, so that short content of several objects does not wait for each
/// other.
const RESULTS_BYTES_MIN: usize = 1 << 20;
/// Requests that wait at one core for what is decoded.
const WAITING_MAX: usize = 4096;
/// Content up to this is copied by a core: some ten microseconds, as long as a hit with its system calls.
pub(crate) const COPIED_BYTES_MAX: u64 = 64 * 1024;
/// What a coder takes at most: the decoder of Brotli, with a window of 16 MiB and what it has beside that.
const CODER_BYTES_MAX: u64 = 20 << 20;
/// The memory of any other coder, at most.
const ENCODER_BYTES_MAX: u64 = 4 << 20;
/// How long who stops waits for the job under way before it leaves the thread to it.
const END_GRACE: Duration = Duration::from_secs(1);

/// Content that is to be coded, or decoded.
pub(crate) struct Job {
    /// Of the object.
    pub(crate) hash: Hash,
    /// Its key.
    pub(crate) key: Vec<u8>,
    /// Under which the result is stored.
    pub(crate) twin: Hash,
    /// What is wanted.
    pub(crate) coding: Coding,
    /// What it is in now.
    pub(crate) sent: Coding,
    /// Which of the objects under the key it is.
    pub(crate) sequence: u64,
    pub(crate) content: Content,
    /// What it may come to when it is decoded.
    pub(crate) decoded_bytes_max: u64,
}

/// Where content is.
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

/// What came of a job.
pub(crate) struct JobResult {
    pub(crate) hash: Hash,
    pub(crate) key: Vec<u8>,
    pub(crate) twin: Hash,
    pub(crate) coding: Coding,
    /// Which of the objects under the key it was.
    pub(crate) sequence: u64,
    pub(crate) came: CodecOutcome,
    /// How long its content was.
    pub(crate) bytes: u64,
    /// Held until the content is stored.
    _room: Option<Room>,
}

/// What the thread has made of content.
pub(crate) enum CodecOutcome {
    /// This.
    Content(Vec<u8>),
    /// Nothing, and never will: it does not shrink; or it is damaged, or too long when it is decoded.
    Nothing,
    /// Nothing now: there was no room for it.
    Refused,
}

/// What who waits for decoded content is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeReply {
    /// To look again.
    LookAgain,
    /// That it is not decoded now.
    Refused,
}

/// Where one who waits is told.
pub(crate) type Reply = oneshot::Sender<DecodeReply>;

/// What cores and the thread say to each other.
pub(crate) enum Word {
    Job(Box<Order>),
    Made(Box<JobResult>),
    Stop,
}

/// A job on its way.
pub(crate) struct Order {
    /// Who gets the result.
    core: usize,
    job: Job,
    place: Place,
}

/// What of the bounds is used.
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

/// A job's place among all; free again when this is dropped.
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
        // Where two come to the last place at once, both may go without.
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

/// Room for a result; free again when this is dropped.
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

/// There is no room for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolFull;

/// A core's way to the thread.
pub(crate) struct Coders {
    core: usize,
    /// The thread's place in the mesh.
    thread: usize,
    sender: Sender<Word>,
    used: Arc<PoolUsage>,
    /// Twins that are being made or read now; at most [`JOBS_MAX`].
    under_way: RefCell<Vec<UnderWay>>,
}

/// A twin that is being made or read.
struct UnderWay {
    twin: Hash,
    /// Who cannot be answered without it.
    waiting: Vec<Reply>,
}

impl Coders {
    /// Whether a twin is being made or read now; if not, it is from now on. Whoever enters it sees to [`leave`](Self::leave).
    /// Who waits for it is told then; or now, if there is no room.
    ///
    /// # Errors
    /// There are as many as there may be.
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

    /// A twin is there, or is not going to be.
    pub(crate) fn leave(&self, twin: Hash, told: DecodeReply) {
        let mut under_way = self.under_way.borrow_mut();
        if let Some(at) = under_way.iter().position(|known| known.twin == twin) {
            tell(under_way.swap_remove(at).waiting, told);
        }
    }

    /// Has content coded.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn give(&self, job: Job) -> Result<(), PoolFull> {
        let bytes = usize::try_from(job.content.bytes()).map_err(|_| PoolFull)?;
        let is_pinned = matches!(job.content, Content::Pinned(_));
        let place = Place::take(&self.used, bytes, is_pinned).ok_or(PoolFull)?;
        // What this core is waiting for has places, and the ring as many.
        let given = self.sender.send(self.thread, Word::Job(Box::new(Order { core: self.core, job, place })));
        assert!(given.is_ok(), "core {} gave more jobs than there are places", self.core);
        self.sender.flush();
        Ok(())
    }
}

/// Tells those who wait. Who is gone does not want to know.
pub(crate) fn tell(waiting: impl IntoIterator<Item = Reply>, told: DecodeReply) {
    for reply in waiting {
        let _ = reply.send(told);
    }
}

/// The thread. Dropping it ends it; jobs that wait then are not done.
pub(crate) struct CodingPool {
    stop: Sender<Word>,
    stopping: Arc<AtomicBool>,
    cores: usize,
    thread: Option<JoinHandle<()>>,
    /// Disconnected once the thread has ended.
    ended: mpsc::Receiver<()>,
}

/// A core's part: its way to the thread, and where results come in.
pub(crate) type OfCore = (Coders, Receiver<Word>);

/// Memory that the thread takes at most: content, what is made of it, which a vector may hold twice while it grows, what
/// was made before and is not stored yet, and the coder.
pub(crate) fn bytes_max(compress: &Compress) -> u64 {
    4 * compress.bytes_max + CODER_BYTES_MAX
}

impl CodingPool {
    /// Starts the thread for so many cores; each core's part of it.
    ///
    /// # Errors
    /// The kernel gives no thread, or nothing to wake one.
    pub(crate) fn start(
        compress: &Compress,
        cores: usize,
        budget: Option<&Arc<ClientBudget>>,
    ) -> io::Result<(Self, Vec<OfCore>)> {
        // A core has at most so many jobs under way, and the owner says one word.
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
        // The only word of this ring: it fits.
        let _ = self.stop.send(self.cores, Word::Stop);
        self.stop.flush();
        // Nobody says anything in this channel: it only ends.
        let has_ended = self.ended.recv_timeout(END_GRACE) == Err(mpsc::RecvTimeoutError::Disconnected);
        if let Some(thread) = self.thread.take().filter(|_| has_ended) {
            // Had it panicked, the process would have ended.
            let _ = thread.join();
        }
    }
}

fn run(sender: &Sender<Word>, mut receiver: Receiver<Word>, is_stopping: &AtomicBool, mut memory: Share) {
    if let Err(error) = give_way() {
        // It competes with the loops then.
        tracing::warn!(%error, "cannot lower the priority of the compression thread");
    }
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
            // A core waits for no more than the ring holds.
            assert!(sender.send(core, made).is_ok(), "more results than jobs");
            sender.flush();
        }
    }
}

/// Bytes of memory that a job takes: its content, what is made of it, which a vector may hold twice while it grows, and the
/// coder.
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

/// Codes content, if there is memory for it.
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
        // The store has its memory back before the coder begins.
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

/// So much of a body, of which `run` answers what lies together from a place on.
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
    fn a_twin_is_made_once_at_a_time_and_the_pool_ends() {
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
    fn who_waits_is_told_once_and_as_many_wait_as_may() {
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
