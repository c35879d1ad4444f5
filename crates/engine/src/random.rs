//! Numbers that nobody can guess, for the seeds of tables that strangers put things into.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// 64 bits of the kernel's. A seed made of the clock can be tried out: what is then aimed at one place of a table makes
/// its chain long, or spends another's rate.
///
/// # Errors
/// The system has none to give.
pub fn number() -> io::Result<u64> {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(u64::from_le_bytes(bytes))
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
