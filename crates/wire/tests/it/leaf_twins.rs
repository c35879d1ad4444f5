//! The leaf node protocol compared with its slow twin, split at every byte, and the encoder compared with the
//! parser.

use crate::naive_leaf::{Naive, Op, check, real};
use proptest::{collection::vec, prelude::*, sample::select};
use wire::nats::{
    Progress,
    leaf::{self, LeafFault, LeafOp, Limits},
};

fn limits() -> impl Strategy<Value = Limits> {
    (prop_oneof![Just(4096_usize), 0..40_usize], prop_oneof![Just(1 << 20_usize), 0..20_usize])
        .prop_map(|(line_bytes_max, payload_bytes_max)| Limits { line_bytes_max, payload_bytes_max })
}

/// Generates an operation that is valid or nearly so.
fn operation() -> impl Strategy<Value = Vec<u8>> {
    let blank = || select(vec![" ", " ", " ", " ", "  ", "\t", ""]);
    let end = || select(vec!["\r\n", "\r\n", "\r\n", "\n", "\r\r\n", ""]);
    let word =
        || select(vec!["a", "foo.bar", "foo.>", "|", "+", "q", "1", "12", "0", "007", "-1", "9999999999"]);
    let verb = select(vec![
        "LMSG", "lmsg", "HMSG", "LS+", "ls+", "LS-", "PING", "PONG", "CONNECT", "INFO", "+OK", "-ERR", "LS",
        "MSG", "HTTP/1.1", "",
    ]);
    let whole_message = (
        any::<bool>(),
        "[a-c.]{1,5}",
        prop_oneof![Just(String::new()), "[a-c|+]{1,3}"],
        vec("[q-t]{1,2}", 0..3),
        vec(any::<u8>(), 0..30),
    )
        .prop_map(|(has_header, subject, reply, queues, body)| {
            let mut out = Vec::new();
            leaf::begin_message(
                &mut out,
                has_header,
                subject.as_bytes(),
                reply.as_bytes(),
                queues.join(" ").as_bytes(),
            );
            let header = if has_header { format!(" {}", body.len() / 2) } else { String::new() };
            out.extend_from_slice(format!("{header} {}\r\n", body.len()).as_bytes());
            out.extend_from_slice(&body);
            out.extend_from_slice(b"\r\n");
            out
        });
    let any_words = (verb, vec((blank(), word()), 0..7), end(), vec(any::<u8>(), 0..8)).prop_map(
        |(verb, words, end, more)| {
            let mut out = verb.as_bytes().to_vec();
            for (blank, word) in words {
                out.extend_from_slice(blank.as_bytes());
                out.extend_from_slice(word.as_bytes());
            }
            out.extend_from_slice(end.as_bytes());
            out.extend_from_slice(&more);
            out
        },
    );
    prop_oneof![whole_message, any_words]
}

