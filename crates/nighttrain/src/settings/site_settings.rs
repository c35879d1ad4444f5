//! Settings of a site. The values in `[cache]` apply to hosts that no site names and are the defaults of all
//! sites; a `[[cache.site]]` of the file overrides them for its hosts.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use cache::config::{
    HostPattern, InvalidRule, LIST_MAX, Methods, Origin, OwnPage, PAGE_BYTES_MAX, PathRule, Site, field,
    sent_host,
};

use crate::{
    failure::Fault,
    settings::{
        SETTINGS, Section, Setting, Settings, ValueAccess, ValueShape, list, optional,
        origin_settings::ORIGINS,
        truth,
        units::{duration_text, parse_duration},
    },
};

/// Heading of a site's rules.
const RULES: &str = "Rules for requests (each site may have its own)";

/// Settings outside [`SITE_SETTINGS`] that a site may override.
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

/// Settings table of the rules that `[cache]` and sites have.
pub(crate) const SITE_SETTINGS: &[Setting] = &[
    Setting {
        key: "host",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: RULES,
        value_name: "NAME",
        help: "Host header sent to the origin: keep (the client's), or a name such as app.internal; X-Forwarded-Host \
               then has the client's",
        access: ValueAccess {
            set: |settings, text| {
                let name = (text != "keep").then(|| sent_host(text)).transpose();
                name.map(|name| settings.cache.rules.host = name).map_err(|error| error.to_string())
            },
            text: |settings| Some(settings.cache.rules.host.as_deref().unwrap_or("keep").to_owned()),
        },
    },
    Setting {
        key: "ignore-query",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: RULES,
        value_name: "LIST",
        help: "Query parameters to ignore (utm_*,fbclid): they are no part of the key, and are removed from fetches \
               for the store",
        access: ValueAccess {
            set: |settings, text| members(text).map(|rules| settings.cache.rules.ignore_query = rules),
            text: |settings| shown(&settings.cache.rules.ignore_query),
        },
    },
    Setting {
        key: "sort-query",
        section: Section::Cache,
        shape: ValueShape::Flag,
        heading: RULES,
        value_name: "true|false",
        help: "Sorts the query parameters by name, in the key and in fetches for the store",
        access: ValueAccess {
            set: |settings, text| truth(text).map(|is_so| settings.cache.rules.sort_query = is_so),
            text: |settings| Some(settings.cache.rules.sort_query.to_string()),
        },
    },
    Setting {
        key: "methods",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: RULES,
        value_name: "LIST",
        help: "Allowed methods (GET,HEAD,POST); others are answered 405; unset: all",
        access: ValueAccess {
            set: |settings, text| methods(text).map(|methods| settings.cache.rules.methods = methods),
            text: |settings| settings.cache.rules.methods.map(methods_text),
        },
    },
    Setting {
        key: "bypass-cookies",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: RULES,
        value_name: "LIST",
        help: "Cookies of known visitors (session,wordpress_logged_in_*): requests with one bypass the store; all \
               other cookies are ignored and removed from fetches for the store. Unset: answers decide what cookies \
               mean",
        access: ValueAccess {
            set: |settings, text| {
                members(text).map(|cookies| settings.cache.rules.bypass_cookies = Some(cookies))
            },
            text: |settings| {
                settings.cache.rules.bypass_cookies.as_ref().map(|cookies| shown(cookies).unwrap_or_default())
            },
        },
    },
    Setting {
        key: "bypass-headers",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: RULES,
        value_name: "LIST",
        help: "Request header fields that bypass the store (X-Preview)",
        access: ValueAccess {
            set: |settings, text| {
                let names = bounded(text, |name| field(name).map_err(|error| error.to_string()));
                names.map(|names| settings.cache.rules.bypass_headers = names)
            },
            text: |settings| shown(&settings.cache.rules.bypass_headers),
        },
    },
    Setting {
        key: "remove-set-cookie",
        section: Section::Cache,
        shape: ValueShape::Flag,
        heading: RULES,
        value_name: "true|false",
        help: "Removes Set-Cookie from answers that are storable otherwise, and stores them. Unset: an answer that \
               sets a cookie is neither stored nor shared",
        access: ValueAccess {
            set: |settings, text| truth(text).map(|is_so| settings.cache.rules.removes_set_cookie = is_so),
            text: |settings| Some(settings.cache.rules.removes_set_cookie.to_string()),
        },
    },
    Setting {
        key: "unsafe-invalidates",
        section: Section::Cache,
        shape: ValueShape::Flag,
        heading: RULES,
        value_name: "true|false",
        help: "Drops a page from the store when a POST, PUT, DELETE or similar to its address succeeds, as RFC 9111 \
               requires. false: only purges do, so that no client's POST can cause a fetch",
        access: ValueAccess {
            set: |settings, text| truth(text).map(|is_so| settings.cache.rules.invalidates_unsafe = is_so),
            text: |settings| Some(settings.cache.rules.invalidates_unsafe.to_string()),
        },
    },
    Setting {
        key: "https-only",
        section: Section::Cache,
        shape: ValueShape::Flag,
        heading: RULES,
        value_name: "true|false",
        help: "Redirects http to https (301; 308 for methods other than GET)",
        access: ValueAccess {
            set: |settings, text| truth(text).map(|is_so| settings.cache.rules.https_only = is_so),
            text: |settings| Some(settings.cache.rules.https_only.to_string()),
        },
    },
    Setting {
        key: "hsts",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: RULES,
        value_name: "TIME",
        help: "Strict-Transport-Security time for browsers that came by https, such as 365d; unset: the origin's own \
               header is passed on",
        access: optional!(
            cache.rules.hsts,
            parse = parse_duration,
            show = |time: &Duration| duration_text(*time)
        ),
    },
    Setting {
        key: "client-fin",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: RULES,
        value_name: "finish|end",
        help: "What happens to a request whose client closes its sending side before the answer: finish answers it, \
               end aborts it at the origin. Event streams, waits and WebSockets always end then",
        access: ValueAccess {
            set: |settings, text| {
                let ends = match text {
                    "finish" => false,
                    "end" => true,
                    _ => return Err("expected finish or end".to_owned()),
                };
                settings.cache.rules.ends_at_fin = ends;
                Ok(())
            },
            text: |settings| Some(if settings.cache.rules.ends_at_fin { "end" } else { "finish" }.to_owned()),
        },
    },
    Setting {
        key: "error-page",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: RULES,
        value_name: "FILE",
        help: "HTML file for error pages, at most 64KiB, with {{status}}, {{reason}}, {{message}} and {{request-id}}; \
               clients that ask for JSON or plain text get the built-in answer",
        access: optional!(
            cache.rules.error_page,
            parse = page,
            show = |page: &Arc<OwnPage>| page.name.clone()
        ),
    },
];

