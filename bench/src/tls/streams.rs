//! Load of HTTP/2 hits by nghttp2's h2load.

use std::path::Path;

use lab::paired::Work;
use lab::paired::place::program;
use lab::paired::tree::{Cores, pinned};
use lab::peers::PeerError;
use lab::peers::cache::contenders::EdgePorts;

use crate::cache::session::Amount;

/// Minimum number of requests in a round; with fewer, client or server was probably waiting for a timer.
const REQUESTS_MIN: u64 = 100;

/// Settings of an h2load run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Streams {
    /// Number of connections.
    pub(crate) connections: u32,
    /// Concurrent requests on each connection.
    pub(crate) streams: u32,
    /// True for a load over TLS.
    pub(crate) is_secured: bool,
    /// Size of each body.
    pub(crate) body_bytes: u64,
}

/// Runs h2load for `amount` and parses its result. `openssl` is the OpenSSL configuration file of h2load's
/// TLS.
///
/// # Errors
/// `PeerError` if h2load is missing or ends without a result.
pub(crate) fn h2load(
    asked: &Streams,
    ports: EdgePorts,
    cores: &Cores,
    amount: Amount,
    openssl: &Path,
) -> Result<Work, PeerError> {
    let Streams { connections, streams, is_secured, body_bytes } = asked;
    let (scheme, port) = if *is_secured { ("https", ports.tls) } else { ("http", ports.streams) };
    let mut command = pinned(cores, &program("h2load"));
    command.env("OPENSSL_CONF", openssl);
    command.args([format!("-c{connections}"), format!("-m{streams}")]);
    match amount {
        Amount::Time(time) => command.arg(format!("-D{}ms", time.as_millis())),
        Amount::Units(units) => command.arg(format!("-n{}", units.max(connections * streams))),
    };
    command.arg(format!("{scheme}://127.0.0.1:{port}/size/{body_bytes}/0"));
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse(&text, *body_bytes).ok_or_else(|| {
        PeerError::failed(format!("h2load gave no result: {text}{}", String::from_utf8_lossy(&output.stderr)))
    })
}

/// Parses h2load's output: `finished in 2.00s, …`, `requests: 9 total, 9 started, 9 done, 9 succeeded, 0
/// failed, 0 errored, 0 timeout`, `traffic: 12.77MB (13386368) total, 1.50MB (1572864) headers (space savings
/// 23.15%), 10.50MB (11010048) data`.
fn parse(text: &str, body_bytes: u64) -> Option<Work> {
    let line = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
    let before = |line: &str, word: &str| -> Option<u64> {
        line.split(", ").find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
    };
    let requests = line("requests: ")?;
    let succeeded = before(requests, "succeeded")?;
    let failed: u64 = ["failed", "errored", "timeout"].iter().filter_map(|word| before(requests, word)).sum();
    let data = line("traffic: ")?.rsplit_once('(')?.1.split_once(')')?.0.parse::<u64>().ok()?;
    let mut doubts = Vec::new();
    if failed > 0 {
        doubts.push(format!("{failed} requests failed"));
    }
    // The data also includes that of unfinished requests.
    if data < succeeded * body_bytes {
        doubts.push(format!("{data} bytes of content in {succeeded} answers of {body_bytes}"));
    }
    if succeeded < REQUESTS_MIN {
        doubts.push(format!("{succeeded} requests are too few: it waits for something"));
    }
    let wall_s = line("finished in ")?.split_once("s,").and_then(|(seconds, _)| seconds.parse().ok());
    Some(Work { units: succeeded, wall_s, latency: None, doubts })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "starting benchmark...\n\nfinished in 1.00s, 300.00 req/s, 366.45KB/s\n\
        requests: 310 total, 310 started, 300 done, 300 succeeded, 0 failed, 0 errored, 0 timeout\n\
        status codes: 300 2xx, 0 3xx, 0 4xx, 0 5xx\n\
        traffic: 366.45KB (375245) total, 50.00KB (51200) headers (space savings 23.15%), 300.00KB (307200) data\n";

    #[test]
    fn results_are_read_and_errors_marked() {
        let work = parse(SAID, 1024).unwrap();
        assert_eq!((work.units, work.wall_s), (300, Some(1.0)));
        assert!(work.doubts.is_empty(), "{:?}", work.doubts);
        let doubts = |text: &str, bytes| parse(text, bytes).unwrap().doubts;
        assert!(doubts(SAID, 1025)[0].contains("bytes of content"));
        assert!(doubts(&SAID.replace("0 errored", "2 errored"), 1024)[0].contains("2 requests failed"));
        assert!(doubts(&SAID.replace("300 succeeded", "30 succeeded"), 1024)[0].contains("too few"));
        assert!(parse("unable to connect", 1).is_none());
    }
}
