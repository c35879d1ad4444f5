//! Parser for the operations that NATS clients send.
//!
//! [`parse`] takes one operation off the front of the received bytes. [`repeats`] is a fast path for a series
//! of publishes by one producer: most of them have the same control line (same subject, same size), so one
//! comparison replaces the parsing of the line.

use super::{
    Progress,
    line::{from_to, is_canonical, size, split, without_end},
    rejection::Rejection,
};

/// Limits of a server for one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of an operation's arguments, in bytes.
    pub control_line_bytes_max: usize,
    /// Maximum length of a payload, headers included, in bytes.
    pub payload_bytes_max: usize,
    /// True if the connection uses headers (both sides announced support).
    pub headers: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { control_line_bytes_max: 4096, payload_bytes_max: 1 << 20, headers: true }
    }
}

/// An operation of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientOp<'a> {
    /// CONNECT: the client's identity and options, as JSON.
    Connect {
        /// The JSON, not parsed.
        options: &'a [u8],
    },
    /// PING.
    Ping,
    /// PONG.
    Pong,
    /// PUB or HPUB: a message.
    Publish(Publish<'a>),
    /// SUB: subscribes to a subject.
    Subscribe {
        /// The pattern, not checked.
        subject: &'a [u8],
        /// The queue group that the subscriber joins.
        queue: Option<&'a [u8]>,
        /// The client's name for this subscription.
        sid: &'a [u8],
    },
    /// UNSUB: ends a subscription, now or after a number of messages.
    Unsubscribe {
        /// The client's name for the subscription.
        sid: &'a [u8],
        /// Total number of messages, counted from the subscription; `None` and 0 end it now. An unreadable
        /// number counts as 0, as in nats-server.
        max: Option<u64>,
    },
    /// INFO or +OK, which servers send among themselves; the operation is ignored.
    Ignored,
}

/// A complete message from a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish<'a> {
    /// Destination subject, not checked.
    pub subject: &'a [u8],
    /// Subject for the reply; empty if no reply is wanted.
    pub reply: &'a [u8],
    /// The sizes as the client wrote them, including leading zeros (as in nats-server): `100`, or for HPUB
    /// the header size and the total size, `12 100` (separated by one blank if `is_canonical`).
    pub sizes: &'a [u8],
    /// For HPUB, length of the header at the beginning of `body`.
    pub header_bytes: Option<usize>,
    /// Header and payload, without the line end.
    pub body: &'a [u8],
    /// The control line with its end.
    pub line: &'a [u8],
    /// True if single spaces separate the words and the line ends in CR LF: the bytes after the subject are
    /// then identical to the bytes after the sid in the MSG to a subscriber; see [`Self::tail`].
    pub is_canonical: bool,
    /// The whole operation: control line, body, line end.
    pub whole: &'a [u8],
}

impl<'a> Publish<'a> {
    /// Returns ` [reply ]sizes CRLF body CRLF`, everything after the subject, if it can be forwarded
    /// unchanged.
    #[must_use]
    pub fn tail(&self) -> Option<&'a [u8]> {
        self.is_canonical.then(|| {
            let verb = if self.header_bytes.is_some() { "HPUB ".len() } else { "PUB ".len() };
            &self.whole[verb + self.subject.len()..]
        })
    }
}

/// Length of the longest verb and its blank: the largest possible offset of the arguments.
const VERB_BYTES_MAX: usize = "CONNECT ".len();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Connect,
    Ping,
    Pong,
    Pub,
    HPub,
    Sub,
    Unsub,
    Info,
    Ok,
    Err,
}

/// The verbs as sent; the flag is true if a blank must follow the verb.
const VERBS: [(&[u8], Verb, bool); 10] = [
    (b"PUB", Verb::Pub, true),
    (b"HPUB", Verb::HPub, true),
    (b"PING", Verb::Ping, false),
    (b"PONG", Verb::Pong, false),
    (b"SUB", Verb::Sub, true),
    (b"UNSUB", Verb::Unsub, true),
    (b"CONNECT", Verb::Connect, false),
    (b"INFO", Verb::Info, false),
    (b"+OK", Verb::Ok, false),
    (b"-ERR", Verb::Err, false),
];

