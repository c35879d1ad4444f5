//! The pool of helper threads: started once for all cores, stopped when the pool is dropped.

use std::{
    io,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use super::{
    buffers::{BUFFER_BYTES_MIN, Block, Buffers},
    counters::ReadCounter,
    reads::{Answer, Completions, Kind, Message, Order, ReadError, Reads},
    source::Source,
};
use crate::{
    cores::{
        clock,
        mesh::{Mesh, Receiver, Sender},
    },
    meter::{CounterSet, HistogramSpec, Histograms, Recorder, Unit},
};

/// Time that the pool waits for helpers to end before it abandons them to a hanging disk.
const END_GRACE: Duration = Duration::from_secs(1);

/// Configuration of a read pool: the number of helper threads, and all bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPoolConfig {
    /// Number of cores that read.
    pub cores: usize,
    /// Number of threads that read for the cores, and thus the number of reads that the disk sees at once.
    pub helpers: usize,
    /// Maximum reads that one core has given to one helper, including the active one.
    pub depth: usize,
    /// Maximum reads of one core that wait for a helper; further reads are refused.
    pub waiting_max: usize,
    /// Total size in bytes of the buffers of all cores, at least 2 MiB; a read that finds no free buffer is
    /// refused.
    pub buffer_bytes: usize,
    /// Maximum time in milliseconds that a task waits for a read.
    pub wait_ms_max: u64,
    /// Prefix of the helper threads' names, before a number: at most ten bytes, or Linux truncates the name.
    pub name: &'static str,
}

impl Default for ReadPoolConfig {
    fn default() -> Self {
        Self {
            cores: 1,
            helpers: 16,
            depth: 4,
            waiting_max: 1024,
            buffer_bytes: 32 << 20,
            wait_ms_max: 5_000,
            name: "read",
        }
    }
}

/// Reasons why the read pool could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A number that must not be zero is zero.
    #[error("invalid read pool: {what} must not be 0")]
    None {
        /// Number in the configuration that is zero.
        what: &'static str,
    },
    /// A source has a block size that is not supported.
    #[error("unsupported block size of {bytes} bytes: a power of two up to 4096 is needed")]
    Blocks {
        /// Block size of the source.
        bytes: usize,
    },
    /// The kernel refused a resource.
    #[error("cannot set up disk reads: the kernel refused {what}: {source}")]
    Kernel {
        /// Resource that was requested.
        what: &'static str,
        /// Error that the kernel returned.
        source: io::Error,
    },
}

/// Pool of helper threads. Dropping it stops them; reads that are active at that time get no answer.
#[derive(Debug)]
pub struct ReadPool {
    stop: Sender<Message>,
    cores: usize,
    threads: Vec<JoinHandle<()>>,
    /// Channel that is disconnected once every helper has ended.
    ended: mpsc::Receiver<()>,
    counters: Arc<CounterSet<ReadCounter>>,
    waits: Arc<Histograms>,
    disk: Arc<Histograms>,
    buffers: Arc<Buffers>,
}

impl ReadPool {
    /// Starts the helpers, and returns two parts for each core: its read handle, and the receiver of its
    /// answers.
    ///
    /// # Errors
    /// Returns a [`StartError`] if the configuration is invalid or the kernel refuses memory, an eventfd or a
    /// thread.
    pub fn start(
        config: &ReadPoolConfig,
        sources: Vec<Arc<dyn Source>>,
    ) -> Result<(Self, Vec<(Reads, Completions)>), StartError> {
        let ReadPoolConfig { cores, helpers, .. } = *config;
        check(config, &sources)?;
        let refused = |what| move |source| StartError::Kernel { what, source };
        let buffers =
            Buffers::reserve(config.buffer_bytes.max(BUFFER_BYTES_MIN)).map_err(refused("buffer memory"))?;
        // A ring between a core and a helper holds all messages that can be between them; the ring from the
        // pool's owner to a helper holds the helper's `Stop`.
        let mesh = Mesh::new(cores + helpers, 1, config.depth).map_err(refused("an eventfd"))?;
        let mut endpoints = mesh.into_endpoints().into_iter();
        let counters = CounterSet::new(cores);
        let waits = Histograms::new(
            HistogramSpec {
                name: "store_read_seconds",
                help: "Time from the request for a disk read until the loop had the data.",
                unit: Unit::Seconds,
            },
            cores,
        );
        let disk = Histograms::new(
            HistogramSpec {
                name: "store_read_disk_seconds",
                help: "Time that the disk took for a read, measured by the helper.",
                unit: Unit::Seconds,
            },
            helpers,
        );
        let blocks: Arc<[usize]> = sources.iter().map(|source| source.block_bytes()).collect();
        let ends = (0..cores)
            .zip(&mut endpoints)
            .map(|(core, endpoint)| {
                let (sender, receiver) = endpoint.split();
                let reads = Reads::new(
                    config,
                    core,
                    sender,
                    Arc::clone(&blocks),
                    Arc::clone(&buffers),
                    counters.core(core),
                    waits.core(core),
                );
                let completions = Completions::new(receiver, &reads);
                (reads, completions)
            })
            .collect();
        let sources: Arc<[Arc<dyn Source>]> = sources.into();
        let (alive, ended) = mpsc::channel();
        let threads = (0..helpers)
            .zip(&mut endpoints)
            .map(|(number, endpoint)| {
                let (sender, receiver) = endpoint.split();
                let helper = Helper {
                    number,
                    sender,
                    receiver,
                    sources: Arc::clone(&sources),
                    took: disk.core(number),
                };
                let alive = alive.clone();
                std::thread::Builder::new().name(format!("{}-{number}", config.name)).spawn(move || {
                    helper.run();
                    drop(alive);
                })
            })
            .collect::<io::Result<Vec<_>>>()
            .map_err(refused("a thread"))?;
        #[expect(clippy::expect_used, reason = "the mesh was made with exactly one endpoint more")]
        let (stop, _) = endpoints.next().expect("the owner's endpoint").split();
        Ok((Self { stop, cores, threads, ended, counters, waits, disk, buffers }, ends))
    }

