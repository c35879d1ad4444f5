//! What clients say and are told, line by line, for who looks for a fault: nats-server's `trace`.
//!
//! Nothing of it is done unless the log's filter asks for it by name (`--log info,feed::protocol=trace`, `-V`): the one
//! thing that is always there is a comparison with the level in force. Payloads are not shown, and CONNECT's words are
//! left out: it holds passwords.

use tracing::Level;
use wire::nats::client::ClientOp;

use crate::delivery::run::Run;

/// The name that a log's filter has for these lines.
pub const TARGET: &str = "feed::protocol";

/// Whether somebody wants to know.
#[inline]
pub(crate) fn is_wanted() -> bool {
    tracing::enabled!(target: TARGET, Level::TRACE)
}

/// An operation of a client's other than a message.
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

/// Messages from a client, or to one.
#[cold]
pub(crate) fn messages(cid: u64, verb: &str, run: &Run<'_>, count: usize) {
    let (subject, reply) = (String::from_utf8_lossy(run.subject), String::from_utf8_lossy(run.reply));
    let arrow = if verb == "PUB" { "<<-" } else { "->>" };
    tracing::trace!(target: TARGET, "cid:{cid} {arrow} [{verb} {subject} {reply} {}] {count} of them", run.body_bytes);
}
