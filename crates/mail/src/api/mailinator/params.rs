//! Parameters of Mailinator's operations: the inboxes that a path names, and booleans.

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, RawPathParams},
    http::request::Parts,
};
use serde::Deserialize;

use crate::{
    mailbox::mailboxes::{Mailboxes, Scope},
    smtp::address::fold_domain,
    web::serve::{app::App, fault::Fault, request_source::RequestSource},
};

/// Domain and optional inbox of a path. A request without access to them is refused.
pub(super) struct PathScope(pub(super) Scope);

impl<M: Mailboxes> FromRequestParts<Arc<App<M>>> for PathScope {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App<M>>) -> Result<Self, Fault> {
        let from = RequestSource::of(&parts.extensions);
        let params = RawPathParams::from_request_parts(parts, app).await.map_err(|_| Fault::NoSuchPage)?;
        let named = |wanted: &str| params.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
        let named_domain = named("domain").unwrap_or("public");
        let domain = match named_domain {
            "public" | "private" => app.config.domain.as_str().into(),
            name => fold_domain(name).map_err(Fault::NotAnAddress)?,
        };
        let scope = match named("inbox") {
            Some(inbox) => Scope::of(inbox, &domain).map_err(Fault::NotAnAddress)?,
            None => Scope::Prefix { local: "".into(), domain },
        };
        if scope.is_wide() || named_domain == "private" {
            app.check_wide(&parts.headers, parts.uri.query(), from)?;
        }
        Ok(Self(scope))
    }
}

/// A boolean parameter: `true` as JavaScript and Python write it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Flag(pub(super) bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(Self(matches!(text.as_str(), "true" | "True" | "1" | "yes")))
    }
}
