//! Unpredictable random numbers: seeds of hash tables with untrusted keys, random names, nonces.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns random bytes from the kernel. Waits only while the machine has not gathered enough entropy since
/// boot.
///
/// # Errors
/// Returns the system's error if it cannot provide random bytes.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

/// Returns 64 random bits. A seed taken from the clock could be guessed; an attacker could then choose keys
/// that make a chain of a hash table long, or use up another client's rate limit.
///
/// # Errors
/// Returns the same error as [`bytes`].
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
