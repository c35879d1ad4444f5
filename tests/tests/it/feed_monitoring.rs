//! Monitoring pages, requested as NATS's tools do: fields, sorting, paging; and the server's own end.
//!
//! With `NIGHTTRAIN_FEED_PEER=/path/to/nats-server`, the same requests go to nats-server.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use rustix::process::Signal;
use tests::{PATIENCE, eventually, feed::Feed};

/// Fields that `nats top`, the Prometheus exporter and dashboards read.
const VARZ: [&str; 30] = [
    "server_id",
    "server_name",
    "version",
    "proto",
    "host",
    "port",
    "max_connections",
    "ping_interval",
    "ping_max",
    "http_port",
    "max_control_line",
    "max_payload",
    "max_pending",
    "write_deadline",
    "start",
    "now",
    "uptime",
    "mem",
    "cores",
    "cpu",
    "connections",
    "total_connections",
    "routes",
    "in_msgs",
    "out_msgs",
    "in_bytes",
    "out_bytes",
    "slow_consumers",
    "subscriptions",
    "http_req_stats",
];
const CONNZ: [&str; 17] = [
    "cid",
    "kind",
    "type",
    "ip",
    "port",
    "start",
    "last_activity",
    "uptime",
    "idle",
    "pending_bytes",
    "in_msgs",
    "out_msgs",
    "in_bytes",
    "out_bytes",
    "subscriptions",
    "lang",
    "name",
];

/// Opens a connection, sends these lines and a PING, and waits for the PONG.
fn say(feed: &Feed, words: &str) -> TcpStream {
    let mut stream = TcpStream::connect(feed.address()).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(words.as_bytes()).expect("it reads");
    stream.write_all(b"PING\r\n").expect("it reads");
    let mut heard = Vec::new();
    let mut some = [0; 4096];
    while !heard.windows(6).any(|six| six == b"PONG\r\n") {
        let bytes = stream.read(&mut some).expect("an answer");
        assert!(bytes > 0, "closed: {}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&some[..bytes]);
    }
    stream
}

const HELLO: &str = "CONNECT {\"verbose\":false,\"user\":\"a\",\"pass\":\"b\",\"name\":\"one\",\"lang\":\"x\",\"version\":\"1\"}\r\n";

#[test]
fn the_pages_have_the_fields_that_tools_read() {
    let feed = Feed::start("authorization { user: a, password: b }");
    let _consumer = say(&feed, &format!("{HELLO}SUB a.* q 1\r\nSUB b 2\r\nUNSUB 2 5\r\n"));
    let gone = say(&feed, &format!("{HELLO}PUB b 2\r\nhi\r\nPUB nobody 3\r\nhi!\r\n"));
    drop(gone);
    eventually("one has left", || feed.page("/connz")["num_connections"] == 1);

    let varz = feed.page("/varz");
    for field in VARZ {
        assert!(!varz[field].is_null(), "{field} is not in {varz}");
    }
    assert_eq!((&varz["in_msgs"], &varz["in_bytes"]), (&2.into(), &5.into()));
    assert_eq!((&varz["out_msgs"], &varz["out_bytes"]), (&1.into(), &2.into()));
    assert_eq!(varz["auth_required"], true);
    assert_eq!(varz["ping_interval"], 120_000_000_000_u64);

    let connz = feed.page("/connz?subs=detail&auth=1");
    let one = &connz["connections"][0];
    for field in CONNZ {
        assert!(!one[field].is_null(), "{field} is not in {one}");
    }
    assert_eq!((&one["authorized_user"], &one["name"]), (&"a".into(), &"one".into()));
    assert_eq!(
        (&one["type"], &one["kind"], &one["subscriptions"]),
        (&"nats".into(), &"Client".into(), &2.into())
    );
    let mut details = one["subscriptions_list_detail"].as_array().expect("a list").clone();
    details.sort_by_key(|detail| detail["sid"].to_string());
    assert_eq!((&details[0]["subject"], &details[0]["qgroup"]), (&"a.*".into(), &"q".into()));
    assert_eq!((&details[1]["msgs"], &details[1]["max"]), (&1.into(), &5.into()));

    // The closed connections include the one with which the harness checked that the port is open.
    let closed = feed.page("/connz?state=closed");
    let gone = closed["connections"].as_array().expect("a list").iter().find(|one| one["in_msgs"] == 2);
    assert_eq!(gone.expect("the producer")["reason"], "Client Closed");
    let any = feed.page("/connz?state=any&limit=1");
    assert_eq!((&any["num_connections"], &any["limit"]), (&1.into(), &1.into()));
    assert_eq!(any["total"].as_u64(), closed["total"].as_u64().map(|total| total + 1));
    for sort in [
        "cid",
        "start",
        "subs",
        "pending",
        "msgs_to",
        "msgs_from",
        "bytes_to",
        "bytes_from",
        "last",
        "idle",
        "uptime",
        "rtt",
    ] {
        assert_eq!(feed.page(&format!("/connz?sort={sort}"))["num_connections"], 1, "{sort}");
    }
    for wrong in ["/connz?sort=foo", "/connz?sort=stop", "/connz?limit=x", "/connz?state=x", "/connz?subs=x"]
    {
        assert_eq!(feed.ask(wrong).0, 400, "{wrong}");
    }

    let subsz = feed.page("/subsz?subs=1");
    let listed: Vec<&str> = subsz["subscriptions_list"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["subject"].as_str())
        .collect();
    assert!(listed.contains(&"a.*") && listed.contains(&"b"), "{listed:?}");
    let tested = feed.page("/subsz?subs=1&test=a.x");
    assert_eq!(tested["total"], 1, "{tested}");
    assert_eq!(feed.page("/routez")["num_routes"], 0);
    assert_eq!(feed.page("/leafz")["leafnodes"], 0);
    assert_eq!(feed.page("/healthz")["status"], "ok");
    assert_eq!(feed.ask("/nosuch").0, 404);
}

#[test]
fn a_stopping_server_announces_lame_duck_mode() {
    let mut feed = Feed::start("lame_duck_duration: 30s");
    let mut client = say(&feed, "CONNECT {\"verbose\":false,\"protocol\":1}\r\n");
    let signal = if tests::feed::peer().is_some() { Signal::USR2 } else { Signal::TERM };
    feed.signal(signal);
    let mut heard = String::new();
    let mut some = [0; 4096];
    while !heard.contains("\"ldm\":true") {
        let bytes = client.read(&mut some).expect("an INFO");
        assert!(bytes > 0, "closed before it was told: {heard}");
        heard.push_str(&String::from_utf8_lossy(&some[..bytes]));
    }
    drop(client);
    let status = feed.wait();
    assert!(status.success(), "{status}");
}
