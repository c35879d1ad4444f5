//! Each message arrives once, whole and in order, on any number of loops; queue groups share messages;
//! requests are answered or get 503 (no responders).

use std::{collections::BTreeMap, thread};

use crate::common::{Client, Got, start, wait_until};
use feed::{
    Counter,
    identity::{Account, Authorization, Secret, User},
};

/// Number of messages of each producer; `FEED_TEST_MESSAGES` makes runs longer.
fn messages() -> usize {
    std::env::var("FEED_TEST_MESSAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(2000)
}

/// Payload of message `number` of `producer`: its number, and bytes that follow from it, of varying length;
/// some payloads are longer than any buffer on the way.
fn payload(producer: usize, number: usize) -> Vec<u8> {
    let mut bytes = format!("{producer} {number} ").into_bytes();
    let length = number * 7919 % if number % 61 == 7 { 300_000 } else { 300 };
    bytes.extend((0..length).map(|at| (producer * 31 + number * 7 + at) as u8));
    bytes
}

/// Checks a payload, and returns its producer and number.
fn read(payload_bytes: &[u8]) -> (usize, usize) {
    let mut words = payload_bytes.splitn(3, |&byte| byte == b' ');
    let mut number = || {
        let word = words.next().expect("a number");
        std::str::from_utf8(word).expect("digits").parse::<usize>().expect("a number")
    };
    let (producer, number) = (number(), number());
    assert_eq!(payload_bytes, payload(producer, number), "damaged");
    (producer, number)
}

#[test]
fn messages_of_each_producer_arrive_in_order() {
    for loops in [1, 3] {
        // A consumer that reads must not count as stuck, however slow the machine is.
        let server =
            start(loops, |config| config.limits.producer_hold_max = std::time::Duration::from_secs(600));
        let (producers, count) = (4, messages());
        let patterns = [">", "a.*", "a.0", "a.>", "a.3"];
        let consumers: Vec<_> = patterns
            .iter()
            .enumerate()
            .map(|(sid, pattern)| {
                let mut client = Client::new(&server);
                client.subscribe(pattern, &sid.to_string());
                let pattern = (*pattern).to_owned();
                thread::spawn(move || {
                    let wanted: Vec<usize> = match &pattern[..] {
                        "a.0" => vec![0],
                        "a.3" => vec![3],
                        _ => (0..producers).collect(),
                    };
                    let mut next: BTreeMap<usize, usize> =
                        wanted.into_iter().map(|producer| (producer, 0)).collect();
                    while next.values().any(|&number| number < count) {
                        let (producer, number) = read(&client.payload());
                        let expected = next.get_mut(&producer).expect("a producer of this pattern");
                        assert_eq!(number, *expected, "of producer {producer} at {pattern}");
                        *expected += 1;
                    }
                    assert_eq!(client.until_pong(), [], "nothing comes twice");
                })
            })
            .collect();
        let producers: Vec<_> = (0..producers)
            .map(|producer| {
                let mut client = Client::new(&server);
                thread::spawn(move || {
                    let mut batch = Vec::new();
                    for number in 0..count {
                        let body = payload(producer, number);
                        let subject = format!("a.{producer}");
                        if number % 5 == 0 {
                            wire::nats::write::hpublish(&mut batch, subject.as_bytes(), b"", b"", &body);
                        } else {
                            wire::nats::write::publish(&mut batch, subject.as_bytes(), b"", &body);
                        }
                        // Cut at arbitrary bytes, so that reads end within messages.
                        if batch.len() > 3000 + number % 1000 {
                            let rest = batch.split_off(batch.len() - number % 400);
                            client.send(&batch);
                            batch = rest;
                        }
                    }
                    client.send(&batch);
                    client.ping();
                })
            })
            .collect();
        producers.into_iter().chain(consumers).for_each(|thread| thread.join().expect("its checks held"));
        let sent = 4 * count as u64;
        assert_eq!(server.counted(Counter::MessagesIn), sent);
        assert_eq!(server.counted(Counter::MessagesOut), sent * 3 + 2 * count as u64);
    }
}

/// After a consumer's PONG its subscription is known on all cores: any message published because of that PONG
/// reaches it.
#[test]
fn a_pong_confirms_the_subscription_on_all_cores() {
    let server = start(3, |_| {});
    let mut producers: Vec<Client> = (0..6).map(|_| Client::new(&server)).collect();
    let mut consumers: Vec<Client> = (0..6).map(|_| Client::new(&server)).collect();
    for round in 0..300_usize {
        let consumer = &mut consumers[round % 6];
        let subject = format!("round.{round}");
        consumer.subscribe(&subject, &round.to_string());
        producers[round / 2 % 6].publish(&subject, b"now");
        assert_eq!(consumer.payload(), b"now");
        consumer.send(format!("UNSUB {round}\r\n").as_bytes());
    }
    for consumer in &mut consumers {
        consumer.ping();
    }
    assert_eq!(server.counted(Counter::Subscriptions), 0);
}

/// Messages within one loop cost half as much as messages across loops: a few clients share a loop, unless
/// `gathered` says otherwise.
#[test]
fn clients_that_come_together_share_a_loop() {
    for (gathered, crosses) in [(8, false), (1, true)] {
        let server = start(2, |config| config.gathered = gathered);
        let mut consumer = Client::new(&server);
        consumer.subscribe("a", "1");
        let mut producer = Client::new(&server);
        producer.publish("a", b"x");
        assert_eq!(consumer.payload(), b"x");
        assert_eq!(server.counted(Counter::RunsAcross) > 0, crosses, "{gathered} gathered");
    }
}

#[test]
fn a_group_shares_evenly_over_loops() {
    let server = start(3, |_| {});
    let (members, count) = (6, 600);
    let mut clients: Vec<Client> = (0..members).map(|_| Client::new(&server)).collect();
    for client in &mut clients {
        client.send(b"SUB work.* gang 1\r\nSUB work.x gang 2\r\nSUB other gang 3\r\n");
        client.ping();
    }
    let mut producer = Client::new(&server);
    for number in 0..count {
        producer.publish("work.x", &payload(0, number));
    }
    producer.ping();
    // Two patterns with one group name are one group, in which each subscription is a member (nats-server's
    // rule).
    let mut seen = vec![0_usize; count];
    wait_until("all delivered", || server.counted(Counter::MessagesOut) == count as u64);
    for client in &mut clients {
        let mut share = [0_usize; 2];
        for got in client.until_pong() {
            let Got::Message { sid, payload, .. } = got else { panic!("{got:?}") };
            seen[read(&payload).1] += 1;
            share[usize::from(sid == "2")] += 1;
        }
        for share in share {
            assert!((40..=60).contains(&share), "of 50 a member: {share}");
        }
    }
    assert!(seen.iter().all(|times| *times == 1), "each once to the group");
}

#[test]
fn requests_get_an_answer_or_503() {
    for loops in [1, 2] {
        let server = start(loops, |_| {});
        let mut asker = Client::new(&server);
        asker.subscribe("inbox.*", "9");
        asker.send(b"PUB service inbox.1 2\r\nhi\r\n");
        let Got::Message { subject, sid, header, payload, .. } = asker.next() else { panic!("an answer") };
        assert_eq!((&subject[..], &sid[..], &payload[..]), ("inbox.1", "9", &b""[..]));
        assert_eq!(header, b"NATS/1.0 503\r\nNats-Subject: service\r\n\r\n");
        let mut helpers: Vec<Client> = (0..4).map(|_| Client::new(&server)).collect();
        for helper in &mut helpers {
            helper.send(b"SUB service q 1\r\n");
            helper.ping();
        }
        for round in 0..20 {
            asker.send(format!("PUB service inbox.{round} 2\r\nhi\r\n").as_bytes());
        }
        asker.ping();
        wait_until("all asked", || server.counted(Counter::MessagesOut) == 20);
        for helper in &mut helpers {
            for got in helper.until_pong() {
                let Got::Message { reply, .. } = got else { panic!("{got:?}") };
                helper.publish(&reply, reply.clone().as_bytes());
            }
            helper.ping();
        }
        let mut answers: Vec<String> =
            (0..20).map(|_| String::from_utf8(asker.payload()).expect("a subject")).collect();
        answers.sort();
        answers.dedup();
        assert_eq!(answers.len(), 20);
        assert_eq!(server.counted(Counter::NoResponders), 1);
    }
}

#[test]
fn an_end_after_so_many_holds_across_loops() {
    let server = start(3, |_| {});
    let mut consumers: Vec<Client> = (0..3).map(|_| Client::new(&server)).collect();
    for client in &mut consumers {
        client.send(b"SUB a 1\r\nUNSUB 1 5\r\n");
        client.ping();
    }
    let mut producer = Client::new(&server);
    producer.send(&b"PUB a 1\r\nx\r\n".repeat(50));
    producer.ping();
    wait_until("all delivered", || server.counted(Counter::MessagesOut) == 15);
    wait_until("all ended", || server.counted(Counter::Subscriptions) == 0);
    for client in &mut consumers {
        assert_eq!(client.until_pong().len(), 5);
    }
}

#[test]
fn accounts_are_worlds_of_their_own() {
    let account = |name: &str| Account {
        name: name.to_owned(),
        users: vec![User {
            user: Some(name.to_lowercase()),
            password: Some(Secret::new("x")),
            ..User::default()
        }],
        ..Account::default()
    };
    let server = start(2, |config| {
        config.authorization =
            Authorization { accounts: vec![account("A"), account("B")], ..Authorization::default() };
    });
    let login = |name: &str| {
        let mut client = Client::silent(&server);
        client
            .send(format!("CONNECT {{\"user\":\"{name}\",\"pass\":\"x\",\"verbose\":false}}\r\n").as_bytes());
        client.ping();
        client
    };
    let mut clients: Vec<Client> = ["a", "a", "b", "b"].into_iter().map(login).collect();
    clients.iter_mut().for_each(|client| client.subscribe("s", "1"));
    clients[0].publish("s", b"for A");
    clients[0].ping_after_own();
    clients[3].publish("s", b"for B");
    wait_until("all delivered", || server.counted(Counter::MessagesOut) == 4);
    let texts: Vec<Vec<Vec<u8>>> = clients
        .iter_mut()
        .map(|client| {
            let got = client.until_pong();
            got.into_iter()
                .map(|got| match got {
                    Got::Message { payload, .. } => payload,
                    other => panic!("{other:?}"),
                })
                .collect()
        })
        .collect();
    let (a, b) = (vec![b"for A".to_vec()], vec![b"for B".to_vec()]);
    assert_eq!(texts[1..], [a, b.clone(), b]);
    let mut wrong = Client::silent(&server);
    wrong.send(b"CONNECT {\"user\":\"a\",\"pass\":\"y\"}\r\n");
    assert_eq!(wrong.next(), Got::Error("Authorization Violation".to_owned()));
    assert_eq!(wrong.next(), Got::Closed);
    let mut early = Client::silent(&server);
    early.send(b"PING\r\n");
    assert_eq!(early.next(), Got::Error("Authorization Violation".to_owned()));
}

/// Users of the system account can query the server's state; other users cannot.
#[test]
fn the_server_answers_in_the_system_account() {
    let user = |name: &str| User {
        user: Some(name.to_owned()),
        password: Some(Secret::new("x")),
        ..User::default()
    };
    let server = start(2, |config| {
        config.authorization.accounts = vec![
            Account { name: "$SYS".to_owned(), users: vec![user("admin")], ..Account::default() },
            Account { name: "A".to_owned(), users: vec![user("a")], ..Account::default() },
        ];
    });
    for (name, is_answered) in [("admin", true), ("a", false)] {
        let mut client = Client::silent(&server);
        client
            .send(format!("CONNECT {{\"user\":\"{name}\",\"pass\":\"x\",\"verbose\":false}}\r\n").as_bytes());
        client.send(b"SUB inbox 1\r\nPUB $SYS.REQ.SERVER.PING inbox 0\r\n\r\n");
        if is_answered {
            let payload = client.payload();
            let text = String::from_utf8_lossy(&payload);
            assert!(text.contains("\"connections\":1"), "{text}");
        } else {
            assert_eq!(client.until_pong(), []);
        }
    }
}

impl Client {
    /// Reads the client's own message and then a PONG.
    fn ping_after_own(&mut self) {
        assert_eq!(self.until_pong().len(), 1);
    }
}
