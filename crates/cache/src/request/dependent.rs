//! Records that belong to another record: the variants of an address, and all that is made of an object.
//!
//! A dependent is a store record of its own, under the key of the record that it belongs to, its *parent*, and
//! more:
//!
//! ```text
//!  dependent        parent       its key ends in                                  found until
//!  variant          list of      NUL, the list's number, values of its fields     the list is replaced or dropped
//!                   names, Vary
//!  encoded variant  object       NUL, the object's number, 'C', the coding        the object is replaced or dropped
//!  slice            object       NUL, the object's number, the slice's, 'B', 1    the object is replaced or dropped
//!  note             address      NUL, 'N', how the visitor is known               the address is purged
//!  variant's note   note         NUL, the note's number, values, 'N'              the note is replaced or dropped
//! ```
//! A parent's number is its sequence number in the store ([`Object::sequence`](engine::store::Object::sequence)),
//! which no later record has again. So whatever hides the parent (a purge, a ban, a newer answer) hides all that
//! depends on it, with no search for it; what nobody finds any more expires or is evicted. A dependent has the
//! same owner core as its parent, because that core writes both.

use engine::store::Hash;

use crate::{
    coding::Coding,
    policy::vary::{SelectingFields, secondary_key},
};

/// A record that belongs to another record.
#[derive(Clone, Copy)]
pub(crate) enum Dependent<'a> {
    /// Answer to requests whose fields have the same values as this one's (RFC 9111 §4.1). `names`: those in
    /// `Vary`, joined by commas.
    Variant { generation: u64, names: &'a [u8], fields: &'a dyn SelectingFields },
    /// Content of an object in a coding in which the origin did not send it.
    Encoded { sequence: u64, coding: Coding },
    /// Part of an object's content.
    Slice { sequence: u64, number: u32 },
    /// Hit-for-miss note of an address. `visitor` is the kind of data that identifies the visitor.
    Note { visitor: u8 },
    /// Hit-for-miss note of one variant, whose names are in another note.
    VariantNote { generation: u64, names: &'a [u8], fields: &'a dyn SelectingFields },
}

/// Marks the end of an encoded variant's key, together with the coding's number. No key of a variant by
/// `Vary` or of a hit-for-miss note ends in this way.
const ENCODED: u8 = b'C';
/// Number of bytes that an encoded variant's key adds to its object's key: a NUL, a sequence number, and two
/// bytes that mark the end.
const ENCODED_BYTES: usize = 1 + size_of::<u64>() + 2;
/// Marks the end of a slice's key, together with a byte that is in no header's value, and in no encoded
/// variant's key.
const SLICE: u8 = b'B';
/// Number of bytes that a slice's key adds to its object's key: a NUL, a sequence number, the slice's number,
/// and two bytes that mark the end.
const SLICE_BYTES: usize = 1 + size_of::<u64>() + size_of::<u32>() + 2;
/// Marks a hit-for-miss note's key.
const NOTE: u8 = b'N';

impl Dependent<'_> {
    /// Extends the parent's key to the dependent's.
    pub(crate) fn extend(self, key: &mut Vec<u8>) {
        key.push(0);
        match self {
            Self::Variant { generation, names, fields } => {
                key.extend_from_slice(&generation.to_le_bytes());
                secondary_key(names, fields, key);
            }
            Self::Encoded { sequence, coding } => {
                key.extend_from_slice(&sequence.to_le_bytes());
                key.extend_from_slice(&[ENCODED, coding as u8]);
            }
            Self::Slice { sequence, number } => {
                key.extend_from_slice(&sequence.to_le_bytes());
                key.extend_from_slice(&number.to_le_bytes());
                key.extend_from_slice(&[SLICE, 1]);
            }
            Self::Note { visitor } => key.extend_from_slice(&[NOTE, visitor]),
            Self::VariantNote { generation, names, fields } => {
                key.extend_from_slice(&generation.to_le_bytes());
                secondary_key(names, fields, key);
                key.push(NOTE);
            }
        }
    }

    /// Extends the parent's key to the dependent's, and returns the dependent's hash. `parent` is the parent's
    /// hash, `hash` the store's function.
    pub(crate) fn place(self, parent: Hash, key: &mut Vec<u8>, hash: impl Fn(&[u8]) -> Hash) -> Hash {
        self.extend(key);
        hash_of_dependent(parent, hash(key))
    }
}

