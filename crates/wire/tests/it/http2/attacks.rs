//! Scripted attacks: each ends the connection with the right limit, while legitimate traffic of the same kind
//! does not.

use crate::fuzz_seeds::http2_connection;
use proptest::prelude::*;

use super::client::{Client, GET, POST, block, data, headers, reset, setting, update, written};
use wire::http2::{
    connection::{ConnectionFault, Limit, Limits},
    error::ErrorCode,
    frame::{Dependency, Frame, FrameHeader, Setting},
};

/// Sends frames until the connection ends. Returns their number and the limit.
fn until_the_end(client: &mut Client, mut frames: impl FnMut(u32) -> Vec<u8>) -> (u32, Limit) {
    for number in 0..100_000 {
        if let Err(ended) = client.tries(&frames(number)) {
            assert_eq!(ended.code, ErrorCode::ENHANCE_YOUR_CALM, "{ended}");
            let ConnectionFault::Limit(limit) = ended.why else { panic!("{ended}") };
            client.connection.goaway(ended.code, &mut client.out);
            return (number, limit);
        }
        client.out.clear();
    }
    panic!("it never ends");
}

fn attack(frames: impl FnMut(u32) -> Vec<u8>) -> (u32, Limit) {
    until_the_end(&mut Client::new(Limits::default()), frames)
}

/// CVE-2023-44487: streams that are opened and reset at once.
#[test]
fn rapid_reset() {
    let both = |number: u32| [headers(2 * number + 1, GET, true), reset(2 * number + 1)].concat();
    assert_eq!(attack(both), (200, Limit::RapidReset));
    // RST_STREAM for streams that are gone counts as well.
    let mut client = Client::new(Limits::default());
    client.sends(&headers(1, GET, true));
    client.respond(1, 0);
    assert_eq!(until_the_end(&mut client, |_| reset(1)), (200, Limit::RapidReset));
    // A client may reset as many streams as it lets finish.
    let mut client = Client::new(Limits::default());
    for number in 0..5000 {
        client.sends(&headers(4 * number + 1, GET, true));
        client.respond(4 * number + 1, 10);
        client.sends(&[headers(4 * number + 3, GET, true), reset(4 * number + 3)].concat());
        client.sends(&update(0, 10));
    }
    // A client that resets a stream now and then is not limited.
    for number in 5000..6000 {
        client.now_ms += 50;
        client.sends(&[headers(4 * number + 3, GET, true), reset(4 * number + 3)].concat());
    }
}

/// CVE-2025-8671: frames that make the server reset streams while the backend's processing goes on.
#[test]
fn made_you_reset() {
    let id = |number: u32| 2 * number + 1;
    let zero = |number| [headers(id(number), GET, true), update(id(number), 0)].concat();
    assert_eq!(attack(zero), (20, Limit::MadeUsReset));
    let after_end = |number| [headers(id(number), GET, true), data(id(number), b"x", true)].concat();
    assert_eq!(attack(after_end), (20, Limit::MadeUsReset));
    let overflow = |number| [headers(id(number), GET, true), update(id(number), (1 << 31) - 1)].concat();
    assert_eq!(attack(overflow), (20, Limit::MadeUsReset));
    let twice = |number| [headers(id(number), POST, false), headers(id(number), GET, false)].concat();
    assert_eq!(attack(twice), (20, Limit::MadeUsReset));
    let priority =
        |number| [headers(id(number), GET, true), vec![0, 0, 4, 2, 0, 0, 0, 0, 0, 1, 2, 3, 4]].concat();
    let mut client = Client::new(Limits::default());
    client.sends(&headers(1, GET, true));
    // PRIORITY of a wrong size, on a stream that was already reset.
    assert_eq!(
        until_the_end(&mut client, |number| {
            let mut frames = priority(number + 1);
            let len = frames.len();
            frames[len - 5] = (id(number + 1) & 0xff) as u8;
            frames
        }),
        (20, Limit::MadeUsReset)
    );
    let malformed = |number| headers(id(number), &[(":method", "GET")], true);
    assert_eq!(attack(malformed), (20, Limit::MadeUsReset));
}

/// CVE-2024-27316: a field block of endless CONTINUATION frames.
#[test]
fn continuation_flood() {
    let open = Frame::Headers {
        stream: 1,
        fragment: b"\x82",
        end_stream: true,
        end_headers: false,
        dependency: None,
    };
    for (fragment, limit, after) in
        [(&b""[..], Limit::Continuations, 9), (&[0x82; 16_000][..], Limit::HeaderBlock, 3)]
    {
        let frames = |number| match number {
            0 => written(open),
            _ => written(Frame::Continuation { stream: 1, fragment, end_headers: false }),
        };
        assert_eq!(attack(frames), (after, limit));
    }
    // A legitimate long head takes two CONTINUATION frames.
    let block = block(&[GET, &[("cookie", &"x".repeat(15_000)[..])]].concat());
    let mut bytes = Vec::new();
    wire::http2::frame::headers(&mut bytes, 1, &block, true, 5000);
    assert_eq!(Client::new(Limits::default()).sends(&bytes).len(), 4);
}

