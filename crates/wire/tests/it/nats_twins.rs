//! The NATS client parser compared with its slow twin, split at every byte; the server parser compared with
//! the encoder.

use crate::naive_nats::{Naive, check, real};
use proptest::{collection::vec, prelude::*, sample::select};
use wire::nats::{
    Progress,
    client::{self, Limits},
    server::{self, ServerOp},
    subject, write,
};

fn limits() -> impl Strategy<Value = Limits> {
    (prop_oneof![Just(4096_usize), 0..40_usize], prop_oneof![Just(1 << 20_usize), 0..20_usize], any::<bool>())
        .prop_map(|(control_line_bytes_max, payload_bytes_max, headers)| Limits {
            control_line_bytes_max,
            payload_bytes_max,
            headers,
        })
}

/// Generates an operation that is valid or nearly so.
fn operation() -> impl Strategy<Value = Vec<u8>> {
    let blank = || select(vec![" ", " ", " ", "  ", "\t", ""]);
    let end = || select(vec!["\r\n", "\r\n", "\r\n", "\n", "\r\r\n", ""]);
    let word = || {
        select(vec!["a", "foo.bar", "*", "foo.>", "a..b", "f\ro", "1", "12", "0", "007", "-1", "9999999999"])
    };
    let verb = select(vec![
        "PUB", "pub", "HPUB", "SUB", "sUb", "UNSUB", "PING", "PONG", "CONNECT", "INFO", "+OK", "-ERR", "MSG",
        "PU", "",
    ]);
    let whole_publish = (
        any::<bool>(),
        "[a-c.]{1,5}",
        prop_oneof![Just(String::new()), "[a-c]{1,3} "],
        vec(any::<u8>(), 0..30),
    )
        .prop_map(|(has_header, subject, reply, body)| {
            let mut out = Vec::new();
            let sizes = if has_header {
                format!("{} {}", body.len() / 2, body.len())
            } else {
                body.len().to_string()
            };
            let verb = if has_header { "HPUB" } else { "PUB" };
            out.extend_from_slice(format!("{verb} {subject} {reply}{sizes}\r\n").as_bytes());
            out.extend_from_slice(&body);
            out.extend_from_slice(b"\r\n");
            out
        });
    let any_words = (verb, vec((blank(), word()), 0..5), end(), vec(any::<u8>(), 0..8)).prop_map(
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
    prop_oneof![whole_publish, any_words]
}

fn damaged(of: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![select(b"\r\n\t +-0Pp\xff".to_vec()), any::<u8>()];
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
    fn client_operations_parse_as_in_the_twin(bytes in damaged(operation()), limits in limits()) {
        check(&bytes, &limits);
    }

    /// Messages that a server writes are read back by the client's parser, whole and split at every byte.
    #[test]
    fn what_a_server_writes_is_read(
        subject in "[a-z.]{1,12}", sid in "[0-9]{1,4}", reply in prop_oneof![Just(String::new()), "[a-z]{1,6}"],
        header in prop_oneof![Just(Vec::new()), vec(any::<u8>(), 1..20)], payload in vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = Vec::new();
        if header.is_empty() {
            write::msg(&mut bytes, subject.as_bytes(), sid.as_bytes(), reply.as_bytes(), &payload);
        } else {
            write::hmsg(&mut bytes, subject.as_bytes(), sid.as_bytes(), reply.as_bytes(), &header, &payload);
        }
        let expected = ServerOp::Message {
            subject: subject.as_bytes(), sid: sid.as_bytes(), reply: reply.as_bytes(), header: &header, payload: &payload,
        };
        prop_assert_eq!(server::parse(&bytes), Ok(Progress::Complete(expected, bytes.len())));
        for cut in 0..bytes.len() {
            prop_assert!(matches!(server::parse(&bytes[..cut]), Ok(Progress::NeedMore(need)) if need > cut && need <= bytes.len()));
        }
    }

    #[test]
    fn what_a_client_writes_is_read(
        subject in "[a-z.]{1,12}", reply in prop_oneof![Just(String::new()), "[a-z]{1,6}"],
        header in prop_oneof![Just(Vec::new()), vec(any::<u8>(), 1..20)], payload in vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = Vec::new();
        if header.is_empty() {
            write::publish(&mut bytes, subject.as_bytes(), reply.as_bytes(), &payload);
        } else {
            write::hpublish(&mut bytes, subject.as_bytes(), reply.as_bytes(), &header, &payload);
        }
        let whole = bytes.len();
        let header_bytes = (!header.is_empty()).then_some(header.len());
        let expected = crate::naive_nats::Op::Publish {
            subject: subject.into_bytes(), reply: reply.into_bytes(), header_bytes, body: [header, payload].concat(),
        };
        prop_assert_eq!(real(&bytes, &Limits::default()), Naive::Complete(expected, whole));
    }

    #[test]
    fn a_server_s_bytes_never_panic(bytes in vec(prop_oneof![select(b"MSGHPINO+K-ER '{}\r\n 019".to_vec()), any::<u8>()], 0..80)) {
        if let Ok(Progress::Complete(_, taken)) = server::parse(&bytes) {
            prop_assert!(taken <= bytes.len());
        }
    }

    /// A pattern that is a valid literal matches itself and nothing else.
    #[test]
    fn a_literal_matches_itself(one in "[ab.*>]{1,6}", other in "[ab.*>]{1,6}") {
        if subject::is_valid_literal(one.as_bytes()) {
            prop_assert_eq!(subject::matches(one.as_bytes(), other.as_bytes()), one == other);
        }
    }
}

/// The lines that clients write are parsed completely, with nothing left over.
#[test]
fn the_other_operations() {
    let mut bytes = Vec::new();
    write::subscribe(&mut bytes, b"foo.*", b"", b"1");
    write::subscribe(&mut bytes, b"foo", b"q", b"2");
    write::unsubscribe(&mut bytes, b"1", None);
    write::unsubscribe(&mut bytes, b"2", Some(7));
    write::connect(&mut bytes, b"{}");
    assert_eq!(bytes, b"SUB foo.* 1\r\nSUB foo q 2\r\nUNSUB 1\r\nUNSUB 2 7\r\nCONNECT {}\r\n");
    let mut at = 0;
    while at < bytes.len() {
        match client::parse(&bytes[at..], &Limits::default()) {
            Ok(Progress::Complete(_, taken)) => at += taken,
            other => panic!("{other:?}"),
        }
    }
    let mut bytes = Vec::new();
    write::info(&mut bytes, b"{\"proto\":1}");
    bytes.extend_from_slice(b"PING\r\nPONG\r\n+OK\r\n-ERR 'Stale Connection'\r\n");
    write::no_responders(&mut bytes, b"r", b"5", b"foo");
    assert!(bytes.ends_with(b"HMSG r 5 35 35\r\nNATS/1.0 503\r\nNats-Subject: foo\r\n\r\n\r\n"));
    let mut at = 0;
    let mut seen = Vec::new();
    while at < bytes.len() {
        match server::parse(&bytes[at..]) {
            Ok(Progress::Complete(op, taken)) => {
                seen.push(format!("{op:?}"));
                at += taken;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen.len(), 6);
    assert!(seen[4].contains("Error"), "{seen:?}");
    assert_eq!(server::parse(b"HELLO\r\n"), Err(server::ServerFault::UnknownOperation));
    assert_eq!(server::parse(b"MSG a 1\r\n"), Err(server::ServerFault::Malformed("MSG")));
    assert_eq!(server::parse(&vec![b'I'; server::LINE_BYTES_MAX]), Err(server::ServerFault::LineTooLong));
}

/// A repeated publish is recognised, and anything else is not.
#[test]
fn what_repeats() {
    let line = b"PUB a 2\r\n";
    assert_eq!(client::repeats(b"PUB a 2\r\nhi\r\nPUB", line, 2), Some(13));
    for other in ["PUB b 2\r\nhi\r\n", "PUB a 2\r\nhixx", "PUB a 2\r\nhi\r", "PUB a 3\r\nhi!\r\n", ""] {
        assert_eq!(client::repeats(other.as_bytes(), line, 2), None, "{other}");
    }
}