    /// Returns the counters, for a [`crate::meter::Registry`].
    #[must_use]
    pub fn counters(&self) -> Arc<CounterSet<ReadCounter>> {
        Arc::clone(&self.counters)
    }

    /// Returns two sets of histograms in nanoseconds, for a [`crate::meter::Registry`]: how long tasks waited
    /// for reads, and how long the reads took at the disk.
    #[must_use]
    pub fn latencies(&self) -> [Arc<Histograms>; 2] {
        [Arc::clone(&self.waits), Arc::clone(&self.disk)]
    }

    /// Returns the bytes of buffers that are in use now.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.buffers.taken_bytes()
    }
}

/// Checks that no number is zero, and that buffers are aligned to the sources' blocks.
fn check(config: &ReadPoolConfig, sources: &[Arc<dyn Source>]) -> Result<(), StartError> {
    for (what, number) in [
        ("a core", config.cores),
        ("a helper", config.helpers),
        ("a place at each helper", config.depth),
        ("a source", sources.len()),
    ] {
        if number == 0 {
            return Err(StartError::None { what });
        }
    }
    for bytes in sources.iter().map(|source| source.block_bytes()) {
        if !bytes.is_power_of_two() || bytes > crate::sys::file_words::PAGE_BYTES {
            return Err(StartError::Blocks { bytes });
        }
    }
    Ok(())
}

impl Drop for ReadPool {
    fn drop(&mut self) {
        for helper in 0..self.threads.len() {
            // `Stop` is the only message ever sent on this ring, so it fits.
            let _ = self.stop.send(self.cores + helper, Message(Kind::Stop));
        }
        self.stop.flush();
        // Nothing is sent on this channel; it is only disconnected.
        let all = self.ended.recv_timeout(END_GRACE) == Err(mpsc::RecvTimeoutError::Disconnected);
        for thread in self.threads.drain(..).filter(|thread| all || thread.is_finished()) {
            // In a server, a panic of a helper has already ended the process; in a test, the panic itself is
            // reported.
            let _ = thread.join();
        }
    }
}

struct Helper {
    number: usize,
    sender: Sender<Message>,
    receiver: Receiver<Message>,
    sources: Arc<[Arc<dyn Source>]>,
    took: Recorder,
}

impl Helper {
    fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            self.receiver.recv_batch_blocking(&mut batch);
            for message in batch.drain(..) {
                match message.0 {
                    Kind::Read(order) => self.read(order),
                    Kind::Answer(_) => panic!("a helper received an answer"),
                    Kind::Stop => return,
                }
            }
        }
    }

    fn read(&self, order: Order) {
        let Order { id, core, extent, buffer, aligned_at, aligned_bytes } = order;
        let source = &self.sources[extent.source];
        let begun = clock::monotonic_ns();
        let read = source.read(aligned_at, buffer.span(0..aligned_bytes));
        self.took.record(clock::monotonic_ns().saturating_sub(begun));
        // The offset is smaller than a block, so it fits.
        let skip = (extent.at - aligned_at) as usize;
        let wanted = skip..skip + extent.bytes as usize;
        let outcome = match read {
            Err(error) => Err(ReadError::Disk { extent, kind: error.kind(), os: error.raw_os_error() }),
            Ok(read) if read < wanted.end => Err(ReadError::Short { extent, got: read.saturating_sub(skip) }),
            Ok(_) => source
                .verify(extent.at, buffer.span(wanted.clone()))
                .map(|()| Block::new(buffer, wanted))
                .map_err(|damage| ReadError::Damaged { extent, damage }),
        };
        let answer = Answer { id, helper: self.number, extent, outcome };
        // The core limits the number of its messages, so there are never more than the ring holds.
        assert!(self.sender.send(core, Message(Kind::Answer(answer))).is_ok(), "more answers than orders");
        self.sender.flush();
    }
}
