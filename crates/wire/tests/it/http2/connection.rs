//! Connections: which frames are allowed in which state, and how they are answered (RFC 9113 §5 and §6).

use super::client::{Client, GET, POST, block, data, headers, reset, setting, update, written};
use crate::fuzz_seeds::http2_connection::told;
use allocations::Allocations;
use wire::http2::{
    Progress,
    connection::{Connection, ConnectionError, ConnectionFault, Event, Limits, WindowOwner},
    error::{ErrorCode, Rule},
    frame::{self, Dependency, Frame, PREFACE, Setting},
    hpack::DecodeError,
};

fn rule(code: ErrorCode, rule: Rule) -> (ErrorCode, ConnectionFault) {
    (code, ConnectionFault::Rule(rule))
}

const PROTOCOL: ErrorCode = ErrorCode::PROTOCOL_ERROR;

#[test]
fn a_connection_begins_with_preface_and_settings() {
    for (bytes, broken) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), Rule::Preface),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rx".to_vec(), Rule::Preface),
        ([PREFACE, &written(Frame::Ping { ack: false, opaque: [0; 8] })].concat(), Rule::FirstFrame),
        ([PREFACE, &written(Frame::SettingsAck)].concat(), Rule::FirstFrame),
        ([PREFACE, &headers(1, GET, true)].concat(), Rule::FirstFrame),
    ] {
        assert_eq!(Client::silent(Limits::default()).ends(&bytes), rule(PROTOCOL, broken));
    }
    let mut client = Client::silent(Limits::default());
    let greeting = client.answers();
    assert!(greeting[0].starts_with("Settings"), "{greeting:?}");
    assert_eq!(greeting[1], format!("WINDOW_UPDATE 0 {}", (1 << 20) - 65_535));
    for end in 0..PREFACE.len() {
        let progress = client.connection.receive(&PREFACE[..end], &mut client.section, 0);
        assert!(matches!(progress, Ok(Progress::NeedMore(24))), "{end}");
    }
}

#[test]
fn a_request_with_content_and_trailers_is_answered() {
    let mut client = Client::new(Limits::default());
    let bytes =
        [headers(1, POST, false), data(1, b"hello", false), headers(1, &[("x-sum", "1")], true)].concat();
    let events = client.sends(&bytes);
    assert!(events[0].starts_with("request 1 false POST"), "{events:?}");
    assert_eq!(&events[1..], ["data 1 false hello", "trailers 1 [\"x-sum: 1\"]"]);
    assert_eq!(client.connection.streams(), 1);
    assert_eq!(client.respond(1, 20_000), 0);
    assert_eq!(client.answers(), ["HEADERS 1 false", "DATA 1 16384 false", "DATA 1 3616 true"]);
    assert_eq!(client.connection.streams(), 0);
    // Nothing is sent on a stream that is gone.
    assert!(!client.connection.send_headers(1, &[0x88], true, &mut client.out));
    assert_eq!(client.connection.sendable(1, 5, 0), Ok(0));
    assert!(client.out.is_empty());
}

