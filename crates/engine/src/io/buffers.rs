//! Buffers for disk reads: slots of four sizes in one mapping, taken and returned without a lock.
//!
//! ```text
//!   mapping │ 8 KiB │ 8 KiB │ … ║ 32 KiB │ … ║ 128 KiB │ … ║ 512 KiB │ … │      a quarter of the bytes each
//!   taken   │ 1 0 1 1 0 …       ║ 0 0 …      ║ 1 …         ║ 0 …         │      a bit each
//! ```
//! Any core takes slots and any thread returns them, so the bits are atomic; they are accessed once per disk
//! read, never for a hit. A larger slot is taken when all slots of the right size are used up.

use std::{
    fmt, io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

use crate::sys::{arena::Words, file_words::PAGE_BYTES, span::Span};

/// Maximum bytes of one read, including alignment: a record of the store and one more block at each end.
pub const READ_BYTES_MAX: usize = 512 << 10;
/// Size of a slot in bytes, for each of the four sizes.
const SLOT_BYTES: [usize; 4] = [8 << 10, 32 << 10, 128 << 10, READ_BYTES_MAX];
/// Minimum bytes of all four slot sizes together: each size's quarter must hold at least one of the largest
/// slots.
pub(super) const BUFFER_BYTES_MIN: usize = SLOT_BYTES.len() * READ_BYTES_MAX;

/// All buffers for disk reads.
pub(super) struct Buffers {
    memory: Words,
    sizes: [Slots; SLOT_BYTES.len()],
    /// Notified when a slot of the largest size is returned, for a task that was refused a buffer.
    room: Notify,
}

/// The slots of one size, with a bit for each that tells whether it is taken.
struct Slots {
    /// Offset of the first slot in bytes, from the start of the mapping.
    first: usize,
    count: usize,
    /// A bit for each slot, set while the slot is taken.
    taken: Box<[AtomicU64]>,
}

impl Buffers {
    /// Reserves about `bytes` bytes, which are committed on first use.
    pub(super) fn reserve(bytes: usize) -> io::Result<Arc<Self>> {
        let quarter = bytes.max(BUFFER_BYTES_MIN) / SLOT_BYTES.len();
        let mut first = 0;
        let sizes = SLOT_BYTES.map(|slot_bytes| {
            let count = quarter / slot_bytes;
            let taken = (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
            let slots = Slots { first, count, taken };
            first += count * slot_bytes;
            slots
        });
        let memory = Words::reserve(first / size_of::<u64>(), false)?;
        Ok(Arc::new(Self { memory, sizes, room: Notify::new() }))
    }

    /// Takes a buffer of at least `bytes` bytes; `None` if all that are large enough are taken.
    ///
    /// # Panics
    /// Panics if `bytes` is more than [`READ_BYTES_MAX`].
    pub(super) fn take(self: &Arc<Self>, bytes: usize) -> Option<Buffer> {
        assert!(bytes <= READ_BYTES_MAX, "a read of {bytes} bytes");
        (0..SLOT_BYTES.len()).filter(|size| SLOT_BYTES[*size] >= bytes).find_map(|size| {
            let slot = self.sizes[size].take()?;
            Some(Buffer { buffers: Arc::clone(self), size, slot })
        })
    }

    /// Waits until a slot of the largest size is returned; returns at once if that has happened since the
    /// last wait. The task that has waited longest is woken first, but another task may still take the slot
    /// before it.
    pub(super) async fn room(&self) {
        self.room.notified().await;
    }

    /// Returns the bytes of all slots that are taken now.
    pub(super) fn taken_bytes(&self) -> usize {
        let slots = self.sizes.iter().map(|size| {
            size.taken.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum::<usize>()
        });
        slots.zip(SLOT_BYTES).map(|(taken, bytes)| taken * bytes).sum()
    }
}

impl Slots {
    fn take(&self) -> Option<usize> {
        for (number, word) in self.taken.iter().enumerate() {
            let mut seen = word.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones() as usize;
                let slot = number * 64 + bit;
                if slot >= self.count {
                    break;
                }
                // Acquire: reads by the last holder happen before writes by the new one.
                match word.compare_exchange_weak(seen, seen | 1 << bit, Ordering::Acquire, Ordering::Relaxed)
                {
                    Ok(_) => return Some(slot),
                    Err(now) => seen = now,
                }
            }
        }
        None
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffers").field("taken_bytes", &self.taken_bytes()).finish_non_exhaustive()
    }
}

/// A slot in use: first by the helper that fills it, then by all tasks that read it.
#[derive(Debug)]
pub(super) struct Buffer {
    buffers: Arc<Buffers>,
    size: usize,
    slot: usize,
}

impl Buffer {
    /// Returns the given range of the buffer's bytes; the buffer is aligned to a page.
    pub(super) fn span(&self, bytes: Range<usize>) -> Span<'_> {
        assert!(bytes.end <= SLOT_BYTES[self.size], "{bytes:?} beyond a buffer");
        let start = self.buffers.sizes[self.size].first + self.slot * SLOT_BYTES[self.size];
        debug_assert!(start.is_multiple_of(PAGE_BYTES));
        Span::new(&self.buffers.memory, start + bytes.start..start + bytes.end)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let word = &self.buffers.sizes[self.size].taken[self.slot / 64];
        let before = word.fetch_and(!(1 << (self.slot % 64)), Ordering::Release);
        assert!(before >> (self.slot % 64) & 1 == 1, "buffer returned twice");
        if self.size == SLOT_BYTES.len() - 1 {
            self.buffers.room.notify_one();
        }
    }
}

