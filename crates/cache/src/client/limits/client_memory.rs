//! Memory held for clients on all cores, by kind, and the share of each core: answers that are not read
//! ([`client_budget`](crate::client::limits::client_budget)), connections
//! ([`accept`](crate::client::accept)), requests' heads
//! ([`request_tasks`](crate::client::limits::request_tasks)).

use std::sync::Arc;

use engine::{
    accounts::Limit,
    holding::ClientMemoryBudget,
    share::{ClientBudget, CommonPart},
};

use crate::config::Limits;

/// Memory held for clients that all cores share, by kind.
pub(crate) struct ClientMemory {
    answers: Arc<CommonPart>,
    connections: Arc<CommonPart>,
    heads: Arc<CommonPart>,
    cores: usize,
}

impl ClientMemory {
    /// Creates the shared amounts, with nothing used.
    pub(crate) fn new(budget: Option<&Arc<ClientBudget>>, cores: usize) -> Self {
        let common = || CommonPart::within(budget);
        Self { answers: common(), connections: common(), heads: common(), cores }
    }

    /// Returns a core's budget for answers that clients do not read.
    pub(crate) fn answers(&self, limits: &Limits) -> ClientMemoryBudget {
        ClientMemoryBudget::new(Arc::clone(&self.answers), limits.client_bytes_max, self.cores)
    }

    /// Returns a core's budget for connections.
    pub(crate) fn connections(&self, limits: &Limits) -> ClientMemoryBudget {
        let total = limits.connection_bytes_max.saturating_mul(self.cores);
        ClientMemoryBudget::new(Arc::clone(&self.connections), total, self.cores)
    }

    /// Returns a core's limit for requests' heads.
    pub(crate) fn heads(&self, limits: &Limits) -> Limit {
        Limit::of_cores(Arc::clone(&self.heads), limits.client_bytes_max, self.cores)
    }
}
