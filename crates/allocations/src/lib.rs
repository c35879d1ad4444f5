//! Exact counts of the allocations that a stretch of code makes on its thread (claim C16).
//!
//! A claim that a hot path "allocates nothing" needs a measurement. [`CountingAllocator`] wraps the process's
//! allocator and counts every call in four cells of the calling thread. [`Allocations`] reads those cells
//! before and after, subtracts the cost of reading, and refuses to be read from another thread, whose cells
//! say nothing about the code in question.
//!
//! ```text
//!   code under test ──alloc/free──► CountingAllocator ──► System
//!                                         │ +1, +bytes
//!                                         ▼
//!                               four Cell<u64> of this thread  ◄── Allocations: mark · since_mark · assert_none
//! ```
//!
//! *Memory:* the cells are constant-initialised thread-locals without a destructor, so that reaching them
//! neither allocates nor locks nor registers anything, even on the first access: the counter may be called
//! from inside the allocator, on a thread that is starting or ending. *Writer:* only the owning thread.
//! *Cost:* two additions per call.
//!
//! A binary enables counting with one declaration:
//!
//! ```
//! use allocations::{Allocations, CountingAllocator};
//!
//! #[global_allocator]
//! static ALLOCATOR: CountingAllocator = CountingAllocator::system();
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut allocations = Allocations::new()?; // an error if the line above is missing: no silent zero
//! let mut scratch = Vec::<u8>::with_capacity(64);
//!
//! allocations.mark()?;
//! scratch.extend_from_slice(b"fits what is already there");
//! allocations.assert_none("filling a buffer that is large enough");
//!
//! allocations.mark()?;
//! scratch.extend_from_slice(&[0; 200]);
//! assert_eq!(allocations.since_mark()?.allocations, 1);
//! # Ok(()) }
//! ```
//!
//! Source of the idea: *Measuring Allocations Programmatically*, 6 July 2015 (there for Java's per-thread
//! allocated bytes; here calls are counted too, and frees).
#![allow(
    unsafe_code,
    reason = "GlobalAlloc is an unsafe trait; this module only forwards to the allocator behind it \
              (docs/decisions/004-lab-instruments.md)"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of rounds in which [`Allocations::new`] measures the cost of its own reading; the smallest result
/// is used.
const CALIBRATION_ROUNDS: usize = 100;

/// Allocator calls and bytes of a thread, by direction.
///
/// A reallocation counts as one allocation of the new size and one free of the old, even if the allocator
/// could grow the block in place: the caller cannot know that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of calls that requested memory.
    pub allocations: u64,
    /// Number of calls that freed memory.
    pub frees: u64,
    /// Bytes requested (the layouts' sizes, not the allocator's rounded ones).
    pub allocated_bytes: u64,
    /// Bytes freed.
    pub freed_bytes: u64,
}

impl Counts {
    /// Returns whether nothing was requested and nothing freed.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the difference between `earlier` and `self`. Both come from the same thread, whose counts only
    /// grow.
    fn since(&self, earlier: &Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    fn zip(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            allocations: join(self.allocations, other.allocations),
            frees: join(self.frees, other.frees),
            allocated_bytes: join(self.allocated_bytes, other.allocated_bytes),
            freed_bytes: join(self.freed_bytes, other.freed_bytes),
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} allocations ({} bytes), {} frees ({} bytes)",
            self.allocations, self.allocated_bytes, self.frees, self.freed_bytes
        )
    }
}

struct Cells {
    allocations: Cell<u64>,
    frees: Cell<u64>,
    allocated_bytes: Cell<u64>,
    freed_bytes: Cell<u64>,
    /// Number of the thread in this process, never reused; 0 until it is first requested.
    thread: Cell<u64>,
}

thread_local! {
    static CELLS: Cells = const {
        Cells {
            allocations: Cell::new(0),
            frees: Cell::new(0),
            allocated_bytes: Cell::new(0),
            freed_bytes: Cell::new(0),
            thread: Cell::new(0),
        }
    };
}

