//! The SMTP dialog and the data decoder: every split of every input, and a slow twin.

use crate::smtp_twin::{Host, decode, twin};
use proptest::prelude::*;
use wire::smtp::{
    command::{self, Command, MailFrom, Mechanism},
    data::{Chunk, Data, DataProgress},
    dialog::{FAULTS_MAX, Terms},
    reply,
};

const AWKWARD: &[&[u8]] = &[
    b".\r\n",
    b"\r\n.\r\n",
    b"a\r\n.\r\nQUIT\r\n",
    b"..\r\n.\r\n",
    b"...\r\n..x\r\n.\r\n",
    b".\r.\r\n.\r\n",
    b".\r\r\n.\r\n",
    b"a\n.\n\r\n.\r\n",
    b"a\n.\r\nb\r\n.\r\n",
    b"a\r.\r\nb\r\n.\r\n",
    b"a\r\n.\nb\r\n.\r\n",
    b"a\r\n.\rb\r\n.\r\n",
    b"\r\r\n.\r\n",
    b"\r\n\r\n..\r\n\r\n.\r\n",
    b"a\0b\xff\r\n.\r\n",
];

#[test]
fn only_crlf_dot_crlf_ends_a_mail() {
    for bytes in AWKWARD {
        let whole = twin(bytes);
        assert!(whole.is_some(), "{:?}", bytes.escape_ascii().to_string());
        assert_eq!(decode(&[bytes]), whole);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(
                    decode(&parts),
                    whole,
                    "{:?} at {first}, {second}",
                    bytes.escape_ascii().to_string()
                );
            }
        }
        let each: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(decode(&each), whole);
    }
}

/// Line ends that were used to smuggle a second mail past servers which accept them as the end of data.
#[test]
fn nothing_is_smuggled() {
    for end in
        ["\n.\n", "\n.\r\n", "\r.\r", "\r.\r\n", "\r\n.\n", "\r\n.\r", "\n.\r", "\0\r\n.\n", "\r\n\0.\r\n"]
    {
        let text = format!("first{end}MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\nsecond\r\n.\r\n");
        let (mail, used) = decode(&[text.as_bytes()]).expect("the end is there");
        assert_eq!(used, text.len(), "{end:?}");
        assert!(String::from_utf8_lossy(&mail).contains("second"), "{end:?}");
    }
}

#[test]
fn bare_line_ends_are_noticed() {
    for (text, bare) in [
        ("a\r\nb\r\n", false),
        ("a\nb\r\n", true),
        ("a\rb\r\n", true),
        ("\r", false),
        (".\rx", true),
        (".\n", true),
    ] {
        for split in 0..=text.len() {
            let mut data = Data::new();
            let _ = data.take(&text.as_bytes()[..split], |_| ());
            let _ = data.take(&text.as_bytes()[split..], |_| ());
            assert_eq!(data.had_bare_line_ends(), bare, "{text:?} at {split}");
        }
    }
}

#[test]
fn a_chunk_is_so_many_bytes() {
    for split in 0..=5 {
        let mut chunk = Chunk::new(5);
        let mut mail = Vec::new();
        let bytes = b"a\r\n.\r\nNOOP";
        let first = chunk.take(&bytes[..split], |piece| mail.extend_from_slice(piece));
        if split < 5 {
            assert_eq!(first, DataProgress::All);
            assert_eq!(
                chunk.take(&bytes[split..], |piece| mail.extend_from_slice(piece)),
                DataProgress::Ended(5 - split)
            );
        }
        assert_eq!(mail, b"a\r\n.\r");
    }
    assert_eq!(Chunk::new(0).take(b"x", |_| ()), DataProgress::Ended(0));
}

fn terms() -> Terms {
    Terms { lmtp: false, offers_tls: true, tls: false, mail_bytes_max: 1000 }
}

fn log_of(text: &str, terms: Terms) -> Vec<String> {
    let mut host = Host::new(terms);
    host.show(text.as_bytes());
    host.log
}

const SESSION: &str = "EHLO me\r\nMAIL FROM:<a@b.c> SIZE=12 BODY=8BITMIME\r\nRCPT TO:<x@y.z>\r\nRCPT TO:<no@y.z>\r\n\
     RCPT TO:<Postmaster>\r\nDATA\r\nSubject: x\r\n\r\n..\r\n.\r\nNOOP\r\nMAIL FROM:<>\r\nRCPT TO:<\"a b\"@y.z>\r\n\
     BDAT 5\r\n.\r\n.\rBDAT 2 LAST\r\n\n!RSET\r\nAUTH PLAIN AGEAYg==\r\nFOO\r\nQUIT\r\n";

