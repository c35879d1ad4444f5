//! Sending large bodies without a copy: the kernel takes references to pages.
//!
//! ```text
//!  words of the store ──vmsplice──▶ pipe of the core (references) ──splice──▶ socket (the same references)
//! ```
//! Copying 64 KiB into a socket costs more than everything else in serving such a hit, especially if another
//! core last used the target pages. Lent data is not copied, so the *pages* must stay unchanged until the
//! receiver has the data, long after the call. Code that reuses the words therefore puts new pages there
//! first ([`Words::renew`](super::arena::Words::renew)), and the kernel keeps the old ones as long as it
//! needs them.
//!
//! *Bound:* at most 256 KiB are sent at once. *Waiting:* never. Data that the socket does not accept is
//! dropped from the pipe, so that the pipe is empty between two calls.

use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::Errno,
    pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice},
};

use super::span::{PARTS_MAX, Part, Span, send_more, send_parts};

/// Requested size of the pipe; the kernel may allow less (`fs.pipe-user-pages-soft`).
const PIPE_BYTES: usize = 256 << 10;

/// A core's pipe for sending pages without copying them.
#[derive(Debug)]
pub struct Lender {
    /// Writing end of the pipe.
    into: OwnedFd,
    /// Reading end of the pipe.
    out_of: OwnedFd,
    /// `/dev/null`, into which data is dropped that a socket did not accept.
    nowhere: File,
    /// Maximum number of page references that the pipe can hold.
    pages_max: usize,
    page_bytes: usize,
}

impl Lender {
    /// Opens the pipe and tests it.
    ///
    /// # Errors
    /// Returns the error of `pipe2(2)`, `vmsplice(2)`, `splice(2)` or of opening `/dev/null`: a sandbox may
    /// refuse any of them.
    pub fn open() -> io::Result<Self> {
        let (out_of, into) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // The kernel refuses this for a user with many pipes; then fewer bytes are sent at once.
        let _ = fcntl_setpipe_size(&into, PIPE_BYTES);
        let page_bytes = rustix::param::page_size();
        let pages_max = fcntl_getpipe_size(&into)? / page_bytes;
        let nowhere = OpenOptions::new().write(true).open("/dev/null")?;
        let lender = Self { into, out_of, nowhere, pages_max, page_bytes };
        static TRIED: [u8; 1] = [0];
        let tried = libc::iovec { iov_base: TRIED.as_ptr().cast_mut().cast(), iov_len: TRIED.len() };
        let lent = lender.put(&[tried])?;
        lender.drop_rest(lent)?;
        Ok(lender)
    }

    /// Sends like [`send_parts`], and lends the first run of [`Part::Lent`] parts instead of copying it.
    /// Makes two more system calls, neither of which copies; allocates no memory.
    ///
    /// # Errors
    /// Returns the same errors as [`send_parts`]. (`splice` has no `MSG_NOSIGNAL`: the process must ignore
    /// `SIGPIPE`, as Rust programs do.)
    ///
    /// # Panics
    /// Panics if data that a socket did not accept cannot be dropped, because it would be sent to another
    /// client.
    pub fn send_parts(&mut self, fd: BorrowedFd<'_>, parts: &[Part<'_>]) -> io::Result<usize> {
        let (before, lent) = parts
            .split_at(parts.iter().position(|part| matches!(part, Part::Lent(_))).unwrap_or(parts.len()));
        let (vectors, used, wanted) = self.vectors(lent);
        if wanted == 0 {
            return send_parts(fd, parts);
        }
        let before_bytes: usize = before.iter().map(Part::len).sum();
        let sent = if before_bytes == 0 { 0 } else { send_more(fd, before)? };
        if sent < before_bytes {
            return Ok(sent);
        }
        let Ok(put) = self.put(&vectors[..used]) else {
            // If lending fails, for example for lack of memory for references, the parts are copied.
            return send_parts(fd, lent).map(|more| sent + more).or_else(|error| some_or(sent, error));
        };
        let moved = retry(|| splice(&self.out_of, None, fd, None, put, SpliceFlags::NONBLOCK));
        let rest = put - moved.as_ref().map_or(0, |moved| *moved);
        if rest > 0 {
            let dropped = self.drop_rest(rest);
            assert!(dropped.is_ok(), "the pipe is empty between two answers: {dropped:?}");
        }
        moved.map(|moved| sent + moved).or_else(|error| some_or(sent, error))
    }

    /// Collects the first lent parts, as far as they fit into the pipe; returns their I/O vectors, the number
    /// of vectors, and their total bytes.
    fn vectors(&self, parts: &[Part<'_>]) -> ([libc::iovec; PARTS_MAX], usize, usize) {
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS_MAX];
        let (mut used, mut bytes, mut pages_left) = (0, 0, self.pages_max);
        for part in parts {
            let Part::Lent(span) = part else { break };
            if used == PARTS_MAX || pages_left == 0 {
                break;
            }
            if span.is_empty() {
                continue;
            }
            let vector = self.fitting(*span, &mut pages_left);
            vectors[used] = vector;
            used += 1;
            bytes += vector.iov_len;
        }
        (vectors, used, bytes)
    }

    /// Returns the I/O vector of the span, shortened to `pages_left` pages, and subtracts the pages that it
    /// takes.
    fn fitting(&self, span: Span<'_>, pages_left: &mut usize) -> libc::iovec {
        let mut vector = span.iovec();
        let skip = vector.iov_base.addr() % self.page_bytes;
        vector.iov_len = vector.iov_len.min(*pages_left * self.page_bytes - skip);
        *pages_left -= (skip + vector.iov_len).div_ceil(self.page_bytes);
        vector
    }

    /// Puts references to the pages of `vectors` into the empty pipe; returns the number of bytes.
    fn put(&self, vectors: &[libc::iovec]) -> io::Result<usize> {
        retry(|| {
            // SAFETY: the vectors are those of spans (or of a static), which outlive the call; the kernel
            // refers to their pages and reads them later. A concurrent write would only send wrong bytes
            // (they are atomics); the store prevents such writes. An unmapped page stays as long as the
            // kernel refers to it. Without `SPLICE_F_GIFT` the pages still belong to this process.
            let put = unsafe {
                libc::vmsplice(
                    self.into.as_raw_fd(),
                    vectors.as_ptr(),
                    vectors.len(),
                    libc::SPLICE_F_NONBLOCK,
                )
            };
            usize::try_from(put)
                .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
        })
    }

    /// Drops the `bytes` left in the pipe.
    fn drop_rest(&self, bytes: usize) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            let flags = SpliceFlags::NONBLOCK;
            match retry(|| splice(&self.out_of, None, self.nowhere.as_fd(), None, left, flags))? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                dropped => left -= dropped,
            }
        }
        Ok(())
    }
}

