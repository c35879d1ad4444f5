//! A disk in memory that tells written from durable: for tests, here and in the servers.
//!
//! ```text
//! write ─▶ what a reader sees, and what survives the process      sync ─▶ what survives the power
//! lose_power: of each 512-byte sector one of its unsynced states, or the synced one: dropped, reordered, torn
//! ```
//! A sector is written whole or not at all, as disks promise; nothing else is promised.

#![expect(clippy::disallowed_types, reason = "a test's disk, on no loop")]

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::file::Disk;

/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// A disk of a fixed size. All handles to it are the same disk.
#[derive(Debug, Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// What a reader sees.
    written: Vec<u8>,
    /// What is certain to survive the power.
    durable: Vec<u8>,
    /// States of sectors since the last sync, the newest last.
    unsynced: BTreeMap<usize, Vec<Vec<u8>>>,
    faults: Faults,
    writes: u64,
    read_bytes: u64,
}

/// What goes wrong, until it is changed.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Writes fail with this error of the system.
    pub write: Option<i32>,
    /// Syncs fail with this error.
    pub sync: Option<i32>,
    /// Reads of these bytes fail with `EIO`.
    pub unreadable: Option<Range<u64>>,
    /// So many more writes are done; the one after them is cut in the middle, and those after it are lost, as when the
    /// process is killed.
    pub writes_left: Option<u64>,
}

impl SimulatedDisk {
    /// A disk of so many zeros.
    pub fn new(bytes: u64) -> Self {
        let zeros = vec![0; bytes as usize];
        Self {
            state: Arc::new(Mutex::new(State {
                written: zeros.clone(),
                durable: zeros,
                unsynced: BTreeMap::new(),
                faults: Faults::default(),
                writes: 0,
                read_bytes: 0,
            })),
        }
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// The disk as it is after the process was killed: all that was written.
    pub fn after_kill(&self) -> Self {
        let state = self.state();
        let after = Self::new(state.written.len() as u64);
        {
            let mut fresh = after.state();
            fresh.written.clone_from(&state.written);
            fresh.durable.clone_from(&state.durable);
            fresh.unsynced.clone_from(&state.unsynced);
        }
        after
    }

    /// The disk as it may be after the power went: `choose(n)` picks one of `n` states of each sector.
    pub fn after_power_loss(&self, mut choose: impl FnMut(usize) -> usize) -> Self {
        let state = self.state();
        let after = Self::new(state.durable.len() as u64);
        {
            let mut fresh = after.state();
            fresh.durable.clone_from(&state.durable);
            for (sector, states) in &state.unsynced {
                let chosen = choose(states.len() + 1);
                if let Some(bytes) = chosen.checked_sub(1).and_then(|chosen| states.get(chosen)) {
                    fresh.durable[sector * SECTOR_BYTES..][..bytes.len()].copy_from_slice(bytes);
                }
            }
            fresh.written = fresh.durable.clone();
        }
        after
    }

    /// Turns a bit over, as a bad disk does.
    pub fn flip(&self, bit: u64) {
        let mut state = self.state();
        let (at, mask) = ((bit / 8) as usize, 1u8 << (bit % 8));
        state.written[at] ^= mask;
        state.durable[at] ^= mask;
    }

    /// All that a reader sees.
    pub fn bytes(&self) -> Vec<u8> {
        self.state().written.clone()
    }

    /// Writes so far.
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Bytes read so far.
    pub fn read_bytes(&self) -> u64 {
        self.state().read_bytes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn put(&mut self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let end = offset + bytes.len();
        if end > self.written.len() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.written[offset..end].copy_from_slice(bytes);
        for sector in offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES) {
            let from = sector * SECTOR_BYTES;
            let to = (from + SECTOR_BYTES).min(self.written.len());
            let states = self.unsynced.entry(sector).or_default();
            states.push(self.written[from..to].to_vec());
        }
        Ok(())
    }
}

impl Disk for SimulatedDisk {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut state = self.state();
        state.read_bytes += out.len() as u64;
        let end = offset + out.len() as u64;
        if let Some(unreadable) = &state.faults.unreadable
            && offset < unreadable.end
            && unreadable.start < end
        {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let bytes = state.written.get(offset as usize..end as usize);
        out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&self, offset: u64, words: &[AtomicU64]) -> io::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
        let mut state = self.state();
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
        let mut state = self.state();
        if let Some(error) = state.faults.sync {
            return Err(io::Error::from_raw_os_error(error));
        }
        if state.faults.write.is_some() {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let State { written, durable, unsynced, .. } = &mut *state;
        durable.clone_from(written);
        unsynced.clear();
        Ok(())
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let zeros = vec![0; bytes as usize];
        self.state().put(offset as usize, &zeros)
    }
}
