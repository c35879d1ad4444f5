//! The ring itself: slots that two threads share, and the two indices that decide which side owns a slot.
//!
//! ```text
//!            head (consumer writes)        tail (producer writes)
//!              │                             │
//!   slots  ┌───▼───┬───────┬───────┬───────┬─▼─────┬───────┐
//!          │ full  │ full  │ full  │ full  │ empty │ empty │      full: the consumer's, empty: the producer's
//!          └───────┴───────┴───────┴───────┴───────┴───────┘
//! ```
//!
//! Both indices only increase (they wrap after 2^64 messages); slot `i & mask` belongs to the consumer while
//! `head <= i < tail` and to the producer otherwise. Each side keeps a copy of the other's index and reads
//! the shared one only when its copy says full (or empty). In steady flow the two cache lines therefore move
//! between the cores once per lap or per batch and not once per message.
//!
//! A dropped consumer drops the messages left in the ring, and the producer drops later messages when it next
//! calls [`Producer::drop_if_abandoned`]: dropping a message that carries a reply channel closes the channel,
//! so a task that waits for the reply learns that there is none. The word `end` decides which side must empty
//! the ring:
//!
//! ```text
//!   OPEN ──consumer dropped──▶ GONE ──ring emptied──▶ GONE | LEFT     from LEFT on the producer empties it
//!                               │ ▲ producer has pushed meanwhile: GONE | AGAIN, and the consumer empties it once more
//!                               └─┘
//! ```
//!
//! Safe code cannot break the ring: a half is `Send` but neither `Clone` nor `Sync`, so each index has one
//! writer. The public interface with its documentation is [`crate::cores::ring`].

use std::{cell::Cell, mem::MaybeUninit};

use shim::{Arc, AtomicU8, AtomicUsize, Ordering, UnsafeCell, fence};

/// Bit of [`RingBuffer::end`]: the consumer is being dropped.
const GONE: u8 = 1;
/// Bit of [`RingBuffer::end`]: the producer has pushed while the consumer emptied the ring for the last time.
const AGAIN: u8 = 2;
/// Bit of [`RingBuffer::end`]: the consumer has finished, and the ring belongs to the producer alone.
const LEFT: u8 = 4;

/// A value on its own pair of adjacent cache lines: an index that one core writes and another reads must not
/// share a line with other data (the hardware fetches lines in pairs).
#[repr(align(128))]
#[derive(Debug)]
struct Line<T>(T);

struct RingBuffer<T> {
    /// Next slot to be emptied. Written by the consumer only.
    head: Line<AtomicUsize>,
    /// Next slot to be filled. Written by the producer only.
    tail: Line<AtomicUsize>,
    /// Slots of the ring; their number is a power of two, at least `capacity`. A slot is initialised exactly
    /// if `head <= i < tail`.
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    capacity: usize,
    /// Bits that are written only when a half is dropped, and so are kept next to fields that never change.
    end: AtomicU8,
}

// SAFETY: a value of T moves from the producer's thread to the consumer's, which `T: Send` allows; no
// reference to a T is ever shared. The slots are accessed through the halves only, whose protocol (above)
// gives each slot one owner at a time, with Release on handing over and Acquire on taking.
unsafe impl<T: Send> Send for RingBuffer<T> {}
// SAFETY: the same argument as for `Send` applies.
unsafe impl<T: Send> Sync for RingBuffer<T> {}

impl<T> RingBuffer<T> {
    fn slot(&self, index: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[index & (self.slots.len() - 1)]
    }
}