/// RFC 9113 §5.1: frames that a state does not allow end the connection.
#[test]
fn frames_that_no_state_allows_end_the_connection() {
    let dependency = Dependency { exclusive: false, stream: 0, weight: 15 };
    let open_block = written(Frame::Headers {
        stream: 1,
        fragment: &block(GET),
        end_stream: true,
        end_headers: false,
        dependency: Some(dependency),
    });
    let continuation = |stream| written(Frame::Continuation { stream, fragment: b"", end_headers: true });
    let push = Frame::PushPromise { stream: 1, promised: 2, fragment: b"", end_headers: true };
    let closed = [headers(1, GET, true), headers(3, GET, true)].concat();
    #[rustfmt::skip]
    let table = [
        (data(1, b"x", false), rule(PROTOCOL, Rule::IdleStream)),
        (data(2, b"x", false), rule(PROTOCOL, Rule::IdleStream)),
        (reset(1), rule(PROTOCOL, Rule::IdleStream)),
        (update(1, 1), rule(PROTOCOL, Rule::IdleStream)),
        (update(2, 1), rule(PROTOCOL, Rule::IdleStream)),
        (headers(2, GET, true), rule(PROTOCOL, Rule::StreamParity)),
        ([headers(5, GET, true), headers(3, GET, true)].concat(), rule(PROTOCOL, Rule::StreamBackwards)),
        ([headers(5, GET, true), data(3, b"", true)].concat(), rule(PROTOCOL, Rule::IdleStream)),
        (continuation(1), rule(PROTOCOL, Rule::ContinuationAlone)),
        ([headers(1, GET, true), continuation(1)].concat(), rule(PROTOCOL, Rule::ContinuationAlone)),
        ([&open_block[..], &continuation(3)].concat(), rule(PROTOCOL, Rule::ContinuationMissing)),
        ([&open_block[..], &data(1, b"x", true)].concat(), rule(PROTOCOL, Rule::ContinuationMissing)),
        ([&open_block[..], &update(1, 0)].concat(), rule(PROTOCOL, Rule::ContinuationMissing)),
        ([&open_block[..], &setting(Setting(99), 0)].concat(), rule(PROTOCOL, Rule::ContinuationMissing)),
        ([&open_block[..], &written(Frame::Unknown {
            header: frame::FrameHeader { length: 0, kind: 0x42, flags: 0, stream: 1 },
            payload: b"",
        })].concat(), rule(PROTOCOL, Rule::ContinuationMissing)),
        (written(push), rule(PROTOCOL, Rule::PushByClient)),
        (update(0, 0), rule(PROTOCOL, Rule::ZeroIncrement)),
        (update(7, 0), rule(PROTOCOL, Rule::ZeroIncrement)),
        (update(0, (1 << 31) - 1), rule(ErrorCode::FLOW_CONTROL_ERROR, Rule::WindowOverflow)),
        (written(Frame::PriorityUpdate { stream: 2, value: b"u=1" }), rule(PROTOCOL, Rule::PriorityUpdateStream)),
        (b"\0\x40\x01\0\0\0\0\0\x01".to_vec(), rule(ErrorCode::FRAME_SIZE_ERROR, Rule::FrameTooLarge)),
        ([&closed[..], &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x80]].concat(),
            (ErrorCode::COMPRESSION_ERROR, ConnectionFault::FieldBlock(DecodeError::Index))),
    ];
    for (bytes, ended) in table {
        let mut client = Client::new(Limits::default());
        assert_eq!(client.ends(&bytes), ended, "{}", bytes.escape_ascii());
        client.connection.goaway(ended.0, &mut client.out);
    }
    // A stream that both sides have ended.
    let mut client = Client::new(Limits::default());
    client.sends(&headers(1, GET, true));
    client.respond(1, 0);
    let closed = rule(ErrorCode::STREAM_CLOSED, Rule::StreamClosed);
    assert_eq!(client.ends(&headers(1, GET, true)), closed);
}

/// A fault on one stream does not affect the other streams.
#[test]
fn faults_of_streams_end_streams() {
    let length = [POST, &[("content-length", "5")]].concat();
    let smuggled = [GET, &[("x", "a\r\nb: c")]].concat();
    let cases: [(Vec<Vec<u8>>, &str); 11] = [
        (vec![headers(1, GET, true), data(1, b"x", true)], "RST_STREAM 1 5"),
        (vec![headers(1, GET, true), headers(1, &[("a", "b")], true)], "RST_STREAM 1 5"),
        (vec![headers(1, POST, false), headers(1, &[("a", "b")], false)], "RST_STREAM 1 1"),
        (vec![headers(1, POST, false), headers(1, &[(":path", "/")], true)], "RST_STREAM 1 1"),
        (vec![headers(1, &smuggled, true)], "RST_STREAM 1 1"),
        (vec![headers(1, &length, false), data(1, b"123456", false)], "RST_STREAM 1 1"),
        (vec![headers(1, &length, false), data(1, b"1234", true)], "RST_STREAM 1 1"),
        (vec![headers(1, &length, false), headers(1, &[("a", "b")], true)], "RST_STREAM 1 1"),
        (vec![headers(1, &length, true)], "RST_STREAM 1 1"),
        (vec![headers(1, GET, true), update(1, 0)], "RST_STREAM 1 1"),
        (vec![headers(1, GET, true), update(1, (1 << 31) - 1)], "RST_STREAM 1 3"),
    ];
    for (frames, answer) in cases {
        let mut client = Client::new(Limits::default());
        let events = client.sends(&frames.concat());
        assert!(events.last().is_some_and(|last| last.starts_with("Broken")), "{events:?}");
        assert_eq!(client.answers(), [answer]);
        assert_eq!(client.connection.streams(), 0);
        // Frames that were on their way to the reset stream are ignored.
        let late = [data(1, b"late", false), headers(1, &[("a", "b")], true), update(1, 5)].concat();
        assert_eq!(client.sends(&late), ["Nothing"; 3]);
        assert!(client.sends(&headers(3, GET, true))[0].starts_with("request 3"));
    }
    // Content for a stream that both sides have ended without a reset.
    let mut client = Client::new(Limits::default());
    client.sends(&headers(1, GET, true));
    client.respond(1, 0);
    client.answers();
    client.sends(&data(1, b"x", true));
    assert_eq!(client.answers(), ["RST_STREAM 1 5"]);
}

