//! Sends a response's body from the store's memory, from a body that is still arriving, or from a copy. The
//! [`Sink`] knows how to reach the client.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use engine::{
    cores::clock,
    store::PinnedObject,
    sys::span::{Part, Span},
};
use wire::http1::framing::ChunkedEncoder;

use crate::{
    body::{
        growing::{Available, Cursor, End},
        multipart_ranges::{MultipartRanges, Source},
        parts::Parts,
        parts_in_memory::Payload,
        slices::{AtHand, Blocks},
    },
    core::{Core, with_core},
    counters::Counter,
    deliver::sink::{SendOutcome, Sink, SinkError, TrySend},
};

/// Minimum size of bodies that are lent to the socket instead of copied into it
/// (`docs/decisions/009-reading-the-disk.md`).
const LENT_BYTES_MIN: u64 = 64 * 1024;
/// Maximum number of memory regions gathered in one write of a large body.
const GATHER_MAX: usize = 15;
/// Maximum size of a body's unsent rest that is copied out of the store for a slow reader when the store
/// needs its memory back.
const REMAINDER_BYTES_MAX: usize = 64 * 1024;
/// Maximum total size of these copies on one core; beyond it slow readers are cut instead.
const REMAINDERS_BYTES_MAX: usize = 16 << 20;
/// Interval at which a sender that waits for its client checks whether the store needs the pinned memory
/// back.
const WANTED_EVERY: Duration = Duration::from_millis(500);

/// Reason why a body was not sent to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The client is gone or too slow.
    Client(SinkError),
    /// A part of the body could not be read from the disk; the client must notice, so the connection is cut.
    Disk,
    /// The origin broke off the transfer; the client must notice, so the connection is cut.
    Origin,
}

impl From<SinkError> for Cut {
    fn from(gone: SinkError) -> Self {
        Self::Client(gone)
    }
}

/// Framing that marks the end of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// A length.
    Length,
    /// The last chunk (RFC 9112 §7.1).
    Chunks,
    /// The end of the connection.
    Close,
    /// The last frame of a stream (RFC 9113 §8.1).
    Frames,
}

impl Ending {
    /// Returns whether trailers can follow.
    pub(crate) const fn takes_trailers(self) -> bool {
        matches!(self, Self::Chunks | Self::Frames)
    }
}

/// Appends the last chunk of a chunked body, with its trailers (RFC 9112 §7.1).
pub(crate) fn append_trailers(trailers: Span<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    trailers.copy_to(out);
    out.extend_from_slice(b"\r\n");
}

/// Ends the content; with chunked framing all content was a single chunk.
async fn end(client: &mut impl Sink, ending: Ending, trailers: &[u8]) -> Result<(), SinkError> {
    match ending {
        Ending::Chunks => {
            client.send_all(ChunkedEncoder::CHUNK_END).await?;
            for part in ChunkedEncoder::last_chunk(trailers) {
                client.send_all(part).await?;
            }
            Ok(())
        }
        Ending::Frames if !trailers.is_empty() => client.send_trailers(trailers).await,
        Ending::Length | Ending::Close | Ending::Frames => Ok(()),
    }
}

/// Returns whether bytes `from..to` of a body are large enough to be lent to the kernel, and can be lent.
pub(crate) fn lends(core: &Core, from: u64, to: u64) -> bool {
    to - from >= LENT_BYTES_MIN && core.storage.lender.borrow().is_some()
}

/// Returns the longest contiguous piece of a stored body that starts at `from` and ends before `to`, to be
/// copied or lent.
fn run_of(object: &PinnedObject, from: u64, to: u64, lend: bool) -> Part<'_> {
    let run = if lend { object.lend(from) } else { object.body(from) };
    let bytes = run.len().min(usize::try_from(to - from).unwrap_or(usize::MAX));
    let run = run.slice(0..bytes);
    if lend { Part::Lent(run) } else { Part::Shared(run) }
}

/// Sends a head and a stored body without waiting, as far as the socket accepts them. Returns the number of
/// bytes sent of `head`, and the position reached in the body.
pub(crate) fn send_without_waiting(
    core: &Core,
    client: &mut impl TrySend,
    head: &[u8],
    object: &PinnedObject,
    from: u64,
    to: u64,
) -> Result<(usize, u64), SinkError> {
    let mut parts = [Part::Plain(&[]); 1 + GATHER_MAX];
    parts[0] = Part::Plain(head);
    let mut at = from;
    let mut used = 1;
    let lend = client.lends() && lends(core, from, to);
    while at < to && used < parts.len() {
        parts[used] = run_of(object, at, to, lend);
        at += parts[used].len() as u64;
        used += 1;
    }
    let sent = client.try_send(&parts[..used])?;
    let of_head = sent.min(head.len());
    Ok((of_head, from + (sent - of_head) as u64))
}

