//! Field blocks of answers, with a cache of recently encoded heads.
//!
//! Two heads of the same object differ only in their `Age`, in seconds. So a head that is requested a
//! thousand times per second is encoded once per second instead of a thousand times, which would be a third
//! of a hit's cost (`docs/decisions/047-edge-figures.md`). The encoding depends only on the text, so the text
//! is the key.
//!
//! *Memory:* [`PLACES`] slots of about a kilobyte in the thread's scratch; a new head replaces the one in its
//! slot. *Twin:* [`encode::append_head`], with which the tests compare the cache.

use engine::store::Hash;

use super::encode;

/// Number of slots of the cache; a small number, so that they stay in the processor's cache.
const PLACES: usize = 64;
/// Maximum length of a head's text for the cache; `BLOCK_BYTES_MAX` is the maximum length of its field block.
const TEXT_BYTES_MAX: usize = 640;
const BLOCK_BYTES_MAX: usize = 512;

/// Encoder of field blocks. Each block is valid until the next one is encoded.
pub(super) struct HpackBlockCache {
    block: Vec<u8>,
    lately: Box<[RecentBlocks]>,
}

struct RecentBlocks {
    text_bytes: usize,
    block_bytes: usize,
    text: [u8; TEXT_BYTES_MAX],
    block: [u8; BLOCK_BYTES_MAX],
}

impl RecentBlocks {
    const NOTHING: Self =
        Self { text_bytes: 0, block_bytes: 0, text: [0; TEXT_BYTES_MAX], block: [0; BLOCK_BYTES_MAX] };

    fn text(&self) -> &[u8] {
        &self.text[..self.text_bytes]
    }

    /// Caches a head, if it is not too long.
    fn remember(&mut self, text: &[u8], block: &[u8]) {
        if let (Some(text_room), Some(block_room)) =
            (self.text.get_mut(..text.len()), self.block.get_mut(..block.len()))
        {
            text_room.copy_from_slice(text);
            block_room.copy_from_slice(block);
            (self.text_bytes, self.block_bytes) = (text.len(), block.len());
        }
    }
}

impl HpackBlockCache {
    pub(super) fn new() -> Self {
        let lately = std::iter::repeat_with(|| RecentBlocks::NOTHING).take(PLACES).collect();
        Self { block: Vec::with_capacity(4096), lately }
    }

    /// Returns the field block of a head. `text` is a status line and field lines.
    pub(super) fn of_head(&mut self, text: &[u8]) -> &[u8] {
        // A client that makes two heads share a slot gains nothing: they are only encoded each time, as if
        // there were no cache.
        let place = Hash::seeded(text, 0).word() as usize % PLACES;
        let lately = &mut self.lately[place];
        // No field block is empty, so an empty block marks an empty slot.
        if lately.block_bytes == 0 || lately.text() != text {
            self.block.clear();
            encode::append_head(text, &mut self.block);
            lately.remember(text, &self.block);
            return &self.block;
        }
        &lately.block[..lately.block_bytes]
    }

    /// Returns the field block of the head that opens a WebSocket.
    pub(super) fn of_opened(&mut self, text: &[u8]) -> &[u8] {
        self.block.clear();
        encode::append_opened(text, &mut self.block);
        &self.block
    }

    /// Returns the field block of trailers.
    pub(super) fn of_lines(&mut self, lines: &[u8]) -> &[u8] {
        self.block.clear();
        encode::append_lines(lines, &mut self.block);
        &self.block
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded(text: &[u8]) -> Vec<u8> {
        let mut block = Vec::new();
        encode::append_head(text, &mut block);
        block
    }

    proptest! {
        /// A field block from the cache equals the encoder's output for any sequence of heads and slots.
        #[test]
        fn what_is_remembered_is_what_is_encoded(
            asked in prop::collection::vec((0_usize..90, 0_usize..4), 1..300),
        ) {
            let mut blocks = HpackBlockCache::new();
            for (object, age) in asked {
                // Some heads are too long for the cache, as text or as field block.
                let value = "v".repeat(object * 11);
                let text = format!("HTTP/1.1 200 OK\r\nETag: \"{object}\"\r\nX-Long: {value}\r\nAge: {age}\r\n");
                prop_assert_eq!(blocks.of_head(text.as_bytes()), encoded(text.as_bytes()));
            }
        }
    }

    #[test]
    fn an_empty_head_matches_no_empty_slot() {
        assert_eq!(HpackBlockCache::new().of_head(b""), encoded(b""));
    }
}
