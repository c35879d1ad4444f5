//! Frames: valid forms, the effect of each fault, and encoding.

use crate::fuzz_seeds::http2_frames;
use proptest::prelude::*;
use wire::http2::{
    Progress,
    error::{ErrorCode, Fault, Rule},
    frame::{self, Dependency, FRAME_BYTES_MIN, Frame, FrameHeader, Setting, Settings, flag, kind},
};

fn bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader { length: payload.len() as u32, kind, flags, stream };
    [&header.bytes()[..], payload].concat()
}

fn parsed(bytes: &[u8]) -> Result<Frame<'_>, Fault> {
    match frame::parse(bytes, FRAME_BYTES_MIN)? {
        Progress::Complete(frame, total) => {
            assert_eq!(total, bytes.len());
            Ok(frame)
        }
        Progress::NeedMore(need) => panic!("needs {need} bytes, has {}", bytes.len()),
    }
}

#[test]
fn padding_and_priorities_are_cut_off() {
    let data = bytes(kind::DATA, flag::PADDED | flag::END_STREAM, 1, b"\x02abc\0\0");
    let want = Frame::Data { stream: 1, payload: b"abc", flow_bytes: 6, end_stream: true };
    assert_eq!(parsed(&data), Ok(want));
    let only_padding = bytes(kind::DATA, flag::PADDED, 1, b"\x01\0");
    let want = Frame::Data { stream: 1, payload: b"", flow_bytes: 2, end_stream: false };
    assert_eq!(parsed(&only_padding), Ok(want));
    let headers = bytes(kind::HEADERS, flag::PADDED | flag::PRIORITY, 3, b"\x01\x80\0\0\x05\x0fblock\0");
    let dependency = Some(Dependency { exclusive: true, stream: 5, weight: 15 });
    let want =
        Frame::Headers { stream: 3, fragment: b"block", end_stream: false, end_headers: false, dependency };
    assert_eq!(parsed(&headers), Ok(want));
    // The reserved bit before the stream's number is ignored, and so are flags that a type does not define.
    let mut ping = bytes(kind::PING, 0xfe, 0, b"12345678");
    ping[5] |= 0x80;
    assert_eq!(parsed(&ping), Ok(Frame::Ping { ack: false, opaque: *b"12345678" }));
    let unknown = bytes(0x42, 0xff, 7, b"x");
    let header = FrameHeader { length: 1, kind: 0x42, flags: 0xff, stream: 7 };
    assert_eq!(parsed(&unknown), Ok(Frame::Unknown { header, payload: b"x" }));
}

