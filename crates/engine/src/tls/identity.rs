//! A client's identity, taken from its verified certificate, as text that is valid in an HTTP field.
//!
//! *Bounds:* `TEXT_BYTES_MAX` for each text; a certificate that exceeds it gives no identity.

use std::fmt::Write as _;

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_parser::{
    asn1_rs::Any,
    extensions::GeneralName,
    prelude::{FromDer, X509Certificate, X509Name},
};

use super::certificates::address_of;

/// Maximum bytes of the subject, and of all alternative names together: about the size of a field that an
/// origin accepts.
const TEXT_BYTES_MAX: usize = 4096;

/// Identity of a certificate's holder. All texts are printable ASCII.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Subject in the form of RFC 4514: `CN=alice,O=Example`.
    pub subject: Box<str>,
    /// Alternative names, separated by commas, each with its type: `DNS:alice.example`, or with `email:`,
    /// `URI:` or `IP:`.
    pub names: Box<str>,
    /// SHA-256 of the certificate, in hexadecimal.
    pub fingerprint: Box<str>,
    /// Start of validity in seconds since the UNIX epoch.
    pub from_s: i64,
    /// End of validity in seconds since the UNIX epoch.
    pub until_s: i64,
}

impl Identity {
    /// Extracts the identity from a certificate; `None` if the certificate cannot be parsed, or its texts are
    /// too long.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let listed = parsed.subject_alternative_name().ok().flatten();
        let names = listed.map_or_else(String::new, |listed| names(&listed.value.general_names));
        let subject = subject(parsed.subject());
        let fits = subject.len() <= TEXT_BYTES_MAX && names.len() <= TEXT_BYTES_MAX;
        fits.then(|| Self {
            subject: subject.into(),
            names: names.into(),
            fingerprint: hexadecimal(&Sha256::digest(certificate)).into(),
            from_s: parsed.validity().not_before.timestamp(),
            until_s: parsed.validity().not_after.timestamp(),
        })
    }

    /// Returns whether the certificate is valid at a time in seconds since the UNIX epoch.
    #[must_use]
    pub fn is_valid_at(&self, unix_s: u64) -> bool {
        i64::try_from(unix_s).is_ok_and(|now_s| (self.from_s..=self.until_s).contains(&now_s))
    }
}

/// Formats a subject according to RFC 4514 §2, with the last part first.
fn subject(name: &X509Name<'_>) -> String {
    let mut out = String::new();
    for part in name.iter_rdn().collect::<Vec<_>>().into_iter().rev() {
        for (number, attribute) in part.iter().enumerate() {
            match (out.is_empty(), number) {
                (true, _) => {}
                (false, 0) => out.push(','),
                (false, _) => out.push('+'),
            }
            let known = KNOWN.iter().find(|(of, _)| of == &attribute.attr_type().to_id_string());
            match (known, attribute.as_str()) {
                (Some((_, name)), Ok(value)) => {
                    out.push_str(name);
                    out.push('=');
                    append_escaped(&mut out, value, true);
                }
                // RFC 4514 §2.4: an attribute without a short name, or with a value that is not a string, is
                // written in its encoded form.
                _ => {
                    out.push_str(&attribute.attr_type().to_id_string());
                    out.push_str("=#");
                    out.push_str(&hexadecimal(&encoded(attribute.attr_value())));
                }
            }
        }
    }
    out
}

/// Short names of attributes according to RFC 4514 §3, and OpenSSL's name for the email address.
const KNOWN: [(&str, &str); 10] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.6", "C"),
    ("2.5.4.9", "STREET"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Encodes a value with its tag and its length (X.690 §8.1).
fn encoded(value: &Any<'_>) -> Vec<u8> {
    let data = value.as_bytes();
    // Values in names have universal tags, all of which are below 31.
    let mut out = vec![u8::try_from(value.tag().0).unwrap_or(0)];
    match u8::try_from(data.len()) {
        Ok(short @ 0..=0x7f) => out.push(short),
        _ => {
            let length = data.len().to_be_bytes();
            let from = length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1);
            #[expect(clippy::cast_possible_truncation, reason = "eight bytes at most")]
            out.push(0x80 | (length.len() - from) as u8);
            out.extend_from_slice(&length[from..]);
        }
    }
    out.extend_from_slice(data);
    out
}

