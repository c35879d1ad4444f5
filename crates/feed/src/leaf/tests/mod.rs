//! Tests of messages between cores and hubs, run on cores without sockets and compared with a plain list of
//! all subscriptions.

mod twin_tests;

use std::{net::SocketAddr, rc::Rc, sync::Arc};

use wire::nats::write;

use super::{Remote, Seed};
use crate::{
    accounts::identity::{
        Account, Authorization, Entry, Export, Identities, Import, Mapping, ReservedSubjects, ServiceExport,
        WeightedDestination,
    },
    client::{
        acceptors::Acceptors,
        connection::{ConnId, Transport, Writer},
        serve::Arrival,
        session::ReadOutcome,
    },
    delivery::outputs::Outputs,
    fuzzing::cores_with,
    leaf::info::Info,
    mesh::{
        core::{Core, Local},
        settings::Settings,
    },
};

const HELLO: &[u8] =
    b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\n";
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

fn new_seed(hub: u8) -> Seed {
    Seed {
        hub,
        remote: Remote { addresses: vec!["hub".parse().expect("an address")], ..Remote::default() },
        account: 0,
        account_name: "$G".into(),
        name: "us".to_owned(),
        cluster: "us-1".to_owned(),
        server_id: "N1".to_owned(),
        loop_prefix: "$LDS.N1-".to_owned(),
    }
}

/// Test setup: cores, and hubs that have accepted this server.
struct World {
    locals: Vec<Rc<Local>>,
    hubs: Vec<(usize, ConnId)>,
}

impl World {
    fn new(cores: usize, hubs: u8, info: &str) -> Self {
        Self::of(cores, hubs, info, &Authorization::default())
    }

    fn of(cores: usize, hubs: u8, info: &str, authorization: &Authorization) -> Self {
        Self::with(cores, (0..hubs).map(|hub| Arc::new(new_seed(hub))).collect(), info, authorization)
    }

    fn with(cores: usize, seeds: Vec<Arc<Seed>>, info: &str, authorization: &Authorization) -> Self {
        let seeds: Arc<[Arc<Seed>]> = seeds.into();
        let locals = cores_with(cores, authorization, &seeds);
        let info: Info = serde_json::from_str(info).expect("JSON");
        let mut world = Self { locals, hubs: Vec::new() };
        for seed in seeds.iter() {
            let at = usize::from(seed.hub) % cores;
            let id = {
                let core = &mut *world.locals[at].core.borrow_mut();
                core.hubs.begin(seed);
                let id = core.enter_hub(seed, Writer::Task, Transport::default(), NOWHERE, &info);
                core.outputs.marks = crate::delivery::backlog::Marks::of(1 << 30);
                while !core.announce_some(seed.hub) {}
                core.end_turn();
                id
            };
            world.hubs.push((at, id));
        }
        world.settle();
        world
    }

    fn enter(&self, at: usize) -> (usize, ConnId) {
        let id = {
            let core = &mut *self.locals[at].core.borrow_mut();
            let arrival = Arrival::new(core, NOWHERE, Transport::default());
            core.enter(arrival, Writer::Task, true)
        };
        self.say((at, id), HELLO);
        (at, id)
    }

    /// Delivers everything that is on its way between the cores.
    fn settle(&self) {
        for _ in 0..3 {
            for local in &self.locals {
                let core = &mut *local.core.borrow_mut();
                core.begin_turn();
                local.take_inbox(core);
                core.end_turn();
            }
        }
    }

    /// Executes all operations of a client or a hub.
    fn say(&self, (at, id): (usize, ConnId), bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let core = &mut *self.locals[at].core.borrow_mut();
            if core.outputs.connections[id].closing.is_some() {
                break;
            }
            core.begin_turn();
            let (more, processed) = match core.outputs.connections[id].hub {
                Some(_) => core.process_hub(id, &bytes[done..]),
                None => core.process(id, &bytes[done..]),
            };
            done += more;
            core.end_turn();
            assert!(!matches!(processed, ReadOutcome::More { .. }) || done == bytes.len(), "{processed:?}");
        }
        self.settle();
    }

    /// Takes everything that was sent to a client or a hub since the last call.
    fn take(&self, (at, id): (usize, ConnId)) -> Vec<u8> {
        let core = &mut *self.locals[at].core.borrow_mut();
        let Outputs { connections, chunks, .. } = &mut core.outputs;
        let outbox = &mut connections[id].outbox;
        let mut all = Vec::new();
        while !outbox.is_empty() {
            let front = outbox.front().to_vec();
            outbox.written(chunks, front.len());
            all.extend(front);
        }
        all
    }

    fn text(&self, of: (usize, ConnId)) -> String {
        String::from_utf8(self.take(of)).expect("text")
    }

    fn with_core<T>(&self, at: usize, ask: impl FnOnce(&mut Core) -> T) -> T {
        ask(&mut self.locals[at].core.borrow_mut())
    }
}

