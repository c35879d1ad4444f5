//! Settings of certificates that are obtained automatically (ACME).

use acme::{Directory, InvalidName, Name};

use crate::settings::{
    Group, Section, Setting, optional, optional_path, some_time, texts, units::duration_text, value,
};

const ACME: Group = Group { section: Section::Cache, heading: "Automatic certificates (ACME)" };

/// Settings table of ACME.
pub(crate) const ACME_SETTINGS: &[Setting] = &[
    ACME.text(
        "acme-directory",
        "URL",
        "ACME directory URL of the certificate authority, such as \
         https://acme-v02.api.letsencrypt.org/directory; setting it accepts the authority's terms. The hosts \
         of sites without a certificate of their own get one, too",
        optional!(acme.directory, parse = str::parse, show = Directory::to_string),
    ),
    ACME.texts(
        "acme-domain",
        "LIST",
        "Hosts and addresses to obtain certificates for (www.example.org,example.org,192.0.2.1)",
        texts!(acme.domains, each = name),
    ),
    ACME.texts(
        "acme-contact",
        "LIST",
        "Contact address for the ACME account (admin@example.org)",
        texts!(acme.contacts, each = contact),
    ),
    ACME.text(
        "acme-profile",
        "NAME",
        "ACME certificate profile, such as shortlived; unset: the authority's default",
        optional!(acme.profile, parse = profile, show = Clone::clone),
    ),
    ACME.text(
        "acme-ca-file",
        "FILE",
        "CA certificates to trust for the ACME server (PEM); unset: the system's",
        optional_path!(acme.ca_file),
    ),
    ACME.texts(
        "acme-challenge",
        "LIST",
        "ACME challenge type: http-01 (the authority connects to port 80), tls-alpn-01 (to port 443); the \
         next one after a failure",
        texts!(acme.challenges, each = str::parse),
    ),
    ACME.text(
        "acme-retry",
        "TIME",
        "Wait after the first failure, doubled for each further one up to six hours. Set less than the \
         default of two minutes only for an authority of your own",
        value!(acme.retry, parse = some_time, show = duration_text),
    ),
];

fn name(text: &str) -> Result<Name, String> {
    text.parse().map_err(|wrong: InvalidName| wrong.to_string())
}

/// Returns an email address as the URL that a CA expects (RFC 8555 §7.3).
fn contact(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("mailto:").unwrap_or(text);
    let is_address =
        address.split_once('@').is_some_and(|(local, domain)| !local.is_empty() && domain.contains('.'))
            && address.bytes().all(|byte| byte.is_ascii_graphic() && !b",?<>".contains(&byte));
    if is_address {
        Ok(format!("mailto:{address}"))
    } else {
        Err(format!("invalid address `{text}`; expected one such as admin@example.org"))
    }
}

fn profile(text: &str) -> Result<String, String> {
    let is_name = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_name {
        Ok(text.to_owned())
    } else {
        Err(format!("invalid profile name `{text}`; expected one such as shortlived"))
    }
}
