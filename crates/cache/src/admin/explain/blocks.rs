//! Explanation of an object that is stored in slices.

use engine::store::Shard;

use crate::{
    body::slice::{BLOCK_BYTES, Version},
    core::Core,
    head::found_object::FoundObject,
    request::dependent::Dependent,
};

/// Maximum number of slices looked up for one object (14 GiB of content); more lookups would block the event
/// loop for too long.
const LOOKED_FOR_MAX: u32 = 32_768;

/// Describes how many of an object's slices are in memory. Runs on the owner's core.
pub(super) fn in_words(
    core: &Core,
    shard: &Shard,
    FoundObject { object, meta, hash }: FoundObject<'_, '_>,
) -> String {
    let blocks =
        meta.body_bytes.filter(|bytes| *bytes > 0).map_or(0, |bytes| Version::number_at(bytes - 1) + 1);
    let looked_for = blocks.min(LOOKED_FOR_MAX);
    let mut of_object = Vec::new();
    object.key().copy_to(&mut of_object);
    let there = (0..looked_for).filter(|number| {
        let mut key = of_object.clone();
        let slice = Dependent::Slice { sequence: object.sequence(), number: *number };
        let own = slice.place(hash, &mut key, |key| core.storage.store.hash(key));
        shard.peek(own, &key).is_some()
    });
    let there = there.count();
    let kib = BLOCK_BYTES >> 10;
    if looked_for < blocks {
        format!("content in {blocks} slices of {kib} KiB, {there} of the first {looked_for} in memory")
    } else {
        format!("content in {blocks} slices of {kib} KiB, {there} of them in memory")
    }
}
