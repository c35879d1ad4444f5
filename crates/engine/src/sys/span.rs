//! Byte ranges over shared atomic words: reading, writing, sending and receiving bytes of the store.
//!
//! ```text
//! words   | w0 . . . . . . . | w1 . . . . . . . | w2 . . . . . . . |      &[AtomicU64], relaxed
//! span           skip ^──────────── len ───────────────^
//! ```
//! A [`Span`] reads and writes whole words with relaxed atomics (a byte at the edge by reading its word), so
//! a race gives wrong bytes, never undefined behaviour. `engine::store` decides which thread may write when.
//! A span may have only one writer at a time, because the edge words are read, changed and written back.

use std::{fmt, ops::Range};

use super::{
    atomics::{AtomicU64, Ordering::Relaxed},
    words,
};

const WORD: usize = size_of::<u64>();

/// A range of bytes in shared words. Cheap to copy; the words are not copied.
#[derive(Clone, Copy)]
pub struct Span<'a> {
    /// The words that contain bytes of the range, and no others.
    words: &'a [AtomicU64],
    /// Number of bytes in the first word that come before the range; less than 8.
    skip: usize,
    len: usize,
}

impl<'a> Span<'a> {
    /// Creates a span of the bytes `range` of `words`, counted from the first byte of the first word.
    ///
    /// # Panics
    /// Panics if the range is not within the words.
    #[inline]
    pub fn new(words: &'a [AtomicU64], range: Range<usize>) -> Self {
        assert!(range.start <= range.end, "span {range:?} runs backwards");
        if range.is_empty() {
            assert!(range.end <= words.len() * WORD, "span {range:?} beyond its words");
            return Self { words: &[], skip: 0, len: 0 };
        }
        let words = &words[range.start / WORD..range.end.div_ceil(WORD)];
        Self { words, skip: range.start % WORD, len: range.end - range.start }
    }

