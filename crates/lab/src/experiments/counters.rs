//! Kernel counters of this thread: faults, and bytes transferred. Source: proc(5).

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};

/// Counters of the calling thread since its start; [`Counters::since`] returns a difference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Faults whose page was in memory.
    pub minor_faults: u64,
    /// Faults that waited for a read.
    pub major_faults: u64,
    /// Bytes read from the block device.
    pub bytes_read: u64,
    /// Bytes that will be written to the block device, counted when a clean page becomes dirty.
    pub bytes_written: u64,
}

impl Counters {
    /// Reads the counters.
    ///
    /// # Errors
    /// Returns an error if `/proc` is not mounted, or if a kernel without I/O accounting lacks
    /// `/proc/thread-self/io`.
    pub fn now() -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/thread-self/stat")?;
        let (minor_faults, major_faults) =
            faults_of(&stat).ok_or_else(|| malformed("/proc/thread-self/stat"))?;
        let io = fs::read_to_string("/proc/thread-self/io")?;
        let field = |name: &str| field_of(&io, name).ok_or_else(|| malformed("/proc/thread-self/io"));
        Ok(Self {
            minor_faults,
            major_faults,
            bytes_read: field("read_bytes:")?,
            bytes_written: field("write_bytes:")?,
        })
    }

    /// Returns the difference from `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            minor_faults: self.minor_faults - earlier.minor_faults,
            major_faults: self.major_faults - earlier.major_faults,
            bytes_read: self.bytes_read - earlier.bytes_read,
            bytes_written: self.bytes_written - earlier.bytes_written,
        }
    }
}

fn malformed(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{file} is not as proc(5) says"))
}

/// Parses fields 10 and 12 (minflt, majflt), counted from after the command's name, which may contain spaces
/// and brackets.
fn faults_of(stat: &str) -> Option<(u64, u64)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(7);
    let minor = fields.next()?.parse().ok()?;
    let major = fields.nth(1)?.parse().ok()?;
    Some((minor, major))
}

fn field_of(io: &str, name: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_moves_no_field() {
        let stat = "12 (a) b) c) R 1 2 3 4 5 66 1001 1002 1003 1004 9 9";
        assert_eq!(faults_of(stat), Some((1001, 1003)));
        assert_eq!(faults_of("12 (a"), None);
    }

    #[test]
    fn a_planted_fault_is_counted() {
        let words = engine::sys::arena::Words::reserve(1 << 20, false).unwrap();
        let before = Counters::now().unwrap();
        for page in 0..256 {
            words[page * 512].store(1, std::sync::atomic::Ordering::Relaxed);
        }
        let after = Counters::now().unwrap().since(&before);
        assert!(after.minor_faults >= 1, "{after:?}");
    }
}
