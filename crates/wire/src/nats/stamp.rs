//! A self-verifying payload: its producer, its sequence number, its intended send time, and a checksum over
//! all of it.
//!
//! ```text
//!  0        8          12     16         24             32 …
//!  │checksum│ producer │ size │ sequence │ intended, ns │ filler │      numbers little-endian; XXH3 over 8…size
//! ```
//! The functions are pure: the caller supplies the time. Nothing allocates.

use xxhash_rust::xxh3::xxh3_64;

/// Size of the smallest payload that has room for the stamp.
pub const SIZE_MIN: usize = 32;

/// Metadata that a producer writes into a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the producer, counted from 0.
    pub producer: u32,
    /// Sequence number of the message among its producer's messages, counted from 0.
    pub sequence: u64,
    /// Intended send time, in nanoseconds on the clock of the test run.
    pub intended_ns: u64,
}

/// Error for a payload that differs from what a producer sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The payload is shorter than its stamp, or its length differs from the recorded one.
    #[error("the payload has {found} bytes, not the stated number")]
    Size {
        /// Number of bytes that arrived.
        found: usize,
    },
    /// The bytes do not match the checksum.
    #[error("the checksum does not match")]
    Checksum,
}

/// Writes the stamp into a payload; its filler stays as it is.
///
/// # Panics
/// Panics if the payload is shorter than [`SIZE_MIN`] or longer than 4 GiB.
pub fn stamp(payload: &mut [u8], stamp: Stamp) {
    let size = u32::try_from(payload.len()).unwrap_or(0);
    assert!(payload.len() >= SIZE_MIN && size > 0, "a payload has 32 bytes to 4 GiB");
    payload[8..12].copy_from_slice(&stamp.producer.to_le_bytes());
    payload[12..16].copy_from_slice(&size.to_le_bytes());
    payload[16..24].copy_from_slice(&stamp.sequence.to_le_bytes());
    payload[24..32].copy_from_slice(&stamp.intended_ns.to_le_bytes());
    let checksum = xxh3_64(&payload[8..]);
    payload[..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Reads and verifies a stamp.
///
/// # Errors
/// Returns [`Damage::Size`] if the length is wrong, [`Damage::Checksum`] if the bytes do not match the
/// checksum.
pub fn verify(payload: &[u8]) -> Result<Stamp, Damage> {
    let wrong_size = Damage::Size { found: payload.len() };
    let four = |at: usize| {
        payload
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u32::from_le_bytes)
            .ok_or(wrong_size)
    };
    let eight = |at: usize| {
        payload
            .get(at..at + 8)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u64::from_le_bytes)
            .ok_or(wrong_size)
    };
    let (checksum, producer, size) = (eight(0)?, four(8)?, four(12)?);
    let stamp = Stamp { producer, sequence: eight(16)?, intended_ns: eight(24)? };
    if usize::try_from(size) != Ok(payload.len()) {
        return Err(wrong_size);
    }
    if xxh3_64(&payload[8..]) != checksum {
        return Err(Damage::Checksum);
    }
    Ok(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { producer: 7, sequence: 1 << 40, intended_ns: 3 };

    #[test]
    fn what_was_stamped_is_read() {
        for size in [SIZE_MIN, 33, 100, 5000] {
            let mut payload = vec![b'x'; size];
            stamp(&mut payload, STAMP);
            assert_eq!(verify(&payload), Ok(STAMP), "{size}");
        }
    }

    #[test]
    fn a_changed_bit_or_length_is_detected() {
        let mut payload = vec![b'x'; 100];
        stamp(&mut payload, STAMP);
        for bit in 0..800 {
            let mut damaged = payload.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(verify(&damaged).is_err(), "bit {bit}");
        }
        for size in 0..100 {
            assert_eq!(verify(&payload[..size]), Err(Damage::Size { found: size }), "{size}");
        }
        payload.push(b'x');
        assert_eq!(verify(&payload), Err(Damage::Size { found: 101 }));
    }
}
