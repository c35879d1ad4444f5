//! Decoders for content: those of the libraries, each with a bound on its output and its memory.
//!
//! An origin's content is not trusted: a megabyte may expand to a gigabyte, and a stream may specify the
//! window that its decoder must allocate. A decoder stops at the bound, whatever follows.

use std::io::Read;

use crate::coding::Coding;

/// Maximum ratio of decoded to encoded bytes of stored content. Repetitive pages and data reach about a tenth
/// of this ratio; deflate cannot exceed 1032.
const TIMES_MAX: u64 = 256;
/// Decoded size up to which the ratio is not limited, because a few bytes may encode a page that repeats one
/// word.
const TIMES_COUNT_FROM_BYTES: u64 = 64 << 10;
/// Maximum window of Zstandard, in bits: the 8 MiB that a recipient must support and a sender must not exceed
/// (RFC 9659).
const ZSTD_WINDOW_BITS_MAX: u32 = 23;

/// Returns the maximum decoded bytes for content of this length; `bytes_max` is the maximum for any content.
pub(crate) fn decoded_bytes_max(coded_bytes: u64, bytes_max: u64) -> u64 {
    coded_bytes.saturating_mul(TIMES_MAX).max(TIMES_COUNT_FROM_BYTES).min(bytes_max)
}

/// Decodes content from this coding; returns `None` if the content is damaged, or longer than `bytes_max`
/// when decoded.
pub(crate) fn decoded(sent: Coding, content: &[u8], bytes_max: u64) -> Option<Vec<u8>> {
    match sent {
        Coding::AsSent | Coding::Decoded => None,
        Coding::Gzip => all(flate2::bufread::MultiGzDecoder::new(content), bytes_max),
        // RFC 7932 §9.1: these seven bits are invalid at the start of a stream. Encoders that extend the
        // format use them to announce windows of up to a gigabyte, which the library would allocate.
        Coding::Brotli if content.first().is_some_and(|first| first & 0x7f == 0x11) => None,
        Coding::Brotli => all(brotli::Decompressor::new(content, READ_BYTES), bytes_max),
        Coding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(content).ok()?;
            decoder.window_log_max(ZSTD_WINDOW_BITS_MAX).ok()?;
            all(decoder, bytes_max)
        }
    }
}

/// Input buffer of the Brotli decoder.
const READ_BYTES: usize = 4096;

fn all(decoder: impl Read, bytes_max: u64) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let read = decoder.take(bytes_max.saturating_add(1)).read_to_end(&mut content).ok()?;
    (read as u64 <= bytes_max).then_some(content)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::encoding::encoders::encode;

    fn coded(coding: Coding, content: &[u8]) -> Vec<u8> {
        encode(coding, content).expect("it is coded")
    }

    #[test]
    fn what_comes_out_is_bounded() {
        let zeros = vec![0; 3_000_000];
        for coding in Coding::MADE {
            let bomb = coded(coding, &zeros);
            assert!(bomb.len() < 10_000, "{coding:?}");
            assert_eq!(decoded(coding, &bomb, 2_999_999), None, "{coding:?}");
            assert!(decoded(coding, &bomb, 3_000_000).is_some_and(|content| content == zeros), "{coding:?}");
        }
        assert_eq!(decoded_bytes_max(0, 8 << 20), 64 << 10);
        assert_eq!(decoded_bytes_max(300, 8 << 20), 300 * 256);
        assert_eq!(decoded_bytes_max(8 << 20, 8 << 20), 8 << 20);
        assert_eq!(decoded_bytes_max(u64::MAX, 8 << 20), 8 << 20);
        assert_eq!(decoded_bytes_max(100, 1000), 1000);
    }

    #[test]
    fn what_is_damaged_or_cut_is_none() {
        let text = "All work and no play makes Jack a dull boy.\n".repeat(1000).into_bytes();
        for coding in Coding::MADE {
            let whole = coded(coding, &text);
            assert!(decoded(coding, &whole, 1 << 20).is_some_and(|content| content == text));
            for bytes in 0..whole.len() {
                assert_eq!(decoded(coding, &whole[..bytes], 1 << 20), None, "{coding:?} cut at {bytes}");
            }
            assert_eq!(decoded(coding, b"<html>", 1 << 20), None, "{coding:?}");
        }
        assert_eq!(decoded(Coding::AsSent, &text, 1 << 20), None);
        let mut damaged = coded(Coding::Gzip, &text);
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        assert_eq!(decoded(Coding::Gzip, &damaged, 1 << 20), None, "gzip has a checksum");
        // Two gzip members form one content (RFC 1952 §2.2), as do two Zstandard frames (RFC 8878 §3).
        for coding in [Coding::Gzip, Coding::Zstd] {
            let twice = coded(coding, b"one ").into_iter().chain(coded(coding, b"two")).collect::<Vec<_>>();
            assert_eq!(decoded(coding, &twice, 1 << 20).as_deref(), Some(&b"one two"[..]), "{coding:?}");
        }
    }

    #[test]
    fn windows_beyond_the_formats_are_refused() {
        assert_eq!(decoded(Coding::Brotli, &[0x11, 0x1e, 0x03], 1 << 20), None);
        // A frame with a window of 16 MiB (RFC 8878 §3.1.1.1.2: 2^(10 + 14)), and an empty last block.
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 14 << 3, 1, 0, 0];
        assert_eq!(decoded(Coding::Zstd, &frame, 1 << 20), None);
        frame[5] = 13 << 3;
        assert_eq!(decoded(Coding::Zstd, &frame, 1 << 20).as_deref(), Some(&b""[..]), "8 MiB are had");
    }

    proptest! {
        /// Any bytes from an origin are decoded or refused without a panic, and the output never exceeds the
        /// bound.
        #[test]
        fn any_bytes_are_content_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for coding in Coding::ALL {
                prop_assert!(decoded(coding, &bytes, 1000).is_none_or(|content| content.len() <= 1000));
            }
        }
    }
}
