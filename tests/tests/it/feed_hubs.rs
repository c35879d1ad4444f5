//! Hubs that the feed joins by `leafnodes` of a nats.conf, and after a reload.

use std::time::Duration;

use async_nats::Client;
use futures_util::StreamExt as _;
use serde_json::Value;
use tests::{
    PATIENCE, eventually,
    feed::Feed,
    hub::{Hub, OPEN},
};

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Returns configuration lines that join these hubs.
fn remotes(lines: &[String]) -> String {
    format!("leafnodes {{ remotes = [\n{}\n] }}", lines.join("\n"))
}

fn remote(hub: &Hub) -> String {
    format!("{{ url: \"{}\" }}", hub.url())
}

/// Returns the hub at this port from `/leafz`.
fn shown(feed: &Feed, hub: &Hub) -> Value {
    let page = feed.page("/leafz");
    let hubs = page["hubs"].as_array().cloned().unwrap_or_default();
    let is_it = |one: &&Value| {
        one["address"].as_str().is_some_and(|address| address.ends_with(&hub.leaf_port().to_string()))
    };
    hubs.iter().find(is_it).cloned().unwrap_or_default()
}

fn is_joined(feed: &Feed, hub: &Hub) -> bool {
    shown(feed, hub)["is_joined"] == true
}

async fn connect(address: std::net::SocketAddr) -> Client {
    async_nats::ConnectOptions::new()
        .connection_timeout(PATIENCE)
        .request_timeout(Some(Duration::from_secs(2)))
        .connect(address.to_string())
        .await
        .expect("it is let in")
}

/// Answers requests on a subject for as long as its client is connected.
async fn answer(client: &Client, subject: &str, with: &'static str) -> Outcome {
    let mut asked = client.subscribe(subject.to_owned()).await?;
    client.flush().await?;
    let client = client.clone();
    tokio::spawn(async move {
        while let Some(question) = asked.next().await {
            if let Some(reply) = question.reply {
                let _ = client.publish(reply, with.into()).await;
            }
        }
    });
    Ok(())
}

