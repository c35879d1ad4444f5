//! The part of the WebSocket handshake (RFC 6455 §4) that this accelerator performs: over HTTP/2 a client
//! sends no key (RFC 8441 §5.1), but its HTTP/1 origin needs one.

use std::io;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use sha1::{Digest as _, Sha1};
use wire::http1::known::KnownHeader;

use crate::{
    core::with_core,
    counters::Counter,
    error_page::Fault,
    origin::{OriginError, UpgradedConnection, interim},
    request::Request,
    states::{
        pipe::Pipe,
        state::{State, Step},
    },
};

/// Constant that the origin appends to the key before it hashes it (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Generates the key for the origin, if the client sent none.
///
/// # Errors
/// Returns the system's error if there are no random numbers.
pub(crate) fn nonce_of(request: &Request) -> io::Result<Option<String>> {
    if request.head().header("sec-websocket-key").is_some() {
        return Ok(None);
    }
    let words = [engine::random::number()?, engine::random::number()?];
    Ok(Some(BASE64.encode(words.map(u64::to_be_bytes).concat())))
}

/// Returns the `Sec-WebSocket-Accept` that the origin must send for a key.
fn accept_of(key: &str) -> String {
    BASE64.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize())
}

/// Builds a pipe from a connection that has switched protocols, if it is a WebSocket and there is room for a
/// pipe.
pub(crate) fn open(switched: UpgradedConnection, nonce: Option<&str>) -> Step {
    let UpgradedConnection { line, mut permit, head, early } = switched;
    let head = head.head();
    let is_websocket =
        head.known(KnownHeader::Upgrade).is_some_and(|to| to.eq_ignore_ascii_case(b"websocket"));
    let said = head.header("sec-websocket-accept");
    if !is_websocket || nonce.is_some_and(|nonce| said != Some(accept_of(nonce).as_bytes())) {
        return Step::Then(State::OriginFailed(OriginError::Switched));
    }
    if !permit.outlast() {
        with_core(|core| core.count(Counter::PipesRefused));
        return Step::Then(State::Synth(Fault::Overloaded));
    }
    Step::Pipe(Box::new(Pipe { line, permit, head: interim(&head), early }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_key_matches_rfc_6455() {
        // Example of RFC 6455 §1.3.
        assert_eq!(accept_of("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
