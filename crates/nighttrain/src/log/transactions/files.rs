//! The file of the access log: opening, rotation, reopening, and buffering of lines while the disk is full.
//!
//! *Bounds:* at most [`WAITING_BYTES_MAX`] bytes of lines plus one line wait while the disk is full; later
//! lines are dropped and counted. A line is never continued in another file: if a full disk accepted only a
//! part of a line, writing resumes where it stopped, and rotation waits until the line is complete.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use super::rules::Rotate;

/// Maximum size in bytes of the lines that wait to be written.
pub(super) const WAITING_BYTES_MAX: usize = 1 << 20;

/// A file to which lines are appended.
#[derive(Debug)]
pub(super) struct LineFile {
    path: PathBuf,
    rotate: Option<Rotate>,
    keep: usize,
    file: Option<File>,
    bytes: u64,
    /// Day of the current file, in UTC days since 1970.
    day: u64,
    /// Lines that are not yet written; the first may be incomplete.
    waiting: Vec<u8>,
    /// Number of lines in `waiting`.
    waiting_lines: u64,
    /// True if a part of the first waiting line is already in the file.
    is_torn: bool,
}

/// Outcome of a write.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WriteOutcome {
    /// Number of lines that this write completed in the file.
    pub(super) lines: u64,
    /// Lines that were dropped.
    pub(super) dropped: u64,
    /// Number of times the file was rotated.
    pub(super) rotations: u64,
}

