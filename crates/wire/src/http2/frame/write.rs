//! Encoder for frames. Each function appends whole frames to `out`; those whose names end in `_header` return
//! only the nine header bytes, for callers that send the payload without copying it.

use super::{
    Dependency, ErrorCode, Frame, FrameHeader, HEADER_BYTES, SETTING_BYTES, Setting, WINDOW_MAX, flag, kind,
};

/// Returns the header of a DATA frame.
///
/// # Panics
/// Panics if the payload is too long for a frame.
#[inline]
pub fn data_header(stream: u32, payload_bytes: usize, end_stream: bool) -> [u8; HEADER_BYTES] {
    bare(kind::DATA, flag_if(end_stream, flag::END_STREAM), stream, payload_bytes).bytes()
}

/// Appends a field block as HEADERS and as many CONTINUATION frames as it needs, none longer than
/// `frame_bytes_max`.
pub fn headers(out: &mut Vec<u8>, stream: u32, block: &[u8], end_stream: bool, frame_bytes_max: u32) {
    let (first, mut rest) = block.split_at(block.len().min(frame_bytes_max as usize));
    let flags = flag_if(end_stream, flag::END_STREAM) | flag_if(rest.is_empty(), flag::END_HEADERS);
    append(out, kind::HEADERS, flags, stream, &[first]);
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.len().min(frame_bytes_max as usize));
        append(out, kind::CONTINUATION, flag_if(after.is_empty(), flag::END_HEADERS), stream, &[part]);
        rest = after;
    }
}

/// Appends RST_STREAM.
pub fn reset(out: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    append(out, kind::RST_STREAM, 0, stream, &[&code.0.to_be_bytes()]);
}

/// Appends SETTINGS.
pub fn settings(out: &mut Vec<u8>, settings: &[(Setting, u32)]) {
    out.extend_from_slice(&bare(kind::SETTINGS, 0, 0, settings.len() * SETTING_BYTES).bytes());
    for (setting, value) in settings {
        out.extend_from_slice(&setting.0.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends SETTINGS with ACK.
pub fn settings_ack(out: &mut Vec<u8>) {
    append(out, kind::SETTINGS, flag::ACK, 0, &[]);
}

/// Appends PING, or the answer to one.
pub fn ping(out: &mut Vec<u8>, ack: bool, opaque: [u8; 8]) {
    append(out, kind::PING, flag_if(ack, flag::ACK), 0, &[&opaque]);
}

/// Appends GOAWAY: streams above `last_stream` were not processed.
pub fn goaway(out: &mut Vec<u8>, last_stream: u32, code: ErrorCode, debug: &[u8]) {
    append(out, kind::GOAWAY, 0, 0, &[&last_stream.to_be_bytes(), &code.0.to_be_bytes(), debug]);
}

/// Appends WINDOW_UPDATE for a stream, or for the connection (0).
pub fn window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    append(out, kind::WINDOW_UPDATE, 0, stream, &[&increment.to_be_bytes()]);
}

/// Appends PRIORITY_UPDATE.
pub fn priority_update(out: &mut Vec<u8>, stream: u32, value: &[u8]) {
    append(out, kind::PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes(), value]);
}

/// Appends any frame, without padding.
///
/// # Panics
/// Panics if the payload is too long for a frame.
pub fn write(out: &mut Vec<u8>, frame: &Frame<'_>) {
    match *frame {
        Frame::Data { stream, payload, flow_bytes: _, end_stream } => {
            out.extend_from_slice(&data_header(stream, payload.len(), end_stream));
            out.extend_from_slice(payload);
        }
        Frame::Headers { stream, fragment, end_stream, end_headers, dependency } => {
            let flags = flag_if(end_stream, flag::END_STREAM) | flag_if(end_headers, flag::END_HEADERS);
            match dependency.map(dependency_bytes) {
                None => append(out, kind::HEADERS, flags, stream, &[fragment]),
                Some(bytes) => {
                    append(out, kind::HEADERS, flags | flag::PRIORITY, stream, &[&bytes, fragment])
                }
            }
        }
        Frame::Priority { stream, dependency } => {
            append(out, kind::PRIORITY, 0, stream, &[&dependency_bytes(dependency)]);
        }
        Frame::Reset { stream, code } => reset(out, stream, code),
        Frame::Settings(settings) => append(out, kind::SETTINGS, 0, 0, &[settings.bytes()]),
        Frame::SettingsAck => settings_ack(out),
        Frame::PushPromise { stream, promised, fragment, end_headers } => {
            let flags = flag_if(end_headers, flag::END_HEADERS);
            append(out, kind::PUSH_PROMISE, flags, stream, &[&promised.to_be_bytes(), fragment]);
        }
        Frame::Ping { ack, opaque } => ping(out, ack, opaque),
        Frame::GoAway { last_stream, code, debug } => goaway(out, last_stream, code, debug),
        Frame::WindowUpdate { stream, increment } => window_update(out, stream, increment),
        Frame::Continuation { stream, fragment, end_headers } => {
            append(out, kind::CONTINUATION, flag_if(end_headers, flag::END_HEADERS), stream, &[fragment]);
        }
        Frame::PriorityUpdate { stream, value } => priority_update(out, stream, value),
        Frame::Unknown { header, payload } => {
            append(out, header.kind, header.flags, header.stream, &[payload]);
        }
    }
}

fn dependency_bytes(dependency: Dependency) -> [u8; 5] {
    let exclusive = if dependency.exclusive { 1 << 31 } else { 0 };
    let [a, b, c, d] = (dependency.stream & WINDOW_MAX | exclusive).to_be_bytes();
    [a, b, c, d, dependency.weight]
}

/// Returns `flag` if it is set, and no flag otherwise.
#[inline]
const fn flag_if(is_set: bool, flag: u8) -> u8 {
    if is_set { flag } else { 0 }
}

#[inline]
fn bare(kind: u8, flags: u8, stream: u32, payload_bytes: usize) -> FrameHeader {
    assert!(payload_bytes < 1 << 24, "a frame's payload is shorter than 2^24 bytes");
    FrameHeader { length: payload_bytes as u32, kind, flags, stream }
}

#[inline]
fn append(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, parts: &[&[u8]]) {
    let payload_bytes = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&bare(kind, flags, stream, payload_bytes).bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}
