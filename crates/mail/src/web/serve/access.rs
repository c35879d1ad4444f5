//! Who may see more than one inbox at a time, and who may change something.
//!
//! One inbox is public: whoever knows its name may read and empty it, as every page says. What shows many at once (a
//! prefix, a domain, everything) would show people's mail to who could not have named it:
//! - with a token configured, it needs the token (`Authorization: TOKEN`, `Bearer TOKEN`, Basic with the token as the
//!   password, or `?token=`);
//! - without one, only this machine may ask: the peer is loopback, no field names a proxy, no silent proxy was noticed
//!   ([`super::silent_proxy`]), and the `Host` is a loopback address or `localhost` (a page whose name was rebound to
//!   127.0.0.1 sends its own name);
//! - an address in a network of `mail-readers` may ask, with a token or without, under one of our names. Behind a
//!   trusted proxy the address that the proxy names counts; behind any other proxy none does.
//!
//! [`WHO_SEES`] has the same rules in the words that pages, refusals and the guide show.
//!
//! Changes that a browser sends on behalf of another site's page are refused (`Sec-Fetch-Site`, `Origin`). A change is
//! what changes something, whatever its method: Mailinator's clients delete by `GET …?delete=1m`, and any page can have
//! a browser send a GET to anywhere (`<img src=…>`).

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

/// Names of this service that a refusal tells.
const HOSTS_NAMED_MAX: usize = 10;
/// A shorter token can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

/// The table of who sees what, on any listening address: the client, one inbox, all mail together. A test compares the
/// guide's table with this one.
pub(crate) const WHO_SEES: [(&str, &str, &str); 5] = [
    (
        "this machine, by 127.0.0.1, ::1 or localhost",
        "yes",
        "yes, if no token is configured and no proxy was noticed that does not say for whom it asks",
    ),
    ("whoever has the token (token-file)", "yes", "yes"),
    (
        "an address in mail-readers",
        "yes",
        "yes, if it was not noticed to be a proxy that does not say for whom it asks",
    ),
    ("an address that a proxy in trusted-proxies names", "yes", "if that address is in mail-readers"),
    ("any other address, and whoever comes through another proxy", "yes", "no"),
];

/// A secret. It has no `Debug` that shows it and is never logged.
#[derive(Clone)]
pub struct Token(Arc<str>);

/// The token is shorter than 16 characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token is shorter than {TOKEN_BYTES_MIN} characters, so it can be guessed")]
pub struct TokenTooShort;

impl Token {
    /// Takes a secret.
    ///
    /// # Errors
    /// It is too short.
    pub fn new(secret: &str) -> Result<Self, TokenTooShort> {
        if secret.len() < TOKEN_BYTES_MIN { Err(TokenTooShort) } else { Ok(Self(secret.into())) }
    }

