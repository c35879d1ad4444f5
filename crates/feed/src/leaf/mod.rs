//! The feed as a leaf node: it joins hubs, servers of a NATS cluster, and what is published on either side is there on
//! both.
//!
//! ```text
//!   core A                                 core of the hub                                    hub
//!   SUB a.b ──▶ [interest] ═ ring ═▶ told once for all cores (`interest`) ──"LS+ a.b"──────▶
//!   PUB x.y, and the hub wants x.> ─▶ [run for a hub] ═ ring ═▶ output ──"LMSG x.y …"──────▶
//!                                    ◀═ ring ═ [the hub wants x.>] ◀── `inbound` ◀──"LS+ x.>"
//!   subscribers of a.b ◀═ ring ═ [run] ◀── as if published here ◀── `inbound` ◀──"LMSG a.b …"
//! ```
//! *Where it lives.* Each hub has one connection, on one core (the hub's number, over the number of cores). It is an
//! entry among that core's connections, so that it has an output of lent chunks, marks, deadlines and pings like a
//! client's: a slow hub is a slow consumer. What the hub wants stands in every core's trie beside what other cores want,
//! a bit a pattern and a count a queue group; so a message finds it in the match that is made anyway, and where no hub is
//! configured nothing is looked at but a mask that is zero.
//!
//! *Once.* A message goes to a hub at most once, whatever number of its patterns match, with the names of all queue
//! groups whose members there get it. One that came from a hub goes to no hub. Of a queue group members here go before
//! members at a hub, as in nats-server.
//!
//! *Who waits.* Producers here for a slow hub, as for any consumer; for a producer at the hub nobody can be asked to wait,
//! so that what a consumer here does not take waits up to `max_pending`. Reading from a hub stops only while another core
//! has too much under way from here.
//!
//! *Bounds.* `HEARD_MAX` patterns of one hub, `LEARNT_MAX` addresses of other servers of its cluster,
//! `max_pending` bytes for it; each has a counter (`feed_leaf_…`). Without its hub the feed serves who is here.

mod credentials;
mod dial;
mod hub;
mod inbound;
mod interest;
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
    routing::trie::{HUBS_MAX, HubId},
};
pub use remote::{ADDRESSES_MAX, Address, InvalidAddress, Login, PORT, Remote, Scheme, UserSeed};

/// Hubs that may be configured.
pub const REMOTES_MAX: usize = HUBS_MAX;
/// Patterns of one hub: some hundred bytes each on every core.
const HEARD_MAX: usize = 1 << 20;
/// Most bytes of a message to or from a hub (nats-server takes no more either). Its `max_payload` is for what its clients
/// say: a JetStream answers with more, such as the subjects of a stream, of which a page has a hundred thousand.
const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// Addresses of one hub's cluster that are learnt from it.
const LEARNT_MAX: usize = 64;
/// Bytes that wait for a hub before the walk over what it is to be told pauses.
const ANNOUNCE_BYTES_MAX: usize = 1 << 20;
/// That pause.
const ANNOUNCE_PAUSE: Duration = Duration::from_millis(5);
/// The pause between two addresses of one cluster.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(50);
/// Patterns of a hub that is gone, forgotten in one go.
const FORGOTTEN_IN_ONE_GO: usize = 1024;

/// Joins whichever hub is configured at a place, for ever.
pub(crate) async fn keep_place(local: Rc<Local>, place: HubId) {
    let changed = local.core.borrow().hubs.changed(place);
    loop {
        let configured = local.core.borrow().configured_hub(place);
        match configured {
            Some(seed) => {
                local.core.borrow_mut().hubs.begin(&seed);
                // It is large, and most places are empty.
                Box::pin(keep_joined(&local, &seed, &changed)).await;
                local.core.borrow_mut().hubs.end(place);
            }
            None => changed.notified().await,
        }
    }
}

/// Keeps a hub joined for as long as it is configured. When this returns nothing is left of it, on no core.
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
        // One that breaks the protocol will do so again, however often it is joined.
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

/// Waits until a hub is not configured any more.
async fn until_left(local: &Local, seed: &Arc<Seed>, changed: &Notify) {
    while local.core.borrow().is_configured_hub(seed) {
        // It may have been told of something that is over.
        changed.notified().await;
    }
}

/// Joins, and stays until that ends: whether it was joined, and why it is no more.
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
        core.now_ms = clock::monotonic_ms();
        let id = core.enter_hub(seed, (writer, transport, peer), &info);
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

/// Tells a hub of all subscriptions, once it has let us in.
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
        // It takes it as it can.
        match waits {
            true => tokio::time::sleep(ANNOUNCE_PAUSE).await,
            false => tokio::task::yield_now().await,
        }
    }
}

/// Takes what a hub wanted out of all cores' tries, some in a turn.
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

/// Before the core stops: what waits for its hubs is written, if they take it in a moment.
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
        // What other cores sent last may be on its way.
        if is_written && step > 1 {
            break;
        }
        tokio::time::sleep(STEP).await;
    }
    let core = &mut *local.core.borrow_mut();
    core.close_hubs(CloseReason::ServerShutdown);
    core.end_turn();
}

/// In which order servers are tried.
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
