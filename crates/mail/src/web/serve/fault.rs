//! Errors of requests, and the table that maps them to replies.

use std::net::IpAddr;

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use crate::{mailbox::mailboxes::Unavailable, search::QueryFault, smtp::address::AddressFault};

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

/// Error of a request, shown as a page to people and as JSON to programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("no such page")]
    NoSuchPage,
    #[error("this page does not support the request's method")]
    NoSuchMethod,
    #[error("no such mail: it was deleted, has expired, or never arrived")]
    NoSuchMail,
    #[error("the mail has no such part")]
    NoSuchPart,
    #[error("invalid address: {0}")]
    NotAnAddress(AddressFault),
    #[error("{0}")]
    Query(QueryFault),
    #[error("{0}")]
    Bad(String),
    #[error("{0}")]
    TimedOut(String),
    #[error("the token is required to see more than one inbox")]
    TokenNeeded,
    #[error("only this machine and the networks in --mail-readers may see more than one inbox; {0} may not")]
    OnlyFromHere(IpAddr),
    #[error(
        "a proxy on this machine sends no client address ({0}), so the token is required to see more than one inbox"
    )]
    BehindProxy(String),
    #[error("the change was sent by another site's page")]
    ForeignWrite,
    #[error(
        "`{name}` is not a host name of this service; it answers to addresses, `localhost`{named} (--http-hosts)"
    )]
    ForeignHost {
        name: String,
        /// Names that the operator configured, each preceded by a comma.
        named: String,
    },
    #[error("not supported: {0}")]
    NotDone(&'static str),
    #[error("{0}")]
    Busy(&'static str),
    #[error("the memory for requests and answers is used up (http-bytes-max)")]
    NoRoom,
    #[error("{0}")]
    TooMany(&'static str),
    #[error("the body has more than {0} bytes")]
    TooLarge(usize),
    #[error("{0}")]
    Store(Unavailable),
    #[error("internal error: the request could not be completed")]
    Broken,
}

impl From<Unavailable> for Fault {
    fn from(unavailable: Unavailable) -> Self {
        match unavailable {
            Unavailable::NoRoom => Self::NoRoom,
            other => Self::Store(other),
        }
    }
}

impl From<QueryFault> for Fault {
    fn from(fault: QueryFault) -> Self {
        Self::Query(fault)
    }
}

impl Fault {
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchPage | Self::NoSuchMail | Self::NoSuchPart | Self::TimedOut(_) => {
                StatusCode::NOT_FOUND
            }
            Self::NoSuchMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::NotAnAddress(_) | Self::Query(_) | Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::TokenNeeded => StatusCode::UNAUTHORIZED,
            Self::OnlyFromHere(_) | Self::BehindProxy(_) | Self::ForeignWrite => StatusCode::FORBIDDEN,
            Self::NotDone(_) => StatusCode::NOT_IMPLEMENTED,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::ForeignHost { .. } => StatusCode::MISDIRECTED_REQUEST,
            Self::Store(Unavailable::Refused(_)) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Store(Unavailable::TooOften(_)) => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy(_) | Self::NoRoom | Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the heading of the error page.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::NoSuchPage | Self::NoSuchMethod => "No such page",
            Self::NoSuchMail => "This mail is gone",
            Self::NoSuchPart => "No such part",
            Self::NotAnAddress(_) => "Invalid address",
            Self::Query(_) | Self::Bad(_) => "The request cannot be understood",
            Self::TimedOut(_) => "Nothing came",
            Self::TokenNeeded | Self::OnlyFromHere(_) | Self::BehindProxy(_) | Self::ForeignWrite => {
                "Not allowed"
            }
            Self::NotDone(_) => "Not supported",
            Self::Store(Unavailable::Refused(_)) => "The mail was not accepted",
            Self::Store(Unavailable::TooOften(_)) => "Too often",
            Self::Busy(_) | Self::NoRoom | Self::TooMany(_) => "Too busy",
            Self::TooLarge(_) => "Too large",
            Self::ForeignHost { .. } => "Unknown host name",
            Self::Store(_) => "The mail cannot be read now",
            Self::Broken => "The request failed",
        }
    }

    /// Returns advice to the reader, which also says whether the reader or the server is at fault.
    pub(super) fn advice(&self) -> &'static str {
        match self {
            Self::NoSuchPage | Self::NoSuchMethod | Self::NoSuchPart => {
                "Check the address in the browser's address bar."
            }
            Self::NoSuchMail => "Ask the sender to send it again.",
            Self::NotAnAddress(_) => {
                "An address is a name, optionally with @ and a domain: ann, or ann@example.org."
            }
            Self::Query(_) | Self::Bad(_) | Self::TooLarge(_) => "Change the request and send it again.",
            Self::TooMany(_) => "Wait until your other requests are answered.",
            Self::TimedOut(_) => "Try again, or wait longer.",
            Self::TokenNeeded => {
                "Log in with any name and the token as the password, or look at one inbox by its name."
            }
            Self::OnlyFromHere(_) => {
                "Look at one inbox by its name. The operator of this service can add your network with --mail-readers, \
                 or configure a token."
            }
            Self::BehindProxy(_) => {
                "Look at one inbox by its name. The operator of this service can configure a token (--token-file), or \
                 have the proxy send X-Forwarded-For, list it in --trusted-proxies and name readers with \
                 --mail-readers."
            }
            Self::ForeignWrite => "Do it on the inbox's own page.",
            Self::ForeignHost { .. } => {
                "Use the address, or localhost. The operator of this service can add the name with --http-hosts."
            }
            Self::NotDone(_) => "The API page lists what is supported.",
            Self::Store(Unavailable::Refused(_)) => "Change the mail and send it again.",
            Self::Store(Unavailable::TooOften(_)) => "Wait a minute, and send fewer requests.",
            Self::Busy(_) | Self::NoRoom => "The problem is on our side. Try again in a few seconds.",
            Self::Store(_) | Self::Broken => {
                "The problem is on our side. Try again in a minute; if it persists, tell the operator of this service \
                 the request's name."
            }
        }
    }

    /// Returns the table of access rules if the error refuses access to all mail; otherwise empty.
    pub(super) fn table(&self) -> &'static [(&'static str, &'static str, &'static str)] {
        match self {
            Self::TokenNeeded | Self::OnlyFromHere(_) | Self::BehindProxy(_) => &WHO_SEES,
            _ => &[],
        }
    }
}

/// Builds the JSON response; [`super::answer::request_middleware`] turns it into a page for browsers.
impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut said = serde_json::json!({ "error": self.to_string() });
        if !self.table().is_empty() {
            let rows = self.table().iter();
            said["all_mail_is_shown_to"] = rows.map(|(who, _, all)| serde_json::json!([who, all])).collect();
        }
        let mut response = (status, Json(said)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static("Basic realm=\"all inboxes: any name, the token as password\""),
            );
        }
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("2"));
        }
        // Rates are counted per minute.
        if status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
