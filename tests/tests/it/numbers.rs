//! Extreme numbers from origins and clients: each field that holds a number gets them. Any answer is valid
//! HTTP or missing, the accelerator keeps running, and the next request is answered.

use tests::{
    Accelerator, Answer, Client, End, Next, Request, ScriptedOrigin, accelerator::Setup, content::content,
};

/// Decimal numbers around each power of two at which an integer type ends, numbers beyond all of them, signed
/// ones, and texts that are no number.
const DECIMALS: &[&str] = &[
    "0",
    "00",
    "1",
    "5",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551614",
    "18446744073709551615",
    "18446744073709551616",
    "9999999999999999999999999999999999999999",
    "0000000000000000000000000000000000000005",
    "-0",
    "-1",
    "-9223372036854775808",
    "+1",
    "1.5",
    "1e9",
    "0x5",
    "5 5",
    "5,5",
    "",
    " ",
    "\t",
    "five",
];

/// Hexadecimal counterparts of [`DECIMALS`].
const HEXADECIMALS: &[&str] = &[
    "0",
    "00",
    "5",
    "7fffffff",
    "80000000",
    "ffffffff",
    "100000000",
    "7fffffffffffffff",
    "8000000000000000",
    "fffffffffffffffe",
    "ffffffffffffffff",
    "10000000000000000",
    "ffffffffffffffffffffffffffffffffffffffff",
    "0000000000000000000000000000000000000005",
    "-1",
    "+5",
    "0x5",
    "5 5",
    "",
    " ",
    "five",
];

/// Origin answers with a decimal number at `{n}`; some of them may be stored and some may not.
const OF_ORIGINS: &[&str] = &[
    "HTTP/{n} 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.{n} 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 {n} OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {n}\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nVary: Accept\r\nContent-Length: {n}\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: {n}\r\n\r\nhello",
    "HTTP/1.1 204 Empty\r\nCache-Control: max-age=60\r\nContent-Length: {n}\r\n\r\n",
    "HTTP/1.1 206 Part\r\nContent-Range: bytes {n}-{n}/{n}\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 206 Part\r\nContent-Range: bytes 0-{n}/{n}\r\nContent-Length: {n}\r\n\r\nhello",
    "HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nContent-Length: {n}\r\n\r\n",
    "HTTP/1.1 416 Beyond\r\nContent-Range: bytes */{n}\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nContent-Range: bytes 0-{n}/{n}\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nCache-Control: max-age={n}\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nCache-Control: s-maxage=\"{n}\", max-age={n}\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nCache-Control: max-age={n}, stale-while-revalidate={n}, stale-if-error={n}\r\nAge: {n}\r\n\
     Content-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nCDN-Cache-Control: max-age={n}\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nAge: {n}\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=4294967295\r\nAge: {n}\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nAge: {n}\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nExpires: {n}\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nExpires: Thu, 01 Jan {n} 00:00:00 GMT\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nDate: Thu, 01 Jan {n} 00:00:00 GMT\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nLast-Modified: Thu, {n} Jan 1970 {n}:00:00 GMT\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nKeep-Alive: timeout={n}, max={n}\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 503 Busy\r\nCache-Control: max-age=60\r\nRetry-After: {n}\r\nContent-Length: 5\r\n\r\nhello",
    "HTTP/1.1 201 Made\r\nLocation: http://site.test:{n}/made\r\nContent-Location: //site.test:{n}\r\nContent-Length: 5\r\n\r\n\
     hello",
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nAge: {n}\r\n\
     Content-Length: {n}\r\n\r\n",
];

/// Origin answers with a hexadecimal chunk size at `{n}`.
const CHUNKS_OF_ORIGINS: &[&str] = &[
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n{n}\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n{n}\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n{n};n={n}\r\nhello\r\n0\r\n\r\n",
];

/// Client requests with a decimal number at `{n}`. `/known` is stored, `/other` is not.
const OF_CLIENTS: &[&str] = &[
    "GET /known HTTP/{n}\r\nHost: site.test\r\nConnection: close\r\n\r\n",
    "GET /known HTTP/1.{n}\r\nHost: site.test\r\nConnection: close\r\n\r\n",
    "GET /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nContent-Length: {n}\r\n\r\nhello",
    "HEAD /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nContent-Length: {n}\r\n\r\nhello",
    "POST /other HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nContent-Length: {n}\r\n\r\nhello",
    "PURGE /other HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nContent-Length: {n}\r\n\r\nhello",
    "PUT /other HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nContent-Range: bytes {n}-{n}/{n}\r\nContent-Length: 5\r\n\r\n\
     hello",
    "GET /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nRange: bytes={n}-\r\n\r\n",
    "GET /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nRange: bytes=-{n}\r\n\r\n",
    "GET /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nRange: bytes=0-{n}\r\n\r\n",
    "GET /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nRange: bytes={n}-{n}\r\n\r\n",
    "GET /other HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nRange: bytes={n}-{n}\r\n\r\n",
    "GET /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nRange: bytes=0-4\r\nIf-Range: \"{n}\"\r\n\r\n",
    "GET /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nIf-Modified-Since: Thu, {n} Jan {n} 00:00:00 GMT\r\n\r\n",
    "GET /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nCache-Control: max-age={n}\r\n\r\n",
    "GET /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nCache-Control: min-fresh={n}, max-stale={n}\r\n\r\n",
    "GET /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nKeep-Alive: timeout={n}, max={n}\r\n\r\n",
    "GET /known HTTP/1.1\r\nHost: site.test:{n}\r\nConnection: close\r\n\r\n",
    "GET http://site.test:{n}/known HTTP/1.1\r\nHost: site.test:{n}\r\nConnection: close\r\n\r\n",
    "CONNECT site.test:{n} HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n\r\n",
    "TRACE /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nMax-Forwards: {n}\r\n\r\n",
    "OPTIONS /other HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nMax-Forwards: {n}\r\n\r\n",
    "TRACE /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nAccept: text/html;q={n}, application/json;q=0.{n}\r\n\r\n",
    "POST /other HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nExpect: {n}-continue\r\nContent-Length: 5\r\n\r\nhello",
];

