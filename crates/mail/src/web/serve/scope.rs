//! Which mails a path is about.
//!
//! `ann@example.org` is an inbox, `ann` one at the service's own domain, `ann*@example.org` all inboxes of that domain
//! that begin so, `*@example.org` all of the domain, `*@*` everything. A star within quotes is a character.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use axum::{
    extract::{FromRequestParts, Path, Query, RawPathParams},
    http::request::Parts,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

use super::{access::RequestSource, answer::Fault, app::App, connections::Peer};
use crate::{
    mailbox::mailboxes::{Inbox, Mailboxes, Scope},
    smtp::address::{self, AddressFault, fold_domain},
};

/// What may stand in a segment of a path as it is (RFC 3986, 3.3), of what addresses have.
const SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'@').remove(b'.').remove(b'-').remove(b'_').remove(b'~').remove(b'*');

/// An address in a path.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

impl Scope {
    /// Reads what stands in a path.
    ///
    /// # Errors
    /// What is wrong with the address.
    pub(crate) fn of(text: &str, default_domain: &str) -> Result<Self, AddressFault> {
        let (local, domain) = match address::split(text) {
            Some((local, domain)) => (local, domain),
            None => (text, default_domain),
        };
        let Some(begin) = local.strip_suffix('*') else {
            return Inbox::of(text, default_domain).map(Self::Inbox);
        };
        if domain == "*" && begin.is_empty() {
            return Ok(Self::All);
        }
        Ok(Self::Prefix { local: begin.to_lowercase().into(), domain: fold_domain(domain)? })
    }

    /// More than one inbox.
    pub(crate) fn is_wide(&self) -> bool {
        !matches!(self, Self::Inbox(_))
    }

    /// As a path says it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Inbox(inbox) => inbox.to_string(),
            Self::Prefix { local, domain } => format!("{local}*@{domain}"),
            Self::All => "*@*".to_owned(),
        }
    }
}

/// The scope of a request whose path has an `{address}`, or everything if it has none; who may not see it is refused.
pub(crate) struct RequestScope(pub(crate) Scope);

impl<M: Mailboxes> FromRequestParts<Arc<App<M>>> for RequestScope {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App<M>>) -> Result<Self, Fault> {
        let from = RequestSource::of(&parts.extensions);
        let params = RawPathParams::from_request_parts(parts, app).await.map_err(|_| Fault::NoSuchPage)?;
        let address = params.iter().find(|(name, _)| *name == "address").map(|(_, value)| value);
        let scope = match address {
            Some(address) => Scope::of(address, &app.config.domain).map_err(Fault::NotAnAddress)?,
            None => Scope::All,
        };
        if scope.is_wide() {
            app.check_wide(&parts.headers, parts.uri.query(), from)?;
        }
        Ok(Self(scope))
    }
}

/// Who asks where that is not known: the unspecified address is nobody's.
pub(crate) const NOBODY: Peer = Peer(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));

/// Parameters of the path; a path that has others is no page of ours.
pub(crate) struct PathParams<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Fault> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(params)) => Ok(Self(params)),
            Err(_) => Err(Fault::NoSuchPage),
        }
    }
}

/// Parameters of the query; one that cannot be read is a fault like any other, in words and as JSON.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(queried)) => Ok(Self(queried)),
            Err(rejection) => {
                let why = std::error::Error::source(&rejection).map_or(String::new(), ToString::to_string);
                Err(Fault::Bad(format!("a parameter of the query cannot be read: {why}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_which_mails() {
        for (text, name, wide) in [
            ("Ann+x", "ann@night.test", false),
            ("ann@Example.org", "ann@example.org", false),
            ("An*", "an*@night.test", true),
            ("*", "*@night.test", true),
            ("*@example.org", "*@example.org", true),
            ("*@*", "*@*", true),
            ("a*b@example.org", "a*b@example.org", false),
            ("\"An*\"", "\"an*\"@night.test", false),
            ("\"a@b\"@example.org", "\"a@b\"@example.org", false),
        ] {
            let scope = Scope::of(text, "night.test").unwrap();
            assert_eq!((&*scope.name(), scope.is_wide()), (name, wide), "{text}");
        }
        assert!(Scope::of("x*@*", "night.test").is_err());
        assert_eq!(segment("grüße/a b@x.test"), "gr%C3%BC%C3%9Fe%2Fa%20b@x.test");
    }
}
