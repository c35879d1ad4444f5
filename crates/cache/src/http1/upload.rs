//! A request's body, read from the connection that it comes on.
//!
//! Bounds: `request_body_bytes_max` in size; a pause of `request_head_time_max` between two bytes; and in all no
//! slower than [`RATE_MIN`] bytes a second once `request_body_time_grace` has passed: a byte now and then holds a connection to
//! the origin for ever.

use std::time::{Duration, Instant};

use engine::cores::clock;
use wire::http1::{
    framing::{BodyDecoder, Framing},
    head::Version,
};

use super::{client::Client, connection::Connection};
use crate::{
    core::with_core,
    counters::Counter,
    downstream::{Broken, Downstream, READ_BYTES},
    error_page::{Fault, Rule},
    request::Request,
    sink::{Gone, Sink},
};

/// Bytes a second that a body must come with on average.
const RATE_MIN: u64 = 512;

/// The body of a request that is being answered.
pub(super) struct Upload<'c> {
    client: &'c mut Client,
    /// What came of it already, and what came behind it.
    pending: &'c mut Vec<u8>,
    decoder: BodyDecoder,
    wants_continue: bool,
    /// It speaks HTTP/1.1 (RFC 9110 §15.2).
    knows_interim: bool,
    bytes: u64,
    bytes_max: u64,
    pause_max: Duration,
    grace: Duration,
    since: Instant,
}

impl<'c> Upload<'c> {
    pub(super) fn new(connection: &'c mut Connection, request: &Request) -> Self {
        let (bytes_max, pause_max, grace) = with_core(|core| {
            let limits = &core.config.limits;
            (limits.request_body_bytes_max, limits.request_head_time_max, limits.request_body_time_grace)
        });
        let Connection { client, pending, .. } = connection;
        Self {
            client,
            pending,
            decoder: BodyDecoder::new(request.framing),
            wants_continue: request.framing != Framing::None && request.expects_continue(),
            knows_interim: request.head().version == Version::Http11,
            bytes: 0,
            bytes_max,
            pause_max,
            grace,
            since: clock::now(),
        }
    }

    /// Whether some of it was not read: nothing behind it can be taken for a request.
    pub(super) fn is_unread(&self) -> bool {
        !self.decoder.is_done()
    }

    fn refused(fault: Fault) -> Broken {
        with_core(|core| {
            core.count(match fault {
                Fault::BodyTooLarge => Counter::BodiesTooLarge,
                Fault::RequestTimeout => Counter::SlowBodies,
                _ => Counter::BadRequests,
            });
        });
        Broken::Refused(fault)
    }

    /// Counts bytes of the body that have come.
    fn count(&mut self, bytes: usize) -> Result<(), Broken> {
        self.bytes += bytes as u64;
        if self.bytes > self.bytes_max {
            return Err(Self::refused(Fault::BodyTooLarge));
        }
        Ok(())
    }

    /// Moves what came of the body to `into`; whether there was anything.
    fn decode(&mut self, into: &mut Vec<u8>) -> Result<bool, Broken> {
        let (before, mut at) = (into.len(), 0);
        while !self.decoder.is_done() && at < self.pending.len() && into.len() - before < READ_BYTES {
            let rest = &self.pending[at..];
            let rest = &rest[..rest.len().min(READ_BYTES)];
            let step = self
                .decoder
                .decode(rest)
                .map_err(|error| Self::refused(Fault::BadRequest(Rule::Body(error.rule))))?;
            let data = &rest[step.data.clone()];
            into.extend_from_slice(data);
            let bytes = data.len();
            self.count(bytes)?;
            at += step.consumed;
            if step.consumed == 0 {
                break;
            }
        }
        self.pending.drain(..at);
        Ok(into.len() > before)
    }
}

impl Downstream for Upload<'_> {
    async fn read(&mut self, into: &mut Vec<u8>) -> Result<bool, Broken> {
        if std::mem::take(&mut self.wants_continue) && self.pending.is_empty() {
            // RFC 9110 §10.1.1: the client waits for this before it sends the body.
            self.client.send_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.map_err(gone)?;
        }
        loop {
            if self.decode(into)? {
                return Ok(true);
            }
            if self.decoder.is_done() {
                return Ok(false);
            }
            let time = clock::now().duration_since(self.since);
            if time > self.grace && self.bytes < RATE_MIN * time.as_secs() {
                return Err(Self::refused(Fault::RequestTimeout));
            }
            // Straight to where it is wanted, if no byte needs a look.
            let raw = if self.pending.is_empty() { self.decoder.raw_max() } else { 0 };
            let target = if raw > 0 { &mut *into } else { &mut *self.pending };
            let before = target.len();
            target.reserve(READ_BYTES);
            let bytes = self.client.append_body(target, self.pause_max).await.map_err(gone)?;
            if bytes == 0 {
                return Err(gone(Gone::Closed));
            }
            if raw >= bytes as u64 {
                self.decoder.take_raw(bytes as u64);
                self.count(bytes)?;
                return Ok(true);
            }
            if raw > 0 {
                // It goes beyond the body, or the chunk.
                self.pending.extend_from_slice(&into[before..]);
                into.truncate(before);
            }
        }
    }

    fn trailers(&self) -> &[u8] {
        self.decoder.trailers()
    }

    async fn interim(&mut self, head: &[u8]) {
        if self.knows_interim {
            with_core(|core| core.count(Counter::InterimsPassed));
            // One who is gone is found out when the answer is sent.
            let _ = self.client.send_all(&[head, b"\r\n"].concat()).await;
        }
    }
}

/// Counts a client that left in the middle of its body, or stopped sending it.
fn gone(gone: Gone) -> Broken {
    with_core(|core| {
        core.count(match gone {
            Gone::Stalled => Counter::ClientsStalled,
            Gone::Closed | Gone::Wanted => Counter::ClientsGone,
        });
    });
    Broken::Gone
}
