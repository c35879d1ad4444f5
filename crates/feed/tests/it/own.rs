//! Messages that the program itself publishes, on subjects reserved for it.

use std::time::Duration;

use crate::common::{Client, Got, HELLO, start, wait_until};
use feed::{
    Config, Counter, Publisher,
    identity::{Account, Entry, Permissions, ReservedSubjects, Rules, Secret, User},
};

fn reserve(config: &mut Config, subscribe: bool) {
    let mail = || vec![Entry::of("mail.>")];
    let subscribe = if subscribe { mail() } else { Vec::new() };
    config.authorization.reserved = ReservedSubjects { publish: mail(), subscribe };
}

/// Publishes a message, and retries while the ring is full.
fn publish(publisher: &mut Publisher, subject: &str, payload: &[u8]) {
    while !publisher.add(subject, payload) {
        send(publisher);
    }
}

fn send(publisher: &mut Publisher) {
    wait_until("the feed takes it", || publisher.send().is_ok());
}

#[test]
fn every_subscriber_hears_it_in_order() {
    let server = start(2, |config| reserve(config, false));
    // The consumers are distributed round-robin over the cores.
    let mut consumers: Vec<Client> = (0..4).map(|_| Client::new(&server)).collect();
    consumers.iter_mut().for_each(|consumer| consumer.subscribe("mail.>", "1"));
    let mut publisher = server.publisher();
    for number in 0..1000 {
        publish(&mut publisher, "mail.arrived.example.org.ann", format!("{number}").as_bytes());
    }
    send(&mut publisher);
    for consumer in &mut consumers {
        for number in 0..1000 {
            assert_eq!(consumer.payload(), format!("{number}").into_bytes());
        }
    }
    assert_eq!((publisher.lost(), server.counted(Counter::MessagesIn)), (0, 1000));
}

#[test]
fn nobody_else_publishes_there() {
    let server = start(2, |config| reserve(config, false));
    let mut consumer = Client::new(&server);
    consumer.subscribe("mail.>", "1");
    consumer.subscribe(">", "2");
    let (mut polite, mut curt) = (Client::new(&server), Client::silent(&server));
    for forger in [&mut polite, &mut curt] {
        for forged in [
            "PUB mail.arrived.example.org.ann 2\r\n{}\r\n",
            "HPUB mail.missed 12 14\r\nNATS/1.0\r\n\r\n{}\r\n",
        ] {
            // A client that sent no CONNECT may not use headers.
            if forged.starts_with("HPUB") && forger.until_pong().is_empty() {
                forger.send(HELLO);
            }
            forger.send(forged.as_bytes());
            let told = forger.until_pong();
            let refused = told.iter().any(
                |got| matches!(got, Got::Error(text) if text.contains("Permissions Violation for Publish to \"mail.")),
            );
            assert!(refused, "{forged}: {told:?}");
        }
        // A reserved subject is refused as a reply subject too: a responder would publish to it.
        forger.send(b"PUB ask mail.arrived.x.y 2\r\n{}\r\n");
        assert!(matches!(&forger.until_pong()[..], [.., Got::Error(_)]));
        forger.publish("news", b"fine");
        forger.ping();
    }
    for _ in 0..2 {
        let Got::Message { subject, .. } = consumer.next() else { panic!("a message") };
        assert_eq!(subject, "news");
    }
    assert!(consumer.until_pong().is_empty(), "nothing was forged");
}

#[test]
fn those_hear_it_whose_permissions_name_it() {
    let user = |name: &str, allow: &[&str]| User {
        user: Some(name.to_owned()),
        password: Some(Secret::new("p")),
        permissions: Some(Permissions {
            subscribe: Rules {
                allow: Some(allow.iter().map(|pattern| Entry::of(pattern)).collect()),
                ..Rules::default()
            },
            ..Permissions::default()
        }),
        ..User::default()
    };
    let server = start(2, |config| {
        reserve(config, true);
        config.authorization.users = vec![user("reader", &["mail.>"]), user("all", &[">"])];
        let other = Account {
            name: "other".to_owned(),
            users: vec![user("elsewhere", &[">"])],
            ..Account::default()
        };
        config.authorization.accounts = vec![other];
    });
    let client = |name: &str| {
        let mut client = Client::silent(&server);
        let connect = format!("CONNECT {{\"verbose\":false,\"user\":\"{name}\",\"pass\":\"p\"}}\r\n");
        client.send(connect.as_bytes());
        client.ping();
        client
    };
    let (mut reader, mut all, mut elsewhere) = (client("reader"), client("all"), client("elsewhere"));
    reader.subscribe("mail.arrived.>", "1");
    all.send(b"SUB mail.> 1\r\n");
    assert!(matches!(&all.until_pong()[..], [Got::Error(_)]));
    all.subscribe(">", "2");
    elsewhere.subscribe(">", "1");
    let mut publisher = server.publisher();
    publish(&mut publisher, "mail.arrived.x.ann", b"1");
    publish(&mut publisher, "public", b"2");
    send(&mut publisher);
    assert_eq!(reader.payload(), b"1");
    assert_eq!(all.payload(), b"2", "of everything it hears the rest");
    assert!(elsewhere.until_pong().is_empty(), "another account is another world");
}

/// More bytes than the kernel's buffers of one connection take.
const MORE_THAN_SOCKETS_HOLD: usize = 24 << 20;

#[test]
fn nobody_slow_holds_it_back() {
    let server = start(2, |config| {
        reserve(config, false);
        config.limits.max_pending = 1 << 20;
        // A producer that is held would be held for longer than this test lasts.
        config.limits.producer_hold_max = Duration::from_secs(3600);
        config.limits.write_deadline = Duration::from_secs(3600);
    });
    let mut stuck: Vec<Client> = (0..2).map(|_| Client::new(&server)).collect();
    stuck.iter_mut().for_each(|stuck| stuck.subscribe("mail.>", "1"));
    let mut readers: Vec<Client> = (0..2).map(|_| Client::new(&server)).collect();
    readers.iter_mut().for_each(|reader| reader.subscribe("mail.>", "1"));
    let mut publisher = server.publisher();
    let payload = vec![b'x'; 10_000];
    for _ in 0..MORE_THAN_SOCKETS_HOLD / payload.len() {
        publish(&mut publisher, "mail.arrived.x.ann", &payload);
        send(&mut publisher);
        readers.iter_mut().for_each(|reader| assert_eq!(reader.payload().len(), payload.len()));
    }
    wait_until("the stuck ones are cut", || server.counted(Counter::SlowPending) == 2);
    assert_eq!((publisher.lost(), server.counted(Counter::ProducersHeld)), (0, 0));
}
