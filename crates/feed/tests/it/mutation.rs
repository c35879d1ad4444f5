//! Damaged conversations, against a server that also serves an honest pair: the pair loses nothing, and
//! afterwards nothing of the damaged connections is left.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use crate::common::{Client, start, wait_until};
use feed::Counter;
use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, TestRunner},
};

/// Pieces of a valid conversation, which may be damaged.
const PIECES: &[&[u8]] = &[
    b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1}\r\n",
    b"SUB evil.* 1\r\n",
    b"SUB evil.> gang 2\r\n",
    b"SUB > 3\r\n",
    b"UNSUB 1 3\r\n",
    b"PUB evil.a 5\r\nhello\r\n",
    b"PUB evil.a evil.b 5\r\nhello\r\n",
    b"HPUB evil.a 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
    b"PUB nobody evil.b 0\r\n\r\n",
    b"PING\r\n",
    b"PONG\r\n",
    b"UNSUB 2\r\n",
    b"PUB evil.c 1048577\r\n",
    b"PUB evil.c 99999999999999999999\r\n",
    b"CONNECT {\"verbose\":true,\"name\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]}\r\n",
    b"SUB evil..x 4\r\nPUB evil..x 1\r\nx\r\nPUB evil.\x00\xff.* 1\r\nx\r\n",
];

fn conversations() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(PIECES);
    let byte = prop_oneof![prop::sample::select(b"\r\n \t.*>0".to_vec()), any::<u8>()];
    let edits = prop::collection::vec((any::<prop::sample::Index>(), 0..4_u8, byte), 0..4);
    (prop::collection::vec(piece, 1..12), edits).prop_map(|(pieces, edits)| {
        let mut bytes = pieces.concat();
        for (index, kind, byte) in edits {
            let at = index.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                2 if at < bytes.len() => drop(bytes.remove(at)),
                _ => bytes.truncate(at),
            }
        }
        bytes
    })
}

#[test]
fn an_honest_pair_among_the_mad_loses_nothing() {
    let rounds: usize =
        std::env::var("FEED_TEST_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let server = start(2, |_| {});
    let address = server.addresses()[0];
    let mut consumer = Client::new(&server);
    consumer.subscribe("honest.*", "1");
    let mut producer = Client::new(&server);
    let mut runner = TestRunner::new(Config::default());
    let mut open: Vec<TcpStream> = Vec::new();
    for round in 0..rounds {
        let bytes = conversations().new_tree(&mut runner).expect("a conversation").current();
        let mut socket = TcpStream::connect(address).expect("the server accepts");
        // A server that has closed does not take the rest.
        let cut = round * 31 % (bytes.len() + 1);
        let _ = socket.write_all(&bytes[..cut]).and_then(|()| socket.write_all(&bytes[cut..]));
        for _ in 0..3 {
            let text = format!("{round}");
            producer.publish("honest.x", text.as_bytes());
            assert_eq!(consumer.payload(), text.as_bytes(), "after {:?}", String::from_utf8_lossy(&bytes));
        }
        // Some clients leave at once, some close in order, some stay and never read.
        match round % 3 {
            0 => drop(socket),
            1 => {
                let _ = socket.shutdown(Shutdown::Write);
                socket.set_read_timeout(Some(Duration::from_secs(20))).expect("an option");
                let mut rest = Vec::new();
                // A reset ends the connection too; only a timeout is an error.
                if let Err(error) = socket.read_to_end(&mut rest) {
                    assert!(
                        error.kind() != std::io::ErrorKind::WouldBlock,
                        "the server does not close: {rest:?}"
                    );
                }
            }
            _ => open.push(socket),
        }
    }
    assert_eq!(consumer.until_pong(), []);
    drop(open);
    wait_until("they are all gone", || server.counted(Counter::Connections) == 2);
    assert_eq!(server.counted(Counter::Subscriptions), 1);
}