const INFO: &str = r#"{"client_id": 1, "leafnode_urls": [], "headers": true, "max_payload": 1000}"#;

/// Returns the lines sent to a hub, except those with loop subjects.
fn told(world: &World, hub: usize) -> String {
    let text = world.text(world.hubs[hub]);
    text.split_inclusive("\r\n").filter(|line| !line.contains("$LDS.")).collect()
}

#[test]
fn subscriptions_of_all_cores_are_announced_once() {
    let world = World::new(2, 1, INFO);
    let (one, other) = (world.enter(0), world.enter(1));
    assert_eq!(told(&world, 0), "");
    world.say(one, b"SUB a.b 1\r\nSUB a.b 2\r\n");
    world.say(other, b"SUB a.b 1\r\n");
    assert_eq!(told(&world, 0), "LS+ a.b\r\n");
    world.say(one, b"UNSUB 1\r\nUNSUB 2\r\n");
    assert_eq!(told(&world, 0), "");
    world.say(other, b"UNSUB 1\r\n");
    assert_eq!(told(&world, 0), "LS- a.b\r\n");
    world.say(other, b"SUB j q 1\r\nSUB j q 2\r\n");
    world.say(one, b"SUB j q 1\r\n");
    assert_eq!(told(&world, 0), "LS+ j q 1\r\nLS+ j q 2\r\nLS+ j q 3\r\n");
    world.say(other, b"UNSUB 1\r\nUNSUB 2\r\n");
    world.say(one, b"UNSUB 1\r\n");
    assert_eq!(told(&world, 0), "LS+ j q 2\r\nLS+ j q 1\r\nLS- j q\r\n");
    // JetStream's own subjects are not announced.
    world.say(one, b"SUB $JS.API.INFO 7\r\nSUB $KV.b.k 8\r\nSUB $JS.ACK.> 9\r\n");
    assert_eq!(told(&world, 0), "LS+ $JS.ACK.>\r\n");
    // A hub that joins later receives announcements of the existing subscriptions.
    world.with_core(0, |core| {
        core.links.tellers.begin(0, 0, super::rules::HubRules::default(), b"$LDS.x", Vec::new());
        while !core.announce_some(0) {}
        core.end_turn();
    });
    assert_eq!(told(&world, 0), "LS+ $JS.ACK.>\r\n");
}

#[test]
fn a_hub_gets_each_message_once_without_echo() {
    let world = World::new(2, 1, INFO);
    let hub = world.hubs[0];
    let (near, far) = (world.enter(0), world.enter(1));
    world.take(hub);
    world.say(hub, b"LS+ a.*\r\nLS+ a.>\r\nLS+ a.b\r\nLS+ j q 2\r\n");
    world.say(near, b"PUB a.b r 2\r\nhi\r\n");
    world.say(far, b"PUB a.b 2\r\nho\r\nPUB a.b 2\r\nho\r\nPUB z 0\r\n\r\n");
    assert_eq!(world.text(hub), "LMSG a.b r 2\r\nhi\r\nLMSG a.b 2\r\nho\r\nLMSG a.b 2\r\nho\r\n");
    // The hub's group gets a message if the group has no member on this server. A request carries its reply
    // subject.
    world.say(far, b"PUB j 1\r\n1\r\nPUB j r 1\r\n2\r\n");
    assert_eq!(world.text(hub), "LMSG j | q 1\r\n1\r\nLMSG j + r q 1\r\n2\r\n");
    world.say(near, b"SUB j q 1\r\n");
    world.take(hub);
    world.say(far, b"PUB j 1\r\n3\r\n");
    assert_eq!(world.text(hub), "");
    assert_eq!(world.text(near), "MSG j 1 1\r\n3\r\n");
    // Headers are passed on; a message longer than the hub's `max_payload` is not sent.
    let header = "HPUB a.b 12 14\r\nNATS/1.0\r\n\r\nhi\r\n";
    world.say(far, header.as_bytes());
    assert_eq!(world.text(hub), header.replace("HPUB", "HMSG"));
    let long = "x".repeat(1001);
    world.say(far, format!("PUB a.b 1001\r\n{long}\r\n").as_bytes());
    assert_eq!(world.text(hub), "");
    // Answers of a hub's JetStream may exceed the hub's own `max_payload`.
    world.say(far, b"SUB answer 8\r\n");
    world.take(hub);
    world.say(hub, format!("LMSG answer 1001\r\n{long}\r\n").as_bytes());
    assert_eq!(world.text(far), format!("MSG answer 8 1001\r\n{long}\r\n"));
    world.say(far, b"UNSUB 8\r\n");
    world.take(hub);
    // A message from a hub is not sent back to it.
    world.say(far, b"SUB a.b 9\r\n");
    world.take(hub);
    world.say(hub, b"LMSG a.b 1\r\n!\r\n");
    assert_eq!((world.text(hub), world.text(far)), (String::new(), "MSG a.b 9 1\r\n!\r\n".to_owned()));
    world.say(hub, b"PING\r\n");
    assert_eq!(world.text(hub), "PONG\r\n");
    // When the hub has withdrawn its interest, there are no responders.
    world.say(hub, b"LS- a.*\r\nLS- a.>\r\nLS- a.b\r\nLS- j q\r\n");
    world.say(far, b"UNSUB 9\r\nSUB r 1\r\nPUB a.b r 0\r\n\r\n");
    assert!(world.text(far).contains("NATS/1.0 503"));
}