fn names(listed: &[GeneralName<'_>]) -> String {
    let mut out = String::new();
    for name in listed {
        let (kind, value) = match name {
            GeneralName::DNSName(name) => ("DNS", (*name).to_owned()),
            GeneralName::RFC822Name(name) => ("email", (*name).to_owned()),
            GeneralName::URI(name) => ("URI", (*name).to_owned()),
            GeneralName::IPAddress(bytes) => match address_of(bytes) {
                Some(address) => ("IP", address.to_string()),
                None => continue,
            },
            _ => continue,
        };
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(kind);
        out.push(':');
        append_escaped(&mut out, &value, false);
    }
    out
}

/// Appends a value, escaped so that it cannot end early (RFC 4514 §2.4): special characters get a backslash,
/// and bytes that are not printable ASCII are written in hexadecimal, so that no part of a certificate can
/// end a line.
fn append_escaped(out: &mut String, value: &str, of_subject: bool) {
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            b' ' if at > 0 && at < last => out.push(' '),
            b'#' if at > 0 || !of_subject => out.push('#'),
            b' ' | b'#' | b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' => {
                out.push('\\');
                out.push(char::from(byte));
            }
            0x21..=0x7e => out.push(char::from(byte)),
            // Writing to a string cannot fail.
            _ => _ = write!(out, "\\{byte:02X}"),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a string cannot fail.
        _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType, string::Ia5String};

    use super::*;

    fn of(parts: &[(DnType, &str)], names: Vec<SanType>) -> Option<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in parts {
            params.distinguished_name.push(kind.clone(), *value);
        }
        params.subject_alt_names = names;
        let key = KeyPair::generate().expect("a key");
        Identity::of(params.self_signed(&key).expect("a certificate").der())
    }

    #[test]
    fn a12_a_subject_is_written_as_rfc_4514_does() {
        let ia5 = |text: &str| Ia5String::try_from(text).expect("ASCII");
        let identity = of(
            &[
                (DnType::CountryName, "NO"),
                (DnType::OrganizationName, "Night, Train \"AS\""),
                (DnType::CustomDnType(vec![2, 5, 4, 5]), "77"),
                (DnType::CommonName, " #Al\u{ef}ce\r\nX-Admin: yes"),
            ],
            vec![
                SanType::DnsName(ia5("alice.example")),
                SanType::Rfc822Name(ia5("alice@example.org")),
                SanType::URI(ia5("spiffe://example.org/a,b")),
                SanType::IpAddress([192, 0, 2, 7].into()),
            ],
        )
        .expect("an identity");
        assert_eq!(
            &*identity.subject,
            "CN=\\ #Al\\C3\\AFce\\0D\\0AX-Admin: yes,2.5.4.5=#0c023737,O=Night\\, Train \\\"AS\\\",C=NO"
        );
        assert_eq!(
            &*identity.names,
            "DNS:alice.example,email:alice@example.org,URI:spiffe://example.org/a\\,b,IP:192.0.2.7"
        );
        assert!(identity.fingerprint.len() == 64 && identity.is_valid_at(1_800_000_000));
        assert!(!identity.is_valid_at(0) && !identity.is_valid_at(u64::MAX));
        assert_eq!(of(&[], Vec::new()).map(|identity| identity.subject), Some("".into()));
        assert_eq!(of(&[(DnType::CommonName, &"x".repeat(TEXT_BYTES_MAX))], Vec::new()), None);
        assert_eq!(Identity::of(&CertificateDer::from(b"no certificate".to_vec())), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a12_no_name_can_end_a_line(value in "\\PC{0,40}|[\\x00-\\xff]{0,20}") {
            let mut out = String::new();
            append_escaped(&mut out, &value, true);
            prop_assert!(out.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
            prop_assert!(!out.starts_with(' ') && (!out.ends_with(' ') || out.ends_with("\\ ")));
        }
    }
}
