//! Buffers in which segments are filled before they are written to the file.
//!
//! ```text
//! writer ──stores, then marks blocks dirty──▶ | 4 KiB | 4 KiB | ... |  ──helper clears the marks, writes──▶ file
//! ```
//! *Memory:* one anonymous mapping, aligned, touched on first use; the fixed number of buffers bounds the
//! unwritten data. *Writer:* the one writer that took the buffer; its helper returns it, zeroed. A block that
//! is being written while more bytes are added is marked dirty again and written again. Its earlier contents
//! are the same in both writes, so a torn write does not lose them.

use std::{
    io,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use super::format::{BLOCK_BYTES, FOOTER_BYTES};
use crate::sys::{arena::Words, span::Span};

const WORD_BYTES: usize = size_of::<u64>();
const NOBODY: u32 = 0;

#[derive(Debug)]
pub(super) struct Buffer {
    /// Number of the writer that took the buffer, plus one; or [`NOBODY`].
    owner: AtomicU32,
    pub(super) segment: AtomicU32,
    /// Set once the buffer holds the whole segment, including its table of contents.
    pub(super) is_sealed: AtomicU32,
    /// Number of records in the buffer that are not finished yet.
    pub(super) fillings: AtomicU32,
    /// Offset at which the records end: the buffer is zeroed up to there before it is used again.
    used_bytes: AtomicU32,
    /// Offset at which the table of contents starts: the buffer is zeroed from there before it is used again.
    table_at: AtomicU32,
    /// Footer, which is added at the end of the segment once everything else is in the file.
    footer: [AtomicU64; FOOTER_BYTES / WORD_BYTES],
    dirty: Box<[AtomicU64]>,
}

/// All buffers of a log.
#[derive(Debug)]
pub(super) struct Buffers {
    words: Words,
    buffer_bytes: usize,
    buffers: Box<[Buffer]>,
}

impl Buffers {
    pub(super) fn reserve(count: usize, buffer_bytes: usize) -> io::Result<Self> {
        let blocks = buffer_bytes / BLOCK_BYTES;
        let fresh = || Buffer {
            owner: AtomicU32::new(NOBODY),
            segment: AtomicU32::new(0),
            is_sealed: AtomicU32::new(0),
            fillings: AtomicU32::new(0),
            used_bytes: AtomicU32::new(0),
            table_at: AtomicU32::new(0),
            footer: Default::default(),
            dirty: (0..blocks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
        };
        Ok(Self {
            words: Words::reserve(count * buffer_bytes / WORD_BYTES, false)?,
            buffer_bytes,
            buffers: (0..count).map(|_| fresh()).collect(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.buffers.len()
    }

    pub(super) fn buffer(&self, buffer: usize) -> &Buffer {
        &self.buffers[buffer]
    }

    /// Takes a free buffer for a writer.
    pub(super) fn take(&self, writer: usize) -> Option<usize> {
        let mine = writer as u32 + 1;
        self.buffers
            .iter()
            .position(|buffer| buffer.owner.compare_exchange(NOBODY, mine, AcqRel, Relaxed).is_ok())
    }

    /// Frees a buffer in which no byte was written, so that no zeroing is needed.
    pub(super) fn give_back_unused(&self, buffer: usize) {
        self.buffers[buffer].owner.store(NOBODY, Release);
    }

    /// Returns the number of buffers that are taken.
    pub(super) fn taken(&self) -> usize {
        self.buffers.iter().filter(|buffer| buffer.owner.load(Relaxed) != NOBODY).count()
    }

    /// Returns the number of free buffers.
    pub(super) fn free(&self) -> usize {
        self.len() - self.taken()
    }

    /// Returns the number of bytes in dirty blocks, excluding blocks that are being written now.
    pub(super) fn dirty_bytes(&self) -> u64 {
        let marks = self.buffers.iter().flat_map(|buffer| &*buffer.dirty);
        marks.map(|marks| u64::from(marks.load(Relaxed).count_ones())).sum::<u64>() * BLOCK_BYTES as u64
    }

    pub(super) fn of(&self, writer: usize) -> impl Iterator<Item = usize> {
        let mine = writer as u32 + 1;
        (0..self.len()).filter(move |buffer| self.buffers[*buffer].owner.load(Acquire) == mine)
    }

    pub(super) fn words(&self, buffer: usize) -> &[AtomicU64] {
        let words = self.buffer_bytes / WORD_BYTES;
        &self.words[buffer * words..(buffer + 1) * words]
    }

    pub(super) fn span(&self, buffer: usize, at: usize, len: usize) -> Span<'_> {
        Span::new(self.words(buffer), at..at + len)
    }

    /// Marks a range of a buffer as dirty.
    pub(super) fn mark(&self, buffer: usize, at: usize, len: usize) {
        if len == 0 {
            return;
        }
        let dirty = &self.buffers[buffer].dirty;
        let (first, last) = (at / BLOCK_BYTES, (at + len - 1) / BLOCK_BYTES);
        for word in first / 64..=last / 64 {
            let from = first.max(word * 64) % 64;
            let to = last.min(word * 64 + 63) % 64;
            let bits = (u64::MAX << from) & (u64::MAX >> (63 - to));
            // Release: a helper that takes the dirty mark also sees the bytes.
            dirty[word].fetch_or(bits, Release);
        }
    }

    /// Seals a buffer that holds the whole segment, including its table of contents; the helper adds the
    /// footer.
    pub(super) fn seal(
        &self,
        buffer: usize,
        used_bytes: usize,
        table_at: usize,
        footer: &[u8; FOOTER_BYTES],
    ) {
        let of = &self.buffers[buffer];
        of.used_bytes.store(used_bytes as u32, Relaxed);
        of.table_at.store(table_at as u32, Relaxed);
        Span::new(&of.footer, 0..FOOTER_BYTES).write_from(footer);
        // Release: a helper that sees the flag also sees everything that the writer stored before.
        of.is_sealed.store(1, Release);
    }

    /// Copies the footer to the end of the buffer and marks it and the table as dirty; called by the helper
    /// once the records are in the file.
    pub(super) fn add_footer(&self, buffer: usize) {
        let of = &self.buffers[buffer];
        let at = self.buffer_bytes - FOOTER_BYTES;
        self.span(buffer, at, FOOTER_BYTES).write_from_span(Span::new(&of.footer, 0..FOOTER_BYTES));
        let table_at = of.table_at.load(Relaxed) as usize;
        self.mark(buffer, table_at, self.buffer_bytes - table_at);
    }

    /// Takes all dirty marks and passes each run of dirty blocks (offset in the buffer, words) to `write`. If
    /// a write fails, its run is marked again, and the other runs are still written; the last error is
    /// returned.
    pub(super) fn write_dirty(
        &self,
        buffer: usize,
        mut write: impl FnMut(usize, &[AtomicU64]) -> io::Result<()>,
    ) -> io::Result<usize> {
        let words = self.words(buffer);
        let block_words = BLOCK_BYTES / WORD_BYTES;
        let mut failed = None;
        let mut written = 0;
        let mut run: Option<(usize, usize)> = None;
        let mut end = |run: &mut Option<(usize, usize)>| {
            let Some((first, blocks)) = run.take() else { return };
            let at = first * BLOCK_BYTES;
            match write(at, &words[first * block_words..(first + blocks) * block_words]) {
                Ok(()) => written += blocks * BLOCK_BYTES,
                Err(error) => {
                    self.mark(buffer, at, blocks * BLOCK_BYTES);
                    failed = Some(error);
                }
            }
        };
        for (number, dirty) in self.buffers[buffer].dirty.iter().enumerate() {
            let mut bits = dirty.swap(0, Acquire);
            while bits != 0 {
                let first = number * 64 + bits.trailing_zeros() as usize;
                let blocks = (bits >> (first % 64)).trailing_ones() as usize;
                bits &= !(if blocks == 64 { u64::MAX } else { ((1 << blocks) - 1) << (first % 64) });
                match &mut run {
                    Some((start, length)) if *start + *length == first => *length += blocks,
                    _ => {
                        end(&mut run);
                        run = Some((first, blocks));
                    }
                }
            }
        }
        end(&mut run);
        failed.map_or(Ok(written), Err)
    }

    /// Zeroes and frees a buffer whose segment is in the file, so that no later segment contains its bytes.
    pub(super) fn release(&self, buffer: usize) {
        let of = &self.buffers[buffer];
        let (used, table) = (of.used_bytes.load(Relaxed) as usize, of.table_at.load(Relaxed) as usize);
        let words = self.words(buffer);
        for word in &words[..used.div_ceil(WORD_BYTES)] {
            word.store(0, Relaxed);
        }
        for word in &words[table / WORD_BYTES..] {
            word.store(0, Relaxed);
        }
        of.is_sealed.store(0, Relaxed);
        of.owner.store(NOBODY, Release);
    }
}
