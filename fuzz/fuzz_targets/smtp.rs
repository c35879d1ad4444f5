//! An SMTP session: the bytes of a mail agree with the slow twin, and no split of anything changes what happens.
#![no_main]

#[path = "../../crates/wire/tests/it/smtp_twin/mod.rs"]
mod smtp_twin;

use libfuzzer_sys::fuzz_target;
use smtp_twin::{Host, decode, twin};
use wire::smtp::dialog::Terms;

fuzz_target!(|input: (u16, bool, &[u8])| {
    let (cut, lmtp, bytes) = input;
    let (before, after) = bytes.split_at(usize::from(cut) % (bytes.len() + 1));
    assert_eq!(decode(&[before, after]), twin(bytes));
    let terms = Terms { lmtp, offers_tls: true, tls: false, mail_bytes_max: 1 << 20 };
    let (mut whole, mut parts) = (Host::new(terms), Host::new(terms));
    whole.show(bytes);
    parts.show(before);
    parts.show(after);
    // What is in the clear behind STARTTLS is thrown away, as far as it has been read: there a split matters.
    if !whole.log.iter().any(|line| line == "tls") {
        assert_eq!(whole.log, parts.log);
    }
});