#[test]
fn a_pipelined_session_is_independent_of_splits() {
    let whole = log_of(SESSION, terms());
    let expected = [
        "hello me",
        "from a@b.c 12",
        "to x@y.z",
        "refused",
        "to Postmaster",
        "354",
        r#"mail "Subject: x\\r\\n\\r\\n.\\r\\n""#,
        "250",
        "from  0",
        "to \"a b\"@y.z",
        "chunks",
        "chunk",
        r#"mail ".\\r\\n.\\r\\n!""#,
        "250",
        "235",
        "500",
        "221",
    ];
    assert_eq!(whole, expected);
    for split in 0..=SESSION.len() {
        let mut host = Host::new(terms());
        host.show(&SESSION.as_bytes()[..split]);
        host.show(&SESSION.as_bytes()[split..]);
        assert_eq!(host.log, whole, "split at {split}");
    }
    let mut host = Host::new(terms());
    SESSION.bytes().for_each(|byte| host.show(&[byte]));
    assert_eq!(host.log, whole);
}

/// Each misplaced and each malformed command gets its reply.
#[test]
fn replies_are_those_of_the_standards() {
    for (session, code) in [
        ("MAIL FROM:<a@b>\r\n", "503"),
        ("EHLO\r\n", "501"),
        ("EHLO a(b\r\n", "501"),
        ("LHLO me\r\n", "500"),
        ("EHLO me\r\nRCPT TO:<a@b>\r\n", "503"),
        ("EHLO me\r\nDATA\r\n", "503"),
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nDATA\r\n", "503"),
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<no@b>\r\nDATA\r\n", "554"),
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nMAIL FROM:<a@b>\r\n", "503"),
        ("EHLO me\r\nMAIL FROM:a@b\r\n", "501"),
        ("EHLO me\r\nMAIL FROM:<a b>\r\n", "501"),
        ("EHLO me\r\nMAIL FROM:<a@b> SIZE=x\r\n", "501"),
        ("EHLO me\r\nMAIL FROM:<a@b> FOO=1\r\n", "555"),
        ("EHLO me\r\nMAIL FROM:<a@b> BODY=BINARYMIME\r\n", "555"),
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<>\r\n", "501"),
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<a@b> FOO=1\r\n", "555"),
        ("EHLO me\r\nMAIL FROM:<ä@b>\r\n", "553"),
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<ä@b>\r\n", "553"),
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<a@b>\r\nDATA now\r\n", "501"),
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<a@b>\r\nBDAT x\r\n", "501"),
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<a@b>\r\nBDAT 1\r\nxDATA\r\n", "503"),
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<a@b>\r\nBDAT 1\r\nxRCPT TO:<a@b>\r\n", "503"),
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<a@b>\r\nBDAT 1001\r\n", "552"),
        ("EHLO me\r\nBDAT 5\r\nRSET\n", "503"),
        ("EHLO me\r\nAUTH CRAM-MD5\r\n", "504"),
        ("EHLO me\r\nAUTH PLAIN\r\n*\r\n", "501"),
        ("EHLO me\r\nAUTH PLAIN\r\n%\r\n", "501"),
        ("EHLO me\r\nAUTH PLAIN AGEAYg==\r\nAUTH PLAIN AGEAYg==\r\n", "503"),
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nAUTH PLAIN AGEAYg==\r\n", "503"),
        ("EHLO me\r\nMAIL FROM:<a@b>\r\nSTARTTLS\r\n", "503"),
        ("EHLO me\r\nSTARTTLS x\r\n", "501"),
        ("VRFY someone\r\n", "252"),
        ("VRFY\r\n", "501"),
        ("EXPN list\r\n", "502"),
        ("HELP\r\n", "214"),
        ("HELP MAIL\r\n", "214"),
        ("NOOP\r\n", "250"),
        ("NOOP x\r\n", "250"),
        ("RSET\r\n", "250"),
        ("QUIT x\r\n", "501"),
        ("ETRN x\r\n", "502"),
        ("\r\n", "500"),
        ("NOOP\n", "500"),
    ] {
        assert_eq!(log_of(session, terms()).last().map(String::as_str), Some(code), "{session:?}");
    }
    let login = log_of("EHLO me\r\nAUTH LOGIN\r\nYQ==\r\nYg==\r\nAUTH LOGIN YQ==\r\n", terms());
    assert_eq!(login[1..], ["334", "334", "235", "503"]);
    let lmtp = Terms { lmtp: true, ..terms() };
    assert_eq!(log_of("EHLO me\r\nMAIL FROM:<a@b>\r\nLHLO me\r\n", lmtp), ["500", "503", "hello me"]);
    let smtputf8 = "EHLO me\r\nMAIL FROM:<ä@b> SMTPUTF8\r\nRCPT TO:<日本@例.jp>\r\n";
    assert_eq!(log_of(smtputf8, terms())[1..], ["from ä@b 0", "to 日本@例.jp"]);
    let literals = "EHLO me\r\nMAIL FROM:<a@[192.0.2.1]> SIZE=7\r\nRCPT TO:<b@[IPv6:2001:db8::1]>\r\n\
                    RCPT TO:<\"c d\"@[192.0.2.1]>\r\nRCPT TO:<e@[192.0.2.1]\r\nRCPT TO:<e @[192.0.2.1]>\r\n";
    let said = ["from a@[192.0.2.1] 7", "to b@[IPv6:2001:db8::1]", "to \"c d\"@[192.0.2.1]", "501", "501"];
    assert_eq!(log_of(literals, terms())[1..], said);
    // Many address literals in one line: only the first is parsed, once.
    let brackets = format!("RCPT TO:<a@[1]> {}", "<b@[1]> ".repeat(100_000));
    assert_eq!(command::parse(&brackets).unwrap_err().code, 501);
}

