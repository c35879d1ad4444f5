//! Settings of certificates that are obtained automatically (ACME).

use std::{path::PathBuf, time::Duration};

use acme::{Challenge, Directory, Name};

use crate::{
    failure::Fault,
    settings::{
        Section, Setting, Settings, ValueAccess, ValueShape, list, mail_settings::state_directory, optional,
        parse_path, path_text, some_time, units::duration_text, value,
    },
};

const ACME: &str = "Automatic certificates (ACME)";

/// Wait after the first failure. Let's Encrypt allows a name five failures per hour.
const RETRY: Duration = Duration::from_secs(120);

/// Configured settings of ACME.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AcmeSettings {
    pub(crate) directory: Option<Directory>,
    pub(crate) domains: Vec<Name>,
    pub(crate) contacts: Vec<String>,
    pub(crate) profile: Option<String>,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) challenges: Vec<Challenge>,
    pub(crate) retry: Duration,
}

impl Default for AcmeSettings {
    fn default() -> Self {
        Self {
            directory: None,
            domains: Vec::new(),
            contacts: Vec::new(),
            profile: None,
            ca_file: None,
            challenges: Challenge::ALL.to_vec(),
            retry: RETRY,
        }
    }
}

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

/// Returns the ACME configuration; `None` if none is configured. `hosts` are the hosts of sites without a
/// certificate.
pub(crate) fn acme(settings: &Settings, hosts: Vec<Name>) -> Result<Option<acme::Config>, Fault> {
    let fault = |key: &str, message: &str| Fault { place: key.to_owned(), message: message.to_owned() };
    let said = &settings.acme;
    let Some(directory) = said.directory.clone() else {
        if said.domains.is_empty() {
            return Ok(None);
        }
        let message = "is missing: set the ACME directory of a certificate authority; Let's Encrypt is \
                       https://acme-v02.api.letsencrypt.org/directory";
        return Err(fault("acme-directory", message));
    };
    let mut names = said.domains.clone();
    names.extend(hosts);
    if names.is_empty() {
        let message = "is missing: set the names to obtain certificates for, or name sites in the file";
        return Err(fault("acme-domain", message));
    }
    if said.challenges.is_empty() {
        return Err(fault("acme-challenge", "is empty; expected http-01 or tls-alpn-01"));
    }
    let state = settings.cache.state.clone().or_else(state_directory);
    let Some(state) = state else {
        return Err(fault("state", "is missing: set the directory for certificates and keys"));
    };
    Ok(Some(acme::Config {
        directory,
        authorities: said.ca_file.clone(),
        contacts: said.contacts.clone(),
        profile: said.profile.clone(),
        challenges: said.challenges.clone(),
        names,
        state,
        retry: said.retry,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(said: &[(&str, &str)]) -> Result<Settings, String> {
        let mut settings = Settings::default();
        for (key, text) in said {
            let (_, setting) = crate::settings::by_key(key).expect("a setting");
            setting.set(&mut settings, text)?;
        }
        Ok(settings)
    }

    #[test]
    fn a36_two_lines_are_enough() {
        let said = [("acme-directory", "https://ca.example/dir"), ("acme-domain", "a.example,192.0.2.1")];
        let found = acme(&settings(&said).expect("right"), Vec::new()).expect("right").expect("asked for");
        assert_eq!(found.names.len(), 2);
        assert!(found.state.ends_with("nighttrain"), "{}", found.state.display());
        assert_eq!(found.retry, Duration::from_secs(120));
        assert!(acme(&Settings::default(), Vec::new()).expect("right").is_none());
    }

    #[test]
    fn a36_what_is_wrong_is_named_and_what_would_be_right() {
        let wrong = |key: &str, text: &str| settings(&[(key, text)]).expect_err(text);
        assert!(wrong("acme-domain", "*.example.org").contains("tls-cert"));
        assert!(wrong("acme-domain", "localhost").contains("www.example.org"));
        assert!(wrong("acme-directory", "http://ca.example/dir").contains("https"));
        assert!(wrong("acme-challenge", "dns-01").contains("http-01"));
        assert!(wrong("acme-contact", "nobody").contains("admin@example.org"));
        assert!(wrong("acme-retry", "0s").contains("above zero"));
        let missing = |said: &[(&str, &str)]| {
            acme(&settings(said).expect("right"), Vec::new()).expect_err("something is missing").place
        };
        assert_eq!(missing(&[("acme-domain", "a.example")]), "acme-directory");
        assert_eq!(missing(&[("acme-directory", "https://ca.example/")]), "acme-domain");
    }
}
