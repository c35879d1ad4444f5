//! Rust's client, async-nats, against our feed.

use std::time::Duration;

use async_nats::{Client, ConnectOptions, HeaderMap, RequestErrorKind, Subscriber};
use futures_util::StreamExt as _;
use tests::{PATIENCE, feed::Feed};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn options() -> ConnectOptions {
    ConnectOptions::new().connection_timeout(PATIENCE).request_timeout(Some(PATIENCE))
}

async fn connect(feed: &Feed) -> Client {
    options().connect(feed.address().to_string()).await.expect("it is let in")
}

/// Waits until the server has processed all that this client sent: `flush` only sends it.
async fn settle(client: &Client) -> Outcome {
    let inbox = client.new_inbox();
    let mut echo = client.subscribe(inbox.clone()).await?;
    client.publish(inbox, "".into()).await?;
    next(&mut echo).await;
    Ok(())
}

async fn next(subscriber: &mut Subscriber) -> async_nats::Message {
    tokio::time::timeout(PATIENCE, subscriber.next()).await.expect("in time").expect("a message")
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_requests_headers_groups_and_drain() -> Outcome {
    let feed = Feed::start("");
    let (client, other) = (connect(&feed).await, connect(&feed).await);
    let mut one = client.subscribe("a.*").await?;
    settle(&client).await?;
    for n in 0..1000 {
        other.publish("a.b", n.to_string().into()).await?;
    }
    for n in 0..1000 {
        assert_eq!(next(&mut one).await.payload, n.to_string());
    }

    let mut few = client.subscribe("few").await?;
    few.unsubscribe_after(2).await?;
    settle(&client).await?;
    for _ in 0..5 {
        other.publish("few", "x".into()).await?;
    }
    next(&mut few).await;
    next(&mut few).await;
    assert!(tokio::time::timeout(PATIENCE, few.next()).await?.is_none(), "it ends after two");

    let mut service = other.subscribe("ask").await?;
    settle(&other).await?;
    let answering = other.clone();
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
    let reply = client.request_with_headers("ask", headers, "word".into()).await?;
    assert_eq!(reply.payload, "WORD");
    assert_eq!(
        reply.headers.and_then(|headers| headers.get("Seen").map(ToString::to_string)),
        Some("why: so".into())
    );
    served.await?;
    let nobody = client.request("nobody", "".into()).await.expect_err("nobody is there");
    assert_eq!(nobody.kind(), RequestErrorKind::NoResponders);

    let mut groups = Vec::new();
    for member in [&client, &other] {
        groups.push(member.queue_subscribe("work", "workers".into()).await?);
        settle(member).await?;
    }
    for _ in 0..400 {
        client.publish("work", "x".into()).await?;
    }
    settle(&client).await?;
    let mut seen = [0, 0];
    while seen.iter().sum::<usize>() < 400 {
        let [first, second] = &mut groups[..] else { unreachable!("two members") };
        tokio::select! {
            _ = next(first) => seen[0] += 1,
            _ = next(second) => seen[1] += 1,
        }
    }
    assert!(seen.iter().all(|&share| share > 40), "{seen:?}");

    let mut last = other.subscribe("last").await?;
    settle(&other).await?;
    for n in 0..50 {
        client.publish("last", n.to_string().into()).await?;
    }
    // When this client has its own messages back, the server has passed them on to the other client, too.
    settle(&client).await?;
    settle(&other).await?;
    other.drain().await?;
    for n in 0..50 {
        assert_eq!(next(&mut last).await.payload, n.to_string());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_somebody_else_is_turned_away() -> Outcome {
    let pair = nkeys::KeyPair::new_user();
    let feed = Feed::start(&format!(
        "accounts {{ A {{ users: [ {{ user: a, password: \"1\" }} ] }}, \
         B {{ users: [ {{ user: b, password: \"2\" }}, {{ nkey: {} }} ] }} }}",
        pair.public_key()
    ));
    let address = feed.address().to_string();
    let a = options().user_and_password("a".into(), "1".into()).connect(&address).await?;
    let b = options().user_and_password("b".into(), "2".into()).connect(&address).await?;
    let c = options().nkey(pair.seed()?).connect(&address).await?;
    let (mut in_a, mut in_b) = (a.subscribe("x").await?, b.subscribe("x").await?);
    settle(&a).await?;
    settle(&b).await?;
    c.publish("x", "from b".into()).await?;
    a.publish("x", "from a".into()).await?;
    assert_eq!(next(&mut in_b).await.payload, "from b");
    assert_eq!(next(&mut in_a).await.payload, "from a", "accounts are worlds of their own");
    for wrong in [options(), options().user_and_password("a".into(), "2".into()), options().token("a".into())]
    {
        assert!(wrong.connect(&address).await.is_err());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_finds_the_next_server() -> Outcome {
    let first = Feed::start("");
    let port = first.address().port();
    let client = options()
        .reconnect_delay_callback(|_| Duration::from_millis(20))
        .connect(first.address().to_string())
        .await?;
    let mut again = client.subscribe("again").await?;
    settle(&client).await?;
    drop(first);
    let _second = Feed::start_on(port, "");
    // A message published before the subscription is restored may be lost, so publishing is repeated until
    // one arrives.
    let message = loop {
        let _ = client.publish("again", "x".into()).await;
        match tokio::time::timeout(Duration::from_millis(100), again.next()).await {
            Ok(message) => break message,
            Err(_) => continue,
        }
    };
    assert_eq!(message.expect("the subscription lives").payload, "x");
    Ok(())
}
