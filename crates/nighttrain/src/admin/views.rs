//! The running servers, as the admin server sees them.

use std::sync::Arc;

use cache::{
    BanSeen, ByHand, ExplainError, Explanation, Invalidate, MemberSaid, Objects, ObjectsError, PeerSeen,
    PurgeError, PurgeResult, RequestOf,
};
use cluster::{ClusterStatus, Outcome, PurgeRequestError, Scope};
use engine::meter::Registry;

use crate::services::certificates::CertificateStatus;

/// A running server, as the admin server sees it.
pub(crate) trait OperatorView: Send + Sync + 'static {
    /// Returns the registry of the server's counters.
    fn registry(&self) -> Arc<Registry>;

    /// Returns whether the server accepts requests: every loop listens, and no drain has begun.
    fn is_ready(&self) -> bool;

    /// Returns the certificates that the server presents, or will present.
    fn certificates(&self) -> Vec<CertificateStatus> {
        Vec::new()
    }
}

/// An accelerator that the admin server can purge and query. The program uses
/// [`crate::services::accelerator::Accelerator`]; tests use fakes.
pub(crate) trait Purger: Send + Sync + 'static {
    /// Drops everything stored for the host and path of a URL, under any scheme and port. Blocks until the
    /// cores that own the keys have answered.
    fn purge(&self, url: &str) -> Result<PurgeResult, PurgeError>;

    /// Notes that the content under these tags has changed just now, or all content if there are none
    /// ([`cache::Server::note_changes`]).
    fn note_changes(&self, _tags: &[String], _is_deletion: bool) -> Result<(), PurgeError> {
        Ok(())
    }

    /// Purges by tags, by a ban, or everything, softly if `is_soft`. Blocks until every core has applied the
    /// purge.
    fn invalidate(&self, what: &Invalidate, is_soft: bool) -> Result<(), PurgeError>;

    /// Broadcasts a purge to the other accelerators. Blocks until the condition of `scope`
    /// is met. Returns `None` without a cluster.
    fn broadcast_purge(
        &self,
        _what: &Invalidate,
        _is_soft: bool,
        _scope: Scope,
    ) -> Option<Result<Outcome, PurgeRequestError>> {
        None
    }

    /// Returns the cluster's state, and for how many more milliseconds stored objects may be served, if that
    /// time is limited.
    fn cluster(&self) -> Option<(ClusterStatus, Option<u64>)> {
        None
    }

    /// Returns the accelerators among which the cache keys are divided, including this one.
    fn peers(&self) -> Vec<PeerSeen> {
        Vec::new()
    }

    /// Returns the active bans. Blocks until a core has answered.
    fn bans(&self) -> Result<Vec<BanSeen>, PurgeError>;

    /// Returns the objects in memory, or those that match an expression. Blocks until the cores have
    /// answered.
    fn objects(&self, expression: Option<&str>, rows_max: usize) -> Result<Objects, ObjectsError>;

    /// Returns the state of the origins' servers.
    fn origins(&self) -> Vec<MemberSaid>;

    /// Sets an operator's override for a server; returns false if no origin has a server of that name.
    fn set_origin(&self, server: &str, by_hand: ByHand) -> bool;

    /// Explains how a request would be handled. Blocks until the core that owns its key has answered.
    fn explain(&self, request: &RequestOf) -> Result<Explanation, ExplainError>;
}