/// Parses one operation at the front of `bytes`.
///
/// # Errors
/// Returns the [`Rejection`] for the rule that the client broke, as soon as the first byte that breaks it has
/// arrived: an overlong line before its end, an overlong payload before its first byte.
pub fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Progress<ClientOp<'a>>, Rejection<'static>> {
    let Some((verb, verb_bytes)) = verb(bytes)? else {
        return Ok(Progress::NeedMore(bytes.len() + 1));
    };
    // Two bytes are added for CR and LF, which do not count towards the limit.
    let window = bytes.len().min(VERB_BYTES_MAX + limits.control_line_bytes_max + 2);
    let Some(lf) = memchr::memchr(b'\n', &bytes[..window]) else {
        let too_long = bytes.len() - verb_bytes > limits.control_line_bytes_max + 2;
        return if too_long {
            Err(Rejection::ControlLineTooLong)
        } else {
            Ok(Progress::NeedMore(bytes.len() + 1))
        };
    };
    let line = &bytes[..=lf];
    let arguments = without_end(line).get(verb_bytes..).unwrap_or_default();
    if arguments.len() > limits.control_line_bytes_max {
        return Err(Rejection::ControlLineTooLong);
    }
    let op = match verb {
        Verb::Pub | Verb::HPub => return publish(bytes, line, arguments, verb == Verb::HPub, limits),
        Verb::Ping => ClientOp::Ping,
        Verb::Pong => ClientOp::Pong,
        Verb::Connect => ClientOp::Connect { options: arguments },
        Verb::Sub => match split::<3>(arguments) {
            Ok(([subject, sid, _], 2)) => ClientOp::Subscribe { subject, queue: None, sid },
            Ok(([subject, queue, sid], 3)) => ClientOp::Subscribe { subject, queue: Some(queue), sid },
            _ => return Err(Rejection::Malformed("SUB takes a subject, perhaps a queue, and a sid")),
        },
        Verb::Unsub => match split::<2>(arguments) {
            Ok(([sid, _], 1)) => ClientOp::Unsubscribe { sid, max: None },
            Ok(([sid, max], 2)) => {
                ClientOp::Unsubscribe { sid, max: Some(size(max).map_or(0, |max| max as u64)) }
            }
            _ => return Err(Rejection::Malformed("UNSUB takes a sid and perhaps a number")),
        },
        Verb::Info | Verb::Ok => ClientOp::Ignored,
        Verb::Err => return Err(Rejection::ErrorFromClient),
    };
    Ok(Progress::Complete(op, lf + 1))
}

/// Returns the total length of the next publish if `bytes` begin with one whose control line is `line` and
/// whose payload is `body_bytes` long. `None` means that [`parse`] must be called.
#[inline]
#[must_use]
pub fn repeats(bytes: &[u8], line: &[u8], body_bytes: usize) -> Option<usize> {
    let total = line.len() + body_bytes + 2;
    (bytes.len() >= total && &bytes[..line.len()] == line && &bytes[total - 2..total] == b"\r\n")
        .then_some(total)
}

/// Returns the verb at the start of the bytes, and its length including the blank after it; `None` if the
/// verb is still incomplete.
#[inline]
fn verb(bytes: &[u8]) -> Result<Option<(Verb, usize)>, Rejection<'static>> {
    if bytes.len() > 3 && bytes.starts_with(b"PUB ") {
        return Ok(Some((Verb::Pub, 4)));
    }
    let mut may_become = false;
    for (name, verb, needs_blank) in VERBS {
        let known = name.len().min(bytes.len());
        if !bytes[..known].eq_ignore_ascii_case(&name[..known]) {
            continue;
        }
        match bytes.get(name.len()) {
            None => may_become = true,
            Some(&byte) if byte == b' ' || byte == b'\t' => return Ok(Some((verb, name.len() + 1))),
            Some(_) if needs_blank => return Err(Rejection::UnknownOperation),
            Some(_) => return Ok(Some((verb, name.len()))),
        }
    }
    if may_become { Ok(None) } else { Err(Rejection::UnknownOperation) }
}

fn publish<'a>(
    bytes: &'a [u8],
    line: &'a [u8],
    arguments: &'a [u8],
    has_header: bool,
    limits: &Limits,
) -> Result<Progress<ClientOp<'a>>, Rejection<'static>> {
    let malformed = Err(Rejection::Malformed("PUB takes a subject, perhaps a reply, and a size"));
    if has_header && !limits.headers {
        return Err(Rejection::HeadersUnsupported);
    }
    let Ok((words, count)) = split::<4>(arguments) else { return malformed };
    let (subject, reply, header, total): (_, &[u8], Option<&[u8]>, _) = match (has_header, count) {
        (false, 2) => (words[0], &[], None, words[1]),
        (false, 3) => (words[0], words[1], None, words[2]),
        (true, 3) => (words[0], &[], Some(words[1]), words[2]),
        (true, 4) => (words[0], words[1], Some(words[2]), words[3]),
        _ => return malformed,
    };
    let Some(body_bytes) = size(total) else { return malformed };
    let header_bytes = match header.map(size) {
        None => None,
        Some(None) => return malformed,
        Some(header_bytes) => header_bytes,
    };
    if header_bytes.is_some_and(|header_bytes| header_bytes > body_bytes) {
        return malformed;
    }
    if body_bytes > limits.payload_bytes_max {
        return Err(Rejection::PayloadTooLarge);
    }
    let whole = line.len() + body_bytes + 2;
    // A wrong line end after the body is reported as soon as its byte has arrived.
    if bytes.get(whole - 2).is_some_and(|&byte| byte != b'\r')
        || bytes.get(whole - 1).is_some_and(|&byte| byte != b'\n')
    {
        return Err(Rejection::UnknownOperation);
    }
    if bytes.len() < whole {
        return Ok(Progress::NeedMore(whole));
    }
    let sizes = match header {
        None => total,
        Some(header) => from_to(arguments, header, total),
    };
    let publish = Publish {
        subject,
        reply,
        sizes,
        header_bytes,
        body: &bytes[line.len()..whole - 2],
        line,
        is_canonical: is_canonical(line, arguments, count),
        whole: &bytes[..whole],
    };
    Ok(Progress::Complete(ClientOp::Publish(publish), whole))
}
