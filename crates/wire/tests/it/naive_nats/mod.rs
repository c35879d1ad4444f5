//! The slow twin of `wire::nats::client::parse`: written from the protocol's documentation, with owned words
//! and no regard for speed. It also contains the comparison that tests and the fuzzer share.
#![allow(dead_code, reason = "each user takes a part")]

use wire::nats::{
    Progress,
    client::{self, ClientOp, Limits},
    rejection::Rejection,
};

/// Result of the twin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Naive {
    Complete(Op, usize),
    Unfinished,
    Refused(&'static str),
}

/// An operation with owned words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Connect(Vec<u8>),
    Ping,
    Pong,
    Publish { subject: Vec<u8>, reply: Vec<u8>, header_bytes: Option<usize>, body: Vec<u8> },
    Subscribe { subject: Vec<u8>, queue: Option<Vec<u8>>, sid: Vec<u8> },
    Unsubscribe { sid: Vec<u8>, max: Option<u64> },
    Ignored,
}

fn digits(word: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(word).ok()?;
    let is_size = !text.is_empty() && text.len() <= 9 && text.chars().all(|letter| letter.is_ascii_digit());
    if is_size { text.parse().ok() } else { None }
}

/// Parses one operation at the front of `bytes`.
pub(crate) fn parse(bytes: &[u8], limits: &Limits) -> Naive {
    const UNKNOWN: &str = "Unknown Protocol Operation";
    const TOO_LONG: &str = "maximum control line exceeded";
    const SILENT: &str = "";
    let verbs = ["PUB", "HPUB", "SUB", "UNSUB", "PING", "PONG", "CONNECT", "INFO", "+OK", "-ERR"];
    let upper = bytes.to_ascii_uppercase();
    let Some(verb) = verbs.iter().find(|verb| upper.starts_with(verb.as_bytes())) else {
        let may_become = verbs.iter().any(|verb| verb.as_bytes().starts_with(&upper));
        return if may_become { Naive::Unfinished } else { Naive::Refused(UNKNOWN) };
    };
    let Some(&after) = bytes.get(verb.len()) else { return Naive::Unfinished };
    let is_blank = after == b' ' || after == b'\t';
    if ["PUB", "HPUB", "SUB", "UNSUB"].contains(verb) && !is_blank {
        return Naive::Refused(UNKNOWN);
    }
    let arguments_at = verb.len() + usize::from(is_blank);
    let Some(lf) = bytes.iter().position(|&byte| byte == b'\n') else {
        let too_long = bytes.len() - arguments_at > limits.control_line_bytes_max + 2;
        return if too_long { Naive::Refused(TOO_LONG) } else { Naive::Unfinished };
    };
    let mut line = bytes[..lf].to_vec();
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    let arguments = if line.len() >= arguments_at { line[arguments_at..].to_vec() } else { Vec::new() };
    if arguments.len() > limits.control_line_bytes_max {
        return Naive::Refused(TOO_LONG);
    }
    let words: Vec<Vec<u8>> = arguments
        .split(|&byte| byte == b' ' || byte == b'\t')
        .filter(|word| !word.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    let op = match (*verb, words.as_slice()) {
        ("CONNECT", _) => Op::Connect(arguments),
        ("PING", _) => Op::Ping,
        ("PONG", _) => Op::Pong,
        ("INFO" | "+OK", _) => Op::Ignored,
        ("SUB", [subject, sid]) => Op::Subscribe { subject: subject.clone(), queue: None, sid: sid.clone() },
        ("SUB", [subject, queue, sid]) => {
            Op::Subscribe { subject: subject.clone(), queue: Some(queue.clone()), sid: sid.clone() }
        }
        ("UNSUB", [sid]) => Op::Unsubscribe { sid: sid.clone(), max: None },
        ("UNSUB", [sid, max]) => {
            Op::Unsubscribe { sid: sid.clone(), max: Some(digits(max).unwrap_or(0) as u64) }
        }
        ("HPUB", _) if !limits.headers => return Naive::Refused(SILENT),
        ("PUB" | "HPUB", words) => {
            let (subject, reply, header, total) = match (*verb, words) {
                ("PUB", [subject, total]) => (subject, None, None, total),
                ("PUB", [subject, reply, total]) => (subject, Some(reply), None, total),
                ("HPUB", [subject, header, total]) => (subject, None, Some(header), total),
                ("HPUB", [subject, reply, header, total]) => (subject, Some(reply), Some(header), total),
                _ => return Naive::Refused(SILENT),
            };
            let (Some(total), Some(header)) =
                (digits(total), header.map_or(Some(None), |word| digits(word).map(Some)))
            else {
                return Naive::Refused(SILENT);
            };
            if header.is_some_and(|header| header > total) {
                return Naive::Refused(SILENT);
            }
            if total > limits.payload_bytes_max {
                return Naive::Refused("Maximum Payload Violation");
            }
            let end = lf + 1 + total;
            let wrong = |at: usize, right: u8| bytes.get(at).is_some_and(|&byte| byte != right);
            if wrong(end, b'\r') || wrong(end + 1, b'\n') {
                return Naive::Refused(UNKNOWN);
            }
            if bytes.len() < end + 2 {
                return Naive::Unfinished;
            }
            let publish = Op::Publish {
                subject: subject.clone(),
                reply: reply.cloned().unwrap_or_default(),
                header_bytes: header,
                body: bytes[lf + 1..end].to_vec(),
            };
            return Naive::Complete(publish, end + 2);
        }
        _ => return Naive::Refused(SILENT),
    };
    Naive::Complete(op, lf + 1)
}

/// Runs the real parser, converts its result to the twin's, and checks its invariants.
pub(crate) fn real(bytes: &[u8], limits: &Limits) -> Naive {
    match client::parse(bytes, limits) {
        Ok(Progress::NeedMore(need)) => {
            assert!(need > bytes.len(), "more is needed than there is");
            Naive::Unfinished
        }
        Err(rejection) => {
            assert!(rejection.closes());
            Naive::Refused(rejection.fixed_text().unwrap_or_else(|| {
                assert!(matches!(
                    rejection,
                    Rejection::Malformed(_) | Rejection::HeadersUnsupported | Rejection::ErrorFromClient
                ));
                ""
            }))
        }
        Ok(Progress::Complete(op, taken)) => {
            assert!(taken <= bytes.len());
            let op = match op {
                ClientOp::Connect { options } => Op::Connect(options.to_vec()),
                ClientOp::Ping => Op::Ping,
                ClientOp::Pong => Op::Pong,
                ClientOp::Ignored => Op::Ignored,
                ClientOp::Subscribe { subject, queue, sid } => Op::Subscribe {
                    subject: subject.to_vec(),
                    queue: queue.map(<[u8]>::to_vec),
                    sid: sid.to_vec(),
                },
                ClientOp::Unsubscribe { sid, max } => Op::Unsubscribe { sid: sid.to_vec(), max },
                ClientOp::Publish(publish) => {
                    assert_eq!(publish.whole, &bytes[..taken]);
                    assert!(publish.whole.starts_with(publish.line));
                    if let Some(tail) = publish.tail() {
                        assert_tail(&publish, tail);
                    }
                    if client::repeats(bytes, publish.line, publish.body.len()) != Some(taken) {
                        panic!("a message is like itself");
                    }
                    Op::Publish {
                        subject: publish.subject.to_vec(),
                        reply: publish.reply.to_vec(),
                        header_bytes: publish.header_bytes,
                        body: publish.body.to_vec(),
                    }
                }
            };
            Naive::Complete(op, taken)
        }
    }
}

/// Checks that a tail equals the bytes after the sid in the message to a subscriber.
fn assert_tail(publish: &client::Publish<'_>, tail: &[u8]) {
    let mut expected = vec![b' '];
    if !publish.reply.is_empty() {
        expected.extend_from_slice(publish.reply);
        expected.push(b' ');
    }
    expected.extend_from_slice(publish.sizes);
    expected.extend_from_slice(b"\r\n");
    expected.extend_from_slice(publish.body);
    expected.extend_from_slice(b"\r\n");
    assert_eq!(tail, expected, "{:?}", String::from_utf8_lossy(publish.whole));
}

/// Checks that parser and twin agree on the input and on every prefix of it, and that a prefix's result holds
/// for the whole.
pub(crate) fn check(bytes: &[u8], limits: &Limits) {
    let whole = real(bytes, limits);
    // A broken rule may be detected before the line's end; the twin detects it at the same byte.
    assert_eq!(whole, parse(bytes, limits), "{:?}", String::from_utf8_lossy(bytes));
    for cut in 0..bytes.len() {
        let part = real(&bytes[..cut], limits);
        assert_eq!(part, parse(&bytes[..cut], limits), "at {cut} of {:?}", String::from_utf8_lossy(bytes));
        match (&part, &whole) {
            (Naive::Unfinished, Naive::Complete(_, taken)) => assert!(cut < *taken),
            (Naive::Unfinished, _) => {
                if let Ok(Progress::NeedMore(need)) = client::parse(&bytes[..cut], limits) {
                    assert!(need <= bytes.len() || matches!(whole, Naive::Unfinished | Naive::Refused(_)));
                }
            }
            (part, whole) => assert_eq!(part, whole, "once said, it stays so"),
        }
    }
}
