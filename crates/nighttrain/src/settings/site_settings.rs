//! What can be set of a site: in `[cache]`, for hosts that no site names and for what a site does not say itself, and in
//! a `[[cache.site]]` of the file, for its hosts.

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

/// The heading for rules of a site.
const RULES: &str = "Rules for requests (each site may have its own)";

/// Settings beside [`SITE_SETTINGS`] that a site may say for itself.
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

/// The rules that are settings of `[cache]`, too.
pub(crate) const SITE_SETTINGS: &[Setting] = &[
    Setting {
        key: "host",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: RULES,
        value_name: "NAME",
        help: "The Host that the origin is sent: keep (the one that visitors ask for), or a name such as app.internal; it \
               is then told theirs in X-Forwarded-Host",
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
        help: "Parameters of the query that count for nothing (utm_*,fbclid): they are no part of the key, and are left out \
               of what is fetched for the store",
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
        help: "Sorts the parameters of the query by their names, in the key and in what is fetched for the store",
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
        help: "Cookies of visitors who are known (session,wordpress_logged_in_*): who has one goes past the store; all other \
               cookies do not count, and the origin is sent none for what is stored. Unset: answers say what cookies mean",
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
        help: "Removes Set-Cookie from answers that may be stored but for it, and stores them. Unset: an answer that sets a \
               cookie is for one visitor, and is neither stored nor shared",
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
        help: "Drops a page from the store when a POST, PUT, DELETE or the like to its address succeeds, as RFC 9111 asks. \
               false: only purges do, so that no stranger's POST has a page fetched anew",
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
        help: "For how long browsers that came by https come by nothing else (Strict-Transport-Security), such as 365d; unset: \
               they are told what the origin says",
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
        help: "What becomes of a request whose client closes its sending half before it is answered: finish answers it, end \
               gives it up at the origin. Event streams, waits and WebSockets always end then",
        access: ValueAccess {
            set: |settings, text| {
                let ends = match text {
                    "finish" => false,
                    "end" => true,
                    _ => return Err("finish or end is wanted".to_owned()),
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
        help: "HTML that is sent where no answer can be, at most 64KiB, with {{status}}, {{reason}}, {{message}} and \
               {{request-id}}; programs that ask for JSON or plain text get what they get without it",
        access: optional!(
            cache.rules.error_page,
            parse = page,
            show = |page: &Arc<OwnPage>| page.name.clone()
        ),
    },
];

/// The page in a file.
fn page(path: &str) -> Result<Arc<OwnPage>, String> {
    let cannot = |why: io::Error| format!("{path}: {why}");
    let mut text = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(PAGE_BYTES_MAX as u64 + 1).read_to_end(&mut text).map_err(cannot)?;
    let text = String::from_utf8(text).map_err(|_| format!("{path}: not text in UTF-8"))?;
    OwnPage::parse(path, &text).map(Arc::new).map_err(|error| format!("{path}: {error}"))
}

/// Members of a list in one text; none where the text is empty.
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

/// Methods in one text; all where it is empty.
pub(crate) fn methods(text: &str) -> Result<Option<Methods>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    Methods::of(list(text)).map(Some).map_err(|error| error.to_string())
}

fn methods_text(methods: Methods) -> String {
    methods.names().collect::<Vec<_>>().join(",")
}

/// The settings that a site may say for itself, with their places in [`SETTINGS`].
pub(crate) fn of_a_site() -> impl Iterator<Item = (usize, &'static Setting)> {
    SETTINGS.iter().enumerate().filter(|(_, setting)| {
        setting.section == Section::Cache
            && (setting.heading == RULES || setting.heading == ORIGINS || OF_CACHE.contains(&setting.key))
    })
}

/// A `[[cache.site]]` of the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SiteSettings {
    /// Which hosts it is for.
    pub hosts: Vec<HostPattern>,
    /// What it says for itself: the place in [`SETTINGS`], and the text, which has been found to be right.
    pub own: Vec<(usize, String)>,
    /// Its rules for paths; `None`: those of `[cache]`.
    pub paths: Option<Vec<PathRule>>,
    /// `FILE:LINE:COLUMN`.
    pub place: String,
}

impl SiteSettings {
    /// The site, with what `[cache]` says where it says nothing itself. `origin` is the one for all other hosts.
    ///
    /// # Errors
    /// It has no origin, or a file that it names has gone.
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
        let none = || fault("origin: this site says none, and [cache] neither".to_owned());
        Ok(Site { hosts: self.hosts.clone(), origin: own.origin.ok_or_else(none)?, rules })
    }

    /// The settings as they are for this site.
    ///
    /// # Errors
    /// A file that it names has gone.
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

    /// It as a section of a file: heading, keys and texts.
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

/// A rule for a path as rows of a file's section.
pub(crate) fn rows_of_path(rule: &PathRule) -> Vec<(&'static str, String, ValueShape)> {
    let PathRule { path, pass, ttl, methods, join } = rule;
    let mut rows = vec![("path", path.to_string(), ValueShape::Text)];
    rows.extend(pass.then(|| ("pass", "true".to_owned(), ValueShape::Flag)));
    rows.extend(ttl.map(|ttl: Duration| ("ttl", duration_text(ttl), ValueShape::Text)));
    rows.extend(methods.map(|methods| ("methods", methods_text(methods), ValueShape::Texts)));
    rows.extend((!join).then(|| ("join", "false".to_owned(), ValueShape::Flag)));
    rows
}
