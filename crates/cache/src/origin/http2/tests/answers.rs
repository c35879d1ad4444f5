//! Tests that reject answers which break a rule, or which an HTTP/1 client could read in two ways (RFC 9113
//! §8.1.1, §8.2, §8.3).

use super::{
    raw::{Do, END_STREAM, data, headers, say, window_update},
    *,
};

/// Invalid answers of an origin on stream 1.
fn bad() -> Vec<(&'static str, Vec<u8>)> {
    let with =
        |fields: &[(&str, &str)]| [headers(1, "200", fields, 0), data(1, b"hello", END_STREAM)].concat();
    let long = "x".repeat(70_000 / 5);
    vec![
        ("upper case", with(&[("X-Upper", "1")])),
        ("a line in a value", with(&[("x", "a\r\nset-cookie: evil=1")])),
        ("CR in a value", with(&[("x", "a\rb")])),
        ("LF in a value", with(&[("x", "a\nb")])),
        ("NUL in a value", with(&[("x", "a\0b")])),
        ("a line in a name", with(&[("x\r\ny", "1")])),
        ("a colon in a name", with(&[("x: y", "1")])),
        ("a blank in a name", with(&[("x y", "1")])),
        ("no name", with(&[("", "1")])),
        ("connection", with(&[("connection", "close")])),
        ("connection that names", with(&[("connection", "x-a"), ("x-a", "1")])),
        ("keep-alive", with(&[("keep-alive", "timeout=5")])),
        ("proxy-connection", with(&[("proxy-connection", "close")])),
        ("transfer-encoding", with(&[("transfer-encoding", "chunked")])),
        (
            "transfer-encoding beside a length",
            with(&[("transfer-encoding", "chunked"), ("content-length", "5")]),
        ),
        ("upgrade", with(&[("upgrade", "websocket")])),
        ("a length that is too long", with(&[("content-length", "6")])),
        ("a length that is too short", with(&[("content-length", "4")])),
        ("a length of nothing", with(&[("content-length", "0")])),
        ("two lengths", with(&[("content-length", "5"), ("content-length", "6")])),
        ("a length twice", with(&[("content-length", "5"), ("content-length", "5")])),
        ("a list of lengths", with(&[("content-length", "5, 5")])),
        ("a length with a sign", with(&[("content-length", "+5")])),
        ("a length of letters", with(&[("content-length", "0x5")])),
        ("a length and no content", headers(1, "200", &[("content-length", "5")], END_STREAM)),
        ("no status", [headers(1, "", &[("x", "y")], 0), data(1, b"hello", END_STREAM)].concat()),
        ("a status of letters", [headers(1, "2oo", &[], 0), data(1, b"hello", END_STREAM)].concat()),
        ("a short status", [headers(1, "20", &[], 0), data(1, b"hello", END_STREAM)].concat()),
        ("a status with a line", [headers(1, "200\r\nx: y", &[], 0), data(1, b"hello", END_STREAM)].concat()),
        ("two statuses", with(&[(":status", "404")])),
        ("an unknown pseudo-field", with(&[(":evil", "1")])),
        (
            "a pseudo-field behind a field",
            [headers(1, "", &[("x", "y"), (":status", "200")], 0), data(1, b"hello", END_STREAM)].concat(),
        ),
        ("101", [headers(1, "101", &[], 0), data(1, b"hello", END_STREAM)].concat()),
        ("content before the head", [data(1, b"hello", 0), headers(1, "200", &[], END_STREAM)].concat()),
        ("an interim that ends", headers(1, "103", &[], END_STREAM)),
        (
            "content with 204 of a length",
            [headers(1, "204", &[("content-length", "5")], 0), data(1, b"hello", END_STREAM)].concat(),
        ),
        (
            "too large a head",
            with(&[("a", &*long), ("b", &*long), ("c", &*long), ("d", &*long), ("e", &*long)]),
        ),
        // WINDOW_UPDATE with an increment of 0 (RFC 9113 §6.9), fixed in Apache Traffic Server and nginx in
        // 2026.
        (
            "a stream's window that opens by nothing",
            [headers(1, "200", &[], 0), window_update(1, 0), data(1, b"hello", END_STREAM)].concat(),
        ),
        (
            "the connection's window that opens by nothing",
            [headers(1, "200", &[], 0), window_update(0, 0), data(1, b"hello", END_STREAM)].concat(),
        ),
        (
            "the connection's window that opens too far",
            [headers(1, "200", &[], 0), window_update(0, u32::MAX >> 1), data(1, b"hello", END_STREAM)]
                .concat(),
        ),
        (
            "a status between fields",
            [headers(1, "", &[("x", "y"), (":status", "200"), ("z", "1")], 0), data(1, b"hello", END_STREAM)]
                .concat(),
        ),
        (
            "trailers without an end",
            [headers(1, "200", &[], 0), data(1, b"hello", 0), headers(1, "", &[("x", "y")], 0)].concat(),
        ),
        (
            "trailers with a line",
            [
                headers(1, "200", &[], 0),
                data(1, b"hello", 0),
                headers(1, "", &[("x", "y\r\nz: 1")], END_STREAM),
            ]
            .concat(),
        ),
        (
            "content beyond the end",
            [
                headers(1, "200", &[("content-length", "5")], 0),
                data(1, b"hello", 0),
                data(1, b"x", END_STREAM),
            ]
            .concat(),
        ),
    ]
}

