//! Record format of a mail in the log: summary, recipients, then the mail itself.
//!
//! ```text
//! version 1 | recipients 2 | meta bytes 4 | arrived ms 8 | envelope, from, subject: 2 each |
//! envelope | from | subject | recipients: id 8, inbox 2, domain 2, said 2, then local@domain and the RCPT address |
//! (version 2: where the body is: record 8, its bytes 4, body at 4, its bytes 4) |
//! (version 3: parts 4, then for each: record 8, its bytes 4) |
//! ── meta ends ── the mail, with our Received field in front; in version 2 its head, in version 3 its beginning ──
//! ```
//! A large mail is version 3: everything after its beginning is in separate records
//! ([`crate::store::core::PART`]), written before this one, in order. Numbers are little-endian. One record
//! has all recipients of its transaction, each with the mail's ID in that inbox (0 if the inbox was named
//! before); the first ID identifies the mail across all inboxes. The inbox is stored in addition to the
//! address, so that mails stay in their inboxes even if a later version maps addresses to inboxes
//! differently.

use smallvec::SmallVec;

use crate::{
    mailbox::mailboxes::{Inbox, MailId, Summary},
    store::shared_bodies::SharedBody,
};

/// The whole mail follows the metadata.
const VERSION: u8 = 1;
/// The mail's head follows the metadata; its body is in another record.
const VERSION_SHARED: u8 = 2;
/// The mail's beginning follows the metadata; the rest is in other records.
const VERSION_PARTS: u8 = 3;
/// Bytes of each part's entry in version 3.
const PART_BYTES: usize = 8 + 4;
/// Bytes of the reference to the body in version 2.
pub(crate) const SHARED_BODY_BYTES: usize = 8 + 3 * 4;
/// Bytes before the envelope's sender.
const FIXED_BYTES: usize = 1 + 2 + 4 + 8 + 3 * 2;
/// Bytes of a recipient before its texts.
const RECIPIENT_BYTES: usize = 8 + 3 * 2;

/// Longest address that is stored inline in its recipient; most addresses fit.
const SAID_BYTES_INLINE: usize = 64;

/// Metadata written before a mail.
#[derive(Debug)]
pub(crate) struct Meta<'a> {
    pub(crate) arrived_ms: u64,
    pub(crate) envelope_from: &'a str,
    pub(crate) from: &'a [u8],
    pub(crate) subject: &'a [u8],
}

/// A part of a large mail, stored as a separate record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) location: u64,
    /// Size of the part's payload.
    pub(crate) bytes: u32,
}

/// A recipient that is not written yet.
#[derive(Debug, Clone)]
pub(crate) struct Recipient {
    pub(crate) id: MailId,
    pub(crate) inbox: Inbox,
    /// The address as given in RCPT TO.
    pub(crate) said: SmallVec<[u8; SAID_BYTES_INLINE]>,
}

/// Encodes the length of a text; all texts here are far shorter than 64 KiB.
fn len16(text: &[u8]) -> [u8; 2] {
    u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes()
}

fn cut16(text: &[u8]) -> &[u8] {
    &text[..text.len().min(usize::from(u16::MAX))]
}

impl Meta<'_> {
    /// Writes the metadata to `out`, which is cleared first.
    pub(crate) fn encode(&self, recipients: &[Recipient], out: &mut Vec<u8>) {
        out.clear();
        out.push(VERSION);
        out.extend_from_slice(&u16::try_from(recipients.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.arrived_ms.to_le_bytes());
        for text in [self.envelope_from.as_bytes(), self.from, self.subject] {
            out.extend_from_slice(&len16(text));
        }
        for text in [self.envelope_from.as_bytes(), self.from, self.subject] {
            out.extend_from_slice(cut16(text));
        }
        for recipient in recipients.iter().take(usize::from(u16::MAX)) {
            let Recipient { id, inbox, said } = recipient;
            out.extend_from_slice(&id.0.to_le_bytes());
            for text in [inbox.local.as_bytes(), inbox.domain.as_bytes(), said] {
                out.extend_from_slice(&len16(text));
            }
            for text in [inbox.local.as_bytes(), inbox.domain.as_bytes(), said] {
                out.extend_from_slice(cut16(text));
            }
        }
        set_meta_bytes(out);
    }
}

