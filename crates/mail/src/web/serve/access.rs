//! Access control: which clients may see more than one inbox at a time, and which requests may change
//! something.
//!
//! One inbox is public: a client that knows its name may read and empty it, as every page says. Pages and
//! lists of many inboxes (a prefix, a domain, everything) would disclose mail to clients that do not know the
//! names:
//! - with a token configured, they need the token (`Authorization: TOKEN`, `Bearer TOKEN`, Basic with the token as the
//!   password, or `?token=`);
//! - without a token, only this machine may see them: the peer is loopback, no header names a proxy, no
//!   silent proxy was noticed ([`super::silent_proxy`]), and the `Host` is a loopback address or `localhost` (a page
//!   whose name was rebound to 127.0.0.1 sends its own name);
//! - an address in a network of `mail-readers` may see them, with or without a token, under one of our
//!   host names. For a request through a trusted proxy, the address that the proxy names is checked; a request through
//!   any other proxy has no such access.
//!
//! [`WHO_SEES`] states the same rules as they appear on pages, in refusals and in the guide.
//!
//! Changes that a page of another site makes a browser send are refused (`Sec-Fetch-Site`, `Origin`). A
//! request that changes something counts as a change whatever its method: Mailinator's clients delete by `GET
//! …?delete=1m`, and any page can make a browser send a GET to any address (`<img src=…>`).

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{ConnectInfo, FromRequestParts, Query, Request},
    http::{Extensions, HeaderMap, HeaderName, Method, Uri, header, request::Parts},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use subtle::ConstantTimeEq;

use super::{
    answer::Fault,
    app::App,
    connections::Peer,
    counters::Counter,
    silent_proxy::{NoteOutcome, ProxySign},
};
use crate::mailbox::mailboxes::{Mailboxes, Scope};

/// Maximum number of this service's host names that a refusal lists.
const HOSTS_NAMED_MAX: usize = 10;
/// Shortest token; a shorter one could be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// Table of the access rules for any listening address, with three columns: the client, one inbox, all mail
/// together. A test compares the guide's table with this one.
pub(crate) const WHO_SEES: [(&str, &str, &str); 5] = [
    (
        "this machine, by 127.0.0.1, ::1 or localhost",
        "yes",
        "yes, unless a token is configured or a proxy was noticed that does not name its clients",
    ),
    ("clients with the token (token-file)", "yes", "yes"),
    (
        "an address in mail-readers",
        "yes",
        "yes, unless it was noticed to be a proxy that does not name its clients",
    ),
    ("an address that a proxy in trusted-proxies names", "yes", "if that address is in mail-readers"),
    ("any other address, and clients behind any other proxy", "yes", "no"),
];

/// A secret token. `Debug` does not show it, and it is never logged.
#[derive(Clone)]
pub struct Token(Arc<str>);

/// The token is shorter than 16 characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token is too short: at least {TOKEN_BYTES_MIN} characters are needed")]
pub struct TokenTooShort;

impl Token {
    /// Creates a token from a secret.
    ///
    /// # Errors
    /// [`TokenTooShort`] if the secret has fewer than 16 bytes.
    pub fn new(secret: &str) -> Result<Self, TokenTooShort> {
        if secret.len() < TOKEN_BYTES_MIN { Err(TokenTooShort) } else { Ok(Self(secret.into())) }
    }

    /// Compares in constant time, so that the duration does not reveal where a guess differs; the length is
    /// not secret.
    fn is(&self, guess: &str) -> bool {
        self.0.as_bytes().ct_eq(guess.as_bytes()).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Access of a client to all mail, as shown on a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllMail {
    /// The client may see all mail.
    Shown,
    /// The client may see all mail with a token.
    ByToken,
    /// This machine could see all mail, but a proxy on it forwards requests from others.
    BehindProxy,
    Hidden,
}

impl AllMail {
    pub(crate) fn is_shown(self) -> bool {
        matches!(self, Self::Shown | Self::ByToken)
    }

    /// Returns whether the page explains why all mail is not shown.
    pub(crate) fn is_closed(self) -> bool {
        self == Self::BehindProxy
    }

    /// Returns the words that describe who may see all mail.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Shown => "of all inboxes, newest first",
            Self::ByToken => "with the operator's token",
            Self::BehindProxy | Self::Hidden => "",
        }
    }
}

