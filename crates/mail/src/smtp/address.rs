//! What an address means here: which inbox it is.
//!
//! - The domain is everything after the last `@`, in lower case, without a dot at its end, as A-labels (RFC 5890).
//! - The local part is folded to lower case (RFC 5321, 2.4 lets the receiver do so), its quotes are removed, and what
//!   follows its first `+` is cut off: `Ann+shop@Example.org` is the inbox `ann@example.org`. Dots stay. Where it is
//!   said again it has quotes if without them it would mean something else: `"ann lee"@example.org`.
//! - A name without `@` is an inbox of the service's own domain.

use std::{borrow::Cow, fmt, str::FromStr};

use xxhash_rust::xxh3::xxh3_64;

use crate::mailbox::mailboxes::{Inbox, MailId};

/// RFC 5321, 4.5.3.1.1.
pub const LOCAL_BYTES_MAX: usize = 64;
/// RFC 5321, 4.5.3.1.2.
pub const DOMAIN_BYTES_MAX: usize = 255;

/// Why a text is no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// Nothing before the `@`.
    #[error("the part before the @ is missing")]
    LocalMissing,
    /// RFC 5321, 4.5.3.1.1.
    #[error("the part before the @ is longer than {LOCAL_BYTES_MAX} bytes")]
    LocalTooLong,
    /// A control character or a space.
    #[error("the part before the @ has a character that no address has")]
    LocalCharacter,
    /// Nothing after the `@`.
    #[error("the domain after the @ is missing")]
    DomainMissing,
    /// Too long, a forbidden character, an empty label.
    #[error("the domain after the @ is not a domain name")]
    DomainInvalid,
}

impl Inbox {
    /// The inbox of an address, or of a bare name at `default_domain` (which is in lower case already).
    ///
    /// # Errors
    /// What is wrong with the address.
    pub fn of(address: &str, default_domain: &str) -> Result<Self, AddressFault> {
        match split(address) {
            Some((local, domain)) => Ok(Self { local: fold_local(local)?, domain: fold_domain(domain)? }),
            None => Ok(Self { local: fold_local(address)?, domain: default_domain.into() }),
        }
    }
}

/// `local@domain`, which means this inbox wherever an address is read.
impl fmt::Display for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name(), self.domain)
    }
}

impl Inbox {
    /// The local part as an address has it: within quotes where it needs them.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        let special = |c: char| c.is_whitespace() || matches!(c, '"' | '\\' | '@');
        // A star at the end means all inboxes that begin so.
        if !self.local.contains(special) && !self.local.ends_with('*') {
            return Cow::Borrowed(&self.local);
        }
        let mut quoted = String::with_capacity(self.local.len() + 2);
        quoted.push('"');
        for character in self.local.chars() {
            if matches!(character, '"' | '\\') {
                quoted.push('\\');
            }
            quoted.push(character);
        }
        quoted.push('"');
        Cow::Owned(quoted)
    }
}

/// Local part and domain. No domain ends with a quote: what does is a local part alone, whatever is within its quotes.
pub(crate) fn split(address: &str) -> Option<(&str, &str)> {
    if address.ends_with('"') { None } else { address.rsplit_once('@') }
}

/// The local part by the rules above.
///
/// # Errors
/// What is wrong with it.
pub fn fold_local(local: &str) -> Result<Box<str>, AddressFault> {
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let mut folded = String::with_capacity(local.len());
    if quoted {
        // RFC 5321, 4.1.2: quoted-pairSMTP.
        let mut characters = local[1..local.len() - 1].chars();
        while let Some(character) = characters.next() {
            let character = if character == '\\' { characters.next().unwrap_or('\\') } else { character };
            folded.extend(character.to_lowercase());
        }
    } else {
        folded.extend(local.chars().flat_map(char::to_lowercase));
    }
    if let Some(plus) = folded.find('+').filter(|&at| at > 0) {
        folded.truncate(plus);
    }
    if folded.is_empty() {
        return Err(AddressFault::LocalMissing);
    }
    if folded.len() > LOCAL_BYTES_MAX {
        return Err(AddressFault::LocalTooLong);
    }
    if folded.chars().any(|c| c.is_control() || (c.is_whitespace() && !quoted) || c == '@' && !quoted) {
        return Err(AddressFault::LocalCharacter);
    }
    Ok(folded.into())
}