/// Converts encoded metadata to version 2, for a mail whose body is in another record.
pub(crate) fn share(meta: &mut Vec<u8>, body: &SharedBody) {
    meta[0] = VERSION_SHARED;
    meta.extend_from_slice(&body.location.to_le_bytes());
    for number in [body.record_bytes, body.at, body.bytes] {
        meta.extend_from_slice(&number.to_le_bytes());
    }
    set_meta_bytes(meta);
}

/// Converts encoded metadata to version 3, for a mail whose rest is in these parts.
pub(crate) fn chain(meta: &mut Vec<u8>, parts: &[Part]) {
    meta[0] = VERSION_PARTS;
    meta.extend_from_slice(&u32::try_from(parts.len()).unwrap_or(u32::MAX).to_le_bytes());
    for Part { location, bytes } in parts {
        meta.extend_from_slice(&location.to_le_bytes());
        meta.extend_from_slice(&bytes.to_le_bytes());
    }
    set_meta_bytes(meta);
}

/// Builds a record that contains its body from a record with a [`SharedBody`].
pub(crate) fn join(payload: &[u8], meta_bytes: usize, body: &[u8]) -> Vec<u8> {
    let (meta, head) = payload.split_at(meta_bytes);
    let mut joined = Vec::with_capacity(payload.len() + body.len());
    joined.extend_from_slice(&meta[..meta_bytes - SHARED_BODY_BYTES]);
    joined[0] = VERSION;
    set_meta_bytes(&mut joined);
    joined.extend_from_slice(head);
    joined.extend_from_slice(body);
    joined
}

fn set_meta_bytes(meta: &mut [u8]) {
    let meta_bytes = u32::try_from(meta.len()).unwrap_or(u32::MAX);
    meta[3..7].copy_from_slice(&meta_bytes.to_le_bytes());
}

/// Decoded metadata of a record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StoredMeta<'a> {
    pub(crate) arrived_ms: u64,
    pub(crate) envelope_from: &'a str,
    pub(crate) from: &'a [u8],
    pub(crate) subject: &'a [u8],
    /// Recipients: ID, local part, domain, address as given.
    pub(crate) recipients: Vec<(MailId, &'a str, &'a str, &'a str)>,
    /// Offset of the mail in the record.
    pub(crate) meta_bytes: usize,
    /// Location of the body, if the record contains only the head.
    pub(crate) body: Option<SharedBody>,
    /// Parts of a large mail, in order.
    pub(crate) parts: Vec<Part>,
}

/// Result of decoding the beginning of a record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DecodeOutcome<'a> {
    Whole(StoredMeta<'a>),
    /// The metadata needs this many bytes of the record.
    NeedMore(usize),
    /// The bytes are not a record of a mail.
    Broken,
}

/// Decodes the beginning of a record.
pub(crate) fn decode(bytes: &[u8]) -> DecodeOutcome<'_> {
    if bytes.len() < FIXED_BYTES {
        return DecodeOutcome::NeedMore(FIXED_BYTES);
    }
    let meta_bytes = u32::from_le_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]) as usize;
    if !matches!(bytes[0], VERSION | VERSION_SHARED | VERSION_PARTS) || meta_bytes < FIXED_BYTES {
        return DecodeOutcome::Broken;
    }
    if bytes.len() < meta_bytes {
        return DecodeOutcome::NeedMore(meta_bytes);
    }
    stored(&bytes[..meta_bytes]).map_or(DecodeOutcome::Broken, DecodeOutcome::Whole)
}

/// Reader that consumes bytes from the front.
struct ByteReader<'a>(&'a [u8]);

impl<'a> ByteReader<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn text(&mut self, len: u16) -> Option<&'a str> {
        std::str::from_utf8(self.bytes(len.into())?).ok()
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }
}