/// Returns the counts of the calling thread since it began; all zero if no [`CountingAllocator`] is
/// installed.
///
/// Meant for a thread that publishes its own counts, such as an event loop under test, which reads and
/// compares them itself or sends the difference. A test that can run its code itself uses [`Allocations`],
/// which checks more.
pub fn thread_counts() -> Counts {
    CELLS.with(|cells| Counts {
        allocations: cells.allocations.get(),
        frees: cells.frees.get(),
        allocated_bytes: cells.allocated_bytes.get(),
        freed_bytes: cells.freed_bytes.get(),
    })
}

/// Allocator that counts the calls of each thread and forwards them (to the system's allocator by default).
///
/// Install it with `#[global_allocator]`; see the crate's example.
#[derive(Debug, Default)]
pub struct CountingAllocator<A = System> {
    behind: A,
}

impl CountingAllocator<System> {
    /// Creates a counter in front of the system's allocator.
    pub const fn system() -> Self {
        Self { behind: System }
    }
}

impl<A> CountingAllocator<A> {
    /// Creates a counter in front of `behind`.
    pub const fn before(behind: A) -> Self {
        Self { behind }
    }
}

fn count_allocation(bytes: usize) {
    // `CELLS` has no destructor, so it can be reached for as long as the thread runs: the error cannot occur,
    // and an allocator must not panic to report it.
    let _ = CELLS.try_with(|cells| {
        cells.allocations.set(cells.allocations.get().wrapping_add(1));
        cells.allocated_bytes.set(cells.allocated_bytes.get().wrapping_add(bytes as u64));
    });
}

fn count_free(bytes: usize) {
    let _ = CELLS.try_with(|cells| {
        cells.frees.set(cells.frees.get().wrapping_add(1));
        cells.freed_bytes.set(cells.freed_bytes.get().wrapping_add(bytes as u64));
    });
}

// SAFETY: every call goes to `behind` with the caller's own arguments, and its answer comes back unchanged, so
// each promise of `GlobalAlloc` is kept exactly as well as `behind` keeps it. Counting neither unwinds (wrapping
// sums, no panic) nor allocates (constant-initialised thread-locals without a destructor).
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: the caller upholds `alloc`'s contract (size not zero); the layout is passed on unchanged.
        unsafe { self.behind.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocation(layout.size());
        // SAFETY: as in `alloc`. Forwarded separately so that fresh pages are not zeroed twice.
        unsafe { self.behind.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count_free(layout.size());
        // SAFETY: the caller got `pointer` from us with this layout, so `behind` handed it out with this layout.
        unsafe { self.behind.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_free(layout.size());
        count_allocation(size);
        // SAFETY: as in `dealloc` for `pointer` and `layout`; the caller vouches for `size` (not zero, no overflow).
        unsafe { self.behind.realloc(pointer, layout, size) }
    }
}

/// Error from a measurement.
#[derive(Debug)]
pub enum AllocationsError {
    /// A test allocation was not counted: the binary has another global allocator.
    NotInstalled,
    /// The handle was used on a thread other than its own.
    OtherThread {
        /// The thread that the handle counts for.
        owner: String,
        /// The thread that used the handle.
        caller: String,
    },
}

impl fmt::Display for AllocationsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInstalled => f.write_str(
                "no CountingAllocator is installed in this binary, so nothing would be counted: \
                 declare `#[global_allocator] static ALLOCATOR: CountingAllocator = CountingAllocator::system();`",
            ),
            Self::OtherThread { owner, caller } => write!(
                f,
                "these allocations are counted for {owner}, but {caller} asked: each thread has its own counts"
            ),
        }
    }
}

impl std::error::Error for AllocationsError {}

/// Measures the allocations on this thread between [`mark`](Self::mark) and a reading.
///
/// The handle may be sent to another thread, but its methods return an error there.
#[derive(Debug)]
pub struct Allocations {
    thread: u64,
    thread_name: String,
    /// Cost of one mark and one reading; subtracted from every reading.
    own_cost: Counts,
    mark: Counts,
}