/// Client requests with a hexadecimal chunk size at `{n}`.
const CHUNKS_OF_CLIENTS: &[&str] = &[
    "POST /other HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{n}\r\nhello\r\n0\r\n\r\n",
    "POST /other HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
     5\r\nhello\r\n{n}\r\nhello\r\n0\r\n\r\n",
    "GET /known HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{n}\r\nhello\r\n0\r\n\r\n",
    "PURGE /other HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{n}\r\nhello\r\n0\r\n\r\n",
];

fn cases<'t>(decimal: &'t [&str], hexadecimal: &'t [&str]) -> impl Iterator<Item = String> + use<'t> {
    let with = |templates: &'t [&str], numbers: &'static [&str]| {
        templates
            .iter()
            .flat_map(move |template| numbers.iter().map(move |number| template.replace("{n}", number)))
    };
    with(decimal, DECIMALS).chain(with(hexadecimal, HEXADECIMALS))
}

fn start(before: impl FnOnce(Setup) -> Setup) -> (ScriptedOrigin, Accelerator) {
    let origin = ScriptedOrigin::start();
    origin.answers("/well", Answer::new(200, "well").header("Cache-Control", "max-age=600"));
    let accelerator = before(Accelerator::before(&origin.url()).flag("--purge-from", "127.0.0.1")).start();
    (origin, accelerator)
}

/// Sends a request that ends its connection, and reads until the end: HTTP or nothing must come.
#[track_caller]
fn send_and_listen(accelerator: &Accelerator, request: &[u8], case: &str) {
    let mut client = accelerator.connect();
    let _ = client.try_send(request);
    client.finish_sending();
    let (_, answer) = client.until_closed();
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 "),
        "{}: {}",
        case.escape_debug(),
        answer.escape_ascii()
    );
}

/// Checks after each case that the accelerator still answers. The same connection is used again, because a
/// new one could not be opened after the process has ended.
#[track_caller]
fn expect_well(well: &mut Client, accelerator: &Accelerator, case: &str) {
    well.send(&Request::get("/well").bytes());
    let Some(response) = well.try_response("GET") else {
        panic!("the accelerator ended after {}:\n{}", case.escape_debug(), accelerator.printed());
    };
    assert_eq!((response.status(), response.end), (200, End::Complete), "after {}", case.escape_debug());
}

/// Lets an origin send each number in each of its answers, to requests of every kind.
fn origins_say(origin: &ScriptedOrigin, accelerator: &Accelerator) {
    let mut well = accelerator.connect();
    for (number, case) in cases(OF_ORIGINS, CHUNKS_OF_ORIGINS).enumerate() {
        let path = format!("/case/{number}");
        origin.sends(&path, case.as_bytes(), Next::Close);
        let head = format!("{path} HTTP/1.1\r\nHost: site.test\r\nConnection: close\r\n");
        for request in [
            format!("GET {head}\r\n"),
            // The second GET is answered from the store, if the answer was stored.
            format!("GET {head}\r\n"),
            format!("HEAD {head}\r\n"),
            format!("GET {head}Range: bytes=1-3\r\n\r\n"),
            format!("GET {head}If-None-Match: \"x\"\r\nRange: bytes=-3\r\n\r\n"),
            format!("GET {head}Cache-Control: no-cache\r\nRange: bytes=1-\r\n\r\n"),
            format!("GET {head}Cache-Control: no-store\r\n\r\n"),
            format!("HEAD {head}Cache-Control: no-store\r\n\r\n"),
            format!("POST {head}Content-Length: 5\r\n\r\nhello"),
            format!("GET {path} HTTP/1.0\r\n\r\n"),
        ] {
            send_and_listen(accelerator, request.as_bytes(), &case);
        }
        expect_well(&mut well, accelerator, &case);
    }
    assert!(!accelerator.printed().contains("panicked"), "{}", accelerator.printed());
}

#[test]
fn an_origins_numbers_reach_no_assertion() {
    let (origin, accelerator) = start(|setup| setup);
    origins_say(&origin, &accelerator);
}

/// With a file, an object too large for memory is cut into parts, which needs other arithmetic.
#[test]
fn extreme_origin_numbers_are_harmless_with_a_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("store");
    let (origin, accelerator) = start(|setup| setup.flag("--memory", "12MiB").store_in(&file, "128MiB"));
    origins_say(&origin, &accelerator.warm());
}

#[test]
fn a_clients_numbers_reach_no_assertion() {
    let (origin, accelerator) = start(|setup| setup);
    let known = Answer::new(200, content(1, 0, 100_000)).header("Cache-Control", "max-age=600");
    origin.answers(
        "/known",
        known.header("ETag", "\"5\"").header("Last-Modified", "Thu, 01 Jan 1998 00:00:00 GMT"),
    );
    accelerator.get("/known").expect_status(200);
    let mut well = accelerator.connect();
    for case in cases(OF_CLIENTS, CHUNKS_OF_CLIENTS) {
        send_and_listen(&accelerator, case.as_bytes(), &case);
        expect_well(&mut well, &accelerator, &case);
    }
    assert!(!accelerator.printed().contains("panicked"), "{}", accelerator.printed());
}
