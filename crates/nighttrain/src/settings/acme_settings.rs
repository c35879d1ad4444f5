//! Settings of certificates that are obtained automatically (ACME).

use std::{path::PathBuf, time::Duration};

use acme::{Challenge, Directory, Name};

use crate::{failure::Fault, settings::mail_settings::state_directory};

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

impl AcmeSettings {
    /// Builds the ACME client's configuration; `None` if none is configured. `state` is the configured state
    /// directory; `hosts` are the hosts of sites without a certificate.
    ///
    /// # Errors
    /// Returns a `Fault` for a setting that is missing.
    pub(crate) fn config(
        &self,
        state: Option<&PathBuf>,
        hosts: Vec<Name>,
    ) -> Result<Option<acme::Config>, Fault> {
        let fault = |key: &str, message: &str| Fault { place: key.to_owned(), message: message.to_owned() };
        let Some(directory) = self.directory.clone() else {
            if self.domains.is_empty() {
                return Ok(None);
            }
            let message = "is missing: set the ACME directory of a certificate authority; Let's Encrypt is \
                           https://acme-v02.api.letsencrypt.org/directory";
            return Err(fault("acme-directory", message));
        };
        let mut names = self.domains.clone();
        names.extend(hosts);
        if names.is_empty() {
            let message = "is missing: set the names to obtain certificates for, or name sites in the file";
            return Err(fault("acme-domain", message));
        }
        if self.challenges.is_empty() {
            return Err(fault("acme-challenge", "is empty; expected http-01 or tls-alpn-01"));
        }
        let Some(state) = state.cloned().or_else(state_directory) else {
            return Err(fault("state", "is missing: set the directory for certificates and keys"));
        };
        Ok(Some(acme::Config {
            directory,
            authorities: self.ca_file.clone(),
            contacts: self.contacts.clone(),
            profile: self.profile.clone(),
            challenges: self.challenges.clone(),
            names,
            state,
            retry: self.retry,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn config(settings: &Settings) -> Result<Option<acme::Config>, Fault> {
        settings.acme.config(settings.cache.state.as_ref(), Vec::new())
    }

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
        let found = config(&settings(&said).expect("right")).expect("right").expect("asked for");
        assert_eq!(found.names.len(), 2);
        assert!(found.state.ends_with("nighttrain"), "{}", found.state.display());
        assert_eq!(found.retry, Duration::from_secs(120));
        assert!(config(&Settings::default()).expect("right").is_none());
    }

    #[test]
    fn a36_invalid_acme_settings_get_a_hint() {
        let wrong = |key: &str, text: &str| settings(&[(key, text)]).expect_err(text);
        assert!(wrong("acme-domain", "*.example.org").contains("tls-cert"));
        assert!(wrong("acme-domain", "localhost").contains("www.example.org"));
        assert!(wrong("acme-directory", "http://ca.example/dir").contains("https"));
        assert!(wrong("acme-challenge", "dns-01").contains("http-01"));
        assert!(wrong("acme-contact", "nobody").contains("admin@example.org"));
        assert!(wrong("acme-retry", "0s").contains("above zero"));
        let missing = |said: &[(&str, &str)]| {
            config(&settings(said).expect("right")).expect_err("something is missing").place
        };
        assert_eq!(missing(&[("acme-domain", "a.example")]), "acme-directory");
        assert_eq!(missing(&[("acme-directory", "https://ca.example/")]), "acme-domain");
    }
}