#[test]
fn hub_messages_reach_group_members_and_jetstream_consumers() {
    let world = World::new(2, 1, INFO);
    let hub = world.hubs[0];
    let (near, far) = (world.enter(0), world.enter(1));
    world.say(far, b"SUB j q 1\r\nSUB j p 2\r\nSUB j 3\r\nSUB _INBOX.x 4\r\n");
    world.say(near, b"SUB j q 1\r\n");
    let both = || {
        let mut all: Vec<String> =
            [near, far].map(|of| world.text(of)).concat().lines().map(str::to_owned).collect();
        all.sort();
        all
    };
    world.say(hub, b"LMSG j 1\r\na\r\n");
    assert_eq!(both(), ["MSG j 3 1", "a"]);
    world.say(hub, b"LMSG j | p 1\r\nb\r\n");
    assert_eq!(both(), ["MSG j 2 1", "MSG j 3 1", "b", "b"]);
    world.say(hub, b"LMSG j + r q p 1\r\nc\r\nLMSG j + r q p 1\r\nd\r\n");
    assert_eq!(
        both(),
        [
            "MSG j 1 r 1",
            "MSG j 1 r 1",
            "MSG j 2 r 1",
            "MSG j 2 r 1",
            "MSG j 3 r 1",
            "MSG j 3 r 1",
            "c",
            "c",
            "c",
            "d",
            "d",
            "d"
        ]
    );
    let ack = "$JS.ACK.S.C.1.2.3.1700000000000000000.0";
    world.say(hub, format!("LMSG _INBOX.x {ack}@orders.eu 2\r\nhi\r\n").as_bytes());
    assert_eq!(both(), [format!("MSG orders.eu 4 {ack} 2"), "hi".to_owned()]);
    world.say(hub, format!("HMSG _INBOX.x {ack}@orders.eu 12 14\r\nNATS/1.0\r\n\r\nhi\r\n").as_bytes());
    assert_eq!(both()[0], "");
    assert!(world.locals.iter().all(|local| local.core.borrow().routing.subjects.trie.marks.is_idle()));
}

#[test]
fn a_loop_closes_the_later_of_two() {
    for first_is_told in [true, false] {
        let world = World::new(2, 2, INFO);
        let [first, second] = world.hubs[..] else { panic!("two hubs") };
        let is_closed = |(at, id): (usize, ConnId)| {
            world.with_core(at, |core: &mut Core| core.outputs.connections[id].closing.is_some())
        };
        // Line with the loop subject of this hub's connection.
        let own = |(at, id): (usize, ConnId), hub: u8| {
            let cid = world.with_core(at, |core: &mut Core| core.outputs.connections[id].cid);
            format!("LS+ $LDS.N1-{hub}-{cid}\r\n").into_bytes()
        };
        // The loop subject of an older connection or of another process does not indicate a loop.
        world.say(first, b"LS+ $LDS.N1-0-0\r\nLS+ $LDS.N2-0-1\r\nLS+ $LDS.N1-1-0\r\nLS+ $LDS.N1-x\r\n");
        world.say(second, b"LS+ $LDS.N1-1-0\r\nLS+ $LDS.N1-9-1\r\n");
        assert!(!is_closed(first) && !is_closed(second));
        match first_is_told {
            true => world.say(first, &own(second, 1)),
            false => world.say(second, &own(first, 0)),
        }
        assert!(is_closed(second) && !is_closed(first));
        assert!(world.text(second).contains("-ERR 'Loop detected for leafnode account=\"$G\""));
        world.say(first, &own(first, 0));
        assert!(is_closed(first));
    }
}

