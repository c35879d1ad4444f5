//! Client certificates: the authorities that a site accepts, and the fields that describe the certificate to
//! the origin.

use std::path::PathBuf;

use wire::http1::{fields::is_token, known::KnownHeader};

/// Default field that describes the client's certificate to the origin.
const FIELD: &str = "X-Client-Cert";
/// Suffix of [`ClientCertificates::field`]: the field with the client's alternative names.
pub(crate) const NAMES: &str = "-Names";
/// Suffix of [`ClientCertificates::field`]: the field with the certificate's fingerprint.
pub(crate) const FINGERPRINT: &str = "-Fingerprint";

/// Rules for client certificates.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientCertificates {
    /// File with the certificates of the authorities that sign client certificates (PEM).
    pub authorities: PathBuf,
    /// True if a client without a certificate is refused.
    pub is_required: bool,
    /// Field that carries the subject to the origin; the names of two more fields begin with this name.
    pub field: Box<str>,
}

impl ClientCertificates {
    /// Creates rules that require a certificate signed by these authorities, with the default field.
    #[must_use]
    pub fn required(authorities: PathBuf) -> Self {
        Self { authorities, is_required: true, field: FIELD.into() }
    }

    /// Returns the names of the fields, which are removed from clients' requests.
    pub fn fields(&self) -> [Box<str>; 3] {
        let Self { field, .. } = self;
        [field.clone(), format!("{field}{NAMES}").into(), format!("{field}{FINGERPRINT}").into()]
    }
}

/// The text is not a field name that could describe a certificate to an origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid field name `{0}`: choose one that neither HTTP nor this server uses, such as X-Client-Cert")]
pub struct InvalidField(String);

/// Parses the name of a field for client certificates.
///
/// # Errors
/// [`InvalidField`] if the text is not a field name, or the field already has another meaning.
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
    fn a12_reserved_header_names_are_refused() {
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