/// RFC 9113 §6.9: a request's windows limit the client, and reopen as content is consumed.
#[test]
fn request_windows_reopen_as_content_is_consumed() {
    let limits = Limits { stream_window: 65_535, connection_window: 100_000, ..Limits::default() };
    let mut client = Client::new(limits);
    client.sends(&headers(1, POST, false));
    client.sends(&headers(3, POST, false));
    let part = [b'x'; 16_000];
    for _ in 0..4 {
        client.sends(&data(1, &part, false));
    }
    // The stream's window has 1,535 bytes left.
    let broken = client.sends(&data(1, &part, false));
    assert!(broken[0].starts_with("Broken"), "{broken:?}");
    assert_eq!(client.answers(), ["RST_STREAM 1 3"]);
    // The connection's window has lost 80,000 bytes, of which 16,000 were never handed to the caller.
    client.sends(&data(3, &part, false));
    assert_eq!(client.answers(), [""; 0]);
    let exceeded = (ErrorCode::FLOW_CONTROL_ERROR, ConnectionFault::Rule(Rule::WindowExceeded));
    assert_eq!(client.ends(&data(3, &part, false)), exceeded);

    let mut client = Client::new(limits);
    client.sends(&headers(1, POST, false));
    client.sends(&data(1, &part, false));
    client.connection.release(1, 16_000, &mut client.out);
    assert_eq!(client.answers(), [""; 0]);
    client.sends(&data(1, &part, false));
    client.connection.release(1, 16_000, &mut client.out);
    client.sends(&data(1, &part, false));
    client.connection.release(1, 16_000, &mut client.out);
    assert_eq!(client.answers(), ["WINDOW_UPDATE 1 48000"]);
    client.sends(&data(1, &part, true));
    client.connection.release(1, 16_000, &mut client.out);
    assert_eq!(client.answers(), ["WINDOW_UPDATE 0 64000"]);
    // Padding is credited back without a release.
    let mut padded = vec![0, 1, 0, 0, 8, 0, 0, 0, 3, 254, b'x'];
    padded.resize(9 + 256, 0);
    padded[2] = 0;
    client.sends(&headers(3, POST, false));
    let sent: usize = 128;
    for _ in 0..sent {
        client.sends(&padded);
    }
    client.connection.release(3, sent, &mut client.out);
    assert_eq!(client.answers(), [format!("WINDOW_UPDATE 3 {}", sent * 256)]);
}

