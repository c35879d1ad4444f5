//! Heads for tests, parsed by the real parser.

use wire::http1::head::{
    HeadLimits, HeaderSlots, Progress, RequestHead, ResponseHead, parse_request, parse_response,
};

/// Calls `f` with the head of `GET / HTTP/1.1` (or another request line) and these header lines.
pub(crate) fn with_request<T>(line: &str, headers: &str, f: impl FnOnce(&RequestHead<'_, '_>) -> T) -> T {
    let text = format!("{line} HTTP/1.1\r\nHost: a.example\r\n{}\r\n", crlf(headers));
    let mut slots = HeaderSlots::new();
    match parse_request(text.as_bytes(), &mut slots, &HeadLimits::default()) {
        Ok(Progress::Complete((head, _))) => f(&head),
        other => panic!("{text:?}: {other:?}"),
    }
}

/// Calls `f` with the head of a response with this status (and reason) and these header lines.
pub(crate) fn with_response<T>(status: &str, headers: &str, f: impl FnOnce(&ResponseHead<'_, '_>) -> T) -> T {
    let text = format!("HTTP/1.1 {status}\r\n{}\r\n", crlf(headers));
    let mut slots = HeaderSlots::new();
    match parse_response(text.as_bytes(), &mut slots, &HeadLimits::default()) {
        Ok(Progress::Complete((head, _))) => f(&head),
        other => panic!("{text:?}: {other:?}"),
    }
}

fn crlf(lines: &str) -> String {
    lines.lines().map(|line| format!("{}\r\n", line.trim_start())).collect()
}

/// Formats seconds since 1970 as an HTTP date.
pub(crate) fn date(s: u64) -> String {
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs(s))
}
