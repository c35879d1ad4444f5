//! Table of the open streams, and a short memory of closed ones (RFC 9113 §5.1).
//!
//! A stream is in the table while either side may still send on it. After that its number alone decides:
//! above the last opened stream it is idle, below it closed. For the last 128 numbers two bit sets record
//! which were opened at all, and which we reset: frames that were already on their way to a reset stream are
//! ignored.

use super::{super::priority::Priority, Wait};

/// Value of `content_left` for content of unknown length.
pub(super) const UNTOLD: u64 = u64::MAX;

#[derive(Debug, Clone)]
pub(super) struct Stream {
    pub(super) id: u32,
    /// Number of bytes that we may send; negative after the client has shrunk its windows (RFC 9113 §6.9.2).
    pub(super) send_window: i32,
    /// Number of bytes that the client may send.
    pub(super) receive_window: i32,
    /// Number of content bytes consumed and not yet returned to the stream's window.
    pub(super) owed: u32,
    /// Number of bytes promised by Content-Length that have not arrived yet; [`UNTOLD`] if it is unknown.
    pub(super) content_left: u64,
    /// State of the wait for `send_window`.
    pub(super) wait: Wait,
    /// Value of the connection's DATA frame counter when this stream last sent a DATA frame.
    pub(super) turn: u32,
    pub(super) priority: Priority,
    /// True while the client may still send; `is_local_open` is true while we may.
    pub(super) is_remote_open: bool,
    pub(super) is_local_open: bool,
}

/// Size of the cache of stream positions, indexed by stream number; each position is checked before use.
const GUESSES: usize = 128;

#[derive(Debug)]
pub(super) struct Streams {
    open: Vec<Stream>,
    guesses: [u8; GUESSES],
    /// The highest stream number opened.
    last: u32,
    /// Set of the streams that were opened: bit n is for stream `last - 2n`. `reset` has the same layout.
    opened: u128,
    reset: u128,
}

