//! What nobody can guess: seeds of tables that strangers put things into, names, nonces.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Bytes of the kernel's. It waits only while the machine has not yet gathered any randomness.
///
/// # Errors
/// The system has none to give.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// 64 bits of them. A seed made of the clock can be tried out: what is then aimed at one place of a table makes its
/// chain long, or spends another's rate.
///
/// # Errors
/// As [`bytes`].
pub fn number() -> io::Result<u64> {
    bytes().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() {
        let numbers: std::collections::HashSet<u64> = (0..100).map(|_| number().expect("some")).collect();
        assert_eq!(numbers.len(), 100);
    }
}
