//! The thread that codes content, so that no loop does.
//!
//! ```text
//!  core that owns the object                      code-0 (gives way to the loops)
//!  Coders::give ── Job: content ──ring──▶ copies what is pinned, lets go of it, encodes
//!       ▲ Refused: counted, asked for again later      │
//!  Made ◀──────────────── ring ────────────────────────┘
//! ```
//! *Where the data live:* content up to [`COPIED_BYTES_MAX`] is copied by its core; longer content stays in the store,
//! pinned, until the thread comes to it. *Bounds:* of all cores together [`JOBS_MAX`] jobs, [`JOBS_BYTES_MAX`] bytes of
//! content and [`PINNED_MAX`] pins, for a thread that gives way may come to them late, and each holds a segment that the
//! store may want back; of the thread itself one job's content, what is made of it, and the encoder's memory.

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
    store::{Hash, PinnedObject},
    sys::span::Span,
};

use crate::{
    coding::{Coding, Compress},
    encoders::encoded,
};

/// Jobs that wait or are under way, of all cores.
pub(crate) const JOBS_MAX: usize = 64;
/// Bytes of content that they are about.
pub(crate) const JOBS_BYTES_MAX: usize = 64 << 20;
/// Of these jobs, those whose content is pinned.
pub(crate) const PINNED_MAX: usize = 4;
/// Content up to this is copied by a core: some ten microseconds, as long as a hit with its system calls.
pub(crate) const COPIED_BYTES_MAX: u64 = 64 * 1024;
/// What an encoder takes at most: Brotli's, with its window of 4 MiB.
const ENCODER_BYTES_MAX: u64 = 16 << 20;
/// How long who stops waits for the job under way before it leaves the thread to it.
const END_GRACE: Duration = Duration::from_secs(1);

