//! A store smaller than the requested objects, and readers slower than the writes: all content served is
//! right, and no client can pin the store.

use std::{net::SocketAddr, time::Duration};

use tests::{
    Accelerator, Answer, Client, End, Headers, Next, Request, Response, ScriptedOrigin, byteranges,
    connections::connect_with_small_window,
    content::{content, differs},
    eventually, on_one_core, on_one_core_and_on_two,
};

on_one_core! {
    what_is_asked_for_all_the_time_stays,
    multirange_answers_complete_despite_a_full_store,
    bodies_under_way_survive_reuse_of_their_memory,
    a_reader_that_has_stopped_is_cut,
    a_stalled_reader_of_small_answers_is_cut,
}

on_one_core_and_on_two! {
    slow_readers_pin_at_most_an_eighth,
    more_than_fits_is_evicted_and_always_right,
    expired_objects_are_counted_and_their_space_reused,
    slow_readers_are_cut_when_the_store_fills,
}

/// Starts an origin with any number of objects: `/object/NUMBER` has `size` bytes of content NUMBER.
fn start(cores: &str, size: usize, memory: &str, max_age: &'static str) -> (ScriptedOrigin, Accelerator) {
    let origin = ScriptedOrigin::start();
    origin.otherwise(move |request, reply| {
        let body = content(number(&request.target), 0, size);
        reply.answer(&Answer::new(200, body).header("Cache-Control", max_age))
    });
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--memory", memory)
        .limit("send_stall_max", "1s")
        .start();
    (origin, accelerator)
}

fn number(target: &str) -> u64 {
    target.rsplit_once('/').and_then(|(_, number)| number.parse().ok()).expect("an object's number")
}

#[track_caller]
fn ask(client: &mut Client, number: u64, size: usize) {
    let response = client.get(&format!("/object/{number}")).expect_status(200);
    assert_eq!((response.body.len(), differs(number, 0, &response.body)), (size, None), "object {number}");
}

fn more_than_fits_is_evicted_and_always_right(cores: &str) {
    for (size, objects) in [(1 << 20, 64), (100_000, 600), (500, 60_000)] {
        let (origin, accelerator) = start(cores, size, "16MiB", "max-age=600");
        let mut client = accelerator.connect();
        for number in 0..objects {
            ask(&mut client, number, size);
        }
        // In reverse order: first the objects that are still stored, then those that were evicted.
        for number in (0..objects).rev().take(200) {
            ask(&mut client, number, size);
        }
        let stat = accelerator.stat();
        let fetched = origin.all_seen().len() as u64;
        assert!(stat.count("store.evictions") > 0, "{:#}", stat.document());
        assert!(stat.count("requests.hits") > 0, "the latest ones are still there: {:#}", stat.document());
        assert!(fetched >= objects, "each was fetched once at least");
        assert_eq!(
            stat.count("limits.store_room"),
            0,
            "there is always room for what is small: {:#}",
            stat.document()
        );
    }
}

fn what_is_asked_for_all_the_time_stays(cores: &str) {
    let size = 50_000;
    let (origin, accelerator) = start(cores, size, "16MiB", "max-age=600");
    let mut client = accelerator.connect();
    for churn in 1..=2000 {
        ask(&mut client, 0, size);
        ask(&mut client, churn, size);
    }
    let fetched = origin.all_seen().iter().filter(|seen| number(&seen.target) == 0).count();
    // 100 MB went through 16 MiB in between. The object may need a second fetch before it counts as popular.
    assert!(fetched <= 2, "a favourite was fetched {fetched} times");
}

fn expired_objects_are_counted_and_their_space_reused(cores: &str) {
    let size = 100_000;
    let (_origin, accelerator) = start(cores, size, "16MiB", "max-age=1, stale-if-error=0");
    let mut client = accelerator.connect();
    for number in 0..50 {
        ask(&mut client, number, size);
    }
    // Fewer than fifty: ages are whole seconds, so an answer that is fetched at a second's end is already one
    // second old when it arrives.
    let stored = accelerator.stat().count("store.inserts");
    assert!(stored > 0);
    eventually("each expiry is counted", || accelerator.stat().count("store.expiries") == stored);
    // Five times the store's size of short-lived objects: the space of expired ones is used again.
    for number in 100..900 {
        ask(&mut client, number, size);
    }
}

