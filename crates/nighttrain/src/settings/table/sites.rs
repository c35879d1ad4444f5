//! Settings of the rules for requests, which each site may override.

use std::{
    fs::File,
    io::{self, Read},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use cache::config::{InvalidRule, LIST_MAX, Methods, OwnPage, PAGE_BYTES_MAX, field, sent_host};

use crate::settings::{
    Group, Section, Setting, access, flag, list, list_text, named, optional,
    units::{duration_text, parse_duration},
    value,
};

/// Group of a site's rules.
pub(in crate::settings) const RULES: Group =
    Group { section: Section::Cache, heading: "Rules for requests (each site may have its own)" };

/// Settings table of the rules that `[cache]` and sites have.
pub(crate) const SITE_SETTINGS: &[Setting] = &[
    RULES.text(
        "host",
        "NAME",
        "Host header sent to the origin: keep (the client's), or a name such as app.internal; \
         X-Forwarded-Host then has the client's",
        value!(cache.rules.host, parse = host, show = host_text),
    ),
    RULES.texts(
        "ignore-query",
        "LIST",
        "Query parameters to ignore (utm_*,fbclid): they are no part of the key, and are removed from \
         fetches for the store",
        access!(cache.rules.ignore_query, parse = members, show = list_text),
    ),
    RULES.flag(
        "sort-query",
        "Sorts the query parameters by name, in the key and in fetches for the store",
        flag!(cache.rules.sort_query),
    ),
    RULES.texts(
        "methods",
        "LIST",
        "Allowed methods (GET,HEAD,POST); others are answered 405; unset: all",
        access!(
            cache.rules.methods,
            parse = methods,
            show = |methods: &Option<Methods>| methods.map(methods_text)
        ),
    ),
    RULES.texts(
        "bypass-cookies",
        "LIST",
        "Cookies of known visitors (session,wordpress_logged_in_*): requests with one bypass the store; all \
         other cookies are ignored and removed from fetches for the store. Unset: answers decide what \
         cookies mean",
        optional!(
            cache.rules.bypass_cookies,
            parse = members,
            show = |cookies| list_text(cookies).unwrap_or_default()
        ),
    ),
    RULES.texts(
        "bypass-headers",
        "LIST",
        "Request header fields that bypass the store (X-Preview)",
        access!(cache.rules.bypass_headers, parse = fields, show = list_text),
    ),
    RULES.flag(
        "remove-set-cookie",
        "Removes Set-Cookie from answers that are storable otherwise, and stores them. Unset: an answer that \
         sets a cookie is neither stored nor shared",
        flag!(cache.rules.removes_set_cookie),
    ),
    RULES.flag(
        "unsafe-invalidates",
        "Drops a page from the store when a POST, PUT, DELETE or similar to its address succeeds, as RFC \
         9111 requires. false: only purges do, so that no client's POST can cause a fetch",
        flag!(cache.rules.invalidates_unsafe),
    ),
    RULES.flag(
        "https-only",
        "Redirects http to https (301; 308 for methods other than GET)",
        flag!(cache.rules.https_only),
    ),
    RULES.text(
        "hsts",
        "TIME",
        "Strict-Transport-Security time for browsers that came by https, such as 365d; unset: the origin's \
         own header is passed on",
        optional!(cache.rules.hsts, parse = parse_duration, show = |time: &Duration| duration_text(*time)),
    ),
    RULES.text(
        "client-fin",
        "finish|end",
        "What happens to a request whose client closes its sending side before the answer: finish answers \
         it, end aborts it at the origin. Event streams, waits and WebSockets always end then",
        named!(cache.rules.ends_at_fin, [("finish", false), ("end", true)]),
    ),
    RULES.text(
        "error-page",
        "FILE",
        "HTML file for error pages, at most 64KiB, with {{status}}, {{reason}}, {{message}} and \
         {{request-id}}; clients that ask for JSON or plain text get the built-in answer",
        optional!(cache.rules.error_page, parse = page, show = |page: &Arc<OwnPage>| page.name.clone()),
    ),
];

/// Parses the host that is sent to an origin; `None` stands for the client's.
fn host(text: &str) -> Result<Option<Box<str>>, String> {
    (text != "keep").then(|| sent_host(text)).transpose().map_err(|error| error.to_string())
}

fn host_text(host: Option<Box<str>>) -> String {
    host.map_or_else(|| "keep".to_owned(), String::from)
}

fn fields(text: &str) -> Result<Vec<Box<str>>, String> {
    bounded(text, |name| field(name).map_err(|error| error.to_string()))
}

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
