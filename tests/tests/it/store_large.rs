//! Objects larger than a segment, and larger than memory, on the accelerator's file: stored in parts and
//! served from parts, whole or in ranges, before and after a restart; never with a wrong byte.

use std::path::Path;

use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Client, Request, ScriptedOrigin, SlowDisk, accelerator::Setup, client::End,
    content::content, eventually, on_one_core, on_one_core_and_on_two,
};

on_one_core! {
    a_corrupt_part_is_never_served,
    a_hung_disk_is_used_again_after_recovery,
    a_repeated_object_is_admitted_to_the_file,
    head_of_an_incomplete_object_reaches_the_origin,
    slow_readers_of_large_objects_block_no_others,
}

on_one_core_and_on_two! {
    one_client_alone_reads_many_large_objects,
    large_objects_are_served_after_a_restart,
    objects_in_memory_are_stored_as_parts,
    what_is_dropped_or_replaced_stays_so,
    concurrent_clients_of_an_object_get_its_parts,
}

const MIB: usize = 1 << 20;
/// Larger than a segment of this file (4 MiB), than an object that memory takes, and than all of this memory.
const SIZES: [usize; 2] = [40 * MIB + 4321, 100 * MIB];
const MEMORY: &str = "12MiB";
/// Body bytes of one part.
const PART_BYTES: usize = 480 << 10;

fn path(number: usize) -> String {
    format!("/film/{number}")
}

fn film(number: usize, version: u64) -> Vec<u8> {
    content(number as u64 + 100 * version, 0, SIZES[number])
}

fn answer(body: Vec<u8>) -> Answer {
    Answer::new(200, body).header("Cache-Control", "max-age=6000")
}

fn origin() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    for number in 0..SIZES.len() {
        origin.answers(&path(number), answer(film(number, 0)));
    }
    origin
}

fn start(origin: &ScriptedOrigin, store: &Path, cores: &str, memory: &str) -> Accelerator {
    setup(origin, store, cores, memory).start().warm()
}

fn setup(origin: &ScriptedOrigin, store: &Path, cores: &str, memory: &str) -> Setup {
    Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--memory", memory)
        .store_in(store, "512MiB")
        .flag("--purge-from", "127.0.0.1")
        .flag("--client-cache-control", "obey")
}

fn asked(origin: &ScriptedOrigin) -> usize {
    origin.all_seen().len()
}

/// Peak memory of the process (`VmHWM`).
fn memory_peak_bytes(running: &Accelerator) -> u64 {
    let path = format!("/proc/{}/status", running.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).expect("a running process has a status");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a process has had a size");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("KiB");
    kib << 10
}

/// Requests a film until it is stored: an answer that the disk cannot take in time is delivered and not
/// stored.
fn store(running: &Accelerator, origin: &ScriptedOrigin, number: usize, body: &[u8]) {
    eventually("it is stored and answered from the store", || {
        let before = asked(origin);
        let answer = running.get(&path(number)).expect_status(200);
        assert!(answer.body == body, "{} has other bytes", path(number));
        asked(origin) == before
    });
}

fn on_disk(running: &Accelerator) {
    eventually("all is on the file", || {
        let stat = running.stat();
        stat.count("store.log_records_waiting") == 0 && stat.count("store.file_copying") == 0
    });
}

fn part(running: &Accelerator, number: usize, range: &str) -> tests::Response {
    running.fetch(&Request::get(&path(number)).header("Range", &format!("bytes={range}")))
}

/// Checks ranges in the middle, across the edges of parts, and at both ends.
fn ranges_are_right(running: &Accelerator, number: usize, body: &[u8]) {
    let edge = PART_BYTES;
    let ranges =
        [(0, 0), (edge - 1, edge), (edge, edge), (7 * edge - 5, 9 * edge + 5), (12_345_678, 12_400_000)];
    for (first, last) in ranges.into_iter().chain([(body.len() - 10, body.len() - 1)]) {
        let answer = part(running, number, &format!("{first}-{last}")).expect_status(206);
        assert!(answer.body == body[first..=last], "bytes {first} to {last}");
    }
    let answer = running.fetch(&Request::new("HEAD", &path(number))).expect_status(200);
    assert_eq!(answer.header("Content-Length"), Some(body.len().to_string().as_str()));
    part(running, number, &format!("{}-", body.len())).expect_status(416);
}