fn slow_readers_pin_at_most_an_eighth(cores: &str) {
    const LARGE: usize = 32 << 20;
    const STORE: u64 = 64 << 20;
    let (origin, accelerator) = start(cores, 1 << 20, "64MiB", "max-age=600");
    origin.on("/large", move |_, reply| {
        reply.send(
            &Answer::new(200, content(7, 0, LARGE)).header("Cache-Control", "max-age=600").bytes("GET"),
        )?;
        Ok(Next::KeepAlive)
    });
    // The object is stored before any client reads it slowly, as far as the store takes an object of this
    // size.
    let whole = accelerator.get("/large").expect_status(200);
    assert_eq!(differs(7, 0, &whole.body), None);

    let mut slow: Vec<Client> = (0..4).map(|_| with_small_window(accelerator.address())).collect();
    let mut read = vec![0; slow.len()];
    for client in &mut slow {
        client.send(&Request::get("/large").bytes());
        assert_eq!(client.head("GET").status, 200);
    }
    let mut churning = accelerator.connect();
    let mut cut = vec![false; slow.len()];
    for number in 0..200 {
        // Each slow reader takes one byte a round, while other objects fill the whole store three times.
        for ((client, read), cut) in slow.iter_mut().zip(&mut read).zip(&mut cut) {
            if *cut {
                continue;
            }
            match client.body_piece(1) {
                Ok(byte) => {
                    assert_eq!(differs(7, *read, &byte), None, "byte {read} of a slow reader");
                    *read += 1;
                }
                Err((end, _)) => {
                    assert_ne!(end, End::Complete, "after {read} bytes");
                    *cut = true;
                }
            }
        }
        ask(&mut churning, number, 1 << 20);
        if number % 10 == 0 {
            let pinned = accelerator.stat().count("store.pinned_bytes");
            assert!(pinned <= STORE / 8, "{pinned} bytes are pinned by four who read a byte at a time");
        }
    }
    let stat = accelerator.stat();
    let pinned = stat.count("store.pinned_bytes");
    assert!(pinned <= STORE / 8, "{pinned} bytes are pinned: {:#}", stat.document());
    // A reader that was not cut reads the rest fast: every byte is right, and an incomplete body is
    // recognizable.
    for ((client, read), cut) in slow.iter_mut().zip(&mut read).zip(&mut cut) {
        while !*cut {
            match client.body_piece(1 << 20) {
                Ok(piece) => {
                    assert_eq!(differs(7, *read, &piece), None, "from byte {read} of a slow reader");
                    *read += piece.len() as u64;
                }
                Err((End::Complete, _)) => {
                    assert_eq!(*read, LARGE as u64);
                    break;
                }
                Err(_) => *cut = true,
            }
        }
    }
    if cut.contains(&true) {
        let stat = accelerator.stat();
        let counted = stat.count("limits.slow_readers_cut") + stat.count("limits.send_stall");
        assert!(counted > 0, "readers were cut, and nothing counted it: {:#}", stat.document());
    }
    drop(slow);
    eventually("nothing is pinned", || accelerator.stat().count("store.pinned_bytes") == 0);
}

