//! Memory that was needed once, by clients that are gone or have taken what waited, is given back.
//!
//! ```text
//!   chunks that are lent, tables' entries ── `engine::heap::HeapTrimmer` says that they are few, for a while ──▶ spare chunks
//!                      and rooms are given up here, the allocator's free pages by `engine::heap`, for all servers once
//! ```
//! What a table cannot give back, because something still lies at its end, is not asked for again until there is more
//! of it.

use engine::heap::TrimStep;

use crate::{client::connection::Subscription, counters::Counter, mesh::core::Core};

impl Core {
    /// Gives back what has not been needed for a while. When it is to be asked again, if nothing stirs.
    pub(crate) fn give_back_memory(&mut self) -> Option<u64> {
        self.subjects.matches.forget_stale(self.subjects.trie.generation());
        let tables = self.subjects.entries() * size_of::<Subscription>() + self.subjects.matches.bytes();
        match self.tide.uses(self.outputs.held_bytes() + tables, self.now_ms) {
            TrimStep::High => None,
            TrimStep::Until(due_ms) => Some(due_ms),
            TrimStep::Out => {
                self.outputs.chunks.give_up();
                self.subjects.shrink();
                self.buffers.shrink();
                self.links.shrink();
                self.count(Counter::MemoryGivenBack);
                None
            }
        }
    }
}
