//! Settings of the accelerator's TLS: the listening address, and the certificates, which each site may
//! override.

use std::net::SocketAddr;

use cache::config::client_field;

use crate::settings::{
    Section, Setting, ValueAccess, ValueShape, optional, parse_address, parse_path, path_text,
    tls_settings::ClientCertPolicy,
};

const TLS: &str = "TLS for clients (each site may have its own certificate)";

/// Settings table of TLS.
pub(crate) const TLS_SETTINGS: &[Setting] = &[
    Setting {
        key: "tls-listen",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "ADDRESS",
        help: "Address for https connections; unset: 127.0.0.1:8443 if a certificate is given or obtained by ACME",
        access: optional!(tls.listen, parse = |text| parse_address(text, 8443), show = SocketAddr::to_string),
    },
    Setting {
        key: "tls-cert",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "FILE",
        help: "Certificate chain (PEM), the server's own first; that of [cache] is used for names without a \
               certificate. Reloaded at SIGHUP and when the file changes",
        access: optional!(tls.cert, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-key",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "FILE",
        help: "Private key of tls-cert (PEM)",
        access: optional!(tls.key, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-ocsp",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "FILE",
        help: "OCSP response to staple (DER)",
        access: optional!(tls.ocsp, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-client-ca",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "FILE",
        help: "CA certificates that sign clients' certificates (PEM); if set, clients are asked for a certificate. \
               Reloaded at SIGHUP",
        access: optional!(tls.client_ca, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-client",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "WHAT",
        help: "Client certificates, with tls-client-ca: required (clients without one are refused), asked (optional), \
               or none; unset: required",
        access: ValueAccess {
            set: |settings, text| {
                let named = ClientCertPolicy::NAMES.into_iter().find(|(_, name)| *name == text);
                let (what, _) = named.ok_or("expected required, asked or none")?;
                settings.tls.client = Some(what);
                Ok(())
            },
            text: |settings| {
                let said = settings.tls.client?;
                ClientCertPolicy::NAMES
                    .into_iter()
                    .find(|(what, _)| *what == said)
                    .map(|(_, name)| name.to_owned())
            },
        },
    },
    Setting {
        key: "tls-client-header",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "NAME",
        help: "Request header field that tells origins the subject of the client's certificate; with -Names and \
               -Fingerprint appended, its other contents. Clients cannot send these. Unset: X-Client-Cert",
        access: optional!(
            tls.client_header,
            parse = |text: &str| client_field(text).map_err(|error| error.to_string()),
            show = ToString::to_string
        ),
    },
];