/// Sends `prefix`, then bytes `from..to` of a stored object's body. Segments are unpinned as their bytes are
/// sent.
pub(crate) async fn pinned(
    client: &mut impl Sink,
    prefix: &[u8],
    object: &mut PinnedObject,
    from: u64,
    to: u64,
    ending: Ending,
) -> Result<(), Cut> {
    let mut trailers = Vec::new();
    if ending.takes_trailers() {
        // Trailers are small, and copied before their segment is unpinned.
        object.tail().copy_to(&mut trailers);
    }
    send_pinned(client, prefix, object, from..to, Last::Yes).await?;
    end(client, ending, &trailers).await?;
    Ok(())
}

/// Marks whether a range of a pinned object is the last one to be sent, or further ranges follow.
enum Last<'w> {
    Yes,
    /// More ranges follow, so the object stays pinned. All ranges share the time at which the store first
    /// needed the memory back.
    No(&'w mut Option<Instant>),
}

async fn send_pinned(
    client: &mut impl Sink,
    prefix: &[u8],
    object: &mut PinnedObject,
    range: Range<u64>,
    last: Last<'_>,
) -> Result<(), Cut> {
    let (mut prefix, pin_grace) = (prefix, pin_grace());
    let Range { start: mut at, end: to } = range;
    let mut of_this = None;
    let (wanted_since, is_last) = match last {
        Last::Yes => (&mut of_this, true),
        Last::No(since) => (since, false),
    };
    while at < to || !prefix.is_empty() {
        let sent = {
            let lend = client.lends() && with_core(|core| lends(core, at, to));
            let body = run_of(object, at, to, lend);
            client.send_some(&[Part::Plain(prefix), body], Some(WANTED_EVERY)).await?
        };
        if let SendOutcome::Bytes(sent) = sent {
            let of_prefix = sent.min(prefix.len());
            prefix = &prefix[of_prefix..];
            at += (sent - of_prefix) as u64;
            object.release_before(at);
        }
        if at < to && object.wanted() {
            let left = usize::try_from(to - at).ok().filter(|_| is_last);
            if let Some(_copied) = left.and_then(CopyRoom::reserve) {
                let copy = copy_remainder(object, at, to);
                drop_pins(object);
                return Box::pin(send_copy(client, prefix, &copy)).await;
            }
            grace_left(wanted_since, pin_grace)?;
        }
    }
    Ok(())
}

fn pin_grace() -> Duration {
    with_core(|core| core.config.limits.pin_grace)
}

/// Sends `prefix`, then a body that is stored in the file in parts.
pub(crate) async fn parts(
    client: &mut impl Sink,
    prefix: &[u8],
    parts: &mut Parts,
    ending: Ending,
) -> Result<(), Cut> {
    let mut left = UnsentPart { prefix, sent: 0 };
    loop {
        let next = part(client, &mut left, parts).await?;
        if parts.is_last() {
            break;
        }
        let next = match next {
            Some(next) => next,
            None => {
                parts.forget();
                parts.read_next().await.map_err(|_| Cut::Disk)?
            }
        };
        parts.go_on(next);
        left.sent = 0;
    }
    end(client, ending, parts.trailers()).await?;
    Ok(())
}

/// Progress within a part: the unsent bytes before the part, and the number of bytes of the part that were
/// sent.
struct UnsentPart<'p> {
    prefix: &'p [u8],
    sent: usize,
}

/// Sends the current part, and reads the next part at the same time if there is room. An answer that has to
/// give way to other clients first drops the part that is read ahead, and ends if that is not enough.
async fn part(
    client: &mut impl Sink,
    left: &mut UnsentPart<'_>,
    parts: &mut Parts,
) -> Result<Option<Payload>, Cut> {
    loop {
        {
            let parts = &*parts;
            let reads_ahead = parts.reads_ahead() && !parts.is_last();
            let work = async {
                let sending = rest_of_part(client, left, parts.current());
                if !reads_ahead {
                    sending.await?;
                    return Ok(None);
                }
                let (sent, next) = tokio::join!(sending, parts.read_next());
                sent?;
                next.map(Some).map_err(|_| Cut::Disk)
            };
            tokio::select! {
                biased;
                done = work => return done,
                () = parts.cut() => {}
            }
        }
        if !parts.narrow() {
            return Err(SinkError::GaveWay.into());
        }
    }
}

