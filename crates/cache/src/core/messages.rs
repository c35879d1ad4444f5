//! Messages between cores, and the limits on waiting for room in a ring.

use std::{sync::Arc, time::Duration};

use engine::store::{Hash, META_WORDS};
use tokio::sync::oneshot;

use crate::{
    admin::{explanation::Question, last_clients::LastClient, objects},
    client::accepted::AcceptedConnection,
    coding::Coding,
    encoding::codec_pool::Reply,
    fetch::in_flight::FetchRequest,
    purging::{bans::BanSeen, invalidations::Invalidation},
    request::{Request, active_config::ActiveConfig},
};

/// Maximum wait for room in the ring to another core, for a sender that may block.
pub(crate) const RING_WAIT_MAX: Duration =
    if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(5) };
/// Interval at which a blocked sender checks the ring for room.
pub(crate) const RING_PAUSE: Duration = Duration::from_millis(1);

/// Another core could not accept a message, or did not answer in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CoreBusy;

/// Messages between cores.
pub(crate) enum Message {
    /// To the owner of the key: fetch this object, or let the requester follow the fetch in progress.
    Fetch(Box<FetchRequest>),
    /// To the owner of the key: drop this object.
    Unlink {
        hash: Hash,
        key: Vec<u8>,
        /// True for a purge, which the owner counts.
        is_purge: bool,
        /// True if the reply must wait until the object cannot come back after a restart, even if the file
        /// must be read first.
        lasting: bool,
        /// Channel for the outcome.
        done: oneshot::Sender<UnlinkOutcome>,
    },
    /// To the owner of the key: this object has lost a part of its body.
    LostPart {
        hash: Hash,
        key: Vec<u8>,
        /// Identifies the object among those stored under this key over time.
        id: u64,
    },
    /// To the owner of the key: store this answer.
    Put(Box<StoreRequest>),
    /// To the owner of the key: encode or decode this object's content.
    Code(Box<ToCode>),
    /// To the owner of the key: the origin now has this version.
    Heard(Box<HeadAnswer>),
    /// To each core: a purge by tag, a soft purge, or a purge of everything.
    Invalidate {
        invalidation: Arc<Invalidation>,
        /// True if the purge came from outside and this core counts it.
        is_purge: bool,
        /// Channel for the acknowledgement.
        done: oneshot::Sender<()>,
    },
    /// To each core: the content under these tags has changed, or all content if there are none.
    Changed {
        tags: Arc<[u64]>,
        /// Time of the change, in milliseconds since 1970.
        at_ms: u64,
        /// True if content was deleted.
        is_deletion: bool,
    },
    /// To any core: list the bans.
    Bans(oneshot::Sender<Vec<BanSeen>>),
    /// To the owner of the key: explain how this request would be answered, without changing anything.
    Explain(Box<Question>),
    /// To any core: name the client that this object last answered.
    LastClient { hash: Hash, reply: oneshot::Sender<Option<LastClient>> },
    /// To any core: list stored objects.
    Objects(Box<objects::Step>),
    /// To each core: this configuration is active from now on.
    ActiveConfig { in_force: Arc<ActiveConfig>, done: oneshot::Sender<()> },
    /// To a core with fewer connections: serve this accepted connection.
    Accept(std::net::TcpStream, AcceptedConnection),
}

/// A store request on its way to the core that owns its key.
pub(crate) struct StoreRequest {
    pub(crate) hash: Hash,
    pub(crate) key: Vec<u8>,
    pub(crate) head: Vec<u8>,
    pub(crate) extra: Vec<u8>,
    pub(crate) meta: [u64; META_WORDS],
    pub(crate) body: Vec<u8>,
    pub(crate) expires_s: u32,
}

/// Request to encode or decode an object ([`encoded_variants`](crate::encoding::encoded_variants)).
pub(crate) struct ToCode {
    pub(crate) hash: Hash,
    pub(crate) key: Vec<u8>,
    pub(crate) coding: Coding,
    /// Channel to the request that waits for the result.
    pub(crate) reply: Option<Reply>,
}

/// Validators in the origin's answer to a passed HEAD request, for comparison with a stored object
/// ([`head_validation`](crate::states::head_validation)).
pub(crate) struct HeadAnswer {
    pub(crate) request: Arc<Request>,
    pub(crate) etag: Option<Vec<u8>>,
    pub(crate) last_modified_s: Option<u64>,
    pub(crate) length: Option<u64>,
}

/// Result of dropping an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnlinkOutcome {
    /// True if there was an object to drop, or may have been.
    pub(crate) was_there: bool,
    /// True if the removal is durable: the object does not come back after a crash.
    pub(crate) is_kept: bool,
}
