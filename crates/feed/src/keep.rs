//! What a core does by the clock: pings, deadlines, consumers that hold others up.

use std::{rc::Rc, time::Duration};

use engine::cores::clock;
use wire::nats::rejection::Rejection;

use crate::{
    connection::{Closed, ConnId, Stage},
    core::{Core, Local},
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
            core.cut_holders();
            let end = core.connections.end();
            for _ in 0..end.div_ceil(ROUNDS) {
                cursor = if cursor + 1 < end { cursor + 1 } else { 0 };
                if core.connections.find(cursor).is_some() {
                    core.look_after(cursor);
                }
            }
            core.end_turn();
        }
    }
}

impl Core {
    fn look_after(&mut self, id: ConnId) {
        let now_ms = self.now_ms;
        let since = |then_ms: u64| Duration::from_millis(now_ms.saturating_sub(then_ms));
        let limits = &self.settings.config.limits;
        let connection = &mut self.connections[id];
        if connection.closing.is_some() {
            return;
        }
        if connection.stage == Stage::CredentialsNeeded && since(connection.started_ms) > limits.auth_timeout
        {
            self.reject(id, Rejection::AuthenticationTimeout);
            return;
        }
        if !connection.outbox.is_empty() && since(connection.last_written_ms) > limits.write_deadline {
            self.cut_slow(id, Closed::SlowConsumerDeadline);
            return;
        }
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
            self.reject(id, Rejection::StaleConnection);
            return;
        }
        connection.pings_out += 1;
        connection.ping_sent_ms = now_ms;
        self.say(id, b"PING\r\n");
    }
}