/// June 2026: one-byte references to one table entry, and tiny cookie fields, each counted with 32 bytes.
#[test]
fn header_bombs() {
    let entry = [&block(GET)[..], b"\x40\x06cookie\x7f\xa1\x1e", &[b'v'; 4000]].concat();
    let frame = |stream, block: &[u8]| {
        let mut out = Vec::new();
        wire::http2::frame::headers(&mut out, stream, block, true, 16_384);
        out
    };
    let mut client = Client::new(Limits::default());
    client.sends(&frame(1, &entry));
    // 16 KiB are announced: four references fit beside the other fields; a section with more is answered as
    // too large.
    let references = |count: usize| [&block(GET)[..], &vec![0xbe; count]].concat();
    let told = client.sends(&frame(3, &references(3)));
    assert!(told[0].starts_with("request 3"));
    let told = client.sends(&frame(5, &references(6)));
    assert_eq!(told, ["HeadTooLarge { stream: 5, overflow: Bytes, end: true }"]);
    let ended = client.ends(&frame(7, &references(16_000)));
    assert_eq!(ended, (ErrorCode::ENHANCE_YOUR_CALM, ConnectionFault::Limit(Limit::HeaderList)));
    // Empty cookie fields are limited by their number.
    let crumbs = |count: usize| {
        let crumbs = std::iter::repeat_n(("cookie", ""), count);
        block(&GET.iter().copied().chain(crumbs).collect::<Vec<_>>())
    };
    let mut client = Client::new(Limits::default());
    assert!(client.sends(&frame(1, &crumbs(96)))[0].starts_with("request 1"));
    let told = client.sends(&frame(3, &crumbs(97)));
    assert_eq!(told, ["HeadTooLarge { stream: 3, overflow: Fields, end: true }"]);
    let ended = client.ends(&frame(5, &crumbs(5000)));
    assert_eq!(ended, (ErrorCode::ENHANCE_YOUR_CALM, ConnectionFault::Limit(Limit::HeaderList)));
}

/// CVE-2019-9515 and CVE-2020-11080: many SETTINGS frames, and many settings in one.
#[test]
fn settings_floods() {
    let limit = Limit::Settings;
    assert_eq!(attack(|_| setting(Setting(99), 1)), (9, limit));
    let one = [0, 99, 0, 0, 0, 1];
    let many = |count: usize| {
        let mut frame =
            FrameHeader { length: 6 * count as u32, kind: 4, flags: 0, stream: 0 }.bytes().to_vec();
        frame.extend(std::iter::repeat_n(one, count).flatten());
        frame
    };
    let mut client = Client::new(Limits::default());
    assert_eq!(client.sends(&many(64)), ["SettingsToAck"]);
    assert_eq!(client.ends(&many(65)), (ErrorCode::ENHANCE_YOUR_CALM, ConnectionFault::Limit(limit)));
    let ack = Frame::SettingsAck;
    assert_eq!(attack(|_| written(ack)), (500, Limit::UselessFrames));
}

/// CVE-2019-9512: a flood of PING frames.
#[test]
fn ping_flood() {
    let ping = |ack| written(Frame::Ping { ack, opaque: [0; 8] });
    assert_eq!(attack(|_| ping(false)), (50, Limit::Pings));
    assert_eq!(attack(|_| ping(true)), (500, Limit::UselessFrames));
    // Clients that measure the path's bandwidth send a PING for each frame that they receive.
    let mut client = Client::new(Limits::default());
    client.sends(&headers(1, GET, true));
    client.respond(1, 1);
    for number in 1..2000 {
        client.sends(&[headers(2 * number + 1, GET, true), update(0, 1), ping(false)].concat());
        client.respond(2 * number + 1, 1);
    }
}

/// CVE-2019-9513: a flood of priority frames.
#[test]
fn priority_floods() {
    let dependency = Dependency { exclusive: true, stream: 0, weight: 1 };
    let priority = |number| written(Frame::Priority { stream: 2 * number + 1, dependency });
    assert_eq!(attack(priority), (200, Limit::Priorities));
    let update = |number: u32| written(Frame::PriorityUpdate { stream: 2 * number + 1, value: b"u=0" });
    assert_eq!(attack(update), (200, Limit::Priorities));
}

