//! The helper threads: started once for all cores, ended when the pool is dropped.

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

/// How long the pool waits for helpers to end before it leaves them to a disk that hangs.
const END_GRACE: Duration = Duration::from_secs(1);

/// How many helpers there are, and every bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPoolConfig {
    /// Cores that read.
    pub cores: usize,
    /// Threads that read for them: how many reads the disk sees at once.
    pub helpers: usize,
    /// Reads of one core that one helper may have, the one that it is at included.
    pub depth: usize,
    /// Reads of one core that may wait for a helper; more are refused.
    pub waiting_max: usize,
    /// Bytes of buffers over all cores, at least 2 MiB; a read that finds none is refused.
    pub buffer_bytes: usize,
    /// How long a task waits for a read, in milliseconds.
    pub wait_ms_max: u64,
    /// What the helpers' threads are called, up to a number: at most ten bytes, or Linux cuts it.
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

/// Why helpers could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A number that must not be zero.
    #[error("reading needs {what}, not 0")]
    None {
        /// What it is of.
        what: &'static str,
    },
    /// A source whose blocks cannot be served.
    #[error("a source with blocks of {bytes} bytes cannot be read: a power of two up to 4096 is needed")]
    Blocks {
        /// What it said.
        bytes: usize,
    },
    /// The kernel refused.
    #[error("the kernel refused {what} for reading: {source}")]
    Kernel {
        /// What was asked for.
        what: &'static str,
        /// Its words.
        source: io::Error,
    },
}

/// The helpers. Dropping it ends them; reads that are under way then are not answered any more.
#[derive(Debug)]
pub struct ReadPool {
    stop: Sender<Message>,
    cores: usize,
    threads: Vec<JoinHandle<()>>,
    /// Disconnected once every helper has ended.
    ended: mpsc::Receiver<()>,
    counters: Arc<CounterSet<ReadCounter>>,
    waits: Arc<Histograms>,
    disk: Arc<Histograms>,
    buffers: Arc<Buffers>,
}

impl ReadPool {
    /// Starts the helpers, and gives each core its two parts: what it reads by, and where answers come in.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        config: &ReadPoolConfig,
        sources: Vec<Arc<dyn Source>>,
    ) -> Result<(Self, Vec<(Reads, Completions)>), StartError> {
        let ReadPoolConfig { cores, helpers, .. } = *config;
        check(config, &sources)?;
        let refused = |what| move |source| StartError::Kernel { what, source };
        let buffers = Buffers::reserve(config.buffer_bytes.max(BUFFER_BYTES_MIN))
            .map_err(refused("memory for buffers"))?;
        // A ring between a core and a helper holds all that can be between them; the owner's holds its `Stop`.
        let mesh = Mesh::new(cores + helpers, 1, config.depth).map_err(refused("an eventfd"))?;
        let mut endpoints = mesh.into_endpoints().into_iter();
        let counters = CounterSet::new(cores);
        let waits = Histograms::new(
            HistogramSpec {
                name: "store_read_seconds",
                help: "From asking for a read of the disk until the loop had the answer.",
                unit: Unit::Seconds,
            },
            cores,
        );
        let disk = Histograms::new(
            HistogramSpec {
                name: "store_read_disk_seconds",
                help: "What the disk took for a read, as its helper saw it.",
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

    /// What is counted, for a [`crate::meter::Registry`].
    #[must_use]
    pub fn counters(&self) -> Arc<CounterSet<ReadCounter>> {
        Arc::clone(&self.counters)
    }

    /// How long reads took those who waited, and the disk, in nanoseconds; for a [`crate::meter::Registry`].
    #[must_use]
    pub fn latencies(&self) -> [Arc<Histograms>; 2] {
        [Arc::clone(&self.waits), Arc::clone(&self.disk)]
    }

    /// Bytes of buffers that are in use now.
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        self.buffers.taken_bytes()
    }
}

/// Whether there is at least one of each, and whether blocks are what buffers are aligned to.
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
            // The only message of this ring: it fits.
            let _ = self.stop.send(self.cores + helper, Message(Kind::Stop));
        }
        self.stop.flush();
        // Nobody says anything in this channel: it only ends.
        let all = self.ended.recv_timeout(END_GRACE) == Err(mpsc::RecvTimeoutError::Disconnected);
        for thread in self.threads.drain(..).filter(|thread| all || thread.is_finished()) {
            // A helper that panicked has ended the process in a server; in a test its panic is what is seen.
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
                    Kind::Answer(_) => panic!("a helper was sent an answer"),
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
        // Below a block: fits.
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
        // There are never more between the two than the ring holds: the core counts them.
        assert!(self.sender.send(core, Message(Kind::Answer(answer))).is_ok(), "more answers than orders");
        self.sender.flush();
    }
}