impl<M: Mailboxes> FromRequestParts<Arc<App<M>>> for AllMail {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &Arc<App<M>>,
    ) -> Result<Self, std::convert::Infallible> {
        let from = RequestSource::of(&parts.extensions);
        Ok(match app.may_see_all(&parts.headers, parts.uri.query(), from) {
            true => Self::Shown,
            false if app.config.token.is_some() => Self::ByToken,
            false if app.is_closed_to(from) => Self::BehindProxy,
            false => Self::Hidden,
        })
    }
}

impl<M: Mailboxes> App<M> {
    /// Checks that a request may see more than one inbox.
    pub(crate) fn check_wide(
        &self,
        headers: &HeaderMap,
        query: Option<&str>,
        from: RequestSource,
    ) -> Result<(), Fault> {
        if self.may_see_all(headers, query, from) {
            return Ok(());
        }
        self.counters.add(Counter::Unauthorized, 1);
        Err(match self.config.token {
            Some(_) => Fault::TokenNeeded,
            None if self.is_closed_to(from) => Fault::BehindProxy(self.why_closed()),
            None => Fault::OnlyFromHere(from.asker),
        })
    }

    /// Returns whether a request may see more than one inbox, for a page that links to lists of many inboxes.
    pub(crate) fn may_see_all(&self, headers: &HeaderMap, query: Option<&str>, from: RequestSource) -> bool {
        let is_known = match &self.config.token {
            Some(token) => given(headers, query).iter().any(|guess| token.is(guess)),
            None => is_this_machine(headers, from.peer) && !self.silent_proxies.has(from.asker),
        };
        is_known || self.is_reader(headers, from)
    }

    /// Returns whether the client is in a network of readers.
    fn is_reader(&self, headers: &HeaderMap, from: RequestSource) -> bool {
        // An untrusted proxy may forward requests from anybody, whatever network the proxy is in.
        !from.is_spoken_for(headers)
            && self.config.readers.iter().any(|network| network.contains(from.asker))
            && !self.silent_proxies.has(from.asker)
    }

    /// Returns whether a detected proxy is the only reason why this machine may not see all mail.
    fn is_closed_to(&self, from: RequestSource) -> bool {
        from.peer.0.ip().is_loopback() && self.silent_proxies.has(from.asker)
    }

    /// Describes the first sign of a proxy on this machine; empty if there is none.
    pub(crate) fn why_closed(&self) -> String {
        self.silent_proxies.first_local_sign().map(ToString::to_string).unwrap_or_default()
    }

    /// Looks for signs of a silent proxy in a request whose address may see all mail, because a proxy would
    /// give strangers this access.
    pub(crate) fn notice_proxy(&self, request: &Request) {
        let (from, headers) = (RequestSource::of(request.extensions()), request.headers());
        let is_here = from.asker.is_loopback();
        let has_rights = (is_here && self.config.token.is_none())
            || self.config.readers.iter().any(|network| network.contains(from.asker));
        if !has_rights || from.is_spoken_for(headers) {
            return;
        }
        let is_direct = from.asker == from.peer.0.ip();
        let Some(sign) = ProxySign::of(request.version(), headers, is_here, is_direct) else { return };
        self.counters.add(
            match sign {
                ProxySign::Http10 => Counter::ProxySignsHttp10,
                ProxySign::OtherHost { .. } => Counter::ProxySignsHost,
            },
            1,
        );
        match self.silent_proxies.remember_proxy(from.asker, &sign) {
            NoteOutcome::New if is_here => tracing::warn!(
                "a proxy on this machine does not name the clients of the mail pages ({sign}): the view of all mail is \
                 closed to this machine until a restart; set token-file, or have the proxy send X-Forwarded-For and \
                 list it in trusted-proxies"
            ),
            NoteOutcome::New => tracing::warn!(
                address = %from.asker,
                "a proxy in mail-readers sends no client address ({sign}): it may not read all mail until a restart; \
                 let it send X-Forwarded-For and list it in trusted-proxies"
            ),
            NoteOutcome::Full => {
                self.counters.add(Counter::ProxiesFull, 1);
                tracing::warn!(
                    "too many proxies in mail-readers send no client address: until a restart, only clients whose \
                     address a trusted proxy sends may read mail"
                );
            }
            NoteOutcome::Known => {}
        }
    }