/// CVE-2019-9518: a flood of empty or tiny DATA frames.
#[test]
fn floods_of_empty_and_tiny_frames() {
    for payload in [&b""[..], b"x"] {
        let frames = |number| match number {
            0 => headers(1, POST, false),
            _ => data(1, payload, false),
        };
        assert_eq!(attack(frames), (1001, Limit::SmallFrames));
    }
    let unknown =
        Frame::Unknown { header: FrameHeader { length: 1, kind: 0xfa, flags: 0, stream: 3 }, payload: b"x" };
    assert_eq!(attack(|_| written(unknown)), (500, Limit::UselessFrames));
    // A WebSocket's small messages, 400 a second, and an upload of large frames with small ones in between,
    // are allowed.
    let mut client = Client::new(Limits::default());
    client.sends(&headers(1, POST, false));
    for number in 0..5000 {
        client.now_ms = number * 5 / 2;
        client.sends(&data(1, b"hello", false));
        client.connection.release(1, 5, &mut client.out);
    }
    for _ in 0..5000 {
        client.sends(&data(1, &[0; 300], false));
        client.sends(&data(1, b"hello", false));
        client.connection.release(1, 305, &mut client.out);
    }
}

/// A flood of content for streams that we have reset is limited.
#[test]
fn content_for_what_is_gone() {
    let mut client = Client::new(Limits::default());
    client.sends(&headers(1, POST, false));
    client.connection.reset(1, ErrorCode::NO_ERROR, &mut client.out);
    let (frames, limit) = until_the_end(&mut client, |_| data(1, &[0; 10_000], false));
    // The connection's window reopens as the frames are discarded.
    assert_eq!((frames, limit), (500, Limit::UselessFrames));
}

#[test]
fn streams_beyond_the_limit() {
    let (frames, limit) = attack(|number| headers(2 * number + 1, GET, true));
    assert_eq!((frames, limit), (100 + 200, Limit::Refusals));
    let mut client = Client::new(Limits { streams_max: 2, ..Limits::default() });
    let bytes: Vec<u8> = [1, 3, 5].into_iter().flat_map(|stream| headers(stream, POST, false)).collect();
    assert_eq!(client.sends(&bytes)[2], "Refused { stream: 5 }");
    assert_eq!(client.answers(), ["RST_STREAM 5 7"]);
    assert_eq!(client.sends(&data(5, b"under way", true)), ["Nothing"]);
    // A stream that ends makes room for another.
    client.sends(&data(1, b"", true));
    client.respond(1, 0);
    assert!(client.sends(&headers(7, GET, true))[0].starts_with("request 7"));
}

/// CVE-2019-9511, CVE-2019-9517: windows that open by single bytes, or very often.
#[test]
fn window_games() {
    assert_eq!(attack(|_| update(0, 1)), (1000, Limit::WindowUpdates));
    let mut client = Client::new(Limits::default());
    client.sends(&setting(Setting::INITIAL_WINDOW_SIZE, 0));
    client.sends(&headers(1, GET, true));
    let mut left = client.respond(1, 10_000);
    let mut crumbs = 0;
    let ended = loop {
        client.sends(&update(1, 1));
        match client.connection.sendable(1, left, 0) {
            Ok(bytes) => {
                assert_eq!(bytes, 1);
                client.connection.data_header(1, bytes, false);
                left -= bytes;
                crumbs += 1;
            }
            Err(ended) => break ended,
        }
    };
    assert_eq!((crumbs, ended.why), (100, ConnectionFault::Limit(Limit::TinyWindows)));
    // A client that opens both windows for each frame that it receives is allowed.
    let mut client = Client::new(Limits::default());
    client.sends(&headers(1, GET, true));
    let mut left = client.respond(1, 100 << 20);
    while left > 0 {
        client.out.clear();
        client.sends(&[update(0, 16_384), update(1, 16_384)].concat());
        left = client.content(1, left);
    }
}

#[test]
fn every_limit_has_a_name_of_its_own() {
    let mut names: Vec<_> = Limit::ALL.iter().map(|limit| limit.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Limit::ALL.len());
}

/// A frame of any type on a few streams, with a valid, nearly valid or random payload.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        3 => Just(block(GET)),
        2 => Just(block(POST)),
        2 => (0u32..70_000).prop_map(|number| number.to_be_bytes().to_vec()),
        1 => (1u16..7, 0u32..70_000)
            .prop_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()),
        1 => Just(b"12345678".to_vec()),
        2 => proptest::collection::vec(any::<u8>(), 0..20),
        1 => Just(vec![b'x'; 300]),
    ];
    let flags = prop_oneof![4 => Just(5u8), 2 => Just(4u8), 2 => Just(0u8), 1 => Just(1u8), 1 => any::<u8>()];
    (prop_oneof![6 => 0u8..10, 1 => Just(16u8), 1 => any::<u8>()], flags, 0u32..12, payload).prop_map(
        |(kind, flags, stream, payload)| {
            let header = FrameHeader { length: payload.len() as u32, kind, flags, stream };
            [&header.bytes()[..], &payload].concat()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    /// Any sequence of frames gives the same events however it is cut, and stays within the limits.
    #[test]
    fn any_frames_are_taken_alike_however_they_come(
        how in any::<[u8; 4]>(),
        frames in proptest::collection::vec(frame(), 0..30),
    ) {
        let preface = [how[0], how[1] & !4, how[2], how[3] & 7];
        http2_connection::check(&[&preface[..], &setting(Setting(99), 0), &frames.concat()].concat());
    }
}
