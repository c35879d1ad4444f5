//! The feed as a leaf node of a real nats-server: clients of ours and of the hub exchange messages.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    time::Duration,
};

use crate::nats_operator::Operator;
use async_nats::{Client, ConnectOptions, HeaderMap, RequestErrorKind, Subscriber, jetstream};
use futures_util::StreamExt as _;
use rustix::process::Signal;
use tests::{
    PATIENCE,
    certificate::Certificate,
    clients, eventually,
    feed::Feed,
    hub::{Hub, OPEN, programs},
};

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn options() -> ConnectOptions {
    ConnectOptions::new().connection_timeout(PATIENCE).request_timeout(Some(PATIENCE))
}

async fn connect(address: std::net::SocketAddr) -> Client {
    options().connect(address.to_string()).await.expect("it is let in")
}

async fn next(subscriber: &mut Subscriber) -> async_nats::Message {
    next_or_end(subscriber).await.expect("a message")
}

/// Waits until messages of one side reach a subscriber on the other, and none is in flight any more.
async fn until_heard(from: &Client, subscriber: &mut Subscriber, subject: &str) -> Outcome {
    eventually_heard(from, subscriber, subject).await;
    let last = format!("last {}", from.new_inbox());
    from.publish(subject.to_owned(), last.clone().into()).await?;
    while next(subscriber).await.payload != last.as_bytes() {}
    Ok(())
}

async fn eventually_heard(from: &Client, subscriber: &mut Subscriber, subject: &str) {
    tokio::time::timeout(PATIENCE, async {
        loop {
            from.publish(subject.to_owned(), "is anybody there?".into()).await.expect("it is sent");
            let heard = tokio::time::timeout(Duration::from_millis(50), subscriber.next()).await;
            if heard.is_ok() {
                return;
            }
        }
    })
    .await
    .unwrap_or_else(|_| panic!("what is published to {subject} does not get across"));
}

fn joined(feed: &Feed) -> usize {
    feed.page("/leafz")["leafnodes"].as_u64().expect("a number").try_into().expect("a few")
}

fn until_joined(feed: &Feed) {
    eventually("the hub is joined", || joined(feed) > 0);
}

/// Messages, requests, headers and groups pass both ways, with each installed hub and on two cores of ours.
#[tokio::test(flavor = "multi_thread")]
async fn f9_messages_requests_headers_and_groups_pass_both_ways() -> Outcome {
    for (name, program) in programs() {
        println!("{name}");
        let hub = Hub::start_by(&program, OPEN);
        let feed = Feed::start_joined("", &["--cores", "0,1", "--leaf", &hub.url()]);
        until_joined(&feed);
        let (here, here_too, there) =
            (connect(feed.address()).await, connect(feed.address()).await, connect(hub.address()).await);
        for (from, to) in [(&here, &there), (&there, &here), (&here_too, &there), (&there, &here_too)] {
            // Several patterns of the subscriber match: each subscription gets each message once, in order.
            let mut all = to.subscribe("a.>").await?;
            let mut also = to.subscribe("a.b").await?;
            until_heard(from, &mut also, "a.b").await?;
            while !next(&mut all).await.payload.starts_with(b"last") {}
            for n in 0..500 {
                from.publish("a.b", n.to_string().into()).await?;
            }
            for n in 0..500 {
                assert_eq!(next(&mut all).await.payload, n.to_string(), "{name}");
                assert_eq!(next(&mut also).await.payload, n.to_string(), "{name}");
            }

            let mut service = to.subscribe("ask").await?;
            until_heard(from, &mut service, "ask").await?;
            let answering = to.clone();
            let served = tokio::spawn(async move {
                let question = next(&mut service).await;
                let said = question.headers.as_ref().and_then(|headers| headers.get("Ask")).cloned();
                let mut headers = HeaderMap::new();
                headers.insert("Seen", said.expect("the header came").as_str());
                let reply = question.reply.expect("a reply subject");
                answering.publish_with_headers(reply, headers, "WORD".into()).await.expect("it is sent");
            });
            let mut headers = HeaderMap::new();
            headers.insert("Ask", "why: so");
            let reply = from.request_with_headers("ask", headers, "word".into()).await?;
            assert_eq!(reply.payload, "WORD");
            let seen = reply.headers.and_then(|headers| headers.get("Seen").map(ToString::to_string));
            assert_eq!(seen, Some("why: so".into()));
            served.await?;
            // The service has left: the other side learns of it soon.
            until_no_responders(from, "ask").await;

            // A queue group on the other side, and one on both sides.
            let mut far = to.queue_subscribe("work", "w".into()).await?;
            until_heard(from, &mut far, "work").await?;
            let mut near = from.queue_subscribe("work", "w".into()).await?;
            until_heard(from, &mut near, "work").await?;
            for n in 0..50 {
                from.publish("work", n.to_string().into()).await?;
                to.publish("work", n.to_string().into()).await?;
            }
            // Members on the publisher's side are served first, as with nats-server; each message is
            // delivered once.
            for n in 0..50 {
                assert_eq!(next(&mut near).await.payload, n.to_string());
                assert_eq!(next(&mut far).await.payload, n.to_string());
            }
        }
        let page = feed.page("/leafz");
        assert_eq!(page["leafs"][0]["name"], "hub", "{page}");
        assert_eq!(page["hubs"][0]["is_joined"], true, "{page}");
    }
    Ok(())
}

