//! Recording a latency allocates nothing, because it happens between a request and the next.

use std::error::Error;

use allocations::{Allocations, CountingAllocator};
use lab::latency::Latencies;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

type Outcome = Result<(), Box<dyn Error>>;

#[test]
fn recording_a_latency_allocates_nothing() -> Outcome {
    let mut latencies = Latencies::new();
    let mut allocations = Allocations::new()?;
    allocations.mark()?;
    // Values of all magnitudes are recorded, including below the first bucket and beyond the last.
    for magnitude in 0..64 {
        latencies.record(0, 1 << (magnitude / 2), 1 << magnitude);
    }
    allocations.assert_none("recording");
    assert_eq!(latencies.count(), 64);
    Ok(())
}
