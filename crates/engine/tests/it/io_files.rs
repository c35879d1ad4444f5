//! Real files: past the page cache, through it, and as a mapping with known residency.
#![cfg(not(feature = "loom"))]

use std::{fs::File, os::unix::fs::FileExt, path::PathBuf};

use engine::{
    io::{CachedFile, DirectFile, Source},
    sys::{
        arena::Words,
        file_words::{PAGE_BYTES, ReadMapping},
        span::Span,
    },
};

/// A file of `bytes` bytes below the target directory, usually on a real disk, where pages can leave the
/// cache.
struct Scratch {
    path: PathBuf,
    file: File,
}

impl Scratch {
    fn new(name: &str, bytes: usize) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all_at(&content(0, bytes), 0).unwrap();
        file.sync_all().unwrap();
        Self { path, file }
    }

    /// Asks the kernel to drop the pages from its cache; false if it does not (a tmpfs).
    fn forget(&self, mapping: &ReadMapping) -> bool {
        rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        mapping.resident_pages(0..mapping.len()).unwrap() == 0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn content(at: usize, bytes: usize) -> Vec<u8> {
    (at..at + bytes).map(|at| (at ^ at >> 9) as u8).collect()
}

/// Reserves memory that is aligned for `O_DIRECT`.
fn memory() -> Words {
    Words::reserve(16 << 10, false).unwrap()
}

#[test]
fn direct_and_cached_reads_give_the_files_bytes() {
    let scratch = Scratch::new("io-files-read", 300_000);
    let memory = memory();
    let sources: [Box<dyn Source>; 2] = [
        Box::new(DirectFile::open(&scratch.path).unwrap()),
        Box::new(CachedFile::open(&scratch.path).unwrap()),
    ];
    for source in sources {
        for (at, bytes) in [(0, 4096), (8192, 65_536), (4096, 4096)] {
            let span = Span::new(&memory, 0..bytes);
            assert_eq!(source.read(at as u64, span).unwrap(), bytes);
            assert!(span.eq(&content(at, bytes)), "{bytes} at {at}");
        }
        // A read across the end of the file, and one beyond it.
        let span = Span::new(&memory, 0..8192);
        assert_eq!(source.read(294_912, span).unwrap(), 300_000 - 294_912);
        assert!(span.slice(0..300_000 - 294_912).eq(&content(294_912, 300_000 - 294_912)));
        assert_eq!(source.read(1 << 20, span).unwrap(), 0);
    }
}

#[test]
fn only_cached_reads_make_pages_resident() {
    let scratch = Scratch::new("io-files-resident", 4 << 20);
    let cached = CachedFile::open(&scratch.path).unwrap();
    let mapping = cached.mapping();
    if !scratch.forget(mapping) {
        return; // This file system lives in memory.
    }
    let memory = memory();
    DirectFile::open(&scratch.path).unwrap().read(0, Span::new(&memory, 0..65_536)).unwrap();
    assert_eq!(mapping.resident_pages(0..4 << 20).unwrap(), 0);
    assert!(!mapping.check_resident(1_000_000..1_000_001).unwrap());
    cached.read(1 << 20, Span::new(&memory, 0..32_768)).unwrap();
    assert_eq!(mapping.resident_pages(0..4 << 20).unwrap(), 8, "its eight pages and no window");
    assert!(mapping.check_resident(1 << 20..(1 << 20) + 32_768).unwrap());
    assert!(!mapping.check_resident(1 << 20..(1 << 20) + 32_769).unwrap());
    assert!(!mapping.check_resident((1 << 20) - 1..(1 << 20) + 10).unwrap());
    let before = major_faults();
    assert!(mapping.span(1 << 20..(1 << 20) + 32_768).eq(&content(1 << 20, 32_768)));
    assert_eq!(major_faults(), before, "what is resident and populated is read without a major fault");
    mapping.populate(5000..5001).unwrap();
    assert!(mapping.check_resident(4096..8192).unwrap());
    assert!(mapping.span(5000..5001).eq(&content(5000, 1)));
}

/// Returns the major faults of this thread so far.
fn major_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    stat.rsplit(") ").next().unwrap().split(' ').nth(9).unwrap().parse().unwrap()
}

#[test]
fn a_mapping_follows_writes_and_refuses_bad_lengths() {
    let scratch = Scratch::new("io-files-map", 3 * PAGE_BYTES + 5);
    let mapping = ReadMapping::map(&scratch.file, 3 * PAGE_BYTES as u64).unwrap();
    assert!(mapping.span(0..3 * PAGE_BYTES).eq(&content(0, 3 * PAGE_BYTES)));
    scratch.file.write_all_at(b"new", 5000).unwrap();
    assert!(mapping.span(5000..5003).eq(b"new"));
    for bytes in [0, 4 * PAGE_BYTES as u64, 5000, u64::MAX / 8 * 8] {
        assert!(ReadMapping::map(&scratch.file, bytes).is_err(), "{bytes}");
    }
    assert!(CachedFile::open(std::path::Path::new("/")).is_err());
    assert!(DirectFile::open(std::path::Path::new("/nowhere/at/all")).is_err());
}

/// Residency is counted correctly for more pages than one `mincore` call covers.
#[test]
fn residency_is_counted_across_questions() {
    let pages = 600;
    let scratch = Scratch::new("io-files-many", pages * PAGE_BYTES);
    let mapping = ReadMapping::map(&scratch.file, (pages * PAGE_BYTES) as u64).unwrap();
    mapping.populate(0..pages * PAGE_BYTES).unwrap();
    assert_eq!(mapping.resident_pages(0..pages * PAGE_BYTES).unwrap(), pages);
    assert_eq!(mapping.resident_pages(PAGE_BYTES + 1..300 * PAGE_BYTES + 1).unwrap(), 300);
    assert!(mapping.check_resident(0..pages * PAGE_BYTES).unwrap());
    assert_eq!(mapping.resident_pages(7..7).unwrap(), 0);
}
