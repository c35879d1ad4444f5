//! Without the counting allocator the handle returns an error, instead of always reporting zeros.

use allocations::{Allocations, AllocationsError};

#[test]
fn a_binary_that_does_not_count_is_told() {
    assert!(matches!(Allocations::new(), Err(AllocationsError::NotInstalled)));
}
