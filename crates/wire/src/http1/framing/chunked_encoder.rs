//! Encoder for a chunked body (RFC 9112 §7.1): it produces the bytes around the payload; the payload itself
//! is not copied.

/// The line before a chunk's payload: `size CRLF`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHeader {
    bytes: [u8; Self::BYTES_MAX],
    len: u8,
}

impl ChunkHeader {
    /// Maximum length: 16 hexadecimal digits and CRLF.
    pub const BYTES_MAX: usize = 18;

    /// Returns the bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len as usize]
    }
}

impl std::ops::Deref for ChunkHeader {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Encoder for a chunked body: for each piece the caller sends [`chunk_header`](Self::chunk_header), the
/// piece and [`CHUNK_END`](Self::CHUNK_END); at the end [`last_chunk`](Self::last_chunk).
#[derive(Debug, Clone, Copy)]
pub struct ChunkedEncoder;

impl ChunkedEncoder {
    /// Bytes after each chunk's payload.
    pub const CHUNK_END: &[u8] = b"\r\n";
    /// The last chunk of a body without trailers.
    pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

    /// Returns the line before a payload of `len` bytes.
    ///
    /// # Panics
    /// Panics if `len` is 0: that would end the body.
    pub fn chunk_header(len: u64) -> ChunkHeader {
        assert!(len > 0, "a chunk of no bytes ends the body");
        let digits = 16 - len.leading_zeros() as usize / 4;
        let mut bytes = [0; ChunkHeader::BYTES_MAX];
        for (at, byte) in bytes[..digits].iter_mut().enumerate() {
            *byte = b"0123456789abcdef"[(len >> (4 * (digits - 1 - at))) as usize & 15];
        }
        bytes[digits..digits + 2].copy_from_slice(b"\r\n");
        ChunkHeader { bytes, len: digits as u8 + 2 }
    }

    /// Returns the end of a body with trailers, as pieces to send in order. `trailers` are whole lines, each
    /// with its CRLF, as [`BodyDecoder::trailers`](super::BodyDecoder::trailers) returns them; empty for
    /// none.
    pub fn last_chunk(trailers: &[u8]) -> [&[u8]; 3] {
        debug_assert!(trailers.is_empty() || trailers.ends_with(b"\r\n"));
        [b"0\r\n", trailers, b"\r\n"]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9112 §7.1: a chunk-size is 1*HEXDIG.
    #[test]
    fn chunk_headers_are_hexadecimal_without_leading_zeros() {
        for len in (0..64).map(|bit| 1u64 << bit).flat_map(|n| [n.max(2) - 1, n, n | 1]).chain([u64::MAX]) {
            assert_eq!(ChunkedEncoder::chunk_header(len).as_bytes(), format!("{len:x}\r\n").as_bytes());
        }
    }

    #[test]
    #[should_panic(expected = "ends the body")]
    fn no_chunk_is_empty() {
        ChunkedEncoder::chunk_header(0);
    }
}
