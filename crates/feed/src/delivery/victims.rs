//! Choice of the connection to close when all clients together make a core hold more memory than allowed
//! (`max_pending_total`).
//!
//! ```text
//!   1. the connections without progress for STALLED_MS, if there are any: they read nothing of their backlog, and sent
//!      nothing of the operation that they began                                       otherwise all
//!   2. among these, the client that holds most, over all of its connections (an address, an IPv6 /64; on loopback one)
//!   3. among its connections, the one that holds most
//! ```
//! A client that holds much memory but makes progress is not closed while other clients hold memory and make
//! none. *An operation* that takes more memory than a control line must also make progress, however little
//! memory is held in total: within each `write_deadline` it must end, or [`OPERATION_BYTES_MIN`] of it must
//! arrive.

use std::{collections::HashMap, time::Duration};

use engine::accounts::ClientKey;

use crate::{
    client::connection::{ConnId, Connection},
    delivery::outputs::{OPERATION_HELD_MIN, Outputs},
};

/// Time without progress after which a client is closed before others.
const STALLED_MS: u64 = 200;
/// Bytes of an incomplete operation that must arrive within each `write_deadline`.
const OPERATION_BYTES_MIN: u64 = 64 * 1024;

/// A connection chosen to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) id: ConnId,
    /// Most of the memory that the connection holds is an incomplete operation.
    pub(crate) is_unfinished: bool,
}

/// Memory that a connection holds.
struct Holder {
    id: ConnId,
    client: ClientKey,
    bytes: usize,
    is_unfinished: bool,
    is_stalled: bool,
}

impl Holder {
    fn of(id: ConnId, connection: &Connection, now_ms: u64) -> Option<Self> {
        let replies = connection.replies.as_ref().map_or(0, |replies| replies.bytes());
        let (waits, comes) = (connection.outbox.memory_bytes() + replies, connection.unfinished_bytes);
        if connection.closing.is_some() || waits + comes == 0 {
            return None;
        }
        let is_unfinished = comes > waits;
        // A client whose reads are paused cannot continue its operation.
        let moved_ms = match (is_unfinished, connection.is_held_for_answers) {
            (true, false) if connection.waits_for_us() => now_ms,
            (true, false) => connection.last_in_ms,
            (true, true) | (false, _) => connection.last_out_ms,
        };
        Some(Self {
            id,
            client: connection.client,
            bytes: waits + comes,
            is_unfinished,
            is_stalled: now_ms.saturating_sub(moved_ms) >= STALLED_MS,
        })
    }
}

impl Outputs {
    /// Chooses the connection to close; `None` if no connection holds memory.
    #[cold]
    pub(crate) fn choose_victim(&self, now_ms: u64) -> Option<Victim> {
        let mut holders: Vec<Holder> = self
            .connections
            .iter()
            .filter_map(|(id, connection)| Holder::of(id, connection, now_ms))
            .collect();
        if holders.iter().any(|holder| holder.is_stalled) {
            holders.retain(|holder| holder.is_stalled);
        }
        let mut sums: HashMap<ClientKey, usize> = HashMap::new();
        for holder in &holders {
            *sums.entry(holder.client).or_default() += holder.bytes;
        }
        let victim = holders.iter().max_by_key(|holder| (sums[&holder.client], holder.bytes, holder.id))?;
        Some(Victim { id: victim.id, is_unfinished: victim.is_unfinished })
    }

    /// Returns whether a client has begun an operation that takes memory, and continues it too slowly.
    pub(crate) fn is_operation_overdue(&mut self, id: ConnId, deadline: Duration, now_ms: u64) -> bool {
        let connection = &mut *self.connections[id];
        if connection.waits_for_us() {
            connection.operation_since = (now_ms, connection.received);
        }
        let (since_ms, received) = connection.operation_since;
        let elapsed = Duration::from_millis(now_ms.saturating_sub(since_ms));
        if connection.unfinished_bytes < OPERATION_HELD_MIN || elapsed <= deadline {
            return false;
        }
        let periods = elapsed.as_millis() / deadline.as_millis().max(1);
        u128::from(connection.received - received) < periods * u128::from(OPERATION_BYTES_MIN)
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, net::SocketAddr, rc::Rc, sync::Arc};

