//! Takes a target's parameters off the front of the fuzzer's input. Missing bytes are zero, so that every
//! input, even the empty one, is valid; the first bytes of a seed written by hand follow from the calls here.
#![allow(dead_code, reason = "each target takes a part")]

/// The remaining bytes of the input.
pub(crate) struct Cut<'a>(pub(crate) &'a [u8]);

impl<'a> Cut<'a> {
    /// Takes `N` bytes; missing ones are zero.
    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        let (front, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut array = [0; N];
        array[..front.len()].copy_from_slice(front);
        array
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// Takes a byte and returns whether it is odd.
    pub(crate) fn bool(&mut self) -> bool {
        self.u8() & 1 == 1
    }

    /// Takes as many bytes as the byte before them says, or all that remain.
    pub(crate) fn counted(&mut self) -> &'a [u8] {
        let len = usize::from(self.u8()).min(self.0.len());
        let (front, rest) = self.0.split_at(len);
        self.0 = rest;
        front
    }
}
