//! A request's body, read from the connection that it comes on.
//!
//! How much, and how slowly: [`pace`](crate::pace).

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
    pace::{Pace, refused},
    request::Request,
    sink::{Gone, Sink},
};

/// The body of a request that is being answered.
pub(super) struct Upload<'c> {
    client: &'c mut Client,
    /// What came of it already, and what came behind it.
    pending: &'c mut Vec<u8>,
    decoder: BodyDecoder,
    wants_continue: bool,
    /// It speaks HTTP/1.1 (RFC 9110 §15.2).
    knows_interim: bool,
    pace: Pace,
}

impl<'c> Upload<'c> {
    pub(super) fn new(connection: &'c mut Connection, request: &Request) -> Self {
        let Connection { client, pending, .. } = connection;
        Self {
            client,
            pending,
            decoder: BodyDecoder::new(request.framing),
            wants_continue: request.framing != Framing::None && request.expects_continue(),
            knows_interim: request.head().version == Version::Http11,
            pace: Pace::new(request),
        }
    }

    /// Whether some of it was not read: nothing behind it can be taken for a request.
    pub(super) fn is_unread(&self) -> bool {
        !self.decoder.is_done()
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
                .map_err(|error| refused(Fault::BadRequest(Rule::Body(error.rule))))?;
            let data = &rest[step.data.clone()];
            into.extend_from_slice(data);
            let bytes = data.len();
            self.pace.count(bytes)?;
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
            self.pace.check()?;
            // Straight to where it is wanted, if no byte needs a look.
            let raw = if self.pending.is_empty() { self.decoder.raw_max() } else { 0 };
            let target = if raw > 0 { &mut *into } else { &mut *self.pending };
            let before = target.len();
            target.reserve(READ_BYTES);
            let bytes = self.client.append_body(target, self.pace.pause_max()).await.map_err(gone)?;
            if bytes == 0 {
                return Err(gone(Gone::Closed));
            }
            if raw >= bytes as u64 {
                self.decoder.take_raw(bytes as u64);
                self.pace.count(bytes)?;
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
            Gone::Closed | Gone::Slow | Gone::Wanted => Counter::ClientsGone,
        });
    });
    Broken::Gone
}
