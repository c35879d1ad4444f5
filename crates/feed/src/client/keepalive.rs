//! Periodic tasks of a core: pings, deadlines, and consumers that hold producers back for too long.

use std::{rc::Rc, time::Duration};

use engine::cores::clock;
use wire::nats::rejection::Rejection;

use crate::{
    client::connection::{CloseReason, ConnId, Stage},
    config::Limits,
    counters::Counter,
    delivery::outputs::{OPERATION_HELD_MIN, Outputs},
    mesh::core::{Core, Local, Routing, SUBSCRIPTION_MEMORY, Turn},
    routing::subjects::Subjects,
};

/// Number of rounds in which every connection is examined once; with few connections fewer rounds suffice.
const ROUNDS: u32 = 10;
/// Smallest number of connections examined in a round, as long as there are that many.
const LOOKS_A_ROUND: u32 = 32;
/// Interval at which a core that uses more than its own share of client memory checks whether others need it.
const GIVING_WAY_EVERY_MS: u64 = 1000;
/// Delay of the first ping; it is short, because this ping measures the round trip.
const FIRST_PING_AFTER_MS: u64 = 2000;
/// Largest additional delay of the first ping. Clients that connect together are not pinged all at once
/// (nats-server adds a fifth).
const FIRST_PING_SPREAD_MS: u64 = 400;

/// Returns the delay of a connection's first ping.
fn first_ping_after_ms(cid: u64) -> u64 {
    // Connections that begin together have consecutive numbers; multiplying by the golden ratio spreads them
    // evenly.
    let spread = cid.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    FIRST_PING_AFTER_MS + spread * (FIRST_PING_SPREAD_MS + 1) / (1 << 32)
}

impl Local {
    /// Checks all deadlines in an endless loop; sleeps while none is near.
    pub(crate) async fn keep_house(self: Rc<Self>) {
        let rounds = Rc::clone(&self.core.borrow().outputs.rounds);
        let mut cursor = 0;
        let mut pass = Pass::default();
        loop {
            let due_in = {
                let core = &mut *self.core.borrow_mut();
                core.turn.now_ms = clock::monotonic_ms();
                cut_holders(core);
                core.observers.counters.set(
                    Counter::SubscriptionBytes,
                    core.memory.subscriptions.used(SUBSCRIPTION_MEMORY) as u64,
                );
                core.give_way();
                core.end_turn();
                look_after_some(core, &mut cursor, &mut pass);
                let is_whole =
                    core.outputs.slow.over_mark.is_empty() && pass.looked >= core.outputs.connections.end();
                let due_ms = if is_whole { std::mem::take(&mut pass).due_ms } else { Some(0) };
                let due_ms = due_ms.into_iter().chain(core.give_back_memory());
                let due_ms = due_ms.chain(core.close_overdue_requests());
                let giving_way_ms = core.has_taken_memory().then_some(core.turn.now_ms + GIVING_WAY_EVERY_MS);
                let due_ms = due_ms.chain(giving_way_ms).min();
                due_ms.map(|due_ms| Duration::from_millis(due_ms.saturating_sub(core.turn.now_ms)))
            };
            if rounds.pause(due_in).await {
                // The event may concern a connection that this pass has examined already, so a new pass
                // begins.
                pass = Pass::default();
            }
        }
    }
}

/// State of a pass over all connections.
#[derive(Default)]
struct Pass {
    looked: u32,
    /// Earliest time at which one of the examined connections must be examined again; `None` if there is no
    /// such time.
    due_ms: Option<u64>,
}

/// Disconnects consumers that have held their producers back for too long.
fn cut_holders(core: &mut Core) {
    let Core {
        outputs, links, settings, routing: Routing { subjects, .. }, turn: Turn { now_ms, .. }, ..
    } = core;
    while let Some(id) = outputs.held_too_long(settings.config.limits.producer_hold_max, *now_ms) {
        outputs.release_all(id, links);
        let subject = subjects.a_subject_of(&outputs.connections[id]);
        outputs.cut_slow(id, CloseReason::SlowConsumerHold, &subject);
    }
}

/// Examines the connections of one round, beginning after `cursor`.
fn look_after_some(core: &mut Core, cursor: &mut ConnId, pass: &mut Pass) {
    let end = core.outputs.connections.end();
    for _ in 0..end.div_ceil(ROUNDS).max(LOOKS_A_ROUND).min(end) {
        *cursor = if *cursor + 1 < end { *cursor + 1 } else { 0 };
        pass.looked += 1;
        if core.outputs.connections.find(*cursor).is_some() {
            let Core {
                outputs, settings, routing: Routing { subjects, .. }, turn: Turn { now_ms, .. }, ..
            } = core;
            look_after(outputs, subjects, *cursor, &settings.config.limits, *now_ms);
            // The ping is written at once: a thousand pings together would take a thousand chunks for six
            // bytes each.
            core.end_turn();
            let due_ms = due_ms(&core.outputs, *cursor, &core.settings.config.limits);
            pass.due_ms = pass.due_ms.into_iter().chain(due_ms).min();
        }
    }
}

