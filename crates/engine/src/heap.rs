//! Memory that was needed once is given back to the system.
//!
//! ```text
//!  connections:  ▁▂▅█████▃▁   a tide that has gone out by half ──▶ ask ──▶ 20 s ──▶ trim, on a thread of its own
//!  large bytes:  freed, freed, freed: 16 MiB of them ─────────────▲
//! ```
//! glibc keeps what is freed for the thread that asks next: after an hour with many clients a gigabyte stays with a
//! process that has none any more. Asking it to let go (`malloc_trim`) costs the time of unmapping, and whoever
//! allocates in that arena waits meanwhile; so it is done when much has gone, not while it comes and goes: *bound:* once
//! in `WAIT`. A [`Tide`] is plain memory of whoever counts; while nothing is asked for there is no thread.

use std::{
    io,
    sync::atomic::{AtomicU8, Ordering::SeqCst},
    thread,
    time::Duration,
};

use crate::sys::heap::trim;

/// From the first wish to the trimming: what goes in this time goes together.
const WAIT: Duration = Duration::from_secs(20);
/// Fewer connections than this needed little.
const TIDE_MIN: usize = 64;
/// Bytes that were let go in large pieces until it is worth asking.
const LET_GO_MIN: usize = 16 << 20;

/// Nobody has asked.
const RESTING: u8 = 0;
/// Somebody has, and the thread is there.
const ASKED: u8 = 1;
static STATE: AtomicU8 = AtomicU8::new(RESTING);

/// What one server, or one loop of it, holds: the most since it was low.
#[derive(Debug, Default)]
pub struct Tide {
    most: usize,
    let_go_bytes: usize,
}

impl Tide {
    /// So many connections are held now. Once half of what there was has gone, memory is given back.
    pub fn holds(&mut self, held: usize) {
        if self.has_gone_out(held) {
            give_back_soon();
        }
    }

    /// So many bytes were freed that are not used again.
    pub fn let_go(&mut self, bytes: usize) {
        self.let_go_bytes += bytes;
        if self.let_go_bytes >= LET_GO_MIN {
            self.let_go_bytes = 0;
            give_back_soon();
        }
    }

    fn has_gone_out(&mut self, held: usize) -> bool {
        let was_much = self.most >= TIDE_MIN && held <= self.most / 2;
        if was_much || held > self.most {
            self.most = held;
        }
        was_much
    }
}

/// Has free memory given back in a while.
pub fn give_back_soon() {
    if STATE.swap(ASKED, SeqCst) == ASKED {
        return;
    }
    if let Err(error) = begin() {
        STATE.store(RESTING, SeqCst);
        tracing::warn!(%error, "memory that is free cannot be given back now");
    }
}

fn begin() -> io::Result<()> {
    let wait_and_trim = || {
        #[expect(clippy::disallowed_methods, reason = "a thread of its own, which no loop waits for")]
        thread::sleep(WAIT);
        // What goes from here on asks anew.
        STATE.store(RESTING, SeqCst);
        trim();
    };
    thread::Builder::new().name("give-back".to_owned()).spawn(wait_and_trim).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tide_goes_out_when_half_of_much_has_gone() {
        let mut tide = Tide::default();
        let said = [1, 63, 30, 0, 64, 33, 32, 31, 0, 1000, 501, 500, 251, 250, 124, 62, 31, 30]
            .map(|held| tide.has_gone_out(held));
        let gone: Vec<usize> = (0..said.len()).filter(|at| said[*at]).collect();
        assert_eq!(gone, [6, 11, 13, 14, 15]);
    }
}
