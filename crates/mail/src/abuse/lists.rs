//! Ban lists: a text file of banned addresses, senders and subject words, one entry per line.
//!
//! ```text
//! # comment
//! address 192.0.2.7
//! address 2001:db8::/32
//! sender  spammer@example.com
//! sender  @example.net
//! word    casino
//! ```

use std::net::IpAddr;

/// The banned addresses, senders and subject words of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lists {
    addresses: Vec<(IpAddr, u8)>,
    /// Senders in lower case; an entry that begins with @ bans a whole domain.
    senders: Vec<Box<str>>,
    /// Subject words in lower case.
    words: Vec<Box<str>>,
}

/// Syntax error in the list file, with its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line}: {what}; a line is: address IP[/BITS], sender ADDRESS or @DOMAIN, word WORD, or # and a comment"
)]
pub struct ListFault {
    /// Line number, counted from 1.
    pub line: usize,
    /// Description of the error.
    pub what: String,
}

impl Lists {
    /// Parses the text of the list file.
    ///
    /// # Errors
    /// Returns a [`ListFault`] for the first malformed line.
    pub fn parse(text: &str) -> Result<Self, ListFault> {
        let mut lists = Self::default();
        for (number, line) in text.lines().enumerate() {
            let fault = |what: String| ListFault { line: number + 1, what };
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (kind, value) = line
                .split_once(char::is_whitespace)
                .ok_or_else(|| fault(format!("{line:?} stands alone")))?;
            let value = value.trim().to_lowercase();
            match kind {
                "address" => lists.addresses.push(network(&value).map_err(fault)?),
                "sender" if value.contains('@') => lists.senders.push(value.into()),
                "sender" => return Err(fault(format!("{value:?} has no @"))),
                "word" => lists.words.push(value.into()),
                other => return Err(fault(format!("unknown kind of ban {other:?}"))),
            }
        }
        Ok(lists)
    }

    /// Returns whether an address is banned.
    #[must_use]
    pub fn bans_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|(network, bits)| match (network.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                agree(u128::from(network.to_bits()) << 96, u128::from(address.to_bits()) << 96, *bits)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => agree(network.to_bits(), address.to_bits(), *bits),
            _ => false,
        })
    }

    /// Returns whether a sender, or its domain, is banned.
    #[must_use]
    pub fn bans_sender(&self, sender: &str) -> bool {
        if self.senders.is_empty() {
            return false;
        }
        let sender = sender.to_lowercase();
        self.senders.iter().any(|banned| {
            if banned.starts_with('@') { sender.ends_with(&**banned) } else { sender == **banned }
        })
    }

    /// Returns whether a raw subject field contains a banned word.
    #[must_use]
    pub fn bans_subject(&self, subject: &[u8]) -> bool {
        if self.words.is_empty() {
            return false;
        }
        let subject = String::from_utf8_lossy(subject).to_lowercase();
        self.words
            .iter()
            .any(|word| subject.split(|c: char| !c.is_alphanumeric()).any(|part| part == &**word))
    }

    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.addresses.len() + self.senders.len() + self.words.len()
    }

    /// Returns whether nothing is banned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn agree(a: u128, b: u128, bits: u8) -> bool {
    bits == 0 || (a ^ b) >> (128 - u32::from(bits)) == 0
}

fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let address: IpAddr = address.parse().map_err(|_| format!("invalid IP address {address:?}"))?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    match bits {
        None => Ok((address, most)),
        Some(bits) => match bits.parse() {
            Ok(bits) if bits <= most => Ok((address, bits)),
            _ => Err(format!("invalid prefix length {bits:?}: at most {most}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_banned_and_nothing_else() {
        let text = "# bad\naddress 192.0.2.0/25 # half\naddress 2001:db8::/32\nsender A@b.c\nsender @evil.test\nword Casino\n\n";
        let lists = Lists::parse(text).expect("it is right");
        assert_eq!(lists.len(), 5);
        for (address, banned) in [
            ("192.0.2.127", true),
            ("192.0.2.128", false),
            ("::ffff:192.0.2.1", true),
            ("2001:db8:1::1", true),
            ("::1", false),
        ] {
            assert_eq!(lists.bans_address(address.parse().expect("an address")), banned, "{address}");
        }
        for (sender, banned) in [
            ("a@B.C", true),
            ("b@b.c", false),
            ("x@evil.test", true),
            ("x@not-evil.test", false),
            ("", false),
        ] {
            assert_eq!(lists.bans_sender(sender), banned, "{sender}");
        }
        assert!(lists.bans_subject(b"the CASINO, today"));
        assert!(!lists.bans_subject(b"casinos"));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, begin) in [
            ("address x", "line 1: invalid IP address \"x\""),
            ("\naddress 1.2.3.4/33", "line 2: invalid prefix length \"33\""),
            ("sender x", "line 1: \"x\" has no @"),
            ("word", "line 1: \"word\" stands alone"),
            ("ban x", "line 1: unknown kind of ban \"ban\""),
        ] {
            let fault = Lists::parse(text).expect_err("it is wrong").to_string();
            assert!(fault.starts_with(begin), "{fault}");
        }
    }
}