    /// Returns the length of the span in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the span is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the sub-span `range`, counted from the start of this span.
    ///
    /// # Panics
    /// Panics if the range is not within the span.
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.end <= self.len, "slice {range:?} beyond a span of {} bytes", self.len);
        Self::new(self.words, range.start + self.skip..range.end + self.skip)
    }

    /// Appends the bytes of the span to `out`.
    #[inline]
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        out.reserve(self.len);
        let spare = out.spare_capacity_mut();
        assert!(spare.len() >= self.len);
        // SAFETY: `spare` has room for `self.len` bytes, checked just above.
        unsafe { self.read_to(spare.as_mut_ptr().cast()) };
        let len = out.len() + self.len;
        // SAFETY: the capacity suffices (reserve), and `read_to` initialised the bytes up to `len`.
        unsafe { out.set_len(len) };
    }

    /// Copies the bytes of the span to `out`.
    ///
    /// # Panics
    /// Panics if `out` has a different length.
    #[inline]
    pub fn copy_to_slice(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.len, "a span is copied whole");
        // SAFETY: `out` has exactly `self.len` bytes, checked just above.
        unsafe { self.read_to(out.as_mut_ptr()) }
    }

    /// Returns whether the span contains exactly these bytes.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "a comparison with plain bytes that may race is no equality"
    )]
    pub fn eq(&self, bytes: &[u8]) -> bool {
        if bytes.len() != self.len {
            return false;
        }
        let Some((head, middle, tail)) = self.cut() else { return true };
        let (head_bytes, rest) = bytes.split_at(head.map_or(0, |edge| edge.len));
        let (middle_bytes, tail_bytes) = rest.split_at(middle.len() * WORD);
        let (chunks, _) = middle_bytes.as_chunks::<WORD>();
        middle.iter().zip(chunks).all(|(word, chunk)| word.load(Relaxed) == u64::from_ne_bytes(*chunk))
            && head.is_none_or(|edge| edge.bytes(&mut [0; WORD]) == head_bytes)
            && tail.is_none_or(|edge| edge.bytes(&mut [0; WORD]) == tail_bytes)
    }

    /// Overwrites the span with `bytes`.
    ///
    /// # Panics
    /// Panics if `bytes` has a different length.
    #[inline]
    pub fn write_from(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.len, "a span is written whole");
        let Some((head, middle, tail)) = self.cut() else { return };
        let (head_bytes, rest) = bytes.split_at(head.map_or(0, |edge| edge.len));
        if let Some(edge) = head {
            edge.write(head_bytes);
        }
        let (middle_bytes, tail_bytes) = rest.split_at(middle.len() * WORD);
        words::write(middle, middle_bytes);
        if let Some(edge) = tail {
            edge.write(tail_bytes);
        }
    }

    /// Overwrites the span with the bytes of `source`, in whole words if both are aligned alike.
    ///
    /// # Panics
    /// Panics if `source` has a different length.
    pub fn write_from_span(&self, source: Span<'_>) {
        assert_eq!(source.len, self.len, "a span is written whole");
        if self.skip == 0 && source.skip == 0 {
            let whole = self.len / WORD;
            words::copy(&self.words[..whole], &source.words[..whole]);
            if whole < self.words.len() {
                let mut rest = [0; WORD];
                let rest = &mut rest[..self.len - whole * WORD];
                source.slice(whole * WORD..self.len).copy_to_slice(rest);
                self.slice(whole * WORD..self.len).write_from(rest);
            }
            return;
        }
        let mut at = 0;
        let mut piece = [0; 512];
        while at < self.len {
            let len = piece.len().min(self.len - at);
            source.slice(at..at + len).copy_to_slice(&mut piece[..len]);
            self.slice(at..at + len).write_from(&piece[..len]);
            at += len;
        }
    }

    /// Splits the span into the edge at the start, the whole words, and the edge at the end; `None` for an
    /// empty span.
    #[inline]
    fn cut(&self) -> Option<(Option<Edge<'a>>, &'a [AtomicU64], Option<Edge<'a>>)> {
        let (first, after_first) = self.words.split_first()?;
        let end = self.skip + self.len;
        if self.skip != 0 || end < WORD {
            let head = Edge { word: first, skip: self.skip, len: end.min(WORD) - self.skip };
            return Some(match after_first.split_last() {
                Some((last, middle)) if !end.is_multiple_of(WORD) => {
                    (Some(head), middle, Some(Edge { word: last, skip: 0, len: end % WORD }))
                }
                _ => (Some(head), after_first, None),
            });
        }
        Some(if end.is_multiple_of(WORD) {
            (None, self.words, None)
        } else {
            let (last, middle) = self.words.split_last()?;
            (None, middle, Some(Edge { word: last, skip: 0, len: end % WORD }))
        })
    }

    /// Copies the bytes to memory that starts at `out`.
    ///
    /// # Safety
    /// `out` must be valid for writing `self.len` bytes.
    #[inline]
    unsafe fn read_to(&self, mut out: *mut u8) {
        let Some((head, middle, tail)) = self.cut() else { return };
        if let Some(edge) = head {
            // SAFETY: the edges and the words between them have `self.len` bytes together (`cut`), the caller
            // guarantees the room, and `out` has moved past the bytes written before. The same applies below.
            out = unsafe { edge.read_to(out) };
        }
        // SAFETY: as above, the caller guarantees the room.
        out = unsafe { words::read(middle, out) };
        if let Some(edge) = tail {
            // SAFETY: as above, the caller guarantees the room.
            unsafe { edge.read_to(out) };
        }
    }
}

impl fmt::Debug for Span<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({} bytes)", self.len)
    }
}

/// Bytes at one end of a span that do not fill a whole word.
#[derive(Clone, Copy)]
struct Edge<'a> {
    word: &'a AtomicU64,
    skip: usize,
    len: usize,
}

impl Edge<'_> {
    #[inline]
    fn bytes<'b>(&self, buffer: &'b mut [u8; WORD]) -> &'b [u8] {
        *buffer = self.word.load(Relaxed).to_ne_bytes();
        &buffer[self.skip..self.skip + self.len]
    }

    #[inline]
    fn write(&self, bytes: &[u8]) {
        let mut word = self.word.load(Relaxed).to_ne_bytes();
        word[self.skip..self.skip + self.len].copy_from_slice(bytes);
        self.word.store(u64::from_ne_bytes(word), Relaxed);
    }

    /// Copies the edge's bytes to `out` and returns the address after them.
    ///
    /// # Safety
    /// `out` must be valid for writing `self.len` bytes.
    #[inline]
    unsafe fn read_to(&self, out: *mut u8) -> *mut u8 {
        let mut buffer = [0; WORD];
        let bytes = self.bytes(&mut buffer);
        // SAFETY: the caller guarantees the room; a local buffer does not overlap it.
        unsafe { out.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        // SAFETY: the result is at most one past the written bytes.
        unsafe { out.add(bytes.len()) }
    }
}

/// Shared words on the heap, for bytes that are not (yet) in the store's arena.
#[derive(Debug)]
pub struct WordBuffer {
    words: Box<[AtomicU64]>,
    len: usize,
}

impl WordBuffer {
    /// Creates a buffer of `len` zero bytes.
    pub fn new(len: usize) -> Self {
        Self { words: (0..len.div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect(), len }
    }

    /// Returns all bytes of the buffer.
    pub fn span(&self) -> Span<'_> {
        Span::new(&self.words, 0..self.len)
    }
}

