//! A disk in memory that distinguishes written from durable data, for tests here and in the servers.
//!
//! ```text
//! write ─▶ visible to readers, survives the process               sync ─▶ survives a loss of power
//! lose_power: each 512-byte sector gets one of its unsynced states, or the synced one: dropped, reordered, torn
//! ```
//! A sector is written completely or not at all, as disks promise; nothing else is promised.

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::file::Disk;
use crate::cold_mutex::ColdMutex;

/// Size in bytes of a sector, which a disk writes completely or not at all.
const SECTOR_BYTES: usize = 512;
/// Size in bytes of a page in the disk's memory. A page that was never written is not allocated, so a disk
/// may be large.
const PAGE_BYTES: usize = 64 << 10;

/// A simulated disk of a fixed size. All clones refer to the same disk.
#[derive(Debug, Clone)]
pub struct SimulatedDisk {
    state: Arc<ColdMutex<State>>,
}

#[derive(Debug)]
struct State {
    /// Current contents, as a reader sees them.
    written: Pages,
    /// Contents that are certain to survive a loss of power.
    durable: Pages,
    /// States of sectors since the last sync, the newest last.
    unsynced: BTreeMap<usize, Vec<Vec<u8>>>,
    faults: Faults,
    writes: u64,
    read_bytes: u64,
}

/// Sparse memory that reads as zero where it was never written.
#[derive(Debug, Clone)]
struct Pages {
    bytes: usize,
    pages: BTreeMap<usize, Arc<[u8; PAGE_BYTES]>>,
}

impl Pages {
    fn new(bytes: u64) -> Self {
        Self { bytes: bytes as usize, pages: BTreeMap::new() }
    }

    /// Splits `len` bytes starting at `offset` into parts by page: page, offset in it, length.
    fn parts(offset: usize, len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let end = offset + len;
        let mut at = offset;
        std::iter::from_fn(move || {
            let (page, from) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let now = (end - at).min(PAGE_BYTES - from);
            at += now;
            (now > 0).then_some((page, from, now))
        })
    }

    fn read(&self, offset: usize, mut out: &mut [u8]) {
        for (page, from, len) in Self::parts(offset, out.len()) {
            let (now, rest) = out.split_at_mut(len);
            match self.pages.get(&page) {
                Some(page) => now.copy_from_slice(&page[from..from + len]),
                None => now.fill(0),
            }
            out = rest;
        }
    }

    fn write(&mut self, offset: usize, mut bytes: &[u8]) {
        for (page, from, len) in Self::parts(offset, bytes.len()) {
            let page = self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[from..from + len].copy_from_slice(&bytes[..len]);
            bytes = &bytes[len..];
        }
    }

    fn all(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.read(0, &mut bytes);
        bytes
    }

    fn flip(&mut self, bit: u64) {
        let mut byte = [0];
        let at = (bit / 8) as usize;
        self.read(at, &mut byte);
        self.write(at, &[byte[0] ^ (1 << (bit % 8))]);
    }
}

/// Faults that the disk simulates until they are changed.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Writes fail with this error number.
    pub write: Option<i32>,
    /// Syncs fail with this error number.
    pub sync: Option<i32>,
    /// Reads of these bytes fail with `EIO`.
    pub unreadable: Option<Range<u64>>,
    /// Number of writes that still succeed. The next write is cut in the middle, and later ones are lost, as
    /// when the process is killed.
    pub writes_left: Option<u64>,
}

impl SimulatedDisk {
    /// Creates a disk of `bytes` zeros.
    pub fn new(bytes: u64) -> Self {
        Self {
            state: Arc::new(ColdMutex::new(State {
                written: Pages::new(bytes),
                durable: Pages::new(bytes),
                unsynced: BTreeMap::new(),
                faults: Faults::default(),
                writes: 0,
                read_bytes: 0,
            })),
        }
    }

    /// Sets the faults that the disk simulates from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Returns the disk as it is after the process was killed: with all data that was written.
    pub fn after_kill(&self) -> Self {
        let state = self.state.lock();
        let after = Self::new(state.written.bytes as u64);
        {
            let mut fresh = after.state.lock();
            fresh.written.clone_from(&state.written);
            fresh.durable.clone_from(&state.durable);
            fresh.unsynced.clone_from(&state.unsynced);
        }
        after
    }

    /// Returns a possible state of the disk after a loss of power: `choose(n)` picks one of `n` states of
    /// each sector.
    pub fn after_power_loss(&self, mut choose: impl FnMut(usize) -> usize) -> Self {
        let state = self.state.lock();
        let after = Self::new(state.durable.bytes as u64);
        {
            let mut fresh = after.state.lock();
            fresh.durable.clone_from(&state.durable);
            for (sector, states) in &state.unsynced {
                let chosen = choose(states.len() + 1);
                if let Some(bytes) = chosen.checked_sub(1).and_then(|chosen| states.get(chosen)) {
                    fresh.durable.write(sector * SECTOR_BYTES, bytes);
                }
            }
            fresh.written = fresh.durable.clone();
        }
        after
    }

    /// Flips a bit, as a faulty disk does.
    pub fn flip(&self, bit: u64) {
        let mut state = self.state.lock();
        state.written.flip(bit);
        state.durable.flip(bit);
    }

    /// Returns all bytes that a reader sees.
    pub fn bytes(&self) -> Vec<u8> {
        self.state.lock().written.all()
    }

    /// Returns the number of writes so far.
    pub fn writes(&self) -> u64 {
        self.state.lock().writes
    }

    /// Returns the number of bytes read so far.
    pub fn read_bytes(&self) -> u64 {
        self.state.lock().read_bytes
    }
}

impl State {
    fn put(&mut self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let end = offset + bytes.len();
        if end > self.written.bytes {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.written.write(offset, bytes);
        for sector in offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            let from = sector * SECTOR_BYTES;
            let mut state = vec![0; SECTOR_BYTES.min(self.written.bytes - from)];
            self.written.read(from, &mut state);
            self.unsynced.entry(sector).or_default().push(state);
        }
        Ok(())
    }
}

impl Disk for SimulatedDisk {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.read_bytes += out.len() as u64;
        let end = offset + out.len() as u64;
        if let Some(unreadable) = &state.faults.unreadable
            && offset < unreadable.end
            && unreadable.start < end
        {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        if end > state.written.bytes as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        state.written.read(offset as usize, out);
        Ok(())
    }

    fn write(&self, offset: u64, words: &[AtomicU64]) -> io::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        let mut state = self.state.lock();
        if let Some(error) = state.faults.write {
            return Err(io::Error::from_raw_os_error(error));
        }
        state.writes += 1;
        match &mut state.faults.writes_left {
            Some(0) => {
                state.faults.write = Some(libc::EIO);
                let half = bytes.len() / 2 / SECTOR_BYTES * SECTOR_BYTES;
                state.put(offset as usize, &bytes[..half])?;
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        state.put(offset as usize, &bytes)
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some(error) = state.faults.sync {
            return Err(io::Error::from_raw_os_error(error));
        }
        if state.faults.write.is_some() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let State { durable, unsynced, .. } = &mut *state;
        for (sector, mut states) in std::mem::take(unsynced) {
            if let Some(last) = states.pop() {
                durable.write(sector * SECTOR_BYTES, &last);
            }
        }
        Ok(())
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let zeros = vec![0; bytes as usize];
        self.state.lock().put(offset as usize, &zeros)
    }
}
