//! Nighttrain's store as a library: in memory only, or in memory with a file, on one loop.
//!
//! ```text
//!   look ─▶ memory ─▶ hit
//!        └▶ directory of the file ─▶ helper reads ─▶ restored in memory ─▶ hit
//! ```
//! These are the steps of the accelerator's miss (`crates/cache/src/body/cold.rs`), without requests and
//! sockets.

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::time::Duration;

use engine::io::{Completions, Extent, ReadCounter, ReadPool, ReadPoolConfig, Reads};
use engine::log::{self, Log};
use engine::store::tier::{
    Admission, FileConfig, FileRecord, FileStore, ReadMode, image::RecordImage, open_on_file,
};
use engine::store::{
    BodyLength, Hash, Lookup, NewObject, Object, Reader, Shard, StoreConfig, Usage, open_anon,
};

use super::{END_BYTES, Location, checked_ends, key};

/// Seed of the store's hash, fixed so that runs are comparable.
const SEED: u64 = 0x5eed;

/// Lifetime of each object, longer than any run, so that nothing expires.
const LIFETIME_S: u32 = 1_000_000;
/// Constant time of the store, because nothing here depends on expiry.
const NOW_S: u32 = 1_000;
/// Number of helpers and flush interval, as in the accelerator.
pub(crate) const HELPERS: usize = 16;
const FLUSH: Duration = Duration::from_secs(1);

/// A store on one core, with the helpers that read its file.
pub(crate) struct Ours {
    // The fields are dropped in this order: the log last, because it writes out what the shard has appended.
    shard: RefCell<Shard>,
    reader: Reader,
    file: Option<OnDisk>,
}

struct OnDisk {
    reads: Reads,
    pool: ReadPool,
    log: Log,
}

/// Memory and file of a store.
pub(crate) struct Sizes<'a> {
    pub(crate) memory_bytes: u64,
    /// Path of the file, its length, and how it is read.
    pub(crate) file: Option<(&'a Path, u64, ReadMode)>,
}

impl Ours {
    /// Opens a store. With a file, the second value receives the helpers' completions.
    pub(crate) fn open(sizes: &Sizes<'_>) -> io::Result<(Self, Option<Completions>)> {
        let config = StoreConfig {
            capacity_bytes: sizes.memory_bytes,
            hash_seed: Some(SEED),
            ..StoreConfig::default()
        };
        let Some((path, bytes, paging)) = sizes.file else {
            let (store, mut shards) = open_anon(&config).map_err(io::Error::other)?;
            let shard = shards.pop().ok_or_else(|| io::Error::other("no shard"))?;
            let ours = Self { shard: RefCell::new(shard), reader: store.reader(0), file: None };
            return Ok((ours, None));
        };
        let file = FileConfig {
            path: path.into(),
            bytes,
            flush: FLUSH,
            paging,
            admission: Admission::Always,
            objects_max: u64::MAX,
        };
        let FileStore { store, mut shards, log, source, .. } =
            open_on_file(&config, &file, NOW_S).map_err(io::Error::other)?;
        let shard = shards.pop().ok_or_else(|| io::Error::other("no shard"))?;
        let pool = ReadPoolConfig { helpers: HELPERS, ..ReadPoolConfig::default() };
        let (pool, mut ends) = ReadPool::start(&pool, vec![source]).map_err(io::Error::other)?;
        let (reads, completions) = ends.pop().ok_or_else(|| io::Error::other("no end to read by"))?;
        let ours = Self {
            shard: RefCell::new(shard),
            reader: store.reader(0),
            file: Some(OnDisk { reads, pool, log }),
        };
        Ok((ours, Some(completions)))
    }