/// Returns the bytes already sent rather than a later error, which the next call will encounter again.
fn some_or(sent: usize, error: io::Error) -> io::Result<usize> {
    if sent > 0 { Ok(sent) } else { Err(error) }
}

fn retry(call: impl Fn() -> Result<usize, Errno>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return done.map_err(io::Error::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Read,
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::sys::{arena::Words, span::WordBuffer};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    #[test]
    fn lent_and_copied_bytes_arrive_in_order() {
        let bytes = pattern(100_000);
        let buffer = WordBuffer::new(bytes.len());
        buffer.span().write_from(&bytes);
        let mut lender = Lender::open().unwrap();
        let (near, mut far) = pair();
        for (from, to) in [(0, 100_000), (3, 70_001), (4095, 4097), (8, 8)] {
            let half = usize::midpoint(from, to);
            let lent = |range| Part::Lent(buffer.span().slice(range));
            let parts = [Part::Plain(b"head "), lent(from..half), lent(half..to)];
            assert_eq!(lender.send_parts(near.as_fd(), &parts).unwrap(), 5 + to - from);
            let mut received = vec![0; 5 + to - from];
            far.read_exact(&mut received).unwrap();
            assert_eq!(received, [b"head ", &bytes[from..to]].concat());
        }
        assert_eq!(lender.send_parts(near.as_fd(), &[]).unwrap(), 0);
        // Plain parts that follow lent ones are left for the next call.
        let parts = [Part::Lent(buffer.span().slice(0..9)), Part::Plain(b"tail")];
        assert_eq!(lender.send_parts(near.as_fd(), &parts).unwrap(), 9);
    }

    #[test]
    fn a_full_socket_leaves_nothing_in_the_pipe() {
        let bytes = pattern(PIPE_BYTES * 2);
        let buffer = WordBuffer::new(bytes.len());
        buffer.span().write_from(&bytes);
        let mut lender = Lender::open().unwrap();
        let (near, mut far) = pair();
        let mut sent = 0;
        let full = loop {
            let from = sent % bytes.len();
            match lender.send_parts(near.as_fd(), &[Part::Lent(buffer.span().slice(from..bytes.len()))]) {
                Ok(more) => sent += more,
                Err(error) => break error,
            }
            assert!(sent < 1 << 30, "a socket that is never full");
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        let (other, mut other_far) = pair();
        assert_eq!(lender.send_parts(other.as_fd(), &[Part::Lent(buffer.span().slice(5..9))]).unwrap(), 4);
        let mut four = [0; 4];
        other_far.read_exact(&mut four).unwrap();
        assert_eq!(four, bytes[5..9], "not what the full socket was to have");
        drop(near);
        let mut received = Vec::new();
        far.read_to_end(&mut received).unwrap();
        assert_eq!(received.len(), sent);
        assert!(received.chunks(bytes.len()).all(|chunk| chunk == &bytes[..chunk.len()]));
    }

    #[test]
    fn bytes_under_way_outlive_the_words_being_renewed() {
        let words = Words::reserve(64 << 10, true).unwrap();
        let all = words.len() * 8;
        let bytes = pattern(100_000);
        let span = Span::new(&words, 304..304 + bytes.len());
        span.write_from(&bytes);
        let (near, mut far) = pair();
        let sent = Lender::open().unwrap().send_parts(near.as_fd(), &[Part::Lent(span)]).unwrap();
        words.renew(0..words.len()).unwrap();
        assert!(span.eq(&vec![0; bytes.len()]), "renewed words are zero");
        Span::new(&words, 0..all).write_from(&vec![0xff; all]);
        let mut received = vec![0; sent];
        far.read_exact(&mut received).unwrap();
        assert_eq!(received, bytes[..sent]);
    }
}
