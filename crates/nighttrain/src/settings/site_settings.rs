//! Settings of a site. The values in `[cache]` apply to hosts that no site names and are the defaults of all
//! sites; a `[[cache.site]]` of the file overrides them for its hosts.

use std::time::Duration;

use cache::config::{Origin, PathRule, Site};

use crate::{
    failure::Fault,
    settings::{
        SETTINGS, Section, Setting, Settings, SiteSettings, ValueShape, list_text,
        table::{
            origins::ORIGINS,
            sites::{RULES, methods_text},
        },
        units::duration_text,
    },
};

/// Settings of other headings that a site may override.
const OF_CACHE: [&str; 11] = [
    "origin",
    "default-ttl",
    "grace",
    "stale-if-error",
    "tls-cert",
    "tls-key",
    "tls-ocsp",
    "tls-client-ca",
    "tls-client",
    "tls-client-header",
    "request-body-bytes-max",
];

/// Returns the settings that a site may override, with their positions in [`SETTINGS`].
pub(crate) fn of_a_site() -> impl Iterator<Item = (usize, &'static Setting)> {
    SETTINGS.iter().enumerate().filter(|(_, setting)| {
        let is_of_cache = setting.section == Section::Cache;
        RULES.has(setting) || ORIGINS.has(setting) || (is_of_cache && OF_CACHE.contains(&setting.key))
    })
}

impl SiteSettings {
    /// Builds the site; settings that it does not override come from `[cache]`. `origin` is the origin of
    /// hosts that no site names.
    ///
    /// # Errors
    /// Returns a `Fault` if the site has no origin, or if a file that it names is missing.
    pub(crate) fn site(&self, settings: &Settings, origin: Option<&Origin>) -> Result<Site, Fault> {
        let fault = |message| Fault { place: self.place.clone(), message };
        let own = self.own(&Settings { origin: origin.cloned(), ..settings.clone() })?;
        let mut rules = own.cache.rules;
        if let Some(paths) = &self.paths {
            rules.paths.clone_from(paths);
        }
        rules.body_bytes_max = Some(own.cache.limits.request_body_bytes_max);
        rules.client_certificates = own
            .tls
            .client_certificates()
            .map_err(|wrong| fault(format!("{}: {}", wrong.place, wrong.message)))?;
        let none = || fault("origin: set neither for this site nor in [cache]".to_owned());
        Ok(Site { hosts: self.hosts.clone(), origin: own.origin.ok_or_else(none)?, rules })
    }

    /// Returns the settings with the site's overrides.
    ///
    /// # Errors
    /// Returns a `Fault` if a file that the site names is missing.
    pub(crate) fn own(&self, settings: &Settings) -> Result<Settings, Fault> {
        let mut own = settings.clone();
        for (setting, text) in &self.own {
            let setting = &SETTINGS[*setting];
            setting.set(&mut own, text).map_err(|message| Fault {
                place: self.place.clone(),
                message: format!("{}: {message}", setting.key),
            })?;
        }
        Ok(own)
    }

    /// Returns the site as rows of a file's section: keys, texts and types.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String, ValueShape)> {
        let own = self.own.iter().map(|(setting, text)| {
            let Setting { key, shape, .. } = SETTINGS[*setting];
            (key, text.clone(), shape)
        });
        [("hosts", list_text(&self.hosts).unwrap_or_default(), ValueShape::Texts)]
            .into_iter()
            .chain(own)
            .collect()
    }
}

/// Returns a rule for a path as rows of a file's section.
pub(crate) fn rows_of_path(rule: &PathRule) -> Vec<(&'static str, String, ValueShape)> {
    let PathRule { path, pass, ttl, methods, join } = rule;
    let mut rows = vec![("path", path.to_string(), ValueShape::Text)];
    rows.extend(pass.then(|| ("pass", "true".to_owned(), ValueShape::Flag)));
    rows.extend(ttl.map(|ttl: Duration| ("ttl", duration_text(ttl), ValueShape::Text)));
    rows.extend(methods.map(|methods| ("methods", methods_text(methods), ValueShape::Texts)));
    rows.extend((!join).then(|| ("join", "false".to_owned(), ValueShape::Flag)));
    rows
}
