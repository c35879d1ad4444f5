//! Field blocks of what is sent, and those of the heads that were sent lately.
//!
//! A head differs from the last one of the same object by its age, in seconds. So an object that is asked for a thousand
//! times a second is encoded once in it, and not a thousand times: a third of what a hit costs otherwise
//! (`docs/decisions/047-edge-figures.md`). The encoding depends on nothing but the text, so the text is the key.
//!
//! *Where it lives:* in the thread's scratch, [`PLACES`] of a kilobyte. Whoever comes last has a place. *Twin:*
//! [`encode::append_head`], which the tests compare it with.

use engine::store::Hash;

use super::encode;

/// Heads that are remembered: few, so that they stay in the processor's cache.
const PLACES: usize = 64;
/// The longest text, and the longest block of one, that is remembered.
const TEXT_BYTES_MAX: usize = 640;
const BLOCK_BYTES_MAX: usize = 512;

/// Makes field blocks, each of which is there until the next is made.
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

    /// Remembers a head, if it is not too long.
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

    /// Of a head: `text` is a status line and field lines.
    pub(super) fn of_head(&mut self, text: &[u8]) -> &[u8] {
        // Who makes two heads share a place gains nothing by it: they are encoded as they would be without.
        let place = Hash::seeded(text, 0).word() as usize % PLACES;
        let lately = &mut self.lately[place];
        // No block is empty, so a place without one is empty.
        if lately.block_bytes == 0 || lately.text() != text {
            self.block.clear();
            encode::append_head(text, &mut self.block);
            lately.remember(text, &self.block);
            return &self.block;
        }
        &lately.block[..lately.block_bytes]
    }

    /// Of the head that opens a WebSocket.
    pub(super) fn of_opened(&mut self, text: &[u8]) -> &[u8] {
        self.block.clear();
        encode::append_opened(text, &mut self.block);
        &self.block
    }

    /// Of trailers.
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
        /// Whatever was asked before, and whichever place it has, a block is what the encoder says.
        #[test]
        fn what_is_remembered_is_what_is_encoded(
            asked in prop::collection::vec((0_usize..90, 0_usize..4), 1..300),
        ) {
            let mut blocks = HpackBlockCache::new();
            for (object, age) in asked {
                // Some are too long to be remembered, as text or as a block.
                let value = "v".repeat(object * 11);
                let text = format!("HTTP/1.1 200 OK\r\nETag: \"{object}\"\r\nX-Long: {value}\r\nAge: {age}\r\n");
                prop_assert_eq!(blocks.of_head(text.as_bytes()), encoded(text.as_bytes()));
            }
        }
    }

    #[test]
    fn the_empty_text_is_not_taken_for_a_place_that_is_empty() {
        assert_eq!(HpackBlockCache::new().of_head(b""), encoded(b""));
    }
}