/// A group's weight at the hub is the number of its members on all our cores: a hub without members of its
/// own divides messages accordingly.
#[tokio::test(flavor = "multi_thread")]
async fn f9_queue_groups_of_leaves_are_weighted_by_members() -> Outcome {
    let Some(hub) = Hub::open() else { return Ok(()) };
    let feeds = [(); 2].map(|()| Feed::start_joined("", &["--cores", "0,1", "--leaf", &hub.url()]));
    feeds.iter().for_each(until_joined);
    let there = connect(hub.address()).await;
    let mut known = there.subscribe("known").await?;
    let mut members = Vec::new();
    for (feed, count) in feeds.iter().zip([3, 1]) {
        for _ in 0..count {
            let client = connect(feed.address()).await;
            let member = client.queue_subscribe("work", "w".into()).await?;
            // A message does not overtake a subscription: once it arrives, the hub knows of the member.
            until_heard(&client, &mut known, "known").await?;
            members.push((member, client));
        }
    }
    for n in 0..800 {
        there.publish("work", n.to_string().into()).await?;
    }
    there.flush().await?;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for (number, (mut member, client)) in members.into_iter().enumerate() {
        let tell = tell.clone();
        tokio::spawn(async move {
            let _stays = client;
            while member.next().await.is_some() {
                let _ = tell.send(number);
            }
        });
    }
    let mut shares = [0; 4];
    for _ in 0..800 {
        shares[tokio::time::timeout(PATIENCE, told.recv()).await?.expect("a message")] += 1;
    }
    let (first, second) = (shares[..3].iter().sum::<i32>(), shares[3]);
    assert_eq!(first + second, 800, "{shares:?}: each once");
    assert!(first > 500 && second > 100, "{shares:?}: three members and one");
    Ok(())
}

/// Our clients use the hub's JetStream; the feed has none of its own.
#[tokio::test(flavor = "multi_thread")]
async fn f9_clients_of_the_leaf_use_the_hubs_jetstream() -> Outcome {
    for (name, program) in programs() {
        println!("{name}");
        let lines = format!("{OPEN}\njetstream {{ store_dir: \"{{DIR}}/js\" }}");
        let hub = Hub::start_by(&program, &lines);
        let feed = Feed::start_joined("", &["--cores", "0,1", "--leaf", &hub.url()]);
        until_joined(&feed);
        let client = connect(feed.address()).await;
        let js = jetstream::new(client.clone());
        let stream = js
            .create_stream(jetstream::stream::Config {
                name: "orders".to_owned(),
                subjects: vec!["orders.>".to_owned()],
                ..Default::default()
            })
            .await?;
        for n in 0..100 {
            // The hub subscribes to the stream's subjects; we learn of that with the stream, or a moment
            // later.
            loop {
                let published = js.publish(format!("orders.{n}"), n.to_string().into()).await?;
                if tokio::time::timeout(PATIENCE, published).await?.is_ok() {
                    break;
                }
            }
        }
        let config =
            jetstream::consumer::pull::Config { durable_name: Some("c".to_owned()), ..Default::default() };
        let consumer = stream.create_consumer(config).await?;
        let mut messages = consumer.messages().await?.take(100);
        let mut n = 0;
        while let Some(message) = tokio::time::timeout(PATIENCE, messages.next()).await? {
            let message = message?;
            // A stored message keeps its subject, whichever way it took.
            assert_eq!(message.subject.as_str(), format!("orders.{n}"), "{name}");
            assert_eq!(message.info()?.stream_sequence, n + 1);
            message.double_ack().await?;
            n += 1;
        }
        assert_eq!(n, 100);
        let mut consumer = stream.get_consumer::<jetstream::consumer::pull::Config>("c").await?;
        assert_eq!(consumer.info().await?.num_ack_pending, 0);

        let ordered = stream
            .create_consumer(jetstream::consumer::push::OrderedConfig {
                deliver_subject: client.new_inbox(),
                ..Default::default()
            })
            .await?;
        let mut ordered = ordered.messages().await?.take(100);
        for n in 0..100 {
            let message = tokio::time::timeout(PATIENCE, ordered.next()).await?.expect("a message")?;
            assert_eq!(message.subject.as_str(), format!("orders.{n}"), "{name}");
        }

        if name != "the newest" {
            // This client cannot parse all of the bucket answers of Debian's nats-server, not even when
            // connected to it directly.
            continue;
        }
        let bucket = js
            .create_key_value(jetstream::kv::Config {
                bucket: "b".to_owned(),
                history: 5,
                ..Default::default()
            })
            .await?;
        let mut watch = bucket.watch_all().await?;
        let first = bucket.put("k", "one".into()).await?;
        bucket.update("k", "two".into(), first).await?;
        assert!(bucket.update("k", "three".into(), first).await.is_err(), "another has written");
        assert_eq!(bucket.get("k").await?.as_deref(), Some(&b"two"[..]));
        for value in ["one", "two"] {
            let entry = tokio::time::timeout(PATIENCE, watch.next()).await?.expect("an entry")?;
            assert_eq!((entry.key.as_str(), &entry.value[..]), ("k", value.as_bytes()), "{name}");
        }
        bucket.delete("k").await?;
        assert_eq!(bucket.get("k").await?, None);
    }
    Ok(())
}

