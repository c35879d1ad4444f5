//! The ring itself: slots that two threads share, and the two indices that say whose a slot is.
//!
//! ```text
//!            head (consumer writes)        tail (producer writes)
//!              │                             │
//!   slots  ┌───▼───┬───────┬───────┬───────┬─▼─────┬───────┐
//!          │ full  │ full  │ full  │ full  │ empty │ empty │      full: the consumer's, empty: the producer's
//!          └───────┴───────┴───────┴───────┴───────┴───────┘
//! ```
//!
//! Both indices only grow (they wrap after 2^64 messages); slot `i & mask` belongs to the consumer while
//! `head <= i < tail` and to the producer otherwise. Each side keeps a copy of the other's index and looks at the
//! shared one only when its copy says full (or empty), so that in steady flow the two cache lines travel once per
//! lap or per batch and not once per message.
//!
//! A consumer that goes drops what is left in the ring, and what is pushed after that is dropped by the producer when it
//! next calls [`Producer::drop_if_abandoned`]: a message that carries a reply channel closes it, so that whoever waits
//! for the reply hears that there is none. The word `end` says which of the two has to empty the ring:
//!
//! ```text
//!   OPEN ──consumer goes──▶ GONE ──ring emptied──▶ GONE | LEFT     from LEFT on the producer empties it
//!                            │ ▲ producer has pushed meanwhile: GONE | AGAIN, and the consumer empties it once more
//!                            └─┘
//! ```
//!
//! Safe code cannot break the ring: a half is `Send` but neither `Clone` nor `Sync`, so each index has one writer.
//! The public face with its documentation is [`crate::cores::ring`].

use std::{cell::Cell, mem::MaybeUninit};

use shim::{Arc, AtomicU8, AtomicUsize, Ordering, UnsafeCell, fence};

/// Bits of [`RingBuffer::end`]: the consumer goes.
const GONE: u8 = 1;
/// The producer has pushed while the consumer emptied the ring for the last time.
const AGAIN: u8 = 2;
/// The consumer is done with the ring: it is the producer's alone.
const LEFT: u8 = 4;

/// Two adjacent cache lines: what one core writes and another reads must not share either (the hardware fetches
/// lines in pairs).
#[repr(align(128))]
#[derive(Debug)]
struct Line<T>(T);

struct RingBuffer<T> {
    /// The next slot to be emptied. Written by the consumer only.
    head: Line<AtomicUsize>,
    /// The next slot to be filled. Written by the producer only.
    tail: Line<AtomicUsize>,
    /// A power of two in number, at least `capacity`. Initialised exactly where `head <= i < tail`.
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    capacity: usize,
    /// Beside what never changes: it is written at the end of a half's life only.
    end: AtomicU8,
}

// SAFETY: a value of T moves from the producer's thread to the consumer's, which `T: Send` allows; no reference to a
// T is ever shared. The slots are reached through the halves only, whose protocol (above) gives each slot one owner
// at a time, with Release on handing over and Acquire on taking.
unsafe impl<T: Send> Send for RingBuffer<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for RingBuffer<T> {}

impl<T> RingBuffer<T> {
    fn slot(&self, index: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[index & (self.slots.len() - 1)]
    }
}

impl<T> RingBuffer<T> {
    /// Drops all values before `tail`. The caller is the only one left that takes values out, or has taken over from the
    /// consumer ([`LEFT`], seen with Acquire).
    fn drop_all(&self, tail: usize) {
        let mut head = self.head.0.load(Ordering::Relaxed);
        while head != tail {
            let value = self.slot(head).with_mut(|slot| {
                // SAFETY: `head <= i < tail` holds a value, and nobody else is left to take it. It is dropped after the
                // index has passed it, so that a drop that panics or comes back here finds it gone.
                unsafe { slot.cast::<T>().read() }
            });
            head = head.wrapping_add(1);
            self.head.0.store(head, Ordering::Release);
            drop(value);
        }
    }
}

impl<T> Drop for RingBuffer<T> {
    fn drop(&mut self) {
        // The last half is gone, and dropping an Arc orders what both did before this.
        let tail = self.tail.0.load(Ordering::Relaxed);
        self.drop_all(tail);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        let end = &self.shared.end;
        end.fetch_or(GONE, Ordering::AcqRel);
        // Pairs with the producer's between its push and its look at `end`.
        fence(Ordering::SeqCst);
        loop {
            let tail = self.shared.tail.0.load(Ordering::Acquire);
            self.shared.drop_all(tail);
            // Release: the producer that takes over sees where we have stopped.
            if end.compare_exchange(GONE, GONE | LEFT, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return;
            }
            end.fetch_and(!AGAIN, Ordering::AcqRel);
        }
    }
}

/// The end that fills. One thread at a time holds it.
pub struct Producer<T> {
    shared: Arc<RingBuffer<T>>,
    /// What `shared.tail` is: this half is its only writer.
    tail: Cell<usize>,
    /// What `shared.head` was when last looked at; never ahead of it.
    head_seen: Cell<usize>,
}

/// The end that empties. One thread at a time holds it.
pub struct Consumer<T> {
    shared: Arc<RingBuffer<T>>,
    /// What `shared.head` is: this half is its only writer.
    head: Cell<usize>,
    /// What `shared.tail` was when last looked at; never ahead of it.
    tail_seen: Cell<usize>,
}

