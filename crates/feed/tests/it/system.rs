//! Requests in the system account, as nats-server's tools send them.

use std::{net::SocketAddr, sync::Arc};

use crate::common::{Client, Got, start, wait_until};
use crate::looking::MonitoredFeed;
use feed::{
    Counter, Server,
    identity::{Account, Secret, User},
    monitor,
};
use serde_json::{Value, json};

fn account(name: &str, user: &str) -> Account {
    let user = User { user: Some(user.to_owned()), password: Some(Secret::new("x")), ..User::default() };
    Account { name: name.to_owned(), users: vec![user], ..Account::default() }
}

fn server() -> Server {
    start(2, |config| {
        config.server_name = "night-1".to_owned();
        config.server_tags = vec!["eu".to_owned()];
        config.authorization.accounts = vec![account("$SYS", "admin"), account("A", "a")];
    })
}

fn login(server: &Server, user: &str) -> Client {
    let mut client = Client::silent(server);
    let words = format!(
        "{{\"user\":\"{user}\",\"pass\":\"x\",\"verbose\":false,\"name\":\"{user}'s\",\"lang\":\"go\",\"no_responders\":true,\"headers\":true}}"
    );
    client.send(format!("CONNECT {words}\r\n").as_bytes());
    client.ping();
    client
}

/// Publishes a request and returns the answer's JSON.
fn ask(client: &mut Client, subject: &str, options: &str) -> Value {
    client.send(format!("PUB {subject} in.box {}\r\n{options}\r\n", options.len()).as_bytes());
    match client.next() {
        Got::Message { payload, header, .. } if header.is_empty() => {
            serde_json::from_slice(&payload).expect("JSON")
        }
        other => panic!("{subject}: {other:?}"),
    }
}

