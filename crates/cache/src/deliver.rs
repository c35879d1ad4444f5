//! Sending a response's body from where it is: the store's memory, a body that is still arriving, or a copy.

use std::time::{Duration, Instant};

use engine::{
    cores::clock,
    store::PinnedObject,
    sys::span::{Part, Span},
};
use socket2::SockRef;
use wire::http1::framing::ChunkedEncoder;

use crate::{
    client::{Client, Gone, Sent},
    core::with_core,
    counters::Counter,
    growing::{Available, Cursor, End},
    hit::append_trailers,
};

/// A slow reader's remainder up to this size is copied out of the store when the store wants its memory back.
const REMAINDER_BYTES_MAX: usize = 64 * 1024;
/// Copies of remainders that one core holds at once; beyond it slow readers are cut instead.
const REMAINDERS_BYTES_MAX: usize = 16 << 20;
/// How often a sender that waits for its client asks whether the store wants the memory back.
const WANTED_EVERY: Duration = Duration::from_millis(500);

/// How the body is delimited towards the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// By Content-Length, or by the end of the connection: the bytes as they are.
    Plain,
    /// Chunked (RFC 9112 §7.1).
    Chunked,
}

/// Why a body did not reach its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The client's side.
    Client(Gone),
    /// The origin broke off; the client must be able to tell, so the connection is cut.
    Origin,
}

impl From<Gone> for Cut {
    fn from(gone: Gone) -> Self {
        Self::Client(gone)
    }
}

/// Makes the coming close a reset, which gives up what the kernel has not sent yet. Where a body's end is the end of
/// the connection, it is the only way to say that this was not all (RFC 9112 §9.6 notes what it costs: the client may
/// lose what it has not read).
pub(crate) fn reset_on_close(client: &Client) {
    // A socket that cannot be told so is gone already.
    let _ = SockRef::from(&client.stream).set_linger(Some(Duration::ZERO));
}

/// Sends `prefix`, then bytes `from..to` of a stored object's body. The pins move along with what was sent.
pub(crate) async fn send_stored(
    client: &Client,
    prefix: &[u8],
    object: &mut PinnedObject,
    from: u64,
    to: u64,
    chunked: bool,
    pin_grace: Duration,
) -> Result<(), Cut> {
    let mut suffix = Vec::new();
    if chunked {
        // One chunk it was; its trailers are small and are copied before the pins move on.
        suffix.extend_from_slice(ChunkedEncoder::CHUNK_END);
        append_trailers(object.tail(), &mut suffix);
    }
    send_pinned(client, prefix, object, from, to, pin_grace).await?;
    client.send_all(&suffix).await?;
    Ok(())
}

async fn send_pinned(
    client: &Client,
    prefix: &[u8],
    object: &mut PinnedObject,
    from: u64,
    to: u64,
    pin_grace: Duration,
) -> Result<(), Cut> {
    let mut prefix = prefix;
    let mut at = from;
    let mut wanted_since: Option<Instant> = None;
    while at < to || !prefix.is_empty() {
        let sent = {
            let body = object.body(at);
            let left = usize::try_from(to - at).unwrap_or(usize::MAX);
            let body = body.slice(0..body.len().min(left));
            client.send_some(&[Part::Plain(prefix), Part::Shared(body)], Some(WANTED_EVERY)).await?
        };
        if let Sent::Bytes(sent) = sent {
            let of_prefix = sent.min(prefix.len());
            prefix = &prefix[of_prefix..];
            at += (sent - of_prefix) as u64;
            object.release_before(at);
        }
        if at < to && object.wanted() {
            if let Some(copy) = copy_remainder(object, at, to) {
                drop_pins(object);
                let sent = send_copy(client, prefix, &copy).await;
                with_core(|core| core.copied_bytes.set(core.copied_bytes.get() - copy.len()));
                return sent;
            }
            let since = *wanted_since.get_or_insert_with(clock::now);
            if clock::now().duration_since(since) >= pin_grace {
                with_core(|core| core.count(Counter::SlowReadersCut));
                return Err(Cut::Client(Gone::Wanted));
            }
        }
    }
    Ok(())
}