#[test]
fn subjects_denied_by_the_hub_are_not_exchanged() {
    let info = r#"{"client_id": 1, "max_payload": 1000, "import": {"deny": ["in.secret"]}, "export": {"allow": ["out.>"]}}"#;
    let world = World::new(1, 1, info);
    let hub = world.hubs[0];
    let client = world.enter(0);
    world.take(hub);
    world.say(client, b"SUB in.secret 1\r\nSUB in.open 2\r\nSUB reply 3\r\n");
    assert_eq!(told(&world, 0), "LS+ in.open\r\nLS+ reply\r\n");
    world.say(hub, b"LS+ >\r\n");
    world.say(client, b"PUB out.a 0\r\n\r\nPUB other 0\r\n\r\n");
    assert_eq!(world.text(hub), "LMSG out.a 0\r\n\r\n");
    // There are no responders to a request that may not be sent to the hub.
    world.take(client);
    world.say(client, b"PUB other reply 0\r\n\r\n");
    assert!(world.text(client).contains("503"));
}

/// The program's reserved subjects are neither sent to a hub nor accepted from one.
#[test]
fn what_is_reserved_is_kept_from_hubs() {
    let kept = || vec![Entry::of("mail.>")];
    // A feed that only this machine can reach shows mail events to its clients, but a hub has clients
    // elsewhere.
    for subscribe in [kept(), Vec::new()] {
        let is_shown = subscribe.is_empty();
        let reserved = ReservedSubjects { publish: kept(), subscribe };
        let world = World::of(1, 1, INFO, &Authorization { reserved, ..Authorization::default() });
        let hub = world.hubs[0];
        let client = world.enter(0);
        world.say(client, b"SUB > 1\r\n");
        world.take(hub);
        world.say(hub, b"LS+ >\r\nLS+ mail.> q 1\r\nLMSG mail.new 1\r\n!\r\nLMSG other 1\r\n?\r\n");
        assert_eq!(world.text(client), "MSG other 1 1\r\n?\r\n");
        world.with_core(0, |core| {
            let mut operations = Vec::new();
            write::publish(&mut operations, b"mail.new", b"", b"x");
            write::publish(&mut operations, b"other", b"", b"y");
            core.begin_turn();
            core.publish_as_server(0, &operations);
            core.end_turn();
        });
        assert_eq!(world.text(hub), "LMSG other 1\r\ny\r\n");
        let shown = if is_shown { "MSG mail.new 1 1\r\nx\r\n" } else { "" };
        assert_eq!(world.text(client), format!("{shown}MSG other 1 1\r\ny\r\n"));
    }
}

/// Returns an authorization with an account that imports two streams of another account under two names, and
/// that has a mapping and a service.
fn importing(second: &str) -> Authorization {
    let import = |subject: &str, to: Option<&str>, prefix: Option<&str>, is_service| Import {
        account: "A".to_owned(),
        subject: subject.to_owned(),
        to: to.map(str::to_owned),
        prefix: prefix.map(str::to_owned),
        is_service,
        share: false,
    };
    let export = |subject: &str, service| Export {
        subject: subject.to_owned(),
        service,
        accounts: Vec::new(),
        account_token_position: None,
    };
    let destination = WeightedDestination { subject: "new.$1".to_owned(), weight: 100 };
    let account = |name: &str| Account { name: name.to_owned(), ..Account::default() };
    Authorization {
        accounts: vec![
            Account {
                exports: vec![export("s.>", None), export("time", Some(ServiceExport::default()))],
                ..account("A")
            },
            Account {
                imports: vec![
                    import("s.>", None, Some("p"), false),
                    import("s.*", Some(second), None, false),
                    import("time", Some("clock"), None, true),
                ],
                mappings: vec![Mapping { source: "old.*".to_owned(), destinations: vec![destination] }],
                ..account("B")
            },
        ],
        ..Authorization::default()
    }
}

