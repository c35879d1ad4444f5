//! Checks of messages that a client publishes: size, permissions, reserved subjects and reserved reply
//! subjects.

use wire::nats::{rejection::Rejection, subject};

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

impl Core {
    /// Counts and checks a client's messages, and sends errors for them. Returns whether they may be
    /// delivered.
    #[inline]
    pub(super) fn accept(&mut self, id: ConnId, run: &Run<'_>) -> bool {
        self.count_in(id, run);
        let connection = &self.outputs.connections[id];
        if protocol_log::is_wanted() {
            protocol_log::messages(connection.cid, "PUB", run, run.count());
        }
        if is_of_servers(connection, run.subject)
            || connection.permissions.is_some() && !may_publish(&mut self.outputs, id, run, self.turn.now_ms)
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
        self.turn.work.add(run.count() as u64 * work::ANSWER);
        for _ in 0..run.count() {
            self.count(Counter::PermissionsDenied);
            self.outputs.reject(id, rejection);
        }
    }
}

/// Returns whether the client's permissions allow publishing the messages. (If the mail server runs in the
/// same process, this check is never skipped, because the reserved subjects are denied to all clients.)
#[inline]
fn may_publish(outputs: &mut Outputs, id: ConnId, run: &Run<'_>, now_ms: u64) -> bool {
    let connection = &mut *outputs.connections[id];
    // The permissions are borrowed, because a clone of the `Arc` would make every core write to its reference
    // count.
    let (Some(permissions), replies) = (&connection.permissions, &mut connection.replies) else {
        return true;
    };
    permissions.may_publish(run.subject)
        || replies.as_mut().is_some_and(|replies| {
            assert!(run.count() == 1, "answers are counted one by one");
            replies.may_answer(run.subject, now_ms)
        })
}

/// Returns whether a subject is reserved for communication between the servers of a cluster. (nats-server
/// refuses clients' messages on these subjects, whatever the permissions say.)
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

/// Prefixes of reply subjects that only servers create. No client may use such a reply subject, whatever it
/// may publish. (nats-server's list, `isReservedReply`: answers between accounts, acknowledgements of stored
/// messages, answers between clusters.)
const RESERVED_REPLIES: [&[u8]; 4] = [pending_calls::RESERVED, b"$JS.ACK.", b"_GR_.", b"$GR."];

#[inline]
fn is_reserved_reply(reply: &[u8]) -> bool {
    matches!(reply.first(), Some(b'_' | b'$')) && RESERVED_REPLIES.iter().any(|of| reply.starts_with(of))
}
