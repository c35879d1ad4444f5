//! Test that relaying messages allocates nothing in steady state: allocations are counted on the loop's own
//! thread, over real sockets.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    rc::Rc,
    sync::{Arc, mpsc},
};

pub(crate) use crate::fuzzing::{cores, cores_of};
use crate::{
    accounts::identity::{
        Account, Authorization, Export, Import, Mapping, Secret, User, WeightedDestination,
    },
    client::{
        connection::Transport,
        serve::{self, Arrival},
    },
};
use allocations::{Allocations, CountingAllocator, Counts};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

/// Returns a CONNECT line with a user name, which matters only if users are configured.
fn hello(user: &str) -> String {
    format!(
        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\
         \"user\":\"{user}\",\"pass\":\"x\"}}\r\n"
    )
}
/// Messages sent before the counting starts; they create chunks, lists and cached subjects.
const WARM_UP: usize = 20_000;
const MESSAGES: usize = 40_000;

struct Case {
    name: &'static str,
    /// Number of cores over which the consumers and the producer are spread.
    cores: usize,
    /// Operations that each consumer sends.
    consumers: Vec<&'static str>,
    /// Operations that the producer repeats.
    messages: Vec<String>,
    /// Messages that all consumers together get from one pass over `messages`.
    delivered: usize,
    /// Subjects are mapped: `m.X` becomes `a.X` or, every second time, `c.X`.
    is_mapped: bool,
    /// The consumers' account imports the producer's subjects with the prefix `p`.
    is_imported: bool,
}

impl Case {
    fn authorization(&self) -> Authorization {
        let weighted = |subject: &str| WeightedDestination { subject: subject.to_owned(), weight: 50 };
        let destinations = vec![weighted("a.$1"), weighted("c.{{partition(3,1)}}.$1")];
        let mapping = Mapping { source: "m.*".to_owned(), destinations };
        let mut accounts = Vec::new();
        if self.is_imported {
            let user = |name: &str| User {
                user: Some(name.to_owned()),
                password: Some(Secret::new("x")),
                ..User::default()
            };
            let account =
                |name: &str| Account { name: name.to_owned(), users: vec![user(name)], ..Account::default() };
            let export = Export {
                subject: ">".to_owned(),
                service: None,
                accounts: Vec::new(),
                account_token_position: None,
            };
            let import = Import {
                account: "producer".to_owned(),
                subject: "a.>".to_owned(),
                to: None,
                prefix: Some("p".to_owned()),
                is_service: false,
                share: false,
            };
            accounts.push(Account { exports: vec![export], ..account("producer") });
            accounts.push(Account { imports: vec![import], ..account("consumer") });
        }
        Authorization {
            accounts,
            mappings: self.is_mapped.then_some(mapping).into_iter().collect(),
            ..Authorization::default()
        }
    }
}

fn cases() -> Vec<Case> {
    let publish = |subject: &str, bytes: usize| format!("PUB {subject} {bytes}\r\n{}\r\n", "x".repeat(bytes));
    let header = "HPUB a.b 12 112\r\nNATS/1.0\r\n\r\n".to_owned() + &"x".repeat(100) + "\r\n";
    let case = |name, cores, consumers, messages, delivered| Case {
        name,
        cores,
        consumers,
        messages,
        delivered,
        is_mapped: false,
        is_imported: false,
    };
    let imported = |case| Case { is_imported: true, ..case };
    let mapped = |case| Case { is_mapped: true, ..case };
    vec![
        case("one to one", 1, vec!["SUB a.b 1\r\n"], vec![publish("a.b", 100)], 1),
        case("one to five", 1, vec!["SUB a.* 1\r\n"; 5], vec![publish("a.b", 100)], 5),
        case("no consumer", 1, vec!["SUB z 1\r\n"], vec![publish("a.b", 100), publish("z", 1)], 1),
        case(
            "sizes and subjects that vary",
            1,
            vec!["SUB a.> 1\r\n", "SUB a.b 2\r\nSUB a.c 3\r\n"],
            vec![publish("a.b", 100), publish("a.c", 7), publish("a.b", 1500), header],
            8,
        ),
        case("odd blanks", 1, vec!["SUB a.b 1\r\n"], vec!["pub  a.b\t2\nhi\r\n".to_owned()], 1),
        case("a group", 1, vec!["SUB a.b q 1\r\n"; 3], vec![publish("a.b", 100)], 1),
        case("across two cores", 2, vec!["SUB a.b 1\r\n"; 4], vec![publish("a.b", 100)], 4),
        mapped(case(
            "a mapped subject",
            1,
            vec!["SUB > 1\r\n"],
            vec![publish("m.b", 100), publish("a.b", 5)],
            2,
        )),
        imported(case(
            "a stream of another account",
            1,
            vec!["SUB p.a.* 1\r\n", "SUB > 1\r\n", "SUB p.a.b q 1\r\n"],
            vec![publish("a.b", 100), publish("a.b", 5), publish("z", 1)],
            6,
        )),
        imported(case(
            "a stream of another account across two cores",
            2,
            vec!["SUB p.a.b 1\r\n"; 4],
            vec![publish("a.b", 100)],
            4,
        )),
        case("a group across two cores", 2, vec!["SUB a.b q 1\r\n"; 4], vec![publish("a.b", 100)], 1),
    ]
}