fn stored(meta: &[u8]) -> Option<StoredMeta<'_>> {
    let mut front = ByteReader(&meta[1..]);
    let count = front.u16()?;
    front.bytes(4)?;
    let arrived_ms = front.u64()?;
    let (envelope, from, subject) = (front.u16()?, front.u16()?, front.u16()?);
    let envelope_from = front.text(envelope)?;
    let (from, subject) = (front.bytes(from.into())?, front.bytes(subject.into())?);
    // A forged count must not reserve memory for more recipients than the bytes can hold.
    let mut recipients = Vec::with_capacity(usize::from(count).min(front.0.len() / RECIPIENT_BYTES));
    for _ in 0..count {
        let id = MailId(front.u64()?);
        let (local, domain, said) = (front.u16()?, front.u16()?, front.u16()?);
        recipients.push((id, front.text(local)?, front.text(domain)?, front.text(said)?));
    }
    let body = if meta[0] == VERSION_SHARED { Some(shared_body(&mut front)?) } else { None };
    let parts = if meta[0] == VERSION_PARTS { parts(&mut front)? } else { Vec::new() };
    let whole = front.0.is_empty();
    let meta_bytes = meta.len();
    whole.then_some(StoredMeta {
        arrived_ms,
        envelope_from,
        from,
        subject,
        recipients,
        meta_bytes,
        body,
        parts,
    })
}

/// Decodes the parts of a large mail: at least one, none of them empty, with a total that fits 32 bits.
fn parts(front: &mut ByteReader<'_>) -> Option<Vec<Part>> {
    let count = front.u32()? as usize;
    if count == 0 || count != front.0.len() / PART_BYTES {
        return None;
    }
    let mut parts = Vec::with_capacity(count);
    let mut bytes_in_all = 0u32;
    for _ in 0..count {
        let part = Part { location: front.u64()?, bytes: front.u32()? };
        bytes_in_all = bytes_in_all.checked_add(part.bytes)?;
        if part.location == 0 || part.bytes == 0 {
            return None;
        }
        parts.push(part);
    }
    Some(parts)
}

/// Decodes the reference to a shared body, and checks that the body is within the record that the reference
/// names.
fn shared_body(front: &mut ByteReader<'_>) -> Option<SharedBody> {
    let body = SharedBody {
        location: front.u64()?,
        record_bytes: front.u32()?,
        at: front.u32()?,
        bytes: front.u32()?,
    };
    let end = body.at.checked_add(body.bytes)?;
    (body.location != 0 && end <= body.record_bytes).then_some(body)
}

