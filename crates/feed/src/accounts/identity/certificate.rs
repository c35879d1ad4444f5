//! Names in a client's certificate (RFC 5280): the subject, and the subject alternative names.
//!
//! ```text
//!   Certificate { tbsCertificate { [0] version, serial, algorithm, issuer, validity, SUBJECT, key, …, [3] extensions } … }
//!                                                                                                └ SUBJECT ALT NAME
//! ```
//! The TLS handshake has verified the certificate, so an authority has signed these bytes. The parser is
//! careful all the same: a malformed field yields no name. It reads only the parts of DER on the way to the
//! names (X.690 §8: a tag, a length, a value).

/// Names that a certificate gives its holder.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// Subject alternative names in nats-server's order: mail addresses, host names, URIs.
    pub alternatives: Vec<String>,
    /// Attributes of the subject as (name, value) pairs, in the order in which [`subject_of`] sorts them.
    pub subject: Vec<(String, String)>,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const OCTETS: u8 = 0x04;
/// DER tag bytes of the certificate's version, `[0] EXPLICIT`, and of its extensions, `[3] EXPLICIT`.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
/// DER tag bytes of the GeneralName choices rfc822Name, dNSName and uniformResourceIdentifier (RFC 5280
/// §4.2.1.6).
const ALTERNATIVES: [u8; 3] = [0x81, 0x82, 0x86];
/// DER bytes of object identifier 2.5.29.17, subjectAltName (RFC 5280 §4.2.1.6).
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];

/// Reads the names from a certificate in DER; `None` if the bytes are not a certificate.
pub fn names_of(certificate: &[u8]) -> Option<Names> {
    let mut outer = Der(certificate).inside(SEQUENCE)?;
    let mut signed = outer.inside(SEQUENCE)?;
    if signed.peek() == Some(VERSION) {
        signed.next()?;
    }
    // Skips the certificate's serial number, algorithm, issuer and validity.
    (0..4).try_for_each(|_| signed.next().map(drop))?;
    let subject = attributes(signed.inside(SEQUENCE)?);
    let mut names = Names { alternatives: Vec::new(), subject };
    while let Some((tag, value)) = signed.next() {
        if tag == EXTENSIONS {
            let listed = Der(value).inside(SEQUENCE).and_then(alternatives);
            names.alternatives = listed.unwrap_or_default();
        }
    }
    Some(names)
}

/// Parses the attributes of a subject such as `CN=ann,OU=shop+OU=office` and sorts them, so that subjects can
/// be compared regardless of order. `None` if the text does not have this form.
pub fn subject_of(text: &str) -> Option<Vec<(String, String)>> {
    let mut all = Vec::new();
    let (mut word, mut is_escaped) = (String::new(), false);
    let mut end = |word: &mut String| {
        let (kind, value) = word.split_once('=')?;
        all.push((kind.trim().to_ascii_uppercase(), value.trim().to_owned()));
        word.clear();
        Some(())
    };
    for letter in text.chars() {
        match letter {
            _ if is_escaped => {
                word.push(letter);
                is_escaped = false;
            }
            '\\' => is_escaped = true,
            ',' | '+' => end(&mut word)?,
            _ => word.push(letter),
        }
    }
    end(&mut word)?;
    all.sort();
    Some(all)
}

fn attributes(mut subject: Der<'_>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    while let Some(mut together) = subject.inside(SET) {
        while let Some(mut attribute) = together.inside(SEQUENCE) {
            let (Some((OBJECT, kind)), Some((_, value))) = (attribute.next(), attribute.next()) else {
                break;
            };
            if let (Some(kind), Ok(value)) = (kind_of(kind), std::str::from_utf8(value)) {
                all.push((kind, value.trim().to_owned()));
            }
        }
    }
    all.sort();
    all
}