#[test]
fn imports_of_the_hub_account_reach_the_hub() {
    let authorization = importing("q.$1");
    let identities = Identities::build(&authorization, None).expect("it is sound");
    let number = |name: &str| {
        let place = identities.accounts().iter().position(|account| **account == *name);
        u16::try_from(place.expect("it is there")).expect("a few")
    };
    let (a, b) = (number("A"), number("B"));
    let world = World::with(2, vec![Arc::new(Seed { account: b, ..new_seed(0) })], INFO, &authorization);
    let hub = world.hubs[0];
    let nodes =
        |world: &World| [0, 1].map(|at| world.with_core(at, |core| core.routing.subjects.trie.nodes()));
    let before = nodes(&world);
    let told = told(&world, 0);
    // The reply subjects of forwarded requests are announced as well.
    let told: Vec<&str> = told.lines().filter(|line| !line.starts_with("LS+ _R_.")).collect();
    assert_eq!(told, ["LS+ clock", "LS+ old.*"]);
    // Publishes on the hub's core and on the other core.
    let published = |subject: &str| {
        for at in [0, 1] {
            world.with_core(at, |core| {
                let mut operations = Vec::new();
                write::publish(&mut operations, subject.as_bytes(), b"", b"x");
                core.begin_turn();
                core.publish_as_server(a, &operations);
                core.end_turn();
            });
            world.settle();
        }
        let text = world.text(hub);
        let subjects = text.lines().filter(|line| line.starts_with("LMSG ")).map(|line| line[5..].to_owned());
        subjects.collect::<Vec<_>>()
    };
    assert_eq!(published("s.x"), [""; 0]);
    world.say(hub, b"LS+ p.s.x\r\nLS+ p.>\r\n");
    assert_eq!(published("s.x"), ["p.s.x 1", "p.s.x 1"]);
    assert_eq!(published("s.y.z"), ["p.s.y.z 1", "p.s.y.z 1"]);
    world.say(hub, b"LS- p.>\r\nLS+ q.x\r\n");
    assert_eq!(published("s.x"), ["p.s.x 1", "q.x 1", "p.s.x 1", "q.x 1"]);
    assert_eq!(published("s.y"), [""; 0]);
    world.say(hub, b"LS- p.s.x\r\n");
    assert_eq!(published("s.x"), ["q.x 1", "q.x 1"]);
    // Members of a group at the hub get the message, however many the group currently has.
    world.say(hub, b"LS- q.x\r\nLS+ q.* g 1\r\nLS+ q.* g 3\r\nLS+ p.s.z h 1\r\n");
    assert_eq!(published("s.x"), ["q.x | g 1", "q.x | g 1"]);
    assert_eq!(published("s.z"), ["p.s.z | h 1", "q.z | g 1", "p.s.z | h 1", "q.z | g 1"]);
    // A reload renames the stream, and the hub's interest in the new name takes effect at once.
    let identities = Identities::build(&importing("r.$1"), Some(&identities)).expect("it is sound");
    let before_reload = world.with_core(0, |core| Arc::clone(&core.settings));
    let settings = Arc::new(Settings {
        config: before_reload.config.clone(),
        identities,
        acceptors: Acceptors::default(),
        hubs: Arc::clone(&before_reload.hubs),
    });
    world.say(hub, b"LS+ r.y\r\n");
    for at in [0, 1] {
        world.with_core(at, |core| {
            core.reload(Arc::clone(&settings));
            core.end_turn();
        });
    }
    world.settle();
    world.take(hub);
    assert_eq!(published("s.x"), [""; 0]);
    assert_eq!(published("s.y"), ["r.y 1", "r.y 1"]);
    world.say(hub, b"LS- r.y\r\nLS- q.* g\r\nLS- p.s.z h\r\n");
    assert_eq!(published("s.z"), [""; 0]);
    assert_eq!(nodes(&world), before);
    // A mapped message also goes to local queue groups; an unmapped one goes only to the groups that the hub
    // names.
    let client = world.enter(0);
    world.with_core(0, |core| {
        let root = core.routing.subjects.root_of(b);
        let connection = &mut *core.outputs.connections[client.1];
        (connection.account, connection.root) = (b, root);
    });
    world.say(client, b"SUB new.* g 1\r\nSUB as.it.is g 2\r\n");
    world.take(client);
    world.say(hub, b"LMSG old.7 1\r\n!\r\nLMSG as.it.is 1\r\n?\r\nLMSG as.it.is | g 1\r\n.\r\n");
    assert_eq!(world.text(client), "MSG new.7 1 1\r\n!\r\nMSG as.it.is 2 1\r\n.\r\n");
    // A lost hub leaves no state behind in any account.
    let before = nodes(&world);
    world.say(hub, b"LS+ p.s.x\r\nLS+ p.s.y g 1\r\nLS+ r.*\r\n");
    assert!(nodes(&world).iter().zip(before).all(|(now, before)| *now > before));
    lose(&world);
    assert_eq!(nodes(&world), before);
}

