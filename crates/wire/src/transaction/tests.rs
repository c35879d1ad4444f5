use proptest::prelude::*;

use super::{
    show::{Format, LineCache},
    *,
};
use crate::filter::Expression;

/// Start time of the test records: 24 November 2026, 14:50:00.123456 UTC.
const BEGAN_US: u64 = 1_795_531_800_123_456;

fn client(url_sent: &[u8], agent: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    begin(Kind::Client, 0x1a, 0, BEGAN_US, &mut out);
    address(Tag::Client, IpAddr::from([192, 0, 2, 7]), &mut out);
    text(Tag::Method, b"GET", &mut out);
    text(Tag::Scheme, b"https", &mut out);
    text(Tag::Host, b"www.example.org", &mut out);
    url(Tag::Url, url_sent, &Secrets::default(), &mut out);
    text(Tag::Protocol, b"HTTP/1.1", &mut out);
    number(Tag::Status, 200, &mut out);
    text(Tag::Cache, b"hit", &mut out);
    text(Tag::UserAgent, agent, &mut out);
    number(Tag::BytesBody, 1024, &mut out);
    number(Tag::TimeFirstByte, 600_000, &mut out);
    number(Tag::Fetch, 0xabc, &mut out);
    end(&mut out);
    out
}

fn shown(format: &str, record: &[u8]) -> String {
    let format = if format == "line" { Format::Line } else { Format::parse(format).expect("a format") };
    let mut out = Vec::new();
    format.append(&Record::read(record).expect("a record"), &mut LineCache::default(), &mut out);
    String::from_utf8(out).expect("text")
}

#[test]
fn a26_golden_lines() {
    let record = client(b"/a?b=1&token=abc", b"curl/8");
    assert!(record.len().is_multiple_of(8));
    let common = "192.0.2.7 - - [24/Nov/2026:14:50:00 +0000] \"GET /a?b=1&token=*** HTTP/1.1\" 200 1024";
    assert_eq!(shown("common", &record), format!("{common}\n"));
    assert_eq!(shown("combined", &record), format!("{common} \"-\" \"curl/8\"\n"));
    assert_eq!(
        shown("json", &record),
        "{\"time\":\"2026-11-24T14:50:00.123456Z\",\"kind\":\"client\",\"id\":\"1a\",\"client\":\"192.0.2.7\",\
         \"method\":\"GET\",\"scheme\":\"https\",\"host\":\"www.example.org\",\"url\":\"/a?b=1&token=***\",\
         \"protocol\":\"HTTP/1.1\",\"status\":200,\"cache\":\"hit\",\"user_agent\":\"curl/8\",\"bytes.body\":1024,\
         \"time.first_byte_us\":600000,\"fetch\":\"abc\"}\n"
    );
    assert_eq!(
        shown("line", &record),
        "2026-11-24T14:50:00.123456Z 1a client 192.0.2.7 GET www.example.org /a?b=1&token=*** 200 hit scheme=\"https\" \
         protocol=\"HTTP/1.1\" user_agent=\"curl/8\" bytes.body=1024 time.first_byte=0.600000 fetch=abc\n"
    );
    assert_eq!(shown("{status} {{{time.first_byte}}} {referer} {id}", &record), "200 {0.600000} - 1a\n");
}

