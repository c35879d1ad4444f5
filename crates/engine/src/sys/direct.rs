//! Writing words of memory to a file without a copy, optionally bypassing the page cache.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd},
    sync::atomic::AtomicU64,
};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};

/// Writes all of `words` at byte `offset` of `file`. If another thread stores to the words at the same time,
/// the file contains an arbitrary subset of these stores, as after any race.
///
/// If the file was opened with `O_DIRECT`, words, length and offset must be aligned to its blocks.
///
/// # Errors
/// Returns the error of `pwrite(2)`; `WriteZero` if it writes nothing (a file size limit). A part may have
/// been written.
pub fn write_words(file: &File, words: &[AtomicU64], offset: u64) -> io::Result<()> {
    let bytes = size_of_val(words);
    let mut done = 0;
    while done < bytes {
        let at = i64::try_from(offset + done as u64)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "beyond the range of a file offset"))?;
        // SAFETY: `done` is less than the bytes of the slice, so the address is within it (or the slice is empty and
        // the loop is not entered).
        let from = unsafe { words.as_ptr().byte_add(done) };
        // SAFETY: the range lies in `words`, which outlives the call; the kernel only reads it. Other threads
        // may store to it in the meantime (the words are atomics): the written bytes are then undetermined,
        // but the behaviour is not undefined.
        let wrote = unsafe { libc::pwrite(file.as_raw_fd(), from.cast(), bytes - done, at) };
        match usize::try_from(wrote) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(wrote) => done += wrote,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(())
}

/// Locks the whole file until it is closed; returns `false` if another process holds the lock.
///
/// # Errors
/// Returns any other error of `flock(2)`.
pub fn lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

/// Sets the length of the file to at least `bytes`, and allocates that space on the disk.
///
/// # Errors
/// Returns the error of `fallocate(2)`: `ENOSPC`; `EOPNOTSUPP` if the file system does not support it.
pub fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)?)
}

/// Frees the space of a range, which then reads as zeros. Pages that the kernel is still sending are
/// unchanged.
///
/// # Errors
/// Returns the error of `fallocate(2)`.
pub fn punch(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, flags, offset, bytes)?)
}

/// Opens the same file again with `O_DIRECT`; `None` if the file system does not support that.
pub fn open_direct(file: &File) -> Option<File> {
    let again = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT;
    rustix::fs::open(again, flags, rustix::fs::Mode::empty()).ok().map(File::from)
}

/// Begins to write a range of the page cache to the disk, without waiting.
///
/// # Errors
/// Returns the error of `sync_file_range(2)`.
pub fn begin_write_back(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "beyond the range of a file offset"));
    };
    // SAFETY: the call takes numbers and a descriptor that is open as long as `file` exists.
    let failed =
        unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, libc::SYNC_FILE_RANGE_WRITE) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
