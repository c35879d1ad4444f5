//! Response bodies: as they arrive, stored whole, in parts or in slices, and read by range.

pub(crate) mod cold;
pub(crate) mod copy;
pub(crate) mod growing;
pub(crate) mod large;
pub(crate) mod multipart_ranges;
pub(crate) mod parts;
pub(crate) mod parts_in_memory;
pub(crate) mod slice;
pub(crate) mod slices;