/// RFC 9113 §6.9.2: a response keeps to the client's windows, and SETTINGS change them.
#[test]
fn responses_keep_to_the_clients_windows() {
    let mut client = Client::new(Limits::default());
    client.sends(&setting(Setting::INITIAL_WINDOW_SIZE, 10));
    client.sends(&headers(1, GET, true));
    client.answers();
    assert_eq!(client.respond(1, 30), 20);
    assert_eq!(client.answers(), ["HEADERS 1 false", "DATA 1 10 false"]);
    assert_eq!(client.sends(&update(1, 5)), ["WindowOpened { stream: 1 }"]);
    assert_eq!(client.content(1, 20), 15);
    // A shrunk window may become negative: nothing is sent until updates have made up for it.
    client.sends(&setting(Setting::INITIAL_WINDOW_SIZE, 0));
    client.sends(&update(1, 10));
    assert_eq!(client.content(1, 15), 15);
    client.sends(&setting(Setting::INITIAL_WINDOW_SIZE, 25));
    client.answers();
    assert_eq!(client.content(1, 15), 0);
    assert_eq!(client.answers(), ["DATA 1 15 true"]);
    // An empty last frame needs no window, even if the window is negative.
    client.sends(&setting(Setting::INITIAL_WINDOW_SIZE, 10));
    client.sends(&headers(3, GET, true));
    assert_eq!(client.respond(3, 20), 10);
    client.sends(&setting(Setting::INITIAL_WINDOW_SIZE, 9));
    assert_eq!(client.connection.sendable(3, 10, 0), Ok(0));
    client.answers();
    let end = client.connection.data_header(3, 0, true);
    client.out.extend_from_slice(&end);
    assert_eq!(client.answers(), ["DATA 3 0 true"]);
    // SETTINGS make a window exceed the maximum.
    client.sends(&headers(5, GET, true));
    client.sends(&update(5, (1 << 31) - 1 - 9));
    let overflow = (ErrorCode::FLOW_CONTROL_ERROR, ConnectionFault::Rule(Rule::WindowOverflow));
    assert_eq!(client.ends(&setting(Setting::INITIAL_WINDOW_SIZE, 10)), overflow);
    // The connection's window, and frames as large as the client accepts.
    let mut client = Client::new(Limits::default());
    client.sends(&setting(Setting::INITIAL_WINDOW_SIZE, 1 << 20));
    client.sends(&setting(Setting::MAX_FRAME_SIZE, 60_000));
    client.sends(&headers(1, GET, true));
    client.answers();
    assert_eq!(client.respond(1, 100_000), 100_000 - 65_535);
    assert_eq!(client.answers(), ["HEADERS 1 false", "DATA 1 60000 false", "DATA 1 5535 false"]);
    assert_eq!(client.sends(&update(0, 100_000)), ["WindowOpened { stream: 0 }"]);
    assert_eq!(client.content(1, 100_000 - 65_535), 0);
}

/// RFC 9113 §4.3.1: a smaller table is acknowledged in the next field block, once.
#[test]
fn a_smaller_table_is_acknowledged() {
    let mut client = Client::new(Limits::default());
    client.sends(&headers(1, GET, true));
    client.sends(&headers(3, GET, true));
    client.sends(&setting(Setting::HEADER_TABLE_SIZE, 8192));
    client.sends(&setting(Setting::HEADER_TABLE_SIZE, 4096));
    client.out.clear();
    client.connection.send_headers(1, &[0x88], true, &mut client.out);
    assert_eq!(client.out[9..], [0x20, 0x88]);
    client.out.clear();
    client.connection.send_headers(3, &[0x88], true, &mut client.out);
    assert_eq!(client.out[9..], [0x88]);
}

#[test]
fn a_drain_finishes_open_streams_only() {
    let mut client = Client::new(Limits::default());
    client.sends(&headers(1, GET, true));
    client.connection.announce_drain(&mut client.out);
    client.connection.announce_drain(&mut client.out);
    // The stream was opened before the client saw the announcement.
    assert!(client.sends(&headers(3, GET, true))[0].starts_with("request 3"));
    client.connection.drain(&mut client.out);
    assert_eq!(client.answers(), [format!("GOAWAY {} 0", (1u32 << 31) - 1), "GOAWAY 3 0".to_owned()]);
    // The decoder's table is updated even by field blocks of ignored streams.
    let entered = [0, 0, 6, 1, 4, 0, 0, 0, 5, 0x40, 1, b'a', 1, b'b', 0x82];
    let late = [&entered[..], &data(5, b"x", false), &update(5, 1), &reset(5)].concat();
    assert_eq!(client.sends(&late), ["Nothing"; 4]);
    assert!(!client.connection.is_drained());
    client.respond(1, 0);
    client.respond(3, 0);
    assert!(client.connection.is_drained());
    assert_eq!(client.connection.last_stream(), 3);
}

