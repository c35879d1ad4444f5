//! The feed as a leaf node: it joins hubs, which are servers of a NATS cluster, and messages published on
//! either side reach subscribers on both.
//!
//! ```text
//!   core A                                 core of the hub                                    hub
//!   SUB a.b ──▶ [interest] ═ ring ═▶ announced once for all cores (`interest`) ─"LS+ a.b"──▶
//!   PUB x.y, and the hub wants x.> ─▶ [run for a hub] ═ ring ═▶ output ──"LMSG x.y …"──────▶
//!                                    ◀═ ring ═ [the hub wants x.>] ◀── `inbound` ◀──"LS+ x.>"
//!   subscribers of a.b ◀═ ring ═ [run] ◀── as if published here ◀── `inbound` ◀──"LMSG a.b …"
//! ```
//! *The hub's core.* Each hub has one connection, on one core (the hub's number modulo the number of cores).
//! The connection is an entry among that core's connections, with an output of lent chunks, watermarks,
//! deadlines and pings like a client's: a slow hub is a slow consumer. The hub's interest is in every core's
//! trie next to the interest of other cores, as a bit for each pattern and a count for each queue group. So
//! the lookup that every message needs anyway finds the hub, and without a hub the only cost is the test of a
//! mask that is zero.
//!
//! *Once.* A message goes to a hub at most once, however many of the hub's patterns match, with the names of
//! all queue groups whose members there get it. A message from a hub goes to no hub. Local members of a queue
//! group are preferred to members at a hub, as in nats-server.
//!
//! *Who waits.* Local producers wait for a slow hub, as for any consumer. Producers at the hub cannot be
//! paused, so the backlog of a local consumer may grow up to `max_pending`. Reads from a hub pause only while
//! too many bytes are on their way from this core to another.
//!
//! *Bounds.* Each hub has at most `HEARD_MAX` patterns, `LEARNT_MAX` addresses of other servers in its
//! cluster, and a backlog of `max_pending` bytes; each bound has a counter (`feed_leaf_…`). Without its hub
//! the feed serves its local clients.

mod credentials;
mod dial;
mod hub;
mod inbound;
mod info;
mod interest;
mod limits;
mod outbound;
mod remote;
mod rules;
mod seed;
#[cfg(test)]
mod tests;
mod trouble;

use std::{rc::Rc, sync::Arc, time::Duration};

use engine::cores::clock;
use tokio::{sync::Notify, time::timeout};

use self::{
    dial::{DialedHub, STEP_TIME_MAX},
    trouble::{Pauses, Trouble},
};
pub(crate) use self::{
    hub::{HubSnapshot, Hubs, places_of},
    interest::Tellers,
    seed::{Seed, seeds},
};
use crate::{
    client::{
        connection::{CloseReason, ConnId},
        serve::attend,
    },
    mesh::core::Local,
    routing::trie::HubId,
};
pub use limits::REMOTES_MAX;
pub use remote::{ADDRESSES_MAX, Address, InvalidAddress, Login, PORT, Remote, Scheme, UserSeed};

/// Backlog of a hub in bytes above which the announcement of existing subscriptions pauses.
const ANNOUNCE_BYTES_MAX: usize = 1 << 20;
/// Length of the pause in announcing subscriptions to a hub with a large backlog.
const ANNOUNCE_PAUSE: Duration = Duration::from_millis(5);
/// Pause before the next address of the same cluster is tried.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(50);
/// Number of a lost hub's patterns that are removed in one step.
const FORGOTTEN_IN_ONE_GO: usize = 1024;

/// Keeps the hub that is configured under a number joined, in an endless loop, across reloads.
pub(crate) async fn keep_place(local: Rc<Local>, place: HubId) {
    let changed = local.core.borrow().hubs.changed(place);
    loop {
        let configured = local.core.borrow().configured_hub(place);
        match configured {
            Some(seed) => {
                local.core.borrow_mut().hubs.begin(&seed);
                // The future is large, and most numbers have no hub, so it is boxed.
                Box::pin(keep_joined(&local, &seed, &changed)).await;
                local.core.borrow_mut().hubs.end(place);
            }
            None => changed.notified().await,
        }
    }
}

/// Keeps a hub joined for as long as it is configured. When this function returns, no core holds any state
/// for the hub.
async fn keep_joined(local: &Rc<Local>, seed: &Arc<Seed>, changed: &Notify) {
    let mut pauses = Pauses::default();
    let mut addresses = Addresses::default();
    loop {
        let learnt = local.core.borrow().hubs.learnt(seed.hub);
        let address = addresses.next(&seed.remote.addresses, &learnt);
        let (was_up, trouble) = join(local, seed, &address, changed).await;
        forget(local, seed.hub).await;
        if !local.core.borrow().is_configured_hub(seed) {
            let account = &*seed.account_name;
            tracing::info!(%address, account, was_up, "leaf node disconnected: the hub is no longer configured");
            return;
        }
        // A hub that breaks the protocol will do so again, so its pauses keep growing.
        if was_up && !matches!(trouble, Trouble::Protocol(_)) {
            pauses.begin_anew();
        }
        let is_round_over = addresses.is_round_over(seed.remote.addresses.len() + learnt.len());
        let pause = match is_round_over || was_up || trouble.is_lasting() {
            true => pauses.next(&trouble),
            false => NEXT_ADDRESS_AFTER,
        };
        local.core.borrow_mut().note_trouble(seed.hub, &address, &trouble, pause);
        if timeout(pause, until_left(local, seed, changed)).await.is_ok() {
            return;
        }
    }
}

