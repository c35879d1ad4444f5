//! Content cut into DATA frames, gathered with their headers for one write.

use std::ops::Range;

use engine::sys::span::Part;
use wire::http2::{
    connection::SMALL_BYTES,
    frame::{self, HEADER_BYTES},
};

/// Maximum number of frames in one write, so that their headers, their content and the pending output do not
/// exceed the number of parts that a write accepts.
const FRAMES_AT_ONCE: usize = 7;
/// Maximum number of parts in one write: the caller's parts, split where frames end, the frame headers, and
/// the pending output.
const PARTS_MAX: usize = 1 + 16 + 3 * FRAMES_AT_ONCE;

/// Division of content into frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frames {
    lengths: [usize; FRAMES_AT_ONCE],
    count: usize,
}

impl Frames {
    /// Divides `bytes`, up to the end of the window or of the content, into as many frames as one write
    /// takes.
    pub(super) fn of(bytes: usize, frame_bytes: usize) -> Self {
        let mut frames = Self { lengths: [0; FRAMES_AT_ONCE], count: 0 };
        let mut left = bytes;
        while left > 0 && frames.count < FRAMES_AT_ONCE {
            let mut length = left.min(frame_bytes);
            // Avoids a tiny last frame.
            if (1..SMALL_BYTES).contains(&(left - length)) {
                length -= SMALL_BYTES;
            }
            frames.lengths[frames.count] = length;
            frames.count += 1;
            left -= length;
        }
        frames
    }

    /// Returns the bytes of content in each frame.
    pub(super) fn lengths(&self) -> &[usize] {
        &self.lengths[..self.count]
    }

    /// Returns the bytes of content in all frames.
    pub(super) fn bytes(&self) -> usize {
        self.lengths().iter().sum()
    }

    /// Returns the frames that have begun within the first `sent` bytes, headers included.
    pub(super) fn begun(&self, sent: usize) -> Self {
        let mut starts = self.lengths().iter().scan(0, |at, length| {
            let start = *at;
            *at += HEADER_BYTES + length;
            Some(start)
        });
        let count = starts.position(|start| start >= sent).unwrap_or(self.count);
        Self { count, ..*self }
    }

    /// Returns these frames plus the next frame of `of`, if there is one.
    pub(super) fn and_next(&self, of: &Self) -> Self {
        Self { count: (self.count + 1).min(of.count), ..*of }
    }

    /// Returns the bytes of all frames, headers included.
    pub(super) fn framed_bytes(&self) -> usize {
        self.bytes() + self.count * HEADER_BYTES
    }

    /// Returns the frames' headers. `ends`: the last frame ends the stream.
    pub(super) fn headers(&self, stream: u32, ends: bool) -> [[u8; HEADER_BYTES]; FRAMES_AT_ONCE] {
        let mut headers = [[0; HEADER_BYTES]; FRAMES_AT_ONCE];
        for (place, (header, length)) in headers.iter_mut().zip(self.lengths()).enumerate() {
            *header = frame::data_header(stream, *length, ends && place + 1 == self.count);
        }
        headers
    }
}

/// List of the parts of one write.
pub(super) struct List<'p> {
    parts: [Part<'p>; PARTS_MAX],
    used: usize,
}

