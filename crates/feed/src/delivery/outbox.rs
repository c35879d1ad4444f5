//! Backlog of one consumer: the bytes that are to be written to it.
//!
//! ```text
//!   append ──▶ [chunk][chunk][chunk▒▒  ] ──▶ one write per chunk ──▶ socket
//!                 ▲ sent                         │
//!                 └────────── Chunks of the core ◀┘ (a consumer without a backlog holds none)
//! ```
//!
//! Chunks belong to the core and are reused: a consumer borrows one when there are bytes to send to it, and
//! returns it once it is written, so that the next consumer's bytes go into a chunk that is still in the
//! processor's cache. In steady state nothing is allocated, and an idle connection holds no buffer.

use std::collections::VecDeque;

/// Size of a chunk, which is also the maximum size of one write.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;
/// Largest number of spare chunks that a core keeps.
const SPARE_CHUNKS_MAX: usize = 256;
/// Number of spare chunks that stay when memory is freed.
const SPARE_CHUNKS_MIN: usize = 8;

/// A core's spare chunks.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    spare: Vec<Vec<u8>>,
    /// Capacity of the chunks that are lent to outputs, full or not.
    lent: usize,
}

impl Chunks {
    #[cold]
    fn take(&mut self) -> Vec<u8> {
        let chunk = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(CHUNK_BYTES));
        self.lent += chunk.capacity();
        chunk
    }

    /// Returns how many bytes of memory are lent to outputs.
    #[inline]
    pub(crate) fn lent(&self) -> usize {
        self.lent
    }

    /// Frees all but a few of the spare chunks.
    pub(crate) fn give_up(&mut self) {
        self.spare.truncate(SPARE_CHUNKS_MIN);
    }

    /// Returns the number of spare chunks.
    #[cfg(test)]
    pub(crate) fn spare(&self) -> usize {
        self.spare.len()
    }

    fn give_back(&mut self, mut chunk: Vec<u8>) {
        self.lent -= chunk.capacity();
        if self.spare.len() < SPARE_CHUNKS_MAX {
            chunk.clear();
            self.spare.push(chunk);
        }
    }
}

/// Backlog of one consumer.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    chunks: VecDeque<Vec<u8>>,
    /// Bytes of the first chunk that are already written.
    sent: usize,
    /// Size of the backlog in bytes.
    bytes: usize,
    /// Bytes written since the connection began.
    written: u64,
    /// Bytes discarded unwritten since the connection began.
    thrown_away: u64,
    /// Upper bound on the bytes of answers in the backlog. Once `answered_to` bytes are written, the backlog
    /// contains no answers.
    answers: usize,
    answered_to: u64,
}

