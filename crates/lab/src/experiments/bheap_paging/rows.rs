//! A heap's array in a mapped file: every access is a load or a store in the mapping, and pages as the kernel likes.

use bheap::{Full, Rows};
use engine::sys::mapping::{MappedWords, Word};

/// Items of a heap in a mapped file, of a fixed number at most; item 0 lies `lead` words from the file's start.
#[derive(Debug)]
pub struct MappedRows {
    words: MappedWords,
    lead: usize,
    /// Invariant: `lead + len <= words.len()`.
    len: usize,
}

impl MappedRows {
    /// What is in the file already: `len` items after `lead` words that belong to no item.
    ///
    /// # Panics
    /// If the mapping is shorter.
    #[must_use]
    pub fn new(words: MappedWords, lead: usize, len: usize) -> Self {
        assert!(lead + len <= words.len(), "the mapping holds its items");
        Self { words, lead, len }
    }

    fn live(&self) -> &[Word] {
        &self.words[self.lead..self.lead + self.len]
    }
}

impl Rows<Word> for MappedRows {
    fn len(&self) -> usize {
        self.len
    }
    #[inline]
    fn item(&self, at: usize) -> &Word {
        &self.live()[at]
    }
    #[inline]
    fn swap(&mut self, a: usize, b: usize) {
        let live = self.live();
        let was = live[a].load();
        live[a].store(live[b].load());
        live[b].store(was);
    }
    #[inline]
    fn replace(&mut self, at: usize, item: Word) -> Word {
        let place = &self.live()[at];
        let was = place.load();
        place.store(item.load());
        Word::new(was)
    }
    #[inline]
    fn push(&mut self, item: Word) -> Result<(), Full<Word>> {
        let Some(place) = self.words.get(self.lead + self.len) else { return Err(Full(item)) };
        place.store(item.load());
        self.len += 1;
        Ok(())
    }
    #[inline]
    fn pop(&mut self) -> Option<Word> {
        self.len = self.len.checked_sub(1)?;
        Some(Word::new(self.words[self.lead + self.len].load()))
    }
}
