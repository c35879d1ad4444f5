//! Sharing of certificates, ACME account and challenges between accelerators: `acme` stores them in the
//! cluster's vault.

use std::{
    any::Any,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use acme::{OnChange, Share, ShareError};
use cluster::Vault;

use crate::services::cluster_service::ClusterService;

/// The cluster's vault as the store that `acme` shares with other instances.
pub(crate) struct ClusterCertStore {
    clustered: Arc<ClusterService>,
    /// Vault, opened once by `listen`.
    vault: OnceLock<Vault>,
}

impl ClusterCertStore {
    /// Returns `None` if the accelerators have no common secret.
    pub(crate) fn of(clustered: &Arc<ClusterService>) -> Option<Arc<dyn Share>> {
        clustered.has_vault().then(|| {
            let shelf = Self { clustered: Arc::clone(clustered), vault: OnceLock::new() };
            Arc::new(shelf) as Arc<dyn Share>
        })
    }

    fn vault(&self) -> Result<&Vault, ShareError> {
        self.vault.get().ok_or_else(|| ShareError::Failed("the cluster has been left".to_owned()))
    }
}

impl fmt::Debug for ClusterCertStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterCertStore")
    }
}

fn not_shared(why: cluster::VaultError) -> ShareError {
    match why {
        // Another instance was faster; the caller reads again.
        cluster::VaultError::Busy(_) | cluster::VaultError::Changed(_) => ShareError::Busy,
        other => ShareError::Failed(other.to_string()),
    }
}

impl Share for ClusterCertStore {
    fn listen(&self, hears: OnChange) -> Result<(), ShareError> {
        let vault = self.clustered.open_vault(hears);
        let vault = vault.ok_or_else(|| ShareError::Failed("the cluster has been left".to_owned()))?;
        // `listen` is called only once.
        let _ = self.vault.set(vault);
        Ok(())
    }

    fn take_turn(&self) -> Result<Box<dyn Any + Send>, ShareError> {
        let turn = self.vault()?.take_turn().map_err(not_shared)?;
        Ok(Box::new(turn))
    }

    fn read(&self, key: &str) -> Result<Option<Vec<u8>>, ShareError> {
        self.vault()?.read(key).map_err(not_shared)
    }

    fn write(&self, key: &str, value: &[u8]) -> Result<(), ShareError> {
        self.vault()?.write(key, value).map_err(not_shared)
    }

    fn write_everywhere(&self, key: &str, value: &[u8], at_most: Duration) -> Result<(), ShareError> {
        self.vault()?.write_everywhere(key, value, at_most).map_err(not_shared)
    }

    fn remove(&self, key: &str) -> Result<(), ShareError> {
        self.vault()?.remove(key).map_err(not_shared)
    }
}
