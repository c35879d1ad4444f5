//! Bodies of any size that can be checked piece by piece, without keeping them.

/// Returns `length` bytes from `start` on of an endless content; each `seed` gives a different one.
pub fn content(seed: u64, start: u64, length: usize) -> Vec<u8> {
    (start..start + length as u64).map(|at| byte(seed, at)).collect()
}

/// Returns the first offset at which `bytes`, received from offset `start` on, differ from the content of
/// that seed.
pub fn differs(seed: u64, start: u64, bytes: &[u8]) -> Option<u64> {
    (start..).zip(bytes).find(|&(at, &got)| got != byte(seed, at)).map(|(at, _)| at)
}

/// Returns the byte at an offset. The value depends on every byte of offset and seed, and does not repeat at
/// any size of page, chunk or segment, so that a lost, doubled or foreign piece is noticed.
fn byte(seed: u64, at: u64) -> u8 {
    let mixed = (at ^ seed.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shifted_or_foreign_piece_shows() {
        let whole = content(1, 0, 10_000);
        assert_eq!(differs(1, 0, &whole), None);
        assert!(differs(2, 0, &whole).is_some());
        for shift in [1, 512, 4096, 8192] {
            assert!(differs(1, 0, &whole[shift..]).is_some(), "shifted by {shift}");
        }
        assert_eq!(differs(1, 4096, &whole[4096..]), None);
    }
}