/// The domain by the rules above. An address literal (`[192.0.2.1]`) stays as it is.
///
/// # Errors
/// What is wrong with it.
pub fn fold_domain(domain: &str) -> Result<Box<str>, AddressFault> {
    let domain = domain.strip_suffix('.').unwrap_or(domain);
    if domain.is_empty() {
        return Err(AddressFault::DomainMissing);
    }
    if domain.len() > DOMAIN_BYTES_MAX {
        return Err(AddressFault::DomainInvalid);
    }
    if let Some(literal) = domain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let allowed = |b: u8| b.is_ascii_hexdigit() || b.is_ascii_alphabetic() || matches!(b, b'.' | b':');
        return if literal.bytes().all(allowed) {
            Ok(domain.to_ascii_lowercase().into())
        } else {
            Err(AddressFault::DomainInvalid)
        };
    }
    let ascii = if domain.is_ascii() {
        domain.to_ascii_lowercase()
    } else {
        idna::domain_to_ascii(domain).map_err(|_| AddressFault::DomainInvalid)?
    };
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
    };
    if ascii.len() <= DOMAIN_BYTES_MAX && ascii.split('.').all(label) {
        Ok(ascii.into())
    } else {
        Err(AddressFault::DomainInvalid)
    }
}

/// RFC 4648, section 6, in lower case.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// 64 bits of name and 16 of check, 5 a letter.
pub(crate) const NAME_LETTERS: usize = 16;

/// A slip of the pen in a name is told from a mail that is gone.
fn check_bits(id: u64) -> u16 {
    xxh3_64(&id.to_be_bytes()) as u16
}

impl MailId {
    /// 16 letters of base 32: the name and 16 bits that check it.
    pub(crate) fn letters(self) -> [u8; NAME_LETTERS] {
        // Halves of 40 bits: eight letters each.
        let high = self.0 >> 24;
        let low = (self.0 << 16 | u64::from(check_bits(self.0))) & ((1 << 40) - 1);
        std::array::from_fn(|at| {
            let (half, place) = if at < 8 { (high, 7 - at) } else { (low, 15 - at) };
            LETTERS[(half >> (5 * place)) as usize & 31]
        })
    }
}

/// Hands the letters to whoever takes text.
fn as_text<T>(id: MailId, take: impl FnOnce(&str) -> T) -> T {
    // The letters are ASCII.
    take(std::str::from_utf8(&id.letters()).unwrap_or_default())
}

/// 16 letters of base 32.
impl fmt::Display for MailId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        as_text(*self, |letters| f.write_str(letters))
    }
}

/// As on pages, so in JSON.
impl serde::Serialize for MailId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        as_text(*self, |letters| serializer.serialize_str(letters))
    }
}

/// Into a page without a formatter: a list says a name twice a line.
impl askama::FastWritable for MailId {
    fn write_into(&self, out: &mut dyn fmt::Write, _: &dyn askama::Values) -> askama::Result<()> {
        Ok(as_text(*self, |letters| out.write_str(letters))?)
    }
}

/// Letters and digits.
impl askama::filters::HtmlSafe for MailId {}

/// A text that names no mail and never did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a mail's name is 16 letters and digits (a-z, 2-7), and this is none")]
pub struct NotAMailId;

impl FromStr for MailId {
    type Err = NotAMailId;