    /// Compares without telling by the time taken where a guess goes wrong; its length is no secret.
    fn is(&self, guess: &str) -> bool {
        self.0.as_bytes().ct_eq(guess.as_bytes()).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Whether the page says where all mail is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllMail {
    /// Whoever asks may see it.
    Shown,
    /// Whoever has the token may.
    ByToken,
    /// This machine would see it, but a proxy on this machine asks for others.
    BehindProxy,
    Hidden,
}

impl AllMail {
    pub(crate) fn is_shown(self) -> bool {
        matches!(self, Self::Shown | Self::ByToken)
    }

    /// Returns whether the page says why all mail is not shown.
    pub(crate) fn is_closed(self) -> bool {
        self == Self::BehindProxy
    }

    /// Who may see it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Shown => "of all inboxes, newest first",
            Self::ByToken => "for who has the operator's token",
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
    /// Whether this request may see more than one inbox.
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

    /// The same as an answer, for a page that shows a way there or not.
    pub(crate) fn may_see_all(&self, headers: &HeaderMap, query: Option<&str>, from: RequestSource) -> bool {
        let is_known = match &self.config.token {
            Some(token) => given(headers, query).iter().any(|guess| token.is(guess)),
            None => is_this_machine(headers, from.peer) && !self.silent_proxies.has(from.asker),
        };
        is_known || self.is_reader(headers, from)
    }

    /// Whether who asks is in a network of readers.
    fn is_reader(&self, headers: &HeaderMap, from: RequestSource) -> bool {
        // A proxy that is not believed may speak for anybody, whatever network it is in.
        !from.is_spoken_for(headers)
            && self.config.readers.iter().any(|network| network.contains(from.asker))
            && !self.silent_proxies.has(from.asker)
    }

    /// Returns whether this machine would see all mail but for a proxy that was noticed.
    fn is_closed_to(&self, from: RequestSource) -> bool {
        from.peer.0.ip().is_loopback() && self.silent_proxies.has(from.asker)
    }

    /// Describes the first sign of a proxy on this machine; empty if there is none.
    pub(crate) fn why_closed(&self) -> String {
        self.silent_proxies.why_here().map(ToString::to_string).unwrap_or_default()
    }

    /// Looks for signs of a silent proxy in a request whose address has rights to all mail: a proxy would give these
    /// rights to strangers.
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
        match self.silent_proxies.note(from.asker, &sign) {
            NoteOutcome::New if is_here => tracing::warn!(
                "a proxy on this machine passes requests to the mail pages and does not say for whom ({sign}): all mail \
                 together is closed to this machine until a restart; set token-file, or have the proxy send \
                 X-Forwarded-For and list it in trusted-proxies"
            ),
            NoteOutcome::New => tracing::warn!(
                address = %from.asker,
                "an address in mail-readers is a proxy that does not say for whom it asks ({sign}): it is no reader until a \
                 restart; have the proxy send X-Forwarded-For and list it in trusted-proxies"
            ),
            NoteOutcome::Full => {
                self.counters.add(Counter::ProxiesFull, 1);
                tracing::warn!(
                    "too many proxies in mail-readers do not say for whom they ask: only addresses that a trusted proxy \
                     names are readers until a restart"
                );
            }
            NoteOutcome::Known => {}
        }
    }

    /// Who can read what a page shows, in words.
    pub(crate) fn readers(&self, scope: &Scope) -> String {
        if !scope.is_wide() {
            return self.readers_of_one();
        }
        let anyone =
            if self.on_loopback { "anyone on this machine, or let in by a proxy," } else { "anyone" };
        let networks: Vec<String> = self.config.readers.iter().map(ToString::to_string).collect();
        let all = match (self.config.token.is_some(), networks.join(", ")) {
            (true, networks) if networks.is_empty() => "Seen with the operator's token".to_owned(),
            (true, networks) => format!("Seen with the operator's token, or from {networks}"),
            (false, networks) if networks.is_empty() => "Shown together on this machine alone".to_owned(),
            (false, networks) => format!("Shown together on this machine, and to {networks}"),
        };
        format!("{all}. Each inbox by itself can be read by {anyone} who knows its name.")
    }

    /// Who can read one inbox: in the operator's own words, if he has any.
    pub(crate) fn readers_of_one(&self) -> String {
        if self.on_loopback && self.config.warning == super::config::WARNING {
            "Anyone on this machine, or let in by a proxy, can read this inbox.".to_owned()
        } else {
            self.config.warning.clone()
        }
    }

    /// The same, where no inbox is shown.
    pub(crate) fn readers_of_each(&self) -> String {
        self.readers_of_one().replace("this inbox", "each inbox")
    }

    /// Refuses what was asked for by a name that is not ours: the name of a page that was rebound to our address
    /// (DNS rebinding), whose scripts could read and change every inbox as if they were our own page's. An address and
    /// `localhost` are no names that another page can have. What says no name at all (HTTP/1.0) is no browser.
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

    /// Refuses a change that another site's page asks for; every request comes by here before it is carried out.
    pub(crate) fn check_change(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Fault> {
        let refused = match (method.is_safe(), asks_to_delete(uri)) {
            (false, _) => asker(headers) == RequestInitiator::AnotherSite,
            (true, true) => asker(headers) != RequestInitiator::OwnPageOrProgram || is_for_a_picture(headers),
            (true, false) => false,
        };
        if refused { self.refuse_foreign() } else { Ok(()) }
    }

    /// Refuses what only our own pages and programs may ask for, whatever its method.
    pub(crate) fn check_asker(&self, headers: &HeaderMap) -> Result<(), Fault> {
        if asker(headers) == RequestInitiator::AnotherSite { self.refuse_foreign() } else { Ok(()) }
    }

    fn refuse_foreign(&self) -> Result<(), Fault> {
        self.counters.add(Counter::ForeignWrites, 1);
        Err(Fault::ForeignWrite)
    }
}

/// Who asks: the other end of the connection, and whom it asks for where that is a proxy that is believed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSource {
    pub(crate) peer: Peer,
    pub(crate) asker: IpAddr,
}

impl RequestSource {
    /// Reads the peer and the asker from a request's extensions.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let peer = extensions.get().map_or(super::scope::NOBODY, |ConnectInfo(peer)| *peer);
        let asker = extensions.get::<httpd::Client>().map_or(peer.0.ip(), |client| client.0);
        Self { peer, asker }
    }

    /// Returns whether a proxy that is not trusted says that it asks for somebody.
    fn is_spoken_for(&self, headers: &HeaderMap) -> bool {
        self.asker == self.peer.0.ip() && through_a_proxy(headers)
    }
}

/// Who wants a request to be sent, as far as its headers tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestInitiator {
    /// Our own page, the person in front of the browser, or a program that is none.
    OwnPageOrProgram,
    /// A page of another origin.
    AnotherSite,
    /// A browser that does not say for whom: with a GET it sends no `Origin`, and `Sec-Fetch-Site` only to addresses
    /// that it trusts (https, and this machine; Fetch Metadata, 2).
    UntoldBrowser,
}

/// See [`RequestInitiator`].
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
    // Every browser's name begins so, and no page can change it in a request that needs no permission before.
    match text(header::USER_AGENT) {
        Some(name) if name.starts_with("Mozilla/") => RequestInitiator::UntoldBrowser,
        _ => RequestInitiator::OwnPageOrProgram,
    }
}

/// Whether a browser says that it fetches a part of a page: the frame of a mail is of our origin, and what a mail names as
/// a picture is no wish of the reader's. Our script's requests are `empty`, a link's `document`.
fn is_for_a_picture(headers: &HeaderMap) -> bool {
    headers
        .get(HeaderName::from_static("sec-fetch-dest"))
        .is_some_and(|dest| dest != "document" && dest != "empty")
}

/// Whether a query has `delete=`, as lists, mails and waits take it.
fn asks_to_delete(uri: &Uri) -> bool {
    // Decoded as the handlers decode it: `%64elete` is `delete`.
    match Query::<Vec<(String, String)>>::try_from_uri(uri) {
        Ok(Query(pairs)) => pairs.iter().any(|(name, _)| name == "delete"),
        Err(_) => true,
    }
}

/// All tokens that a request brings.
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

/// Returns whether a proxy says that it stands between, in any of the fields that proxies and their services add.
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

/// Returns whether only this machine has the name for itself: `localhost` (RFC 6761, 6.3), or an address that leads
/// nowhere else.
pub(crate) fn is_this_machines_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback() || address.is_unspecified())
}

/// A `Host` without its port, and without the dot that may end a name.
pub(crate) fn host_name(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

/// An address, or this machine's own name (RFC 6761, 6.3).
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