    /// Returns a sentence that states who can read a page.
    pub(crate) fn readers(&self, scope: &Scope) -> String {
        if !scope.is_wide() {
            return self.readers_of_one();
        }
        let anyone =
            if self.on_loopback { "anyone on this machine, or let in by a proxy," } else { "anyone" };
        let networks: Vec<String> = self.config.readers.iter().map(ToString::to_string).collect();
        let all = match (self.config.token.is_some(), networks.join(", ")) {
            (true, networks) if networks.is_empty() => "Visible with the operator's token".to_owned(),
            (true, networks) => format!("Visible with the operator's token, or from {networks}"),
            (false, networks) if networks.is_empty() => "Shown together on this machine alone".to_owned(),
            (false, networks) => format!("Shown together on this machine, and to {networks}"),
        };
        format!("{all}. Each inbox by itself can be read by {anyone} who knows its name.")
    }

    /// Returns a sentence that states who can read one inbox: the operator's own sentence, if configured.
    pub(crate) fn readers_of_one(&self) -> String {
        if self.on_loopback && self.config.warning == super::config::WARNING {
            "Anyone on this machine, or let in by a proxy, can read this inbox.".to_owned()
        } else {
            self.config.warning.clone()
        }
    }

    /// Returns the sentence of [`Self::readers_of_one`], reworded for a page that shows no inbox.
    pub(crate) fn readers_of_each(&self) -> String {
        self.readers_of_one().replace("this inbox", "each inbox")
    }

    /// Refuses a request with a host name that is not ours. Such a name may belong to a page that was rebound
    /// to our address (DNS rebinding), and whose scripts could read and change every inbox like those of our
    /// own page. An address and `localhost` cannot be the name of another page. A request without a host name
    /// (HTTP/1.0) does not come from a browser.
    pub(crate) fn check_host(&self, headers: &HeaderMap) -> Result<(), Fault> {
        let Some(host) = headers.get(header::HOST) else { return Ok(()) };
        let name = host.to_str().map(host_name).unwrap_or_default();
        let ours = is_local_name(name)
            || self.config.http_hosts.iter().any(|own| own == "*" || own.eq_ignore_ascii_case(name));
        if ours {
            return Ok(());
        }
        self.counters.add(Counter::ForeignHosts, 1);
        let hosts = &self.config.http_hosts;
        let mut named =
            hosts.iter().take(HOSTS_NAMED_MAX).map(|own| format!(", `{own}`")).collect::<String>();
        if hosts.len() > HOSTS_NAMED_MAX {
            named.push_str(" and others");
        }
        let name = crate::render::cut(name, 100).to_owned();
        Err(Fault::ForeignHost { name, named })
    }

