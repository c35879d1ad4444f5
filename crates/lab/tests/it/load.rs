//! The load generator against servers with planted faults: it must report these faults, and no others.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use lab::{
    latency::LatencyOrigin,
    load::{Arrivals, LoadError, Plan, Target, run, sweep},
};
use wire::http2::{
    Progress,
    frame::{self, Frame, Setting},
};

/// Starts a server that handles each connection with `serve`, on a thread of its own.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(stream));
        }
    });
    address
}

fn echo(mut stream: TcpStream, mut before: impl FnMut(usize)) {
    let _ = stream.set_nodelay(true);
    let mut buffer = [0; 4096];
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        before(bytes);
        if stream.write_all(&buffer[..bytes]).is_err() {
            return;
        }
    }
}

fn plan(rate: f64, seconds: f64) -> Plan {
    Plan {
        rate,
        connections: 1,
        warm_up: Duration::from_millis(50),
        duration: Duration::from_secs_f64(seconds),
        ..Plan::default()
    }
}

#[test]
fn each_request_is_answered_and_counted_once() {
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        let address = server(|stream| echo(stream, |_| ()));
        let plan = Plan { arrivals, ..plan(2_000.0, 0.5) };
        let outcome = run(&Target::echo(address, 1), &plan).unwrap();
        assert_eq!(outcome.due, outcome.answered, "{:?}", outcome.warnings());
        assert_eq!(outcome.latencies.count(), outcome.answered);
        assert_eq!((outcome.lost, outcome.unanswered, outcome.reconnects), (0, 0, 0));
        match arrivals {
            Arrivals::Constant => assert_eq!(outcome.due, 1_000),
            Arrivals::Poisson => assert!((800..1_200).contains(&outcome.due), "{}", outcome.due),
        }
    }
}

/// A planted stall of 100 ms is visible only from the due times. A generator that waits for answers sees one
/// slow request; from the due times all requests are slow that were due meanwhile.
#[test]
fn a_stall_shows_only_in_corrected_percentiles() {
    let stalled = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    // An HTTP connection takes one request at a time, so requests that are due during the stall wait.
    let http = server_of_http(move || {
        if began.elapsed() > Duration::from_millis(400) && !stalled.swap(true, SeqCst) {
            thread::sleep(Duration::from_millis(100));
        }
    });
    let target = Target::parse(&format!("http://{http}/"), 1, true).unwrap();
    let outcome = run(&target, &plan(1_000.0, 1.0)).unwrap();
    assert_eq!(outcome.answered, 1_000);
    let ms = 1_000_000;
    // A hundred requests were due in those 100 ms; of a thousand, the tenth worst had waited 90 ms.
    assert!(
        outcome.latencies.quantile(LatencyOrigin::Due, 0.99) > 60 * ms,
        "{}",
        outcome.latencies.percentiles(LatencyOrigin::Due)
    );
    // A single request in a thousand was slow, measured from when it was sent.
    let slow_from_sent =
        outcome.latencies.curve(LatencyOrigin::Sent).iter().filter(|point| point.1 > 90 * ms).count();
    assert!(slow_from_sent >= 1, "the stall itself was seen");
    assert!(
        outcome.latencies.quantile(LatencyOrigin::Sent, 0.99) * 2
            < outcome.latencies.quantile(LatencyOrigin::Due, 0.99),
        "{}",
        outcome.latencies.percentiles(LatencyOrigin::Sent)
    );
}