/// A part of a response to send.
#[derive(Debug, Clone, Copy)]
pub enum Part<'a> {
    /// Ordinary bytes of the caller, such as a response head.
    Plain(&'a [u8]),
    /// Bytes in shared words, such as those of the store.
    Shared(Span<'a>),
    /// Bytes of the store whose pages may be sent without a copy ([`lend`](super::lend)): code that creates
    /// this variant must guarantee that these bytes are not written before the pages are renewed.
    Lent(Span<'a>),
}

impl Part<'_> {
    /// Returns the length of the part in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Part::Plain(bytes) => bytes.len(),
            Part::Shared(span) | Part::Lent(span) => span.len(),
        }
    }

    /// Returns whether the part is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(not(feature = "loom"))]
pub(in crate::sys) use socket::send_more;
#[cfg(not(feature = "loom"))]
pub use socket::{PARTS_MAX, recv_span, send_parts};

#[cfg(not(feature = "loom"))]
mod socket {
    use std::{
        io,
        os::fd::{AsRawFd, BorrowedFd},
    };

    use super::{Part, Span};

    /// Maximum number of parts that one [`send_parts`] sends.
    pub const PARTS_MAX: usize = 16;

    impl Span<'_> {
        /// Returns the kernel's I/O vector for the span, with the address of the first byte. Writing through
        /// it is equivalent to relaxed stores, because the words are atomics (interior mutability) and no
        /// plain reference to them exists.
        #[inline]
        pub(in crate::sys) fn iovec(&self) -> libc::iovec {
            let base = self.words.as_ptr().cast::<u8>().wrapping_add(self.skip).cast_mut();
            libc::iovec { iov_base: base.cast(), iov_len: self.len }
        }
    }

    /// Sends the parts in order with one `sendmsg`, or one `send` if there is only one (`MSG_NOSIGNAL |
    /// MSG_DONTWAIT`). Returns how many bytes the kernel took, which may be fewer than all. Parts after the
    /// sixteenth are left for the next call, like any bytes that the kernel did not take. If there is no byte
    /// to send, no system call is made. Allocates no memory.
    ///
    /// # Errors
    /// Returns the error of `sendmsg`; `WouldBlock` if the socket has no room at all.
    pub fn send_parts(fd: BorrowedFd<'_>, parts: &[Part<'_>]) -> io::Result<usize> {
        send_flagged(fd, parts, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
    }

    /// Sends like [`send_parts`], and tells the kernel that more data follows at once (`MSG_MORE`), so that
    /// both are sent together.
    pub(in crate::sys) fn send_more(fd: BorrowedFd<'_>, parts: &[Part<'_>]) -> io::Result<usize> {
        send_flagged(fd, parts, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_MORE)
    }

    fn send_flagged(fd: BorrowedFd<'_>, parts: &[Part<'_>], flags: libc::c_int) -> io::Result<usize> {
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS_MAX];
        let mut used = 0;
        for part in parts.iter().filter(|part| !part.is_empty()).take(PARTS_MAX) {
            vectors[used] = match part {
                Part::Plain(bytes) => {
                    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
                }
                Part::Shared(span) | Part::Lent(span) => span.iovec(),
            };
            used += 1;
        }
        if used == 0 {
            return Ok(0);
        }
        if used == 1 {
            return send_one(fd, &vectors[0], flags);
        }
        // SAFETY: all zeros is a valid msghdr (null pointers and lengths of zero).
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = used as _;
        loop {
            // SAFETY: `message` points to `used` vectors, each to bytes that live as long as `parts`; the
            // kernel only reads them. Another core writes shared words meanwhile only if the store has a bug,
            // and then only wrong bytes are sent.
            let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, flags) };
            match usize::try_from(sent) {
                Ok(sent) => return Ok(sent),
                Err(_) => again_if_interrupted()?,
            }
        }
    }

    /// Sends one run of bytes like [`send_parts`]; saves the kernel from copying a message header and a
    /// vector (2% of the time of a small hit).
    fn send_one(fd: BorrowedFd<'_>, vector: &libc::iovec, flags: libc::c_int) -> io::Result<usize> {
        loop {
            // SAFETY: the vector covers bytes that live as long as the parts of the caller; the kernel only reads
            // them (see `send_parts`).
            let sent = unsafe { libc::send(fd.as_raw_fd(), vector.iov_base, vector.iov_len, flags) };
            match usize::try_from(sent) {
                Ok(sent) => return Ok(sent),
                Err(_) => again_if_interrupted()?,
            }
        }
    }

    /// Receives into the span with one `recv` (`MSG_DONTWAIT`) and returns the number of bytes; 0 means the
    /// end of the stream (or an empty span).
    ///
    /// # Errors
    /// Returns the error of `recv`; `WouldBlock` if there is no data yet.
    pub fn recv_span(fd: BorrowedFd<'_>, span: Span<'_>) -> io::Result<usize> {
        let vector = span.iovec();
        loop {
            // SAFETY: the vector covers bytes of shared words that live as long as the span. They are
            // atomics, so they may be written from outside.
            let received =
                unsafe { libc::recv(fd.as_raw_fd(), vector.iov_base, vector.iov_len, libc::MSG_DONTWAIT) };
            match usize::try_from(received) {
                Ok(received) => return Ok(received),
                Err(_) => again_if_interrupted()?,
            }
        }
    }

    fn again_if_interrupted() -> io::Result<()> {
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::{
        io::{Read, Write},
        os::{fd::AsFd, unix::net::UnixStream},
    };

    use super::*;

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn every_span_round_trips_without_touching_neighbours() {
        for start in 0..17 {
            for len in (0..90).chain([511, 512, 513, 1200]) {
                let buffer = WordBuffer::new(1400);
                buffer.span().write_from(&[0xaa; 1400]);
                let bytes = pattern(len);
                let span = buffer.span().slice(start..start + len);
                span.write_from(&bytes);
                assert_eq!((span.len(), span.is_empty()), (len, len == 0));
                assert!(span.eq(&bytes));
                let mut out = vec![1, 2, 3];
                span.copy_to(&mut out);
                assert_eq!(out[3..], bytes, "start {start} len {len}");
                let mut out = vec![0; len];
                span.copy_to_slice(&mut out);
                assert_eq!(out, bytes);
                let mut all = Vec::new();
                buffer.span().copy_to(&mut all);
                assert!(all[..start].iter().chain(&all[start + len..]).all(|byte| *byte == 0xaa));
                for at in [0, len / 2, len.saturating_sub(1)] {
                    if at < len {
                        let mut other = bytes.clone();
                        other[at] ^= 1;
                        assert!(!span.eq(&other), "a changed byte {at} of {len} goes unseen");
                    }
                }
                assert!(!span.eq(&pattern(len + 1)));
                for to in 0..9 {
                    let copy = WordBuffer::new(1400);
                    copy.span().slice(to..to + len).write_from_span(span);
                    assert!(copy.span().slice(to..to + len).eq(&bytes));
                    assert!(copy.span().slice(to + len..1400).eq(&vec![0; 1400 - to - len]));
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "beyond a span")]
    fn a_slice_beyond_the_span_is_refused() {
        let buffer = WordBuffer::new(16);
        let _ = buffer.span().slice(0..10).slice(5..11);
    }

    #[test]
    fn parts_leave_in_order_and_arrive_in_words() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let bytes = pattern(3000);
        let buffer = WordBuffer::new(3000);
        buffer.span().write_from(&bytes);
        let parts = [
            Part::Plain(b"head "),
            Part::Shared(buffer.span().slice(3..3)),
            Part::Shared(buffer.span().slice(13..2013)),
            Part::Plain(b" tail"),
        ];
        assert_eq!(send_parts(near.as_fd(), &parts).unwrap(), 2010);
        let mut received = vec![0; 2010];
        far.read_exact(&mut received).unwrap();
        assert_eq!(received, [b"head ", &bytes[13..2013], b" tail"].concat());
        assert_eq!(send_parts(near.as_fd(), &[Part::Plain(b"")]).unwrap(), 0);

        let target = WordBuffer::new(100);
        let nothing = recv_span(near.as_fd(), target.span()).unwrap_err();
        assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
        far.write_all(b"0123456789").unwrap();
        assert_eq!(recv_span(near.as_fd(), target.span().slice(5..11)).unwrap(), 6);
        assert!(target.span().slice(5..11).eq(b"012345"));
        assert!(target.span().slice(11..100).eq(&[0; 89]));
        drop(far);
        assert_eq!(recv_span(near.as_fd(), target.span()).unwrap(), 4);
        assert_eq!(recv_span(near.as_fd(), target.span()).unwrap(), 0);
        near.flush().unwrap();
        let gone = send_parts(near.as_fd(), &[Part::Plain(b"x")]).unwrap_err();
        assert_eq!(gone.kind(), std::io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn excess_parts_are_left_for_the_next_call() {
        let (near, _far) = UnixStream::pair().unwrap();
        assert_eq!(send_parts(near.as_fd(), &[Part::Plain(b"x"); 20]).unwrap(), PARTS_MAX);
    }
}
