//! Slab: items in numbered, reused slots, in blocks that never move.

/// Number of items in a block: growing allocates one block and copies nothing.
const BLOCK: usize = 4096;

/// A slab. A vacant slot keeps a default item.
#[derive(Debug)]
pub(super) struct Slab<T> {
    blocks: Vec<Box<[T]>>,
    used: u32,
    vacant: Vec<u32>,
}

impl<T: Default> Slab<T> {
    pub(super) fn new() -> Self {
        Self { blocks: Vec::new(), used: 0, vacant: Vec::new() }
    }

    /// Inserts an item and returns its slot.
    pub(super) fn insert(&mut self, item: T) -> u32 {
        let slot = match self.vacant.pop() {
            Some(slot) => slot,
            None => {
                if self.used as usize == self.blocks.len() * BLOCK {
                    self.blocks.push((0..BLOCK).map(|_| T::default()).collect());
                }
                self.used += 1;
                self.used - 1
            }
        };
        self[slot] = item;
        slot
    }

    /// Vacates a slot and returns its item.
    pub(super) fn remove(&mut self, slot: u32) -> T {
        self.vacant.push(slot);
        std::mem::take(&mut self[slot])
    }

    /// Returns the item of a slot, if the slot exists.
    pub(super) fn get(&self, slot: u32) -> Option<&T> {
        self.blocks.get(slot as usize / BLOCK)?.get(slot as usize % BLOCK)
    }

    /// Number of slots, vacant ones included.
    pub(super) fn slots(&self) -> u32 {
        self.used
    }

    /// Number of occupied slots.
    pub(super) fn len(&self) -> usize {
        self.used as usize - self.vacant.len()
    }

    /// Memory of the slab, without the allocations that its items own.
    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK * size_of::<T>() + self.vacant.capacity() * size_of::<u32>()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, slot: u32) -> &T {
        &self.blocks[slot as usize / BLOCK][slot as usize % BLOCK]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.blocks[slot as usize / BLOCK][slot as usize % BLOCK]
    }
}
