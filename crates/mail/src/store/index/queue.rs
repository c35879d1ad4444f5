//! The queue of expiry times.

use bheap::PageQueue;

/// Bytes of a page of the expiry queue.
const QUEUE_PAGE_BYTES: usize = 4096;

pub(super) fn queue() -> PageQueue<u64> {
    match PageQueue::new(QUEUE_PAGE_BYTES) {
        Ok(queue) => queue,
        Err(error) => unreachable!("a page of 4 KiB is one: {error}"),
    }
}

/// Returns the second in which an expiry is due.
pub(super) fn due_s(expires_ms: u64) -> u64 {
    expires_ms.div_ceil(1000).min(u32::MAX.into())
}