impl Outbox {
    /// Returns the size of the backlog in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns how many bytes of memory the backlog takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns the bytes written since the connection began.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.written
    }

    /// Returns an upper bound on the bytes in the backlog that answer the client's own operations. Other
    /// bytes that were appended before and between the answers count as written first.
    pub(crate) fn answer_bytes(&self) -> usize {
        if self.written < self.answered_to { self.answers.min(self.bytes) } else { 0 }
    }

    /// Returns whether `bytes` more bytes fit without another chunk.
    #[inline]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.chunks.back().is_some_and(|chunk| chunk.capacity() - chunk.len() >= bytes)
    }

    /// Returns the chunk to which the caller must append exactly `bytes` bytes, at most a chunk's capacity.
    #[inline(always)]
    fn chunk(&mut self, chunks: &mut Chunks, bytes: usize) -> &mut Vec<u8> {
        self.chunk_for(chunks, bytes, 1).0
    }

    /// Returns the chunk to which the caller must append up to `count` pieces of `bytes` bytes, each at most
    /// a chunk's capacity, and how many pieces fit: at least one. The caller appends exactly that many.
    #[inline(always)]
    pub(crate) fn chunk_for(
        &mut self,
        chunks: &mut Chunks,
        bytes: usize,
        count: usize,
    ) -> (&mut Vec<u8>, usize) {
        if !self.has_room(bytes) {
            self.chunks.push_back(chunks.take());
        }
        let Some(chunk) = self.chunks.back_mut() else { unreachable!("a chunk was added") };
        // A division would double the cost of delivering a single message.
        let fitting = if count == 1 { 1 } else { ((chunk.capacity() - chunk.len()) / bytes).min(count) };
        self.bytes += fitting * bytes;
        (chunk, fitting)
    }

    /// Appends bytes to as many chunks as needed.
    pub(crate) fn append(&mut self, chunks: &mut Chunks, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.chunks.back().map_or(0, |chunk| chunk.capacity() - chunk.len());
            let (now, later) = bytes.split_at(if room > 0 { room } else { CHUNK_BYTES }.min(bytes.len()));
            self.chunk(chunks, now.len()).extend_from_slice(now);
            bytes = later;
        }
    }

    /// Notes that bytes were written directly while the backlog was empty.
    pub(crate) fn passed_by(&mut self, bytes: usize) {
        debug_assert!(self.is_empty(), "what waits is written first");
        self.written += bytes as u64;
    }

    /// Appends an answer to one of the client's own operations.
    pub(crate) fn append_answer(&mut self, chunks: &mut Chunks, bytes: &[u8]) {
        self.answers = self.answer_bytes() + bytes.len();
        self.append(chunks, bytes);
        self.answered_to = self.written + self.bytes as u64;
    }

    /// Returns the bytes to write next; empty if the backlog is empty.
    pub(crate) fn front(&self) -> &[u8] {
        self.chunks.front().map_or(&[], |chunk| &chunk[self.sent..])
    }

    /// Notes that the first `bytes` of [`Self::front`] were written.
    pub(crate) fn written(&mut self, chunks: &mut Chunks, bytes: usize) {
        self.sent += bytes;
        self.bytes -= bytes;
        self.written += bytes as u64;
        let Some(front) = self.chunks.front() else {
            panic!("outbox: a write was reported with nothing queued")
        };
        assert!(self.sent <= front.len(), "outbox: more bytes reported as written than queued");
        if self.sent == front.len() {
            self.sent = 0;
            if let Some(chunk) = self.chunks.pop_front() {
                chunks.give_back(chunk);
            }
        }
    }

    /// Discards the backlog.
    pub(crate) fn clear(&mut self, chunks: &mut Chunks) {
        self.chunks.drain(..).for_each(|chunk| chunks.give_back(chunk));
        self.sent = 0;
        self.thrown_away += self.bytes as u64;
        self.bytes = 0;
        self.answers = 0;
    }

    /// Returns the bytes that were appended and never written.
    pub(crate) fn lost_bytes(&self) -> u64 {
        self.thrown_away + self.bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Bytes come out in the order in which they were appended, for writes of any length, and the last
        /// write returns the last chunk.
        #[test]
        fn a_queue_of_bytes(
            steps in prop::collection::vec((0_usize..90_000, 1_usize..90_000), 1..30),
        ) {
            let (mut outbox, mut chunks) = (Outbox::default(), Chunks::default());
            let (mut twin, mut next) = (VecDeque::new(), 0_u8);
            for (append, write) in steps {
                let bytes: Vec<u8> = (0..append).map(|_| { next = next.wrapping_mul(31).wrapping_add(7); next }).collect();
                if append > 0 {
                    outbox.append(&mut chunks, &bytes);
                }
                twin.extend(bytes);
                prop_assert_eq!(outbox.bytes(), twin.len());
                prop_assert_eq!(outbox.memory_bytes(), chunks.lent());
                let n = outbox.front().len().min(write);
                if n > 0 {
                    let expected: Vec<u8> = twin.drain(..n).collect();
                    prop_assert_eq!(&outbox.front()[..n], &expected[..]);
                    outbox.written(&mut chunks, n);
                }
            }
            while !outbox.is_empty() {
                let n = outbox.front().len();
                let expected: Vec<u8> = twin.drain(..n).collect();
                prop_assert_eq!(outbox.front(), &expected[..]);
                outbox.written(&mut chunks, n);
            }
            prop_assert!(twin.is_empty() && outbox.chunks.is_empty() && outbox.front().is_empty());
            prop_assert_eq!(chunks.lent(), 0);
        }

        /// Pieces of one size, appended in groups that fit into a chunk, come out in order and fill the
        /// chunks.
        #[test]
        fn pieces_fill_chunks_one_after_another(bytes in 1_usize..20_000, count in 1_usize..2_000, before in 0_usize..90_000) {
            let count = count.min(1 + 400_000 / bytes);
            let (mut outbox, mut chunks) = (Outbox::default(), Chunks::default());
            outbox.append(&mut chunks, &vec![0; before]);
            let mut left = count;
            while left > 0 {
                let (chunk, fitting) = outbox.chunk_for(&mut chunks, bytes, left);
                prop_assert!((1..=left).contains(&fitting));
                for _ in 0..fitting {
                    chunk.resize(chunk.len() + bytes, (left % 251) as u8 + 1);
                    left -= 1;
                }
                prop_assert!(chunk.len() <= chunk.capacity() && chunk.capacity() < 2 * CHUNK_BYTES);
                prop_assert!(left == 0 || chunk.capacity() - chunk.len() < bytes, "the next chunk was begun too soon");
            }
            prop_assert_eq!(outbox.bytes(), before + count * bytes);
            let mut got = Vec::new();
            while !outbox.is_empty() {
                got.extend_from_slice(outbox.front());
                outbox.written(&mut chunks, outbox.front().len());
            }
            let mut expected = vec![0; before];
            (1..=count).rev().for_each(|left| expected.resize(expected.len() + bytes, (left % 251) as u8 + 1));
            prop_assert!(got == expected);
        }

        /// Comparison with a list that marks each byte: the count of answer bytes is never below the true
        /// one, never above the backlog, and zero once the last answer is written.
        #[test]
        fn answers_are_counted(steps in prop::collection::vec((any::<bool>(), 1_usize..5000, 1_usize..9000), 1..40)) {
            let (mut outbox, mut chunks) = (Outbox::default(), Chunks::default());
            let mut twin = VecDeque::new();
            for (is_answer, append, write) in steps {
                let bytes = vec![0; append];
                if is_answer {
                    outbox.append_answer(&mut chunks, &bytes);
                } else {
                    outbox.append(&mut chunks, &bytes);
                }
                twin.extend(std::iter::repeat_n(is_answer, append));
                let n = outbox.front().len().min(write);
                twin.drain(..n);
                outbox.written(&mut chunks, n);
                let answers = twin.iter().filter(|is_answer| **is_answer).count();
                prop_assert!(answers <= outbox.answer_bytes() && outbox.answer_bytes() <= outbox.bytes());
                prop_assert!(answers > 0 || outbox.answer_bytes() == 0);
            }
        }
    }
}