#[test]
fn a26_client_values_are_escaped_in_every_format() {
    let record = client(b"/\"\\\r\nGET", "\u{1b}[31m\" 200 \u{202e}\u{9b}\n\u{7f}é".as_bytes());
    for format in ["common", "combined", "line", "{url} {user_agent}"] {
        let line = shown(format, &record);
        let inside = line.strip_suffix('\n').expect("a line");
        assert!(inside.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{line:?}");
        assert!(!inside.contains('\\') || inside.contains("\\x22\\x5C\\x0D\\x0AGET"), "{line}");
    }
    let line = shown("json", &record);
    let inside = line.strip_suffix('\n').expect("a line");
    assert!(!inside.chars().any(|c| c.is_control() || c == '\u{202e}'), "{inside:?}");
    assert!(inside.contains(r#""url":"/\"\\\u000d\u000aGET""#), "{inside}");
    assert!(inside.contains(r#""user_agent":"\u001b[31m\" 200 \u202e\u009b\u000a\u007fé""#), "{inside}");
}

#[test]
fn a26_secrets_of_a_query_are_not_told() {
    for (sent, told) in [
        ("/a?Token=x", "/a?Token=***"),
        ("/a?token=x&b=token", "/a?token=***&b=token"),
        ("/a?b;sig=x;c", "/a?b;sig=***;c"),
        ("/a?token", "/a?token"),
        ("/token=x", "/token=x"),
        ("/a?my_token=x", "/a?my_token=x"),
        ("/a?", "/a?"),
    ] {
        assert_eq!(shown("{url}", &client(sent.as_bytes(), b"")), format!("{told}\n"));
    }
}

#[test]
fn long_values_are_cut_and_marked() {
    let long = [b"/?a=1&".as_slice(), &[b'x'; 5000]].concat();
    for sent in [&long[..], &long[2..]] {
        let record = client(sent, &[b'y'; 600]);
        assert!(record.len() <= RECORD_BYTES_MAX);
        let line = shown("{url} {user_agent}", &record);
        assert_eq!(line.len(), 4096 + 3 + 1 + 512 + 3 + 1);
        assert!(shown("json", &record).ends_with(",\"cut\":[\"url\",\"user_agent\"]}\n"));
    }
    // A URL that fits exactly is not cut.
    assert!(!shown("json", &client(&long[..4096], b"")).contains("cut"));
}

#[test]
fn a26_filters_are_asked_in_the_language_of_bans() {
    let record = client(b"/api/x", b"curl/8");
    let record = Record::read(&record).expect("a record");
    for (filter, holds) in [
        ("status >= 500 and url ~ \"^/api\"", false),
        ("status == 200 and url ~ \"^/api\"", true),
        ("time.first_byte > 0.5", true),
        ("time.first_byte > 700ms", false),
        ("client == 192.0.2.7", true),
        ("bytes.body >= 1KiB", true),
        ("kind == client && id == 1a && fetch == abc", true),
        ("referer != x", true),
        ("not (cache == hit)", false),
    ] {
        let filter = Expression::parse(filter.as_bytes(), &FIELDS).expect(filter);
        assert_eq!(filter.matches(&Fields::of(record)), holds, "{filter}");
    }
    let fault = Expression::parse(b"status > 400 and stauts", &FIELDS).expect_err("no such field");
    assert_eq!(fault.at, 17);
    assert!(fault.expected.contains("status"));
}

#[test]
fn a26_a_bad_template_says_where() {
    for (template, at, found) in [
        ("{status} {stauts}", 10, "`stauts`"),
        ("{status", 0, "not closed"),
        ("{status} }", 9, "without its"),
        ("plain", 0, "no field"),
    ] {
        let fault = Format::parse(template).expect_err(template);
        assert_eq!(fault.at, at, "{template}");
        assert!(fault.found.contains(found), "{fault}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(unify::cases(256, 20_000)))]

    /// Reading arbitrary bytes does not panic: the memory may belong to another program.
    #[test]
    fn any_bytes_are_a_record_or_none(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0..6_u64) {
        if let Some(head) = bytes.first_chunk_mut::<8>() {
            *head = kind.to_le_bytes();
        }
        if let Some(record) = Record::read(&bytes) {
            for format in [Format::Line, Format::Json, Format::Combined, Format::parse("{to} {mail}").expect("one")] {
                let mut out = Vec::new();
                format.append(&record, &mut LineCache::default(), &mut out);
                let line = String::from_utf8(out).expect("text");
                prop_assert!(line.bytes().filter(|byte| *byte == b'\n').count() <= 1);
            }
            let filter = Expression::parse(b"url ~ a and status > 3 and client == x and parent != 1", &FIELDS);
            filter.expect("one").matches(&Fields::of(record));
        }
    }

    /// Reading a record returns the values that were written.
    #[test]
    fn what_was_written_is_read(texts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20)) {
        let mut out = Vec::new();
        begin(Kind::Mail, 7, 3, 9, &mut out);
        texts.iter().for_each(|said| text(Tag::To, said, &mut out));
        end(&mut out);
        let record = Record::read(&out).expect("a record");
        prop_assert_eq!((record.kind, record.id, record.parent, record.began_us), (Kind::Mail, 7, 3, 9));
        let read: Vec<_> = record.pairs().map(|(_, value)| value).collect();
        let written: Vec<_> = texts.iter().map(|said| Value::Text(said, false)).collect();
        prop_assert_eq!(read, written);
    }
}
