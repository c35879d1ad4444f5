//! Table of the headers in a head: their offsets, stored in memory that the caller owns and reuses.

use super::known::{KNOWN_HEADERS, KnownHeader};

/// Maximum number of headers in one head.
pub const HEADERS_MAX: usize = 128;

/// Value of `Slot::known` for a header that is not known.
const UNKNOWN: u8 = u8::MAX;
const _: () = assert!(KNOWN_HEADERS < UNKNOWN as usize && HEADERS_MAX <= u8::MAX as usize);

/// A header: its name and value as ranges of the buffer that was parsed.
#[derive(Debug, Clone, Copy)]
struct Slot {
    name_at: u32,
    name_len: u32,
    value_at: u32,
    value_len: u32,
    /// A [`KnownHeader`] as a number, or [`UNKNOWN`].
    known: u8,
}

/// Offsets of up to [`HEADERS_MAX`] headers, and which of them are known: 2.6 KiB, one per loop, reused for each
/// head without clearing.
#[derive(Debug, Clone)]
pub struct HeaderSlots {
    /// Slots of the headers; only `..len` belong to the current head.
    slots: [Slot; HEADERS_MAX],
    len: usize,
    kinds: Kinds,
}

/// Index of the known headers that occur in a head.
#[derive(Debug, Clone, Copy)]
struct Kinds {
    /// The slot of the first header of each kind; meaningful only where `present` has the kind's bit.
    first: [u8; KNOWN_HEADERS],
    /// Set of the kinds that occur, one bit each.
    present: u64,
    /// Set of the kinds that occur more than once; a subset of `present`.
    repeated: u64,
}

impl Kinds {
    /// Records the kind of header `number`, and returns the value to store in its slot.
    #[inline]
    fn note(&mut self, number: usize, known: Option<KnownHeader>) -> u8 {
        let Some(known) = known else { return UNKNOWN };
        let bit = 1 << known as u8;
        if self.present & bit == 0 {
            self.first[known as usize] = number as u8;
        }
        self.repeated |= self.present & bit;
        self.present |= bit;
        known as u8
    }
}

/// The slots of one head, copied into an allocation of exactly the required size.
#[derive(Debug, Clone)]
pub(super) struct KeptSlots {
    slots: Box<[Slot]>,
    kinds: Kinds,
}

impl KeptSlots {
    /// Returns the headers as slices of `buf`, which must hold the same bytes as the buffer that was parsed.
    pub(super) fn headers<'b, 'h>(&'h self, buf: &'b [u8]) -> Headers<'b, 'h> {
        Headers { buf, slots: &self.slots, kinds: &self.kinds }
    }
}

impl Default for HeaderSlots {
    fn default() -> Self {
        Self::new()
    }
}

impl HeaderSlots {
    /// Creates empty slots.
    pub const fn new() -> Self {
        let empty = Slot { name_at: 0, name_len: 0, value_at: 0, value_len: 0, known: UNKNOWN };
        let kinds = Kinds { first: [0; KNOWN_HEADERS], present: 0, repeated: 0 };
        Self { slots: [empty; HEADERS_MAX], len: 0, kinds }
    }

    /// Stores the headers that were parsed from `buf`; each name and value must be a slice of it, and `buf`
    /// no longer than `u32::MAX`. Returns whether a CR is two bytes before each name: `httparse` has checked
    /// that an LF precedes each name, but not that the line before ends in CRLF.
    #[inline]
    pub(super) fn fill(&mut self, buf: &[u8], headers: &[httparse::Header<'_>]) -> bool {
        let base = buf.as_ptr() as usize;
        (self.kinds.present, self.kinds.repeated) = (0, 0);
        let mut crlf = true;
        for ((number, slot), header) in self.slots.iter_mut().enumerate().zip(headers) {
            let known = self.kinds.note(number, KnownHeader::of(header.name.as_bytes()));
            let name_at = header.name.as_ptr() as usize - base;
            crlf &= buf.get(name_at.wrapping_sub(2)) == Some(&b'\r');
            *slot = Slot {
                name_at: name_at as u32,
                name_len: header.name.len() as u32,
                value_at: (header.value.as_ptr() as usize - base) as u32,
                value_len: header.value.len() as u32,
                known,
            };
        }
        self.len = headers.len();
        crlf
    }

    /// Removes all headers.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        (self.kinds.present, self.kinds.repeated) = (0, 0);
    }

    /// Adds one header for code that writes a head itself and knows the offsets. Returns whether there was
    /// room.
    #[inline]
    pub(crate) fn push(&mut self, name_at: usize, name: &[u8], value_at: usize, value_len: usize) -> bool {
        let number = self.len;
        let known = self.kinds.note(number, KnownHeader::of(name));
        let Some(slot) = self.slots.get_mut(number) else { return false };
        *slot = Slot {
            name_at: name_at as u32,
            name_len: name.len() as u32,
            value_at: value_at as u32,
            value_len: value_len as u32,
            known,
        };
        self.len += 1;
        true
    }

    /// Adjusts all offsets after the text before the headers has changed from `was` to `is` bytes in length.
    pub(crate) fn shift(&mut self, was: usize, is: usize) {
        for slot in &mut self.slots[..self.len] {
            slot.name_at = slot.name_at - was as u32 + is as u32;
            slot.value_at = slot.value_at - was as u32 + is as u32;
        }
    }

