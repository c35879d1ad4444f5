//! Scope of mails that a path names.
//!
//! `ann@example.org` is an inbox, `ann` is one at the service's own domain, `ann*@example.org` are all
//! inboxes of that domain with this prefix, `*@example.org` is the whole domain, `*@*` is all mail. A star
//! within quotes is an ordinary character.

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

/// Characters that are percent-encoded in a path segment (RFC 3986, 3.3).
const SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'@').remove(b'.').remove(b'-').remove(b'_').remove(b'~').remove(b'*');

/// Encodes an address for a path.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

impl Scope {
    /// Parses the scope in a path.
    ///
    /// # Errors
    /// Returns an [`AddressFault`] if the address has a syntax error.
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

    /// Returns whether the scope may cover more than one inbox.
    pub(crate) fn is_wide(&self) -> bool {
        !matches!(self, Self::Inbox(_))
    }

    /// Returns the scope in the form used in paths.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Inbox(inbox) => inbox.to_string(),
            Self::Prefix { local, domain } => format!("{local}*@{domain}"),
            Self::All => "*@*".to_owned(),
        }
    }
}

/// Scope of a request: the `{address}` in its path, or all mail if the path has none. Requests without access
/// to the scope are refused.
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

/// Placeholder for an unknown peer: the unspecified address.
pub(crate) const NOBODY: Peer = Peer(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));

/// Parameters of the path; a path whose parameters cannot be parsed is not found.
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

/// Parameters of the query. Parameters that cannot be parsed give the same kind of JSON error as any other
/// fault.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Fault> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(queried)) => Ok(Self(queried)),
            Err(rejection) => {
                let why = std::error::Error::source(&rejection).map_or(String::new(), ToString::to_string);
                Err(Fault::Bad(format!("invalid parameter in the query: {why}")))
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
