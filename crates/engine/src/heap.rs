//! Returning freed heap memory to the system.
//!
//! ```text
//!  a server, or one of its loops, reports the bytes that it uses now
//!   ▁▂▅██████▃▁▁▁▁▁▁▁▁   far below the peak ──▶ request ──▶ 12 s ──▶ trim, on a thread of its own, once for all requests
//!            │←─ 10 s ─▶ Out: the owner frees its spare memory, too
//! ```
//! glibc keeps freed memory for later allocations of the same thread: after an hour with many clients, a
//! process without clients still holds a gigabyte. [`trim`] releases it, one arena after the other; a thread
//! that allocates in that arena meanwhile waits. Trimming therefore happens after much memory was freed and
//! not while usage goes up and down, never on a loop's thread, and at most once in `WAIT` in the whole
//! process, whichever server requested it. A [`HeapTrimmer`] is plain memory of its owner; there is no thread
//! while no trim is requested. The cost of that wait is measured in `docs/decisions/026-siege.md`.

use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};

use crate::sys::heap::trim;

/// Delay from the first trim request to the trim, so that memory freed within this time is returned together.
/// Longer than [`STAYS_OUT_MS`], so that an owner's spare memory is included.
const WAIT: Duration = Duration::from_secs(12);
/// Duration of low usage after which an owner gives up its spare memory; until then, it may be needed again
/// soon.
pub const STAYS_OUT_MS: u64 = 10_000;
/// Minimum number of bytes worth trimming. Less than an eighth of the peak is not worth trimming either.
pub const WORTH_BYTES: usize = 4 << 20;
const WORTH_SHARE: usize = 8;

static DOOR: TrimGate = TrimGate { is_asked: AtomicBool::new(false), trims: AtomicU64::new(0) };

/// Memory usage of one server or one of its loops: the peak since memory was last returned, and how long
/// usage has been low.
#[derive(Debug, Default)]
pub struct HeapTrimmer {
    most_bytes: usize,
    out_since_ms: Option<u64>,
    freed_bytes: usize,
}

/// Advice of a [`HeapTrimmer`] to the owner that reported its usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimStep {
    /// Usage is near its peak.
    High,
    /// Usage has recently fallen far below its peak: report again at this time (in milliseconds), if nothing
    /// changes.
    Until(u64),
    /// Usage has been far below its peak for a while: free the spare memory now. Freed heap memory is
    /// returned automatically.
    Out,
}

impl HeapTrimmer {
    /// Reports that `bytes` are in use now. An owner without spare memory can ignore the result: freed memory
    /// is returned anyway.
    pub fn uses(&mut self, bytes: usize, now_ms: u64) -> TrimStep {
        let (ebb, asks) = self.turns(bytes, now_ms);
        if asks {
            give_back_soon();
        }
        ebb
    }

    /// Reports that `bytes` were freed and will not be reused, for owners that do not track their usage.
    pub fn let_go(&mut self, bytes: usize) {
        self.freed_bytes += bytes;
        if self.freed_bytes >= WORTH_BYTES {
            self.freed_bytes = 0;
            give_back_soon();
        }
    }

    /// Computes the result of [`Self::uses`], and whether a trim must be requested.
    fn turns(&mut self, bytes: usize, now_ms: u64) -> (TrimStep, bool) {
        self.most_bytes = self.most_bytes.max(bytes);
        if self.most_bytes - bytes < WORTH_BYTES.max(self.most_bytes / WORTH_SHARE) {
            self.out_since_ms = None;
            return (TrimStep::High, false);
        }
        let is_new = self.out_since_ms.is_none();
        let until_ms = self.out_since_ms.get_or_insert(now_ms).saturating_add(STAYS_OUT_MS);
        if now_ms < until_ms {
            return (TrimStep::Until(until_ms), is_new);
        }
        (self.most_bytes, self.out_since_ms) = (bytes, None);
        (TrimStep::Out, true)
    }
}

/// Requests that free memory is returned to the system soon.
pub fn give_back_soon() {
    if let Err(error) = DOOR.ask(begin) {
        tracing::warn!(%error, "cannot return free memory to the system");
    }
}

/// Returns how often memory was returned since the process began.
pub fn trims() -> u64 {
    DOOR.trims.load(SeqCst)
}

/// Gate that merges concurrent requests into one trim of the heap.
struct TrimGate {
    is_asked: AtomicBool,
    trims: AtomicU64,
}

impl TrimGate {
    fn ask(&self, begin: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if self.is_asked.swap(true, SeqCst) {
            return Ok(());
        }
        begin().inspect_err(|_| self.is_asked.store(false, SeqCst))
    }

    /// Opens the gate: memory freed from now on needs a new trim request.
    fn accept_requests(&self) {
        self.is_asked.store(false, SeqCst);
        self.trims.fetch_add(1, SeqCst);
    }
}

fn begin() -> io::Result<()> {
    let wait_and_trim = || {
        #[expect(clippy::disallowed_methods, reason = "a thread of its own, which no loop waits for")]
        thread::sleep(WAIT);
        DOOR.accept_requests();
        trim();
    };
    thread::Builder::new().name("give-back".to_owned()).spawn(wait_and_trim).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn the_heap_is_trimmed_once_use_stays_low() {
        let mut tide = HeapTrimmer::default();
        let high = (TrimStep::High, false);
        assert_eq!(tide.turns(100 * MIB, 0), high);
        assert_eq!(tide.turns(88 * MIB, 0), high, "less than an eighth has gone");
        assert_eq!(tide.turns(60 * MIB, 1000), (TrimStep::Until(11_000), true));
        assert_eq!(tide.turns(10 * MIB, 2000), (TrimStep::Until(11_000), false), "it was asked for");
        assert_eq!(tide.turns(95 * MIB, 3000), high, "it came back");
        assert_eq!(tide.turns(60 * MIB, 4000), (TrimStep::Until(14_000), true));
        assert_eq!(tide.turns(60 * MIB, 14_000), (TrimStep::Out, true));
        assert_eq!(tide.turns(60 * MIB, 15_000), high, "what stays is not asked for again");
        assert_eq!(tide.turns(0, 15_000), (TrimStep::Until(25_000), true));
        let mut little = HeapTrimmer::default();
        assert_eq!([4 * MIB - 1, 0].map(|bytes| little.turns(bytes, 0)), [high; 2]);
    }

    #[test]
    fn who_asks_together_is_served_together() {
        let door = TrimGate { is_asked: AtomicBool::new(false), trims: AtomicU64::new(0) };
        let mut begun = 0;
        let mut ask = |error: bool| {
            let _ = door.ask(|| {
                begun += 1;
                if error { Err(io::ErrorKind::OutOfMemory.into()) } else { Ok(()) }
            });
        };
        ask(true);
        (0..3).for_each(|_| ask(false));
        door.accept_requests();
        ask(false);
        assert_eq!((begun, door.trims.load(SeqCst)), (3, 1), "a thread that did not begin is tried again");
    }
}
