//! The PROXY protocol's header, which names the client behind a proxy. Versions 1 and 2, parsed by `ppp`.

use std::net::{IpAddr, SocketAddr};

use ppp::{HeaderResult, PartialResult, v1, v2};

/// Maximum length of a header: version 1 has at most 107 bytes, and no proxy sends version 2 extensions that
/// exceed this.
pub const HEADER_BYTES_MAX: usize = 2048;

/// Result of parsing the first bytes of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// A complete header.
    Whole {
        /// Length of the header, from the first byte.
        bytes: usize,
        /// Address of the client; `None` if the proxy connects on its own behalf.
        peer: Option<SocketAddr>,
        /// True if the client used TLS, which was terminated at the proxy (version 2's extension
        /// `PP2_TYPE_SSL`).
        is_secured: bool,
    },
    /// The header is incomplete; all bytes so far belong to it.
    NeedMore,
    /// The bytes are not a valid header.
    Wrong,
}

/// Prefix of a version 1 header.
const V1_BEGIN: &[u8] = b"PROXY ";
/// Prefix of a version 2 header.
const V2_BEGIN: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Extension of version 2 that describes TLS between client and proxy; `PP2_CLIENT_SSL` is its flag bit for a
/// client that uses TLS.
const PP2_TYPE_SSL: u8 = 0x20;
const PP2_CLIENT_SSL: u8 = 0x01;

/// Parses the header at the front of `bytes`.
#[must_use]
pub fn header(bytes: &[u8]) -> Header {
    // The library rejects some incomplete version 1 lines and accepts any byte after the first CR as the
    // line's end, so the end is searched for here. Bytes with neither prefix are rejected at once: for some
    // of them the library would wait for more.
    let begins = |with: &[u8]| bytes.starts_with(with) || with.starts_with(bytes);
    let text = begins(V1_BEGIN);
    if !text && !begins(V2_BEGIN) {
        return Header::Wrong;
    }
    if text {
        match memchr::memchr(b'\r', bytes).map(|cr| bytes.get(cr + 1)) {
            Some(Some(b'\n')) => {}
            None | Some(None) if bytes.len() < HEADER_BYTES_MAX => return Header::NeedMore,
            _ => return Header::Wrong,
        }
        if !has_plain_ports(bytes) {
            return Header::Wrong;
        }
    }
    let result = HeaderResult::parse(bytes);
    if !text && result.is_incomplete() && bytes.len() < HEADER_BYTES_MAX {
        return Header::NeedMore;
    }
    match result {
        HeaderResult::V1(Ok(header)) => {
            let peer = match header.addresses {
                v1::Addresses::Tcp4(of) => Some((IpAddr::V4(of.source_address), of.source_port)),
                v1::Addresses::Tcp6(of) => Some((IpAddr::V6(of.source_address), of.source_port)),
                v1::Addresses::Unknown => None,
            };
            Header::Whole { bytes: header.header.len(), peer: peer.map(SocketAddr::from), is_secured: false }
        }
        // An overlong header is rejected even if it arrives in one piece.
        HeaderResult::V2(Ok(header)) if header.len() <= HEADER_BYTES_MAX => {
            let peer = match (header.command, header.addresses) {
                (v2::Command::Local, _) => None,
                (_, v2::Addresses::IPv4(of)) => Some((IpAddr::V4(of.source_address), of.source_port)),
                (_, v2::Addresses::IPv6(of)) => Some((IpAddr::V6(of.source_address), of.source_port)),
                _ => None,
            };
            // A damaged extension ends the list.
            let mut extensions = header.tlvs().map_while(Result::ok);
            let is_secured = extensions.any(|extension| {
                extension.kind == PP2_TYPE_SSL
                    && extension.value.first().is_some_and(|client| client & PP2_CLIENT_SSL != 0)
            });
            Header::Whole { bytes: header.len(), peer: peer.map(SocketAddr::from), is_secured }
        }
        _ => Header::Wrong,
    }
}

/// Returns whether the ports of a version 1 line are decimal digits and nothing else: the library also
/// accepts `+80`.
fn has_plain_ports(bytes: &[u8]) -> bool {
    let line = bytes.split(|&b| b == b'\r').next().unwrap_or_default();
    let is_number = |port: &[u8]| {
        let has_zeros = port.len() > 1 && port[0] == b'0';
        !port.is_empty() && !has_zeros && port.iter().all(u8::is_ascii_digit)
    };
    let mut words = line.split(|&b| b == b' ').skip(1);
    words.next() == Some(b"UNKNOWN") || words.skip(2).all(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &[u8] = b"PROXY TCP4 192.0.2.7 127.0.0.1 4000 25\r\n";

    fn v2() -> Vec<u8> {
        let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        bytes.extend_from_slice(&[192, 0, 2, 7, 127, 0, 0, 1, 0x0f, 0xa0, 0, 25]);
        bytes
    }

    #[test]
    fn both_proxy_versions_parse_at_every_split() {
        for bytes in [V1.to_vec(), v2()] {
            for split in 0..bytes.len() {
                assert_eq!(header(&bytes[..split]), Header::NeedMore, "{split}");
            }
            let peer = Some(SocketAddr::from(([192, 0, 2, 7], 4000)));
            let text = [&bytes[..], b"EHLO me\r\n"].concat();
            assert_eq!(header(&text), Header::Whole { bytes: bytes.len(), peer, is_secured: false });
        }
        let nobody = Header::Whole { bytes: 15, peer: None, is_secured: false };
        assert_eq!(header(b"PROXY UNKNOWN\r\n"), nobody);
    }

    #[test]
    fn the_tls_extension_marks_a_secured_peer() {
        for (extensions, said) in [
            (&b"\x20\0\x05\x01\0\0\0\0"[..], true),
            // The authority extension (the requested host name), and then TLS.
            (b"\x02\0\x01a\x20\0\x05\x03\0\0\0\0", true),
            (b"\x20\0\x05\x02\0\0\0\0", false),
            (b"\x20\0\0", false),
            (b"\x04\0\x01\x01", false),
            // The stated length exceeds the extension's bytes.
            (b"\x20\0\x09\x01", false),
        ] {
            let mut bytes = v2();
            bytes[15] += extensions.len() as u8;
            bytes.extend_from_slice(extensions);
            let peer = Some(SocketAddr::from(([192, 0, 2, 7], 4000)));
            assert_eq!(header(&bytes), Header::Whole { bytes: bytes.len(), peer, is_secured: said });
        }
    }

    #[test]
    fn ports_of_version_1_are_digits() {
        for (ports, is_right) in [
            ("1000 80", true),
            ("0 65535", true),
            ("+1000 80", false),
            ("1000 +80", false),
            ("-1 80", false),
            ("65536 80", false),
            ("1000 65536", false),
            ("01000 80", false),
            ("1000  80", false),
            (" 1000 80", false),
            ("1000 80 ", false),
            ("0x10 80", false),
        ] {
            let line = format!("PROXY TCP4 1.2.3.4 5.6.7.8 {ports}\r\n");
            assert_eq!(header(line.as_bytes()) != Header::Wrong, is_right, "{line}");
        }
    }

    #[test]
    fn what_is_no_header_is_wrong() {
        let bare_cr = b"PROXY UNKNOWN \rx more\r\n";
        let torn = b"PROXY TCP4\r\n";
        for text in [&b"EHLO me\r\n"[..], b"PROXY TCP4 x y 1 2\r\n", bare_cr, torn, &[b'P'; HEADER_BYTES_MAX]]
        {
            assert_eq!(header(text), Header::Wrong, "{:?}", text.escape_ascii().to_string());
        }
    }
}