/// Loses the connection to the first hub.
fn lose(world: &World) {
    world.with_core(0, |core| {
        let mut connection = core.outputs.connections.remove(world.hubs[0].1).expect("it is there");
        core.lose_hub(0, &mut connection);
        for (account, key) in core.take_wanted(0) {
            core.forget_wanted(0, account, &key);
        }
        core.end_turn();
    });
    world.settle();
}

#[test]
fn a_hub_that_is_gone_leaves_nothing() {
    let world = World::new(2, 1, INFO);
    let hub = world.hubs[0];
    let far = world.enter(1);
    let nodes =
        |world: &World| [0, 1].map(|at| world.with_core(at, |core| core.routing.subjects.trie.nodes()));
    let before = nodes(&world);
    world.say(hub, b"LS+ a.b\r\nLS+ a.c q 2\r\nLS+ a..b\r\nLS+ $SYS.REQ.X\r\n");
    assert!(nodes(&world).iter().zip(before).all(|(now, before)| *now > before));
    lose(&world);
    assert_eq!(nodes(&world), before);
    world.say(far, b"SUB r 1\r\nPUB a.b r 0\r\n\r\n");
    assert!(world.text(far).contains("503"));
}

/// Discards a connection's output without copying it. Returns its length.
fn throw_away(core: &mut Core, id: ConnId) -> usize {
    let Outputs { connections, chunks, .. } = &mut core.outputs;
    let outbox = &mut connections[id].outbox;
    let mut bytes = 0;
    while !outbox.is_empty() {
        let front = outbox.front().len();
        outbox.written(chunks, front);
        bytes += front;
    }
    bytes
}

/// Relaying messages to and from a hub allocates nothing, on the hub's core and on another one.
#[test]
fn a_steady_relay_across_a_hub_allocates_nothing() {
    const ACK: &str = "$JS.ACK.S.C.1.2.3.1700000000000000000.0@stored";
    let message = |verb: &str| format!("{verb} a.b 5\r\nhello\r\n{verb} a.b r 5\r\nhello\r\n");
    let of_hub = [
        message("LMSG"),
        "LMSG j | q p 2\r\nhi\r\nHMSG j + r q 12 14\r\nNATS/1.0\r\n\r\nhi\r\n".to_owned(),
        format!("LMSG _INBOX.x {ACK} 2\r\nhi\r\n"),
    ];
    let of_clients = [message("PUB"), "PUB k 2\r\nhi\r\nPUB k r 2\r\nhi\r\n".to_owned()];
    let mut allocations = allocations::Allocations::new().expect("the counting allocator");
    for cores in [1, 2] {
        let world = World::new(cores, 1, INFO);
        let hub = world.hubs[0];
        let far = world.enter(cores - 1);
        world.say(far, b"SUB a.* 1\r\nSUB j q 2\r\nSUB j p 3\r\nSUB _INBOX.x 4\r\n");
        world.say(hub, b"LS+ a.>\r\nLS+ k q 1\r\nLS+ k p 1\r\n");
        let said = of_hub.iter().map(|text| (hub, text)).chain(of_clients.iter().map(|text| (far, text)));
        for ((at, id), text) in said {
            let relay = |rounds: usize| {
                let mut bytes = 0;
                for _ in 0..rounds {
                    {
                        let core = &mut *world.locals[at].core.borrow_mut();
                        core.begin_turn();
                        let (done, _) = match core.outputs.connections[id].hub {
                            Some(_) => core.process_hub(id, text.as_bytes()),
                            None => core.process(id, text.as_bytes()),
                        };
                        assert_eq!(done, text.len());
                        core.end_turn();
                    }
                    world.settle();
                    for (at, id) in [hub, far] {
                        bytes += throw_away(&mut world.locals[at].core.borrow_mut(), id);
                    }
                }
                bytes
            };
            assert!(relay(200) > 0, "{text}: it is had by somebody");
            allocations.mark().expect("this thread");
            relay(200);
            let counts = allocations.since_mark().expect("this thread");
            assert!(counts.is_zero(), "{cores} cores, {text}: {counts}");
        }
    }
}