/// Reads an error page from a file.
fn page(path: &str) -> Result<Arc<OwnPage>, String> {
    let cannot = |why: io::Error| format!("{path}: {why}");
    let mut text = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(PAGE_BYTES_MAX as u64 + 1).read_to_end(&mut text).map_err(cannot)?;
    let text = String::from_utf8(text).map_err(|_| format!("{path}: invalid UTF-8"))?;
    OwnPage::parse(path, &text).map(Arc::new).map_err(|error| format!("{path}: {error}"))
}

/// Parses the members of a list; an empty text is an empty list.
fn bounded<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let members: Vec<T> = list(text).filter(|_| !text.is_empty()).map(read).collect::<Result<_, String>>()?;
    if members.len() > LIST_MAX { Err(InvalidRule::TooMany.to_string()) } else { Ok(members) }
}

fn members<T: FromStr<Err = InvalidRule>>(text: &str) -> Result<Vec<T>, String> {
    bounded(text, |member| member.parse().map_err(|error: InvalidRule| error.to_string()))
}

fn shown(members: &[impl fmt::Display]) -> Option<String> {
    let members: Vec<_> = members.iter().map(ToString::to_string).collect();
    (!members.is_empty()).then(|| members.join(","))
}

/// Parses a list of methods; an empty text gives `None`, which means all methods.
pub(crate) fn methods(text: &str) -> Result<Option<Methods>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    Methods::of(list(text)).map(Some).map_err(|error| error.to_string())
}

fn methods_text(methods: Methods) -> String {
    methods.names().collect::<Vec<_>>().join(",")
}

/// Returns the settings that a site may override, with their positions in [`SETTINGS`].
pub(crate) fn of_a_site() -> impl Iterator<Item = (usize, &'static Setting)> {
    SETTINGS.iter().enumerate().filter(|(_, setting)| {
        setting.section == Section::Cache
            && (setting.heading == RULES || setting.heading == ORIGINS || OF_CACHE.contains(&setting.key))
    })
}

/// A site: a `[[cache.site]]` section of the configuration file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SiteSettings {
    /// Hosts of the site.
    pub hosts: Vec<HostPattern>,
    /// Settings that the site overrides: the position in [`SETTINGS`], and the validated text.
    pub own: Vec<(usize, String)>,
    /// Rules for paths; `None` means that the rules of `[cache]` apply.
    pub paths: Option<Vec<PathRule>>,
    /// Location of the section: `FILE:LINE:COLUMN`.
    pub place: String,
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
        [("hosts", shown(&self.hosts).unwrap_or_default(), ValueShape::Texts)]
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