/// Result of a read: exactly the requested bytes. Cheap to clone; dropping the last clone, on any thread,
/// returns the memory. Until then it counts against the bound on buffers, so for a slow client the block must
/// be copied or its connection cut, as with any pinned object.
#[derive(Debug, Clone)]
pub struct Block {
    buffer: Arc<Buffer>,
    /// Offset of the requested bytes within the buffer.
    start: usize,
    len: usize,
}

impl Block {
    pub(super) fn new(buffer: Buffer, bytes: Range<usize>) -> Self {
        Self { buffer: Arc::new(buffer), start: bytes.start, len: bytes.len() }
    }

    /// Returns the bytes.
    #[must_use]
    pub fn span(&self) -> Span<'_> {
        self.buffer.span(self.start..self.start + self.len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a list of taken slots: no slot has two holders, returned slots can be taken again,
        /// and no request is refused while a large enough slot is free.
        #[test]
        fn no_two_holders_share_a_byte(steps in proptest::collection::vec((1_usize..=READ_BYTES_MAX, 0_usize..4), 1..200)) {
            let buffers = Buffers::reserve(BUFFER_BYTES_MIN).unwrap();
            let mut held: Vec<(Buffer, usize, usize)> = Vec::new();
            for (bytes, keep) in steps {
                let place = |buffer: &Buffer| {
                    buffers.sizes[buffer.size].first + buffer.slot * SLOT_BYTES[buffer.size]
                };
                match buffers.take(bytes) {
                    Some(buffer) => {
                        let (start, len) = (place(&buffer), SLOT_BYTES[buffer.size]);
                        prop_assert!(len >= bytes && start % PAGE_BYTES == 0);
                        for (_, other, other_len) in &held {
                            prop_assert!(start + len <= *other || other + other_len <= start);
                        }
                        held.push((buffer, start, len));
                    }
                    None => {
                        let free = SLOT_BYTES.iter().enumerate().filter(|(_, slot)| **slot >= bytes).any(|(size, _)| {
                            held.iter().filter(|(buffer, _, _)| buffer.size == size).count() < buffers.sizes[size].count
                        });
                        prop_assert!(!free);
                    }
                }
                if keep == 0 && !held.is_empty() {
                    held.swap_remove(bytes % held.len());
                }
                prop_assert_eq!(buffers.taken_bytes(), held.iter().map(|(_, _, len)| len).sum::<usize>());
            }
            held.clear();
            prop_assert_eq!(buffers.taken_bytes(), 0);
        }
    }

    #[test]
    fn threads_take_and_give_back_without_a_clash() {
        let buffers = Buffers::reserve(BUFFER_BYTES_MIN).unwrap();
        std::thread::scope(|scope| {
            for thread in 1..=3_u8 {
                let buffers = &buffers;
                scope.spawn(move || {
                    for _ in 0..2000 {
                        let Some(buffer) = buffers.take(5000) else { continue };
                        buffer.span(0..5000).write_from(&[thread; 5000]);
                        assert!(buffer.span(0..5000).eq(&[thread; 5000]), "somebody else has the same slot");
                    }
                });
            }
        });
        assert_eq!(buffers.taken_bytes(), 0);
    }
}
