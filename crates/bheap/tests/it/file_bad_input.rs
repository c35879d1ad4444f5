//! Invalid files and arguments: each gives one clear error, and nothing is overwritten.
#![cfg(feature = "std")]

use bheap::file::{BLOCK_BYTES, Fault, FileError, FileHeap, FileLayout, FileRows, Item};
use bheap::layout::{Binary, Dary, PageLayout};
use std::cell::Cell;
use std::path::{Path, PathBuf};

struct Folder {
    folder: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    /// Creates a file with these bytes.
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }
    /// Creates a queue of 2,000 items and closes it after a checkpoint.
    fn queue(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let mut queue = FileHeap::<u64, _>::create(&path, layout(), 10_000).unwrap();
        for key in 0..2_000 {
            queue.push(key * 7 % 2_000).unwrap();
        }
        queue.checkpoint().unwrap();
        path
    }
}

fn layout() -> PageLayout {
    PageLayout::for_page_bytes::<u64>(4096).unwrap()
}

/// Opens `path`, which must fail, and returns the error; the file must be unchanged, and the error must name
/// it.
fn refused(path: &Path) -> FileError {
    refused_as::<u64, _>(path, layout())
}

fn refused_as<T: Item + std::fmt::Debug, L: FileLayout + std::fmt::Debug>(
    path: &Path,
    layout: L,
) -> FileError {
    let before = std::fs::read(path).ok();
    let error = FileHeap::<T, L>::open(path, layout).unwrap_err();
    assert!(std::fs::read(path).ok() == before, "a refused file was changed: {error}");
    assert_eq!(error.path, path);
    assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    error
}

fn says(error: &FileError, words: &[&str]) {
    for word in words {
        assert!(error.to_string().contains(word), "\"{error}\" should say \"{word}\"");
    }
}

#[test]
fn a_missing_file_is_reported_and_not_created() {
    let folder = Folder::new();
    let error = refused(&folder.path("none"));
    says(&error, &["cannot open the file", "No such file"]);
    assert!(!folder.path("none").exists());
}

#[test]
fn a_folder_is_no_queue() {
    let folder = Folder::new();
    let error = FileHeap::<u64, _>::open(folder.folder.path(), layout()).unwrap_err();
    says(&error, &["cannot open the file"]);
}

#[test]
fn an_existing_file_is_never_made_anew() {
    let folder = Folder::new();
    let path = folder.file("precious", b"somebody's only copy");
    let error = FileHeap::<u64, _>::create(&path, layout(), 10).unwrap_err();
    says(&error, &["cannot create the file", "exists"]);
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's only copy");
}

#[test]
fn a_foreign_file_is_foreign_at_any_length() {
    let folder = Folder::new();
    for bytes in [&b""[..], b"PNG", b"not a queue", &[7; 8191], &[7; 8192], &[b'x'; 100_000]] {
        let error = refused(&folder.file("foreign", bytes));
        if bytes.is_empty() {
            assert!(matches!(error.fault, Fault::Length { found: 0, .. }), "{error}");
        } else {
            says(&error, &["not a queue file", "nothing was changed"]);
        }
    }
}

#[test]
fn a_file_that_was_never_finished_says_so() {
    let folder = Folder::new();
    says(&refused(&folder.file("zeros", &[0; 200_000])), &["header is empty", "interrupted"]);
}

#[test]
fn another_version_is_named() {
    let folder = Folder::new();
    let path = folder.queue("queue");
    let mut bytes = std::fs::read(&path).unwrap();
    for slot in [0, BLOCK_BYTES] {
        bytes[slot + 8] = 2;
    }
    let error = refused(&folder.file("next", &bytes));
    assert!(matches!(error.fault, Fault::Version { found: 2, known: 1 }));
    says(&error, &["format version 2", "reads version 1"]);
}