/// RFC 9218 §10: more urgent streams are sent first, and incremental streams take turns.
#[test]
fn urgent_streams_go_first_and_incremental_ones_alternate() {
    let mut client = Client::new(Limits::default());
    let urgency = |value| [GET, &[("priority", value)]].concat();
    for (stream, value) in [(1, "u=5"), (3, "u=3"), (5, "u=3"), (7, "u=4, i"), (9, "u=4, i")] {
        client.sends(&headers(stream, &urgency(value), true));
    }
    // PRIORITY_UPDATE arrives before its stream, and while a stream is open.
    client.sends(&written(Frame::PriorityUpdate { stream: 11, value: b"u=0" }));
    client.sends(&headers(11, &urgency("u=7"), true));
    let mut left = vec![1, 3, 5, 7, 9, 11];
    let mut order = Vec::new();
    for _ in 0..9 {
        let next = client.connection.next(|id| left.contains(&id)).expect("one is left");
        // Each incremental stream sends two parts; the others send one.
        let end = !matches!(next, 7 | 9) || order.contains(&next);
        client.connection.data_header(next, 1, end);
        order.push(next);
        if end {
            left.retain(|&id| id != next);
        }
        if order.len() == 1 {
            let event = client.sends(&written(Frame::PriorityUpdate { stream: 5, value: b"u=2" }));
            assert_eq!(
                event,
                ["Prioritised { stream: 5, priority: Priority { urgency: 2, incremental: false } }"]
            );
        }
        if left.is_empty() {
            break;
        }
    }
    assert_eq!(order, [11, 5, 3, 7, 9, 7, 9, 1]);
    assert_eq!(client.connection.next(|_| true), None);
}

#[test]
fn heads_beyond_the_limits_are_to_be_answered() {
    let mut client = Client::new(Limits::default());
    let many: Vec<(&str, &str)> =
        GET.iter().copied().chain(std::iter::repeat_n(("cookie", "a=b"), 97)).collect();
    let event = client.sends(&headers(1, &many, true));
    assert_eq!(event, ["HeadTooLarge { stream: 1, overflow: Fields, end: true }"]);
    let value = "v".repeat(6000);
    let large = [GET, &[("a", &value), ("b", &value), ("c", &value)]].concat();
    let event = client.sends(&headers(3, &large, false));
    assert_eq!(event[event.len() - 1], "HeadTooLarge { stream: 3, overflow: Bytes, end: false }");
    client.respond(1, 10);
    client.respond(3, 10);
    assert_eq!(client.connection.streams(), 1);
    // Frames still on their way to a reset stream are ignored.
    assert!(client.connection.reset(3, ErrorCode::NO_ERROR, &mut client.out));
    assert!(!client.connection.reset(3, ErrorCode::NO_ERROR, &mut client.out));
    assert_eq!(client.sends(&data(3, b"x", true)), ["Nothing"]);
}

#[test]
fn settings_must_be_acknowledged_in_time() {
    let mut client = Client::new(Limits::default());
    assert_eq!(client.connection.overdue(10_000), None);
    let timeout = ConnectionError {
        code: ErrorCode::SETTINGS_TIMEOUT,
        why: ConnectionFault::Rule(Rule::SettingsTimeout),
    };
    assert_eq!(client.connection.overdue(10_001), Some(timeout));
    client.sends(&written(Frame::SettingsAck));
    assert_eq!(client.connection.overdue(1 << 40), None);
}

#[test]
fn a_response_stalled_on_a_window_is_reported() {
    let mut client = Client::new(Limits::default());
    client.sends(&setting(Setting::INITIAL_WINDOW_SIZE, 0));
    client.sends(&headers(1, GET, true));
    assert_eq!(client.respond(1, 100_000), 100_000);
    assert_eq!(client.connection.stalled(60_000), None);
    // A few bytes do not count as progress.
    client.sends(&update(1, 1000));
    client.now_ms = 59_000;
    assert_eq!(client.content(1, 100_000), 99_000);
    assert_eq!(client.connection.stalled(60_001), Some(WindowOwner::Stream(1)));
    client.sends(&update(1, 20_000));
    assert_eq!(client.content(1, 99_000), 79_000);
    assert_eq!(client.connection.stalled(60_001), None);
    assert_eq!(client.connection.stalled(119_001), Some(WindowOwner::Stream(1)));
    // Stalls on the connection's window are reported likewise.
    let mut client = Client::new(Limits::default());
    client.sends(&setting(Setting::INITIAL_WINDOW_SIZE, 1 << 20));
    client.sends(&headers(1, GET, true));
    assert_eq!(client.respond(1, 65_536), 1);
    assert_eq!(client.connection.stalled(60_000), None);
    assert_eq!(client.connection.stalled(60_001), Some(WindowOwner::Connection));
    client.sends(&update(0, 100_000));
    assert_eq!(client.content(1, 1), 0);
    assert_eq!(client.connection.stalled(1 << 20), None);
}