fn damaged(of: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![select(b"\r\n\t +-|0Ll'\xff".to_vec()), any::<u8>()];
    (of, vec((any::<prop::sample::Index>(), 0..3_u8, byte), 0..3)).prop_map(|(mut bytes, edits)| {
        for (index, kind, byte) in edits {
            let at = index.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                _ if at < bytes.len() => drop(bytes.remove(at)),
                _ => {}
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(unify::cases(256, 8_192)))]

    #[test]
    fn hub_operations_parse_as_in_the_twin(bytes in damaged(operation()), limits in limits()) {
        check(&bytes, &limits);
    }
}

/// Each operation as nats-server 2.15.2 writes it is parsed, split at every byte.
#[test]
fn the_words_of_nats_server() {
    let message = |subject: &str, reply: &str, queues: &[&str], header_bytes, body: &str| Op::Message {
        subject: subject.into(),
        reply: reply.into(),
        queues: queues.iter().map(|queue| queue.as_bytes().to_vec()).collect(),
        header_bytes,
        body: body.into(),
    };
    let header = "NATS/1.0\r\nA: b\r\n\r\n";
    let with_header = format!("HMSG foo + r q 18 20\r\n{header}hi\r\n");
    let cases = [
        ("INFO {\"proto\":1} \r\n", Op::Info(b"{\"proto\":1}".into())),
        ("CONNECT {}\r\n", Op::Connect(b"{}".into())),
        ("LS+ $LDS.x\r\n", Op::Interest(b"$LDS.x".into(), None)),
        ("LS+ foo.> q 3\r\n", Op::Interest(b"foo.>".into(), Some((b"q".into(), 3)))),
        ("LS+ foo q 0\r\n", Op::Interest(b"foo".into(), Some((b"q".into(), 1)))),
        ("LS- foo\r\n", Op::NoInterest(b"foo".into(), None)),
        ("LS- foo q\r\n", Op::NoInterest(b"foo".into(), Some(b"q".into()))),
        ("LMSG foo 2\r\nhi\r\n", message("foo", "", &[], None, "hi")),
        ("LMSG foo r 2\r\nhi\r\n", message("foo", "r", &[], None, "hi")),
        ("LMSG foo | q 2\r\nhi\r\n", message("foo", "", &["q"], None, "hi")),
        ("LMSG foo + r p q 2\r\nhi\r\n", message("foo", "r", &["p", "q"], None, "hi")),
        ("LMSG foo + r 2\r\nhi\r\n", message("foo", "r", &[], None, "hi")),
        ("LMSG foo | 2\r\nhi\r\n", message("foo", "|", &[], None, "hi")),
        (&with_header, message("foo", "r", &["q"], Some(18), &format!("{header}hi"))),
        ("-ERR 'Authorization Violation'\r\n", Op::Error(b"Authorization Violation".into())),
        ("PING\r\n", Op::Ping),
        ("PONG\r\n", Op::Pong),
        ("+OK\r\n", Op::Ok),
    ];
    for (text, op) in cases {
        check(text.as_bytes(), &Limits::default());
        assert_eq!(real(text.as_bytes(), &Limits::default()), Naive::Complete(op, text.len()), "{text}");
    }
}

/// A port that is not a hub's is recognised by its first bytes.
#[test]
fn other_ports() {
    let limits = Limits::default();
    for (bytes, fault) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], LeafFault::UnknownOperation),
        (b"220 mail.example ESMTP\r\n", LeafFault::UnknownOperation),
        (b"\x15\x03\x01\x00\x02", LeafFault::UnknownOperation),
        (b"MSG foo 1 2\r\nhi\r\n", LeafFault::UnknownOperation),
        (b"LMSG foo x q 2\r\n", LeafFault::Malformed("LMSG")),
        (b"LMSG 2\r\n", LeafFault::Malformed("LMSG")),
        (b"HMSG foo 3 2\r\n", LeafFault::Malformed("HMSG")),
        (b"LMSG foo 2\r\nhi!", LeafFault::Malformed("LMSG")),
        (b"LS+ foo q\r\n", LeafFault::Malformed("LS+")),
        (b"LS+ foo q x\r\n", LeafFault::Malformed("LS+")),
        (b"LS-\r\n", LeafFault::UnknownOperation),
        (b"LS- a b c\r\n", LeafFault::Malformed("LS-")),
        (b"LMSG foo 1048577\r\n", LeafFault::PayloadTooLarge),
    ] {
        assert_eq!(leaf::parse(bytes, &limits), Err(fault), "{:?}", String::from_utf8_lossy(bytes));
    }
    assert_eq!(
        leaf::parse(&[b"INFO ", &vec![b'x'; 64 * 1024][..]].concat(), &limits),
        Err(LeafFault::LineTooLong)
    );
}

#[test]
fn what_is_written_is_read() {
    let mut bytes = Vec::new();
    leaf::interest_line(&mut bytes, b"a.*");
    leaf::queue_interest_line(&mut bytes, b"a.*", b"q", 12);
    leaf::no_interest_line(&mut bytes, b"a.*", None);
    leaf::no_interest_line(&mut bytes, b"a.*", Some(b"q"));
    assert_eq!(bytes, b"LS+ a.*\r\nLS+ a.* q 12\r\nLS- a.*\r\nLS- a.* q\r\n");
    let mut rest = &bytes[..];
    let mut seen = 0;
    while let Ok(Progress::Complete(op, taken)) = leaf::parse(rest, &Limits::default()) {
        assert!(matches!(
            op,
            LeafOp::Interest { subject: b"a.*", .. } | LeafOp::NoInterest { subject: b"a.*", .. }
        ));
        rest = &rest[taken..];
        seen += 1;
    }
    assert_eq!((seen, rest), (4, &b""[..]));
}