#[test]
fn a_mismatched_queue_type_is_refused_with_advice() {
    let folder = Folder::new();
    let path = folder.queue("queue");
    let error = refused_as::<u64, _>(&path, PageLayout::for_page_bytes::<u64>(512).unwrap());
    says(&error, &["a page size of 4096, opened with 512", "open it with 4096"]);
    let error = refused_as::<(u64, u64), _>(&path, PageLayout::for_page_bytes::<(u64, u64)>(4096).unwrap());
    says(&error, &["an item size of 8, opened with 16"]);
    let error = refused_as::<i64, _>(&path, layout());
    says(&error, &["items \"u64\", opened with \"i64\""]);
    let error = refused_as::<u64, _>(&path, Binary);
    says(&error, &["layout 2, opened with 1"]);
    let error = refused_as::<u64, _>(&path, Dary::<8>);
    says(&error, &["layout 2, opened with 4104"]);
    assert_eq!(FileHeap::<u64, _>::open(&path, layout()).unwrap().len(), 2_000);
}

#[test]
fn a_file_of_wrong_length_is_refused() {
    let folder = Folder::new();
    let path = folder.queue("queue");
    let bytes = std::fs::read(&path).unwrap();
    let lengths = [
        1,
        7,
        8,
        127,
        4096,
        8191,
        8192,
        8193,
        12_288,
        20_000,
        bytes.len() / 2,
        bytes.len() - 4096,
        bytes.len() - 1,
    ];
    for length in lengths {
        let error = refused(&folder.file("short", &bytes[..length]));
        match error.fault {
            Fault::Length { found, wanted } => {
                assert_eq!(found, length as u64);
                assert!(wanted == 8192 && length < 8192 || wanted == bytes.len() as u64, "{error}");
            }
            _ => panic!("{length}: {error}"),
        }
        says(&error, &["truncated", &length.to_string()]);
    }
    let mut longer = bytes.clone();
    longer.push(0);
    says(&refused(&folder.file("longer", &longer)), &["expected"]);
}

#[test]
fn a_locked_file_refuses_a_second_opener() {
    let folder = Folder::new();
    let path = folder.queue("queue");
    let first = FileHeap::<u64, _>::open(&path, layout()).unwrap();
    let error = refused(&path);
    assert!(matches!(error.fault, Fault::Locked));
    says(&error, &["already open"]);
    drop(first);
    assert_eq!(FileHeap::<u64, _>::open(&path, layout()).unwrap().len(), 2_000);
}

#[test]
fn an_impossible_capacity_creates_no_file() {
    let folder = Folder::new();
    let path = folder.path("queue");
    for capacity in [0, usize::MAX, usize::MAX / 8, isize::MAX as usize / 16, 1 << 50] {
        let error = FileHeap::<u64, _>::create(&path, layout(), capacity).unwrap_err();
        assert!(matches!(error.fault, Fault::Impossible { .. }), "{capacity}: {error}");
        assert!(!path.exists());
    }
}

#[test]
fn a_shape_that_does_not_fit_is_refused() {
    let folder = Folder::new();
    let path = folder.path("queue");
    let shape = layout().shape::<u64>(100);
    for page_bytes in [0, 3, 4097, 1 << 40] {
        let error = FileRows::<u64>::create(&path, bheap::file::Shape { page_bytes, ..shape }).unwrap_err();
        says(&error, &["a page's size must be a power of two"]);
        let opened = FileRows::<u64>::open(
            &folder.queue(&page_bytes.to_string()),
            bheap::file::Shape { page_bytes, ..shape },
        );
        assert!(opened.is_err(), "{page_bytes}");
    }
    let error = FileRows::<u64>::create(&path, bheap::file::Shape { item_bytes: 16, ..shape }).unwrap_err();
    says(&error, &["the shape does not fit the item type"]);
    assert!(!path.exists());
}

