//! What a leaf node and its hub send each other, in both directions.
//!
//! ```text
//!   leaf ── CONNECT, LS+ s, LS+ s queue weight, LS- s, LMSG, HMSG, PING, PONG ──▶ hub
//!        ◀─ INFO, LS+, LS-, LMSG, HMSG, PING, PONG, -ERR ──────────────────────
//! ```
//! There is no document of it; nats-server 2.15 decides, and its words have been the same since 2.2. A message names no
//! subscription: whoever receives it looks for its own. It is for all of the other side's subscribers that are in no
//! group, and for one member of each queue group that it names:
//!
//! ```text
//!   LMSG s n        LMSG s reply n        LMSG s | q1 q2 n        LMSG s + reply q1 n      HMSG: h n instead of n
//! ```
//! Where it names no group, what follows the subject is byte for byte what follows it in a client's `PUB`, so that a
//! message passes from one protocol into the other by its verb alone ([`Message::is_plain`]).

use super::{
    Progress,
    line::{from_to, is_canonical, size, split, without_end, words},
    write,
};

/// What one side takes from the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of a line, its end included. INFO with many addresses is the longest.
    pub line_bytes_max: usize,
    /// Most bytes of a message, headers included.
    pub payload_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line_bytes_max: 64 * 1024, payload_bytes_max: 1 << 20 }
    }
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafOp<'a> {
    /// Who the hub is, and later what the leaf may do.
    Info {
        /// The JSON, not looked at.
        json: &'a [u8],
    },
    /// Who the leaf is.
    Connect {
        /// The JSON, not looked at.
        json: &'a [u8],
    },
    /// The sender has subscribers of a pattern.
    Interest {
        /// The pattern, not looked at.
        subject: &'a [u8],
        /// Its queue group, and how many members that has there; none: those that are in no group.
        queue: Option<(&'a [u8], u32)>,
    },
    /// It has none of them any more.
    NoInterest {
        /// The pattern, not looked at.
        subject: &'a [u8],
        /// Its queue group.
        queue: Option<&'a [u8]>,
    },
    /// A message.
    Message(Message<'a>),
    /// "Are you there?"
    Ping,
    /// "I am here."
    Pong,
    /// Nothing to do.
    Ok,
    /// A rule was broken.
    Error {
        /// The words, without the quotes.
        text: &'a [u8],
    },
}

/// A message, whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Where to; not looked at.
    pub subject: &'a [u8],
    /// Where an answer should go; empty: none is wanted.
    pub reply: &'a [u8],
    /// The queue groups that get it besides those who are in none, between blanks as they were written; empty: none.
    pub queues: &'a [u8],
    /// HMSG: bytes of the header, at the beginning of `body`.
    pub header_bytes: Option<usize>,
    /// Header and payload, without the line end.
    pub body: &'a [u8],
    /// The control line with its end.
    pub line: &'a [u8],
    /// It names no group, its words are parted by single spaces and the line ends in CR LF: then what follows the
    /// subject is to the last byte what follows it in a client's `PUB` or `HPUB`.
    pub is_plain: bool,
    /// All of it: control line, body, line end.
    pub whole: &'a [u8],
}

impl<'a> Message<'a> {
    /// The queue groups that get it.
    pub fn queue_names(&self) -> impl Iterator<Item = &'a [u8]> {
        words(self.queues)
    }
}

/// What the other side must not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LeafFault {
    /// None of the operations: this is no port for leaf nodes.
    #[error("no such operation")]
    UnknownOperation,
    /// The arguments cannot be read.
    #[error("the arguments of {0} cannot be read")]
    Malformed(&'static str),
    /// The line does not end within [`Limits::line_bytes_max`].
    #[error("a line that is too long")]
    LineTooLong,
    /// A message of more than [`Limits::payload_bytes_max`].
    #[error("a message that is too long")]
    PayloadTooLarge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Info,
    Connect,
    Interest,
    NoInterest,
    Msg,
    HMsg,
    Ping,
    Pong,
    Ok,
    Err,
}

