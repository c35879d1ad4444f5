//! TLS authentication of a client at its handshake, and what it means for the site of a request.
//!
//! ```text
//!  handshake: the server name ─▶ a site ─▶ its authorities ─▶ ClientAuth: certificate requested? which one was sent?
//!  request:   its host ─▶ a site ─▶ its authorities ─ the same? still valid? ─▶ ClientStanding
//! ```
//! A connection that was made for one site may carry requests for others: browsers do so, and so do clients
//! that try to get past a certificate. So each request is judged by its own site. A certificate verified with
//! authorities other than the site's is ignored. The answer is then 421, so that a browser opens a new
//! connection, on which the right certificate is requested (RFC 9110 §15.5.20).

use std::sync::Arc;

use engine::tls::{authorities::AuthoritiesId, identity::Identity, session::Session};

use crate::config::{ClientCertificates, FINGERPRINT, NAMES};

/// TLS authentication of a client's connection.
#[derive(Debug, Clone)]
pub(crate) enum ClientAuth {
    /// A connection without TLS.
    Plain,
    /// A TLS connection on which no certificate was requested.
    Unasked,
    /// A TLS connection on which a certificate was requested.
    Asked(Arc<CertificateResult>),
}

/// Result of requesting a certificate.
#[derive(Debug)]
pub(crate) struct CertificateResult {
    /// Authorities by which the certificate had to be signed.
    authorities: AuthoritiesId,
    /// Identity in the certificate; `None` if the client sent none.
    identity: Option<Identity>,
}

/// Error: a verified certificate cannot be passed to an origin, because it is too large or has expired since
/// the session began.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the client's certificate has expired, or is too large to be passed to the origin")]
pub(crate) struct Unusable;

impl ClientAuth {
    /// Reads the authentication of a session whose handshake is complete.
    pub(crate) fn of(session: &Session, now_s: u64) -> Result<Self, Unusable> {
        let (Some(authorities), shown) = session.client() else { return Ok(Self::Unasked) };
        // A resumed session is not verified again.
        let valid = |identity: &Identity| identity.is_valid_at(now_s);
        let identity = shown.map(|shown| Identity::of(shown).filter(valid).ok_or(Unusable)).transpose()?;
        Ok(Self::Asked(Arc::new(CertificateResult { authorities, identity })))
    }

    /// Returns the verified identity.
    pub(crate) fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Plain | Self::Unasked => None,
            Self::Asked(asked) => asked.identity.as_ref(),
        }
    }
}

/// Authentication status of a client at the site of one of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientStanding {
    /// An anonymous client.
    Anybody,
    /// A client whose certificate the site's authorities have signed.
    Known,
    /// The site needs a certificate that was not requested on this connection, or that has expired.
    Wanted,
}

/// Returns the status of a client at a site that requests certificates issued by these authorities. `None`
/// means that the authorities cannot be read, so that no client is known to the site.
#[cold]
pub(crate) fn judge(
    asks: &ClientCertificates,
    authorities: Option<AuthoritiesId>,
    came: &ClientAuth,
    now_s: u64,
) -> ClientStanding {
    let unshown = if asks.is_required { ClientStanding::Wanted } else { ClientStanding::Anybody };
    match came {
        ClientAuth::Plain => unshown,
        ClientAuth::Unasked => ClientStanding::Wanted,
        ClientAuth::Asked(asked) if Some(asked.authorities) != authorities => ClientStanding::Wanted,
        ClientAuth::Asked(asked) => match &asked.identity {
            None => unshown,
            Some(identity) if identity.is_valid_at(now_s) => ClientStanding::Known,
            Some(_) => ClientStanding::Wanted,
        },
    }
}

/// Appends the fields that tell an origin the client's identity.
pub(crate) fn append_fields(identity: &Identity, field: &str, out: &mut Vec<u8>) {
    let Identity { subject, names, fingerprint, .. } = identity;
    for (behind, text) in [("", subject), (NAMES, names), (FINGERPRINT, fingerprint)] {
        if !text.is_empty() || behind.is_empty() {
            for part in [field, behind, ": ", text, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a12_each_request_is_judged_by_its_own_site() {
        let [ours, theirs] = [1, 2].map(AuthoritiesId::of_test);
        let identity = |until_s| Identity {
            subject: "CN=alice".into(),
            names: "".into(),
            fingerprint: "ab".into(),
            from_s: 100,
            until_s,
        };
        let asked =
            |authorities, identity| ClientAuth::Asked(Arc::new(CertificateResult { authorities, identity }));
        let required = ClientCertificates::required("ca.pem".into());
        let wished = ClientCertificates { is_required: false, ..required.clone() };
        use ClientStanding::{Anybody, Known, Wanted};
        for (came, of_required, of_wished) in [
            (ClientAuth::Plain, Wanted, Anybody),
            (ClientAuth::Unasked, Wanted, Wanted),
            (asked(ours, None), Wanted, Anybody),
            (asked(ours, Some(identity(200))), Known, Known),
            (asked(ours, Some(identity(149))), Wanted, Wanted),
            (asked(theirs, None), Wanted, Wanted),
            (asked(theirs, Some(identity(200))), Wanted, Wanted),
        ] {
            assert_eq!(judge(&required, Some(ours), &came, 150), of_required, "{came:?}");
            assert_eq!(judge(&wished, Some(ours), &came, 150), of_wished, "{came:?}");
            assert_ne!(
                judge(&required, None, &came, 150),
                Known,
                "nobody is known by authorities that are not"
            );
        }
    }

    #[test]
    fn a12_an_origin_is_told_the_subject_always() {
        let identity = Identity {
            subject: "".into(),
            names: "".into(),
            fingerprint: "ab".into(),
            from_s: 0,
            until_s: 0,
        };
        let mut out = Vec::new();
        append_fields(&identity, "X-C", &mut out);
        assert_eq!(out, b"X-C: \r\nX-C-Fingerprint: ab\r\n");
    }
}