impl Allocations {
    /// Creates a handle for the calling thread, calibrated and marked.
    ///
    /// # Errors
    /// [`AllocationsError::NotInstalled`] if the binary does not count allocations.
    pub fn new() -> Result<Self, AllocationsError> {
        let before = thread_counts();
        drop(black_box(Box::new(black_box(0_u64))));
        if thread_counts().since(&before).allocations == 0 {
            return Err(AllocationsError::NotInstalled);
        }

        let mut this = Self {
            thread: thread_number(),
            thread_name: thread_name(),
            own_cost: Counts::default(),
            mark: Counts::default(),
        };
        let mut own_cost: Option<Counts> = None;
        for _ in 0..CALIBRATION_ROUNDS {
            this.mark()?;
            let cost = black_box(this.since_mark()?);
            own_cost = Some(own_cost.map_or(cost, |least| least.zip(&cost, u64::min)));
        }
        this.own_cost = own_cost.unwrap_or_default();
        this.mark()?;
        Ok(this)
    }

    /// Returns the thread's counts since the last mark, minus the handle's own cost; leaves the mark
    /// unchanged.
    ///
    /// # Errors
    /// [`AllocationsError::OtherThread`] if called on another thread.
    pub fn since_mark(&self) -> Result<Counts, AllocationsError> {
        self.check_thread()?;
        Ok(thread_counts().since(&self.mark).since(&self.own_cost))
    }

    /// Returns the counts like [`since_mark`](Self::since_mark), and sets a new mark.
    ///
    /// # Errors
    /// [`AllocationsError::OtherThread`] if called on another thread.
    pub fn mark(&mut self) -> Result<Counts, AllocationsError> {
        let counts = self.since_mark()?;
        self.mark = thread_counts();
        Ok(counts)
    }

    /// Sets a new mark; the counts so far are dropped.
    ///
    /// # Errors
    /// [`AllocationsError::OtherThread`] if called on another thread.
    pub fn reset(&mut self) -> Result<(), AllocationsError> {
        self.mark().map(drop)
    }

    /// Prints one line, `what: 3 allocations (120 bytes), …`, and sets a new mark afterwards, so that
    /// printing is not part of the next measurement.
    ///
    /// # Errors
    /// [`AllocationsError::OtherThread`] if called on another thread.
    #[expect(clippy::print_stdout, reason = "printing is what it is for")]
    pub fn print(&mut self, what: &str) -> Result<Counts, AllocationsError> {
        let counts = self.since_mark()?;
        println!("{what}: {counts}");
        self.mark = thread_counts();
        Ok(counts)
    }

    /// Asserts, for tests, that the code since the mark allocated nothing. Frees alone pass (their memory was
    /// allocated before the mark); a steady path that frees also allocates, and is caught.
    ///
    /// # Panics
    /// Panics with the counts if something was allocated; with both threads' names on another thread.
    #[track_caller]
    pub fn assert_none(&self, what: &str) {
        match self.since_mark() {
            Ok(counts) => assert!(counts.allocations == 0, "{what} must not allocate, but made {counts}"),
            Err(error) => panic!("{what}: {error}"),
        }
    }

    fn check_thread(&self) -> Result<(), AllocationsError> {
        if thread_number() == self.thread {
            return Ok(());
        }
        Err(AllocationsError::OtherThread { owner: self.thread_name.clone(), caller: thread_name() })
    }
}

/// Returns the number of the calling thread. The standard library's thread identity may allocate on its first
/// use; this number never does.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    CELLS.with(|cells| {
        if cells.thread.get() == 0 {
            cells.thread.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        cells.thread.get()
    })
}

fn thread_name() -> String {
    let thread = std::thread::current();
    let number = thread_number();
    match thread.name() {
        Some(name) => format!("thread {number} \"{name}\""),
        None => format!("thread {number}"),
    }
}