/// Returns the usual name of an attribute (RFC 4519, and those that OpenSSL adds), or its object identifier
/// as dotted numbers.
fn kind_of(object: &[u8]) -> Option<String> {
    let known: [(&[u8], &str); 12] = [
        (&[0x55, 4, 3], "CN"),
        (&[0x55, 4, 4], "SN"),
        (&[0x55, 4, 5], "SERIALNUMBER"),
        (&[0x55, 4, 6], "C"),
        (&[0x55, 4, 7], "L"),
        (&[0x55, 4, 8], "ST"),
        (&[0x55, 4, 9], "STREET"),
        (&[0x55, 4, 10], "O"),
        (&[0x55, 4, 11], "OU"),
        (&[0x55, 4, 17], "POSTALCODE"),
        // Object identifiers 0.9.2342.19200300.100.1.1 and .25 (RFC 4519).
        (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 1], "UID"),
        (&[0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 1, 25], "DC"),
    ];
    if let Some((_, name)) = known.iter().find(|(numbers, _)| *numbers == object) {
        return Some((*name).to_owned());
    }
    let (&first, rest) = object.split_first()?;
    let mut text = format!("{}.{}", first / 40, first % 40);
    let mut number: u64 = 0;
    for byte in rest {
        number = number.checked_shl(7).filter(|_| number < 1 << 56)? | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            text.push_str(&format!(".{number}"));
            number = 0;
        }
    }
    Some(text)
}

fn alternatives(mut extensions: Der<'_>) -> Option<Vec<String>> {
    while let Some(mut extension) = extensions.inside(SEQUENCE) {
        if extension.next()? != (OBJECT, SUBJECT_ALTERNATIVE_NAME) {
            continue;
        }
        let value = loop {
            // The optional `critical` flag may precede the value.
            if let (OCTETS, value) = extension.next()? {
                break value;
            }
        };
        let mut all = Vec::new();
        let mut names = Der(value).inside(SEQUENCE)?;
        while let Some((tag, name)) = names.next() {
            let kind = ALTERNATIVES.iter().position(|known| *known == tag);
            if let (Some(kind), Ok(name)) = (kind, std::str::from_utf8(name)) {
                all.push((kind, name.to_owned()));
            }
        }
        all.sort_by_key(|(kind, _)| *kind);
        return Some(all.into_iter().map(|(_, name)| name).collect());
    }
    None
}

/// Unread remainder of a sequence of DER values.
#[derive(Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// Reads the next value and its tag.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&short, mut rest) = rest.split_first()?;
        let mut bytes = usize::from(short);
        if short & 0x80 != 0 {
            let (long, behind) = rest.split_at_checked(usize::from(short & 0x7f))?;
            if long.is_empty() || long.len() > 4 {
                return None;
            }
            bytes = long.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
            rest = behind;
        }
        let (value, behind) = rest.split_at_checked(bytes)?;
        self.0 = behind;
        Some((tag, value))
    }

    /// Returns the contents of the next value if it has this tag, and moves past the value; otherwise `None`.
    fn inside(&mut self, tag: u8) -> Option<Der<'a>> {
        if self.peek() != Some(tag) {
            return None;
        }
        self.next().map(|(_, value)| Der(value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate() -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "ann");
        params.distinguished_name.push(DnType::OrganizationalUnitName, "shop, upstairs");
        params
            .distinguished_name
            .push(DnType::CustomDnType(vec![0, 9, 2342, 19_200_300, 100, 1, 25]), "example");
        let text = |text: &str| text.try_into().expect("plain letters");
        params.subject_alt_names = vec![
            SanType::URI(text("spiffe://example.org/ann")),
            SanType::DnsName(text("ann.example.org")),
            SanType::IpAddress([127, 0, 0, 1].into()),
            SanType::Rfc822Name(text("ann@example.org")),
        ];
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("a certificate").der().to_vec()
    }

    #[test]
    fn a_certificate_has_names_and_a_subject() {
        let names = names_of(&certificate()).expect("a certificate");
        assert_eq!(names.alternatives, ["ann@example.org", "ann.example.org", "spiffe://example.org/ann"]);
        for text in ["CN=ann,OU=shop\\, upstairs,DC=example", "dc=example, ou=shop\\, upstairs , cn=ann"] {
            assert_eq!(subject_of(text).as_ref(), Some(&names.subject), "{text}");
        }
        for other in
            ["CN=ann", "CN=ann,OU=shop\\, upstairs", "CN=Ann,OU=shop\\, upstairs,DC=example", "ann", ""]
        {
            assert_ne!(subject_of(other).as_ref(), Some(&names.subject), "{other}");
        }
    }

    #[test]
    fn what_is_cut_short_is_no_certificate() {
        let whole = certificate();
        for bytes in 0..whole.len() {
            assert_eq!(names_of(&whole[..bytes]), None, "{bytes}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 0usize..2000, byte: u8) {
            let mut bytes = certificate();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = names_of(&bytes);
        }
    }
}