/// Waits until a service's answer is `wanted`; an empty `wanted` waits until no service answers.
async fn until_answer(from: &Client, subject: &str, wanted: &str) {
    let asking = async {
        loop {
            let answer = from.request(subject.to_owned(), "".into()).await;
            let said = match &answer {
                Ok(message) => String::from_utf8_lossy(&message.payload).into_owned(),
                Err(_) => String::new(),
            };
            if said == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking)
        .await
        .unwrap_or_else(|_| panic!("{subject} is never answered with {wanted:?}"));
}

/// A hub that stays configured keeps its connection; the subscriptions of a removed one are dropped on all
/// cores.
#[tokio::test(flavor = "multi_thread")]
async fn f9_hubs_follow_a_reload() -> Outcome {
    let (Some(stays), Some(goes), Some(comes)) = (Hub::open(), Hub::open(), Hub::open()) else {
        return Ok(());
    };
    let feed = Feed::start_joined(&remotes(&[remote(&stays), remote(&goes)]), &["--cores", "0,1"]);
    eventually("both are joined", || is_joined(&feed, &stays) && is_joined(&feed, &goes));
    let one = connect(feed.address()).await;
    let other = connect(feed.address()).await;
    let (there, gone) = (connect(stays.address()).await, connect(goes.address()).await);
    answer(&there, "ask.stays", "stays").await?;
    answer(&gone, "ask.goes", "goes").await?;
    answer(&one, "ask.here", "here").await?;
    for from in [&one, &other] {
        until_answer(from, "ask.stays", "stays").await;
        until_answer(from, "ask.goes", "goes").await;
    }
    until_answer(&gone, "ask.here", "here").await;
    let connection = shown(&feed, &stays)["connections"].clone();

    // Messages to the remaining hub continue, all of them and once each.
    let mut numbers = there.subscribe("numbers").await?;
    there.flush().await?;
    until_answer(&one, "ask.stays", "stays").await;
    let sending = one.clone();
    let counted = tokio::spawn(async move {
        for number in 0..2000_u32 {
            sending.publish("numbers", number.to_string().into()).await.expect("it is sent");
            if number % 20 == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    });
    feed.reload(&remotes(&[remote(&comes), remote(&stays)]));
    counted.await?;
    for number in 0..2000_u32 {
        let message = tokio::time::timeout(PATIENCE, numbers.next()).await?.expect("a message");
        assert_eq!(message.payload, number.to_string());
    }
    eventually("the new one is joined", || is_joined(&feed, &comes));
    assert!(shown(&feed, &goes).is_null(), "{}", feed.page("/leafz"));
    assert_eq!(shown(&feed, &stays)["connections"], connection, "its connection was left alone");
    for from in [&one, &other] {
        until_answer(from, "ask.stays", "stays").await;
        until_answer(from, "ask.goes", "").await;
    }
    until_answer(&gone, "ask.here", "").await;
    let new = connect(comes.address()).await;
    until_answer(&new, "ask.here", "here").await;
    answer(&new, "ask.comes", "comes").await?;
    until_answer(&other, "ask.comes", "comes").await;

    // An invalid configuration changes nothing.
    let wrong = remotes(&[format!("{{ url: \"{}\", account: NOBODY }}", stays.url())]);
    feed.reload(&wrong);
    assert!(feed.printed().contains("does not exist"), "{}", feed.printed());
    assert!(is_joined(&feed, &stays) && is_joined(&feed, &comes));

    // First no hub; then a hub that is configured again learns all local subscriptions at once.
    feed.reload("");
    eventually("all are left", || feed.page("/leafz")["leafnodes"] == 0);
    until_answer(&one, "ask.stays", "").await;
    feed.reload(&remotes(&[remote(&goes)]));
    until_answer(&gone, "ask.here", "here").await;
    until_answer(&other, "ask.goes", "goes").await;
    Ok(())
}

/// A hub that cannot be reached, or sends nothing, can be replaced by another.
#[tokio::test(flavor = "multi_thread")]
async fn f9_an_unreachable_hub_can_be_replaced() -> Outcome {
    let Some(hub) = Hub::open() else { return Ok(()) };
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    for away in [silent.local_addr()?, nobody] {
        let feed = Feed::start_joined(&remotes(&[format!("{{ url: \"{away}\" }}")]), &[]);
        eventually("it is tried", || feed.page("/leafz")["hubs"][0]["attempts"].as_u64() > Some(0));
        feed.reload(&remotes(&[remote(&hub)]));
        eventually("another is joined", || is_joined(&feed, &hub));
        assert_eq!(feed.page("/leafz")["hubs"].as_array().map(Vec::len), Some(1));
    }
    Ok(())
}

/// The configuration of a nats-server that is a leaf node works for ours, too: user and password, an account,
/// and subjects that do not cross the connection.
#[tokio::test(flavor = "multi_thread")]
async fn f9_leafnodes_of_a_nats_conf_are_joined() -> Outcome {
    let lines = format!(
        "accounts {{ SHOP {{ users = [ {{ user: shop, password: shop }} ] }}, OTHER {{ users = [ {{ user: o, password: o }} ] }} }}\n{OPEN}"
    );
    let Some(hub) = Hub::start(&lines) else { return Ok(()) };
    let lines = format!(
        "accounts {{ HERE {{ users = [ {{ user: here, password: here }} ] }} }}\n\
         leafnodes {{ reconnect: 2s\n remotes = [ {{ url: \"nats-leaf://shop:shop@127.0.0.1:{}\", account: HERE, \
         deny_imports: \"keep.in.>\", deny_exports: [\"keep.out\"] }} ] }}",
        hub.leaf_port()
    );
    let ours = |lines: &str| Some(Feed::start_joined(lines, &[]));
    for start in [&ours as &dyn Fn(&str) -> Option<Feed>, &Feed::start_nats_server] {
        let Some(feed) = start(&lines) else { continue };
        eventually("it has joined", || feed.page("/leafz")["leafnodes"] == 1);
        let (here, there) = (login(feed.address(), "here").await?, login(hub.address(), "shop").await?);
        answer(&here, "ask.here", "here").await?;
        answer(&there, "ask.there", "there").await?;
        until_answer(&here, "ask.there", "there").await;
        until_answer(&there, "ask.here", "here").await;
        for (from, to, passes) in [(&here, &there, "keep.in.x"), (&there, &here, "keep.out")] {
            let mut to = to.subscribe("keep.>").await?;
            let mut heard = Vec::new();
            while heard.len() < 5 {
                for subject in ["keep.out", "keep.in.x", "keep.last"] {
                    from.publish(subject, "".into()).await?;
                }
                while let Ok(Some(message)) = tokio::time::timeout(Duration::from_millis(50), to.next()).await
                {
                    heard.push(message.subject.to_string());
                }
            }
            let mut wanted = vec!["keep.last", passes];
            wanted.sort_unstable();
            // nats-server also keeps a subject of `deny_imports` from the hub.
            let is_nats_server = feed.printed().contains("Starting nats-server");
            heard.extend(
                ["keep.in.x".to_owned()].into_iter().filter(|_| is_nats_server && passes == "keep.in.x"),
            );
            heard.sort();
            heard.dedup();
            assert_eq!(heard, wanted, "{}", feed.printed());
        }
    }
    Ok(())
}

/// An account's imports reach its hub, as with a nats-server as the leaf node: a stream under its local name,
/// a service, and mapped subjects.
#[tokio::test(flavor = "multi_thread")]
async fn f9_imports_of_an_account_reach_its_hub() -> Outcome {
    let Some(hub) = Hub::open() else { return Ok(()) };
    let lines = |prefix: &str, mappings: &str| {
        format!(
            "accounts {{ A {{ users = [ {{ user: a, password: a }} ], exports = [ {{ stream: \"a.>\" }}, {{ service: time }} ] }}, \
             B {{ users = [ {{ user: b, password: b }} ], mappings {{ {mappings} }}, imports = [ \
             {{ stream {{ account: A, subject: \"a.>\" }}, prefix: {prefix} }}, \
             {{ service {{ account: A, subject: time }}, to: clock }} ] }} }}\n\
             leafnodes {{ remotes = [ {{ url: \"{}\", account: B }} ] }}",
            hub.url()
        )
    };
    let first = lines("p", "\"old.*\": \"new.$1\"");
    let ours = |lines: &str| Some(Feed::start_joined(lines, &["--cores", "0,1"]));
    for start in [&ours as &dyn Fn(&str) -> Option<Feed>, &Feed::start_nats_server] {
        let Some(feed) = start(&first) else { continue };
        eventually("it has joined", || feed.page("/leafz")["leafnodes"] == 1);
        let there = connect(hub.address()).await;
        // Several connections, so that both cores have some.
        for _ in 0..3 {
            let (a, b) = (login(feed.address(), "a").await?, login(feed.address(), "b").await?);
            answer(&a, "time", "noon").await?;
            until_answer(&there, "clock", "noon").await;
            hears(&a, &there, ("a.x.y", "p.a.x.y", None)).await?;
            hears(&a, &there, ("a.x", "p.a.*", None)).await?;
            hears(&a, &there, ("a.x", "p.a.x", Some("group"))).await?;
            hears(&there, &b, ("old.7", "new.7", None)).await?;
        }
        // nats-server delivers nothing to queue groups through a mapping, and tells a hub of changes only
        // when it joins again.
        if feed.printed().contains("Starting nats-server") {
            continue;
        }
        let b = login(feed.address(), "b").await?;
        hears(&there, &b, ("old.7", "new.*", Some("group"))).await?;
        let a = login(feed.address(), "a").await?;
        let mut before = there.subscribe("p.a.>").await?;
        let mut now = there.subscribe("q.a.>").await?;
        there.flush().await?;
        hears(&a, &there, ("a.z", "p.a.z", None)).await?;
        feed.reload(&lines("q", ""));
        hears(&a, &there, ("a.after", "q.a.after", None)).await?;
        let until = |message: async_nats::Message| message.subject.as_str() == "q.a.after";
        while !until(tokio::time::timeout(PATIENCE, now.next()).await?.expect("a message")) {}
        while let Ok(Some(message)) = tokio::time::timeout(Duration::from_millis(20), before.next()).await {
            assert_ne!(message.subject.as_str(), "p.a.after");
        }
        answer(&there, "old.7", "there").await?;
        let b = login(feed.address(), "b").await?;
        until_answer(&b, "old.7", "there").await;
    }
    Ok(())
}

async fn login(address: std::net::SocketAddr, user: &str) -> Result<Client, async_nats::ConnectError> {
    let options = async_nats::ConnectOptions::new().user_and_password(user.to_owned(), user.to_owned());
    options.request_timeout(Some(Duration::from_secs(2))).connect(address.to_string()).await
}

/// Publishes on a subject until a subscriber of the pattern receives a message, and checks that later
/// messages arrive once each and in order.
async fn hears(from: &Client, to: &Client, (subject, pattern, queue): (&str, &str, Option<&str>)) -> Outcome {
    let mut subscriber = match queue {
        Some(queue) => to.queue_subscribe(pattern.to_owned(), queue.to_owned()).await?,
        None => to.subscribe(pattern.to_owned()).await?,
    };
    to.flush().await?;
    let mut sent = 0;
    let hearing = async {
        loop {
            from.publish(subject.to_owned(), sent.to_string().into()).await?;
            sent += 1;
            if let Ok(Some(first)) = tokio::time::timeout(Duration::from_millis(50), subscriber.next()).await
            {
                return Ok::<_, async_nats::PublishError>(first);
            }
        }
    };
    let first = tokio::time::timeout(PATIENCE, hearing)
        .await
        .unwrap_or_else(|_| panic!("{subject} is not heard as {pattern}"))?;
    let mut next: usize = std::str::from_utf8(&first.payload)?.parse()?;
    for number in sent..sent + 20 {
        from.publish(subject.to_owned(), number.to_string().into()).await?;
    }
    while next + 1 < sent + 20 {
        let message = tokio::time::timeout(PATIENCE, subscriber.next()).await?.expect("a message");
        next += 1;
        assert_eq!(message.payload, next.to_string(), "each once, in order: {subject} as {pattern}");
    }
    Ok(())
}
