//! Which hubs are to be joined, and by which number each is known: at the start, and after a reload.

use std::sync::Arc;

use super::{ADDRESSES_MAX, REMOTES_MAX, Remote};
use crate::{
    accounts::identity::{AccountId, GLOBAL_ACCOUNT, Identities},
    config::Config,
    mesh::shared::SharedState,
    routing::trie::HubId,
};

/// What is known of a hub before it is joined. All cores know all of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seed {
    pub(crate) hub: HubId,
    pub(crate) remote: Remote,
    pub(crate) account: u16,
    pub(crate) account_name: Arc<str>,
    /// As the hub is told: by the name it knows that a new connection takes an old one's place.
    pub(crate) name: String,
    /// Nobody else has this one. Between connections that name one cluster a hub carries nothing: no messages, and not
    /// what loops are found by.
    pub(crate) cluster: String,
    pub(crate) server_id: String,
    /// What subjects begin with by which this process finds loops.
    pub(crate) loop_prefix: String,
}

/// The hubs of a configuration. One that was there `before` and is configured the same keeps its number, and so its
/// connection; a new one gets a number that nobody had, as long as there is one.
///
/// # Errors
/// What is wrong with them, in a line.
pub(crate) fn seeds(
    config: &Config,
    identities: &Identities,
    shared: &SharedState,
    before: &[Arc<Seed>],
) -> Result<Arc<[Arc<Seed>]>, String> {
    if config.hubs.len() > REMOTES_MAX {
        return Err(format!("{} hubs: at most {REMOTES_MAX} are joined", config.hubs.len()));
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
        // Its own for each process: by them hubs tell servers apart.
        let own = shared.server_id.get(1..9).unwrap_or(&shared.server_id);
        let seed = Seed {
            hub,
            remote: remote.clone(),
            account: *account,
            account_name: Arc::clone(account_name),
            name: format!("{}{suffix}", config.server_name),
            cluster: format!("{}-{own}{suffix}", config.server_name),
            server_id: shared.server_id.clone(),
            loop_prefix: format!("$LDS.{}-", shared.server_id),
        };
        // The same one, so that its connection is left alone; not if the server's name is another.
        seeds.push(kept.filter(|kept| ***kept == seed).map_or_else(|| Arc::new(seed), Arc::clone));
    }
    Ok(seeds.into())
}

/// The account here that a hub is for.
fn account_of(remote: &Remote, identities: &Identities) -> Result<(u16, Arc<str>), String> {
    let name = remote.account.as_deref().unwrap_or(GLOBAL_ACCOUNT);
    let account = identities.accounts().iter().position(|known| **known == *name);
    let account =
        account.ok_or_else(|| format!("a hub is for account {name}, and there is no such account"))?;
    if account == usize::from(AccountId::SYSTEM.0) {
        return Err(format!("a hub is for account {name}: the system account is not joined to any"));
    }
    if remote.addresses.is_empty() || remote.addresses.len() > ADDRESSES_MAX {
        return Err(format!("a hub has at least one address, and at most {ADDRESSES_MAX} are taken"));
    }
    if remote.addresses.iter().any(|address| address.is_web() != remote.addresses[0].is_web()) {
        return Err("a hub is joined by WebSocket at all of its addresses, or at none".to_owned());
    }
    let account = u16::try_from(account).map_err(|error| error.to_string())?;
    Ok((account, name.into()))
}
