//! Scope of mails that a path names.
//!
//! `ann@example.org` is an inbox, `ann` is one at the service's own domain, `ann*@example.org` are all
//! inboxes of that domain with this prefix, `*@example.org` is the whole domain, `*@*` is all mail. A star
//! within quotes is an ordinary character.

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, RawPathParams},
    http::request::Parts,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{app::App, fault::Fault, request_source::RequestSource};
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
