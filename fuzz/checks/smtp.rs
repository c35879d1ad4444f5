//! An SMTP session: a mail's bytes are decoded as by the slow twin, and no split of the input changes the
//! outcome.

use super::cut::Cut;
use super::smtp_twin::{Host, decode, twin};
use wire::smtp::dialog::Terms;

pub(crate) fn check(bytes: &[u8]) {
    let mut front = Cut(bytes);
    let (cut, lmtp, bytes) = (front.u16(), front.bool(), front.0);
    let (before, after) = bytes.split_at(usize::from(cut) % (bytes.len() + 1));
    assert_eq!(decode(&[before, after]), twin(bytes));
    let terms = Terms { lmtp, offers_tls: true, tls: false, mail_bytes_max: 1 << 20 };
    let (mut whole, mut parts) = (Host::new(terms), Host::new(terms));
    whole.show(bytes);
    parts.show(before);
    parts.show(after);
    // Clear text behind STARTTLS is discarded as far as it has been read, so a split matters there.
    if !whole.log.iter().any(|line| line == "tls") {
        assert_eq!(whole.log, parts.log);
    }
}