impl<T> RingBuffer<T> {
    /// Drops all values before `tail`. The caller must be the only one that still takes values out, or have
    /// taken over from the consumer ([`LEFT`], seen with Acquire).
    fn drop_all(&self, tail: usize) {
        let mut head = self.head.0.load(Ordering::Relaxed);
        while head != tail {
            let value = self.slot(head).with_mut(|slot| {
                // SAFETY: a slot with `head <= i < tail` holds a value, and only this caller can take it. The
                // value is dropped after the index has passed it, so that a drop that panics or re-enters
                // here finds it gone.
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
        // Both halves are dropped by now, and dropping an Arc orders the operations of both before this.
        let tail = self.tail.0.load(Ordering::Relaxed);
        self.drop_all(tail);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        let end = &self.shared.end;
        end.fetch_or(GONE, Ordering::AcqRel);
        // This fence pairs with the producer's fence between its push and its load of `end`.
        fence(Ordering::SeqCst);
        loop {
            let tail = self.shared.tail.0.load(Ordering::Acquire);
            self.shared.drop_all(tail);
            // Release: the producer that takes over sees where the consumer has stopped.
            if end.compare_exchange(GONE, GONE | LEFT, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return;
            }
            end.fetch_and(!AGAIN, Ordering::AcqRel);
        }
    }
}

/// Sending end of a ring. Only one thread at a time can hold it.
pub struct Producer<T> {
    shared: Arc<RingBuffer<T>>,
    /// Current value of `shared.tail`, of which this producer is the only writer.
    tail: Cell<usize>,
    /// Value of `shared.head` when it was last read; never ahead of the current value.
    head_seen: Cell<usize>,
}

/// Receiving end of a ring. Only one thread at a time can hold it.
pub struct Consumer<T> {
    shared: Arc<RingBuffer<T>>,
    /// Current value of `shared.head`, of which this consumer is the only writer.
    head: Cell<usize>,
    /// Value of `shared.tail` when it was last read; never ahead of the current value.
    tail_seen: Cell<usize>,
}

/// Creates a ring for up to `capacity` messages; all memory is reserved at once.
///
/// # Panics
/// Panics if `capacity` is 0, or more than half of the address space.
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
    /// Returns whether the next push has room. The room remains until this producer pushes a value.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.head_seen.set(self.shared.head.0.load(Ordering::Acquire));
        self.tail.get().wrapping_sub(self.head_seen.get()) < self.shared.capacity
    }

    /// Appends `value`.
    ///
    /// # Errors
    /// Returns `value` if the ring is full.
    pub fn push(&self, value: T) -> Result<(), T> {
        let tail = self.tail.get();
        if tail.wrapping_sub(self.head_seen.get()) >= self.shared.capacity {
            // Acquire: the consumer's read of the slot happens before this producer's write to it.
            self.head_seen.set(self.shared.head.0.load(Ordering::Acquire));
            if tail.wrapping_sub(self.head_seen.get()) >= self.shared.capacity {
                return Err(value);
            }
        }
        self.shared.slot(tail).with_mut(|slot| {
            // SAFETY: `tail - head < capacity <= slots`, so the consumer is done with this slot, and it
            // belongs to the producer until `tail` is stored. There is only one producer: the half is not
            // Sync, and nothing in here calls back into it. The slot holds no value, so none is overwritten
            // undropped.
            unsafe { slot.cast::<T>().write(value) };
        });
        let next = tail.wrapping_add(1);
        self.tail.set(next);
        // Release: a consumer that sees the index sees the value.
        self.shared.tail.0.store(next, Ordering::Release);
        Ok(())
    }

    /// Drops the ring's messages if its consumer is gone, and returns whether it is. The caller must execute
    /// a full fence (SeqCst) between its last push and this call: then either the consumer has seen that
    /// push, or this call sees that the consumer is gone.
    pub fn drop_if_abandoned(&self) -> bool {
        if self.shared.end.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // Release: a consumer that empties the ring again sees the pushed messages.
        if self.shared.end.fetch_or(AGAIN, Ordering::AcqRel) & LEFT != 0 {
            self.shared.drop_all(self.tail.get());
        }
        true
    }

    /// Returns the maximum number of messages in the ring.
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

    /// Appends to `into` all messages that are in the ring now, and returns their number. Reads the
    /// producer's index once and stores its own index once, whatever the number of messages.
    pub fn pop_all(&self, into: &mut Vec<T>) -> usize {
        if self.is_empty() {
            return 0;
        }
        let (head, tail) = (self.head.get(), self.tail_seen.get());
        let count = tail.wrapping_sub(head);
        // The room is reserved before the first value is taken: from here on no panic can leave a value taken
        // but still counted.
        into.reserve(count);
        for index in 0..count {
            into.push(self.take(head.wrapping_add(index)));
        }
        self.release(tail);
        count
    }

    /// Returns whether the ring is empty at this moment. Reads the producer's index (a cache line that the
    /// producer writes).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // Acquire: the producer's write of the slots happens before the consumer's reads.
        self.tail_seen.set(self.shared.tail.0.load(Ordering::Acquire));
        self.tail_seen.get() == self.head.get()
    }

    /// Moves the value out of slot `index`. The caller guarantees `head <= index < tail_seen`, and must then
    /// release the slot with [`Self::release`], once, before any other operation.
    fn take(&self, index: usize) -> T {
        debug_assert!(self.tail_seen.get().wrapping_sub(index) as isize > 0, "taken past the tail");
        self.shared.slot(index).with_mut(|slot| {
            // SAFETY: `head <= index < tail`, so the producer has filled the slot and handed it over (Acquire
            // of its index), and there is only one consumer: the half is not Sync. Both callers call
            // `release` next, with nothing in between that could unwind, so the value is read once.
            unsafe { slot.cast::<T>().read() }
        })
    }

    fn release(&self, head: usize) {
        self.head.set(head);
        // Release: the consumer's reads of the slots happen before the producer's next writes.
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

    /// Stand-in for `loom::cell::UnsafeCell`, with the methods that the ring uses.
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
