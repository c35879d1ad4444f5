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
//! [`super::fault::WHO_SEES`] states the same rules as they appear on pages, in refusals and in the guide.
//!
//! Changes that a page of another site makes a browser send are refused (`Sec-Fetch-Site`, `Origin`). A
//! request that changes something counts as a change whatever its method: Mailinator's clients delete by `GET
//! …?delete=1m`, and any page can make a browser send a GET to any address (`<img src=…>`).

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, Query, Request},
    http::{HeaderMap, Method, Uri, header, request::Parts},
};

use super::{
    app::App,
    counters::Counter,
    fault::Fault,
    request_source::{
        RequestInitiator, RequestSource, asker, host_name, is_for_a_picture, is_local_name, is_this_machine,
    },
    silent_proxy::{NoteOutcome, ProxySign},
    token,
};
use crate::mailbox::mailboxes::{Mailboxes, Scope};

/// Maximum number of this service's host names that a refusal lists.
const HOSTS_NAMED_MAX: usize = 10;

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
            Some(token) => token::given(headers, query).iter().any(|guess| token.is(guess)),
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
        let is_here = from.is_here();
        let has_rights = (is_here && self.config.token.is_none())
            || self.config.readers.iter().any(|network| network.contains(from.asker));
        if !has_rights || from.is_spoken_for(headers) {
            return;
        }
        let Some(sign) = ProxySign::of(request.version(), headers, from) else { return };
        self.counters.add(
            match sign {
                ProxySign::Http10 => Counter::ProxySignsHttp10,
                ProxySign::OtherHost { .. } => Counter::ProxySignsHost,
            },
            1,
        );
        match self.silent_proxies.remember_proxy(from.asker, &sign) {
            NoteOutcome::New if is_here => tracing::warn!(
                "a proxy on this machine sends no client address ({sign}): without a token, this machine may not read all \
                 mail until a restart; set token-file, or let the proxy send X-Forwarded-For and list it in \
                 trusted-proxies"
            ),
            NoteOutcome::New => tracing::warn!(
                address = %from.asker,
                "a proxy in mail-readers sends no client address ({sign}): it may not read all mail until a restart; \
                 let it send X-Forwarded-For and list it in trusted-proxies"
            ),
            NoteOutcome::Full => {
                self.counters.add(Counter::ProxiesFull, 1);
                tracing::warn!(
                    "too many proxies in mail-readers send no client address: until a restart, mail-readers admits no \
                     machine but this one"
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

/// Returns whether a query has `delete=`, which lists, mails and waits accept.
fn asks_to_delete(uri: &Uri) -> bool {
    // Decoded as in the handlers: `%64elete` is `delete`.
    match Query::<Vec<(String, String)>>::try_from_uri(uri) {
        Ok(Query(pairs)) => pairs.iter().any(|(name, _)| name == "delete"),
        Err(_) => true,
    }
}
