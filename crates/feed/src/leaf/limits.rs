//! Bounds on hubs and on what is kept of each.

use crate::routing::trie::HUBS_MAX;

/// Maximum number of hubs that may be configured.
pub const REMOTES_MAX: usize = HUBS_MAX;
/// Maximum number of patterns accepted from one hub; each takes a few hundred bytes on every core.
pub(super) const HEARD_MAX: usize = 1 << 20;
/// Largest message to or from a hub in bytes (also nats-server's limit). The hub's own `max_payload` applies
/// to its clients' messages; JetStream sends longer answers, such as a page that lists a hundred thousand
/// subjects of a stream.
pub(super) const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Maximum number of addresses of other servers in a cluster that are learnt from a hub.
pub(super) const LEARNT_MAX: usize = 64;
