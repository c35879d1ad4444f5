//! The bounded listener with real sockets: deadlines, eviction and waiting.

use std::{net::SocketAddr, time::Duration};

use engine::bounded::{Bounds, Connection, Counters, Listener};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(60);

fn bounds(places_max: usize) -> Bounds {
    Bounds {
        head_bytes_max: 64,
        long_words: b"too long\n",
        places_max,
        client_budget: None,
        places_per_address_max: 1,
        idle_time_max: LONG,
        head_time_max: LONG,
        body_time_max: LONG,
        stall_time_max: LONG,
        answer_time_max: LONG,
        late_words: b"late\n",
        refused_words: b"refused\n",
    }
}

/// Serves a connection in a test protocol: `q` is a complete request, answered `a`; anything else is an
/// incomplete head.
async fn serve(mut connection: Connection) {
    let mut byte = [0];
    while let Ok(1) = connection.read(&mut byte).await {
        match byte[0] {
            b'q' => {
                connection.place().working();
                if connection.write_all(b"a").await.is_err() {
                    break;
                }
                connection.place().answered();
            }
            b'w' => connection.place().working(),
            b'b' => connection.place().receiving(),
            b'm' if connection.write_all(&vec![0; 64 << 20]).await.is_err() => break,
            _ => {}
        }
    }
}

/// Starts a server whose connections are those of [`serve`].
fn start(bounds: Bounds) -> (SocketAddr, Counters) {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut listener = Listener::new("test", socket, bounds).expect("a listener");
    let (address, counters) = (listener.local_addr().expect("an address"), listener.counters());
    tokio::spawn(async move {
        loop {
            let (connection, _) = listener.accept().await;
            tokio::spawn(serve(connection));
        }
    });
    (address, counters)
}

/// Reads everything up to the end of the connection, however it ends.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    _ = stream.read_to_end(&mut text).await;
    String::from_utf8_lossy(&text).into_owned()
}

async fn answered(stream: &mut TcpStream) {
    stream.write_all(b"q").await.expect("it listens");
    let mut byte = [0];
    stream.read_exact(&mut byte).await.expect("an answer");
    assert_eq!(&byte, b"a");
}

#[tokio::test]
async fn a_trickled_head_gets_no_extra_time() {
    let (address, counters) = start(Bounds { head_time_max: SHORT, ..bounds(4) });
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    answered(&mut stream).await;
    let (mut read, mut write) = stream.into_split();
    let dribble = tokio::spawn(async move {
        while write.write_all(b"x").await.is_ok() {
            tokio::time::sleep(SHORT / 20).await;
        }
    });
    let mut said = String::new();
    // The answer may be lost in a reset, because more of the head was on its way.
    _ = read.read_to_string(&mut said).await;
    assert!(said.is_empty() || said == "late\n", "{said}");
    dribble.abort();
    assert_eq!(counters.now().slow_heads, 1);
}

#[tokio::test]
async fn silent_and_stalled_connections_are_closed() {
    let short = Bounds { head_time_max: SHORT, body_time_max: SHORT, idle_time_max: SHORT, ..bounds(8) };
    let (address, counters) = start(short);
    let connect = || async { TcpStream::connect(address).await.expect("it listens") };
    assert_eq!(rest(&mut connect().await).await, "");
    let mut idle = connect().await;
    answered(&mut idle).await;
    assert_eq!(rest(&mut idle).await, "");
    let mut head = connect().await;
    head.write_all(b"x").await.expect("it listens");
    assert_eq!(rest(&mut head).await, "late\n");
    let mut body = connect().await;
    body.write_all(b"b").await.expect("it listens");
    assert_eq!(rest(&mut body).await, "");
    let now = counters.now();
    assert_eq!((now.idle_ended, now.slow_heads, now.slow_bodies, now.accepted), (2, 1, 1, 4));
}

#[tokio::test]
async fn who_takes_nothing_of_its_answer_is_ended() {
    let (address, counters) = start(Bounds { stall_time_max: SHORT, ..bounds(1) });
    let mut slow = TcpStream::connect(address).await.expect("it listens");
    // The connection has been answered once, and does not take its second answer when the next connection
    // arrives.
    slow.write_all(b"qwm").await.expect("it listens");
    assert_eq!(slow.read_u8().await.expect("an answer"), b'a');
    // The slot becomes free only when the slow connection ends.
    let mut next = TcpStream::connect(address).await.expect("it listens");
    while counters.now().stalled == 0 {
        tokio::task::yield_now().await;
    }
    answered(&mut next).await;
}

#[tokio::test]
async fn a_slow_reader_is_closed() {
    let (address, counters) = start(Bounds { answer_time_max: SHORT, ..bounds(1) });
    let mut slow = TcpStream::connect(address).await.expect("it listens");
    slow.write_all(b"wm").await.expect("it listens");
    slow.read_u8().await.expect("an answer has begun");
    let mut next = TcpStream::connect(address).await.expect("it listens");
    while counters.now().slow_answers == 0 {
        _ = slow.read_u8().await;
        tokio::task::yield_now().await;
    }
    answered(&mut next).await;
    assert_eq!(counters.now().stalled, 0);
}

#[tokio::test]
async fn newcomers_are_answered_despite_idle_connections() {
    let (address, counters) = start(bounds(8));
    let mut sitting = Vec::new();
    for n in 0..100 {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        if n % 2 == 0 {
            stream.write_all(b"x").await.expect("it listens");
        }
        sitting.push(stream);
        if n % 10 == 9 {
            let mut honest = TcpStream::connect(address).await.expect("it listens");
            answered(&mut honest).await;
        }
    }
    let now = counters.now();
    assert!(now.idle_evicted + now.heads_evicted >= 92, "{now:?}");
    assert_eq!((now.waited, now.refused), (0, 0));
}

#[tokio::test]
async fn a_newcomer_waits_while_all_slots_are_working() {
    let (address, counters) = start(bounds(2));
    let mut working = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(address).await.expect("it listens");
        // A single task serves the connection on this thread, so the byte sent with the request is read
        // before its answer is.
        stream.write_all(b"qw").await.expect("it listens");
        assert_eq!(stream.read_u8().await.expect("an answer"), b'a');
        working.push(stream);
    }
    let mut newcomer = TcpStream::connect(address).await.expect("the kernel takes it");
    while counters.now().waited == 0 {
        tokio::task::yield_now().await;
    }
    answered(&mut working[0]).await;
    answered(&mut newcomer).await;
    answered(&mut working[1]).await;
    assert_eq!(rest(&mut working[0]).await, "", "it idled, and gave way");
}

#[tokio::test]
async fn a_head_is_bounded_in_bytes() {
    let (address, counters) = start(bounds(4));
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    for _ in 0..3 {
        stream.write_all(&[b'x'; 63]).await.expect("it listens");
        answered(&mut stream).await;
    }
    assert_eq!(counters.now().long_heads, 0, "each head by itself");
    stream.write_all(&[b'x'; 64]).await.expect("it listens");
    assert_eq!(rest(&mut stream).await, "too long\n");
    assert_eq!(counters.now().long_heads, 1);
    // Bytes of a body after the head do not count as a head.
    let mut body = TcpStream::connect(address).await.expect("it listens");
    body.write_all(&[&b"b"[..], &[b'x'; 1000]].concat()).await.expect("it listens");
    answered(&mut body).await;
    assert_eq!(counters.now().long_heads, 1);
}
