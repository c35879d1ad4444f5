//! An address: its parts have the lengths of RFC 5321, are in lower case whatever was typed, and read back as
//! the same address; a path that SMTP accepts between `<` and `>` is reported unchanged. A mail's id reads
//! back as it is written.

use mail::{
    address::{DOMAIN_BYTES_MAX, LOCAL_BYTES_MAX},
    mailboxes::{Inbox, MailId},
};
use wire::smtp::command::{Command, parse};

pub(crate) fn check(bytes: &[u8]) {
    if let Some(id) = bytes.first_chunk() {
        let name = MailId(u64::from_le_bytes(*id));
        assert_eq!(name.to_string().parse(), Ok(name));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let inbox = Inbox::of(text, "night.test");
    // Case makes no difference, not even in refused addresses.
    assert_eq!(Inbox::of(&text.to_ascii_uppercase(), "night.test"), inbox);
    assert_eq!(Inbox::of(&text.to_ascii_lowercase(), "night.test"), inbox);
    if let Ok(inbox) = inbox {
        assert!((1..=LOCAL_BYTES_MAX).contains(&inbox.local.len()), "{inbox:?}");
        assert!((1..=DOMAIN_BYTES_MAX).contains(&inbox.domain.len()), "{inbox:?}");
        assert!(!inbox.local.contains(char::is_control) && inbox.domain.is_ascii(), "{inbox:?}");
        if !text.contains('@') {
            assert_eq!(&*inbox.domain, "night.test");
        }
        // An inbox reads back from its text only if its local part needs no quotes.
        if !inbox.local.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '@' | '\\')) {
            assert_eq!(Inbox::of(&inbox.to_string(), "other.test"), Ok(inbox));
        }
    }
    if let Ok(name) = text.parse::<MailId>() {
        assert_eq!(name.to_string(), text);
    }

    // The address as an SMTP path, alone and followed by parameters.
    for parameters in ["", " SIZE=7 BODY=8BITMIME"] {
        let line = format!("MAIL FROM:<{text}>{parameters}\r\n");
        if let Ok(Command::Mail(from)) = parse(&line) {
            assert!(from.address.len() <= 256, "{from:?}");
            if !text.contains(['>', '"']) && !text.starts_with('@') {
                assert_eq!(
                    (from.address, from.size_bytes),
                    (text, if parameters.is_empty() { 0 } else { 7 })
                );
            }
        }
    }
    if let Ok(Command::Rcpt(address)) = parse(&format!("RCPT TO:<{text}>\r\n")) {
        assert!(!address.is_empty() && text.contains(address), "{address:?} of {text:?}");
        assert_eq!(parse(&format!("RCPT TO:<{address}>\r\n")), Ok(Command::Rcpt(address)));
    }
}
