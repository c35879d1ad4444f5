//! Protocol log: the operations of clients and the messages sent to them, line by line, like nats-server's
//! `trace`.
//!
//! Lines are written only if the log's filter names the target (`--log info,feed::protocol=trace`, `-V`);
//! otherwise the only cost is a comparison of levels. Payloads are not shown, and neither are CONNECT's
//! options, because they contain passwords.

use tracing::Level;
use wire::nats::client::ClientOp;

use crate::delivery::run::Run;

/// Log target of the protocol log, for use in a filter.
pub const TARGET: &str = "feed::protocol";

/// Returns whether the log's filter enables the protocol log.
#[inline]
pub(crate) fn is_wanted() -> bool {
    tracing::enabled!(target: TARGET, Level::TRACE)
}

/// Logs a client's operation other than a message.
#[cold]
pub(crate) fn operation(cid: u64, op: &ClientOp<'_>) {
    let text = String::from_utf8_lossy;
    let said = match op {
        ClientOp::Connect { .. } => "CONNECT {…}".to_owned(),
        ClientOp::Ping => "PING".to_owned(),
        ClientOp::Pong => "PONG".to_owned(),
        ClientOp::Subscribe { subject, queue, sid } => {
            format!("SUB {} {} {}", text(subject), text(queue.unwrap_or_default()), text(sid))
        }
        ClientOp::Unsubscribe { sid, max } => format!("UNSUB {} {}", text(sid), max.unwrap_or(0)),
        ClientOp::Ignored | ClientOp::Publish(_) => return,
    };
    tracing::trace!(target: TARGET, "cid:{cid} <<- [{said}]");
}

/// Logs messages from or to a client.
#[cold]
pub(crate) fn messages(cid: u64, verb: &str, run: &Run<'_>, count: usize) {
    let (subject, reply) = (String::from_utf8_lossy(run.subject), String::from_utf8_lossy(run.reply));
    let arrow = if verb == "PUB" { "<<-" } else { "->>" };
    tracing::trace!(target: TARGET, "cid:{cid} {arrow} [{verb} {subject} {reply} {}] ({count} messages)", run.body_bytes);
}
