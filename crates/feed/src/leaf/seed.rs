//! Seeds of the hubs to join: each hub's settings and number, at the start and after a reload.

use std::sync::Arc;

use super::{ADDRESSES_MAX, Remote};
use crate::{
    accounts::identity::{AccountId, GLOBAL_ACCOUNT, Identities},
    config::Config,
    leaf::limits::REMOTES_MAX,
    routing::trie::HubId,
};

/// Settings of a hub, which all cores know before the hub is joined.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seed {
    pub(crate) hub: HubId,
    pub(crate) remote: Remote,
    pub(crate) account: u16,
    pub(crate) account_name: Arc<str>,
    /// Server name sent to the hub, by which the hub recognises that a new connection replaces an old one.
    pub(crate) name: String,
    /// Cluster name sent to the hub, unique to this seed. Between two connections with the same cluster name
    /// a hub forwards nothing, neither messages nor the subjects that reveal loops.
    pub(crate) cluster: String,
    pub(crate) server_id: String,
    /// Prefix of the subjects by which this process detects loops.
    pub(crate) loop_prefix: String,
}

/// Builds the seeds of a configuration. A hub with the same configuration as in `before` keeps its number,
/// and so its connection. A new hub gets a number that no hub in `before` had, as long as there is one.
///
/// # Errors
/// A line that describes the error in the hubs' configuration.
pub(crate) fn seeds(
    config: &Config,
    identities: &Identities,
    server_id: &str,
    before: &[Arc<Seed>],
) -> Result<Arc<[Arc<Seed>]>, String> {
    if config.hubs.len() > REMOTES_MAX {
        return Err(format!("too many hubs: {}, at most {REMOTES_MAX}", config.hubs.len()));
    }
    let accounts = config.hubs.iter().map(|remote| account_of(remote, identities));
    let accounts = accounts.collect::<Result<Vec<_>, _>>()?;
    let mut kept: Vec<Option<&Arc<Seed>>> = vec![None; config.hubs.len()];
    for seed in before {
        let same = config.hubs.iter().zip(&accounts).zip(&kept).position(|((remote, account), kept)| {
            kept.is_none() && seed.remote == *remote && seed.account == account.0
        });
        if let Some(same) = same {
            kept[same] = Some(seed);
        }
    }
    let numbers = || (0..HubId::MAX).take(REMOTES_MAX);
    let was_there = |number: &HubId| before.iter().any(|seed| seed.hub == *number);
    let stays = |number: &HubId| kept.iter().flatten().any(|seed| seed.hub == *number);
    let fresh = numbers().filter(|number| !was_there(number));
    let left = numbers().filter(|number| was_there(number) && !stays(number));
    let mut free = fresh.chain(left);
    let mut seeds = Vec::with_capacity(config.hubs.len());
    for ((remote, (account, account_name)), kept) in config.hubs.iter().zip(&accounts).zip(&kept) {
        let number = kept.map(|seed| seed.hub).or_else(|| free.next());
        let hub =
            number.unwrap_or_else(|| unreachable!("there are as many numbers as hubs may be configured"));
        let suffix = if hub == 0 { String::new() } else { format!("-{hub}") };
        // Names are unique to each process, because hubs distinguish servers by name.
        let own = server_id.get(1..9).unwrap_or(server_id);
        let seed = Seed {
            hub,
            remote: remote.clone(),
            account: *account,
            account_name: Arc::clone(account_name),
            name: format!("{}{suffix}", config.server_name),
            cluster: format!("{}-{own}{suffix}", config.server_name),
            server_id: server_id.to_owned(),
            loop_prefix: format!("$LDS.{server_id}-"),
        };
        // An unchanged seed is kept as the same `Arc`, so that its connection is left alone. A new server
        // name counts as a change.
        seeds.push(kept.filter(|kept| ***kept == seed).map_or_else(|| Arc::new(seed), Arc::clone));
    }
    Ok(seeds.into())
}

/// Returns the number and name of the local account that a hub is joined to.
fn account_of(remote: &Remote, identities: &Identities) -> Result<(u16, Arc<str>), String> {
    let name = remote.account.as_deref().unwrap_or(GLOBAL_ACCOUNT);
    let account = identities.accounts().iter().position(|known| **known == *name);
    let account =
        account.ok_or_else(|| format!("a hub is configured for account {name}, which does not exist"))?;
    if account == usize::from(AccountId::SYSTEM.0) {
        return Err(format!("a hub is configured for account {name}: the system account cannot join a hub"));
    }
    if remote.addresses.is_empty() || remote.addresses.len() > ADDRESSES_MAX {
        return Err(format!("a hub needs 1 to {ADDRESSES_MAX} addresses"));
    }
    if remote.addresses.iter().any(|address| address.is_web() != remote.addresses[0].is_web()) {
        return Err("the addresses of a hub must all be WebSocket addresses, or none".to_owned());
    }
    let account = u16::try_from(account).map_err(|error| error.to_string())?;
    Ok((account, name.into()))
}