/// Any web page can make a browser send a request with a chosen body to any port: mail in the body must not
/// be accepted.
#[test]
fn a_line_of_http_ends_the_session() {
    let mail = "EHLO me\r\nMAIL FROM:<a@b>\r\nRCPT TO:<a@b>\r\nDATA\r\n\r\n.\r\n";
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost:1025\r\n", "x".repeat(20_000));
    for line in [
        "GET / HTTP/1.1\r\n",
        "POST /x?y HTTP/1.1\r\n",
        "PUT / HTTP/1.0\r\n",
        "DELETE /a HTTP/1.1\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "CONNECT localhost:1025 HTTP/1.1\r\n",
        "PRI * HTTP/2.0\r\n",
        // A page may choose the method.
        "MAILX /x HTTP/1.1\r\n",
        "GET /\r\n",
        "Host: localhost:1025\r\n",
        "User-Agent: Mozilla/5.0\r\n",
        "content-type:text/plain\r\n",
        // Lines that are refused for another reason come before a line that is recognised as HTTP.
        &long,
        "POST / HTTP/1.1\nHost: x\r\n",
    ] {
        for before in ["", "EHLO me\r\n", "EHLO me\r\nMAIL FROM:<a@b>\r\n", "EHLO me\r\nAUTH PLAIN\r\n\r\n"] {
            let log = log_of(&format!("{before}{line}{mail}"), terms());
            assert_eq!(log.last().map(String::as_str), Some("421"), "{before:?} {line:?}: {log:?}");
            assert!(!log.iter().any(|said| said.starts_with("mail")), "{log:?}");
        }
    }
    for fine in ["GETX\r\n", "HTTP/1.1\r\n", ":\r\n"] {
        assert_eq!(log_of(fine, terms()), ["500"], "{fine:?}");
    }
}

