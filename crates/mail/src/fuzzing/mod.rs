//! Fuzz checks of items that are private to this crate: log records, PROXY headers, words in paths and files,
//! and the first lines of a mail. Only tests, which replay the seeds, and the fuzzer are built with this
//! module.

#![allow(clippy::expect_used, reason = "a check may fail")]

use std::net::{IpAddr, SocketAddr};

use crate::{
    mailbox::mailboxes::Inbox,
    store::{
        record::{DecodeOutcome, Meta, Recipient, chain, decode, join, share},
        shared_bodies::SharedBody,
    },
};
use wire::proxy::{HEADER_BYTES_MAX, Header, header};

#[cfg(test)]
#[path = "../../../../fuzz/checks/seeds.rs"]
mod seeds;
mod words;

pub use words::{mail_head, mail_words};

/// Fuzzes log records. A decoded record encodes to the same bytes; a truncated record needs more bytes, but
/// no more than the record has; and joining the head and the shared body of a mail gives a whole record with
/// the same content.
pub fn mail_record(bytes: &[u8]) {
    let stored = match decode(bytes) {
        DecodeOutcome::Whole(stored) => stored,
        DecodeOutcome::NeedMore(needed) => {
            assert!(needed > bytes.len());
            return;
        }
        DecodeOutcome::Broken => return,
    };
    let meta_bytes = stored.meta_bytes;
    assert!(meta_bytes <= bytes.len());
    for cut in 0..meta_bytes {
        let part = decode(&bytes[..cut]);
        assert!(
            matches!(part, DecodeOutcome::NeedMore(needed) if needed > cut && needed <= meta_bytes),
            "{part:?}"
        );
    }
    assert_eq!(decode(&bytes[..meta_bytes]), DecodeOutcome::Whole(decoded(bytes)));

    let recipients: Vec<Recipient> = stored
        .recipients
        .iter()
        .map(|(id, local, domain, said)| Recipient {
            id: *id,
            inbox: Inbox { local: (*local).into(), domain: (*domain).into() },
            said: said.as_bytes().into(),
        })
        .collect();
    let meta = Meta {
        arrived_ms: stored.arrived_ms,
        envelope_from: stored.envelope_from,
        from: stored.from,
        subject: stored.subject,
    };
    let mut written = Vec::new();
    meta.encode(&recipients, &mut written);
    if let Some(body) = &stored.body {
        let SharedBody { record_bytes, at, bytes: body_bytes, .. } = *body;
        assert!(u64::from(at) + u64::from(body_bytes) <= u64::from(record_bytes), "{body:?}");
        share(&mut written, body);
        let joined = join(bytes, meta_bytes, b"body");
        let whole = decoded(&joined);
        assert_eq!((whole.body, &whole.recipients), (None, &stored.recipients));
        assert_eq!((whole.from, whole.subject), (stored.from, stored.subject));
        assert!(joined.ends_with(&[&bytes[meta_bytes..], b"body"].concat()));
    }
    if !stored.parts.is_empty() {
        assert!(stored.body.is_none(), "a mail in parts has no body elsewhere");
        chain(&mut written, &stored.parts);
    }
    assert_eq!(written, &bytes[..meta_bytes]);

    for (id, ..) in &stored.recipients {
        let summary = stored.summary(*id, bytes.len() as u64, u64::MAX).expect("it is one of its recipients");
        assert_eq!(summary.id, *id);
        let mail_bytes = (bytes.len() - meta_bytes) as u64 + u64::from(stored.elsewhere_bytes());
        assert_eq!((summary.size_bytes, &*summary.from), (mail_bytes, stored.from));
    }
}

fn decoded(bytes: &[u8]) -> crate::store::record::StoredMeta<'_> {
    match decode(bytes) {
        DecodeOutcome::Whole(stored) => stored,
        other => panic!("it was whole: {other:?}"),
    }
}

/// Fuzzes PROXY headers. A header ends at its declared length, each proper prefix needs more bytes, and its
/// peer survives encoding as a header of either version.
pub fn proxy_header(bytes: &[u8]) {
    let said = header(bytes);
    let certain = match said {
        Header::Whole { bytes: len, .. } => {
            assert!(len <= bytes.len() && len <= HEADER_BYTES_MAX, "{len} of {}", bytes.len());
            assert_eq!(header(&bytes[..len]), said, "what comes behind it is not looked at");
            len
        }
        Header::NeedMore => {
            assert!(bytes.len() < HEADER_BYTES_MAX);
            bytes.len()
        }
        Header::Wrong => 0,
    };
    for cut in 0..certain {
        assert_eq!(header(&bytes[..cut]), Header::NeedMore, "the first {cut} bytes");
    }
    let Header::Whole { bytes: len, peer, .. } = said else { return };
    if let Some(line) = bytes[..len].strip_prefix(b"PROXY ") {
        let line = std::str::from_utf8(line).expect("a text").strip_suffix("\r\n").expect("a line");
        let words: Vec<&str> = line.split(' ').collect();
        let twin = match words[..] {
            ["TCP4" | "TCP6", from, _, port, _] => {
                Some(SocketAddr::new(from.parse().expect("an address"), port.parse().expect("a port")))
            }
            _ => {
                assert_eq!(words[0], "UNKNOWN");
                None
            }
        };
        assert_eq!(peer, twin, "{line}");
    } else {
        assert_eq!(len, 16 + usize::from(u16::from_be_bytes([bytes[14], bytes[15]])));
        let address = &bytes[16..len];
        let twin = match (bytes[12] & 15, bytes[13] >> 4) {
            (1, 1) => Some((ip::<4>(address), &address[8..])),
            (1, 2) => Some((ip::<16>(address), &address[32..])),
            _ => None,
        };
        let twin = twin.map(|(from, port)| SocketAddr::new(from, u16::from_be_bytes([port[0], port[1]])));
        assert_eq!(peer, twin);
    }
    let Some(peer) = peer else { return };
    for written in [version_1(peer), version_2(peer)] {
        assert_eq!(
            header(&written),
            Header::Whole { bytes: written.len(), peer: Some(peer), is_secured: false }
        );
    }
}

fn ip<const N: usize>(bytes: &[u8]) -> IpAddr
where
    IpAddr: From<[u8; N]>,
{
    IpAddr::from(*bytes.first_chunk::<N>().expect("an address"))
}

fn version_1(peer: SocketAddr) -> Vec<u8> {
    let family = if peer.is_ipv4() { "TCP4" } else { "TCP6" };
    format!("PROXY {family} {0} {0} {1} 25\r\n", peer.ip(), peer.port()).into_bytes()
}

fn version_2(peer: SocketAddr) -> Vec<u8> {
    let (family, address) = match peer.ip() {
        IpAddr::V4(address) => (0x11, address.octets().to_vec()),
        IpAddr::V6(address) => (0x21, address.octets().to_vec()),
    };
    let addresses = [&address[..], &address, &peer.port().to_be_bytes(), &[0, 25]].concat();
    let head = b"\r\n\r\n\0\r\nQUIT\n";
    [&head[..], &[0x21, family, 0, u8::try_from(addresses.len()).expect("12 or 36")], &addresses].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_of_records() {
        seeds::replay("mail_record", mail_record);
    }

    #[test]
    fn the_seeds_of_proxies_headers() {
        seeds::replay("proxy_header", proxy_header);
    }

    #[test]
    fn the_seeds_of_words() {
        seeds::replay("mail_words", mail_words);
    }

    #[test]
    fn the_seeds_of_heads() {
        seeds::replay("mail_head", mail_head);
    }
}
