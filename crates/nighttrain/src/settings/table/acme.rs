//! Settings of certificates that are obtained automatically (ACME).

use acme::Directory;

use crate::settings::{
    Section, Setting, ValueAccess, ValueShape, list, optional, parse_path, path_text, some_time,
    units::duration_text, value,
};

const ACME: &str = "Automatic certificates (ACME)";

/// Settings table of ACME.
pub(crate) const ACME_SETTINGS: &[Setting] = &[
    Setting {
        key: "acme-directory",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: ACME,
        value_name: "URL",
        help: "ACME directory URL of the certificate authority, such as \
               https://acme-v02.api.letsencrypt.org/directory; setting it accepts the authority's terms. The hosts of \
               sites without a certificate of their own get one, too",
        access: optional!(acme.directory, parse = str::parse, show = Directory::to_string),
    },
    Setting {
        key: "acme-domain",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: ACME,
        value_name: "LIST",
        help: "Hosts and addresses to obtain certificates for (www.example.org,example.org,192.0.2.1)",
        access: ValueAccess {
            set: |settings, text| {
                let names =
                    list(text).map(|name| name.parse().map_err(|wrong: acme::InvalidName| wrong.to_string()));
                names.collect::<Result<_, _>>().map(|names| settings.acme.domains = names)
            },
            text: |settings| texts(&settings.acme.domains),
        },
    },
    Setting {
        key: "acme-contact",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: ACME,
        value_name: "LIST",
        help: "Contact address for the ACME account (admin@example.org)",
        access: ValueAccess {
            set: |settings, text| {
                list(text)
                    .map(contact)
                    .collect::<Result<_, _>>()
                    .map(|contacts| settings.acme.contacts = contacts)
            },
            text: |settings| texts(&settings.acme.contacts),
        },
    },
    Setting {
        key: "acme-profile",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: ACME,
        value_name: "NAME",
        help: "ACME certificate profile, such as shortlived; unset: the authority's default",
        access: optional!(acme.profile, parse = profile, show = Clone::clone),
    },
    Setting {
        key: "acme-ca-file",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: ACME,
        value_name: "FILE",
        help: "CA certificates to trust for the ACME server (PEM); unset: the system's",
        access: optional!(acme.ca_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "acme-challenge",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: ACME,
        value_name: "LIST",
        help: "ACME challenge type: http-01 (the authority connects to port 80), tls-alpn-01 (to port 443); the \
               next one after a failure",
        access: ValueAccess {
            set: |settings, text| {
                list(text)
                    .map(str::parse)
                    .collect::<Result<_, _>>()
                    .map(|challenges| settings.acme.challenges = challenges)
            },
            text: |settings| texts(&settings.acme.challenges),
        },
    },
    Setting {
        key: "acme-retry",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: ACME,
        value_name: "TIME",
        help: "Wait after the first failure, doubled for each further one up to six hours. Set less than the default \
               of two minutes only for an authority of your own",
        access: value!(acme.retry, parse = some_time, show = duration_text),
    },
];

fn texts(members: &[impl ToString]) -> Option<String> {
    let texts: Vec<_> = members.iter().map(ToString::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(","))
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
