//! Which certificates a site's clients are asked for, and what its origin is told of them.

use std::path::PathBuf;

use wire::http1::{fields::is_token, known::KnownHeader};

/// The field in which an origin is told of its client's certificate where nothing else is said.
const FIELD: &str = "X-Client-Cert";
/// Behind that name: the field with the other names of the client.
pub(crate) const NAMES: &str = "-Names";
/// Behind it: the field with the certificate's fingerprint.
pub(crate) const FINGERPRINT: &str = "-Fingerprint";

/// Certificates of clients.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientCertificates {
    /// A file with the certificates of those who sign them (PEM).
    pub authorities: PathBuf,
    /// Whoever shows none is refused.
    pub is_required: bool,
    /// The field in which the origin is told the subject; the names of two more begin with this one.
    pub field: Box<str>,
}

impl ClientCertificates {
    /// Required, signed by these.
    #[must_use]
    pub fn required(authorities: PathBuf) -> Self {
        Self { authorities, is_required: true, field: FIELD.into() }
    }

    /// The names of the fields that no client can send.
    pub fn fields(&self) -> [Box<str>; 3] {
        let Self { field, .. } = self;
        [field.clone(), format!("{field}{NAMES}").into(), format!("{field}{FINGERPRINT}").into()]
    }
}

/// A text names no field in which an origin could be told of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no field of your own, such as X-Client-Cert; it is not one that has a meaning already")]
pub struct InvalidField(String);

/// The name of such a field.
///
/// # Errors
/// It is none, or has a meaning of its own.
pub fn client_field(text: &str) -> Result<Box<str>, InvalidField> {
    let hyphened = text.replace('_', "-");
    let has_meaning = KnownHeader::of(hyphened.as_bytes()).is_some()
        || hyphened.eq_ignore_ascii_case("forwarded")
        || hyphened.to_ascii_lowercase().starts_with("x-forwarded-");
    if is_token(text.as_bytes()) && !has_meaning {
        Ok(text.into())
    } else {
        Err(InvalidField(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a12_a_field_of_ones_own_and_none_that_means_something() {
        assert_eq!(client_field("X-SSL-Client-DN").as_deref(), Ok("X-SSL-Client-DN"));
        for wrong in ["", "a b", "a:b", "Host", "content_length", "Cookie", "X-Forwarded-For", "Forwarded"] {
            assert_eq!(client_field(wrong), Err(InvalidField(wrong.to_owned())), "{wrong}");
        }
        let fields = ClientCertificates::required("ca.pem".into()).fields();
        assert_eq!(
            fields.map(String::from),
            ["X-Client-Cert", "X-Client-Cert-Names", "X-Client-Cert-Fingerprint"]
        );
    }
}
