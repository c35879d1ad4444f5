//! The slow twin of `wire::nats::leaf::parse`: owned words, one rule after the other. It also contains the
//! comparison that tests and the fuzzer share.
#![allow(dead_code, reason = "each user takes a part")]

use wire::nats::{
    Progress, client,
    leaf::{self, LeafFault, LeafOp, Limits},
    write,
};

/// Result of the twin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Naive {
    Complete(Op, usize),
    Unfinished,
    Refused(LeafFault),
}

/// An operation with owned words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Info(Vec<u8>),
    Connect(Vec<u8>),
    Interest(Vec<u8>, Option<(Vec<u8>, u32)>),
    NoInterest(Vec<u8>, Option<Vec<u8>>),
    Message {
        subject: Vec<u8>,
        reply: Vec<u8>,
        queues: Vec<Vec<u8>>,
        header_bytes: Option<usize>,
        body: Vec<u8>,
    },
    Ping,
    Pong,
    Ok,
    Error(Vec<u8>),
}

fn digits(word: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(word).ok()?;
    let is_size = !text.is_empty() && text.len() <= 9 && text.chars().all(|letter| letter.is_ascii_digit());
    if is_size { text.parse().ok() } else { None }
}

fn trimmed(bytes: &[u8]) -> Vec<u8> {
    bytes.trim_ascii().to_vec()
}