/// The memory of a connection is as stated in docs/decisions/036-http2.md and in the module's documentation.
#[test]
fn an_idle_connection_is_small() {
    let size = size_of::<Connection>();
    assert!((500..=700).contains(&size), "{size}");
    let mut client = Client::new(Limits::default());
    let idle = client.connection.held_bytes();
    assert!((4800..=5000).contains(&idle), "{idle}");
    for stream in 0..100 {
        client.sends(&headers(2 * stream + 1, GET, true));
    }
    let busy = client.connection.held_bytes() - idle;
    assert_eq!(busy, 128 * 48);
    for stream in 0..100 {
        client.respond(2 * stream + 1, 0);
    }
    client.connection.rest();
    assert_eq!(client.connection.held_bytes(), idle);
}

/// The path of a cache hit does not allocate: a request with table references and split cookies, its HTTP/1
/// head, its response.
#[test]
fn a_request_and_its_answer_allocate_nothing() {
    let mut client = Client::new(Limits::default());
    let entered = [&block(GET)[..], b"\x40\x01x\x01y", b"\x60\x81\x1f", b"\x60\x01b"].concat();
    let mut bytes = Vec::new();
    frame::headers(&mut bytes, 1, &entered, true, 16_384);
    client.sends(&bytes);
    client.respond(1, 10);
    let again = [&block(GET)[..], &[0xc0, 0xbf, 0xbe]].concat();
    let mut head = Vec::with_capacity(1024);
    client.out = Vec::with_capacity(4096);
    let mut allocations = Allocations::new().expect("the allocator counts");
    for stream in (3..200).step_by(2) {
        bytes.clear();
        frame::headers(&mut bytes, stream, &again, true, 16_384);
        client.out.clear();
        head.clear();
        allocations.mark().expect("this thread");
        let event = client.connection.receive(&bytes, &mut client.section, 0).expect("sound");
        let Progress::Complete(event @ Event::Request { request, .. }, _) = event else {
            panic!("no request")
        };
        client.connection.reply(&event, &mut client.out);
        request.render_head(&mut head);
        client.connection.send_headers(stream, &[0x88], false, &mut client.out);
        assert_eq!(client.connection.next(|_| true), Some(stream));
        assert_eq!(client.connection.sendable(stream, 500, 0), Ok(500));
        client.out.extend_from_slice(&client.connection.data_header(stream, 500, true));
        allocations.assert_none("a request and its answer");
        assert!(head.ends_with(b"x: y\r\ncookie: a; b\r\n\r\n"), "{}", head.escape_ascii());
    }
}

/// Frames may arrive in pieces of any size, and each event is returned once.
#[test]
fn split_at_every_byte() {
    let bytes =
        [headers(1, POST, false), data(1, b"hello", true), update(0, 5), headers(3, GET, true)].concat();
    let whole = Client::new(Limits::default()).sends(&bytes);
    for end in 0..bytes.len() {
        let mut client = Client::new(Limits::default());
        let mut events = Vec::new();
        let (mut at, mut there) = (0, end);
        while at < bytes.len() {
            match client.connection.receive(&bytes[at..there], &mut client.section, 0).expect("sound") {
                Progress::Complete(event, total) => {
                    events.push(told(&event));
                    at += total;
                }
                Progress::NeedMore(need) => {
                    assert!(there < bytes.len() && need > there - at);
                    there = bytes.len();
                }
            }
        }
        assert_eq!(events, whole, "{end}");
    }
}
