//! Limits on the connections to the pages.

use std::sync::Arc;

use engine::{bounded::Bounds, share::ClientBudget};
pub(crate) use httpd::Peer;

/// One address may open 1/`ADDRESS_SHARE` of the connections, but at least `ADDRESS_MIN`, as many as a
/// browser opens.
const ADDRESS_SHARE: usize = 16;
const ADDRESS_MIN: usize = 16;

/// Returns the limits of the listener.
pub(crate) fn bounds(connections_max: usize, client_budget: Option<&Arc<ClientBudget>>) -> Bounds {
    let of_address = (connections_max / ADDRESS_SHARE).max(ADDRESS_MIN);
    Bounds { client_budget: client_budget.map(Arc::clone), ..httpd::bounds(connections_max, of_address) }
}