impl<'p> List<'p> {
    /// Lists the pending output, and then each frame as its header and its bytes of `content`.
    pub(super) fn new(
        waited: &'p [u8],
        headers: &'p [[u8; HEADER_BYTES]],
        frames: &Frames,
        content: &[Part<'p>],
    ) -> Self {
        let mut list = Self { parts: [Part::Plain(&[]); PARTS_MAX], used: 0 };
        list.push(Part::Plain(waited));
        let (mut behind, mut at) = (content, 0);
        for (header, length) in headers.iter().zip(frames.lengths()) {
            list.push(Part::Plain(header));
            let mut left = *length;
            while let [part, next @ ..] = behind
                && left > 0
            {
                let taken = left.min(part.len() - at);
                list.push(slice(part, at..at + taken));
                left -= taken;
                at += taken;
                if at == part.len() {
                    (behind, at) = (next, 0);
                }
            }
        }
        list
    }

    fn push(&mut self, part: Part<'p>) {
        if !part.is_empty() {
            self.parts[self.used] = part;
            self.used += 1;
        }
    }

    pub(super) fn parts(&self) -> &[Part<'p>] {
        &self.parts[..self.used]
    }

    /// Copies a range of the listed bytes.
    pub(super) fn copy(&self, range: Range<usize>) -> Vec<u8> {
        let mut copy = Vec::with_capacity(range.len());
        let mut at = 0;
        for part in self.parts() {
            let within = |byte: usize| byte.saturating_sub(at).min(part.len());
            match slice(part, within(range.start)..within(range.end)) {
                Part::Plain(bytes) => copy.extend_from_slice(bytes),
                Part::Shared(span) | Part::Lent(span) => span.copy_to(&mut copy),
            }
            at += part.len();
        }
        copy
    }
}

fn slice<'p>(part: &Part<'p>, range: Range<usize>) -> Part<'p> {
    match part {
        Part::Plain(bytes) => Part::Plain(&bytes[range]),
        Part::Shared(span) | Part::Lent(span) => Part::Shared(span.slice(range)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FRAME_BYTES: usize = 16 << 10;

    #[test]
    fn a13_a_page_of_64_kib_is_four_frames() {
        assert_eq!(Frames::of(64 << 10, FRAME_BYTES).lengths(), [FRAME_BYTES; 4]);
        assert_eq!(Frames::of(0, FRAME_BYTES).lengths(), [0; 0]);
        assert_eq!(
            Frames::of(FRAME_BYTES + 1, FRAME_BYTES).lengths(),
            [FRAME_BYTES - SMALL_BYTES, SMALL_BYTES + 1]
        );
    }

    proptest! {
        #[test]
        fn a13_frames_cover_all_content_without_tiny_frames(bytes in 1_usize..300_000) {
            let frames = Frames::of(bytes, FRAME_BYTES);
            prop_assert!(frames.lengths().iter().all(|length| *length <= FRAME_BYTES));
            prop_assert!(frames.bytes() == bytes || frames.count == FRAMES_AT_ONCE);
            let is_crumb = |length: &&usize| **length < SMALL_BYTES;
            prop_assert_eq!(frames.lengths().iter().filter(is_crumb).count(), usize::from(bytes < SMALL_BYTES));
        }

        #[test]
        fn a13_a_partial_send_continues_byte_for_byte(
            (waited, content, cut) in (0_usize..2000, 1_usize..150_000, 0_usize..100_000),
            sent in 0_usize..200_000,
        ) {
            let waited = vec![b'w'; waited];
            let content: Vec<u8> = (0..content).map(|at| (at / 7) as u8).collect();
            let cut = cut.min(content.len());
            let frames = Frames::of(content.len(), FRAME_BYTES);
            let headers = frames.headers(3, true);
            let parts = [Part::Plain(&content[..cut]), Part::Plain(&content[cut..])];
            let list = List::new(&waited, &headers, &frames, &parts);
            let bytes: usize = list.parts().iter().map(Part::len).sum();
            prop_assert_eq!(bytes, waited.len() + frames.framed_bytes());
            let whole = list.copy(0..bytes);
            let sent = sent.min(whole.len());
            let begun = frames.begun(sent.saturating_sub(waited.len()));
            let end = waited.len() + begun.framed_bytes();
            // All sent bytes belong to the pending output or to frames that have begun, and at most the last
            // of these frames is incomplete.
            prop_assert!(end >= sent);
            prop_assert!(end - sent <= FRAME_BYTES + HEADER_BYTES || sent <= waited.len());
            prop_assert_eq!(&list.copy(sent..end)[..], &whole[sent..end]);
            let next = begun.and_next(&frames);
            prop_assert_eq!(next.count, (begun.count + 1).min(frames.count));
        }
    }
}