fn server_of_http(before: impl Fn() + Send + Sync + 'static) -> SocketAddr {
    server(move |mut stream| {
        let _ = stream.set_nodelay(true);
        let mut buffer = [0; 4096];
        while let Ok(1..) = stream.read(&mut buffer) {
            before();
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    })
}

/// Starts an HTTP/2 server that answers each batch of requests from the last to the first, and stream `held`
/// later than the others.
fn server_of_http2(held: u32, by: Duration) -> SocketAddr {
    server(move |mut stream| {
        let _ = stream.set_nodelay(true);
        let mut out = Vec::new();
        frame::settings(&mut out, &[(Setting::MAX_CONCURRENT_STREAMS, 50)]);
        let (mut received, mut buffer, mut at) = (Vec::new(), [0; 4096], frame::PREFACE.len());
        let mut late = None;
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(bytes) => received.extend_from_slice(&buffer[..bytes]),
                Err(_) => {}
            }
            let mut asked = Vec::new();
            while let Some(rest) = received.get(at..)
                && let Progress::Complete(one, bytes) = frame::parse(rest, frame::FRAME_BYTES_MIN).unwrap()
            {
                at += bytes;
                if let Frame::Headers { stream, .. } = one {
                    asked.push(stream);
                }
            }
            if asked.contains(&held) {
                late = Some(Instant::now() + by);
            }
            asked.retain(|stream| *stream != held);
            if late.is_some_and(|late| late < Instant::now()) {
                (late, _) = (None, asked.push(held));
            }
            for stream in asked.into_iter().rev() {
                frame::headers(&mut out, stream, &[0x88], false, frame::FRAME_BYTES_MIN);
                out.extend_from_slice(&frame::data_header(stream, 2, true));
                out.extend_from_slice(b"ok");
            }
            if !out.is_empty() && stream.write_all(&out).is_err() {
                return;
            }
            out.clear();
        }
    })
}

/// Answers on streams may arrive in another order than the requests: only the delayed stream counts as slow.
#[test]
fn a_slow_stream_is_not_taken_for_another() {
    let address = server_of_http2(401, Duration::from_millis(200));
    let target = Target::parse(&format!("h2c://{address}/"), 1, true).unwrap().with_streams(40).unwrap();
    let outcome = run(&target, &plan(400.0, 1.0)).unwrap();
    assert_eq!((outcome.answered, outcome.lost, outcome.refused), (400, 0, 0), "{:?}", outcome.warnings());
    let slow = outcome.latencies.percentiles(LatencyOrigin::Sent);
    // If each answer were attributed to the oldest request, each would be some milliseconds late, and none
    // 200.
    assert!(slow.worst >= 200_000_000, "{slow}");
    // On a busy machine other answers may be late, too, but less than that.
    assert!(outcome.latencies.quantile(LatencyOrigin::Sent, 0.9) < 150_000_000, "{slow}");
}

#[test]
fn unanswered_requests_count_with_their_waiting_time() {
    // The server answers the first ten requests and then nothing.
    let address = server(|mut stream| {
        let mut buffer = [0; 1];
        for _ in 0..10 {
            if stream.read_exact(&mut buffer).is_err() || stream.write_all(&buffer).is_err() {
                return;
            }
        }
        thread::sleep(Duration::from_secs(60));
    });
    let plan = Plan { warm_up: Duration::ZERO, drain: Duration::from_millis(200), ..plan(100.0, 0.5) };
    let outcome = run(&Target::echo(address, 1), &plan).unwrap();
    // On a busy machine some of the ten answers may arrive too late; more than ten never arrive.
    assert!(outcome.answered <= 10, "{}", outcome.answered);
    assert_eq!((outcome.due, outcome.answered + outcome.unanswered), (50, 50));
    assert!(outcome.is_overloaded());
    assert!(
        outcome.latencies.quantile(LatencyOrigin::Due, 0.5) > 200_000_000,
        "they waited for longer than the drain"
    );
    let unanswered = format!("{} requests were unanswered", outcome.unanswered);
    assert!(outcome.warnings().iter().any(|warning| warning.contains(&unanswered)));
}

#[test]
fn absent_and_faulty_servers_are_reported() {
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert!(matches!(run(&Target::echo(unused, 1), &plan(10.0, 0.1)), Err(LoadError::Connect { .. })));

    let nonsense = server(|mut stream| {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n");
        let _ = stream.read(&mut [0; 100]);
    });
    let target = Target::parse(&format!("smtp://{nonsense}"), 1_000, true).unwrap();
    let error = run(&target, &plan(10.0, 0.1)).unwrap_err().to_string();
    assert!(error.contains("not an SMTP reply: \"SSH-2.0"), "{error}");

    // The server closes each connection after the first request, without an answer.
    let rude = server(|mut stream| {
        let _ = stream.read(&mut [0; 100]);
    });
    let target = Target::parse(&format!("http://{rude}"), 1, true).unwrap();
    let outcome = run(&target, &plan(100.0, 0.3)).unwrap();
    assert_eq!(outcome.answered, 0);
    assert!(outcome.lost > 0 && outcome.first_loss.is_some(), "{:?}", outcome.warnings());
}