/// Parses one operation at the front of `bytes`.
pub(crate) fn parse(bytes: &[u8], limits: &Limits) -> Naive {
    let verbs = ["LMSG", "HMSG", "LS+", "LS-", "PING", "PONG", "INFO", "CONNECT", "+OK", "-ERR"];
    let upper = bytes.to_ascii_uppercase();
    let Some(verb) = verbs.iter().find(|verb| upper.starts_with(verb.as_bytes())) else {
        let may_become = verbs.iter().any(|verb| verb.as_bytes().starts_with(&upper));
        return if may_become { Naive::Unfinished } else { Naive::Refused(LeafFault::UnknownOperation) };
    };
    let Some(&after) = bytes.get(verb.len()) else { return Naive::Unfinished };
    let is_blank = after == b' ' || after == b'\t';
    if ["LMSG", "HMSG", "LS+", "LS-"].contains(verb) && !is_blank {
        return Naive::Refused(LeafFault::UnknownOperation);
    }
    let lf = match bytes.iter().position(|&byte| byte == b'\n') {
        Some(lf) if lf < limits.line_bytes_max => lf,
        _ if bytes.len() >= limits.line_bytes_max => return Naive::Refused(LeafFault::LineTooLong),
        _ => return Naive::Unfinished,
    };
    let mut line = bytes[..lf].to_vec();
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    let arguments = line.get(verb.len() + usize::from(is_blank)..).unwrap_or_default().to_vec();
    let words: Vec<Vec<u8>> = arguments
        .split(|&byte| byte == b' ' || byte == b'\t')
        .filter(|word| !word.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    let malformed = |verb| Naive::Refused(LeafFault::Malformed(verb));
    let op = match (*verb, words.as_slice()) {
        ("INFO", _) => Op::Info(trimmed(&arguments)),
        ("CONNECT", _) => Op::Connect(trimmed(&arguments)),
        ("PING", _) => Op::Ping,
        ("PONG", _) => Op::Pong,
        ("+OK", _) => Op::Ok,
        ("-ERR", _) => {
            let text = trimmed(&arguments);
            let is_quoted = text.len() >= 2 && text.starts_with(b"'") && text.ends_with(b"'");
            Op::Error(if is_quoted { text[1..text.len() - 1].to_vec() } else { text })
        }
        ("LS+", [subject]) => Op::Interest(subject.clone(), None),
        ("LS+", [subject, queue, weight]) => match digits(weight) {
            Some(weight) => Op::Interest(
                subject.clone(),
                Some((queue.clone(), u32::try_from(weight.max(1)).unwrap_or(u32::MAX))),
            ),
            None => return malformed("LS+"),
        },
        ("LS-", [subject]) => Op::NoInterest(subject.clone(), None),
        ("LS-", [subject, queue]) => Op::NoInterest(subject.clone(), Some(queue.clone())),
        ("LMSG" | "HMSG", words) => return message(bytes, lf, words, *verb == "HMSG", limits),
        ("LS+", _) => return malformed("LS+"),
        _ => return malformed("LS-"),
    };
    Naive::Complete(op, lf + 1)
}

fn message(bytes: &[u8], lf: usize, words: &[Vec<u8>], has_header: bool, limits: &Limits) -> Naive {
    let malformed = Naive::Refused(LeafFault::Malformed(if has_header { "HMSG" } else { "LMSG" }));
    let mut words = words.to_vec();
    let Some(total) = words.pop().and_then(|word| digits(&word)) else { return malformed };
    let header_bytes = match has_header {
        false => None,
        true => match words.pop().and_then(|word| digits(&word)) {
            Some(header) if header <= total => Some(header),
            _ => return malformed,
        },
    };
    let (subject, reply, queues) = match &words[..] {
        [subject] => (subject, Vec::new(), Vec::new()),
        [subject, reply] => (subject, reply.clone(), Vec::new()),
        [subject, sign, queues @ ..] if sign == b"|" => (subject, Vec::new(), queues.to_vec()),
        [subject, sign, reply, queues @ ..] if sign == b"+" => (subject, reply.clone(), queues.to_vec()),
        _ => return malformed,
    };
    if total > limits.payload_bytes_max {
        return Naive::Refused(LeafFault::PayloadTooLarge);
    }
    let end = lf + 1 + total;
    let wrong = |at: usize, right: u8| bytes.get(at).is_some_and(|&byte| byte != right);
    if wrong(end, b'\r') || wrong(end + 1, b'\n') {
        return malformed;
    }
    if bytes.len() < end + 2 {
        return Naive::Unfinished;
    }
    let body = bytes[lf + 1..end].to_vec();
    Naive::Complete(Op::Message { subject: subject.clone(), reply, queues, header_bytes, body }, end + 2)
}

/// Runs the real parser, converts its result to the twin's, and checks its invariants.
pub(crate) fn real(bytes: &[u8], limits: &Limits) -> Naive {
    match leaf::parse(bytes, limits) {
        Ok(Progress::NeedMore(need)) => {
            assert!(need > bytes.len(), "more is needed than there is");
            Naive::Unfinished
        }
        Err(fault) => Naive::Refused(fault),
        Ok(Progress::Complete(op, taken)) => {
            assert!(taken <= bytes.len());
            let op = match op {
                LeafOp::Info { json } => Op::Info(json.to_vec()),
                LeafOp::Connect { json } => Op::Connect(json.to_vec()),
                LeafOp::Interest { subject, queue } => {
                    Op::Interest(subject.to_vec(), queue.map(|(queue, weight)| (queue.to_vec(), weight)))
                }
                LeafOp::NoInterest { subject, queue } => {
                    Op::NoInterest(subject.to_vec(), queue.map(<[u8]>::to_vec))
                }
                LeafOp::Ping => Op::Ping,
                LeafOp::Pong => Op::Pong,
                LeafOp::Ok => Op::Ok,
                LeafOp::Error { text } => Op::Error(text.to_vec()),
                LeafOp::Message(message) => {
                    assert_message(&message, &bytes[..taken]);
                    Op::Message {
                        subject: message.subject.to_vec(),
                        reply: message.reply.to_vec(),
                        queues: message.queue_names().map(<[u8]>::to_vec).collect(),
                        header_bytes: message.header_bytes,
                        body: message.body.to_vec(),
                    }
                }
            };
            Naive::Complete(op, taken)
        }
    }
}

/// Checks that a message repeats itself, that a plain one differs from a client's publish only in its verb,
/// and that it reads the same after being written again.
fn assert_message(message: &leaf::Message<'_>, whole: &[u8]) {
    assert_eq!(message.whole, whole);
    assert!(whole.starts_with(message.line));
    assert_eq!(client::repeats(whole, message.line, message.body.len()), Some(whole.len()));
    let sizes = |out: &mut Vec<u8>| {
        for size in message.header_bytes.into_iter().chain([message.body.len()]) {
            out.push(b' ');
            write::number(out, size);
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(message.body);
        out.extend_from_slice(b"\r\n");
    };
    if message.is_plain {
        let verb = if message.header_bytes.is_some() { "HPUB " } else { "PUB " };
        let publish = [verb.as_bytes(), &whole[5..]].concat();
        let limits = client::Limits {
            control_line_bytes_max: usize::MAX / 2,
            payload_bytes_max: usize::MAX / 2,
            headers: true,
        };
        let Ok(Progress::Complete(client::ClientOp::Publish(read), taken)) = client::parse(&publish, &limits)
        else {
            panic!("{:?} is no publish", String::from_utf8_lossy(&publish));
        };
        assert_eq!(taken, publish.len());
        assert_eq!(
            (read.subject, read.reply, read.header_bytes, read.body),
            (message.subject, message.reply, message.header_bytes, message.body)
        );
        assert_eq!(read.tail(), Some(&whole[5 + message.subject.len()..]));
    }
    let queues = message.queue_names().collect::<Vec<_>>().join(&b' ');
    let mut anew = Vec::new();
    leaf::begin_message(&mut anew, message.header_bytes.is_some(), message.subject, message.reply, &queues);
    sizes(&mut anew);
    let no_limits = Limits { line_bytes_max: usize::MAX, payload_bytes_max: usize::MAX };
    let Ok(Progress::Complete(LeafOp::Message(again), _)) = leaf::parse(&anew, &no_limits) else {
        panic!("{:?} is no message", String::from_utf8_lossy(&anew));
    };
    assert_eq!((again.subject, again.reply, again.body), (message.subject, message.reply, message.body));
    assert_eq!(again.queues, queues);
    assert_eq!(again.header_bytes, message.header_bytes);
}

/// Checks that parser and twin agree on the input and on every prefix of it, and that a prefix's result holds
/// for the whole.
pub(crate) fn check(bytes: &[u8], limits: &Limits) {
    let whole = real(bytes, limits);
    assert_eq!(whole, parse(bytes, limits), "{:?}", String::from_utf8_lossy(bytes));
    for cut in 0..bytes.len() {
        let part = real(&bytes[..cut], limits);
        assert_eq!(part, parse(&bytes[..cut], limits), "at {cut} of {:?}", String::from_utf8_lossy(bytes));
        match (&part, &whole) {
            (Naive::Unfinished, Naive::Complete(_, taken)) => {
                assert!(cut < *taken);
                if let Ok(Progress::NeedMore(need)) = leaf::parse(&bytes[..cut], limits) {
                    assert!(need <= *taken, "no more is asked for than the operation has");
                }
            }
            (Naive::Unfinished, _) => {}
            (part, whole) => assert_eq!(part, whole, "once said, it stays so"),
        }
    }
}
