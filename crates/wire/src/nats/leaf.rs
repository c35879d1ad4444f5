//! Protocol between a leaf node and its hub, in both directions.
//!
//! ```text
//!   leaf ── CONNECT, LS+ s, LS+ s queue weight, LS- s, LMSG, HMSG, PING, PONG ──▶ hub
//!        ◀─ INFO, LS+, LS-, LMSG, HMSG, PING, PONG, -ERR ──────────────────────
//! ```
//! The protocol is undocumented; nats-server 2.15 is the reference, and the operations have been the same
//! since 2.2. A message names no subscription: the receiver looks up its own subscriptions. The message goes
//! to all of the receiver's subscribers that are in no group, and to one member of each queue group that the
//! message names:
//!
//! ```text
//!   LMSG s n        LMSG s reply n        LMSG s | q1 q2 n        LMSG s + reply q1 n      HMSG: h n instead of n
//! ```
//! If it names no group, the bytes after the subject equal those in a client's `PUB`, so that only the verb
//! changes when a message passes from one protocol to the other ([`Message::is_plain`]).

use super::{
    Progress,
    line::{from_to, is_canonical, size, split, without_end, words},
    write,
};

/// Limits on what one side accepts from the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of a line with its end, in bytes. INFO with many addresses is the longest.
    pub line_bytes_max: usize,
    /// Maximum length of a message, headers included, in bytes.
    pub payload_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { line_bytes_max: 64 * 1024, payload_bytes_max: 1 << 20 }
    }
}

/// An operation of the leaf node protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafOp<'a> {
    /// INFO: the hub's identity, and later the leaf's permissions.
    Info {
        /// The JSON, not parsed.
        json: &'a [u8],
    },
    /// CONNECT: the leaf's identity.
    Connect {
        /// The JSON, not parsed.
        json: &'a [u8],
    },
    /// LS+: the sender has subscribers for a pattern.
    Interest {
        /// The pattern, not checked.
        subject: &'a [u8],
        /// The queue group and its number of members on the sender's side; `None` for subscribers in no
        /// group.
        queue: Option<(&'a [u8], u32)>,
    },
    /// LS-: the sender no longer has subscribers for a pattern.
    NoInterest {
        /// The pattern, not checked.
        subject: &'a [u8],
        /// The queue group, if any.
        queue: Option<&'a [u8]>,
    },
    /// LMSG or HMSG: a message.
    Message(Message<'a>),
    /// PING.
    Ping,
    /// PONG.
    Pong,
    /// +OK; it is ignored.
    Ok,
    /// -ERR: a rule was broken.
    Error {
        /// The error text, without the quotes.
        text: &'a [u8],
    },
}

/// A complete message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Destination subject, not checked.
    pub subject: &'a [u8],
    /// Subject for the reply; empty if no reply is wanted.
    pub reply: &'a [u8],
    /// The queue groups that get the message in addition to the subscribers without a group, with the blanks
    /// as received; empty for none.
    pub queues: &'a [u8],
    /// For HMSG, length of the header at the beginning of `body`.
    pub header_bytes: Option<usize>,
    /// Header and payload, without the line end.
    pub body: &'a [u8],
    /// The control line with its end.
    pub line: &'a [u8],
    /// True if the message names no group, single spaces separate its words and the line ends in CR LF: the
    /// bytes after the subject are then identical to those in a client's `PUB` or `HPUB`.
    pub is_plain: bool,
    /// The whole operation: control line, body, line end.
    pub whole: &'a [u8],
}

impl<'a> Message<'a> {
    /// Iterates over the queue groups that get the message.
    pub fn queue_names(&self) -> impl Iterator<Item = &'a [u8]> {
        words(self.queues)
    }
}

/// Error for bytes that the other side must not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LeafFault {
    /// The operation is unknown: the port does not speak the leaf node protocol.
    #[error("unknown operation")]
    UnknownOperation,
    /// The arguments cannot be read.
    #[error("invalid arguments of {0}")]
    Malformed(&'static str),
    /// The line does not end within [`Limits::line_bytes_max`].
    #[error("protocol line too long")]
    LineTooLong,
    /// The message exceeds [`Limits::payload_bytes_max`].
    #[error("message too long")]
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

/// The verbs as sent; the flag is true if a blank must follow the verb.
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

/// Parses one operation at the front of `bytes`.
///
/// # Errors
/// Returns a [`LeafFault`] as soon as the first byte that breaks a rule has arrived: an unknown verb, an
/// overlong line or message before its end.
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

/// Returns the verb at the start of the bytes, and its length including the blank after it; `None` if the
/// verb is still incomplete.
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
            // The weight has at most nine digits. A group that exists has at least one member, even if the
            // sender says 0.
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
    // Number of words between the subject and the sizes.
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
    // A wrong line end after the body is reported as soon as its byte has arrived.
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

/// Appends `LS+ subject CRLF`.
pub fn interest_line(out: &mut Vec<u8>, subject: &[u8]) {
    out.extend_from_slice(b"LS+ ");
    out.extend_from_slice(subject);
    out.extend_from_slice(b"\r\n");
}

/// Appends `LS+ subject queue weight CRLF`.
pub fn queue_interest_line(out: &mut Vec<u8>, subject: &[u8], queue: &[u8], weight: usize) {
    out.extend_from_slice(b"LS+ ");
    out.extend_from_slice(subject);
    out.push(b' ');
    out.extend_from_slice(queue);
    out.push(b' ');
    write::number(out, weight);
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

/// Appends a message's line up to, but not including, the blank before its sizes: `LMSG subject`, then the
/// reply and the queue groups that get it. `queues` are their names, separated by blanks; empty for none.
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
