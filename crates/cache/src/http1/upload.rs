//! A request's body, read from the connection that it comes on.
//!
//! Bounds: `request_body_bytes_max` in size; a pause of `request_head_time_max` between two bytes; and in all no
//! slower than [`RATE_MIN`] bytes a second once `request_body_time_grace` has passed: a byte now and then holds a connection to
//! the origin for ever.

use std::time::{Duration, Instant};

use engine::cores::clock;
use wire::http1::framing::{BodyDecoder, Framing};

use super::{
    client::{Client, Gone},
    connection::Connection,
};
use crate::{
    core::with_core,
    counters::Counter,
    error_page::{Fault, Rule},
    request::Request,
    request_body::{Broken, READ_BYTES, RequestBody},
};

/// Bytes a second that a body must come with on average.
const RATE_MIN: u64 = 512;

/// The body of a request that is being answered.
pub(super) struct Upload<'c> {
    client: &'c mut Client,
    /// What came of it already, and what came behind it.
    pending: &'c mut Vec<u8>,
    decoder: BodyDecoder,
    buffer: Vec<u8>,
    wants_continue: bool,
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
            buffer: Vec::new(),
            wants_continue: request.framing != Framing::None && request.expects_continue(),
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
            self.bytes += data.len() as u64;
            if self.bytes > self.bytes_max {
                return Err(Self::refused(Fault::BodyTooLarge));
            }
            into.extend_from_slice(data);
            at += step.consumed;
            if step.consumed == 0 {
                break;
            }
        }
        self.pending.drain(..at);
        Ok(into.len() > before)
    }
}

impl RequestBody for Upload<'_> {
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
            self.buffer.resize(READ_BYTES, 0);
            match self.client.read_body(&mut self.buffer, self.pause_max).await.map_err(gone)? {
                0 => return Err(gone(Gone::Closed)),
                bytes => self.pending.extend_from_slice(&self.buffer[..bytes]),
            }
        }
    }

    fn trailers(&self) -> &[u8] {
        self.decoder.trailers()
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