/// Commands as people write them with their parsed form, and lines that are not commands.
#[test]
fn commands_are_read_as_they_are_said() {
    let mail = |address: &'static str| {
        Ok(Command::Mail(MailFrom { address, size_bytes: 0, eight_bit: false, smtputf8: false }))
    };
    for (line, command) in [
        ("mail from:<a@b.c>\r\n", mail("a@b.c")),
        ("MAIL  FROM : <a@b.c> \r\n", mail("a@b.c")),
        ("MAIL FROM:<>\r\n", mail("")),
        ("MAIL FROM:<postmaster>\r\n", mail("postmaster")),
        ("MAIL FROM:<@relay.example,@other.example:a@b.c>\r\n", mail("a@b.c")),
        ("MAIL FROM:<\"a \\\" > b\"@b.c>\r\n", mail("\"a \\\" > b\"@b.c")),
        ("MAIL FROM:<@relay.example:\"a b\"@[192.0.2.1]>\r\n", mail("\"a b\"@[192.0.2.1]")),
        ("MAIL FROM:<a@b.c> AUTH=<> RET=HDRS ENVID=x\r\n", mail("a@b.c")),
        ("RCPT TO:<POSTMASTER>\r\n", Ok(Command::Rcpt("POSTMASTER"))),
        ("RCPT TO:<a@b.c> NOTIFY=NEVER ORCPT=rfc822;a@b.c\r\n", Ok(Command::Rcpt("a@b.c"))),
        ("RCPT TO:<a@b.c>x\r\n", Err(reply::RCPT_SYNTAX)),
        ("RCPT TO:<a@b.c> =x\r\n", Err(reply::RCPT_SYNTAX)),
        ("RCPT TO:<a@b.c> NOTIFY=\r\n", Err(reply::PARAMETER_VALUE)),
        ("RCPT TO:<a@b.c\r\n", Err(reply::RECIPIENT_SYNTAX)),
        ("RCPT TO:<a@>\r\n", Err(reply::RECIPIENT_SYNTAX)),
        ("RCPT TO:<.a@b>\r\n", Err(reply::RECIPIENT_SYNTAX)),
        ("RCPT TO:<a..a@b>\r\n", Err(reply::RECIPIENT_SYNTAX)),
        ("RCPT TO:<a@b..c>\r\n", Err(reply::RECIPIENT_SYNTAX)),
        ("RCPT TO:<a@.b>\r\n", Err(reply::RECIPIENT_SYNTAX)),
        ("RCPT TO:<\"a\"b@c>\r\n", Err(reply::RECIPIENT_SYNTAX)),
        ("RCPT TO:<a@[1 2]>\r\n", Err(reply::RECIPIENT_SYNTAX)),
        ("RCPT TO:<a@[]>\r\n", Err(reply::RECIPIENT_SYNTAX)),
        ("RCPT TO:<@relay.example>\r\n", Err(reply::RECIPIENT_SYNTAX)),
        ("RCPT FROM:<a@b>\r\n", Err(reply::RCPT_SYNTAX)),
        ("MAIL FROM:<a@b> SIZE\r\n", Err(reply::PARAMETER_VALUE)),
        ("MAIL FROM:<a@b> SIZE=1=2\r\n", Err(reply::PARAMETER_VALUE)),
        ("MAIL FROM:<a@b> SMTPUTF8=1\r\n", Err(reply::PARAMETER)),
        ("BDAT 7 last\r\n", Ok(Command::Bdat { bytes: 7, last: true })),
        ("BDAT 99999999999999999999999\r\n", Ok(Command::Bdat { bytes: u64::MAX, last: false })),
        ("BDAT -1\r\n", Err(reply::BDAT_SYNTAX)),
        ("BDAT 7 LAST x\r\n", Err(reply::BDAT_SYNTAX)),
        (
            "auth plain  AGEAYg==\r\n",
            Ok(Command::Auth { mechanism: Some(Mechanism::Plain), initial: "AGEAYg==" }),
        ),
        ("AUTH\r\n", Err(reply::ARGUMENT_SYNTAX)),
        ("EHLO a b\r\n", Err(reply::HELLO_SYNTAX)),
    ] {
        assert_eq!(command::parse(line), command, "{line:?}");
    }
    let longest = format!("RCPT TO:<{}@b>\r\n", "a".repeat(254));
    assert!(command::parse(&longest).is_ok());
    assert_eq!(command::parse(&longest.replacen("<a", "<aa", 1)), Err(reply::RECIPIENT_SYNTAX));
}

/// Generates plain paths, without quotes and literals. On these an SMTP library parses the same addresses and
/// parameters; quotes and literals it parses differently.
fn plain_path() -> impl Strategy<Value = String> {
    let word = "[a-z0-9.!#$%&'*+/=?^_`{|}~-]{0,6}";
    prop_oneof![
        Just(String::new()),
        word.prop_map(|local| local),
        (word, word).prop_map(|(a, b)| format!("{a}@{b}"))
    ]
}