#[tokio::test(flavor = "local")]
async fn no_answer_that_breaks_a_rule_is_whole() {
    let mut whole = Vec::new();
    for (name, frames) in bad() {
        // The server closes the connection, because an answer that is not rejected at once would wait for
        // more bytes.
        let address = say(move |_, _| Do::Close(frames.clone())).await;
        let only = Only::at(address, Limits::default());
        let found = match only.get("/").await {
            Ok(mut arrived) => content(&mut arrived).await,
            Err(error) => Err(error),
        };
        if let Ok(all) = found {
            whole.push((name, String::from_utf8_lossy(&all).into_owned()));
        }
    }
    assert_eq!(whole, []);
}

#[tokio::test(flavor = "local")]
async fn what_is_sound_is_let_through() {
    let with =
        |fields: &[(&str, &str)]| [headers(1, "200", fields, 0), data(1, b"hello", END_STREAM)].concat();
    for (name, frames, lines) in [
        ("no length", with(&[("x", "y")]), "x: y\ntransfer-encoding: chunked\n"),
        ("a length", with(&[("content-length", "5")]), "content-length: 5\n"),
        (
            "bytes of others",
            with(&[("x", "\u{e9}\t!"), ("content-length", "5")]),
            "x: \u{e9}\t!\ncontent-length: 5\n",
        ),
        (
            "a status in trailers",
            [headers(1, "200", &[], 0), data(1, b"hello", 0), headers(1, "404", &[], END_STREAM)].concat(),
            "transfer-encoding: chunked\n",
        ),
        // `h2` skips a pseudo-field that RFC 9113 §8.3 forbids in answers; our code does not receive it.
        ("a request's field", with(&[(":path", "/"), ("content-length", "5")]), "content-length: 5\n"),
        ("an empty value", with(&[("x", ""), ("content-length", "5")]), "x: \ncontent-length: 5\n"),
        (
            "a cookie twice",
            with(&[("set-cookie", "a"), ("set-cookie", "b"), ("content-length", "5")]),
            "set-cookie: a\nset-cookie: b\ncontent-length: 5\n",
        ),
    ] {
        let address = say(move |_, _| Do::Send(frames.clone())).await;
        let only = Only::at(address, Limits::default());
        let mut arrived = only.get("/").await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let head = arrived.head.head();
        let mut found = String::new();
        for (_, field, value) in head.headers.classified() {
            found += &format!("{field}: {}\n", String::from_utf8_lossy(value));
        }
        assert_eq!((head.status, head.reason, &*found), (200, "OK", lines), "{name}");
        assert_eq!(content(&mut arrived).await.as_deref(), Ok(&b"hello"[..]), "{name}");
        assert_eq!(arrived.trailers(), b"", "{name}");
    }
}
