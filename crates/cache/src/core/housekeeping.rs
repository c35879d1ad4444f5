//! Housekeeping of a core between its clients' requests: deadlines, expiry, eviction ahead of need, bans,
//! copies to the file.

use std::{sync::Arc, time::Duration};

use engine::cores::{clock, rounds::sooner};

use crate::{
    client::accept,
    core::{Core, with_core},
    purging::ban_lurker,
};

/// Interval at which an idle core checks whether objects in the file must be dropped, and how far bans have
/// progressed.
const FILE_EVERY: Duration = Duration::from_secs(1);
/// Maximum sleep of an idle core that has objects to expire, because the clock may be set during the sleep.
const EXPIRY_LOOK_MAX: Duration = Duration::from_secs(10);
/// Maximum number of expired objects dropped in one round: at most a millisecond of processor time.
const EXPIRIES_A_ROUND: usize = 4096;
/// Maximum number of records that eviction examines in one round.
const EVICTIONS_A_ROUND: usize = 4096;
/// Handles deadlines, expiries and eviction ahead of need, in bounded rounds, until none are due.
pub(crate) async fn keep_house() {
    let rounds = with_core(|core| Arc::clone(&core.storage.rounds));
    loop {
        with_core(|core| {
            core.clients.watches.borrow_mut().sweep(clock::monotonic_ms());
            core.budgets.accounts.give_way();
            accept::give_way(core);
        });
        let mut more = true;
        while more {
            more = with_core(|core| {
                let mut shard = core.storage.shard.borrow_mut();
                let expired = shard.expire(core.expiry_now_s(), EXPIRIES_A_ROUND);
                let evicting = shard.maintain(EVICTIONS_A_ROUND);
                let copying = shard.copy_to_file();
                drop(shard);
                let lurking = ban_lurker::lurk(core);
                expired == EXPIRIES_A_ROUND || evicting || copying || lurking
            });
            // Between two rounds the event loop serves its clients.
            tokio::task::yield_now().await;
        }
        rounds.pause(with_core(due_in)).await;
    }
}

/// Returns the time until the next housekeeping of an idle core.
fn due_in(core: &Core) -> Option<Duration> {
    let idle = core.origins.pool.borrow_mut().close_old();
    let is_lurking = ban_lurker::is_lurking(core);
    // While there are clients, housekeeping is due at once: clients have deadlines, and their hits admit
    // objects to the file.
    if core.clients.balance.held(core.index) > 0 {
        return Some(Duration::ZERO);
    }
    let file = (core.storage.file.is_some() || is_lurking).then_some(FILE_EVERY);
    let expiry = core.storage.shard.borrow().next_expiry_s().map(|expires_s| {
        Duration::from_secs(u64::from(expires_s.saturating_sub(core.expiry_now_s()))).min(EXPIRY_LOOK_MAX)
    });
    sooner(sooner(file, expiry), idle)
}
