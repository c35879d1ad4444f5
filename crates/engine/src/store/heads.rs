//! A stored object gets a younger head, and its body stays (RFC 9111 §4.3.4: what a 304 is for; §4.3.5 after HEAD).
//!
//! ```text
//! whole    | header, key, head,  extra | body |  ─▶  | header, key, head', extra' | body |    the body is copied, at most 256 KiB
//! chained  | header, key, head,  extra | table ─┬─▶ extents
//!          | header, key, head', extra' | table ┘   the extents are the same, the old record dies
//! ```
//! What readers hold of the old record stays as it was. The object keeps its sequence, because variants and parts go by
//! it. On the file: `tier/heads.rs`.

use super::{
    filling::InsertRefusal,
    hash::Hash,
    index::Slot,
    record::{Kind, Lengths, META_WORDS},
    shard::Shard,
};

/// What an object is to have in the place of what it has.
#[derive(Debug, Clone, Copy)]
pub struct NewHead<'a> {
    /// The caller's bytes before the body.
    pub head: &'a [u8],
    /// More of them.
    pub extra: &'a [u8],
    /// Words of the caller's.
    pub meta: [u64; META_WORDS],
    /// When it expires, in seconds of the store's time; `u32::MAX`: never.
    pub expires_s: u32,
}

impl Shard {
    /// Gives an object another head, words and expiry; says whether it was there. One that is on the file alone is to
    /// be brought back first.
    ///
    /// # Errors
    /// [`InsertRefusal::TooLarge`] if the names do not fit, or the body not any more beside them; [`InsertRefusal::NoRoom`]. The
    /// object is as it was then, and what it says may not be true any more: the caller drops it.
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
        // Making room may have moved the object, and may have been at its expense.
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