/// The verbs, and whether a blank must follow.
const VERBS: [(&[u8], Verb, bool); 10] = [
    (b"LMSG", Verb::Msg, true),
    (b"HMSG", Verb::HMsg, true),
    (b"LS+", Verb::Interest, true),
    (b"LS-", Verb::NoInterest, true),
    (b"PING", Verb::Ping, false),
    (b"PONG", Verb::Pong, false),
    (b"INFO", Verb::Info, false),
    (b"CONNECT", Verb::Connect, false),
    (b"+OK", Verb::Ok, false),
    (b"-ERR", Verb::Err, false),
];

/// Takes one operation off the front of `bytes`.
///
/// # Errors
/// [`LeafFault`], with the first byte that breaks a rule: a wrong verb, a line or a message that is too long before its
/// end has come.
pub fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Progress<LeafOp<'a>>, LeafFault> {
    let Some((verb, verb_bytes)) = verb(bytes)? else {
        return Ok(Progress::NeedMore(bytes.len() + 1));
    };
    let Some(lf) = memchr::memchr(b'\n', &bytes[..bytes.len().min(limits.line_bytes_max)]) else {
        return if bytes.len() >= limits.line_bytes_max {
            Err(LeafFault::LineTooLong)
        } else {
            Ok(Progress::NeedMore(bytes.len() + 1))
        };
    };
    let line = &bytes[..=lf];
    let arguments = without_end(line).get(verb_bytes..).unwrap_or_default();
    let op = match verb {
        Verb::Msg | Verb::HMsg => return message(bytes, line, arguments, verb == Verb::HMsg, limits),
        Verb::Info => LeafOp::Info { json: arguments.trim_ascii() },
        Verb::Connect => LeafOp::Connect { json: arguments.trim_ascii() },
        Verb::Interest => interest(arguments)?,
        Verb::NoInterest => match split::<2>(arguments) {
            Ok(([subject, _], 1)) => LeafOp::NoInterest { subject, queue: None },
            Ok(([subject, queue], 2)) => LeafOp::NoInterest { subject, queue: Some(queue) },
            _ => return Err(LeafFault::Malformed("LS-")),
        },
        Verb::Ping => LeafOp::Ping,
        Verb::Pong => LeafOp::Pong,
        Verb::Ok => LeafOp::Ok,
        Verb::Err => {
            let text = arguments.trim_ascii();
            let text = text.strip_prefix(b"'").and_then(|text| text.strip_suffix(b"'")).unwrap_or(text);
            LeafOp::Error { text }
        }
    };
    Ok(Progress::Complete(op, lf + 1))
}

/// Which verb the bytes begin with, and how long it is with its blank; `None`: it may become one.
#[inline]
fn verb(bytes: &[u8]) -> Result<Option<(Verb, usize)>, LeafFault> {
    let mut may_become = false;
    for (name, verb, needs_blank) in VERBS {
        let known = name.len().min(bytes.len());
        if !bytes[..known].eq_ignore_ascii_case(&name[..known]) {
            continue;
        }
        match bytes.get(name.len()) {
            None => may_become = true,
            Some(b' ' | b'\t') => return Ok(Some((verb, name.len() + 1))),
            Some(_) if needs_blank => return Err(LeafFault::UnknownOperation),
            Some(_) => return Ok(Some((verb, name.len()))),
        }
    }
    if may_become { Ok(None) } else { Err(LeafFault::UnknownOperation) }
}

fn interest(arguments: &[u8]) -> Result<LeafOp<'_>, LeafFault> {
    let (subject, queue) = match split::<3>(arguments) {
        Ok(([subject, ..], 1)) => (subject, None),
        Ok(([subject, queue, weight], 3)) => {
            let weight = size(weight).ok_or(LeafFault::Malformed("LS+"))?;
            // At most nine digits. A group that is there has a member, whatever is said of it.
            (subject, Some((queue, u32::try_from(weight).unwrap_or(u32::MAX).max(1))))
        }
        _ => return Err(LeafFault::Malformed("LS+")),
    };
    Ok(LeafOp::Interest { subject, queue })
}

