//! Replacing the head of a stored object while its body stays (RFC 9111 §4.3.4 after a 304, §4.3.5 after
//! HEAD).
//!
//! ```text
//! whole    | header, key, head,  extra | body |  ─▶  | header, key, head', extra' | body |    the body is copied, at most 256 KiB
//! chained  | header, key, head,  extra | table ─┬─▶ extents
//!          | header, key, head', extra' | table ┘   the extents are unchanged, the old record dies
//! ```
//! Readers that hold the old record see it unchanged. The object keeps its sequence number, because variants
//! and parts refer to it. The counterpart for objects in the file is `tier/heads.rs`.

use super::{
    filling::InsertRefusal,
    hash::Hash,
    index::Slot,
    record::{Kind, Lengths, META_WORDS},
    shard::Shard,
};

/// New head, metadata words and expiry for a stored object.
#[derive(Debug, Clone, Copy)]
pub struct NewHead<'a> {
    /// New head: bytes that the caller stores before the body.
    pub head: &'a [u8],
    /// Additional bytes that the caller stores before the body.
    pub extra: &'a [u8],
    /// Words that the caller stores in the object's header.
    pub meta: [u64; META_WORDS],
    /// Expiry in seconds on the store's clock; `u32::MAX`: never.
    pub expires_s: u32,
}

impl Shard {
    /// Replaces the head, metadata words and expiry of an object; returns whether the object was found. An
    /// object that is only in the file must be restored to memory first.
    ///
    /// # Errors
    /// [`InsertRefusal::TooLarge`] if key, head and extra do not fit, or the body no longer fits beside them;
    /// [`InsertRefusal::NoRoom`] if no space can be freed. The object is then unchanged and its head may be
    /// outdated: the caller drops the object.
    pub fn replace_head(&mut self, hash: Hash, key: &[u8], new: NewHead<'_>) -> Result<bool, InsertRefusal> {
        let Some((old, _)) = self.find(hash, key) else { return Ok(false) };
        let lengths = self.lengths_with(old, &new);
        self.check_names(lengths)?;
        let Some(units) = self.units_of_record(lengths) else {
            return Err(self.refuse(InsertRefusal::TooLarge));
        };
        let log = self.space.log(self.local.store.geometry.segment_of(old.location()));
        let place = self.room(log, units)?;
        self.local.store.record(place.location).write_dead(units);
        // Making room may have moved or evicted the object.
        let Some((old, _)) = self.find(hash, key) else { return Ok(false) };
        let from = self.local.store.record(old.location());
        let to = self.local.store.record(place.location);
        let kind = if old.is_chained() { Kind::Chained } else { Kind::Whole };
        let header = from.header_with(lengths, new.meta);
        to.write_header(kind, units, &header);
        to.write_names(key, new.head, new.extra);
        to.rest().write_from_span(from.rest());
        to.tail().write_from_span(from.tail());
        let slot = Slot::new(hash, place.location, units, new.expires_s, old.is_chained());
        self.link_in_memory(slot)?;
        #[cfg(not(feature = "loom"))]
        self.keep_head(slot);
        Ok(true)
    }

    fn lengths_with(&self, old: Slot, new: &NewHead<'_>) -> Lengths {
        let record = self.local.store.record(old.location());
        let (rest, tail) = (record.rest().len(), record.tail().len());
        Lengths { key: record.key().len(), head: new.head.len(), extra: new.extra.len(), rest, tail }
    }
}