    /// Returns the headers, whose bytes are in `buf`.
    #[inline]
    pub(crate) fn headers<'b, 'h>(&'h self, buf: &'b [u8]) -> Headers<'b, 'h> {
        Headers { buf, slots: &self.slots[..self.len], kinds: &self.kinds }
    }
}

/// The headers of a head, in the order received.
#[derive(Debug, Clone, Copy)]
pub struct Headers<'b, 'h> {
    buf: &'b [u8],
    slots: &'h [Slot],
    kinds: &'h Kinds,
}

impl<'b, 'h> Headers<'b, 'h> {
    /// Returns the bytes from which the head was parsed.
    pub(super) fn bytes(&self) -> &'b [u8] {
        self.buf
    }

    /// Copies the slots, for a head that outlives its buffer.
    pub(super) fn keep(&self) -> KeptSlots {
        KeptSlots { slots: self.slots.into(), kinds: *self.kinds }
    }

    /// Returns the number of headers.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Iterates over each header's name (as it was sent) and value (without surrounding white space).
    pub fn iter(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> + use<'b, 'h> {
        self.classified().map(|(_, name, value)| (name, value))
    }

    /// Iterates like [`iter`](Self::iter), and also yields the known kind of each header.
    pub fn classified(&self) -> impl Iterator<Item = (Option<KnownHeader>, &'b str, &'b [u8])> + use<'b, 'h> {
        let (buf, slots) = (self.buf, self.slots);
        slots.iter().map(move |slot| {
            let known = KnownHeader::ALL.get(slot.known as usize).copied();
            (known, name(buf, slot), value(buf, slot))
        })
    }

    /// Iterates over each header's name and value as bytes, which costs no check for UTF-8.
    pub fn raw(&self) -> impl Iterator<Item = (&'b [u8], &'b [u8])> + use<'b, 'h> {
        self.raw_classified().map(|(_, name, value)| (name, value))
    }

    /// Iterates like [`raw`](Self::raw), and also yields the known kind of each header.
    pub fn raw_classified(
        &self,
    ) -> impl Iterator<Item = (Option<KnownHeader>, &'b [u8], &'b [u8])> + use<'b, 'h> {
        let (buf, slots) = (self.buf, self.slots);
        slots.iter().map(move |slot| {
            let known = KnownHeader::ALL.get(slot.known as usize).copied();
            (known, name_bytes(buf, slot), value(buf, slot))
        })
    }

    /// Returns whether a known header occurs.
    #[inline]
    pub fn has(&self, known: KnownHeader) -> bool {
        self.kinds.present & (1 << known as u8) != 0
    }

    /// Returns whether a known header occurs more than once.
    #[inline]
    pub fn is_repeated(&self, known: KnownHeader) -> bool {
        self.kinds.repeated & (1 << known as u8) != 0
    }

    /// Returns the value of the first header of a known kind, found without a search.
    #[inline]
    pub fn known(&self, known: KnownHeader) -> Option<&'b [u8]> {
        if !self.has(known) {
            return None;
        }
        Some(value(self.buf, &self.slots[self.kinds.first[known as usize] as usize]))
    }

    /// Returns the values of all headers of a known kind.
    pub fn known_all(&self, known: KnownHeader) -> impl Iterator<Item = &'b [u8]> + use<'b, 'h> {
        let (buf, slots) = (self.buf, self.slots);
        let start = if self.has(known) { self.kinds.first[known as usize] as usize } else { slots.len() };
        let end = if self.is_repeated(known) { slots.len() } else { slots.len().min(start + 1) };
        slots[start..end].iter().filter(move |slot| slot.known == known as u8).map(|slot| value(buf, slot))
    }

    /// Returns the value of the first header of that name, ignoring case.
    pub fn header(&self, name: &str) -> Option<&'b [u8]> {
        self.headers(name).next()
    }

    /// Returns the values of all headers of that name, ignoring case.
    pub fn headers<'n>(&self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'b, 'h, 'n> {
        let (buf, slots) = (self.buf, self.slots);
        let known = KnownHeader::of(name.as_bytes()).map_or(UNKNOWN, |known| known as u8);
        let is_named = move |slot: &&Slot| {
            slot.known == known
                && (known != UNKNOWN || name_bytes(buf, slot).eq_ignore_ascii_case(name.as_bytes()))
        };
        slots.iter().filter(is_named).map(move |slot| value(buf, slot))
    }
}

#[inline]
fn value<'b>(buf: &'b [u8], slot: &Slot) -> &'b [u8] {
    &buf[slot.value_at as usize..][..slot.value_len as usize]
}

#[inline]
fn name_bytes<'b>(buf: &'b [u8], slot: &Slot) -> &'b [u8] {
    &buf[slot.name_at as usize..][..slot.name_len as usize]
}

#[inline]
fn name<'b>(buf: &'b [u8], slot: &Slot) -> &'b str {
    // The parser admits only token bytes, which are ASCII, so the fallback is never used.
    std::str::from_utf8(name_bytes(buf, slot)).unwrap_or_default()
}
