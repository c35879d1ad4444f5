//! Items that a queue file can hold: plain bytes of a fixed size.
//!
//! An item in the file *is* its bytes, in little-endian order, and is decoded when it is compared: a
//! reference into the mapping is a reference to an array of bytes, for which any content is valid. No user
//! type is reinterpreted, and on common processors decoding is one load.

use crate::indexed::Entry;
use crate::lazy::QueueEntry;
use core::cmp::Ordering;

/// An array of bytes: `[u8; N]`, and nothing else.
pub trait ByteArray: sealed::Array + Copy {
    /// Number of bytes.
    const BYTES: usize;
    /// The array of zeros.
    const ZERO: Self;
    /// Views the bytes as an array; `None` if there are not exactly [`ByteArray::BYTES`].
    fn view(bytes: &[u8]) -> Option<&Self>;
    /// Returns the bytes.
    fn bytes(&self) -> &[u8];
    /// Returns the bytes, mutably.
    fn bytes_mut(&mut self) -> &mut [u8];
}

mod sealed {
    pub trait Array {}
    impl<const N: usize> Array for [u8; N] {}
}

impl<const N: usize> ByteArray for [u8; N] {
    const BYTES: usize = N;
    const ZERO: Self = [0; N];
    #[inline]
    fn view(bytes: &[u8]) -> Option<&Self> {
        bytes.try_into().ok()
    }
    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }
    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

/// An item of a fixed size that a file can hold.
///
/// `from_le_bytes(to_le_bytes(x)) == x` must be true, and `from_le_bytes` must accept every array of bytes
/// without a panic. The order of `Ord` is part of the format: changing the order requires a new
/// [`Item::KIND`].
pub trait Item: Ord + Copy {
    /// Type of one item's bytes; their number must be a power of two, at most 4096.
    type Bytes: ByteArray;
    /// Name of the item type in the file's header, padded with zeros: a file of another kind is refused.
    const KIND: [u8; 8];
    /// Encodes the item for the file.
    fn to_le_bytes(self) -> Self::Bytes;
    /// Decodes an item.
    fn from_le_bytes(bytes: Self::Bytes) -> Self;
}

macro_rules! integers {
    ($($integer:ty, $kind:literal;)*) => {$(
        impl Item for $integer {
            type Bytes = [u8; size_of::<$integer>()];
            const KIND: [u8; 8] = *$kind;
            #[inline]
            fn to_le_bytes(self) -> Self::Bytes {
                <$integer>::to_le_bytes(self)
            }
            #[inline]
            fn from_le_bytes(bytes: Self::Bytes) -> Self {
                <$integer>::from_le_bytes(bytes)
            }
        }
    )*};
}
integers! {
    u32, b"u32\0\0\0\0\0";
    u64, b"u64\0\0\0\0\0";
    i64, b"i64\0\0\0\0\0";
    u128, b"u128\0\0\0\0";
}

/// A key and its value; ordered by the key, then by the value.
impl Item for (u64, u64) {
    type Bytes = [u8; 16];
    const KIND: [u8; 8] = *b"u64,u64\0";
    #[inline]
    fn to_le_bytes(self) -> [u8; 16] {
        // The first number is the low half, so that it comes first in the file.
        (u128::from(self.1) << 64 | u128::from(self.0)).to_le_bytes()
    }
    #[inline]
    fn from_le_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
        (both as u64, (both >> 64) as u64)
    }
}

/// A key that a queue with handles can keep in a file: four more bytes hold its slot's number.
pub trait Key: Item {
    /// Type of an entry's bytes. Their number is a power of two, and at least four more than that of the
    /// key's bytes.
    type Entry: ByteArray;
}

macro_rules! keys {
    ($($key:ty, $bytes:literal;)*) => {$(
        impl Key for $key {
            type Entry = [u8; $bytes];
        }
    )*};
}
keys! {
    u32, 8;
    u64, 16;
    i64, 16;
    u128, 32;
    (u64, u64), 32;
}

/// An entry is the key, then the slot's number in little-endian order, then zeros.
impl<K: Key> Item for Entry<K> {
    type Bytes = K::Entry;
    const KIND: [u8; 8] = K::KIND;
    #[inline]
    fn to_le_bytes(self) -> K::Entry {
        const { assert!(K::Entry::BYTES >= K::Bytes::BYTES + 4, "an entry has room for a key and a slot") };
        let mut bytes = K::Entry::ZERO;
        let (key, rest) = bytes.bytes_mut().split_at_mut(K::Bytes::BYTES);
        key.copy_from_slice(self.key.to_le_bytes().bytes());
        rest[..4].copy_from_slice(&self.slot.to_le_bytes());
        bytes
    }
    #[inline]
    fn from_le_bytes(bytes: K::Entry) -> Self {
        let (key, rest) = bytes.bytes().split_at(K::Bytes::BYTES);
        let (Some(key), Some(slot)) = (K::Bytes::view(key), rest.first_chunk()) else {
            unreachable!("the key's bytes were counted before")
        };
        Self { key: K::from_le_bytes(*key), slot: u32::from_le_bytes(*slot) }
    }
}

impl<K: Key> QueueEntry<K> for StoredItem<Entry<K>> {
    #[inline]
    fn new(key: K, slot: u32) -> Self {
        Self::new(Entry { key, slot })
    }
    #[inline]
    fn key(&self) -> K {
        self.item().key
    }
    #[inline]
    fn slot(&self) -> u32 {
        self.item().slot
    }
}

/// An item in its encoded form, as in the file.
#[repr(transparent)]
pub struct StoredItem<T: Item>(T::Bytes);

impl<T: Item> StoredItem<T> {
    /// Encodes an item for storage.
    #[inline]
    pub fn new(item: T) -> Self {
        Self(item.to_le_bytes())
    }
    /// Decodes the item.
    #[inline]
    #[must_use]
    pub fn item(&self) -> T {
        T::from_le_bytes(self.0)
    }
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
    #[inline]
    pub(crate) const fn from_array(bytes: T::Bytes) -> Self {
        Self(bytes)
    }
}

impl<T: Item> Clone for StoredItem<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Item> Copy for StoredItem<T> {}
impl<T: Item> PartialEq for StoredItem<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<T: Item> Eq for StoredItem<T> {}
impl<T: Item> PartialOrd for StoredItem<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T: Item> Ord for StoredItem<T> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.item().cmp(&other.item())
    }
}
impl<T: Item + core::fmt::Debug> core::fmt::Debug for StoredItem<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.item().fmt(f)
    }
}