#[test]
fn tools_ask_the_server() {
    let server = server();
    let mut a = login(&server, "a");
    a.send(b"SUB x.* q 1\r\nSUB y 2\r\nPUB y 2\r\nhi\r\n");
    a.until_pong();
    let mut admin = login(&server, "admin");
    admin.subscribe("in.box", "1");
    // A client that subscribes to all requests does not keep the server from answering.
    let mut eager = login(&server, "admin");
    eager.send(b"SUB $SYS.REQ.> 1\r\n");
    eager.ping();

    let statsz = ask(&mut admin, "$SYS.REQ.SERVER.PING", "");
    let info = &statsz["server"];
    assert_eq!(
        (&info["name"], &info["ver"], &info["tags"]),
        (&"night-1".into(), &"2.10.0".into(), &json!(["eu"]))
    );
    assert!(info["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{info}");
    let stats = &statsz["statsz"];
    for field in [
        "start",
        "mem",
        "cores",
        "cpu",
        "connections",
        "total_connections",
        "active_accounts",
        "subscriptions",
        "sent",
        "received",
        "slow_consumers",
    ] {
        assert!(!stats[field].is_null(), "{field} is not in {stats}");
    }
    assert_eq!((&stats["connections"], &stats["subscriptions"]), (&3.into(), &4.into()));
    let id = info["id"].as_str().expect("an id").to_owned();
    assert_eq!(ask(&mut admin, "$SYS.REQ.SERVER.PING.IDZ", "")["id"], id);

    let varz = ask(&mut admin, &format!("$SYS.REQ.SERVER.{id}.VARZ"), "");
    assert_eq!(varz["data"]["http_port"], 0, "nobody serves the pages");
    let _pages =
        monitor::router(Arc::new(MonitoredFeed(server.looker())), SocketAddr::from(([127, 0, 0, 1], 8222)));
    let varz = ask(&mut admin, &format!("$SYS.REQ.SERVER.{id}.VARZ"), "");
    assert_eq!((&varz["data"]["http_host"], &varz["data"]["http_port"]), (&"127.0.0.1".into(), &8222.into()));
    assert_eq!((&varz["data"]["server_id"], &varz["data"]["connections"]), (&id.into(), &3.into()));
    let connz = ask(
        &mut admin,
        "$SYS.REQ.SERVER.PING.CONNZ",
        r#"{"subscriptions_detail":true,"auth":true,"sort":"msgs_to","limit":1,"state":0,"cid":0,"acc":"A","server_name":"night"}"#,
    );
    let one = &connz["data"]["connections"][0];
    assert_eq!(
        (&one["account"], &one["authorized_user"], &one["name"]),
        (&"A".into(), &"a".into(), &"a's".into())
    );
    assert_eq!(one["subscriptions_list_detail"].as_array().map(Vec::len), Some(2));
    assert_eq!((&connz["data"]["total"], &connz["data"]["limit"]), (&1.into(), &1.into()));
    let subsz =
        ask(&mut admin, "$SYS.REQ.SERVER.PING.SUBSZ", r#"{"subscriptions":true,"account":"A","test":"x.1"}"#);
    assert_eq!(
        (&subsz["data"]["total"], &subsz["data"]["subscriptions_list"][0]["qgroup"]),
        (&1.into(), &"q".into())
    );
    for page in ["ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ"] {
        let answer = ask(&mut admin, &format!("$SYS.REQ.SERVER.PING.{page}"), "{}");
        assert!(answer["data"].is_object() && answer["error"].is_null(), "{page}: {answer}");
    }
    assert_eq!(ask(&mut admin, "$SYS.REQ.SERVER.PING.HEALTHZ", "")["data"]["status"], "ok");
    assert_eq!(ask(&mut admin, "$SYS.REQ.SERVER.PING.JSZ", "")["data"]["disabled"], true);

    let connz = ask(&mut admin, "$SYS.REQ.ACCOUNT.A.CONNZ", "");
    assert_eq!(connz["data"]["num_connections"], 1);
    let info = ask(&mut admin, "$SYS.REQ.ACCOUNT.A.INFO", "");
    assert_eq!((&info["data"]["client_connections"], &info["data"]["subscriptions"]), (&1.into(), &2.into()));
    assert_eq!(
        ask(&mut admin, "$SYS.REQ.SERVER.PING.ACCOUNTZ", r#"{"account":"A"}"#)["data"]["account_detail"]["account_name"],
        "A"
    );
    let statz = ask(&mut admin, "$SYS.REQ.ACCOUNT.PING.STATZ", "");
    let names: Vec<_> =
        statz["data"]["account_statz"].as_array().expect("a list").iter().map(|one| &one["acc"]).collect();
    assert_eq!(names, ["$SYS", "A"], "those that nobody uses are left out");
    let a_statz = ask(&mut admin, "$SYS.REQ.ACCOUNT.A.STATZ", "");
    assert_eq!(a_statz["data"]["account_statz"][0]["received"], json!({"msgs": 1, "bytes": 2}));
    assert_eq!(ask(&mut admin, "$SYS.REQ.ACCOUNT.A.CONNS", "")["conns"], 1);
    assert_eq!(
        ask(&mut admin, "$SYS.REQ.USER.INFO", "")["data"],
        json!({"user": "admin", "account": "$SYS"})
    );

    // Invalid requests get an error; requests for another server get no answer.
    for (subject, options, code) in [
        ("$SYS.REQ.SERVER.PING.CONNZ", "{", 400),
        ("$SYS.REQ.SERVER.PING.CONNZ", r#"{"sort":"nose"}"#, 500),
        ("$SYS.REQ.ACCOUNT.nobody.INFO", "", 500),
        ("$SYS.REQ.SERVER.PING.PROFILEZ", "", 500),
    ] {
        assert_eq!(ask(&mut admin, subject, options)["error"]["code"], code, "{subject}");
    }
    for options in [r#"{"server_name":"day"}"#, r#"{"tags":["us"]}"#, r#"{"cluster":"c"}"#] {
        admin.send(
            format!("PUB $SYS.REQ.SERVER.PING.IDZ in.box {}\r\n{options}\r\n", options.len()).as_bytes(),
        );
    }
    // The next answer is to the next request, so those before had none.
    assert_eq!(ask(&mut admin, "$SYS.REQ.SERVER.PING.IDZ", r#"{"tags":["EU"]}"#)["name"], "night-1");

    // Other accounts get only their own user's data.
    a.send(b"SUB in.box 9\r\n");
    assert_eq!(ask(&mut a, "$SYS.REQ.USER.INFO", "")["data"], json!({"user": "a", "account": "A"}));
    a.send(b"PUB $SYS.REQ.SERVER.PING in.box 0\r\n\r\n");
    let Got::Message { header, .. } = a.next() else { panic!("an answer") };
    assert!(header.starts_with(b"NATS/1.0 503"), "nobody is there to answer");
}

#[test]
fn a_new_statsz_subscriber_gets_current_figures() {
    let server = server();
    let mut admin = login(&server, "admin");
    admin.send(b"SUB $SYS.SERVER.*.STATSZ 1\r\n");
    let Got::Message { subject, payload, .. } = admin.next() else { panic!("a message") };
    let told: Value = serde_json::from_slice(&payload).expect("JSON");
    assert_eq!(subject, format!("$SYS.SERVER.{}.STATSZ", told["server"]["id"].as_str().unwrap_or_default()));
    assert_eq!(told["statsz"]["subscriptions"], 1);
}

#[test]
fn who_comes_and_goes_is_told() {
    let server = server();
    let mut admin = login(&server, "admin");
    admin.send(b"SUB $SYS.ACCOUNT.*.CONNECT 1\r\nSUB $SYS.ACCOUNT.*.DISCONNECT 2\r\nSUB $SYS.SERVER.*.CLIENT.AUTH.ERR 3\r\n");
    admin.ping();
    let mut next = || match admin.next() {
        Got::Message { subject, payload, .. } => {
            (subject, serde_json::from_slice::<Value>(&payload).expect("JSON"))
        }
        other => panic!("{other:?}"),
    };
    let mut a = login(&server, "a");
    let (subject, connected) = next();
    assert_eq!(subject, "$SYS.ACCOUNT.A.CONNECT");
    assert_eq!(connected["type"], "io.nats.server.advisory.v1.client_connect");
    let client = &connected["client"];
    assert_eq!(
        (&client["acc"], &client["user"], &client["name"], &client["lang"]),
        (&"A".into(), &"a".into(), &"a's".into(), &"go".into())
    );
    a.publish("y", b"hi");
    a.ping();
    drop(a);
    let (subject, gone) = next();
    assert_eq!(subject, "$SYS.ACCOUNT.A.DISCONNECT");
    assert_eq!((&gone["reason"], &gone["client"]["id"]), (&"Client Closed".into(), &client["id"]));
    assert_eq!((&gone["sent"]["msgs"], &gone["sent"]["bytes"]), (&1.into(), &2.into()));
    let mut wrong = Client::silent(&server);
    wrong.send(b"CONNECT {\"user\":\"a\",\"pass\":\"y\"}\r\n");
    let (subject, refused) = next();
    assert!(subject.ends_with(".CLIENT.AUTH.ERR"), "{subject}");
    assert_eq!(refused["reason"], "Authentication Failure");
    drop(admin);
    wait_until("nobody listens", || server.counted(Counter::SystemSubscriptions) == 0);
}
