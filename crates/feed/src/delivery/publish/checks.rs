//! Checks of what a client publishes: its size, its permissions, reserved subjects and reserved replies.

use crate::{
    accounts::{identity::AccountId, pending_calls},
    client::{
        connection::{ConnId, Connection},
        protocol_log,
    },
    counters::Counter,
    delivery::{
        outputs::Outputs,
        run::Run,
        work::{self},
    },
    mesh::core::Core,
};
use wire::nats::{rejection::Rejection, subject};

impl Core {
    /// Counts messages of a client and checks them, sending errors. Returns whether they may be delivered.
    #[inline]
    pub(super) fn accept(&mut self, id: ConnId, run: &Run<'_>) -> bool {
        self.count_in(id, run);
        let connection = &self.outputs.connections[id];
        if protocol_log::is_wanted() {
            protocol_log::messages(connection.cid, "PUB", run, run.count());
        }
        if is_of_servers(connection, run.subject)
            || connection.permissions.is_some() && !may_publish(&mut self.outputs, id, run, self.now_ms)
        {
            self.reject_each(id, run, Rejection::PublishDenied { subject: run.subject });
            return false;
        }
        let connection = &self.outputs.connections[id];
        let reserved = &self.settings.config.authorization.reserved;
        if !run.reply.is_empty()
            && (is_reserved_reply(run.reply) || reserved.is_of_program(connection.account, run.reply))
        {
            self.reject_each(id, run, Rejection::ReplyDenied { reply: run.reply });
            return false;
        }
        if self.outputs.connections[id].pedantic && !subject::is_valid_literal(run.subject) {
            self.outputs.reject(id, Rejection::InvalidPublishSubject);
        }
        // Refused messages get no `+OK`, as in nats-server.
        if self.outputs.connections[id].verbose {
            self.say_ok(id);
        }
        true
    }

    #[cold]
    fn reject_each(&mut self, id: ConnId, run: &Run<'_>, rejection: Rejection<'_>) {
        self.work.add(run.count() as u64 * work::ANSWER);
        for _ in 0..run.count() {
            self.count(Counter::PermissionsDenied);
            self.outputs.reject(id, rejection);
        }
    }
}

/// Returns whether the client's permissions let it publish the run. (With mail in the same process every run
/// is checked, because the reserved subjects are denied to all clients.)
#[inline]
fn may_publish(outputs: &mut Outputs, id: ConnId, run: &Run<'_>, now_ms: u64) -> bool {
    let connection = &mut *outputs.connections[id];
    // The permissions are borrowed: cloning the `Arc` would make every core write its count.
    let (Some(permissions), replies) = (&connection.permissions, &mut connection.replies) else {
        return true;
    };
    permissions.may_publish(run.subject)
        || replies.as_mut().is_some_and(|replies| {
            assert!(run.count() == 1, "answers are counted one by one");
            replies.may_answer(run.subject, now_ms)
        })
}

/// Returns whether a subject is one on which servers of a cluster talk to each other. (nats-server refuses
/// clients' messages on these, whatever the permissions say.)
#[inline]
fn is_of_servers(connection: &Connection, subject: &[u8]) -> bool {
    match subject.first() {
        Some(b'_') => subject.starts_with(b"_GR_."),
        Some(b'$') => {
            subject.starts_with(b"$GR.")
                || subject.starts_with(b"$NRG.") && connection.account != AccountId::SYSTEM.0
        }
        _ => false,
    }
}

/// Prefixes of reply subjects that only servers create. No client may name one as its reply subject, whatever
/// it may publish. (nats-server's list, `isReservedReply`: answers between accounts, acknowledgements of
/// stored messages, answers between clusters.)
const RESERVED_REPLIES: [&[u8]; 4] = [pending_calls::RESERVED, b"$JS.ACK.", b"_GR_.", b"$GR."];

#[inline]
fn is_reserved_reply(reply: &[u8]) -> bool {
    matches!(reply.first(), Some(b'_' | b'$')) && RESERVED_REPLIES.iter().any(|of| reply.starts_with(of))
}