    /// Refuses a change that a page of another site requests; every request is checked before it is handled.
    pub(crate) fn check_change(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Fault> {
        let refused = match (method.is_safe(), asks_to_delete(uri)) {
            (false, _) => asker(headers) == RequestInitiator::AnotherSite,
            (true, true) => asker(headers) != RequestInitiator::OwnPageOrProgram || is_for_a_picture(headers),
            (true, false) => false,
        };
        if refused { self.refuse_foreign() } else { Ok(()) }
    }

    /// Refuses requests that pages of other sites make, regardless of the method.
    pub(crate) fn check_asker(&self, headers: &HeaderMap) -> Result<(), Fault> {
        if asker(headers) == RequestInitiator::AnotherSite { self.refuse_foreign() } else { Ok(()) }
    }

    fn refuse_foreign(&self) -> Result<(), Fault> {
        self.counters.add(Counter::ForeignWrites, 1);
        Err(Fault::ForeignWrite)
    }
}

/// Source of a request: the peer of the connection, and the client that it names if it is a trusted proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSource {
    pub(crate) peer: Peer,
    pub(crate) asker: IpAddr,
}

impl RequestSource {
    /// Reads the peer and the client from a request's extensions.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let peer = extensions.get().map_or(super::scope::NOBODY, |ConnectInfo(peer)| *peer);
        let asker = extensions.get::<httpd::Client>().map_or(peer.0.ip(), |client| client.0);
        Self { peer, asker }
    }

    /// Returns whether an untrusted proxy states that it forwards the request.
    fn is_spoken_for(&self, headers: &HeaderMap) -> bool {
        self.asker == self.peer.0.ip() && through_a_proxy(headers)
    }
}

/// Initiator of a request, as far as the request's headers show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestInitiator {
    /// Our own page, the person at the browser, or a program that is not a browser.
    OwnPageOrProgram,
    /// A page of another origin.
    AnotherSite,
    /// A browser that does not reveal the initiator: a GET has no `Origin`, and has `Sec-Fetch-Site` only if
    /// its address is trustworthy (https, and this machine; Fetch Metadata, 2).
    UntoldBrowser,
}

/// Determines the [`RequestInitiator`] of a request.
pub(crate) fn asker(headers: &HeaderMap) -> RequestInitiator {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text(HeaderName::from_static("sec-fetch-site")) {
        return match site {
            "same-origin" | "none" => RequestInitiator::OwnPageOrProgram,
            _ => RequestInitiator::AnotherSite,
        };
    }
    if let Some(origin) = text(header::ORIGIN) {
        let host = origin.split_once("://").map_or(origin, |(_, host)| host);
        return match text(header::HOST) == Some(host) {
            true => RequestInitiator::OwnPageOrProgram,
            false => RequestInitiator::AnotherSite,
        };
    }
    // Every browser's user agent begins with this, and no page can change it in a request without a CORS
    // preflight.
    match text(header::USER_AGENT) {
        Some(name) if name.starts_with("Mozilla/") => RequestInitiator::UntoldBrowser,
        _ => RequestInitiator::OwnPageOrProgram,
    }
}

/// Returns whether a browser fetches a subresource of a page, such as a picture. A mail's frame has our
/// origin, but the reader did not choose the pictures that a mail names. Requests of our script have the
/// destination `empty`, links `document`.
fn is_for_a_picture(headers: &HeaderMap) -> bool {
    headers
        .get(HeaderName::from_static("sec-fetch-dest"))
        .is_some_and(|dest| dest != "document" && dest != "empty")
}

/// Returns whether a query has `delete=`, which lists, mails and waits accept.
fn asks_to_delete(uri: &Uri) -> bool {
    // Decoded as in the handlers: `%64elete` is `delete`.
    match Query::<Vec<(String, String)>>::try_from_uri(uri) {
        Ok(Query(pairs)) => pairs.iter().any(|(name, _)| name == "delete"),
        Err(_) => true,
    }
}