    fn from_str(text: &str) -> Result<Self, NotAMailId> {
        if text.len() != NAME_LETTERS {
            return Err(NotAMailId);
        }
        let mut bits = 0u128;
        for byte in text.bytes() {
            let digit = match byte {
                b'a'..=b'z' => byte - b'a',
                b'2'..=b'7' => byte - b'2' + 26,
                _ => return Err(NotAMailId),
            };
            bits = (bits << 5) | u128::from(digit);
        }
        let id = (bits >> 16) as u64;
        if check_bits(id) == bits as u16 { Ok(Self(id)) } else { Err(NotAMailId) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mailbox::mailboxes::Scope;

    fn of(address: &str) -> Result<String, AddressFault> {
        Inbox::of(address, "night.test").map(|inbox| inbox.to_string())
    }

    #[test]
    fn an_address_means_one_inbox() {
        for (address, inbox) in [
            ("ann", "ann@night.test"),
            ("Ann+shop@Example.ORG", "ann@example.org"),
            ("Ann+shop+more", "ann@night.test"),
            ("+tag@example.org", "+tag@example.org"),
            ("a.n.n@example.org.", "a.n.n@example.org"),
            ("\"Ann Lee\"@example.org", "\"ann lee\"@example.org"),
            ("\"a\\\"b\"@example.org", "\"a\\\"b\"@example.org"),
            ("a\"b@example.org", "\"a\\\"b\"@example.org"),
            ("\"A@b\"@example.org", "\"a@b\"@example.org"),
            ("\"a@b\"", "\"a@b\"@night.test"),
            ("\"ann\"@example.org", "ann@example.org"),
            ("ann*@example.org", "\"ann*\"@example.org"),
            ("\"a\\\\\"@example.org", "\"a\\\\\"@example.org"),
            ("GRÜẞE@Bücher.example", "grüße@xn--bcher-kva.example"),
            ("x@[IPv6:2001:DB8::1]", "x@[ipv6:2001:db8::1]"),
        ] {
            assert_eq!(of(address).as_deref(), Ok(inbox), "{address}");
        }
    }

    #[test]
    fn what_is_no_address_is_told_why() {
        for (address, fault) in [
            ("", AddressFault::LocalMissing),
            ("@example.org", AddressFault::LocalMissing),
            ("a b@example.org", AddressFault::LocalCharacter),
            ("a\r\n@example.org", AddressFault::LocalCharacter),
            ("a@b@example.org", AddressFault::LocalCharacter),
            ("ann@", AddressFault::DomainMissing),
            ("ann@.", AddressFault::DomainMissing),
            ("ann@a..b", AddressFault::DomainInvalid),
            ("ann@a b", AddressFault::DomainInvalid),
            ("ann@<script>", AddressFault::DomainInvalid),
            ("ann@[<script>]", AddressFault::DomainInvalid),
        ] {
            assert_eq!(of(address), Err(fault), "{address}");
        }
        assert_eq!(of(&"a".repeat(65)), Err(AddressFault::LocalTooLong));
        assert_eq!(of(&format!("a@{}", "b".repeat(64))), Err(AddressFault::DomainInvalid));
    }

    proptest! {
        #[test]
        fn an_inbox_is_its_own_address(
            address in "(\\PC{0,40}|\"\\PC{0,40}\"|\"?[ab\"\\\\@*+ ]{0,8}\"?)(@\\PC{0,40}|@x.test)?",
        ) {
            if let Ok(inbox) = Inbox::of(&address, "night.test") {
                prop_assert_eq!(Inbox::of(&inbox.to_string(), "other.test"), Ok(inbox.clone()));
                prop_assert_eq!(Inbox::of(&inbox.name(), &inbox.domain), Ok(inbox.clone()));
                // As a path says it, too.
                let scope = Scope::of(&inbox.to_string(), "other.test");
                prop_assert_eq!(scope, Ok(Scope::Inbox(inbox)));
            }
        }

        #[test]
        fn a_name_reads_back(id: u64) {
            let name = MailId(id).to_string();
            prop_assert_eq!(name.len(), NAME_LETTERS);
            prop_assert_eq!(name.parse(), Ok(MailId(id)));
        }

        #[test]
        fn a_slip_in_a_name_is_seen(id: u64, at in 0usize..NAME_LETTERS, letter in 0usize..32) {
            let mut name = MailId(id).to_string().into_bytes();
            prop_assume!(name[at] != LETTERS[letter]);
            name[at] = LETTERS[letter];
            let read = String::from_utf8(name).unwrap().parse::<MailId>();
            // 16 check bits: one slip in 65,536 goes unseen, and then it is another name.
            prop_assert_ne!(read, Ok(MailId(id)));
        }
    }
}