/// Returns the hash of a dependent whose key has the hash `own`: one with the same owner core as its parent.
pub(crate) fn hash_of_dependent(parent: Hash, own: Hash) -> Hash {
    // The store chooses the owning core by the low half of a hash.
    const OWNER: u64 = 0xffff_ffff;
    Hash::from_word((own.word() & !OWNER) | (parent.word() & OWNER))
}

/// Returns whether a key is that of an object's content, encoded or in slices, and not of an answer.
pub(crate) fn is_content_of_object(key: &[u8]) -> bool {
    is_encoded(key) || is_slice(key)
}

fn is_encoded(key: &[u8]) -> bool {
    let end = key.len().checked_sub(ENCODED_BYTES).map_or(&[][..], |from| &key[from..]);
    matches!(end, [0, .., ENCODED, 1..=4])
}

fn is_slice(key: &[u8]) -> bool {
    let end = key.len().checked_sub(SLICE_BYTES).map_or(&[][..], |from| &key[from..]);
    matches!(end, [0, .., SLICE, 1])
}

/// Returns the object's key within a slice's key.
pub(crate) fn object_of_slice(key: &[u8]) -> &[u8] {
    &key[..key.len().saturating_sub(SLICE_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{request::key, site::SiteTable};

    fn url(text: &str) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        key::of_url(text, &SiteTable::default(), &mut key).then_some(key)
    }

    /// The keys of an address and of a variant whose list of names has this number.
    fn parents(generation: &[u8; 8]) -> [Vec<u8>; 2] {
        let primary = url("http://a.example/x").expect("a URL");
        let variant = [&primary[..], &[0], generation].concat();
        [primary, variant]
    }

    fn of(parent: &[u8], dependent: Dependent<'_>) -> Vec<u8> {
        let mut key = parent.to_vec();
        dependent.extend(&mut key);
        key
    }

    #[test]
    fn an_encoded_variants_key_is_no_others() {
        let [primary, variant] = parents(b"CCCCCCC\x01");
        for values in [&b"-"[..], b"+\n", b"=br\n-"] {
            assert!(!is_encoded(&[&variant[..], values].concat()));
        }
        let note = [&primary[..], &[0, b'N', 1]].concat();
        assert!(!is_encoded(&primary) && !is_encoded(&note) && !is_encoded(b""));
        for parent in [primary, variant] {
            let encoded = [Coding::Gzip, Coding::Zstd, Coding::Decoded]
                .map(|coding| of(&parent, Dependent::Encoded { sequence: 7, coding }));
            assert!(encoded.iter().all(|key| is_encoded(key) && key::primary(key) == &parent[..12]));
            assert!(encoded[0] != encoded[1] && encoded[1] != encoded[2]);
            assert!(!encoded.iter().any(|key| is_slice(key)));
        }
    }

    #[test]
    fn a_slices_key_is_no_others() {
        let [primary, variant] = parents(b"\0CCCCCC\x01");
        for values in [&b"-"[..], b"=1234B\n", b"=br\n-"] {
            assert!(!is_slice(&[&variant[..], values].concat()));
        }
        assert!(!is_slice(&primary) && !is_slice(b"") && !is_slice(&[&primary[..], &[0, b'N', 1]].concat()));
        for parent in [primary, variant] {
            let slices = [0, 1, u32::MAX].map(|number| of(&parent, Dependent::Slice { sequence: 7, number }));
            assert!(slices.iter().all(|key| is_slice(key) && !is_encoded(key)));
            assert!(
                slices.iter().all(|key| key::primary(key) == &parent[..12] && object_of_slice(key) == parent)
            );
            assert!(slices[0] != slices[1] && slices[1] != slices[2]);
        }
    }

    #[test]
    fn a_variant_is_owned_where_its_url_is() {
        let primary = url("http://a.example/x").expect("a URL");
        let hash = Hash::seeded(&primary, 7);
        for generation in 0..1000 {
            let mut key = primary.clone();
            key.push(0);
            key.extend_from_slice(&u64::to_le_bytes(generation));
            for cores in [1, 2, 3, 7, 64] {
                assert_eq!(hash_of_dependent(hash, Hash::seeded(&key, 7)).owner(cores), hash.owner(cores));
            }
        }
    }
}