impl LineFile {
    /// Opens the file.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn open(path: &Path, rotate: Option<Rotate>, keep: usize, day: u64) -> io::Result<Self> {
        let mut of = Self {
            path: path.to_owned(),
            rotate,
            keep,
            file: None,
            bytes: 0,
            day,
            waiting: Vec::new(),
            waiting_lines: 0,
            is_torn: false,
        };
        of.open_again()?;
        Ok(of)
    }

    /// Reopens the file by its path, and returns the number of lines that were dropped.
    ///
    /// # Errors
    /// Returns the system's error; the old file then stays open.
    pub(super) fn reopen(&mut self) -> io::Result<u64> {
        self.open_again()?;
        Ok(self.give_up_half())
    }

    fn open_again(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().append(true).create(true).open(&self.path)?;
        self.bytes = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// Drops the rest of a line whose beginning is in the old file, and returns the number of lines dropped.
    fn give_up_half(&mut self) -> u64 {
        if !std::mem::take(&mut self.is_torn) {
            return 0;
        }
        let end = self.waiting.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.waiting.drain(..end);
        self.waiting_lines -= 1;
        1
    }

    /// Returns the number of bytes that wait to be written.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.len()
    }

    /// Appends a line; returns false if there is no room and the line is dropped.
    pub(super) fn append(&mut self, line: impl FnOnce(&mut Vec<u8>)) -> bool {
        let fits = self.waiting.len() < WAITING_BYTES_MAX;
        if fits {
            line(&mut self.waiting);
            self.waiting_lines += 1;
        }
        fits
    }

    /// Writes the waiting lines. Rotates the file first if rotation is due.
    pub(super) fn write(&mut self, day: u64) -> (WriteOutcome, io::Result<()>) {
        let mut written = WriteOutcome::default();
        let outcome = self.try_write(day, &mut written);
        (written, outcome)
    }

    fn try_write(&mut self, day: u64, written: &mut WriteOutcome) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let is_due = match self.rotate {
            None => false,
            Some(Rotate::Daily) => day != self.day,
            Some(Rotate::Bytes(most)) => self.bytes > 0 && self.bytes + self.waiting.len() as u64 > most,
        };
        // A line must not be split over two files.
        if is_due && !self.is_torn {
            self.set_aside()?;
            self.day = day;
            written.rotations += 1;
        }
        let Some(file) = &mut self.file else { return Err(io::ErrorKind::NotFound.into()) };
        let mut at = 0;
        let outcome = loop {
            match file.write(&self.waiting[at..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => at += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
            if at == self.waiting.len() {
                break Ok(());
            }
        };
        self.bytes += at as u64;
        written.lines = if at == self.waiting.len() {
            self.waiting_lines
        } else {
            self.waiting[..at].iter().filter(|byte| **byte == b'\n').count() as u64
        };
        self.waiting_lines -= written.lines;
        if at > 0 {
            self.is_torn = self.waiting[at - 1] != b'\n';
        }
        self.waiting.drain(..at);
        outcome
    }

    /// Renames FILE to FILE.1, FILE.1 to FILE.2 and so on; the oldest file is replaced.
    fn set_aside(&mut self) -> io::Result<()> {
        let aside = |number: usize| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number}"));
            PathBuf::from(name)
        };
        for number in (1..self.keep).rev() {
            match std::fs::rename(aside(number), aside(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        match std::fs::rename(&self.path, aside(1)) {
            // NotFound is not an error: the file was already moved away.
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.open_again()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(file: &mut LineFile, line: &[u8]) -> bool {
        file.append(|out| out.extend_from_slice(line))
    }

    fn lines(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn a26_files_rotate_by_size_and_oldest_are_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access.log");
        let mut file = LineFile::open(&path, Some(Rotate::Bytes(20)), 2, 0).expect("open");
        for number in 0..8 {
            assert!(append(&mut file, format!("line {number} of 14\n").as_bytes()));
            let (written, outcome) = file.write(0);
            outcome.expect("written");
            assert_eq!((written.lines, written.rotations), (1, u64::from(number > 0)));
        }
        let names = ["access.log", "access.log.1", "access.log.2", "access.log.3"];
        let found = names.map(|name| lines(&directory.path().join(name)));
        assert_eq!(found, ["line 7 of 14\n", "line 6 of 14\n", "line 5 of 14\n", ""]);
    }

    #[test]
    fn a26_files_are_set_aside_by_day() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access.log");
        let mut file = LineFile::open(&path, Some(Rotate::Daily), 7, 10).expect("open");
        for day in [10, 10, 11, 11] {
            assert!(append(&mut file, format!("{day}\n").as_bytes()));
            file.write(day).1.expect("written");
        }
        assert_eq!(lines(&path), "11\n11\n");
        assert_eq!(lines(&directory.path().join("access.log.1")), "10\n10\n");
    }

    #[test]
    fn a26_a_full_disk_drops_lines_beyond_the_buffer() {
        let mut file = LineFile::open(Path::new("/dev/full"), None, 1, 0).expect("open");
        let line = [&[b'x'; 1023][..], b"\n"].concat();
        let taken = (0..2000).filter(|_| append(&mut file, &line)).count();
        assert_eq!(taken, WAITING_BYTES_MAX / line.len());
        let (written, outcome) = file.write(0);
        assert_eq!(outcome.expect_err("full").kind(), io::ErrorKind::StorageFull);
        assert_eq!(written, WriteOutcome::default());
        assert_eq!(file.waiting_bytes(), WAITING_BYTES_MAX);
        // Reopening the file in another directory simulates a disk that has room again.
        let directory = tempfile::tempdir().expect("a directory");
        file.path = directory.path().join("access.log");
        assert_eq!(file.reopen().expect("open"), 0);
        let (written, outcome) = file.write(0);
        outcome.expect("written");
        assert_eq!(written.lines, taken as u64);
    }

    #[test]
    fn a26_a_reopen_drops_a_half_written_line() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("access.log");
        let mut file = LineFile::open(&path, None, 1, 0).expect("open");
        assert!(append(&mut file, b"half\n") && append(&mut file, b"whole\n"));
        // Simulates a full disk that accepted only the first two bytes of the line.
        file.waiting.drain(..2);
        file.is_torn = true;
        assert_eq!(file.reopen().expect("open"), 1, "its rest is given up");
        file.write(0).1.expect("written");
        assert_eq!(lines(&path), "whole\n");
    }
}
