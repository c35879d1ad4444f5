//! Several running servers combined for one admin port.

use std::sync::Arc;

use engine::meter::{Family, Registry, Source};

use crate::{admin::OperatorView, services::certificates::CertificateStatus};

/// A combination of servers. It has the counters of all of them, and is ready when all of them are.
pub(crate) struct CombinedServers {
    parts: Vec<Arc<dyn OperatorView>>,
    registry: Arc<Registry>,
}

/// Registry of a single server, as a source of the combined registry.
#[derive(Debug)]
struct RegistrySource(Arc<Registry>);

impl Source for RegistrySource {
    fn collect(&self, families: &mut Vec<Family>) {
        families.extend(self.0.snapshot().families);
    }
}

impl CombinedServers {
    /// Combines servers; `beside` contains additional sources of counters.
    pub(crate) fn new(parts: Vec<Arc<dyn OperatorView>>, beside: Vec<Arc<dyn Source>>) -> Self {
        let mut registry = Registry::new();
        for part in &parts {
            registry.register(Arc::new(RegistrySource(part.registry())) as Arc<dyn Source>);
        }
        for source in beside {
            registry.register(source);
        }
        Self { parts, registry: Arc::new(registry) }
    }
}

impl OperatorView for CombinedServers {
    fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    fn is_ready(&self) -> bool {
        self.parts.iter().all(|part| part.is_ready())
    }

    fn certificates(&self) -> Vec<CertificateStatus> {
        self.parts.iter().flat_map(|part| part.certificates()).collect()
    }
}
