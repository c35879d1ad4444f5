//! Settings of the rules for requests, which each site may override.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use cache::config::{InvalidRule, LIST_MAX, Methods, OwnPage, PAGE_BYTES_MAX, field, sent_host};

use crate::settings::{
    Section, Setting, ValueAccess, ValueShape, list, optional, truth,
    units::{duration_text, parse_duration},
};

/// Heading of a site's rules.
pub(in crate::settings) const RULES: &str = "Rules for requests (each site may have its own)";

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

pub(in crate::settings) fn shown(members: &[impl fmt::Display]) -> Option<String> {
    let members: Vec<_> = members.iter().map(ToString::to_string).collect();
    (!members.is_empty()).then(|| members.join(","))
}

/// Parses a list of methods; an empty text gives `None`, which means all methods.
pub(in crate::settings) fn methods(text: &str) -> Result<Option<Methods>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    Methods::of(list(text)).map(Some).map_err(|error| error.to_string())
}

pub(in crate::settings) fn methods_text(methods: Methods) -> String {
    methods.names().collect::<Vec<_>>().join(",")
}