/// Returns all tokens in a request.
fn given(headers: &HeaderMap, query: Option<&str>) -> Vec<String> {
    let mut given = Vec::new();
    if let Some(value) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) {
        match value.split_once(' ') {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer") => {
                given.push(rest.trim().to_owned())
            }
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("basic") => {
                let decoded =
                    BASE64_STANDARD.decode(rest.trim()).ok().and_then(|b| String::from_utf8(b).ok());
                given
                    .extend(decoded.and_then(|d| d.split_once(':').map(|(_, password)| password.to_owned())));
            }
            _ => given.push(value.to_owned()),
        }
    }
    for pair in query.unwrap_or_default().split('&') {
        if let Some(value) = pair.strip_prefix("token=") {
            given.push(percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned());
        }
    }
    given
}

/// Returns whether the request has a header that proxies or proxy services add.
fn through_a_proxy(headers: &HeaderMap) -> bool {
    const NAMES: [&str; 7] = [
        "forwarded",
        "via",
        "x-real-ip",
        "x-client-ip",
        "true-client-ip",
        "cf-connecting-ip",
        "x-original-host",
    ];
    headers.keys().any(|name| name.as_str().starts_with("x-forwarded-") || NAMES.contains(&name.as_str()))
}

fn is_this_machine(headers: &HeaderMap, peer: Peer) -> bool {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    peer.0.ip().is_loopback() && !through_a_proxy(headers) && is_this_machines_name(host_name(host))
}

/// Returns whether the name refers to this machine only: `localhost` (RFC 6761, 6.3), or a loopback or
/// unspecified address.
pub(crate) fn is_this_machines_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback() || address.is_unspecified())
}

/// Returns a `Host` without its port, and without a dot at the end of the name.
pub(crate) fn host_name(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

/// Returns whether the name is an address, or `localhost` (RFC 6761, 6.3).
fn is_local_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_comes_in_four_ways() {
        let secret = "0123456789abcdef";
        for (pairs, query) in [
            (&[("authorization", secret)][..], None),
            (&[("authorization", "Bearer 0123456789abcdef")], None),
            (&[("authorization", "Basic YW55b25lOjAxMjM0NTY3ODlhYmNkZWY=")], None),
            (&[], Some("x=1&token=0123456789abcdef")),
        ] {
            assert!(
                given(&headers(pairs), query).iter().any(|g| Token::new(secret).unwrap().is(g)),
                "{pairs:?}"
            );
        }
        assert!(Token::new("short").is_err());
        assert_eq!(format!("{:?}", Token::new(secret).unwrap()), "Token(…)");
    }

    #[test]
    fn the_refusal_names_what_would_let_them_in() {
        let fault = Fault::OnlyFromHere("172.18.0.3".parse().unwrap()).to_string();
        assert!(fault.contains("--mail-readers") && fault.contains("172.18.0.3"), "{fault}");
    }

    #[test]
    fn the_guide_has_the_table() {
        let guide = include_str!("../../../../../docs/guide/mail.md");
        for (who, one, all) in WHO_SEES {
            let row = format!("| {who} | {one} | {all} |");
            assert!(guide.contains(&row), "{row}");
        }
    }

    #[test]
    fn only_this_machine_is_this_machine() {
        let here = Peer("127.0.0.1:5".parse().unwrap());
        let there = Peer("192.0.2.1:5".parse().unwrap());
        let from = |pairs: &[(&'static str, &str)], peer| is_this_machine(&headers(pairs), peer);
        assert!(from(&[("host", "localhost:8025")], here));
        assert!(from(&[("host", "[::1]:8025")], here));
        assert!(from(&[("host", "127.0.0.1")], here));
        assert!(!from(&[("host", "localhost")], there));
        assert!(from(&[("host", "0.0.0.0:8025")], here));
        assert!(!from(&[("host", "rebound.test:8025")], here));
        assert!(!from(&[("host", "192.0.2.7:8025")], here), "a visitor of a proxy's address");
        assert!(!from(&[("host", "localhost"), ("x-forwarded-proto", "https")], here));
        assert!(!from(&[("host", "localhost"), ("x-forwarded-for", "192.0.2.1")], here));
        assert!(!from(&[], here));
    }
}
