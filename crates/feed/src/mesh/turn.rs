//! Beginning and end of a core's turn.

use engine::cores::clock;

use crate::{
    client::connection::CloseReason,
    counters::Counter,
    delivery::{
        victims::Victim,
        work::{self, WORK_A_TURN, Work},
    },
    mesh::core::Core,
};

impl Core {
    /// Begins a turn.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.turn.now_ms = clock::monotonic_ms();
        self.turn.work = Work::of(WORK_A_TURN);
    }

    /// Sends this turn's records to other cores, and writes the clients' output.
    pub(crate) fn end_turn(&mut self) {
        if self.links.tellers.is_waiting {
            self.tell_hubs();
        }
        self.turn.work.add(self.outputs.dirty() as u64 * work::WRITE);
        self.links.flush();
        self.outputs.flush(&mut self.links);
        self.observers.counters.set(Counter::MatchesFound, self.routing.subjects.matches.found);
        self.observers.counters.set(Counter::MatchesMade, self.routing.subjects.matches.made);
        self.observers.counters.set(Counter::MatchesDropped, self.routing.subjects.matches.dropped);
        self.observers.counters.set(Counter::MatchesBytes, self.routing.subjects.matches.bytes() as u64);
        self.bound_sum();
    }

    /// Disconnects clients until all clients together hold no more memory than allowed: first those that make
    /// no progress, with a large backlog or an incomplete operation.
    #[inline]
    pub(crate) fn bound_sum(&mut self) {
        while !self.memory.pending.allows(self.outputs.held_bytes()) {
            let Some(Victim { id, is_unfinished }) = self.outputs.choose_victim(self.turn.now_ms) else {
                return;
            };
            self.outputs.release_all(id, &mut self.links);
            if is_unfinished {
                self.outputs.close(id, CloseReason::SlowProducer);
            } else {
                self.count(Counter::SlowTotal);
                let subject = self.routing.subjects.a_subject_of(&self.outputs.connections[id]);
                self.outputs.cut_slow(id, CloseReason::SlowConsumerPending, &subject);
            }
            self.links.flush();
        }
        let is_crowded = self.memory.pending.is_crowded(self.outputs.held_bytes());
        self.outputs.marks.set_crowded(is_crowded);
    }
}
