//! Imports and exports between accounts, compared with nats-server's own behaviour: our server on one core
//! and on two, and nats-server if it is installed, get the same files and the same conversations.

use std::{
    collections::BTreeMap,
    fs,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
};

use feed::{
    Config, Server,
    nats_config::{self, Surroundings},
};

mod cases;
mod own;

use cases::CASES;

use crate::common::{Client, Got, start, wait_until};

/// Surroundings of a file that refers to nothing outside itself.
pub(crate) struct Nothing;

impl Surroundings for Nothing {
    fn file(&self, path: &Path) -> Result<String, String> {
        Err(format!("{} is not here", path.display()))
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn address_of(&self, name: &str) -> Result<IpAddr, String> {
        Err(format!("{name} means nothing here"))
    }
}

/// A conversation: what each client sends, in order.
struct Case {
    name: &'static str,
    accounts: &'static str,
    /// `b PUB q i` publishes a message of four letters with the reply subject `i`; `{reply}` is the last
    /// reply subject that this client received, `~` the empty message. A client belongs to account A, B, C or
    /// D; `b2` is another client of B, `bo` a client without headers.
    said: &'static [&'static str],
    /// Any of several clients may get a message: only their messages together are compared.
    any: bool,
}

const USERS: [(&str, char); 4] = [("a", 'A'), ("b", 'B'), ("c", 'C'), ("d", 'D')];

/// A configuration file with the accounts of a case, and one user in each.
fn file(accounts: &str) -> String {
    let mut text = format!(" {accounts}");
    for (user, account) in USERS {
        let users = format!("users: [ {{user: {user}, password: x}} ]");
        match text.contains(&format!(" {account} {{")) {
            true => text = text.replacen(&format!(" {account} {{"), &format!("\n{account} {{ {users}\n "), 1),
            false => text += &format!("\n{account} {{ {users} }}"),
        }
    }
    format!("accounts {{ {text} \n}}\n")
}

/// The clients of a conversation.
struct Talk {
    address: SocketAddr,
    clients: BTreeMap<String, (Client, String)>,
}

impl Talk {
    fn new(address: SocketAddr, case: &Case) -> Self {
        let mut talk = Self { address, clients: BTreeMap::new() };
        for said in case.said {
            talk.client(said.split(' ').next().expect("a name"));
        }
        talk
    }

    fn client(&mut self, name: &str) -> &mut (Client, String) {
        let address = self.address;
        self.clients.entry(name.to_owned()).or_insert_with(|| {
            let mut client = Client::to(address);
            let headers = !name.ends_with('o');
            let connect = format!(
                "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":{headers},\"no_responders\":{headers},\
                 \"name\":\"{name}\",\"lang\":\"rust\",\"version\":\"1\",\"user\":\"{}\",\"pass\":\"x\"}}\r\n",
                &name[..1]
            );
            client.send(connect.as_bytes());
            client.ping();
            (client, String::new())
        })
    }

    /// Sends one operation, and returns what each client receives.
    fn say(&mut self, said: &str) -> Vec<(String, String)> {
        let words: Vec<&str> = said.split(' ').collect();
        let (client, reply) = self.client(words[0]);
        let given = |word: &&str| word.replace("{reply}", reply);
        let subject = words.get(2).map(given).unwrap_or_default();
        let text = match words[1] {
            "PUB" => {
                let (answer, body) = match words.get(3) {
                    None => ("", "text"),
                    Some(&"~") => ("", ""),
                    Some(answer) => (*answer, "text"),
                };
                format!("PUB {subject} {answer} {}\r\n{body}\r\n", body.len())
            }
            "HPUB" => {
                let header = format!("NATS/1.0\r\n{}\r\n\r\n", words[3]);
                format!("HPUB {subject} {} {}\r\n{header}text\r\n", header.len(), header.len() + 4)
            }
            _ => format!("{}\r\n", words[1..].join(" ")),
        };
        client.send(text.as_bytes());
        let mut got = vec![(words[0].to_owned(), client.until_pong())];
        // A message to another core and back has arrived once that core's clients and then ours have got a
        // PONG.
        for _ in 0..2 {
            got.extend(
                self.clients.iter_mut().map(|(name, (client, _))| (name.clone(), client.until_pong())),
            );
        }
        let mut heard = Vec::new();
        for (name, got) in got {
            for got in got {
                if let Got::Message { reply: wanted, .. } = &got
                    && !wanted.is_empty()
                {
                    self.client(&name).1.clone_from(wanted);
                }
                heard.push((name.clone(), shown(got)));
            }
        }
        heard
    }
}

