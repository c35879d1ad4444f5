//! Mapped subjects, compared with nats-server: both get the same configuration and the same messages.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write as _},
    net::TcpStream,
};

use tests::{PATIENCE, feed::Feed};

const FILE: &str = r#"
mappings = {
  plain: other
  "a.*.*": "b.$2.$1"
  "c.*.>": "d.{{wildcard(1)}}.x.>"
  "part.*.*": "part.{{partition(7,1,2)}}.$1.$2"
  "few.*": "few.{{partition(3,1)}}"
  "sl.*": "sl.{{SplitFromLeft(1,3)}}"
  "sr.*": "sr.{{splitFromRight(1,3)}}"
  "cl.*": "cl.{{sliceFromLeft(1,3)}}"
  "cr.*": "cr.{{SliceFromRight(1,3)}}"
  "sp.*": "sp.{{split(1,-)}}"
  "money.*": "$1.$US"
  whole: [ { destination: new, weight: 100% } ]
  other.region: [ { destination: far, weight: 100, cluster: elsewhere } ]
  back: back
}
accounts {
  A { users: [ {user: a, password: x, permissions: {publish: ["out.>", "free"], subscribe: ">"}} ]
      mappings { "in.*": "out.$1", free: "kept.free", "out.*": "in.$1" } }
}
no_auth_user: nobody
authorization { users: [ {user: nobody, password: x} ] }
"#;

/// Subjects without a match, subjects with empty pieces at the edges of a split, and each function with
/// short, fitting and long tokens.
const PUBLISHED: [&str; 34] = [
    "plain",
    "plain.more",
    "a.x.y",
    "a.x",
    "a.x.y.z",
    "c.x.y",
    "c.x.y.z",
    "c.x",
    "part.ann.1",
    "part.bob.2",
    "part.ann.2",
    "few.a",
    "few.b",
    "few.c",
    "few.longer",
    "sl.1",
    "sl.123",
    "sl.1234",
    "sl.1234567",
    "sr.123",
    "sr.1234",
    "sr.1234567",
    "cl.12",
    "cl.123",
    "cl.123456",
    "cl.1234567",
    "cr.1234567",
    "cr.12",
    "sp.a-b",
    "sp.-a--b-",
    "money.x",
    "whole",
    "other.region",
    "back",
];

struct Client(TcpStream);

impl Client {
    fn new(feed: &Feed, user: &str) -> Self {
        let mut client = Self(TcpStream::connect(feed.address()).expect("it listens"));
        client.0.set_read_timeout(Some(PATIENCE)).expect("an option");
        client.say(&format!("CONNECT {{\"verbose\":false,\"pedantic\":false{user}}}\r\nSUB > 1\r\n"));
        client
    }

    /// Sends lines and a PING, and returns all that arrives up to the PONG.
    fn say(&mut self, words: &str) -> String {
        self.0.write_all(format!("{words}PING\r\n").as_bytes()).expect("sent");
        let mut heard = Vec::new();
        let mut some = [0; 65536];
        while !heard.ends_with(b"PONG\r\n") {
            let bytes = self.0.read(&mut some).expect("an answer");
            assert!(bytes > 0, "closed: {}", String::from_utf8_lossy(&heard));
            heard.extend_from_slice(&some[..bytes]);
        }
        String::from_utf8(heard).expect("text")
    }

    /// Publishes a message, and returns the subjects on which it arrives and any errors.
    fn publish(&mut self, subject: &str) -> Vec<String> {
        let heard = self.say(&format!("PUB {subject} 0\r\n\r\n"));
        let told = heard.lines().filter(|line| line.starts_with("MSG ") || line.starts_with("-ERR"));
        told.map(str::to_owned).collect()
    }
}

/// Returns the result of each message.
fn all_of(feed: &Feed) -> BTreeMap<String, Vec<String>> {
    let mut open = Client::new(feed, "");
    let mut all: BTreeMap<String, Vec<String>> =
        PUBLISHED.iter().map(|subject| ((*subject).to_owned(), open.publish(subject))).collect();
    let mut a = Client::new(feed, ",\"user\":\"a\",\"pass\":\"x\"");
    for subject in ["in.x", "out.x", "free", "kept.free"] {
        all.insert(format!("A: {subject}"), a.publish(subject));
    }
    all
}

#[test]
fn subjects_become_what_nats_server_makes_of_them() {
    let ours = all_of(&Feed::start(FILE));
    assert_eq!(ours["a.x.y"], ["MSG b.y.x 1 0"]);
    assert_eq!(ours["A: in.x"], ["MSG out.x 1 0"]);
    let Some(peer) = Feed::start_nats_server(FILE) else {
        eprintln!("left out: there is no nats-server here to compare with (bench/install-feed-peers.sh)");
        return;
    };
    assert_eq!(ours, all_of(&peer));
}

/// Counts the messages that arrive under each subject, of a thousand published.
fn shares(feed: &Feed) -> BTreeMap<String, u32> {
    let mut client = Client::new(feed, "");
    let mut shares = BTreeMap::new();
    let words = "PUB w.x 0\r\n\r\n".repeat(1000) + &"PUB lossy 0\r\n\r\n".repeat(1000);
    for line in client.say(&words).lines().filter_map(|line| line.strip_prefix("MSG ")) {
        *shares.entry(line.split(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
    }
    shares
}

#[test]
fn weights_share_messages_as_nats_server_shares_them() {
    let file = "mappings { \"w.*\": [ {destination: \"b.$1\", weight: 20%}, {destination: \"c.$1\", weight: 50} ]\n\
                lossy: [ {destination: lossy, weight: 60}, {destination: other, weight: 10} ] }\n";
    let mut all = vec![Feed::start(file)];
    all.extend(Feed::start_nats_server(file));
    for feed in &all {
        let shares = shares(feed);
        // A tolerance of six standard deviations on each side.
        for (subject, expected) in [("b.x", 200), ("c.x", 500), ("w.x", 300), ("lossy", 600), ("other", 100)]
        {
            let share = shares.get(subject).copied().unwrap_or(0);
            assert!(share.abs_diff(expected) < 100, "{subject}: {share} of 1000 in {shares:?}");
        }
        assert_eq!(shares.len(), 5, "{shares:?}");
    }
}
