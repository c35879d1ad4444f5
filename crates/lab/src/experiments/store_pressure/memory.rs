//! The process's own memory for objects that are requested more than once: first in, first out, with a second
//! chance.
//!
//! *Admission:* an object is admitted when it is read for the second time while its first read is still
//! remembered, in a ghost list of at most as many entries as there are objects in memory, so that a scan does
//! not displace anything. *Eviction:* the oldest object is evicted; if it was requested in the meantime, it
//! moves to the end of the queue instead, and the next one is considered.

use std::{
    cell::Cell,
    collections::{HashMap, VecDeque},
};

/// Bytes of an object beyond its body: its entry in the table and in the queue, and the allocator's rounding.
const OVERHEAD_BYTES: usize = 96;

struct CachedObject {
    body: Box<[u8]>,
    visited: Cell<bool>,
}

/// The memory tier.
pub(super) struct Memory {
    budget_bytes: usize,
    used_bytes: usize,
    kept: HashMap<u64, CachedObject>,
    order: VecDeque<u64>,
    ghosts: HashMap<u64, ()>,
    ghost_order: VecDeque<u64>,
}

impl Memory {
    pub(super) fn new(budget_bytes: usize) -> Self {
        Self {
            budget_bytes,
            used_bytes: 0,
            kept: HashMap::new(),
            order: VecDeque::new(),
            ghosts: HashMap::new(),
            ghost_order: VecDeque::new(),
        }
    }

    /// Returns the body if it is in memory.
    pub(super) fn body(&self, id: u64) -> Option<&[u8]> {
        let kept = self.kept.get(&id)?;
        kept.visited.set(true);
        Some(&kept.body)
    }

    /// Offers a body that was read or served from elsewhere.
    pub(super) fn offer(&mut self, id: u64, body: &[u8]) {
        if self.kept.contains_key(&id) || body.len() > self.budget_bytes / 8 {
            return;
        }
        // While there is room, every object is admitted.
        let full = self.used_bytes + body.len() + OVERHEAD_BYTES > self.budget_bytes;
        if full && self.ghosts.remove(&id).is_none() {
            self.remember(id);
            return;
        }
        while self.used_bytes + body.len() + OVERHEAD_BYTES > self.budget_bytes {
            self.evict();
        }
        self.used_bytes += body.len() + OVERHEAD_BYTES;
        self.kept.insert(id, CachedObject { body: body.into(), visited: Cell::new(false) });
        self.order.push_back(id);
    }

    fn remember(&mut self, id: u64) {
        if self.ghosts.insert(id, ()).is_none() {
            self.ghost_order.push_back(id);
        }
        while self.ghost_order.len() > self.order.len().max(1) {
            if let Some(oldest) = self.ghost_order.pop_front() {
                self.ghosts.remove(&oldest);
            }
        }
    }

    fn evict(&mut self) {
        while let Some(id) = self.order.pop_front() {
            match self.kept.get(&id) {
                Some(kept) if kept.visited.replace(false) => self.order.push_back(id),
                Some(_) => {
                    if let Some(gone) = self.kept.remove(&id) {
                        self.used_bytes -= gone.body.len() + OVERHEAD_BYTES;
                    }
                    return;
                }
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequently_requested_objects_survive_a_scan() {
        let mut memory = Memory::new(100 * (1000 + OVERHEAD_BYTES));
        for id in 0..100 {
            memory.offer(id, &[id as u8; 1000]);
        }
        for id in 0..50 {
            assert_eq!(memory.body(id), Some(&[id as u8; 1000][..]));
        }
        for id in 1_000..2_000 {
            memory.offer(id, &[1; 1000]);
            assert!(memory.body(id).is_none(), "once is not enough when there is no room");
        }
        // Requested again while remembered, the object is admitted, and one that was not requested is
        // evicted.
        memory.offer(1_999, &[2; 1000]);
        assert_eq!(memory.body(1_999), Some(&[2; 1000][..]));
        assert!((0..50).all(|id| memory.body(id).is_some()));
        assert_eq!((50..100).filter(|id| memory.body(*id).is_some()).count(), 49);
        assert!(memory.used_bytes <= memory.budget_bytes && memory.ghost_order.len() <= 100);
    }
}
