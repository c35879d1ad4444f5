//! Memory that was needed once, by clients that are gone or have taken what waited, is given back.
//!
//! ```text
//!   spare chunks, tables with room for a million ── GIVE_BACK_MIN_BYTES of it for GIVE_BACK_AFTER ──▶ shrunk, and the
//!                                                    allocator's free pages go back to the kernel, on a helper
//! ```
//! What a table cannot give back, because something still lies at its end, is not asked for again until there is more
//! of it.

use std::time::Duration;

use engine::sys::heap;

use crate::{connection::Subscription, core::Core, counters::Counter};

/// So much that is not needed is worth the work.
const GIVE_BACK_MIN_BYTES: usize = 4 << 20;
/// It may be needed again soon.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(10);

/// What a core holds and does not need.
#[derive(Debug, Default)]
pub(crate) struct Lean {
    since_ms: Option<u64>,
    /// What stayed the last time.
    stays_bytes: usize,
}

impl Core {
    /// Gives back what has not been needed for a while. When it is to be asked again, if nothing stirs.
    pub(crate) fn give_back_memory(&mut self) -> Option<u64> {
        let unused = self.unused_bytes();
        if unused < self.lean.stays_bytes + GIVE_BACK_MIN_BYTES {
            self.lean.since_ms = None;
            self.lean.stays_bytes = self.lean.stays_bytes.min(unused);
            return None;
        }
        let since_ms = *self.lean.since_ms.get_or_insert(self.now_ms);
        #[expect(clippy::cast_possible_truncation, reason = "some seconds")]
        let due_ms = since_ms + GIVE_BACK_AFTER.as_millis() as u64;
        if self.now_ms < due_ms {
            return Some(due_ms);
        }
        self.outputs.chunks.give_up();
        self.subjects.shrink();
        self.buffers.shrink();
        self.links.shrink();
        self.lean = Lean { since_ms: None, stays_bytes: self.unused_bytes() };
        self.count(Counter::MemoryGivenBack);
        drop(tokio::task::spawn_blocking(heap::trim));
        None
    }

    /// What was needed at some time since the last one and is not now.
    fn unused_bytes(&self) -> usize {
        self.outputs.chunks.unused() + self.subjects.vacant() * size_of::<Subscription>()
    }
}
