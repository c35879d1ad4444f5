//! What a core does by the clock: pings, deadlines, consumers that hold others up.

use std::{rc::Rc, time::Duration};

use engine::cores::clock;
use wire::nats::rejection::Rejection;

use crate::{
    config::Limits,
    connection::{Closed, ConnId, Stage},
    core::{Core, Local},
    outputs::Outputs,
    subjects::Subjects,
};

/// How often.
const EVERY: Duration = Duration::from_millis(50);
/// Each connection is looked at once in so many rounds.
const ROUNDS: u32 = 10;
/// The first ping comes early, to know the round trip.
const FIRST_PING_AFTER_MS: u64 = 2000;

impl Local {
    /// Looks at everything that has a deadline, for ever.
    pub(crate) async fn keep_house(self: Rc<Self>) {
        let mut every = tokio::time::interval(EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut cursor = 0;
        loop {
            every.tick().await;
            let core = &mut *self.core.borrow_mut();
            core.now_ms = clock::monotonic_ms();
            cut_holders(core);
            core.end_turn();
            look_after_some(core, &mut cursor);
        }
    }
}

/// Cuts off who has held its producers back for too long.
fn cut_holders(core: &mut Core) {
    let Core { subjects, outputs, links, settings, now_ms, .. } = core;
    while let Some(id) = outputs.held_too_long(settings.config.limits.producer_hold_max, *now_ms) {
        outputs.release_all(id, links);
        let subject = subjects.a_subject_of(&outputs.connections[id]);
        outputs.cut_slow(id, Closed::SlowConsumerHold, &subject);
    }
}

/// Looks at the connections of one round, from the one behind `cursor`.
fn look_after_some(core: &mut Core, cursor: &mut ConnId) {
    let end = core.outputs.connections.end();
    for _ in 0..end.div_ceil(ROUNDS) {
        *cursor = if *cursor + 1 < end { *cursor + 1 } else { 0 };
        if core.outputs.connections.find(*cursor).is_some() {
            let Core { subjects, outputs, settings, now_ms, .. } = core;
            look_after(outputs, subjects, *cursor, &settings.config.limits, *now_ms);
            // Written at once: a thousand pings together would borrow a thousand chunks for six bytes each.
            core.end_turn();
        }
    }
}

fn look_after(outputs: &mut Outputs, subjects: &Subjects, id: ConnId, limits: &Limits, now_ms: u64) {
    let since = |then_ms: u64| Duration::from_millis(now_ms.saturating_sub(then_ms));
    let connection = &outputs.connections[id];
    if connection.closing.is_some() {
        return;
    }
    if connection.stage == Stage::CredentialsNeeded && since(connection.started_ms) > limits.auth_timeout {
        outputs.reject(id, Rejection::AuthenticationTimeout);
        return;
    }
    if outputs.is_overdue(id, limits.write_deadline, now_ms) {
        let subject = subjects.a_subject_of(&outputs.connections[id]);
        outputs.cut_slow(id, Closed::SlowConsumerDeadline, &subject);
        return;
    }
    let connection = &mut outputs.connections[id];
    if matches!(connection.stage, Stage::CredentialsNeeded | Stage::Checking) {
        return;
    }
    let is_first = connection.ping_sent_ms == 0;
    let is_due = if is_first {
        since(connection.started_ms).as_millis() as u64 >= FIRST_PING_AFTER_MS
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
        connection::Transport,
        hot_path_tests::cores,
        serve::{self, Arrival},
    };

    const CLIENTS: usize = 40;

    /// Each client is given one ping, and all of them together one chunk.
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
            core.now_ms = clock::monotonic_ms() + FIRST_PING_AFTER_MS;
            let mut cursor = 0;
            (0..ROUNDS).for_each(|_| look_after_some(core, &mut cursor));
            assert!(core.outputs.connections.iter().all(|(_, connection)| connection.pings_out == 1));
            assert_eq!(core.outputs.chunks.spare(), 1);
        });
    }
}