#[test]
fn a_layout_with_excess_unused_cells_is_refused() {
    let folder = Folder::new();
    let error = FileHeap::<u64, _>::create(folder.path("queue"), Dary::<513>, 10).unwrap_err();
    says(&error, &["unused cells"]);
    let path = folder.path("widest");
    let mut queue = FileHeap::<u64, _>::create(&path, Dary::<512>, 10_000).unwrap();
    queue.load((0..10_000).rev()).unwrap();
    queue.checkpoint().unwrap();
    drop(queue);
    assert_eq!(FileHeap::<u64, _>::open(&path, Dary::<512>).unwrap().pop(), Some(0));
}

#[test]
fn items_of_an_odd_size_are_refused() {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    struct Odd([u8; 12]);
    impl Item for Odd {
        type Bytes = [u8; 12];
        const KIND: [u8; 8] = *b"odd\0\0\0\0\0";
        fn to_le_bytes(self) -> [u8; 12] {
            self.0
        }
        fn from_le_bytes(bytes: [u8; 12]) -> Self {
            Self(bytes)
        }
    }
    let folder = Folder::new();
    let error = FileHeap::<Odd, _>::create(folder.path("queue"), Binary, 10).unwrap_err();
    says(&error, &["an item's size must be a power of two"]);
}

#[test]
fn a_full_queue_gives_the_item_back() {
    let folder = Folder::new();
    let mut queue = FileHeap::<u64, _>::create(folder.path("queue"), layout(), 3).unwrap();
    for key in [3, 1, 2] {
        queue.push(key).unwrap();
    }
    let refused = queue.push(0).unwrap_err();
    assert_eq!(refused.item, 0);
    says(&refused.why, &["created for 3 items"]);
    assert_eq!(queue.pop_push(9), Ok(1));
    assert_eq!([queue.pop(), queue.pop(), queue.pop(), queue.pop()], [Some(2), Some(3), Some(9), None]);
    assert_eq!(queue.pop_push(9), Err(9));
}

thread_local! {
    static COMPARISONS_LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Touchy(u64);

impl Ord for Touchy {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        COMPARISONS_LEFT.with(|left| {
            if left.get() == 0 {
                // A panic without a message, since there are hundreds.
                std::panic::resume_unwind(Box::new("enough compared"));
            }
            left.set(left.get() - 1);
        });
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Touchy {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Item for Touchy {
    type Bytes = [u8; 8];
    const KIND: [u8; 8] = *b"touchy\0\0";
    fn to_le_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }
    fn from_le_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_le_bytes(bytes))
    }
}

#[test]
fn a_comparison_that_panics_loses_and_doubles_nothing() {
    let folder = Folder::new();
    let path = folder.path("queue");
    let layout = PageLayout::for_page_bytes::<u64>(64).unwrap();
    let mut queue = FileHeap::<Touchy, _>::create(&path, layout, 1_000).unwrap();
    let mut panics = 0;
    for key in 0..400_u64 {
        COMPARISONS_LEFT.set((key % 9) as u32);
        let one =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| queue.push(Touchy(key * 37 % 400))));
        panics += u32::from(one.is_err());
    }
    let before = queue.len();
    assert_eq!(before, 400, "every item is in, in whatever order");
    let mut taken = Vec::new();
    for at in 0..100 {
        COMPARISONS_LEFT.set(at % 9);
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| queue.pop())) {
            Ok(item) => taken.extend(item),
            Err(_) => panics += 1,
        }
    }
    COMPARISONS_LEFT.set(u32::MAX);
    assert!(panics > 50, "{panics}");
    queue.checkpoint().unwrap();
    drop(queue);
    // Opening restores the order.
    let mut queue = FileHeap::<Touchy, _>::open(&path, layout).unwrap();
    assert!(queue.heap().is_ordered());
    while let Some(item) = queue.pop() {
        taken.push(item);
    }
    let mut keys: Vec<u64> = taken.iter().map(|item| item.0).collect();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(0..400));
}