    /// Runs `main` on an event loop, concurrently with the task that handles the helpers' completions.
    pub(crate) fn run<T>(
        &self,
        completions: Option<Completions>,
        main: impl Future<Output = T>,
    ) -> io::Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let settling = async {
            let (Some(file), Some(mut completions)) = (&self.file, completions) else {
                return std::future::pending().await;
            };
            let mut messages = Vec::new();
            loop {
                completions.next(&mut messages).await;
                file.reads.settle(&mut messages);
            }
        };
        Ok(tokio::task::LocalSet::new().block_on(&runtime, async {
            tokio::select! {
                done = main => done,
                () = settling => unreachable!("it never ends"),
            }
        }))
    }

    /// Looks up object `id`, checks its bytes, and returns where it was found.
    pub(crate) async fn look(&self, id: u64) -> io::Result<Location> {
        let key = key(id);
        let hash = Hash::seeded(&key, SEED);
        match self.reader.turn().lookup(hash, &key) {
            Lookup::Hit(object) => return checked(id, &object).map(|()| Location::InMemory),
            Lookup::Miss | Lookup::Contended => {}
        }
        let cold = self.shard.borrow_mut().find_on_file(hash, NOW_S);
        let Some(cold) = cold else { return Ok(Location::Nowhere) };
        let held = self.shard.borrow().held(cold);
        let payload = match held {
            Some(payload) => payload,
            None => match self.read(cold).await? {
                Some(payload) => payload,
                None => return Ok(Location::Nowhere),
            },
        };
        let image = RecordImage::parse(cold, &payload)
            .ok_or_else(|| io::Error::other("what was read is no object"))?;
        let mut shard = self.shard.borrow_mut();
        let restored = shard.restore(hash, &key, &image, None, NOW_S).map_err(io::Error::other)?;
        if !restored {
            return Ok(Location::Nowhere);
        }
        match shard.lookup_owned(hash, &key) {
            Some(object) => checked(id, &object).map(|()| Location::OnDisk),
            None => Ok(Location::Nowhere),
        }
    }

    /// Reads the payload of a record by a helper; `None` if its segment has been reused.
    async fn read(&self, cold: FileRecord) -> io::Result<Option<Vec<u8>>> {
        let file = self.file.as_ref().ok_or_else(|| io::Error::other("a cold object without a file"))?;
        let bytes = log::record_bytes(cold.payload_bytes as usize);
        // Every object here is short enough for a single read by a helper, so the conversion is lossless.
        let extent = Extent { source: 0, at: cold.location.offset(), bytes: bytes as u32 };
        let pending = file.reads.read(extent).map_err(io::Error::other)?;
        let block = match pending.settled().await {
            Ok(block) => block,
            // The segment was reused during the read, so the object is gone; that is no error.
            Err(_) if file.log.reader().segment_of(cold.location).is_none() => return Ok(None),
            Err(error) => return Err(io::Error::other(error)),
        };
        let mut record = Vec::new();
        block.span().copy_to(&mut record);
        let Some(len) = file.log.reader().payload_of(cold.location, &record).map(<[u8]>::len) else {
            return Ok(None);
        };
        record.drain(..log::format::RECORD_HEADER_BYTES);
        record.truncate(len);
        Ok(Some(record))
    }

    /// Stores object `id`.
    pub(crate) fn put(&self, id: u64, body: &[u8]) -> io::Result<()> {
        let key = key(id);
        let new = NewObject {
            expires_s: NOW_S + LIFETIME_S,
            now_s: NOW_S,
            ..NewObject::bare(Hash::seeded(&key, SEED), &key, BodyLength::Exact(body.len() as u64))
        };
        let mut shard = self.shard.borrow_mut();
        shard.insert(new, body, b"").map_err(io::Error::other)?;
        while shard.copy_to_file() {}
        Ok(())
    }

    /// Waits until everything stored so far is on the disk.
    pub(crate) async fn settle(&self) -> io::Result<()> {
        let promise = self.shard.borrow_mut().promise();
        promise.kept().await.map_err(io::Error::other)
    }

    /// Returns the number of disk reads that helpers have begun so far.
    pub(crate) fn reads(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.pool.counters().total(ReadCounter::Begun))
    }

    pub(crate) fn usage(&self) -> Usage {
        self.reader.store().usage()
    }
}

/// Checks the length and both ends of a body, as for every library.
fn checked(id: u64, object: &Object<'_>) -> io::Result<()> {
    let bytes = object.body_bytes();
    let mut ends = [0; 2 * END_BYTES];
    if bytes >= END_BYTES as u64 {
        let (first, last) = ends.split_at_mut(END_BYTES);
        for (from, into) in [(0, first), (bytes - END_BYTES as u64, last)] {
            let mut read = 0;
            // Usually one iteration is enough; the last extent of a long body may be shorter than the bytes
            // to check.
            while read < END_BYTES {
                let run = object.body(from + read as u64);
                let len = run.len().min(END_BYTES - read);
                run.slice(0..len).copy_to_slice(&mut into[read..read + len]);
                read += len;
            }
        }
    }
    checked_ends(id, bytes, &ends)
}