#[test]
fn a_steady_relay_allocates_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default())
        .expect("a runtime");
    runtime.block_on(async {
        let mut allocations = Allocations::new().expect("the counting allocator");
        for case in cases() {
            let counts = measure(&case, &mut allocations).await;
            assert!(counts.is_zero(), "{}: {counts} in {MESSAGES} messages", case.name);
        }
    });
}

async fn measure(case: &Case, allocations: &mut Allocations) -> Counts {
    let locals = cores_of(case.cores, &case.authorization());
    let inboxes: Vec<_> =
        locals.iter().map(|local| tokio::task::spawn_local(Rc::clone(local).attend_inbox())).collect();
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    // `Notify` is used because, unlike channels, it neither allocates nor frees when a notification is
    // received.
    let told = Arc::new(tokio::sync::Notify::new());
    // The channel is bounded, so its slots are allocated before the counting starts.
    let (go, told_to_go) = mpsc::sync_channel::<()>(2);
    let load = {
        let (tell, consumers) = (Arc::clone(&told), case.consumers.clone());
        let (round, in_round) = (case.messages.concat(), case.messages.len());
        let delivered = case.delivered;
        std::thread::spawn(move || {
            drive(address, &consumers, &round, in_round, delivered, &tell, &told_to_go)
        })
    };
    let mut served = Vec::new();
    for number in 0..=case.consumers.len() {
        let (socket, peer) = listener.accept().await.expect("a client");
        let local = &locals[number % locals.len()];
        let arrival = Arrival::new(&local.core.borrow(), peer, Transport::default());
        served.push(tokio::task::spawn_local(serve::serve_plain(Rc::clone(local), socket, arrival)));
    }
    told.notified().await;
    allocations.mark().expect("this thread");
    go.send(()).expect("the load runs");
    told.notified().await;
    let counts = allocations.since_mark().expect("this thread");
    go.send(()).expect("the load runs");
    for task in served {
        task.await.expect("no panic");
    }
    load.join().expect("its checks held");
    inboxes.iter().for_each(tokio::task::JoinHandle::abort);
    counts
}

/// Runs the clients on a separate thread.
fn drive(
    address: SocketAddr,
    consumers: &[&str],
    round: &str,
    in_round: usize,
    delivered: usize,
    tell: &tokio::sync::Notify,
    go: &mpsc::Receiver<()>,
) {
    let connect = |user: &str, words: &str| {
        let mut socket = TcpStream::connect(address).expect("a connection");
        socket.write_all(hello(user).as_bytes()).expect("sent");
        socket.write_all(words.as_bytes()).expect("sent");
        socket.write_all(b"PING\r\n").expect("sent");
        let mut have = Vec::new();
        while !have.ends_with(b"PONG\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).expect("an answer");
            have.push(byte[0]);
        }
        socket
    };
    let mut readers: Vec<TcpStream> = consumers.iter().map(|words| connect("consumer", words)).collect();
    readers.iter_mut().for_each(|socket| socket.set_nonblocking(true).expect("an option"));
    let mut producer = connect("producer", "");
    let mut seen = 0;
    let mut sent = 0;
    let mut buffer = vec![0; 256 * 1024];
    let mut relay = |messages: usize| {
        let until = sent + messages;
        while sent < until {
            // The producer repeats the bytes, and reads may split them at any offset within a message.
            let batch = round.repeat(50);
            producer.write_all(batch.as_bytes()).expect("sent");
            sent += 50 * in_round;
            while seen < sent / in_round * delivered {
                for reader in &mut readers {
                    if let Ok(bytes) = reader.read(&mut buffer) {
                        assert!(bytes > 0, "closed");
                        seen += buffer[..bytes].windows(4).filter(|word| word == b"MSG ").count();
                    }
                }
            }
        }
    };
    relay(WARM_UP);
    tell.notify_one();
    go.recv().expect("the test says so");
    relay(MESSAGES);
    tell.notify_one();
    go.recv().expect("the test says so");
}