/// The rest of the body in memory of our own, if it is small and the bound on such copies allows it.
fn copy_remainder(object: &PinnedObject, from: u64, to: u64) -> Option<Vec<u8>> {
    let bytes = usize::try_from(to - from).ok().filter(|bytes| *bytes <= REMAINDER_BYTES_MAX)?;
    let fits = with_core(|core| {
        let fits = core.copied_bytes.get() + bytes <= REMAINDERS_BYTES_MAX;
        if fits {
            core.copied_bytes.set(core.copied_bytes.get() + bytes);
            core.count(Counter::RemaindersCopied);
        }
        fits
    });
    fits.then(|| {
        let mut copy = Vec::with_capacity(bytes);
        while copy.len() < bytes {
            let span = object.body(from + copy.len() as u64);
            span.slice(0..span.len().min(bytes - copy.len())).copy_to(&mut copy);
        }
        copy
    })
}

fn drop_pins(object: &mut PinnedObject) {
    object.release_before(u64::MAX);
}

async fn send_copy(client: &Client, prefix: &[u8], copy: &[u8]) -> Result<(), Cut> {
    client.send_all(prefix).await?;
    client.send_all(copy).await?;
    Ok(())
}

/// Sends `prefix`, then a body that may still be arriving, from `from` up to `to` (`None`: to its end).
pub(crate) async fn send_growing(
    client: &Client,
    prefix: &[u8],
    cursor: &mut Cursor,
    outgoing: Outgoing,
    from: u64,
    to: Option<u64>,
) -> Result<(), Cut> {
    let mut out = prefix.to_vec();
    let mut skip = from;
    let mut left = to.map(|to| to - from);
    loop {
        if left == Some(0) {
            break;
        }
        // The head leaves at once when the body is not there yet: the client may have a use for it.
        if cursor.ready().is_none() && !out.is_empty() {
            client.send_all(&out).await?;
            out.clear();
        }
        let span = match cursor.available().await {
            Available::Bytes(span) => span,
            Available::End(End::Whole) => {
                if left.is_some() {
                    // Fewer bytes than were promised: an end that the client must be able to tell.
                    return Err(Cut::Origin);
                }
                break;
            }
            Available::End(_) => {
                // What is there is sent, so that the client sees as much as the origin gave.
                client.send_all(&out).await?;
                return Err(Cut::Origin);
            }
        };
        if skip > 0 {
            let skipped = skip.min(span.len() as u64);
            skip -= skipped;
            #[expect(clippy::cast_possible_truncation, reason = "at most the length of a span")]
            cursor.advance(skipped as usize);
            continue;
        }
        let bytes = span.len().min(usize::try_from(left.unwrap_or(u64::MAX)).unwrap_or(usize::MAX));
        let span = span.slice(0..bytes);
        if outgoing == Outgoing::Chunked {
            out.extend_from_slice(ChunkedEncoder::chunk_header(bytes as u64).as_bytes());
        }
        send_with(client, &mut out, span).await?;
        if outgoing == Outgoing::Chunked {
            out.extend_from_slice(ChunkedEncoder::CHUNK_END);
        }
        cursor.advance(bytes);
        left = left.map(|left| left - bytes as u64);
    }
    if outgoing == Outgoing::Chunked {
        for part in ChunkedEncoder::last_chunk(cursor.trailers()) {
            out.extend_from_slice(part);
        }
    }
    client.send_all(&out).await?;
    Ok(())
}

/// Sends `out` and `span` in one go where the socket takes it; `out` is empty after.
async fn send_with(client: &Client, out: &mut Vec<u8>, span: Span<'_>) -> Result<(), Gone> {
    let mut plain_at = 0;
    let mut span_at = 0;
    while plain_at < out.len() || span_at < span.len() {
        let parts = [Part::Plain(&out[plain_at..]), Part::Shared(span.slice(span_at..span.len()))];
        if let Sent::Bytes(sent) = client.send_some(&parts, None).await? {
            let plain = sent.min(out.len() - plain_at);
            plain_at += plain;
            span_at += sent - plain;
        }
    }
    out.clear();
    Ok(())
}
