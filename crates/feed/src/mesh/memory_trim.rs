//! Freeing of memory that is no longer needed, after clients have left or have read their backlog.
//!
//! ```text
//!   lent chunks and table entries ── few for a while, says `engine::heap::HeapTrimmer` ──▶ spare chunks and the spare
//!               capacity of tables are freed here; `engine::heap` frees the allocator's free pages, once for all servers
//! ```
//! A table that cannot shrink, because an entry at its end is in use, is not tried again until more memory
//! can be freed.

use engine::heap::TrimStep;

use crate::{client::connection::Subscription, counters::Counter, mesh::core::Core};

impl Core {
    /// Frees memory that has not been needed for a while. Returns the time of the next call, if nothing else
    /// happens before.
    pub(crate) fn give_back_memory(&mut self) -> Option<u64> {
        self.routing.subjects.matches.forget_stale(self.routing.subjects.trie.generation());
        let tables = self.routing.subjects.entries() * size_of::<Subscription>()
            + self.routing.subjects.matches.bytes();
        match self.memory.trimmer.uses(self.outputs.held_bytes() + tables, self.turn.now_ms) {
            TrimStep::High => None,
            TrimStep::Until(due_ms) => Some(due_ms),
            TrimStep::Out => {
                self.outputs.chunks.give_up();
                self.routing.subjects.shrink();
                self.turn.buffers.shrink();
                self.links.shrink();
                self.count(Counter::MemoryGivenBack);
                None
            }
        }
    }
}
