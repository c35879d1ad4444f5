//! What a core does unasked, between its clients: deadlines, expiry, eviction ahead of need, bans, copies to the file.

use std::{sync::Arc, time::Duration};

use engine::cores::{clock, rounds::sooner};

use crate::{
    client::accept,
    core::{Core, with_core},
    purging::ban_lurker,
};

/// With a store on a file, how often an idle core looks after what is to be given up there; and with bans, whether they
/// are done.
const FILE_EVERY: Duration = Duration::from_secs(1);
/// The longest that an idle core with something to expire sleeps: somebody may set the clock meanwhile.
const EXPIRY_LOOK_MAX: Duration = Duration::from_secs(10);
/// Expired objects dropped in one go: a millisecond's work at most.
const EXPIRIES_A_ROUND: usize = 4096;
/// Records looked at by eviction in one go.
const EVICTIONS_A_ROUND: usize = 4096;
/// Deadlines, expiries and eviction ahead of need, in bounded rounds, for as long as there are any.
pub(crate) async fn keep_house() {
    let rounds = with_core(|core| Arc::clone(&core.rounds));
    loop {
        with_core(|core| {
            core.watches.borrow_mut().sweep(clock::monotonic_ms());
            core.accounts.give_way();
            accept::give_way(core);
        });
        let mut more = true;
        while more {
            more = with_core(|core| {
                let mut shard = core.shard.borrow_mut();
                let expired = shard.expire(core.expiry_now_s(), EXPIRIES_A_ROUND);
                let evicting = shard.maintain(EVICTIONS_A_ROUND);
                let copying = shard.copy_to_file();
                drop(shard);
                let lurking = ban_lurker::lurk(core);
                expired == EXPIRIES_A_ROUND || evicting || copying || lurking
            });
            // Between two rounds the loop serves its clients.
            tokio::task::yield_now().await;
        }
        rounds.pause(with_core(due_in)).await;
    }
}

/// When a core that nobody asks for anything has something to look after again.
fn due_in(core: &Core) -> Option<Duration> {
    let idle = core.pool.borrow_mut().close_old();
    let is_lurking = ban_lurker::is_lurking(core);
    // A client has deadlines, and its hits are what admits objects to the file.
    if core.balance.held(core.index) > 0 {
        return Some(Duration::ZERO);
    }
    let file = (core.file.is_some() || is_lurking).then_some(FILE_EVERY);
    let expiry = core.shard.borrow().next_expiry_s().map(|expires_s| {
        Duration::from_secs(u64::from(expires_s.saturating_sub(core.expiry_now_s()))).min(EXPIRY_LOOK_MAX)
    });
    sooner(sooner(file, expiry), idle)
}