proptest! {
    #[test]
    fn plain_paths_parse_as_in_smtp_proto(
        path in plain_path(), route in prop_oneof![Just(""), Just("@r.example:")], size in any::<Option<u32>>(),
        eight_bit in any::<bool>(),
    ) {
        let mut line = format!("MAIL FROM:<{route}{path}>");
        if let Some(size) = size {
            line.push_str(&format!(" SIZE={size}"));
        }
        if eight_bit {
            line.push_str(" BODY=8BITMIME");
        }
        line.push_str("\r\n");
        let library = match smtp_proto::Request::parse(&mut line.as_bytes().iter()) {
            Ok(smtp_proto::Request::Mail { from }) => Some((from.address.into_owned(), from.size as u64)),
            _ => None,
        };
        // The library accepts a mailbox without a domain, which is invalid.
        let library = library.filter(|(address, _)| !address.ends_with('@'));
        let ours = match command::parse(&line) {
            Ok(Command::Mail(from)) => {
                prop_assert_eq!(from.eight_bit, eight_bit);
                Some((from.address.to_owned(), from.size_bytes))
            }
            _ => None,
        };
        prop_assert_eq!(ours, library, "{}", line);
    }

    /// Any line is parsed or refused, and a parsed address is a part of it.
    #[test]
    fn no_line_makes_it_panic(verb in "(MAIL FROM:|RCPT TO:|BDAT |AUTH |)", rest in "[ -~\u{e9}]{0,40}") {
        let line = format!("{verb}{rest}\r\n");
        if let Ok(Command::Rcpt(address)) = command::parse(&line) {
            prop_assert!(line.contains(address) && !address.is_empty());
        }
    }
}

#[test]
fn what_came_before_tls_is_forgotten() {
    // The host discards commands pipelined in the clear after STARTTLS (RFC 3207, 6).
    let mut host = Host::new(terms());
    host.show(b"EHLO me\r\nSTARTTLS\r\nMAIL FROM:<injected@b>\r\n");
    host.show(b"MAIL FROM:<a@b>\r\nEHLO me\r\nSTARTTLS\r\n");
    assert_eq!(host.log, ["hello me", "tls", "503", "hello me", "503"]);
    assert_eq!(host.dialog.protocol(), "ESMTPS");
    let plain = Terms { offers_tls: false, ..terms() };
    assert_eq!(log_of("EHLO me\r\nSTARTTLS\r\n", plain)[1], "502");
}

#[test]
fn who_makes_mistake_after_mistake_is_sent_away() {
    let log = log_of(&"FOO\r\n".repeat(100), terms());
    assert_eq!(log.len(), usize::from(FAULTS_MAX));
    assert_eq!(log.last().map(String::as_str), Some("421"));
}

#[test]
fn replies_are_written_as_they_must_be() {
    let mut out = Vec::new();
    reply::RECIPIENT_OK.write(&mut out);
    reply::GO_AHEAD.write(&mut out);
    reply::SENDER_OK.write_about(&mut out, b"<a\r\nb>");
    let text = String::from_utf8(out).unwrap();
    assert_eq!(
        text,
        "250 2.1.5 Recipient OK\r\n354 End data with <CRLF>.<CRLF>\r\n250 2.1.0 <ab> Sender OK\r\n"
    );
}

fn dots_and_line_ends() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(b'.'), Just(b'\r'), Just(b'\n'), Just(b'a')], 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(unify::cases(256, 8_192)))]

    #[test]
    fn data_agrees_with_its_twin(bytes in dots_and_line_ends(), cuts in proptest::collection::vec(0usize..60, 0..4)) {
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| cut <= bytes.len()).collect();
        cuts.sort_unstable();
        let (mut parts, mut at) = (Vec::new(), 0);
        for cut in cuts {
            parts.push(&bytes[at..cut]);
            at = cut;
        }
        parts.push(&bytes[at..]);
        prop_assert_eq!(decode(&parts), twin(&bytes));
    }

    /// Dot-stuffing as clients do it is undone.
    #[test]
    fn what_was_stuffed_comes_back(bytes in dots_and_line_ends()) {
        let mut mail = bytes;
        mail.extend_from_slice(b"\r\n");
        let mut stuffed = Vec::new();
        let mut at_start = true;
        for (at, &byte) in mail.iter().enumerate() {
            if at_start && byte == b'.' {
                stuffed.push(b'.');
            }
            stuffed.push(byte);
            at_start = byte == b'\n' && at > 0 && mail[at - 1] == b'\r';
        }
        stuffed.extend_from_slice(b".\r\n");
        prop_assert_eq!(decode(&[&stuffed]), Some((mail, stuffed.len())));
    }

    /// No input causes a panic, and a split does not change the replies.
    #[test]
    fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300), split in 0usize..300) {
        let mut text = b"EHLO me\r\n".to_vec();
        text.extend_from_slice(&bytes);
        text.extend_from_slice(b"\r\n");
        let split = split.min(text.len());
        let (mut whole, mut parts) = (Host::new(terms()), Host::new(terms()));
        whole.show(&text);
        parts.show(&text[..split]);
        parts.show(&text[split..]);
        prop_assert_eq!(whole.log, parts.log);
    }
}
