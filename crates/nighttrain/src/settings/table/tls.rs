//! Settings of the accelerator's TLS: the listening address, and the certificates, which each site may
//! override.

use std::net::SocketAddr;

use cache::config::client_field;

use crate::settings::{
    Group, Section, Setting, access, name_of, optional, optional_path, parse_address,
    tls_settings::ClientCertPolicy, value_of,
};

const TLS: Group =
    Group { section: Section::Cache, heading: "TLS for clients (each site may have its own certificate)" };

/// Settings table of TLS.
pub(crate) const TLS_SETTINGS: &[Setting] = &[
    TLS.text(
        "tls-listen",
        "ADDRESS",
        "Address for https connections; unset: 127.0.0.1:8443 if a certificate is given or obtained by ACME",
        optional!(tls.listen, parse = |text| parse_address(text, 8443), show = SocketAddr::to_string),
    ),
    TLS.text(
        "tls-cert",
        "FILE",
        "Certificate chain (PEM), the server's own first; that of [cache] is used for names without a \
         certificate. Reloaded at SIGHUP and when the file changes",
        optional_path!(tls.cert),
    ),
    TLS.text("tls-key", "FILE", "Private key of tls-cert (PEM)", optional_path!(tls.key)),
    TLS.text("tls-ocsp", "FILE", "OCSP response to staple (DER)", optional_path!(tls.ocsp)),
    TLS.text(
        "tls-client-ca",
        "FILE",
        "CA certificates that sign clients' certificates (PEM); if set, clients are asked for a certificate. \
         Reloaded at SIGHUP",
        optional_path!(tls.client_ca),
    ),
    TLS.text(
        "tls-client",
        "WHAT",
        "Client certificates, with tls-client-ca: required (clients without one are refused), asked \
         (optional), or none; unset: required",
        access!(
            tls.client,
            parse = client_policy,
            show = |policy: &Option<_>| name_of(&ClientCertPolicy::NAMES, policy.as_ref()?)
        ),
    ),
    TLS.text(
        "tls-client-header",
        "NAME",
        "Request header field that tells origins the subject of the client's certificate; with -Names and \
         -Fingerprint appended, its other contents. Clients cannot send these. Unset: X-Client-Cert",
        optional!(
            tls.client_header,
            parse = |text: &str| client_field(text).map_err(|error| error.to_string()),
            show = ToString::to_string
        ),
    ),
];

fn client_policy(text: &str) -> Result<Option<ClientCertPolicy>, String> {
    value_of(&ClientCertPolicy::NAMES, text).map(Some)
}