/// Content that is to be coded.
pub(crate) struct Job {
    /// Of the object.
    pub(crate) hash: Hash,
    /// Its key.
    pub(crate) key: Vec<u8>,
    /// Under which the result is stored.
    pub(crate) twin: Hash,
    pub(crate) coding: Coding,
    /// Which of the objects under the key it is.
    pub(crate) sequence: u64,
    pub(crate) content: Content,
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
pub(crate) struct Made {
    pub(crate) hash: Hash,
    pub(crate) key: Vec<u8>,
    pub(crate) twin: Hash,
    pub(crate) coding: Coding,
    /// Which of the objects under the key it was.
    pub(crate) sequence: u64,
    /// `None`: it does not shrink.
    pub(crate) content: Option<Vec<u8>>,
    /// How long its content was.
    pub(crate) bytes: u64,
}

/// What cores and the thread say to each other.
pub(crate) enum Word {
    Job(Box<Order>),
    Made(Box<Made>),
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
struct Used {
    jobs: AtomicUsize,
    bytes: AtomicUsize,
    pinned: AtomicUsize,
}

/// A job's place among all; free again when this is dropped.
struct Place {
    used: Arc<Used>,
    bytes: usize,
    pins: usize,
}

impl Place {
    fn take(used: &Arc<Used>, bytes: usize, is_pinned: bool) -> Option<Self> {
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

/// There is no room for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused;

/// A core's way to the thread.
pub(crate) struct Coders {
    core: usize,
    /// The thread's place in the mesh.
    thread: usize,
    sender: Sender<Word>,
    used: Arc<Used>,
    /// Twins that are being made or read now; at most [`JOBS_MAX`].
    under_way: RefCell<Vec<u64>>,
}

impl Coders {
    /// Whether a twin is being made or read now; if not, it is from now on. Whoever enters it sees to [`leave`](Self::leave).
    ///
    /// # Errors
    /// There are as many as there may be.
    pub(crate) fn enter(&self, twin: Hash) -> Result<bool, Refused> {
        let mut under_way = self.under_way.borrow_mut();
        if under_way.contains(&twin.word()) {
            return Ok(false);
        }
        if under_way.len() >= JOBS_MAX {
            return Err(Refused);
        }
        under_way.push(twin.word());
        Ok(true)
    }

    /// A twin is there, or is not going to be.
    pub(crate) fn leave(&self, twin: Hash) {
        self.under_way.borrow_mut().retain(|word| *word != twin.word());
    }

    /// Has content coded.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn give(&self, job: Job) -> Result<(), Refused> {
        let bytes = usize::try_from(job.content.bytes()).map_err(|_| Refused)?;
        let is_pinned = matches!(job.content, Content::Pinned(_));
        let place = Place::take(&self.used, bytes, is_pinned).ok_or(Refused)?;
        // What this core is waiting for has places, and the ring as many.
        let given = self.sender.send(self.thread, Word::Job(Box::new(Order { core: self.core, job, place })));
        assert!(given.is_ok(), "core {} gave more jobs than there are places", self.core);
        self.sender.flush();
        Ok(())
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

/// Memory that the thread takes at most: content, what is made of it, which a vector may hold twice while it grows, and
/// the encoder.
pub(crate) fn bytes_max(compress: &Compress) -> u64 {
    if compress.codings.is_empty() { 0 } else { 3 * compress.bytes_max + ENCODER_BYTES_MAX }
}

/// Starts the thread, if anything is to be coded; and each core's part of it.
///
/// # Errors
/// The kernel gives no thread, or nothing to wake one.
pub(crate) fn start(
    compress: &Compress,
    cores: usize,
) -> io::Result<(Option<CodingPool>, Vec<Option<OfCore>>)> {
    if compress.codings.is_empty() {
        return Ok((None, (0..cores).map(|_| None).collect()));
    }
    let (pool, of_cores) = CodingPool::start(cores)?;
    Ok((Some(pool), of_cores.into_iter().map(Some).collect()))
}

impl CodingPool {
    /// Starts the thread for so many cores.
    fn start(cores: usize) -> io::Result<(Self, Vec<OfCore>)> {
        // A core has at most so many jobs under way, and the owner says one word.
        let mesh = Mesh::new(cores + 1, 1, JOBS_MAX)?;
        let mut endpoints = mesh.into_endpoints().into_iter();
        let used = Arc::new(Used::default());
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
        let thread = std::thread::Builder::new().name("code-0".to_owned()).spawn(move || {
            run(&sender, receiver, &is_stopping);
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

fn run(sender: &Sender<Word>, mut receiver: Receiver<Word>, is_stopping: &AtomicBool) {
    if let Err(error) = give_way() {
        // It competes with the loops then.
        tracing::warn!(%error, "the thread that compresses could not be given a lower priority");
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
            let made = Word::Made(Box::new(make(job)));
            drop(place);
            // A core waits for no more than the ring holds.
            assert!(sender.send(core, made).is_ok(), "more results than jobs");
            sender.flush();
        }
    }
}

fn make(Job { hash, key, twin, coding, sequence, content }: Job) -> Made {
    let bytes = content.bytes();
    let content = match content {
        Content::Copied(content) => content,
        // The store has its memory back before the encoder begins.
        Content::Pinned(object) => copied(bytes, |at| object.body(at)),
    };
    Made { hash, key, twin, coding, sequence, content: encoded(coding, &content), bytes }
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
        let used = Arc::new(Used::default());
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
        let (pool, mut of_cores) = CodingPool::start(2).expect("a thread");
        let (coders, _) = of_cores.remove(0);
        let hash = |number: usize| Hash::seeded(&number.to_le_bytes(), 0);
        assert_eq!(coders.enter(hash(0)), Ok(true));
        assert_eq!(coders.enter(hash(0)), Ok(false));
        (1..JOBS_MAX).for_each(|number| assert_eq!(coders.enter(hash(number)), Ok(true)));
        assert_eq!(coders.enter(hash(JOBS_MAX)), Err(Refused));
        coders.leave(hash(0));
        assert_eq!(coders.enter(hash(0)), Ok(true));
        drop(pool);
    }
}
