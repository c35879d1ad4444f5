//! The objects: each has a number that determines its size and its bytes.

/// Minimum size of an object in bytes.
pub const BYTES_MIN: u32 = 512;
/// Upper bound for the size in bytes of an object that is not large.
pub const BYTES_MAX: u32 = 16 << 10;
/// One in this many objects is large: it has [`LARGE_BYTES`].
const LARGE_EVERY: u64 = 256;
/// Size of a large object in bytes.
pub const LARGE_BYTES: u32 = 64 << 10;

/// Returns the size of object `id` in bytes. Sizes are log-uniform from 512 B to 16 KiB (half of them below
/// 2.9 KiB), except that one object in 256 has 64 KiB. The mean is 4.7 KiB.
#[must_use]
pub fn bytes(id: u64) -> u32 {
    let bits = mixed(id);
    if bits.is_multiple_of(LARGE_EVERY) {
        return LARGE_BYTES;
    }
    let unit = (bits >> 11) as f64 / (1_u64 << 53) as f64;
    let span = f64::from(BYTES_MAX) / f64::from(BYTES_MIN);
    // The value is at most `BYTES_MAX`, so the cast does not truncate.
    (f64::from(BYTES_MIN) * span.powf(unit)) as u32
}

/// Returns word `number` of the body of object `id`.
#[must_use]
pub const fn word(id: u64, number: u64) -> u64 {
    mixed(id ^ 0x5bd1_e995_0000_0000).wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Fills `into` with the beginning of the body of object `id`.
pub fn fill(id: u64, into: &mut [u8]) {
    let mut number = 0;
    let (chunks, rest) = into.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = word(id, number).to_le_bytes();
        number += 1;
    }
    rest.copy_from_slice(&word(id, number).to_le_bytes()[..rest.len()]);
}

/// Returns whether `body` is the whole body of object `id`.
#[must_use]
pub fn is_body(id: u64, body: &[u8]) -> bool {
    if body.len() != bytes(id) as usize {
        return false;
    }
    let (chunks, rest) = body.as_chunks::<8>();
    let last = word(id, chunks.len() as u64).to_le_bytes();
    chunks.iter().enumerate().all(|(number, chunk)| *chunk == word(id, number as u64).to_le_bytes())
        && *rest == last[..rest.len()]
}

/// Mixes the bits of a 64-bit integer: a bijection, the finaliser of SplitMix64.
const fn mixed(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_spread_as_is_said() {
        let all: Vec<u64> = (0..100_000).map(|id| u64::from(bytes(id))).collect();
        let mean = all.iter().sum::<u64>() / 100_000;
        assert!((4_500..5_000).contains(&mean), "{mean}");
        let small = all.iter().filter(|bytes| **bytes < 2_900).count();
        assert!((48_000..52_000).contains(&small), "{small}");
        assert!(all.iter().all(|bytes| (512..=65_536).contains(bytes)));
        assert_eq!((bytes(1), bytes(2), bytes(3)), (bytes(1), bytes(2), bytes(3)));
    }

    #[test]
    fn a_changed_body_byte_is_detected() {
        for id in [0, 1, 2, 77] {
            let mut body = vec![0; bytes(id) as usize];
            fill(id, &mut body);
            assert!(is_body(id, &body));
            assert!(!is_body(id + 1, &body));
            for at in [0, 7, 8, body.len() / 2, body.len() - 1] {
                body[at] ^= 1;
                assert!(!is_body(id, &body), "byte {at} of {id}");
                body[at] ^= 1;
            }
            assert!(!is_body(id, &body[1..]));
        }
    }
}