/// Hits of a megabyte whose readers do not read: the kernel has borrowed the store's pages, and the store is
/// filled several times before the readers start to read.
fn bodies_under_way_survive_reuse_of_their_memory(cores: &str) {
    const SIZE: usize = 1 << 20;
    const READERS: u64 = 4;
    let (_origin, accelerator) = start(cores, SIZE, "64MiB", "max-age=600");
    let mut churning = accelerator.connect();
    let mut readers = Vec::new();
    for number in 0..READERS {
        ask(&mut churning, number, SIZE);
        // Another connection than the one that fills the store.
        let mut reader = accelerator.connect();
        reader.send(&Request::get(&format!("/object/{number}")).bytes());
        assert_eq!(reader.head("GET").status, 200);
        readers.push(reader);
    }
    assert_eq!(accelerator.stat().count("requests.bodies_lent"), READERS);
    for number in 0..300 {
        ask(&mut churning, READERS + number, SIZE);
    }
    let stat = accelerator.stat();
    assert!(stat.count("store.renewals") > 0, "{:#}", stat.document());
    for (number, reader) in (0..READERS).zip(&mut readers) {
        let mut read = 0;
        let end = loop {
            match reader.body_piece(1 << 20) {
                Ok(piece) => {
                    assert_eq!(differs(number, read, &piece), None, "object {number} from byte {read}");
                    read += piece.len() as u64;
                }
                Err((end, _)) => break end,
            }
        };
        // A reader that was cut, because the store took back memory that its socket had not sent, sees that
        // the body is incomplete.
        assert_eq!(end == End::Complete, read == SIZE as u64, "{end:?} after {read} bytes");
    }
}

/// Stored bodies with slow readers, as hits and as fetches under way. When all other objects are evicted,
/// these readers pin the store; they get their grace (`pin_grace`), and then are cut. The first of their
/// ranges is longer than the kernel takes; the other ranges are short enough to be copied out of the store
/// when it needs its memory back.
fn multirange_answers_complete_despite_a_full_store(cores: &str) {
    const SIZE: usize = 12 << 20;
    const READERS: u64 = 10;
    const SHORT: u64 = 60 << 10;
    let origin = ScriptedOrigin::start();
    origin.otherwise(move |request, reply| {
        let number = number(&request.target);
        let size = if number < READERS { SIZE } else { 1 << 20 };
        reply.answer(&Answer::new(200, content(number, 0, size)).header("Cache-Control", "max-age=600"))
    });
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--memory", "256MiB")
        .limit("pin_grace", "60s")
        .start();
    let first = 5 << 20;
    let short =
        (0..31).map(|at| first + 1000 + at * (200 << 10)).map(|from| format!("{from}-{}", from + SHORT - 1));
    let ranges = format!("bytes=0-{},{}", first - 1, short.collect::<Vec<_>>().join(","));
    let mut slow: Vec<_> = (0..READERS)
        .map(|number| {
            ask(&mut accelerator.connect(), number, SIZE);
            let mut client = with_small_window(accelerator.address());
            client.send(&Request::get(&format!("/object/{number}")).header("Range", &ranges).bytes());
            let head = client.head("GET");
            assert_eq!(head.status, 206);
            (
                client,
                Response {
                    interim: Vec::new(),
                    head,
                    body: Vec::new(),
                    trailers: Headers::default(),
                    end: End::Closed,
                },
            )
        })
        .collect();
    let mut churning = accelerator.connect();
    let mut churn = READERS;
    while slow.iter().any(|(_, answer)| answer.end != End::Complete) {
        for (client, answer) in &mut slow {
            match client.body_piece(32 << 10) {
                Ok(mut piece) => answer.body.append(&mut piece),
                Err((end, _)) => answer.end = end,
            }
            assert_ne!(answer.end, End::Reset);
        }
        ask(&mut churning, churn, 1 << 20);
        churn += 1;
    }
    for ((_, answer), number) in slow.iter().zip(0..) {
        let parts = byteranges::parts(answer, SIZE as u64);
        assert_eq!(parts.len(), 32);
        assert!(parts.iter().all(|part| differs(number, part.first, &part.bytes).is_none()));
    }
}