/// Waits until a hub is no longer configured.
async fn until_left(local: &Local, seed: &Arc<Seed>, changed: &Notify) {
    while local.core.borrow().is_configured_hub(seed) {
        // The notification may concern an earlier change, so the configuration is checked again.
        changed.notified().await;
    }
}

/// Joins a hub and serves the connection until it ends. Returns whether the hub was joined, and why the
/// connection ended.
async fn join(local: &Rc<Local>, seed: &Arc<Seed>, address: &Address, changed: &Notify) -> (bool, Trouble) {
    local.core.borrow_mut().note_attempt(seed.hub, address);
    let dialed = tokio::select! {
        dialed = dial::dial(seed, address) => dialed,
        () = until_left(local, seed, changed) => return (false, Trouble::NotConfigured),
    };
    let DialedHub { stream, writer, transport, peer, info, received } = match dialed {
        Ok(dialed) => dialed,
        Err(trouble) => return (false, trouble),
    };
    let id = {
        let core = &mut *local.core.borrow_mut();
        if !core.is_configured_hub(seed) {
            return (false, Trouble::NotConfigured);
        }
        core.turn.now_ms = clock::monotonic_ms();
        let id = core.enter_hub(seed, writer, transport, peer, &info);
        core.end_turn();
        id
    };
    let attending = attend(local, id, stream, received, peer.ip());
    tokio::pin!(attending);
    let why = tokio::select! {
        why = &mut attending => why,
        () = announce(local, seed.hub, id) => attending.await,
    };
    local.core.borrow_mut().why_lost(seed.hub, why)
}

/// Announces all subscriptions to a hub once it has accepted this server.
async fn announce(local: &Rc<Local>, hub: HubId, id: ConnId) {
    let joined = local.core.borrow().hubs.joined(hub);
    if timeout(STEP_TIME_MAX, joined.notified()).await.is_err() {
        let core = &mut *local.core.borrow_mut();
        core.close_hub(id, Trouble::NoAnswer);
        core.end_turn();
        return;
    }
    loop {
        let waits = {
            let core = &mut *local.core.borrow_mut();
            let connection = core.outputs.connections.find(id).filter(|one| one.hub == Some(hub));
            let Some(connection) = connection.filter(|one| one.closing.is_none()) else { return };
            let waits = connection.outbox.bytes() > ANNOUNCE_BYTES_MAX;
            if !waits {
                core.begin_turn();
                let is_done = core.announce_some(hub);
                core.end_turn();
                if is_done {
                    return;
                }
            }
            waits
        };
        // The announcements are sent as fast as the hub reads them.
        match waits {
            true => tokio::time::sleep(ANNOUNCE_PAUSE).await,
            false => tokio::task::yield_now().await,
        }
    }
}

/// Removes a lost hub's interest from all cores' tries, some in each turn.
async fn forget(local: &Rc<Local>, hub: HubId) {
    let mut wanted = local.core.borrow_mut().take_wanted(hub);
    loop {
        {
            let core = &mut *local.core.borrow_mut();
            core.begin_turn();
            if !core.links.is_any_full() {
                for _ in 0..FORGOTTEN_IN_ONE_GO {
                    let Some((account, key)) = wanted.next() else {
                        core.end_turn();
                        return;
                    };
                    core.forget_wanted(hub, account, &key);
                }
            }
            core.end_turn();
        }
        tokio::task::yield_now().await;
    }
}

/// Before the core stops, waits briefly until the outputs of its hubs are written, then closes the
/// connections.
pub(crate) async fn say_goodbye(local: &Rc<Local>) {
    const STEP: Duration = Duration::from_millis(10);
    const STEPS_MAX: usize = 50;
    for step in 0..STEPS_MAX {
        let is_written = {
            let core = &mut *local.core.borrow_mut();
            local.take_inbox(core);
            core.end_turn();
            core.nothing_waits_for_hubs()
        };
        // The last messages from other cores may still be on their way, so at least two steps pass.
        if is_written && step > 1 {
            break;
        }
        tokio::time::sleep(STEP).await;
    }
    let core = &mut *local.core.borrow_mut();
    core.close_hubs(CloseReason::ServerShutdown);
    core.end_turn();
}

/// Order in which a hub's servers are tried.
#[derive(Debug, Default)]
struct Addresses {
    next: usize,
    in_this_round: usize,
}

impl Addresses {
    fn next(&mut self, configured: &[Address], learnt: &[Address]) -> Address {
        let all = configured.len() + learnt.len();
        let at = self.next % all.max(1);
        self.next = at + 1;
        self.in_this_round += 1;
        let found = configured.get(at).or_else(|| learnt.get(at - configured.len()));
        found.cloned().unwrap_or_else(|| panic!("a hub has an address"))
    }

    fn is_round_over(&mut self, all: usize) -> bool {
        let is_over = self.in_this_round >= all;
        if is_over {
            self.in_this_round = 0;
        }
        is_over
    }
}

#[cfg(test)]
mod of_addresses {
    use super::*;

    #[test]
    fn servers_are_tried_in_turn() {
        let of = |text: &str| text.parse::<Address>().expect("an address");
        let (configured, learnt) = ([of("a"), of("b")], [of("c")]);
        let mut addresses = Addresses::default();
        let tried: Vec<String> = (0..5).map(|_| addresses.next(&configured, &learnt).host).collect();
        assert_eq!(tried, ["a", "b", "c", "a", "b"]);
        let mut addresses = Addresses::default();
        let over: Vec<bool> = (0..4)
            .map(|_| {
                addresses.next(&configured, &[]);
                addresses.is_round_over(2)
            })
            .collect();
        assert_eq!(over, [false, true, false, true]);
    }
}