/// The official clients for Python and JavaScript use the hub's JetStream, in the manner of their own tests:
/// first at the hub, so that a later failure is known to be ours, and then through our feed.
#[test]
fn f9_official_clients_use_the_hub_s_jetstream_here() {
    let Some(hub) = Hub::start(&format!("{OPEN}\njetstream {{ store_dir: \"{{DIR}}/js\" }}")) else { return };
    let feed = Feed::start_joined("", &["--cores", "0,1", "--leaf", &hub.url()]);
    until_joined(&feed);
    for script in [|| clients::python("jetstream.py"), || clients::node("jetstream.mjs")] {
        for (whose, address) in [("the hub", hub.address()), ("ours", feed.address())] {
            let Some(mut command) = script() else { continue };
            let output =
                command.arg(format!("nats://{address}")).output().expect("the client can be started");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let is_done = output.status.success() && said.trim_end().ends_with("ok");
            assert!(is_done, "{command:?} at {whose}: {said}{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// JetStream without a client library, with each hub: streams, consumers, acknowledgements, single messages.
#[tokio::test(flavor = "multi_thread")]
async fn f9_the_hub_s_jetstream_answers_here() -> Outcome {
    for (name, program) in programs() {
        println!("{name}");
        let hub = Hub::start_by(&program, &format!("{OPEN}\njetstream {{ store_dir: \"{{DIR}}/js\" }}"));
        let feed = Feed::start_joined("", &["--cores", "0,1", "--leaf", &hub.url()]);
        until_joined(&feed);
        let client = connect(feed.address()).await;
        let ask = |subject: &str, json: serde_json::Value| {
            let (client, subject) = (client.clone(), subject.to_owned());
            async move {
                let answer = client.request(subject, json.to_string().into()).await.expect("an answer");
                let json: serde_json::Value = serde_json::from_slice(&answer.payload).expect("JSON");
                assert!(json.get("error").is_none(), "{json}");
                json
            }
        };
        let stream = serde_json::json!({"name": "KV_b", "subjects": ["$KV.b.>"], "allow_direct": true});
        ask("$JS.API.STREAM.CREATE.KV_b", stream).await;
        for n in 1..=50 {
            let stored = client.request(format!("$KV.b.{n}"), n.to_string().into()).await?;
            let stored: serde_json::Value = serde_json::from_slice(&stored.payload)?;
            assert_eq!(stored["seq"], n, "{name}");
        }
        let durable = serde_json::json!({
            "stream_name": "KV_b", "config": {"durable_name": "c", "ack_policy": "explicit"}
        });
        ask("$JS.API.CONSUMER.DURABLE.CREATE.KV_b.c", durable).await;
        let inbox = client.new_inbox();
        let mut messages = client.subscribe(inbox.clone()).await?;
        client.publish_with_reply("$JS.API.CONSUMER.MSG.NEXT.KV_b.c", inbox, "50".into()).await?;
        for n in 1..=50 {
            let message = next(&mut messages).await;
            assert_eq!(
                (message.subject.as_str(), message.payload),
                (&*format!("$KV.b.{n}"), n.to_string().into())
            );
            let reply = message.reply.expect("it is to be acknowledged");
            assert!(reply.starts_with("$JS.ACK.") && !reply.contains('@'), "{reply}");
            // The acknowledgement is itself acknowledged.
            assert_eq!(client.request(reply, "+ACK".into()).await?.payload, "");
        }
        let info = ask("$JS.API.CONSUMER.INFO.KV_b.c", serde_json::json!({})).await;
        assert_eq!((&info["num_ack_pending"], &info["num_pending"]), (&0.into(), &0.into()), "{name}");
        let got = client.request("$JS.API.DIRECT.GET.KV_b.$KV.b.7", "".into()).await?;
        assert_eq!(got.payload, "7", "{name}");
        // Without the hub no service answers.
        drop(hub);
        eventually("the loss is seen", || joined(&feed) == 0);
        let kind = client.request("$JS.API.INFO", "".into()).await.expect_err("nobody is there").kind();
        assert_eq!(kind, RequestErrorKind::NoResponders, "{name}");
    }
    Ok(())
}

/// A hub is killed, comes back, and stands still: local clients are served all the while, and no message
/// arrives twice or out of order.
#[tokio::test(flavor = "multi_thread")]
async fn f15_the_hub_is_lost_and_returns() -> Outcome {
    let Some(mut hub) = Hub::open() else { return Ok(()) };
    let lines = "max_pending: 65536";
    let flags = ["--cores", "0,1", "--leaf", &hub.url(), "--producer-hold-max", "200ms"];
    let feed = Feed::start_joined(lines, &flags);
    until_joined(&feed);
    let (here, here_too) = (connect(feed.address()).await, connect(feed.address()).await);
    let mut local = here_too.subscribe("a").await?;
    until_heard(&here, &mut local, "a").await?;
    for round in 0..2 {
        let there = connect(hub.address()).await;
        let mut far = there.subscribe("a").await?;
        until_heard(&here, &mut far, "a").await?;
        while !next(&mut local).await.payload.starts_with(b"last") {}
        hub.kill();
        for n in 0..1000 {
            here.publish("a", format!("{round} {n}").into()).await?;
        }
        for n in 0..1000 {
            assert_eq!(next(&mut local).await.payload, format!("{round} {n}"), "local service goes on");
        }
        eventually("the loss is seen", || joined(&feed) == 0);
        assert_eq!(feed.page("/leafz")["hubs"][0]["is_joined"], false);
        hub.begin();
        until_joined(&feed);
    }
    // A hub that does not read is a slow consumer and is disconnected; its pending messages are dropped and
    // counted.
    let there = connect(hub.address()).await;
    let mut far = there.subscribe("b").await?;
    until_heard(&here, &mut far, "b").await?;
    hub.signal(Signal::STOP);
    let mut sent = 0;
    while joined(&feed) > 0 {
        for _ in 0..200 {
            here.publish("b", vec![0; 4096].into()).await?;
            sent += 1;
        }
        here.flush().await?;
    }
    here.publish("a", "still here".into()).await?;
    while next(&mut local).await.payload != "still here" {}
    hub.signal(Signal::CONT);
    until_joined(&feed);
    assert!(sent > 0);
    Ok(())
}

/// A cluster of two hubs, one of which is configured: when that one is killed, the feed joins the other,
/// which it has learned of from the first.
#[tokio::test(flavor = "multi_thread")]
async fn f15_another_hub_of_the_cluster_is_joined() -> Outcome {
    let Some((_, program)) = programs().into_iter().next() else { return Ok(()) };
    let (mut one, mut two) = (Hub::prepare_by(&program), Hub::prepare_by(&program));
    for (hub, name, other) in [(&one, "one", &two), (&two, "two", &one)] {
        let cluster = format!(
            "cluster {{ name: both, listen: \"127.0.0.1:{{WEB}}\", routes: [\"nats://127.0.0.1:{}\"] }}",
            other.web_port()
        );
        hub.configure(&format!("server_name: {name}\n{cluster}\n{OPEN}"));
    }
    one.begin();
    two.begin();
    let feed = Feed::start_joined("", &["--leaf", &one.url()]);
    until_joined(&feed);
    let (here, there) = (connect(feed.address()).await, connect(two.address()).await);
    let mut near = here.subscribe("a").await?;
    until_heard(&there, &mut near, "a").await?;
    eventually("its other address is learnt", || {
        feed.page("/leafz")["hubs"][0]["learnt_addresses"].as_u64().is_some_and(|learnt| learnt > 0)
    });
    one.kill();
    eventually("the loss is seen", || joined(&feed) == 0);
    until_joined(&feed);
    until_heard(&there, &mut near, "a").await?;
    Ok(())
}

/// Numbered messages both ways while the hub is killed again and again: none arrives twice or out of order,
/// and messages published after the hub is joined again arrive.
#[tokio::test(flavor = "multi_thread")]
async fn f15_numbers_rise_whatever_becomes_of_the_hub() -> Outcome {
    let Some(mut hub) = Hub::open() else { return Ok(()) };
    let feed = Feed::start_joined("", &["--cores", "0,1", "--leaf", &hub.url()]);
    until_joined(&feed);
    let mut heard = Vec::new();
    let mut producers = Vec::new();
    let (here, there) = (connect(feed.address()).await, connect(hub.address()).await);
    for (name, from, to) in
        [("h", &here, &there), ("i", &here, &there), ("t", &there, &here), ("u", &there, &here)]
    {
        let mut subscriber = to.subscribe(name).await?;
        let last = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        heard.push(std::sync::Arc::clone(&last));
        tokio::spawn(async move {
            while let Some(message) = subscriber.next().await {
                let number = std::str::from_utf8(&message.payload).ok().and_then(|text| text.parse().ok());
                let number: u64 = number.expect("a number");
                let before = last.swap(number, std::sync::atomic::Ordering::Relaxed);
                // (A panic in this task would be lost, so the error is stored and checked below.)
                if number <= before {
                    last.store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
                    return;
                }
            }
        });
        let from = from.clone();
        producers.push(tokio::spawn(async move {
            for number in 1_u64.. {
                // While the hub is down, its own clients cannot publish either.
                let _ = from.publish(name, number.to_string().into()).await;
                if number % 100 == 0 {
                    let _ = from.flush().await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        }));
    }
    let numbers =
        || heard.iter().map(|last| last.load(std::sync::atomic::Ordering::Relaxed)).collect::<Vec<_>>();
    for round in 0..4 {
        let before = numbers();
        eventually("all rise", || {
            assert!(!numbers().contains(&u64::MAX), "round {round}: a number came twice, or late");
            numbers().iter().zip(&before).all(|(now, before)| *now > before + 500)
        });
        hub.kill();
        eventually("the loss is seen", || joined(&feed) == 0);
        hub.begin();
        until_joined(&feed);
    }
    producers.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

/// Two connections to one hub for one account would send each message round in a loop: the second is closed,
/// the first stays.
#[tokio::test(flavor = "multi_thread")]
async fn f9_a_ring_is_a_loop() -> Outcome {
    let Some(hub) = Hub::open() else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("n.toml");
    let one = format!("[[feed.leaf-remote]]\nurls = [\"{}\"]\n", hub.url());
    std::fs::write(&file, format!("{one}{one}"))?;
    let feed = Feed::start_joined("", &["--config", &file.to_string_lossy(), "--cores", "0,1"]);
    eventually("the second is closed, the first stays", || {
        let page = feed.page("/leafz");
        let hubs = page["hubs"].as_array().expect("a list").clone();
        let why = |hub: &serde_json::Value| hub["why_not"].as_str().unwrap_or_default().to_owned();
        hubs.len() == 2
            && hubs.iter().filter(|hub| hub["is_joined"] == true).count() == 1
            && hubs.iter().any(|hub| why(hub).contains("Loop detected"))
    });
    let (here, there) = (connect(feed.address()).await, connect(hub.address()).await);
    let mut near = here.subscribe("a").await?;
    until_heard(&there, &mut near, "a").await?;
    for n in 0..50 {
        there.publish("a", n.to_string().into()).await?;
    }
    for n in 0..50 {
        assert_eq!(next(&mut near).await.payload, n.to_string(), "each once");
    }
    Ok(())
}

/// A leaf node authenticates with a password, a token, an nkey or a JWT, by TLS or WebSocket, each with its
/// own account.
#[tokio::test(flavor = "multi_thread")]
async fn f9_a_leaf_says_who_it_is() -> Outcome {
    let Some((_, program)) = programs().into_iter().next() else { return Ok(()) };
    let certificate = Certificate::of(&["localhost", "127.0.0.1"]);
    let pair = nkeys::KeyPair::new_user();
    let (cert, key) = (certificate.file(), certificate.key());
    let tls = format!("tls {{ cert_file: \"{}\", key_file: \"{}\" }}", cert.display(), key.display());
    let of = |inside: &str| format!("leafnodes {{ listen: \"127.0.0.1:{{LEAF}}\"\n{inside} }}");
    let directory = tempfile::tempdir()?;
    let seed_file = directory.path().join("seed.nk");
    std::fs::write(&seed_file, pair.seed()?)?;
    let operator = Operator::new(&directory.path().join("user.creds"), false)?;
    let accounts =
        "accounts { A { users: [ { user: a, password: x } ] }, B { users: [ { user: b, password: x } ] } }";
    let ws = "websocket { listen: \"127.0.0.1:{WEB}\", no_tls: true }";
    let cases = [
        (
            "user",
            of("authorization { user: u, password: \"p@ss\" }"),
            "urls = [\"nats-leaf://u:p%40ss@127.0.0.1:{LEAF}\"]",
        ),
        (
            "token",
            format!("{}\nauthorization {{ token: t0ken }}", of("")),
            "urls = [\"nats-leaf://t0ken@127.0.0.1:{LEAF}\"]",
        ),
        (
            "key",
            of(&format!("authorization {{ nkey: {} }}", pair.public_key())),
            "urls = [\"{URL}\"]\nnkey = \"{SEED}\"",
        ),
        ("TLS", of(&tls), "urls = [\"tls://localhost:{LEAF}\"]\ntls-ca = \"{CA}\""),
        ("TLS, said by INFO", of(&tls), "urls = [\"nats-leaf://127.0.0.1:{LEAF}\"]\ntls-ca = \"{CA}\""),
        (
            "TLS first",
            of(&tls.replace(" }", ", handshake_first: true }")),
            "urls = [\"tls://localhost:{LEAF}\"]\ntls-ca = \"{CA}\"\ntls-handshake-first = true",
        ),
        ("WebSocket", format!("{}\n{ws}", of("")), "urls = [\"ws://127.0.0.1:{WEB}\"]"),
        (
            "WebSocket under TLS",
            format!("{}\nwebsocket {{ listen: \"127.0.0.1:{{WEB}}\", {tls} }}", of("")),
            "urls = [\"wss://localhost:{WEB}\"]\ntls-ca = \"{CA}\"",
        ),
        ("JWT", format!("{}\n{}", of(""), operator.lines), "urls = [\"{URL}\"]\ncredentials = \"{CREDS}\""),
        (
            "account",
            format!(
                "{}\n{accounts}",
                of("authorization { users: [ { user: u, password: p, account: B } ] }")
            ),
            "urls = [\"nats-leaf://u:p@127.0.0.1:{LEAF}\"]\naccount = \"B\"",
        ),
    ];
    for (name, lines, said) in cases {
        println!("{name}");
        let hub = Hub::start_by(&program, &lines);
        let said = said
            .replace("{URL}", &hub.url())
            .replace("{LEAF}", &hub.leaf_port().to_string())
            .replace("{WEB}", &hub.web_port().to_string())
            .replace("{CA}", &cert.to_string_lossy())
            .replace("{SEED}", &seed_file.to_string_lossy())
            .replace("{CREDS}", &directory.path().join("user.creds").to_string_lossy());
        let file = directory.path().join("n.toml");
        std::fs::write(&file, format!("[[feed.leaf-remote]]\n{said}\n"))?;
        let ours = if name == "account" { accounts } else { "" };
        let feed = Feed::start_joined(ours, &["--config", &file.to_string_lossy()]);
        until_joined(&feed);
        let (here, there) = match name {
            "account" => {
                let as_b = || options().user_and_password("b".to_owned(), "x".to_owned());
                (
                    as_b().connect(feed.address().to_string()).await?,
                    as_b().connect(hub.address().to_string()).await?,
                )
            }
            "JWT" => {
                let there = options().credentials_file(directory.path().join("user.creds")).await?;
                (connect(feed.address()).await, there.connect(hub.address().to_string()).await?)
            }
            "token" => {
                let there = options().token("t0ken".to_owned());
                (connect(feed.address()).await, there.connect(hub.address().to_string()).await?)
            }
            _ => (connect(feed.address()).await, connect(hub.address()).await),
        };
        let mut near = here.subscribe("a").await?;
        until_heard(&there, &mut near, "a").await?;
        if name == "account" {
            // Clients of another account here receive none of it.
            let a = options()
                .user_and_password("a".to_owned(), "x".to_owned())
                .connect(feed.address().to_string())
                .await?;
            let mut other = a.subscribe("a").await?;
            a.flush().await?;
            until_heard(&there, &mut near, "a").await?;
            assert!(tokio::time::timeout(Duration::from_millis(100), other.next()).await.is_err());
        }
        assert!(!["p@ss", "t0ken"].iter().any(|secret| feed.printed().contains(secret)), "no secret is told");
    }
    Ok(())
}

/// A subscription that ends at its message limit is removed at the hub, too (nats-server#2421, nats.py#795).
#[tokio::test(flavor = "multi_thread")]
async fn f9_a_bound_reached_is_told_the_hub() -> Outcome {
    let Some(hub) = Hub::open() else { return Ok(()) };
    let feed = Feed::start_joined("", &["--leaf", &hub.url()]);
    until_joined(&feed);
    let (here, there) = (connect(feed.address()).await, connect(hub.address()).await);
    for round in 0..100 {
        let mut bound = here.subscribe("bound").await?;
        bound.unsubscribe_after(1).await?;
        eventually_heard(&there, &mut bound, "bound").await;
        assert!(next_or_end(&mut bound).await.is_none(), "round {round}: a second message");
    }
    until_no_responders(&there, "bound").await;
    Ok(())
}

/// Returns the next message, or `None` at the subscription's end.
async fn next_or_end(subscriber: &mut Subscriber) -> Option<async_nats::Message> {
    tokio::time::timeout(PATIENCE, subscriber.next()).await.expect("in time")
}

/// Repeats a request until no service answers.
async fn until_no_responders(from: &Client, subject: &'static str) {
    let mut kind = None;
    while kind != Some(RequestErrorKind::NoResponders) {
        let asked = tokio::time::timeout(Duration::from_millis(200), from.request(subject, "".into()));
        kind = asked.await.ok().and_then(|asked| asked.err().map(|error| error.kind()));
    }
}

/// A client that may only reply answers a request that came through the leaf node (nats-server#1514).
#[tokio::test(flavor = "multi_thread")]
async fn f9_allowed_responses_pass_the_leaf() -> Outcome {
    let Some(hub) = Hub::open() else { return Ok(()) };
    let lines = "authorization { users: [ { user: u, password: p, permissions: { subscribe: \"svc.>\", \
                 publish: { deny: \">\" }, allow_responses: true } } ] }";
    let feed = Feed::start_joined(lines, &["--leaf", &hub.url()]);
    until_joined(&feed);
    let service = options().user_and_password("u".to_owned(), "p".to_owned());
    let service = service.connect(feed.address().to_string()).await?;
    let there = connect(hub.address()).await;
    let mut asked = service.subscribe("svc.add").await?;
    eventually_heard(&there, &mut asked, "svc.add").await;
    let request = there.request("svc.add", "1 + 1".into());
    let answer = async {
        let question = loop {
            let question = next(&mut asked).await;
            if question.payload == "1 + 1" {
                break question;
            }
        };
        let reply = question.reply.expect("a reply subject");
        service.publish(reply, "2".into()).await.expect("it is sent");
    };
    let (reply, ()) = tokio::join!(request, answer);
    assert_eq!(reply?.payload, "2");
    Ok(())
}

/// The hub's permissions for imports and exports are obeyed here: the hub disconnects a leaf node that
/// ignores them, for half a minute.
#[tokio::test(flavor = "multi_thread")]
async fn f9_the_hub_s_permissions_are_kept() -> Outcome {
    let lines = "authorization { users: [ { user: u, password: p, permissions: { publish: { deny: \"out.secret\" }, \
                 subscribe: { deny: \"in.secret\" } } }, { user: v, password: v } ] }\n\
                 leafnodes { listen: \"127.0.0.1:{LEAF}\" }";
    let Some(hub) = Hub::start(lines) else { return Ok(()) };
    let url = hub.url().replace("://", "://u:p@");
    let feed = Feed::start_joined("", &["--leaf", &url]);
    until_joined(&feed);
    let here = connect(feed.address()).await;
    let there = options()
        .user_and_password("v".to_owned(), "v".to_owned())
        .connect(hub.address().to_string())
        .await?;
    let (mut far, mut near) = (there.subscribe("out.>").await?, here.subscribe("in.secret").await?);
    let mut open = here.subscribe("in.open").await?;
    until_heard(&there, &mut open, "in.open").await?;
    until_heard(&here, &mut far, "out.open").await?;
    here.publish("out.secret", "x".into()).await?;
    there.publish("in.secret", "x".into()).await?;
    until_heard(&there, &mut open, "in.open").await?;
    here.publish("out.open", "behind it".into()).await?;
    assert_eq!(next(&mut far).await.payload, "behind it");
    assert!(tokio::time::timeout(Duration::from_millis(50), near.next()).await.is_err());
    assert_eq!(feed.page("/leafz")["hubs"][0]["connections"], 1, "it was never closed");
    Ok(())
}

/// Each failure to join a hub is logged with its reason, and local clients are served all the while.
#[tokio::test(flavor = "multi_thread")]
async fn f15_a_hub_that_cannot_be_joined_is_said() -> Outcome {
    let Some((_, program)) = programs().into_iter().next() else { return Ok(()) };
    let hub = Hub::start_by(
        &program,
        "leafnodes { listen: \"127.0.0.1:{LEAF}\"\nauthorization { user: u, password: p } }",
    );
    let young = Hub::start_by(&program, "leafnodes { listen: \"127.0.0.1:{LEAF}\"\nmin_version: \"9.9.9\" }");
    let directory = tempfile::tempdir()?;
    let creds = directory.path().join("old.creds");
    let operator = Operator::new(&creds, true)?;
    let hosted = Hub::start_by(&program, &format!("{OPEN}\n{}", operator.lines));
    let nobody = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let http = scripted(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let silent = scripted(b"");
    let same = scripted_hub(b"-ERR 'remote leafnode has same cluster name'\r\n");
    let leaf = |at: std::net::SocketAddr| format!("nats-leaf://{at}");
    let cases: Vec<(String, Vec<String>, &str)> = vec![
        (leaf(nobody), vec![], "unreachable: Connection refused"),
        (leaf(hub.address()), vec![], "for clients or routes; a port for leaf nodes is needed"),
        (leaf(http), vec![], "another protocol (HTTP/1.1 400 Bad Request"),
        (leaf(silent), vec![], "the connection closes without an INFO"),
        (
            hub.url(),
            vec![],
            "authorization violation: no such user, or wrong password, token, key or credentials",
        ),
        (leaf(same), vec![], "the hub's cluster has our name"),
        (young.url(), vec![], "the hub's leafnodes.min_version is above our version"),
        (
            hosted.url(),
            vec!["--leaf-credentials".to_owned(), creds.to_string_lossy().into_owned()],
            "the user's JWT expired at 2001-09-09T01:46:40Z: a new one is needed",
        ),
        (
            hosted.url(),
            vec!["--leaf-credentials".to_owned(), "/nowhere".to_owned()],
            "/nowhere: cannot be read",
        ),
    ];
    for (url, more, words) in cases {
        let flags: Vec<&str> = ["--leaf", &url].into_iter().chain(more.iter().map(String::as_str)).collect();
        let feed = Feed::start_joined("", &flags);
        eventually(words, || feed.printed().contains(words));
        let client = connect(feed.address()).await;
        let mut own = client.subscribe("a").await?;
        client.publish("a", "x".into()).await?;
        next(&mut own).await;
        let why = feed.page("/leafz")["hubs"][0]["why_not"].as_str().unwrap_or_default().to_owned();
        assert!(why.contains(words), "{words}: {why}");
    }
    Ok(())
}

/// The commands of `docs/guide/leaf.md` do what it says.
#[test]
fn f9_the_guide_s_commands_do_what_they_say() {
    if programs().is_empty() {
        return;
    }
    let Some(output) = tests::guide::run("leaf.md") else { return };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("three books"), "{text}");
    assert!(text.contains("\"leafnodes\":1"), "{text}");
}

/// Starts a server that sends these bytes to each connection and closes it.
fn scripted(words: &'static [u8]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = stream;
            let _ = stream.write_all(words);
        }
    });
    address
}

/// Starts a server that sends a hub's INFO, waits for CONNECT, sends these bytes, and closes.
fn scripted_hub(words: &'static [u8]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = stream;
            let info = b"INFO {\"client_id\":1,\"leafnode_urls\":[],\"info_on_connect\":true} \r\n";
            let _ = stream.write_all(info);
            let mut bytes = [0; 4096];
            let _ = stream.read(&mut bytes);
            let _ = stream.write_all(words);
        }
    });
    address
}