/// RFC 9113 §4.2 and §6, RFC 9218 §7.1: the faults of frames, their codes, and whether the stream or the
/// connection ends.
#[test]
fn what_is_malformed_ends_what_the_rfc_says() {
    let frame_size = ErrorCode::FRAME_SIZE_ERROR;
    let protocol = ErrorCode::PROTOCOL_ERROR;
    let setting = |number: u16, value: u32| [&number.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let flow = ErrorCode::FLOW_CONTROL_ERROR;
    #[rustfmt::skip]
    let table = [
        (kind::DATA, 0, 0, b"x".to_vec(), Rule::StreamZero, protocol, None),
        (kind::DATA, flag::PADDED, 1, vec![], Rule::FrameSize, frame_size, Some(1)),
        (kind::DATA, flag::PADDED, 1, b"\x01".to_vec(), Rule::Padding, protocol, None),
        (kind::DATA, flag::PADDED, 1, b"\x05abcd".to_vec(), Rule::Padding, protocol, None),
        (kind::HEADERS, 0, 0, b"x".to_vec(), Rule::StreamZero, protocol, None),
        (kind::HEADERS, flag::PADDED, 1, vec![], Rule::FrameSize, frame_size, None),
        (kind::HEADERS, flag::PADDED, 1, b"\x02a".to_vec(), Rule::Padding, protocol, None),
        (kind::HEADERS, flag::PRIORITY, 1, b"abcd".to_vec(), Rule::FrameSize, frame_size, None),
        (kind::PRIORITY, 0, 0, b"abcde".to_vec(), Rule::StreamZero, protocol, None),
        (kind::PRIORITY, 0, 9, b"abcd".to_vec(), Rule::FrameSize, frame_size, Some(9)),
        (kind::PRIORITY, 0, 9, b"abcdef".to_vec(), Rule::FrameSize, frame_size, Some(9)),
        (kind::RST_STREAM, 0, 0, b"abcd".to_vec(), Rule::StreamZero, protocol, None),
        (kind::RST_STREAM, 0, 1, b"abc".to_vec(), Rule::FrameSize, frame_size, None),
        (kind::SETTINGS, 0, 1, vec![], Rule::StreamNotZero, protocol, None),
        (kind::SETTINGS, flag::ACK, 0, b"123456".to_vec(), Rule::FrameSize, frame_size, None),
        (kind::SETTINGS, 0, 0, b"1234567".to_vec(), Rule::FrameSize, frame_size, None),
        (kind::SETTINGS, 0, 0, setting(2, 2), Rule::EnablePush, protocol, None),
        (kind::SETTINGS, 0, 0, setting(4, 1 << 31), Rule::InitialWindow, flow, None),
        (kind::SETTINGS, 0, 0, setting(5, (1 << 14) - 1), Rule::MaxFrameSize, protocol, None),
        (kind::SETTINGS, 0, 0, setting(5, 1 << 24), Rule::MaxFrameSize, protocol, None),
        (kind::SETTINGS, 0, 0, setting(8, 2), Rule::EnableConnectProtocol, protocol, None),
        (kind::SETTINGS, 0, 0, setting(9, 2), Rule::NoRfc7540Priorities, protocol, None),
        (kind::PUSH_PROMISE, 0, 0, b"\0\0\0\x02".to_vec(), Rule::StreamZero, protocol, None),
        (kind::PUSH_PROMISE, 0, 1, b"\0\0\0".to_vec(), Rule::FrameSize, frame_size, None),
        (kind::PUSH_PROMISE, 0, 1, b"\0\0\0\x03".to_vec(), Rule::PromisedStream, protocol, None),
        (kind::PUSH_PROMISE, 0, 1, b"\0\0\0\0".to_vec(), Rule::PromisedStream, protocol, None),
        (kind::PING, 0, 1, b"12345678".to_vec(), Rule::StreamNotZero, protocol, None),
        (kind::PING, 0, 0, b"1234567".to_vec(), Rule::FrameSize, frame_size, None),
        (kind::PING, flag::ACK, 0, b"123456789".to_vec(), Rule::FrameSize, frame_size, None),
        (kind::GOAWAY, 0, 1, b"12345678".to_vec(), Rule::StreamNotZero, protocol, None),
        (kind::GOAWAY, 0, 0, b"1234567".to_vec(), Rule::FrameSize, frame_size, None),
        (kind::WINDOW_UPDATE, 0, 0, b"\0\0\0".to_vec(), Rule::FrameSize, frame_size, None),
        (kind::WINDOW_UPDATE, 0, 1, b"\0\0\0\x01\0".to_vec(), Rule::FrameSize, frame_size, None),
        (kind::WINDOW_UPDATE, 0, 0, b"\x80\0\0\0".to_vec(), Rule::ZeroIncrement, protocol, None),
        (kind::WINDOW_UPDATE, 0, 3, b"\0\0\0\0".to_vec(), Rule::ZeroIncrement, protocol, Some(3)),
        (kind::CONTINUATION, flag::END_HEADERS, 0, vec![], Rule::StreamZero, protocol, None),
        (kind::PRIORITY_UPDATE, 0, 1, b"\0\0\0\x01u=0".to_vec(), Rule::StreamNotZero, protocol, None),
        (kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0".to_vec(), Rule::FrameSize, frame_size, None),
        (kind::PRIORITY_UPDATE, 0, 0, b"\0\0\0\0u=0".to_vec(), Rule::PriorityUpdateStream, protocol, None),
    ];
    for (kind, flags, stream, payload, rule, code, ends) in table {
        let want = Fault { rule, code, stream: ends };
        assert_eq!(parsed(&bytes(kind, flags, stream, &payload)), Err(want), "{kind} {payload:?}");
    }
}

#[test]
fn an_oversized_frame_is_refused_by_its_header() {
    let header = FrameHeader { length: FRAME_BYTES_MIN + 1, kind: kind::DATA, flags: 0, stream: 1 };
    let fault = Fault::of_connection(Rule::FrameTooLarge, ErrorCode::FRAME_SIZE_ERROR);
    assert_eq!(frame::parse(&header.bytes(), FRAME_BYTES_MIN), Err(fault));
    let header = FrameHeader { length: FRAME_BYTES_MIN, ..header };
    let need = Progress::NeedMore(9 + FRAME_BYTES_MIN as usize);
    assert_eq!(frame::parse(&header.bytes(), FRAME_BYTES_MIN), Ok(need));
}

#[test]
fn settings_are_read_in_order() {
    let mut out = Vec::new();
    let pairs = [
        (Setting::ENABLE_PUSH, 0),
        (Setting(0xfafa), 7),
        (Setting::INITIAL_WINDOW_SIZE, 1),
        (Setting::INITIAL_WINDOW_SIZE, (1 << 31) - 1),
    ];
    frame::settings(&mut out, &pairs);
    let Ok(Frame::Settings(settings)) = parsed(&out) else { panic!("a sound frame") };
    assert_eq!(settings.iter().collect::<Vec<_>>(), pairs);
    assert_eq!(settings.count(), 4);
}

#[test]
fn long_field_blocks_span_several_frames() {
    for (len, frames) in [(0, 1), (5, 1), (10, 1), (11, 2), (30, 3), (31, 4)] {
        let block: Vec<u8> = (0..len).collect();
        let (mut out, mut joined, mut count) = (Vec::new(), Vec::new(), 0);
        frame::headers(&mut out, 5, &block, true, 10);
        let mut rest = &out[..];
        let mut ended = false;
        while !rest.is_empty() {
            let Ok(Progress::Complete(frame, total)) = frame::parse(rest, 10) else { panic!("{rest:?}") };
            assert!(!ended);
            match frame {
                Frame::Headers { stream: 5, fragment, end_stream: true, end_headers, .. } if count == 0 => {
                    joined.extend_from_slice(fragment);
                    ended = end_headers;
                }
                Frame::Continuation { stream: 5, fragment, end_headers } if count > 0 => {
                    joined.extend_from_slice(fragment);
                    ended = end_headers;
                }
                other => panic!("{other:?}"),
            }
            (rest, count) = (&rest[total..], count + 1);
        }
        assert!(ended);
        assert_eq!((joined, count), (block, frames));
    }
}

#[derive(Debug, Clone)]
struct Draft {
    kind: u8,
    flag: bool,
    second_flag: bool,
    stream: u32,
    number: u32,
    opaque: [u8; 8],
    payload: Vec<u8>,
}

fn draft() -> impl Strategy<Value = Draft> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..64);
    let flags = (any::<bool>(), any::<bool>());
    (0u8..=12, flags, 1u32..1 << 31, 1u32..1 << 31, any::<[u8; 8]>(), bytes).prop_map(
        |(kind, (flag, second_flag), stream, number, opaque, payload)| Draft {
            kind,
            flag,
            second_flag,
            stream,
            number,
            opaque,
            payload,
        },
    )
}

