//! Encoders for content: those of the libraries, each at a fixed level.
//!
//! At these levels one more millisecond would save few bytes. One low-priority thread makes each result once;
//! it is then kept and sent many times (`docs/decisions/035-codings.md` has the figures). Another level or
//! library produces other bytes, and needs another suffix for entity tags ([`Coding::tag_suffix`]).

use std::io::Write as _;

use brotli::enc::BrotliEncoderParams;
use flate2::{Compression, write::GzEncoder};

use crate::coding::Coding;

/// Compression level of zlib, whose maximum is 9.
const GZIP_LEVEL: u32 = 6;
/// Quality of Brotli, from 0 to 11; from 5 on, its search for matches is comparable to zlib's best level.
const BROTLI_QUALITY: i32 = 5;
/// Window of Brotli, in bits: 4 MiB, enough for all but the longest content.
const BROTLI_WINDOW_BITS: i32 = 22;
/// Compression level of Zstandard, whose maximum is 22. Its window at this level is 2 MiB, below the 8 MiB
/// that clients must support (RFC 9659).
const ZSTD_LEVEL: i32 = 6;

/// Minimum saving that makes an encoding worthwhile: a twentieth of the content, and at least 64 bytes, more
/// than the added fields cost.
const SHRINKS_BY_AT_LEAST: usize = 20;
const SHRINKS_BYTES_MIN: usize = 64;

/// Encodes content; returns `None` if it does not shrink by at least a twentieth and at least 64 bytes.
pub(crate) fn encoded(coding: Coding, content: &[u8]) -> Option<Vec<u8>> {
    let coded = encode(coding, content)?;
    let least = (content.len() / SHRINKS_BY_AT_LEAST).max(SHRINKS_BYTES_MIN);
    (coded.len() + least <= content.len()).then_some(coded)
}

/// Encodes content; returns `None` if the encoder fails, which cannot happen because it writes to memory
/// only.
pub(crate) fn encode(coding: Coding, content: &[u8]) -> Option<Vec<u8>> {
    match coding {
        Coding::AsSent | Coding::Decoded => None,
        Coding::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::new(GZIP_LEVEL));
            encoder.write_all(content).ok()?;
            encoder.finish().ok()
        }
        Coding::Brotli => {
            let params = BrotliEncoderParams {
                quality: BROTLI_QUALITY,
                lgwin: BROTLI_WINDOW_BITS,
                size_hint: content.len(),
                ..BrotliEncoderParams::default()
            };
            let (mut rest, mut coded) = (content, Vec::new());
            brotli::BrotliCompress(&mut rest, &mut coded, &params).ok()?;
            Some(coded)
        }
        Coding::Zstd => zstd::bulk::compress(content, ZSTD_LEVEL).ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use proptest::prelude::*;

    use super::*;

    fn decoded(coding: Coding, coded: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            Coding::AsSent | Coding::Decoded => out.extend_from_slice(coded),
            Coding::Gzip => {
                flate2::read::GzDecoder::new(coded).read_to_end(&mut out).expect("gzip");
            }
            Coding::Brotli => {
                brotli::Decompressor::new(coded, 4096).read_to_end(&mut out).expect("brotli");
            }
            Coding::Zstd => out = zstd::stream::decode_all(coded).expect("zstd"),
        }
        out
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    }

    #[test]
    fn only_shrinking_content_is_encoded() {
        let text = "All work and no play makes Jack a dull boy.\n".repeat(1000).into_bytes();
        for coding in Coding::MADE {
            let coded = encoded(coding, &text).expect("it shrinks");
            assert!(coded.len() < text.len() / 20, "{coding:?}: {}", coded.len());
            assert!(decoded(coding, &coded) == text);
            assert_eq!(encoded(coding, &text), Some(coded), "the same bytes each time");
            assert_eq!(encoded(coding, &noise(100_000)), None, "{coding:?}");
            assert_eq!(encoded(coding, b""), None);
            assert_eq!(encoded(coding, &[b'a'; 60]), None, "less than the fields cost");
        }
        assert_eq!(encoded(Coding::AsSent, &text), None);
    }

    proptest! {
        #[test]
        fn what_was_coded_comes_back(pieces in proptest::collection::vec((0usize..3, 0usize..30_000), 0..4)) {
            let content: Vec<u8> = pieces
                .iter()
                .flat_map(|(kind, bytes)| match kind {
                    0 => noise(*bytes),
                    1 => vec![0; *bytes],
                    _ => b"{\"key\": \"value\"}, ".iter().copied().cycle().take(*bytes).collect(),
                })
                .collect();
            for coding in Coding::MADE {
                let coded = encode(coding, &content).expect("it is coded");
                prop_assert!(decoded(coding, &coded) == content);
            }
        }
    }
}
