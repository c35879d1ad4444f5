//! Mail addresses, and the inbox that an address names.
//!
//! - The domain is everything after the last `@`, in lower case, without a dot at its end, as A-labels (RFC 5890).
//! - The local part is folded to lower case (RFC 5321, 2.4 lets the receiver do so), its quotes are
//!   removed, and everything
//!   from its first `+` on is cut off: `Ann+shop@Example.org` is the inbox `ann@example.org`. Dots stay. A printed local
//!   part is quoted if it would mean something else without quotes: `"ann lee"@example.org`.
//! - A name without `@` is an inbox of the service's own domain.

use std::{borrow::Cow, fmt, str::FromStr};

use xxhash_rust::xxh3::xxh3_64;

use crate::mailbox::mailboxes::{Inbox, MailId};

/// Longest local part (RFC 5321, 4.5.3.1.1).
pub const LOCAL_BYTES_MAX: usize = 64;
/// Longest domain (RFC 5321, 4.5.3.1.2).
pub const DOMAIN_BYTES_MAX: usize = 255;

/// Syntax error in an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressFault {
    /// No local part before the `@`.
    #[error("the part before the @ is missing")]
    LocalMissing,
    /// The local part is longer than RFC 5321, 4.5.3.1.1 allows.
    #[error("the part before the @ is longer than {LOCAL_BYTES_MAX} bytes")]
    LocalTooLong,
    /// The local part has a control character or a space.
    #[error("the part before the @ has an invalid character")]
    LocalCharacter,
    /// No domain after the `@`.
    #[error("the domain after the @ is missing")]
    DomainMissing,
    /// The domain is too long, or has a forbidden character or an empty label.
    #[error("the domain after the @ is not a valid domain name")]
    DomainInvalid,
}

impl Inbox {
    /// Returns the inbox of an address, or of a bare name at `default_domain` (which is in lower case
    /// already).
    ///
    /// # Errors
    /// Returns an [`AddressFault`] if the address has a syntax error.
    pub fn of(address: &str, default_domain: &str) -> Result<Self, AddressFault> {
        match split(address) {
            Some((local, domain)) => Ok(Self { local: fold_local(local)?, domain: fold_domain(domain)? }),
            None => Ok(Self { local: fold_local(address)?, domain: default_domain.into() }),
        }
    }
}

/// Writes `local@domain`, which parses to the same inbox.
impl fmt::Display for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name(), self.domain)
    }
}

impl Inbox {
    /// Returns the local part, quoted where an address needs quotes.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        let special = |c: char| c.is_whitespace() || matches!(c, '"' | '\\' | '@');
        // An unquoted `*` at the end means all inboxes with that prefix.
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

/// Splits an address into local part and domain. No domain ends with a quote: text that does is a quoted
/// local part alone, even if it contains an `@`.
pub(crate) fn split(address: &str) -> Option<(&str, &str)> {
    if address.ends_with('"') { None } else { address.rsplit_once('@') }
}

/// Normalizes a local part by the rules of this module.
///
/// # Errors
/// Returns an [`AddressFault`] if the local part has a syntax error.
pub fn fold_local(local: &str) -> Result<Box<str>, AddressFault> {
    let quoted = local.len() >= 2 && local.starts_with('"') && local.ends_with('"');
    let mut folded = String::with_capacity(local.len());
    if quoted {
        // Removes the backslash of each quoted pair (RFC 5321, 4.1.2).
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

/// Normalizes a domain by the rules of this module. An address literal (`[192.0.2.1]`) stays as it is.
///
/// # Errors
/// Returns an [`AddressFault`] if the domain has a syntax error.
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

/// Base32 alphabet of RFC 4648, section 6, in lower case.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Length of a mail ID in base32: 64 bits of ID and 16 check bits, 5 bits per letter.
pub(crate) const NAME_LETTERS: usize = 16;

/// Returns the check bits of an ID, which distinguish a mistyped ID from one whose mail no longer exists.
fn check_bits(id: u64) -> u16 {
    xxh3_64(&id.to_be_bytes()) as u16
}

impl MailId {
    /// Encodes the ID and its 16 check bits as 16 letters of base32.
    pub(crate) fn letters(self) -> [u8; NAME_LETTERS] {
        // Two halves of 40 bits, eight letters each.
        let high = self.0 >> 24;
        let low = (self.0 << 16 | u64::from(check_bits(self.0))) & ((1 << 40) - 1);
        std::array::from_fn(|at| {
            let (half, place) = if at < 8 { (high, 7 - at) } else { (low, 15 - at) };
            LETTERS[(half >> (5 * place)) as usize & 31]
        })
    }
}

/// Passes the ID's letters to `take` as text.
fn as_text<T>(id: MailId, take: impl FnOnce(&str) -> T) -> T {
    // The letters are ASCII, so the conversion cannot fail.
    take(std::str::from_utf8(&id.letters()).unwrap_or_default())
}

/// Writes 16 letters of base32.
impl fmt::Display for MailId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        as_text(*self, |letters| f.write_str(letters))
    }
}

/// Serializes the ID as its letters, as on pages.
impl serde::Serialize for MailId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        as_text(*self, |letters| serializer.serialize_str(letters))
    }
}

/// Writes the ID into a page without a formatter, as a list has each ID twice per line.
impl askama::FastWritable for MailId {
    fn write_into(&self, out: &mut dyn fmt::Write, _: &dyn askama::Values) -> askama::Result<()> {
        Ok(as_text(*self, |letters| out.write_str(letters))?)
    }
}

/// Letters and digits need no HTML escaping.
impl askama::filters::HtmlSafe for MailId {}

/// Text that cannot be the ID of any mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid mail id: it is 16 letters and digits (a-z, 2-7)")]
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
                // The path of an inbox page has the same form.
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
            // With 16 check bits one mistyped ID in 65,536 passes the check, and then it is a different ID.
            prop_assert_ne!(read, Ok(MailId(id)));
        }
    }
}
