//! Who asks, and how many may at once.

use std::sync::Arc;

use engine::{bounded::Bounds, share::ClientBudget};
pub(crate) use httpd::Peer;

/// Of the places, those that one address may have: a sixteenth, and a browser's handful at least.
const ADDRESS_SHARE: usize = 16;
const ADDRESS_MIN: usize = 16;

/// The bounds of the listener.
pub(crate) fn bounds(connections_max: usize, client_budget: Option<&Arc<ClientBudget>>) -> Bounds {
    let of_address = (connections_max / ADDRESS_SHARE).max(ADDRESS_MIN);
    Bounds { client_budget: client_budget.map(Arc::clone), ..httpd::bounds(connections_max, of_address) }
}