/// A ring that holds up to `capacity` messages: all memory is reserved now.
///
/// # Panics
/// If `capacity` is 0, or more than half of the address space.
#[must_use]
pub fn channel<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    assert!(capacity > 0, "a ring that holds nothing passes nothing on");
    let slots = (0..capacity.next_power_of_two()).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let shared = Arc::new(RingBuffer {
        head: Line(AtomicUsize::new(0)),
        tail: Line(AtomicUsize::new(0)),
        slots,
        capacity,
        end: AtomicU8::new(0),
    });
    (
        Producer { shared: Arc::clone(&shared), tail: Cell::new(0), head_seen: Cell::new(0) },
        Consumer { shared, head: Cell::new(0), tail_seen: Cell::new(0) },
    )
}

impl<T: Send> Producer<T> {
    /// Whether the next push finds room. Only pushes take room away, so that a yes holds until then.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.head_seen.set(self.shared.head.0.load(Ordering::Acquire));
        self.tail.get().wrapping_sub(self.head_seen.get()) < self.shared.capacity
    }

    /// Puts `value` behind all others.
    ///
    /// # Errors
    /// Gives `value` back when the ring is full.
    pub fn push(&self, value: T) -> Result<(), T> {
        let tail = self.tail.get();
        if tail.wrapping_sub(self.head_seen.get()) >= self.shared.capacity {
            // Acquire: the consumer's read of the slot comes before our write to it.
            self.head_seen.set(self.shared.head.0.load(Ordering::Acquire));
            if tail.wrapping_sub(self.head_seen.get()) >= self.shared.capacity {
                return Err(value);
            }
        }
        self.shared.slot(tail).with_mut(|slot| {
            // SAFETY: `tail - head < capacity <= slots`, so the consumer is done with this slot, and it is ours
            // until `tail` is stored. We are the only producer: the half is not Sync, and nothing in here calls
            // back into it. The slot holds no value, so none is overwritten undropped.
            unsafe { slot.cast::<T>().write(value) };
        });
        let next = tail.wrapping_add(1);
        self.tail.set(next);
        // Release: whoever sees the index sees the value.
        self.shared.tail.0.store(next, Ordering::Release);
        Ok(())
    }

    /// Drops what the ring holds if its consumer is gone, and says whether it is. The caller has a full fence (SeqCst)
    /// between its last push and this: then either the consumer has seen that push, or we see that the consumer goes.
    pub fn drop_if_abandoned(&self) -> bool {
        if self.shared.end.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // Release: a consumer that empties the ring again sees what we have pushed.
        if self.shared.end.fetch_or(AGAIN, Ordering::AcqRel) & LEFT != 0 {
            self.shared.drop_all(self.tail.get());
        }
        true
    }

    /// How many messages fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.shared.capacity
    }
}

impl<T: Send> Consumer<T> {
    /// Takes the oldest message, if there is one.
    pub fn pop(&self) -> Option<T> {
        if self.head.get() == self.tail_seen.get() && self.is_empty() {
            return None;
        }
        let head = self.head.get();
        let value = self.take(head);
        self.release(head.wrapping_add(1));
        Some(value)
    }

    /// Appends to `into` all messages that are in the ring now, and says how many. One look at the producer's index
    /// and one store of ours, however many they are.
    pub fn pop_all(&self, into: &mut Vec<T>) -> usize {
        if self.is_empty() {
            return 0;
        }
        let (head, tail) = (self.head.get(), self.tail_seen.get());
        let count = tail.wrapping_sub(head);
        // Before the first value is taken: from here on nothing can unwind and leave a value taken but still counted.
        into.reserve(count);
        for index in 0..count {
            into.push(self.take(head.wrapping_add(index)));
        }
        self.release(tail);
        count
    }

    /// Whether there was nothing at this moment. Looks at the producer's index (a cache line that it writes).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // Acquire: the producer's write of the slots comes before our reads.
        self.tail_seen.set(self.shared.tail.0.load(Ordering::Acquire));
        self.tail_seen.get() == self.head.get()
    }

    /// Moves the value out of slot `index`. The caller: `head <= index < tail_seen`, and then [`Self::release`]
    /// past it, once, before anything else.
    fn take(&self, index: usize) -> T {
        debug_assert!(self.tail_seen.get().wrapping_sub(index) as isize > 0, "taken past the tail");
        self.shared.slot(index).with_mut(|slot| {
            // SAFETY: `head <= index < tail`, so the producer has filled the slot and handed it over (Acquire of
            // its index), and we are the only consumer: the half is not Sync. `release` follows in both callers
            // with nothing between that could unwind, so the value is read once.
            unsafe { slot.cast::<T>().read() }
        })
    }

    fn release(&self, head: usize) {
        self.head.set(head);
        // Release: our reads of the slots come before the producer's next writes.
        self.shared.head.0.store(head, Ordering::Release);
    }
}

impl<T> std::fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("tail", &self.tail.get()).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("head", &self.head.get()).finish_non_exhaustive()
    }
}

#[cfg(feature = "loom")]
mod shim {
    pub(super) use loom::{
        cell::UnsafeCell,
        sync::{
            Arc,
            atomic::{AtomicU8, AtomicUsize, Ordering, fence},
        },
    };
}

#[cfg(not(feature = "loom"))]
mod shim {
    pub(super) use std::sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering, fence},
    };

    /// The part of `loom::cell::UnsafeCell` that the ring uses.
    #[derive(Debug)]
    pub(super) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(super) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(super) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}
