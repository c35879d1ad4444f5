//! Settings of the feed that a reload replaces.

use std::sync::Arc;

use crate::{accounts::identity::Identities, client::acceptors::Acceptors, config::Config, leaf::Seed};

/// Settings that a reload replaces.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) identities: Identities,
    pub(crate) acceptors: Acceptors,
    /// Hubs of all cores.
    pub(crate) hubs: Arc<[Arc<Seed>]>,
}
