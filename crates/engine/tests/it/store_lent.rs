//! Bytes lent to a socket arrive unchanged, even if the memory is reused.
#![cfg(not(feature = "loom"))]

use std::{
    io::Read,
    net::{TcpListener, TcpStream},
    os::fd::AsFd,
};

use engine::{
    store::{BodyLength, Hash, Lookup, NewObject, PinnedObject, Reader, Shard, StoreConfig, open_anon},
    sys::{lend::Lender, span::Part},
};

/// Fixed seed, so that a failure is reproducible.
const SEED: u64 = 0x5eed;

fn hash_of(key: &[u8]) -> Hash {
    Hash::seeded(key, SEED)
}

const SEGMENT: u32 = 256 << 10;
const SEGMENTS: u64 = 16;

fn open() -> (Shard, Reader) {
    let config = StoreConfig {
        capacity_bytes: SEGMENTS * u64::from(SEGMENT),
        segment_bytes: Some(SEGMENT),
        object_bytes_max: None,
        cores: 1,
        hash_seed: Some(SEED),
    };
    let (_store, mut shards) = open_anon(&config).unwrap();
    let shard = shards.remove(0);
    let reader = shard.reader();
    (shard, reader)
}

fn insert(shard: &mut Shard, key: &[u8], body: &[u8]) {
    let object = NewObject {
        expires_s: 1000,
        now_s: 10,
        ..NewObject::bare(hash_of(key), key, BodyLength::Exact(body.len() as u64))
    };
    shard.insert(object, body, b"").unwrap();
}

/// Overwrites the whole store several times with new objects.
fn churn(shard: &mut Shard, name: &str) {
    let other = vec![0xaa; SEGMENT as usize / 8];
    for number in 0..SEGMENTS * 8 * 4 {
        insert(shard, format!("{name} {number}").as_bytes(), &other);
    }
}

fn pin(reader: &Reader, key: &[u8]) -> PinnedObject {
    let turn = reader.turn();
    let Lookup::Hit(object) = turn.lookup(hash_of(key), key) else { panic!("it was just stored") };
    object.pin().expect("nothing drains")
}

/// Returns connected sockets that buffer a few hundred kilobytes without being read.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    (near, listener.accept().unwrap().0)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn bytes_in_flight_survive_segment_reuse() {
    // An object in one record, and one in extents of several segments.
    for len in [50_000, 400_000] {
        let (mut shard, reader) = open();
        assert!(shard.store().lends());
        let body = pattern(len);
        insert(&mut shard, b"lent", &body);
        let mut object = pin(&reader, b"lent");
        let (near, mut far) = pair();
        let mut lender = Lender::open().unwrap();
        let mut sent = 0;
        while sent < body.len() {
            let run = Part::Lent(object.lend(sent as u64));
            match lender.send_parts(near.as_fd(), &[run]) {
                Ok(more) => sent += more,
                Err(error) => panic!("the socket takes no more than {sent} bytes: {error}"),
            }
            object.release_before(sent as u64);
        }
        drop(object);
        churn(&mut shard, "after");
        assert!(shard.store().usage().renewals > 0, "{:?}", shard.store().usage());
        let mut received = vec![0; sent];
        far.read_exact(&mut received).unwrap();
        assert!(received == body, "bytes under way were written over");
        shard.invariants();
    }
}

#[test]
fn memory_is_renewed_once_for_lent_segments() {
    let (mut shard, reader) = open();
    churn(&mut shard, "before");
    assert_eq!(shard.store().usage().renewals, 0, "nothing was lent");
    insert(&mut shard, b"lent", &pattern(50_000));
    let object = pin(&reader, b"lent");
    assert_eq!(object.lend(10).len(), 49_990);
    let _again = object.lend(0);
    drop(object);
    churn(&mut shard, "after");
    let usage = shard.store().usage();
    assert_eq!(usage.renewals, 1, "one segment, in one of its lives: {usage:?}");
    assert!(usage.reclaims > 50, "{usage:?}");
}