fn slow_readers_are_cut_when_the_store_fills(cores: &str) {
    // The kernel buffers up to 4 MiB (tcp_wmem); the rest stays in the store.
    const SIZE: usize = 12 << 20;
    const READERS: u64 = 10;
    const STORE: u64 = 256 << 20;
    for stored_before in [true, false] {
        let origin = ScriptedOrigin::start();
        origin.otherwise(move |request, reply| {
            let number = number(&request.target);
            let size = if number < READERS { SIZE } else { 1 << 20 };
            reply.answer(&Answer::new(200, content(number, 0, size)).header("Cache-Control", "max-age=600"))
        });
        let accelerator = Accelerator::before(&origin.url())
            .flag("--cores", cores)
            .flag("--memory", "256MiB")
            .limit("pin_grace", "300ms")
            .start();
        let mut slow: Vec<(u64, Client)> = Vec::new();
        for number in 0..READERS {
            if stored_before {
                ask(&mut accelerator.connect(), number, SIZE);
            }
            let mut client = with_small_window(accelerator.address());
            client.send(&Request::get(&format!("/object/{number}")).bytes());
            assert_eq!(client.head("GET").status, 200);
            assert_eq!(differs(number, 0, &client.body_exactly(1)), None);
            slow.push((1, client));
        }
        let stored = || accelerator.stat().count("store.inserts");
        eventually("all have arrived", || stored() >= READERS);
        let pinned = || accelerator.stat().count("store.pinned_bytes");
        assert!(pinned() > STORE / 4, "{} bytes are pinned: nothing is tested", pinned());
        let mut churn = READERS;
        let mut churning = accelerator.connect();
        eventually("a quarter of the store at most is pinned", || {
            for _ in 0..20 {
                ask(&mut churning, churn, 1 << 20);
                churn += 1;
            }
            pinned() <= STORE / 4
        });
        let stat = accelerator.stat();
        assert!(stat.count("limits.slow_readers_cut") > 0, "{:#}", stat.document());
        // All bytes that arrived are right, and a reader whose body was cut sees that it is incomplete.
        let mut cut = 0;
        for (number, (mut read, mut client)) in slow.into_iter().enumerate() {
            let end = loop {
                match client.body_piece(1 << 20) {
                    Ok(piece) => {
                        assert_eq!(differs(number as u64, read, &piece), None, "from byte {read}");
                        read += piece.len() as u64;
                    }
                    Err((end, _)) => break end,
                }
            };
            assert_eq!(end == End::Complete, read == SIZE as u64, "{end:?} after {read} bytes");
            cut += u64::from(end != End::Complete);
        }
        assert_eq!(cut, accelerator.stat().count("limits.slow_readers_cut"));
        eventually("nothing is pinned", || pinned() == 0);
    }
}

/// Unread answers are more than the client's socket takes, though each answer is small.
fn a_stalled_reader_of_small_answers_is_cut(cores: &str) {
    let size = 10_000;
    let (_origin, accelerator) = start(cores, size, "64MiB", "max-age=600");
    ask(&mut accelerator.connect(), 1, size);
    let mut client = with_small_window(accelerator.address());
    let requests = Request::get("/object/1").bytes().repeat(2000);
    client.stream().set_write_timeout(Some(Duration::from_millis(500))).expect("a positive timeout");
    // The server stops reading when it cannot write, so it need not take all requests.
    let _ = client.try_send(&requests);
    eventually("the stalled reader is counted", || accelerator.stat().count("limits.send_stall") == 1);
    eventually("nobody is connected", || accelerator.stat().count("requests.connections") == 0);
}

fn a_reader_that_has_stopped_is_cut(cores: &str) {
    // More than the kernel buffers: tcp_wmem's usual maximum is 4 MiB.
    let size = 16 << 20;
    let (origin, accelerator) = start(cores, size, "128MiB", "max-age=600");
    origin.answers("/passed", Answer::new(200, content(7, 0, size)).header("Cache-Control", "no-store"));
    ask(&mut accelerator.connect(), 1, size);
    for path in ["/object/1", "/passed"] {
        let counted = accelerator.stat().count("limits.send_stall");
        let mut client = with_small_window(accelerator.address());
        client.send(&Request::get(path).bytes());
        eventually("the stalled reader is counted", || {
            accelerator.stat().count("limits.send_stall") > counted
        });
        assert_eq!(client.head("GET").status, 200);
        let (read, end) = client.drain_body();
        assert_ne!(end, End::Complete, "{read} bytes of {path} came to one who did not read them");
    }
    eventually("nothing is pinned", || accelerator.stat().count("store.pinned_bytes") == 0);
    ask(&mut accelerator.connect(), 1, size);
}

fn with_small_window(server: SocketAddr) -> Client {
    Client::over(connect_with_small_window(server).expect("the server listens")).expect("a socket")
}