    use super::*;
    use crate::{
        accounts::identity::{Authorization, Identities},
        client::{
            acceptors::Acceptors,
            connection::{Transport, Writer},
            serve::Arrival,
        },
        config::Config,
        delivery::hot_path_tests::cores,
        mesh::{
            core::{Core, Local},
            settings::Settings,
        },
    };

    fn enter(core: &mut Core, address: [u8; 4], unfinished_bytes: usize, moved_ms: u64) -> ConnId {
        let arrival = Arrival::new(core, SocketAddr::from((address, 1)), Transport::default());
        let id = core.enter(arrival, Writer::Task, true);
        core.outputs.note_unfinished(id, unfinished_bytes, moved_ms);
        core.outputs.note_received(id, unfinished_bytes, moved_ms);
        id
    }

    fn a_core() -> Rc<Local> {
        cores(1).remove(0)
    }

    /// Connections that hold 60 KiB each without progress are closed before one that is still sending and
    /// holds 100 KiB.
    #[test]
    fn who_moves_is_no_victim() {
        for address in [[192, 0, 2, 1], [127, 0, 0, 1]] {
            let local = a_core();
            let core = &mut *local.core.borrow_mut();
            let holders: Vec<ConnId> = (0..100).map(|_| enter(core, address, 60 << 10, 10_000)).collect();
            let honest = enter(core, address, 100 << 10, 20_000);
            for _ in &holders {
                let victim = core.outputs.choose_victim(20_000).expect("they hold something");
                assert!(victim.id != honest && victim.is_unfinished);
                core.outputs.close(victim.id, crate::CloseReason::SlowProducer);
            }
            assert_eq!(core.outputs.choose_victim(20_000).map(|victim| victim.id), Some(honest));
        }
    }

    /// If all make progress, the address that holds most is chosen, not the largest connection.
    #[test]
    fn an_address_is_one_holder() {
        let local = a_core();
        let core = &mut *local.core.borrow_mut();
        let many: Vec<ConnId> = (0..10).map(|_| enter(core, [192, 0, 2, 1], 60 << 10, 20_000)).collect();
        let one = enter(core, [192, 0, 2, 2], 100 << 10, 20_000);
        let victim = core.outputs.choose_victim(20_000).expect("they hold something");
        assert!(many.contains(&victim.id) && victim.id != one);
    }

    #[test]
    fn connections_of_shared_networks_are_clients_each() {
        for (shared, is_one_client) in [("203.0.113.0/24", true), ("192.0.2.0/24", false)] {
            let local = a_core();
            let core = &mut *local.core.borrow_mut();
            let shared_networks = vec![shared.parse().expect("a network")];
            core.settings = Arc::new(Settings {
                config: Config { shared_networks, ..Config::default() },
                identities: Identities::build(&Authorization::default(), None).expect("it is sound"),
                acceptors: Acceptors::default(),
                hubs: Arc::default(),
            });
            let many: Vec<ConnId> = (0..10).map(|_| enter(core, [192, 0, 2, 1], 60 << 10, 20_000)).collect();
            let one = enter(core, [198, 51, 100, 2], 100 << 10, 20_000);
            let clients: HashSet<ClientKey> =
                many.iter().map(|id| core.outputs.connections[*id].client).collect();
            assert_eq!(clients.len(), if is_one_client { 1 } else { many.len() });
            let victim = core.outputs.choose_victim(20_000).expect("they hold something").id;
            assert_eq!(victim == one, !is_one_client, "the client that holds most gives way");
        }
    }

    #[test]
    fn an_operation_goes_on_or_ends() {
        let local = a_core();
        let core = &mut *local.core.borrow_mut();
        let deadline = Duration::from_secs(10);
        let stuck = enter(core, [192, 0, 2, 1], 60 << 10, 10_000);
        let slow = enter(core, [192, 0, 2, 1], 60 << 10, 10_000);
        let small = enter(core, [192, 0, 2, 1], 4096, 10_000);
        for second in 1..100 {
            let now_ms = 10_000 + second * 1000;
            core.outputs.note_received(slow, 10_000, now_ms);
            assert!(!core.outputs.is_operation_overdue(slow, deadline, now_ms));
            assert!(!core.outputs.is_operation_overdue(small, deadline, now_ms));
            assert_eq!(core.outputs.is_operation_overdue(stuck, deadline, now_ms), second > 10, "{second}");
        }
    }
}
