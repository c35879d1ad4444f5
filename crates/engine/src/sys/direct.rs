//! Words of memory written to a file as they lie, also past the page cache.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd},
    sync::atomic::AtomicU64,
};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};

/// Writes all of `words` at byte `offset` of `file`. If another thread stores to the words meanwhile, some of its
/// stores are in the file and some are not, as after any race.
///
/// With a file that was opened with `O_DIRECT` words, length and offset must be aligned to its blocks.
///
/// # Errors
/// What `pwrite(2)` says; `WriteZero` if it takes nothing (a file size limit). A part may have been written.
pub fn write_words(file: &File, words: &[AtomicU64], offset: u64) -> io::Result<()> {
    let bytes = size_of_val(words);
    let mut done = 0;
    while done < bytes {
        let at = i64::try_from(offset + done as u64)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "beyond what a file offset can say"))?;
        // SAFETY: `done` is less than the bytes of the slice, so the address is within it (or the slice is empty and
        // the loop is not entered).
        let from = unsafe { words.as_ptr().byte_add(done) };
        // SAFETY: the range lies in `words`, which lives through the call; the kernel only reads it. Others may store
        // to it in the meantime (they are atomics): what is written then is undecided, not undefined.
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

/// Takes the lock of the whole file for as long as it is open; `false` if somebody else holds it.
///
/// # Errors
/// What `flock(2)` says otherwise.
pub fn lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

/// Gives the file `bytes` of length, with their room on the disk.
///
/// # Errors
/// What `fallocate(2)` says: `ENOSPC`; `EOPNOTSUPP` where the file system cannot.
pub fn preallocate(file: &File, bytes: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)?)
}

/// Gives back the room of a range; it reads as zeros then. Pages that the kernel is still sending stay as they are.
///
/// # Errors
/// What `fallocate(2)` says.
pub fn punch(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, flags, offset, bytes)?)
}

/// The same file again, past the page cache; `None` where the file system does not do that.
pub fn open_direct(file: &File) -> Option<File> {
    let again = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::DIRECT;
    rustix::fs::open(again, flags, rustix::fs::Mode::empty()).ok().map(File::from)
}

/// Begins to write a range of the page cache to the disk, without waiting.
///
/// # Errors
/// What `sync_file_range(2)` says.
pub fn begin_write_back(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "beyond what a file offset can say"));
    };
    // SAFETY: the call takes numbers and a descriptor that is open as long as `file` lives.
    let failed =
        unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, libc::SYNC_FILE_RANGE_WRITE) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
