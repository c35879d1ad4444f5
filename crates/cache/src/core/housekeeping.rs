//! Housekeeping of a core between its clients' requests: deadlines, expiry, eviction ahead of need, bans,
//! copies to the file.

use std::{rc::Rc, time::Duration};

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
/// Nanoseconds of a round, after which the loop serves its clients: about the time of eight answers that are
/// stored.
const HOUSEKEEPING_NS: u64 = 100_000;
/// Milliseconds between two looks at the clients' deadlines and memory while rounds follow each other.
const CLIENTS_EVERY_MS: u64 = 100;
/// Maximum number of entries of the expiry queue that are examined between two looks at the clock.
const EXPIRIES_A_STEP: usize = 64;
/// Maximum number of records that eviction examines between two looks at the clock.
const EVICTIONS_A_STEP: usize = 64;

/// Handles deadlines, expiries and eviction ahead of need, in bounded rounds, until none are due.
pub(crate) async fn keep_house() {
    let rounds = with_core(|core| Rc::clone(&core.storage.rounds));
    loop {
        let (mut more, mut clients_at_ms) = (true, 0);
        while more {
            let now_ms = clock::monotonic_ms();
            if now_ms >= clients_at_ms {
                with_core(|core| look_after_clients(core, now_ms));
                clients_at_ms = now_ms + CLIENTS_EVERY_MS;
            }
            more = with_core(round);
            // Between two rounds the event loop serves its clients.
            tokio::task::yield_now().await;
        }
        rounds.pause(with_core(due_in)).await;
    }
}

/// Ends what is past its deadline, and takes memory back from those who hold most.
fn look_after_clients(core: &Core, now_ms: u64) {
    core.clients.watches.borrow_mut().sweep(now_ms);
    core.budgets.accounts.give_way();
    accept::give_way(core);
}

/// Runs steps for the time of a round; returns whether more remains.
fn round(core: &Core) -> bool {
    let until_ns = clock::monotonic_ns() + HOUSEKEEPING_NS;
    core.storage.shard.borrow_mut().admit_the_visited();
    loop {
        let more = step(core);
        if !more || clock::monotonic_ns() >= until_ns {
            return more;
        }
    }
}

/// Runs a short step of each kind of housekeeping; returns whether more remains.
fn step(core: &Core) -> bool {
    let mut shard = core.storage.shard.borrow_mut();
    let now_s = core.expiry_now_s();
    shard.expire(now_s, EXPIRIES_A_STEP);
    let expiring = shard.next_expiry_s().is_some_and(|due_s| due_s <= now_s);
    let evicting = shard.maintain(EVICTIONS_A_STEP);
    let copying = shard.copy_pending();
    drop(shard);
    let lurking = ban_lurker::lurk(core);
    expiring || evicting || copying || lurking
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