fn message<'a>(
    bytes: &'a [u8],
    line: &'a [u8],
    arguments: &'a [u8],
    has_header: bool,
    limits: &Limits,
) -> Result<Progress<LeafOp<'a>>, LeafFault> {
    let malformed = LeafFault::Malformed(if has_header { "HMSG" } else { "LMSG" });
    let count = words(arguments).count();
    // What stands between the subject and the sizes.
    let Some(between) = count.checked_sub(if has_header { 3 } else { 2 }) else { return Err(malformed) };
    let mut from_front = words(arguments);
    let mut from_back = arguments.rsplit(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let subject = from_front.next().ok_or(malformed)?;
    let body_bytes = from_back.next().and_then(size).ok_or(malformed)?;
    let header_bytes = match has_header {
        true => Some(from_back.next().and_then(size).ok_or(malformed)?),
        false => None,
    };
    if header_bytes.is_some_and(|header_bytes| header_bytes > body_bytes) {
        return Err(malformed);
    }
    let (mut reply, mut queues): (&[u8], &[u8]) = (b"", b"");
    if between == 1 {
        reply = from_front.next().ok_or(malformed)?;
    } else if between > 1 {
        let (mut first, last) = (from_front.next(), from_back.next());
        match first {
            Some(b"|") => {}
            Some(b"+") => reply = from_front.next().ok_or(malformed)?,
            _ => return Err(malformed),
        }
        first = if between == 2 && !reply.is_empty() { None } else { from_front.next() };
        if let (Some(first), Some(last)) = (first, last) {
            queues = from_to(arguments, first, last);
        }
    }
    if body_bytes > limits.payload_bytes_max {
        return Err(LeafFault::PayloadTooLarge);
    }
    let whole = line.len() + body_bytes + 2;
    // A wrong end is told as soon as it is there.
    if bytes.get(whole - 2).is_some_and(|&byte| byte != b'\r')
        || bytes.get(whole - 1).is_some_and(|&byte| byte != b'\n')
    {
        return Err(malformed);
    }
    if bytes.len() < whole {
        return Ok(Progress::NeedMore(whole));
    }
    let message = Message {
        subject,
        reply,
        queues,
        header_bytes,
        body: &bytes[line.len()..whole - 2],
        line,
        is_plain: between < 2 && is_canonical(line, arguments, count),
        whole: &bytes[..whole],
    };
    Ok(Progress::Complete(LeafOp::Message(message), whole))
}

/// Appends `LS+ subject[ queue weight] CRLF`.
pub fn interest_line(out: &mut Vec<u8>, subject: &[u8], queue: Option<(&[u8], usize)>) {
    out.extend_from_slice(b"LS+ ");
    out.extend_from_slice(subject);
    if let Some((queue, weight)) = queue {
        out.push(b' ');
        out.extend_from_slice(queue);
        out.push(b' ');
        write::number(out, weight);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends `LS- subject[ queue] CRLF`.
pub fn no_interest_line(out: &mut Vec<u8>, subject: &[u8], queue: Option<&[u8]>) {
    out.extend_from_slice(b"LS- ");
    out.extend_from_slice(subject);
    if let Some(queue) = queue {
        out.push(b' ');
        out.extend_from_slice(queue);
    }
    out.extend_from_slice(b"\r\n");
}

/// Appends a message's line up to its sizes, which a blank parts from it: `LMSG subject`, then `reply`, or which queue
/// groups get it. `queues` are their names with a blank between each two; empty: none.
pub fn begin_message(out: &mut Vec<u8>, has_header: bool, subject: &[u8], reply: &[u8], queues: &[u8]) {
    out.extend_from_slice(if has_header { b"HMSG " } else { b"LMSG " });
    out.extend_from_slice(subject);
    if !queues.is_empty() {
        out.extend_from_slice(if reply.is_empty() { b" |" } else { b" +" });
    }
    for word in [reply, queues] {
        if !word.is_empty() {
            out.push(b' ');
            out.extend_from_slice(word);
        }
    }
}