impl Draft {
    fn frame(&self) -> Frame<'_> {
        let Draft { stream, number, opaque, flag, second_flag, .. } = *self;
        let fragment = &self.payload[..];
        let code = ErrorCode(u32::from_le_bytes([opaque[0], opaque[1], opaque[2], opaque[3]]));
        let dependency = Dependency { exclusive: flag, stream: number, weight: opaque[0] };
        match self.kind {
            0 => {
                Frame::Data { stream, payload: fragment, flow_bytes: fragment.len() as u32, end_stream: flag }
            }
            1 | 2 => Frame::Headers {
                stream,
                fragment,
                end_stream: flag,
                end_headers: second_flag,
                dependency: (self.kind == 2).then_some(dependency),
            },
            3 => Frame::Priority { stream, dependency },
            4 => Frame::Reset { stream, code },
            // Settings 16 and above have no limited range.
            5 if fragment.len() >= 6 && fragment[0] > 0 => {
                Settings::parse(&fragment[..6]).map_or(Frame::SettingsAck, Frame::Settings)
            }
            6 => Frame::PushPromise {
                stream,
                promised: (number & !1).max(2),
                fragment,
                end_headers: second_flag,
            },
            7 => Frame::Ping { ack: flag, opaque },
            8 => Frame::GoAway { last_stream: number, code, debug: fragment },
            9 => Frame::WindowUpdate { stream: if flag { 0 } else { stream }, increment: number },
            10 => Frame::Continuation { stream, fragment, end_headers: flag },
            11 => Frame::PriorityUpdate { stream, value: fragment },
            12 => Frame::Unknown {
                header: FrameHeader {
                    length: fragment.len() as u32,
                    kind: 0x11 + (opaque[0] >> 1),
                    flags: opaque[1],
                    stream,
                },
                payload: fragment,
            },
            _ => Frame::SettingsAck,
        }
    }
}

proptest! {
    #[test]
    fn written_frames_are_parsed_at_any_split(draft in draft()) {
        let frame = draft.frame();
        let mut out = Vec::new();
        frame::write(&mut out, &frame);
        prop_assert_eq!(frame::parse(&out, FRAME_BYTES_MIN), Ok(Progress::Complete(frame, out.len())));
        for end in 0..out.len() {
            let Ok(Progress::NeedMore(need)) = frame::parse(&out[..end], FRAME_BYTES_MIN) else {
                panic!("{end} of {} bytes", out.len());
            };
            prop_assert!(need > end && need <= out.len());
        }
    }

    #[test]
    fn random_bytes_are_read_alike_however_they_come(
        kind in 0u8..18, flags in any::<u8>(), stream in 0u32..4, rest in proptest::collection::vec(any::<u8>(), 0..64)
    ) {
        http2_frames::check(&[&[255], &bytes(kind, flags, stream, &rest)[..], &rest].concat());
        http2_frames::check(&rest);
    }
}
