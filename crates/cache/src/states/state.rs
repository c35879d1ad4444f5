//! States that a request passes through, as values: the next state, and its parameters.

use std::sync::Arc;

use crate::{
    body::{multipart_ranges::Plan, parts::InParts, slices::InBlocks},
    deliver::answer::Answer,
    error_page::Fault,
    fetch::in_flight::FetchTerms,
    head::response_head::{CacheStatus, Fwd},
    origin::OriginError,
    request::{Request, lookup_key::LookupKey},
    states::pipe::Pipe,
};

/// Freshness that a stored object needs to answer a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Objects that are fresh, or that may be served while they are refreshed.
    Fresh,
    /// Objects as for `Fresh`, and those that the origin has validated or sent just now.
    Validated,
    /// Objects as for `Fresh`, and those that may be served because the origin fails (RFC 5861 §4).
    StandIn,
}

/// Next state of a request that is not answered within its turn of the loop.
pub(crate) enum State {
    /// Fetch from the origin, for the store.
    Miss {
        /// Use of stored answers and of other requests' fetches.
        terms: FetchTerms,
        /// The client does not want the origin to be asked (RFC 9111 §5.2.1.7).
        only_if_cached: bool,
    },
    /// Pass to the origin, without the store; with a detail for Cache-Status.
    Pass(Option<&'static str>),
    /// Pass to the origin, for a WebSocket.
    Pipe,
    /// Send an object that is in the file, in parts.
    Parts(Box<PartsOnFile>),
    /// Send an object that is stored in slices.
    Blocks(Box<FoundInBlocks>),
    /// Decode an object first, because the client does not accept its coding.
    Decode(Box<DecodeFirst>),
    /// The budget forbids asking the origin for this client now: a stale object is served, or else this
    /// error.
    HeldBack(Fault),
    /// Drop the object, on the client's request.
    Purge,
    /// Redirect the client to https.
    ToHttps,
    /// Answer an ACME authority with this text, before it issues a certificate.
    Challenge(Arc<str>),
    /// Answer with one of our error pages.
    Synth(Fault),
    /// Answer for an origin that failed.
    OriginFailed(OriginError),
}

/// An object whose body is in the file, in parts.
pub(crate) struct PartsOnFile {
    /// Answer without its body.
    pub(crate) answer: Answer<'static>,
    /// Body of the answer.
    pub(crate) parts: InParts,
    /// The client does not want the origin to be asked, even if a part is missing.
    pub(crate) only_if_cached: bool,
}

/// An object whose body is stored in slices.
pub(crate) struct FoundInBlocks {
    /// Answer without its body.
    pub(crate) answer: Answer<'static>,
    /// Body of the answer.
    pub(crate) blocks: InBlocks,
    /// Plan for several ranges, if more than one is wanted.
    pub(crate) several: Option<Plan>,
    /// The client does not want the origin to be asked.
    pub(crate) only_if_cached: bool,
}

/// An object to look up again once it has been decoded.
pub(crate) struct DecodeFirst {
    /// Trust of the first lookup.
    pub(crate) trust: Trust,
    /// Value for Cache-Status, if it differs from that of a hit.
    pub(crate) said: Option<CacheStatus>,
    /// `Set-Cookie` lines of the 304 that validated the object, for this client only.
    pub(crate) set_cookie: Vec<u8>,
    /// Key of an object that is stale and must be refreshed in the background (RFC 5861 §3).
    pub(crate) refresh: Option<LookupKey>,
}

/// State of a request that is not a hit.
pub(crate) struct Slow {
    pub(crate) keyed: LookupKey,
    /// Next state.
    pub(crate) state: State,
    /// Reason for Cache-Status (RFC 9211).
    pub(crate) fwd: Fwd,
}

/// Result of running a state.
pub(crate) enum Step {
    /// Final answer.
    Answer(Box<Answer<'static>>),
    /// A WebSocket, open to the origin.
    Pipe(Box<Pipe>),
    /// The client is gone.
    Gone,
    /// Continue with another state.
    Then(State),
    /// Continue with another state, under another key: a variant's, or the primary one again.
    Under(Arc<Request>, State),
}