fn large_objects_are_served_after_a_restart(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("store");
    let origin = origin();
    let mut running = start(&origin, &file, cores, MEMORY);
    let films: Vec<Vec<u8>> = (0..SIZES.len()).map(|number| film(number, 0)).collect();
    for (number, body) in films.iter().enumerate() {
        store(&running, &origin, number, body);
    }
    on_disk(&running);
    let first = asked(&origin);
    for signal in [Signal::TERM, Signal::KILL] {
        running.signal(signal);
        running.wait();
        drop(running);
        running = start(&origin, &file, cores, MEMORY);
        for (number, body) in films.iter().enumerate() {
            ranges_are_right(&running, number, body);
            let answer = running.get(&path(number)).expect_status(200);
            assert!(answer.body == *body, "{} after {signal:?}", path(number));
            assert!(answer.header("Cache-Status").is_some_and(|status| status.contains("hit")));
        }
        assert_eq!(asked(&origin), first, "the origin was asked again after {signal:?}");
        let stat = running.stat();
        assert_eq!(stat.count("store.file_incomplete") + stat.count("store.file_damaged"), 0);
        // The films do not fit into 12 MiB, and never were in this process: it holds that memory, pending
        // writes, pending reads, and the program itself.
        let peak = memory_peak_bytes(&running);
        assert!(peak < 80 * MIB as u64, "{} MiB were used at once", peak >> 20);
    }
}

fn objects_in_memory_are_stored_as_parts(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("store");
    let origin = origin();
    let mut running = start(&origin, &file, cores, "1GiB");
    let body = film(0, 0);
    let answer = running.get(&path(0)).expect_status(200);
    assert!(answer.body == body);
    assert_eq!(asked(&origin), 1);
    eventually("its parts are on the file", || {
        running.stat().count("store.file_parts") >= (SIZES[0] / PART_BYTES) as u64
    });
    on_disk(&running);
    running.signal(Signal::KILL);
    running.wait();
    drop(running);
    running = start(&origin, &file, cores, MEMORY);
    ranges_are_right(&running, 0, &body);
    assert!(running.get(&path(0)).expect_status(200).body == body);
    assert_eq!(asked(&origin), 1, "the origin was asked again");
}

fn what_is_dropped_or_replaced_stays_so(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("store");
    let origin = origin();
    let mut running = start(&origin, &file, cores, MEMORY);
    store(&running, &origin, 0, &film(0, 0));
    let live = running.stat().count("store.log_live_bytes");
    assert!(live > SIZES[0] as u64);
    running.fetch(&Request::new("PURGE", &path(0))).expect_status(200);
    eventually("its parts died with it", || running.stat().count("store.log_live_bytes") < live / 10);
    running.signal(Signal::KILL);
    running.wait();
    drop(running);
    running = start(&origin, &file, cores, MEMORY);
    // Parts that no list names are dead after a restart too.
    assert!(running.stat().count("store.log_live_bytes") < live / 10);
    // The page under the same address changes to another film.
    origin.answers(&path(0), answer(film(0, 1)));
    store(&running, &origin, 0, &film(0, 1));
    origin.answers(&path(0), answer(film(0, 2)));
    let anew = Request::get(&path(0)).header("Cache-Control", "no-cache");
    eventually("the third is stored", || {
        assert!(running.fetch(&anew).expect_status(200).body == film(0, 2));
        let before = asked(&origin);
        let body = running.get(&path(0)).expect_status(200).body;
        asked(&origin) == before && body == film(0, 2)
    });
    on_disk(&running);
    running.signal(Signal::KILL);
    running.wait();
    drop(running);
    running = start(&origin, &file, cores, MEMORY);
    let before = asked(&origin);
    assert!(running.get(&path(0)).expect_status(200).body == film(0, 2), "an older one came back");
    assert_eq!(asked(&origin), before);
}

fn a_hung_disk_is_used_again_after_recovery(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("store");
    let origin = origin();
    let disk = SlowDisk::of_writes(directory.path());
    let running = disk.below(setup(&origin, &file, cores, MEMORY)).start().warm();
    disk.shut_again();
    let body = film(0, 0);
    // More bytes than may wait to be written: the answer is delivered, but not stored.
    assert!(running.get(&path(0)).expect_status(200).body == body);
    assert_eq!(running.stat().count("store.file_refused"), 1);
    assert!(running.get(&path(0)).expect_status(200).body == body);
    assert_eq!(asked(&origin), 2);
    disk.open();
    store(&running, &origin, 0, &body);
    ranges_are_right(&running, 0, &body);
}

