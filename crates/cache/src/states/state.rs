//! The states that a request passes through, as values: which one comes next, and with what.

use std::sync::Arc;

use crate::{
    body::{multipart_ranges::Plan, parts::InParts, slices::InBlocks},
    deliver::answer::Answer,
    error_page::Fault,
    head::response_head::{CacheStatus, Fwd},
    origin::OriginError,
    request::{Request, lookup_key::LookupKey},
    states::pipe::Pipe,
};

/// What of the store answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// What is fresh, or may be shown while it is fetched anew.
    Fresh,
    /// What the origin has validated or sent just now, too.
    Validated,
    /// What may be shown because the origin fails, too (RFC 5861 §4).
    StandIn,
}

/// What a request that is not answered within its turn goes on to.
pub(crate) enum State {
    /// To the origin, for the store.
    Miss {
        /// What is stored must not be used.
        anew: bool,
        /// It was not storable the last time: nobody waits for what comes.
        alone: bool,
        /// The client wants nothing from the origin (RFC 9111 §5.2.1.7).
        only_if_cached: bool,
    },
    /// To the origin, past the store; with a word for Cache-Status.
    Pass(Option<&'static str>),
    /// To the origin, for a WebSocket.
    Pipe,
    /// It is on the file, in parts.
    Parts(Box<PartsOnFile>),
    /// It is in blocks.
    Blocks(Box<FoundInBlocks>),
    /// It is stored in a coding that the client does not accept, and has to be decoded first.
    Decode(Box<DecodeFirst>),
    /// Its origin is not to be asked for such a visitor now: what is stored is shown although it is stale, else this.
    HeldBack(Fault),
    /// The client wants the object dropped.
    Purge,
    /// The client is to come by https.
    ToHttps,
    /// An authority asks for this, before it gives a certificate.
    Challenge(Arc<str>),
    /// We answer by ourselves.
    Synth(Fault),
    /// The origin failed.
    OriginFailed(OriginError),
}

/// An object whose body is on the file in parts.
pub(crate) struct PartsOnFile {
    /// The answer, but for its body.
    pub(crate) answer: Answer<'static>,
    /// The body.
    pub(crate) parts: InParts,
    /// The client wants nothing from the origin, should a part be missing.
    pub(crate) only_if_cached: bool,
}

/// An object whose body is in blocks.
pub(crate) struct FoundInBlocks {
    /// The answer, but for its body.
    pub(crate) answer: Answer<'static>,
    /// The body.
    pub(crate) blocks: InBlocks,
    /// More of its ranges are wanted than the first.
    pub(crate) several: Option<Plan>,
    /// The client wants nothing from the origin.
    pub(crate) only_if_cached: bool,
}

/// An object that is to be looked up once more when it has been decoded.
pub(crate) struct DecodeFirst {
    /// As it was looked up.
    pub(crate) trust: Trust,
    /// What Cache-Status says of it, where that is not what it says of a hit.
    pub(crate) said: Option<CacheStatus>,
    /// `Set-Cookie` lines of the 304 that validated it, for this client alone.
    pub(crate) set_cookie: Vec<u8>,
    /// It is stale, and to be fetched anew beside (RFC 5861 §3).
    pub(crate) refresh: Option<LookupKey>,
}

/// What is known of a request that is not a hit.
pub(crate) struct Slow {
    pub(crate) keyed: LookupKey,
    /// How it goes on.
    pub(crate) state: State,
    /// What Cache-Status says of it (RFC 9211).
    pub(crate) fwd: Fwd,
}

/// What a state came to.
pub(crate) enum Step {
    /// The answer.
    Answer(Box<Answer<'static>>),
    /// A WebSocket, open to the origin.
    Pipe(Box<Pipe>),
    /// The client is gone.
    Gone,
    /// Another state.
    Then(State),
    /// Another state, under another key: that of a variant, or of one no longer.
    Under(Arc<Request>, State),
}