/// A received operation as text, without what differs from server to server.
fn shown(got: Got) -> String {
    let named = |text: &str| match text.split_once("_R_.") {
        Some((before, _)) => format!("{before}_R_"),
        None => text.to_owned(),
    };
    match got {
        Got::Message { subject, sid, reply, header, payload } => {
            let lines: Vec<String> = String::from_utf8_lossy(&header).lines().map(header_line).collect();
            let payload = String::from_utf8_lossy(&payload).into_owned();
            format!("{} {sid} [{}] {lines:?} {payload}", named(&subject), named(&reply))
        }
        got => format!("{got:?}"),
    }
}

fn header_line(line: &str) -> String {
    if let Some(subject) = line.strip_prefix("Nats-Subject: _R_.") {
        return format!("Nats-Subject: _R_ {}", subject.is_empty());
    }
    let Some(json) = line.strip_prefix("Nats-Request-Info: ") else { return line.to_owned() };
    let who: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let all = who.as_object().expect("an object").iter().filter(|(key, _)| *key != "rtt");
    let all = all.map(|(key, value)| match key.as_str() {
        "start" | "id" | "server" => key.clone(),
        _ => format!("{key}={value}"),
    });
    format!("Nats-Request-Info {}", all.collect::<Vec<_>>().join(" "))
}

/// Runs a whole conversation; returns all that the clients received.
fn heard(address: SocketAddr, case: &Case) -> Vec<String> {
    let mut talk = Talk::new(address, case);
    let mut all = Vec::new();
    for said in case.said {
        let heard = talk.say(said);
        let together = |(name, what): (String, String)| match case.any {
            true => what
                .split_once(' ')
                .map_or(what.clone(), |(subject, rest)| format!("{subject} {}", &rest[1..])),
            false => format!("{name}: {what}"),
        };
        let mut lines: Vec<String> = heard.into_iter().map(together).collect();
        // The order among a client's subscriptions is not specified.
        lines.sort();
        all.push(format!("-- {said}"));
        all.extend(lines);
    }
    all
}

fn config_of(text: &str) -> Config {
    let (options, passed_over) =
        nats_config::read(text, Path::new("nats.conf"), &Nothing).expect("it is sound");
    assert_eq!(passed_over, []);
    Config { authorization: options.authorization, ..Config::default() }
}

fn ours(loops: usize, text: &str) -> Server {
    start(loops, |config| config.authorization = config_of(text).authorization)
}

/// A running nats-server, if it is installed.
struct Peer {
    child: Child,
    address: SocketAddr,
    _kept: tempfile::TempDir,
}

const NATS_SERVER: &str = "/usr/local/bin/nats-server";

impl Peer {
    fn start(text: &str) -> Option<Self> {
        if !Path::new(NATS_SERVER).is_file() {
            return None;
        }
        let kept = tempfile::tempdir().expect("a directory");
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a port").port();
        let path = kept.path().join("nats.conf");
        fs::write(&path, format!("listen: \"127.0.0.1:{port}\"\n{text}")).expect("a file");
        let mut command = Command::new(NATS_SERVER);
        command.arg("-c").arg(&path).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("it starts");
        let mut peer = Self { child, address: SocketAddr::from(([127, 0, 0, 1], port)), _kept: kept };
        wait_until("nats-server listens", || {
            assert!(peer.child.try_wait().expect("waitpid works").is_none(), "nats-server ended: {text}");
            TcpStream::connect(peer.address).is_ok()
        });
        Some(peer)
    }

    /// Returns whether nats-server refuses a file; `None` if it is not installed.
    fn refuses(text: &str) -> Option<bool> {
        if !Path::new(NATS_SERVER).is_file() {
            return None;
        }
        let kept = tempfile::tempdir().expect("a directory");
        let path = kept.path().join("nats.conf");
        fs::write(&path, text).expect("a file");
        let checked = Command::new(NATS_SERVER).arg("-t").arg("-c").arg(&path).output().expect("it starts");
        Some(!checked.status.success())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn account_imports_and_exports_match_nats_server() {
    let mut differ = Vec::new();
    for case in CASES {
        let text = file(case.accounts);
        let one = heard(ours(1, &text).addresses()[0], case);
        let two = heard(ours(2, &text).addresses()[0], case);
        if one != two {
            differ.push(format!("{}: one core and two\n{}", case.name, difference(&one, &two)));
        }
        let Some(peer) = Peer::start(&text) else {
            eprintln!("left out: there is no nats-server here to compare with (bench/install-feed-peers.sh)");
            continue;
        };
        let theirs = heard(peer.address, case);
        if one != theirs {
            differ.push(format!("{}: ours and nats-server's\n{}", case.name, difference(&one, &theirs)));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
}

fn difference(one: &[String], other: &[String]) -> String {
    let show = |lines: &[String]| lines.join("\n   ");
    format!("   {}\n ----\n   {}", show(one), show(other))
}