fn concurrent_clients_of_an_object_get_its_parts(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("store");
    let origin = origin();
    // This little memory has one buffer for reading parts, shared by all clients.
    let running = start(&origin, &file, cores, MEMORY);
    let body = film(0, 0);
    store(&running, &origin, 0, &body);
    on_disk(&running);
    std::thread::scope(|scope| {
        for client in 0..3 {
            let (running, body) = (&running, &body);
            scope.spawn(move || {
                for round in 0..3 {
                    let first = (client + round) * PART_BYTES * 7 + client;
                    let answer = part(running, 0, &format!("{first}-"));
                    // There is room for three clients. If the one buffer is free too late, the request goes
                    // to the origin, which supports no ranges; `Cache-Status` then says `parts-busy`.
                    let said = answer.head.headers.joined("cache-status");
                    let (status, from) =
                        if said.contains("detail=parts-busy") { (200, 0) } else { (206, first) };
                    // Each client gets its own range, and is not cut short by the other reads.
                    assert!(answer.expect_status(status).body == body[from..]);
                }
            });
        }
    });
    assert_eq!(running.stat().count("errors.parts_cut"), 0);
    // Twelve clients that begin at the same part share one read; a client without room gets `parts-busy`.
    let statuses: Vec<String> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..12)
            .map(|_| {
                scope.spawn(|| {
                    let answer = running.get(&path(0)).expect_status(200);
                    assert!(answer.body == body);
                    answer.head.headers.joined("cache-status")
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no panic")).collect()
    });
    for said in statuses {
        assert!(said.contains("hit") || said.contains("detail=parts-busy"), "{said}");
    }
    eventually("parts were shared", || running.stat().count("requests.parts_shared") > 0);
}

fn a_repeated_object_is_admitted_to_the_file(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("store");
    let origin = origin();
    let begin =
        || setup(&origin, &file, cores, MEMORY).flag("--store-admission", "second-request").start().warm();
    let mut running = begin();
    let body = film(0, 0);
    assert!(running.get(&path(0)).expect_status(200).body == body);
    let stat = running.stat();
    assert_eq!((stat.count("store.file_parts"), stat.count("store.file_not_admitted")), (0, 1));
    assert!(running.get(&path(0)).expect_status(200).body == body);
    assert_eq!(asked(&origin), 2);
    store(&running, &origin, 0, &body);
    on_disk(&running);
    running.signal(Signal::KILL);
    running.wait();
    drop(running);
    running = begin();
    let before = asked(&origin);
    assert!(running.get(&path(0)).expect_status(200).body == body);
    assert_eq!(asked(&origin), before);
}

fn head_of_an_incomplete_object_reaches_the_origin(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("store");
    let origin = origin();
    let running = setup(&origin, &file, cores, MEMORY).flag("--store-size", "128MiB").start().warm();
    let body = film(0, 0);
    store(&running, &origin, 0, &body);
    on_disk(&running);
    let head = Request::new("HEAD", &path(0));
    let said = |answer: tests::Response| answer.expect_status(200).head.headers.joined("cache-status");
    assert!(said(running.fetch(&head)).contains("hit"));
    // Other films overwrite its parts on the file, from the first part on; its list stays in memory.
    for other in 0..3 {
        running.get(&format!("{}?{other}", path(0))).expect_status(200);
        on_disk(&running);
    }
    let before = asked(&origin);
    let said = said(running.fetch(&head));
    assert!(said.contains("fwd=partial"), "{said}");
    assert_eq!(asked(&origin), before + 1);
}

fn a_corrupt_part_is_never_served(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("store");
    let origin = origin();
    let begin = || setup(&origin, &file, cores, MEMORY).flag("--store-size", "128MiB").start().warm();
    let mut running = begin();
    // The content repeats, but these words occur only here.
    let marks = [(1000, b"a mark of the first part"), (SIZES[0] - 1000, b"the mark of the last one")];
    let mut body = film(0, 0);
    marks.iter().for_each(|(place, mark)| body[*place..][..mark.len()].copy_from_slice(*mark));
    origin.answers(&path(0), answer(body.clone()));
    for (place, mark) in marks {
        store(&running, &origin, 0, &body);
        on_disk(&running);
        running.signal(Signal::TERM);
        running.wait();
        drop(running);
        flip_all(&file, mark);
        running = begin();
        let before = asked(&origin);
        if place < PART_BYTES {
            // Damage before the head is sent is a miss: the film is fetched again.
            assert!(running.get(&path(0)).expect_status(200).body == body);
        } else {
            // Damage after that ends the connection before the broken part, and the next request is fetched
            // from the origin.
            let cut = running.get(&path(0));
            assert_eq!(cut.head.status, 200);
            assert_ne!(cut.end, End::Complete);
            assert_eq!(cut.body.len(), place - place % PART_BYTES);
            assert!(body.starts_with(&cut.body));
            assert_eq!(asked(&origin), before);
            assert_eq!(running.stat().count("errors.parts_cut"), 1);
            eventually("its owner knows", || running.stat().count("store.file_damaged") == 1);
            assert!(running.get(&path(0)).expect_status(200).body == body);
        }
        assert_eq!(asked(&origin), before + 1);
        assert_eq!(running.stat().count("store.file_damaged"), 1);
    }
}

/// Flips a bit of these bytes at each place on the file: in the copy that is served, and in copies of answers
/// that were not stored.
fn flip_all(file: &Path, wanted: &[u8]) {
    let mut bytes = std::fs::read(file).expect("a file");
    let places: Vec<usize> =
        (0..bytes.len() - wanted.len()).filter(|at| bytes[*at..].starts_with(wanted)).collect();
    assert!(!places.is_empty(), "the film is on the file");
    places.into_iter().for_each(|at| bytes[at + 7] ^= 0x20);
    std::fs::write(file, &bytes).expect("a file");
}

/// Memory with room for sixteen parts, over all cores.
const MEMORY_OF_16: &str = "64MiB";
const PARTS: usize = 16;

/// Starts an accelerator that has a film in parts on its file.
fn with_film(origin: &ScriptedOrigin, file: &Path, cores: &str) -> Accelerator {
    let setup = setup(origin, file, cores, MEMORY_OF_16)
        .flag("--trusted-proxies", "127.0.0.1")
        // No client is cut for being slow.
        .limit("send_rate_grace", "1h")
        .limit("send_stall_max", "1h");
    let running = setup.start().warm();
    store(&running, origin, 1, &film(1, 0));
    on_disk(&running);
    running
}

/// Opens connections of one client that request the film and read only the head; returns them with each
/// head's `Cache-Status`.
fn slow_readers(running: &Accelerator, address: &str, number: usize) -> (Vec<Client>, Vec<String>) {
    let request = Request::get(&path(1)).header("X-Forwarded-For", address).bytes();
    let reader = |_| {
        let mut client = running.connect();
        let _ = socket2::SockRef::from(client.stream()).set_recv_buffer_size(4096);
        client.send(&request);
        let said = client.head("GET").headers.joined("cache-status");
        (client, said)
    };
    (0..number).map(reader).unzip()
}

/// One client requests the film over many connections and does not read. Another client's ranges still come
/// from the file: the first client's answers give way.
fn slow_readers_of_large_objects_block_no_others(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, origin) = (directory.path().join("store"), origin());
    let running = with_film(&origin, &file, cores);
    let _slow = slow_readers(&running, "192.0.2.1", 3 * PARTS);
    assert!(running.stat().count("limits.parts") > 0, "the first client takes all that it may have");
    let (mut found, mut number) = (0, 0);
    // On a busy machine the disk may be late for some answers, which are then passed.
    eventually("ranges of another client are found", || {
        let first = number % 64 * 3 * PART_BYTES;
        number += 1;
        let range = format!("bytes={first}-{}", first + 9);
        let request = Request::get(&path(1)).header("Range", &range).header("X-Forwarded-For", "192.0.2.2");
        let said = running.fetch(&request).head.headers.joined("cache-status");
        found += usize::from(said.contains("hit"));
        found == 4
    });
    let stat = running.stat();
    assert!(stat.count("limits.parts_slowed") + stat.count("limits.parts_gave_way") > 0, "that is counted");
}

fn one_client_alone_reads_many_large_objects(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, origin) = (directory.path().join("store"), origin());
    let running = with_film(&origin, &file, cores);
    let (_slow, said) = slow_readers(&running, "192.0.2.1", 4 * PARTS);
    let found = said.iter().filter(|said| said.contains("hit")).count();
    // While less than half of the room is taken, each answer has room for two parts.
    let loops = cores.split(',').count();
    let of_loop = PARTS / loops;
    let expected = loops * (of_loop / 4 + of_loop / 2 - of_loop / 16);
    assert!(found >= expected, "{found} answers came from the file, not {expected}");
    let stat = running.stat();
    let given_way = stat.count("limits.parts_slowed") + stat.count("limits.parts_gave_way");
    assert_eq!(given_way, 0, "nobody else asks");
}