/// Sends the rest of a part. Sent bytes are recorded at once, because the future may be dropped and started
/// again.
async fn rest_of_part(client: &mut impl Sink, left: &mut UnsentPart<'_>, body: &[u8]) -> Result<(), Cut> {
    while !left.prefix.is_empty() || left.sent < body.len() {
        let pieces = [Part::Plain(left.prefix), Part::Plain(&body[left.sent..])];
        if let SendOutcome::Bytes(sent) = client.send_some(&pieces, None).await? {
            let of_prefix = sent.min(left.prefix.len());
            left.prefix = &left.prefix[of_prefix..];
            left.sent += sent - of_prefix;
        }
    }
    Ok(())
}

/// Sends `prefix`, then a sliced body.
pub(crate) async fn send_slices(
    client: &mut impl Sink,
    prefix: Vec<u8>,
    blocks: &mut Blocks,
) -> Result<(), Cut> {
    let mut prefix = prefix;
    while let Some((at_hand, wanted)) = blocks.take() {
        let prefix = std::mem::take(&mut prefix);
        let Range { start, end } = wanted;
        match at_hand {
            AtHand::Stored(mut object) => {
                send_pinned(client, &prefix, &mut object, start..end, Last::Yes).await?;
            }
            AtHand::Arriving(mut cursor) => {
                growing(client, prefix, &mut cursor, Ending::Length, start, Some(end)).await?;
            }
            AtHand::Copied(bytes) => {
                let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                send_head_and_bytes(client, &prefix, &bytes[within(start)..within(end)]).await?;
            }
        }
        let goes_on = tokio::select! {
            biased;
            goes_on = blocks.go_on() => goes_on.map_err(|_| Cut::Origin)?,
            gone = client.gone() => return Err(gone.into()),
        };
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// Sends `prefix`, then several ranges with the part heads between them.
pub(crate) async fn send_ranges(
    client: &mut impl Sink,
    mut prefix: Vec<u8>,
    body: &mut MultipartRanges,
) -> Result<(), Cut> {
    let mut wanted_since = None;
    while let Some((before, range)) = body.take() {
        prefix.extend_from_slice(&before);
        let Some(range) = range else {
            client.send_all(&prefix).await?;
            break;
        };
        let prefix = std::mem::take(&mut prefix);
        match &mut body.source {
            Source::Pinned(object) => {
                send_pinned(client, &prefix, object, range, Last::No(&mut wanted_since)).await?;
            }
            Source::Blocks(in_blocks) => {
                in_blocks.seek(range).await.map_err(|_| Cut::Origin)?;
                send_slices(client, prefix, in_blocks).await?;
            }
        }
    }
    Ok(())
}

/// Sends the rest of a head, and the body bytes that follow it.
async fn send_head_and_bytes(
    client: &mut impl Sink,
    mut head: &[u8],
    mut body: &[u8],
) -> Result<(), SinkError> {
    while !head.is_empty() || !body.is_empty() {
        if let SendOutcome::Bytes(sent) =
            client.send_some(&[Part::Plain(head), Part::Plain(body)], None).await?
        {
            let of_head = sent.min(head.len());
            head = &head[of_head..];
            body = &body[sent - of_head..];
        }
    }
    Ok(())
}

/// Reservation for the copy of a slow reader's unsent rest, released on drop.
struct CopyRoom(usize);

impl CopyRoom {
    /// Reserves room if the unsent rest is small and the total size of these copies allows it.
    fn reserve(bytes: usize) -> Option<Self> {
        with_core(|core| {
            let fits = bytes <= REMAINDER_BYTES_MAX
                && core.budgets.copied_bytes.get() + bytes <= REMAINDERS_BYTES_MAX;
            fits.then(|| {
                core.budgets.copied_bytes.set(core.budgets.copied_bytes.get() + bytes);
                core.count(Counter::RemaindersCopied);
                Self(bytes)
            })
        })
    }
}

impl Drop for CopyRoom {
    fn drop(&mut self) {
        with_core(|core| core.budgets.copied_bytes.set(core.budgets.copied_bytes.get() - self.0));
    }
}

/// Checks whether a sender may continue to hold memory that the store needs back. `since` is the time at
/// which the store first needed it.
fn grace_left(since: &mut Option<Instant>, pin_grace: Duration) -> Result<(), SinkError> {
    let since = *since.get_or_insert_with(clock::now);
    if clock::now().duration_since(since) < pin_grace {
        return Ok(());
    }
    with_core(|core| core.count(Counter::SlowReadersCut));
    Err(SinkError::Wanted)
}

/// Copies the rest of the body to the heap.
fn copy_remainder(object: &PinnedObject, from: u64, to: u64) -> Vec<u8> {
    let mut copy = Vec::new();
    let mut at = from;
    while at < to {
        let span = object.body(at);
        let bytes = span.len().min(usize::try_from(to - at).unwrap_or(usize::MAX));
        span.slice(0..bytes).copy_to(&mut copy);
        at += bytes as u64;
    }
    copy
}

fn drop_pins(object: &mut PinnedObject) {
    object.release_before(u64::MAX);
}

async fn send_copy(client: &mut impl Sink, prefix: &[u8], copy: &[u8]) -> Result<(), Cut> {
    client.send_all(prefix).await?;
    client.send_all(copy).await?;
    Ok(())
}

/// Sends `prefix`, then a body that may still be arriving, from byte `from` up to `to` (`None`: to its end).
pub(crate) async fn growing(
    client: &mut impl Sink,
    prefix: Vec<u8>,
    cursor: &mut Cursor,
    ending: Ending,
    from: u64,
    to: Option<u64>,
) -> Result<(), Cut> {
    if cursor.is_event_stream() {
        client.ends_at_fin();
    }
    let chunked = ending == Ending::Chunks;
    let mut holding = SlowReader { pin_grace: pin_grace(), wanted_since: None, copied: None };
    let mut out = prefix;
    let mut skip = from;
    let mut left = to.map(|to| to - from);
    loop {
        if left == Some(0) {
            break;
        }
        // If no byte of the body has arrived, the head is sent at once, so that the client can already use
        // it.
        if cursor.ready().is_none() && !out.is_empty() {
            client.send_all(&out).await?;
            out.clear();
        }
        let available = tokio::select! {
            biased;
            available = cursor.available() => available,
            gone = client.gone() => return Err(gone.into()),
        };
        let there = match available {
            Available::Bytes(span) => span.len(),
            Available::End(End::Whole) => {
                if left.is_some() {
                    // The origin sent fewer bytes than it had announced: the client must be able to
                    // distinguish this end from a whole body.
                    return Err(Cut::Origin);
                }
                break;
            }
            Available::End(_) => {
                // The bytes that have arrived are sent, so that the client gets as much as the origin sent.
                client.send_all(&out).await?;
                return Err(Cut::Origin);
            }
        };
        if skip > 0 {
            let skipped = skip.min(there as u64);
            skip -= skipped;
            #[expect(clippy::cast_possible_truncation, reason = "at most the length of a span")]
            cursor.advance(skipped as usize);
            continue;
        }
        let bytes = there.min(usize::try_from(left.unwrap_or(u64::MAX)).unwrap_or(usize::MAX));
        if chunked {
            out.extend_from_slice(ChunkedEncoder::chunk_header(bytes as u64).as_bytes());
        }
        send_with(client, &mut out, cursor, bytes, &mut holding).await?;
        if chunked {
            out.extend_from_slice(ChunkedEncoder::CHUNK_END);
        }
        left = left.map(|left| left - bytes as u64);
    }
    if chunked {
        for part in ChunkedEncoder::last_chunk(cursor.trailers()) {
            out.extend_from_slice(part);
        }
    }
    client.send_all(&out).await?;
    if ending == Ending::Frames && !cursor.trailers().is_empty() {
        client.send_trailers(cursor.trailers()).await?;
    }
    Ok(())
}

/// State of a slow reader that holds memory which the store needs back.
struct SlowReader {
    pin_grace: Duration,
    /// Time at which the store was first seen to need the memory.
    wanted_since: Option<Instant>,
    /// Reservation for the copy, once the reader's unsent rest was copied.
    copied: Option<CopyRoom>,
}

/// Sends `out` and the next `bytes` of the body, in one call if the socket accepts it; `out` is empty
/// afterwards.
async fn send_with(
    client: &mut impl Sink,
    out: &mut Vec<u8>,
    cursor: &mut Cursor,
    bytes: usize,
    holding: &mut SlowReader,
) -> Result<(), SinkError> {
    let mut out_at = 0;
    let mut left = bytes;
    while out_at < out.len() || left > 0 {
        let sent = {
            let plain = Part::Plain(&out[out_at..]);
            match cursor.ready() {
                Some(span) => {
                    let parts = [plain, Part::Shared(span.slice(0..span.len().min(left)))];
                    client.send_some(&parts, Some(WANTED_EVERY)).await?
                }
                None => client.send_some(&[plain], Some(WANTED_EVERY)).await?,
            }
        };
        if let SendOutcome::Bytes(sent) = sent {
            let of_out = sent.min(out.len() - out_at);
            out_at += of_out;
            left -= sent - of_out;
            cursor.advance(sent - of_out);
        }
        if holding.copied.is_none() && cursor.wanted() {
            let room = cursor.unread().and_then(CopyRoom::reserve);
            if room.is_some() {
                cursor.copy_out();
                holding.copied = room;
            } else {
                grace_left(&mut holding.wanted_since, holding.pin_grace)?;
            }
        }
    }
    out.clear();
    Ok(())
}