impl StoredMeta<'_> {
    /// Returns the bytes of the mail that are in other records.
    pub(crate) fn elsewhere_bytes(&self) -> u32 {
        self.body.map_or(0, |body| body.bytes) + self.parts.iter().map(|part| part.bytes).sum::<u32>()
    }

    /// Returns all IDs of the mail, beginning with its ID in the first inbox.
    pub(crate) fn names(&self) -> impl Iterator<Item = MailId> {
        self.recipients.iter().map(|recipient| recipient.0).filter(|id| id.0 != 0)
    }

    /// Returns the summary of the mail under one of its IDs.
    pub(crate) fn summary(&self, id: MailId, record_bytes: u64, expires_ms: u64) -> Option<Summary> {
        let (_, local, domain, _) = self.recipients.iter().find(|recipient| recipient.0 == id)?;
        Some(Summary {
            id,
            letter: self.names().next()?,
            inboxes: u16::try_from(self.names().count()).unwrap_or(u16::MAX),
            inbox: Inbox { local: (*local).into(), domain: (*domain).into() },
            envelope_from: self.envelope_from.into(),
            from: self.from.into(),
            subject: self.subject.into(),
            arrived_ms: self.arrived_ms,
            expires_ms,
            size_bytes: record_bytes.saturating_sub(self.meta_bytes as u64)
                + u64::from(self.elsewhere_bytes()),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recipient(id: u64, local: &str) -> Recipient {
        let inbox = Inbox { local: local.into(), domain: "example.org".into() };
        Recipient {
            id: MailId(id),
            inbox,
            said: SmallVec::from_vec(format!("{local}+tag@Example.org").into()),
        }
    }

    #[test]
    fn a_record_reads_back_only_when_whole() {
        let meta = Meta { arrived_ms: 7, envelope_from: "a@b", from: b"A <a@b>", subject: b"\xffx" };
        let mut bytes = Vec::new();
        meta.encode(&[recipient(1, "ann"), recipient(2, "ben")], &mut bytes);
        for cut in 0..bytes.len() {
            assert!(matches!(decode(&bytes[..cut]), DecodeOutcome::NeedMore(needed) if needed > cut));
        }
        let meta_bytes = bytes.len();
        bytes.extend_from_slice(b"Subject: x\r\n");
        let DecodeOutcome::Whole(stored) = decode(&bytes) else { panic!("whole") };
        assert_eq!((stored.arrived_ms, stored.envelope_from, stored.subject), (7, "a@b", &b"\xffx"[..]));
        assert_eq!(stored.meta_bytes, meta_bytes);
        assert_eq!(stored.recipients[1], (MailId(2), "ben", "example.org", "ben+tag@Example.org"));
        let summary = stored.summary(MailId(2), bytes.len() as u64, 107).expect("named");
        assert_eq!((summary.size_bytes, summary.expires_ms), (12, 107));
        assert_eq!(stored.summary(MailId(3), 0, 0), None);
    }

    #[test]
    fn a_shared_body_is_named_and_joined_again() {
        let meta = Meta { arrived_ms: 7, envelope_from: "a@b", from: b"A", subject: b"x" };
        let (mut whole, mut shared) = (Vec::new(), Vec::new());
        for bytes in [&mut whole, &mut shared] {
            meta.encode(&[recipient(1, "ann")], bytes);
        }
        let body = SharedBody { location: 9, record_bytes: 900, at: 100, bytes: 800 };
        share(&mut shared, &body);
        let meta_bytes = shared.len();
        for cut in 0..meta_bytes {
            assert!(matches!(decode(&shared[..cut]), DecodeOutcome::NeedMore(needed) if needed > cut));
        }
        shared.extend_from_slice(b"head");
        let DecodeOutcome::Whole(stored) = decode(&shared) else { panic!("whole") };
        assert_eq!((stored.body, stored.meta_bytes), (Some(body), meta_bytes));
        let summary = stored.summary(MailId(1), shared.len() as u64, 0).expect("named");
        assert_eq!(summary.size_bytes, 4 + 800);
        whole.extend_from_slice(b"headbody");
        assert_eq!(join(&shared, meta_bytes, b"body"), whole);
        // A reference beyond the end of its record is invalid.
        shared[meta_bytes - 4..meta_bytes].copy_from_slice(&801u32.to_le_bytes());
        assert_eq!(decode(&shared), DecodeOutcome::Broken);
    }

    #[test]
    fn a_large_mail_lists_its_parts_in_order() {
        let meta = Meta { arrived_ms: 7, envelope_from: "a@b", from: b"A", subject: b"x" };
        let mut bytes = Vec::new();
        meta.encode(&[recipient(1, "ann")], &mut bytes);
        let parts = [Part { location: 9, bytes: 800 }, Part { location: 11, bytes: 1 }];
        let before = bytes.len();
        chain(&mut bytes, &parts);
        let meta_bytes = bytes.len();
        for cut in 0..meta_bytes {
            assert!(matches!(decode(&bytes[..cut]), DecodeOutcome::NeedMore(needed) if needed > cut));
        }
        bytes.extend_from_slice(b"begin");
        let DecodeOutcome::Whole(stored) = decode(&bytes) else { panic!("whole") };
        assert_eq!((&stored.parts[..], stored.meta_bytes), (&parts[..], meta_bytes));
        let summary = stored.summary(MailId(1), bytes.len() as u64, 0).expect("named");
        assert_eq!(summary.size_bytes, 5 + 801);
        // Invalid lists of parts: no parts, two wrong counts, an empty part, a part at location 0, and a
        // total that is too large.
        for (at, with) in [
            (before, 0u32),
            (before, 1),
            (before, 3),
            (meta_bytes - 4, 0),
            (meta_bytes - 12, 0),
            (meta_bytes - 4, u32::MAX),
        ] {
            let mut broken = bytes.clone();
            broken[at..at + 4].copy_from_slice(&with.to_le_bytes());
            assert_eq!(decode(&broken), DecodeOutcome::Broken, "{with} at {at}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), version in 0u8..4) {
            if let Some(first) = bytes.first_mut() {
                *first = version;
            }
            let _ = decode(&bytes);
        }
    }
}