/// State of a stream number that is not in the table of open streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AbsentStream {
    /// The stream was never opened, and may still be opened.
    Idle,
    /// The stream's number was skipped, so it may no longer be opened.
    Skipped,
    /// We reset the stream: frames for it may still arrive.
    Reset,
    /// The stream has ended.
    Closed,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self { open: Vec::new(), guesses: [0; GUESSES], last: 0, opened: 0, reset: 0 }
    }

    pub(super) fn last(&self) -> u32 {
        self.last
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.open.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.open.iter_mut()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.open.capacity() * size_of::<Stream>()
    }

    /// Frees the table's memory if no stream is open.
    pub(super) fn rest(&mut self) {
        if self.open.is_empty() {
            self.open = Vec::new();
        }
    }

    #[inline]
    fn guess(id: u32) -> usize {
        (id / 2) as usize % GUESSES
    }

    #[inline]
    fn place(&self, id: u32) -> Option<usize> {
        let guessed = usize::from(self.guesses[Self::guess(id)]);
        if self.open.get(guessed).is_some_and(|stream| stream.id == id) {
            return Some(guessed);
        }
        self.open.iter().position(|stream| stream.id == id)
    }

    #[inline]
    pub(super) fn find(&mut self, id: u32) -> Option<&mut Stream> {
        let place = self.place(id)?;
        Some(&mut self.open[place])
    }

    /// Returns the state of an id that [`find`](Self::find) did not find.
    pub(super) fn absent(&self, id: u32) -> AbsentStream {
        if id > self.last || id.is_multiple_of(2) {
            return AbsentStream::Idle;
        }
        match (self.last - id) / 2 {
            age @ 0..128 if self.opened >> age & 1 == 0 => AbsentStream::Skipped,
            age @ 0..128 if self.reset >> age & 1 == 1 => AbsentStream::Reset,
            _ => AbsentStream::Closed,
        }
    }

    /// Records that a stream above all earlier ones was opened, even if it is then refused.
    #[inline]
    pub(super) fn advance(&mut self, id: u32) {
        // Stream numbers begin at 1, so the first step is counted from there.
        let step = if self.last == 0 { id.div_ceil(2) } else { (id - self.last) / 2 };
        self.opened = self.opened.checked_shl(step).unwrap_or(0) | 1;
        self.reset = self.reset.checked_shl(step).unwrap_or(0);
        self.last = id;
    }

    /// Adds the stream that was opened last.
    #[inline]
    pub(super) fn push(&mut self, stream: Stream) {
        assert!(stream.id == self.last, "a stream is entered when it is opened");
        self.guesses[Self::guess(stream.id)] = self.open.len() as u8;
        self.open.push(stream);
    }

    /// Removes a stream, if it is in the table.
    #[inline]
    pub(super) fn remove(&mut self, id: u32) -> Option<Stream> {
        let place = self.place(id)?;
        let removed = self.open.swap_remove(place);
        if let Some(moved) = self.open.get(place) {
            self.guesses[Self::guess(moved.id)] = place as u8;
        }
        Some(removed)
    }

    /// Records that we reset a stream.
    pub(super) fn mark_reset(&mut self, id: u32) {
        if let Some(age @ 0..128) = self.last.checked_sub(id).map(|distance| distance / 2) {
            self.reset |= 1 << age;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(id: u32) -> Stream {
        Stream {
            id,
            send_window: 0,
            receive_window: 0,
            owed: 0,
            content_left: UNTOLD,
            wait: Wait::default(),
            turn: 0,
            priority: Priority::default(),
            is_remote_open: true,
            is_local_open: true,
        }
    }

    #[test]
    fn numbers_say_what_became_of_streams() {
        let mut streams = Streams::new();
        assert_eq!(streams.absent(1), AbsentStream::Idle);
        for id in [3, 5, 11] {
            streams.advance(id);
            streams.push(stream(id));
        }
        assert_eq!(streams.absent(1), AbsentStream::Skipped);
        assert_eq!(streams.absent(7), AbsentStream::Skipped);
        assert_eq!((streams.absent(13), streams.absent(4)), (AbsentStream::Idle, AbsentStream::Idle));
        assert_eq!(streams.remove(5).map(|stream| stream.id), Some(5));
        assert_eq!(streams.absent(5), AbsentStream::Closed);
        streams.mark_reset(5);
        assert_eq!(streams.absent(5), AbsentStream::Reset);
        streams.advance(259);
        assert_eq!((streams.absent(5), streams.absent(7)), (AbsentStream::Reset, AbsentStream::Skipped));
        // A number that is too old to be remembered counts as closed.
        streams.advance(267);
        assert_eq!(
            (streams.absent(5), streams.absent(7), streams.absent(259)),
            (AbsentStream::Closed, AbsentStream::Closed, AbsentStream::Closed)
        );
        streams.advance(100_001);
        assert_eq!(streams.absent(267), AbsentStream::Closed);
        assert_eq!(streams.absent(99_999), AbsentStream::Skipped);
    }

    /// Compares the table with a list: streams are added and removed in random order, more of them than the
    /// position cache has entries.
    #[test]
    fn streams_are_found_wherever_they_went() {
        let (mut streams, mut list, mut dice) = (Streams::new(), Vec::new(), 1u64);
        for step in 0..20_000u32 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let roll = (dice >> 33) as usize;
            if list.len() < 100 && roll.is_multiple_of(2) {
                let id = streams.last() + 1 + u32::from(streams.last() != 0) + 2 * (roll as u32 / 2 % 40);
                streams.advance(id);
                streams.push(stream(id));
                list.push(id);
            } else if !list.is_empty() {
                let id = list.swap_remove(roll / 2 % list.len());
                assert_eq!(streams.remove(id).map(|stream| stream.id), Some(id), "{step}");
                assert!(streams.remove(id).is_none());
            }
            assert_eq!(streams.len(), list.len());
            for &id in &list {
                assert_eq!(streams.find(id).map(|stream| stream.id), Some(id));
            }
        }
    }
}