/// Returns the time at which a connection must be examined again if nothing happens on it in the meantime.
fn due_ms(outputs: &Outputs, id: ConnId, limits: &Limits) -> Option<u64> {
    let connection = outputs.connections.find(id)?;
    if connection.closing.is_some() {
        return None;
    }
    if !connection.outbox.is_empty() || connection.stage == Stage::Checking {
        return Some(0);
    }
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let pinged_ms = connection.ping_sent_ms.max(connection.last_in_ms);
    let mut due_ms = pinged_ms.saturating_add(ms(limits.ping_interval));
    if connection.ping_sent_ms == 0 {
        due_ms = due_ms.min(connection.started_ms + first_ping_after_ms(connection.cid));
    }
    if connection.unfinished_bytes >= OPERATION_HELD_MIN {
        due_ms = due_ms.min(connection.operation_since.0.saturating_add(ms(limits.write_deadline)));
    }
    if connection.stage == Stage::CredentialsNeeded {
        due_ms = due_ms.min(connection.started_ms.saturating_add(ms(limits.auth_timeout)));
    }
    Some(due_ms)
}

fn look_after(outputs: &mut Outputs, subjects: &Subjects, id: ConnId, limits: &Limits, now_ms: u64) {
    let since = |then_ms: u64| Duration::from_millis(now_ms.saturating_sub(then_ms));
    let connection = &outputs.connections[id];
    if connection.closing.is_some() {
        return;
    }
    let is_outside = matches!(connection.stage, Stage::CredentialsNeeded | Stage::Checking);
    if is_outside && since(connection.started_ms) > limits.auth_timeout {
        outputs.reject(id, Rejection::AuthenticationTimeout);
        return;
    }
    if outputs.is_overdue(id, limits.write_deadline, now_ms) {
        let subject = subjects.a_subject_of(&outputs.connections[id]);
        outputs.cut_slow(id, CloseReason::SlowConsumerDeadline, &subject);
        return;
    }
    if outputs.is_operation_overdue(id, limits.write_deadline, now_ms) {
        outputs.close(id, CloseReason::SlowOperation);
        return;
    }
    let connection = &mut outputs.connections[id];
    if is_outside {
        return;
    }
    let is_first = connection.ping_sent_ms == 0;
    let is_due = if is_first {
        since(connection.started_ms).as_millis() as u64 >= first_ping_after_ms(connection.cid)
            || since(connection.last_in_ms) >= limits.ping_interval
    } else {
        since(connection.ping_sent_ms.max(connection.last_in_ms)) >= limits.ping_interval
    };
    if !is_due {
        return;
    }
    if connection.pings_out >= limits.ping_max.max(1) {
        outputs.reject(id, Rejection::StaleConnection);
        return;
    }
    connection.pings_out += 1;
    connection.ping_sent_ms = now_ms;
    outputs.say(id, b"PING\r\n");
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;
    use crate::{
        client::{
            connection::Transport,
            serve::{self, Arrival},
        },
        delivery::hot_path_tests::cores,
    };

    const CLIENTS: usize = 40;

    /// First pings of clients that connect together are spread evenly over 400 ms.
    #[test]
    fn first_pings_are_spread() {
        let mut tenths = [0; 10];
        for cid in 1_000..2_000 {
            let after_ms = first_ping_after_ms(cid);
            assert!((FIRST_PING_AFTER_MS..=FIRST_PING_AFTER_MS + FIRST_PING_SPREAD_MS).contains(&after_ms));
            tenths[usize::try_from((after_ms - FIRST_PING_AFTER_MS) / 41).expect("below ten")] += 1;
        }
        assert!(tenths.iter().all(|count| (75..=110).contains(count)), "{tenths:?}");
    }

    /// Each client gets one ping, and all pings together need one chunk.
    #[test]
    fn pings_to_many_need_one_chunk() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .expect("a runtime");
        runtime.block_on(async {
            let local = cores(1).remove(0);
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
            let address = listener.local_addr().expect("an address");
            let mut clients = Vec::new();
            for _ in 0..CLIENTS {
                clients.push(TcpStream::connect(address).expect("a connection"));
                let (socket, peer) = listener.accept().await.expect("a client");
                let arrival = Arrival::new(&local.core.borrow(), peer, Transport::default());
                tokio::task::spawn_local(serve::serve_plain(Rc::clone(&local), socket, arrival));
            }
            while local.core.borrow().outputs.connections.len() < CLIENTS {
                tokio::task::yield_now().await;
            }
            let core = &mut *local.core.borrow_mut();
            core.turn.now_ms = clock::monotonic_ms() + FIRST_PING_AFTER_MS + FIRST_PING_SPREAD_MS;
            let mut cursor = 0;
            let mut pass = Pass::default();
            (0..ROUNDS).for_each(|_| look_after_some(core, &mut cursor, &mut pass));
            assert!(core.outputs.connections.iter().all(|(_, connection)| connection.pings_out == 1));
            assert_eq!(core.outputs.chunks.spare(), 1);
        });
    }
}
