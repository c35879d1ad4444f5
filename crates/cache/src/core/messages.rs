//! Messages between cores, and how long a core waits to hand one over.

use crate::{
    admin::{explanation::Question, last_clients::LastClient, objects},
    client::accepted::Accepted,
    coding::Coding,
    encoding::codec_pool::Reply,
    fetch::in_flight::FetchRequest,
    purging::{bans::BanSeen, invalidations::Invalidation},
    request::{Request, active_config::ActiveConfig},
};
use engine::store::{Hash, META_WORDS};
use std::{sync::Arc, time::Duration};
use tokio::sync::oneshot;

/// How long who has something done by another core, and may wait, waits for room in the ring to it.
pub(crate) const RING_WAIT_MAX: Duration =
    if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(5) };
/// How often it looks whether there is some.
pub(crate) const RING_PAUSE: Duration = Duration::from_millis(1);

/// A core could not be asked to do something, and has not done it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CoreBusy;

/// What cores say to each other.
pub(crate) enum Message {
    /// To the owner of the key: fetch this, or let us follow the fetch that is under way.
    Fetch(Box<FetchRequest>),
    /// To the owner of the key: forget this object.
    Unlink {
        /// Hash of the key.
        hash: Hash,
        /// The key.
        key: Vec<u8>,
        /// It is a purge, which the owner counts.
        is_purge: bool,
        /// The answer is sent only when the object cannot come back, even if the file must be read first.
        lasting: bool,
        /// The channel for the answer.
        done: oneshot::Sender<UnlinkOutcome>,
    },
    /// To the owner of the key: this object has lost a part of its body.
    LostPart {
        /// Hash of the key.
        hash: Hash,
        /// The key.
        key: Vec<u8>,
        /// Which of the objects with this key.
        id: u64,
    },
    /// To the owner of the key: store this answer.
    Put(Box<StoreRequest>),
    /// To the owner of the key: have this coded, or decoded.
    Code(Box<ToCode>),
    /// To the owner of the key: this is what the origin has now.
    Heard(Box<HeadAnswer>),
    /// To each core: this was purged, by a tag, softly, or all of it.
    Invalidate {
        /// The purge.
        invalidation: Arc<Invalidation>,
        /// It was asked for from outside, and this core counts it.
        is_purge: bool,
        /// The channel for the answer that it has been taken in.
        done: oneshot::Sender<()>,
    },
    /// To any core: which bans are kept?
    Bans(oneshot::Sender<Vec<BanSeen>>),
    /// To the owner of the key: say what would become of this request. Nothing is changed by that.
    Explain(Box<Question>),
    /// To any core: whom did this object answer last?
    LastClient { hash: Hash, reply: oneshot::Sender<Option<LastClient>> },
    /// To any core: what is stored there?
    Objects(Box<objects::Step>),
    /// To each core: this is in force from now on.
    ActiveConfig { in_force: Arc<ActiveConfig>, done: oneshot::Sender<()> },
    /// A connection that another core had too many of.
    Accept(std::net::TcpStream, Accepted),
}

/// An answer on its way to the core that owns its key.
pub(crate) struct StoreRequest {
    pub(crate) hash: Hash,
    pub(crate) key: Vec<u8>,
    pub(crate) head: Vec<u8>,
    pub(crate) extra: Vec<u8>,
    pub(crate) meta: [u64; META_WORDS],
    pub(crate) body: Vec<u8>,
    pub(crate) expires_s: u32,
}

/// An object of which somebody wants a twin ([`encoded_variants`](crate::encoding::encoded_variants)).
pub(crate) struct ToCode {
    pub(crate) hash: Hash,
    pub(crate) key: Vec<u8>,
    pub(crate) coding: Coding,
    /// Who waits for it.
    pub(crate) reply: Option<Reply>,
}

/// The origin's answer about an object to a HEAD that was passed ([`head_validation`](crate::states::head_validation)).
pub(crate) struct HeadAnswer {
    pub(crate) request: Arc<Request>,
    pub(crate) etag: Option<Vec<u8>>,
    pub(crate) last_modified_s: Option<u64>,
    pub(crate) length: Option<u64>,
}

/// What became of an object that was to be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnlinkOutcome {
    /// There was one.
    pub(crate) was_there: bool,
    /// It does not come back after a crash either.
    pub(crate) is_kept: bool,
}