#[test]
fn refusals_are_counted_apart_from_answers() {
    let address = server(|mut stream| {
        let mut buffer = [0; 4096];
        while let Ok(1..) = stream.read(&mut buffer) {
            let _ = stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let target = Target::parse(&format!("http://{address}/x"), 1, true).unwrap();
    let plan = Plan { warm_up: Duration::ZERO, ..plan(200.0, 0.2) };
    let outcome = run(&target, &plan).unwrap();
    assert_eq!((outcome.answered, outcome.refused), (40, 40));
    assert_eq!(outcome.first_refusal.as_deref(), Some("503 Busy"));
}

#[test]
fn a_planted_capacity_is_found_as_the_knee() {
    // Each answer takes 5 ms and only one is made at a time, so the capacity is 200 per second on any
    // machine.
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    let address = server_of_http(move || {
        count.fetch_add(1, SeqCst);
        thread::sleep(Duration::from_millis(5));
    });
    let target = Target::parse(&format!("http://{address}/"), 1, true).unwrap();
    let plan = Plan { drain: Duration::from_millis(50), ..plan(1.0, 0.4) };
    let bound = sweep::LatencyBound { quantile: 0.9, at_most_ns: 30_000_000 };
    let search = sweep::Search { from: 25.0, to: 3_000.0, precision: 1.3, bound };
    let knee = sweep::sweep(&target, &plan, &search, |_| ()).unwrap();
    // A sleep may last longer on a busy machine, but never shorter, so the knee can only be lower. At 230 per
    // second for 0.4 s the last of 92 requests waits at least 60 ms, twice the bound; just above 200 the
    // queue grows too slowly to be seen in that time.
    let broke = knee.broke.unwrap();
    assert!(broke <= 260.0, "{broke}");
    assert!(knee.tries.iter().all(|one| one.rate < 230.0 || !one.held), "nothing above the capacity holds");
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let target = Target::echo("127.0.0.1:9".parse().unwrap(), 1);
    for plan in [
        plan(0.0, 1.0),
        plan(f64::NAN, 1.0),
        plan(10.0, 0.0),
        Plan { connections: 0, ..Plan::default() },
        Plan { connections: 1 << 20, ..Plan::default() },
    ] {
        assert!(matches!(run(&target, &plan), Err(LoadError::Plan(_))));
    }
}

/// Under overload the reported rate is what the server answered in that time, and not zero, even though the
/// warm-up's requests fill the whole run.
#[test]
fn overload_tells_the_rate_reached() {
    let answers = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&answers);
    let address = server_of_http(move || {
        thread::sleep(Duration::from_millis(1));
        counted.fetch_add(1, SeqCst);
    });
    let target = Target::parse(&format!("http://{address}/"), 1, true).unwrap();
    let plan = Plan {
        connections: 4,
        warm_up: Duration::from_millis(300),
        drain: Duration::from_millis(100),
        ..plan(100_000.0, 0.5)
    };
    let outcome = run(&target, &plan).unwrap();
    let in_all = answers.load(SeqCst) as f64;
    assert_eq!(outcome.answered, 0, "all that was answered was due in the warm-up");
    assert!(outcome.achieved > 0.0 && outcome.achieved <= in_all / 0.5, "{} of {in_all}", outcome.achieved);
    assert!(outcome.is_overloaded());
    let said = outcome.warnings().join("\n");
    assert!(said.contains("100000 a second were asked for") && !said.contains(" 0 reached"), "{said}");
    assert_eq!(outcome.connections.used, 4);
}

/// Requests are spread over all connections. The server accepts three connections and lets the others wait.
#[test]
fn requests_are_spread_over_all_connections() {
    let taken = AtomicU64::new(0);
    let address = server(move |mut stream| {
        if taken.fetch_add(1, SeqCst) >= 3 {
            return thread::sleep(Duration::from_secs(60));
        }
        let mut buffer = [0; 4096];
        while let Ok(1..) = stream.read(&mut buffer) {
            if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    });
    let target = Target::parse(&format!("http://{address}/"), 1, true).unwrap();
    let plan = Plan { connections: 8, drain: Duration::from_millis(300), ..plan(400.0, 0.5) };
    let outcome = run(&target, &plan).unwrap();
    let connections = outcome.connections;
    assert_eq!((connections.opened, connections.used, connections.answered), (8, 8, 3), "{connections:?}");
    let said = outcome.warnings().join("\n");
    assert!(said.contains("of 8 connections 8 were used and 3 were answered"), "{said}");
}
