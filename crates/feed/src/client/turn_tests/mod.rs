//! Tests that any operation of a client runs in turns of bounded cost. The cost is counted on cores without
//! sockets.

mod group_tests;
mod subscription_tests;

use std::{collections::HashMap, net::SocketAddr};

use proptest::prelude::*;

use crate::{
    client::{
        connection::{ConnId, Transport, Writer},
        serve::Arrival,
        session::ReadOutcome,
    },
    delivery::{hot_path_tests::cores, work::WORK_A_TURN},
    mesh::core::Core,
};

const HELLO: &[u8] =
    b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\n";
/// Largest number of budget units that may be spent in a turn after its budget is used up.
const UNPAID_MAX: u64 = 64;
/// Largest number of parts of queue groups that may be visited per budget unit.
const PARTS_A_STEP: u64 = 4;
/// Units by which a turn may exceed its budget: one subscriber's part of a run, or one operation.
const WORK_BEYOND: u64 = WORK_A_TURN / 8;

/// Connects a client whose output is not written to a socket, so that tests can read it.
fn enter(core: &mut Core) -> ConnId {
    let arrival = Arrival::new(core, SocketAddr::from(([127, 0, 0, 1], 1)), Transport::default());
    let id = core.enter(arrival, Writer::Task, true);
    say(core, id, HELLO);
    id
}

/// Executes a client's operations in as many turns as they need, and returns the number of turns. `between`
/// runs after each.
fn say_and(core: &mut Core, id: ConnId, bytes: &[u8], mut between: impl FnMut(&mut Core)) -> usize {
    let (mut at, mut turns) = (0, 0);
    loop {
        core.begin_turn();
        core.routing.subjects.trie.take_parts_visited();
        let (done, processed) = core.process(id, &bytes[at..]);
        at += done;
        turns += 1;
        let (parts, steps) = (core.routing.subjects.trie.take_parts_visited(), core.turn.work.done());
        assert!(parts <= PARTS_A_STEP * steps + UNPAID_MAX, "{parts} parts of groups in {steps} steps");
        assert!(!core.turn.work.is_over_by(WORK_BEYOND), "a turn of {:?}", core.turn.work);
        assert!(core.turn.work.unpaid() <= UNPAID_MAX, "{} steps that nobody paid", core.turn.work.unpaid());
        core.end_turn();
        match processed {
            ReadOutcome::Over => between(core),
            ReadOutcome::More { .. } if at == bytes.len() => return turns,
            other => panic!("{other:?}, {} bytes left", bytes.len() - at),
        }
    }
}

/// Removes all subscriptions of a departing client in as many turns as needed, and returns the number of
/// turns.
fn end(core: &mut Core, id: ConnId) -> usize {
    for turns in 1.. {
        core.begin_turn();
        let is_done = core.end_some(id);
        assert!(core.turn.work.unpaid() <= UNPAID_MAX, "{} steps that nobody paid", core.turn.work.unpaid());
        core.end_turn();
        if is_done {
            return turns;
        }
    }
    unreachable!("it comes to an end")
}

fn say(core: &mut Core, id: ConnId, bytes: &[u8]) -> usize {
    say_and(core, id, bytes, |_| {})
}

/// Takes everything that was sent to a client since the last call.
fn take(core: &mut Core, id: ConnId) -> String {
    let mut all = Vec::new();
    let crate::delivery::outputs::Outputs { connections, chunks, .. } = &mut core.outputs;
    let outbox = &mut connections[id].outbox;
    while !outbox.is_empty() {
        let front = outbox.front().to_vec();
        outbox.written(chunks, front.len());
        all.extend(front);
    }
    String::from_utf8(all).expect("text")
}

/// Returns all patterns of this many tokens, each `a` or a wildcard.
fn deep(tokens: u32) -> impl Iterator<Item = String> {
    (0..1 << tokens).map(move |bits: u32| {
        let token = |at| if bits >> at & 1 == 0 { "a" } else { "*" };
        (0..tokens).map(token).collect::<Vec<_>>().join(".")
    })
}

fn subscribe(patterns: impl Iterator<Item = String>) -> Vec<u8> {
    (1..)
        .zip(patterns)
        .map(|(sid, pattern)| format!("SUB {pattern} {sid}\r\n"))
        .collect::<String>()
        .into_bytes()
}

fn bodies(got: &str) -> HashMap<&str, Vec<&str>> {
    let mut by_sid: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut lines = got.lines();
    while let Some(line) = lines.next() {
        let sid = line.split(' ').nth(2).expect("MSG");
        by_sid.entry(sid).or_default().push(lines.next().expect("a payload"));
    }
    by_sid
}

/// 300 publishes to distinct subjects, over 8,192 deep wildcard patterns that all fail to match, take many
/// turns.
#[test]
fn deep_wildcard_lookups_take_many_turns() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let (attacker, other) = (enter(core), enter(core));
    say(core, attacker, &subscribe(deep(13)));
    let root = "a.".repeat(12);
    let write: String = (0..300).map(|at| format!("PUB {root}x{at}.b 0\r\n\r\n")).collect();
    let mut answered = 0;
    let turns = say_and(core, attacker, write.as_bytes(), |core| {
        say(core, other, b"PING\r\n");
        answered += 1;
    });
    assert!(turns > 200, "{turns} turns");
    assert_eq!(take(core, other), "PONG\r\n".repeat(answered));
    assert_eq!(take(core, attacker), "");
}

/// A message to more subscribers than a turn serves, while subscriptions come and go: those that stay get
/// each message once and in order, those that end get nothing later, and new ones get everything published
/// after them.
#[test]
fn a_message_for_many_subscribers_takes_several_turns() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let (many, producer, restless) = (enter(core), enter(core), enter(core));
    say(core, many, &subscribe((0..30_000).map(|_| "s".to_owned())));
    say(core, many, b"SUB s q 30001\r\nSUB s r 30002\r\n");
    say(core, restless, b"SUB s q 1\r\n");
    take(core, restless);
    let mut left = 0;
    let turns = say_and(core, producer, b"PUB s 1\r\n1\r\nPUB s 2\r\n22\r\nPUB s 3\r\n333\r\n", |core| {
        left += 1;
        let words = format!("UNSUB {left}\r\nUNSUB {}\r\n", 30_001 - left);
        say(core, many, words.as_bytes());
        // New subscriptions reuse the numbers of ended ones.
        say(core, restless, format!("SUB s x{left}\r\nSUB a.{left} y\r\nUNSUB y\r\nUNSUB 1\r\n").as_bytes());
    });
    assert!(turns > 3, "{turns} turns");
    let got = take(core, many);
    let by_sid = bodies(&got);
    for sid in 1..=30_000 {
        let sid_text = sid.to_string();
        let got = by_sid.get(&*sid_text).cloned().unwrap_or_default();
        if sid > left && sid <= 30_000 - left {
            assert_eq!(got, ["1", "22", "333"], "{sid}");
        } else {
            assert_eq!(got, ["1", "22", "333"][..got.len()], "{sid}");
        }
    }
    assert_eq!(by_sid["30002"], ["1", "22", "333"], "a group of one");
    let got = take(core, restless);
    for (sid, got) in bodies(&got) {
        assert!(["1", "22", "333"].ends_with(&got), "{sid}: {got:?}");
    }
    // No state remains of clients that have left.
    let (nodes, connections) = (core.routing.subjects.trie.nodes(), [many, producer, restless]);
    assert!(core.routing.subjects.trie.marks.is_idle());
    for id in connections {
        end(core, id);
    }
    assert!(core.routing.subjects.trie.nodes() < nodes);
    assert_eq!((core.routing.subjects.trie.nodes(), core.routing.subjects.subscriptions()), (1, 0));
}

/// Requests without responders are answered, and the search for the requester's subscription is charged as
/// well.
#[test]
fn requests_that_nobody_answers_take_turns() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let asker = enter(core);
    say(core, asker, &subscribe(deep(13)));
    // Each request has a different reply subject, because the matches of a subject are cached.
    let reply = ["a"; 12].join(".");
    let write: String = (0..50).map(|at| format!("PUB nobody.{at} {reply}.r{at} 0\r\n\r\n")).collect();
    let turns = say(core, asker, write.as_bytes());
    assert!(turns > 10, "{turns} turns");
    assert_eq!(take(core, asker).matches("NATS/1.0 503").count(), 50);
    assert!(core.routing.subjects.trie.marks.is_idle());
}

/// A producer that leaves during a delivery leaves no state behind.
#[test]
fn who_leaves_with_a_message_under_way() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let (many, producer) = (enter(core), enter(core));
    say(core, many, &subscribe((0..60_000).map(|_| "s".to_owned())));
    core.begin_turn();
    let (done, processed) = core.process(producer, b"PUB s 0\r\n\r\n");
    assert!(done == 0 && matches!(processed, ReadOutcome::Over), "{processed:?}");
    core.end_turn();
    let begun = core.outputs.connections[producer].begun.take().expect("it is under way");
    core.let_go(*begun);
    assert!(core.routing.subjects.trie.marks.is_idle());
    say(core, many, b"UNSUB 1\r\n");
    assert_eq!(core.routing.subjects.subscriptions(), 59_999);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Delivery over several turns yields the same messages as delivery in one turn, for all patterns, runs
    /// and groups.
    #[test]
    fn in_turns_as_at_once(
        patterns in prop::collection::vec((0_usize..6, any::<bool>(), 1_usize..60), 1..12),
        runs in prop::collection::vec((0_usize..4, 1_usize..40, any::<bool>()), 1..12),
    ) {
        const PATTERNS: [&str; 6] = ["a", "a.b", "a.*", ">", "*.b", "a.b.>"];
        const SUBJECTS: [&str; 4] = ["a", "a.b", "a.b.c", "z"];
        let mut words = String::new();
        let mut sid = 0;
        for (pattern, in_group, count) in patterns {
            for _ in 0..count * 5 {
                sid += 1;
                let queue = if in_group { " q" } else { "" };
                words += &format!("SUB {}{queue} {sid}\r\n", PATTERNS[pattern]);
            }
        }
        let mut write = String::new();
        for (number, (subject, count, reply)) in runs.into_iter().enumerate() {
            let reply = if reply { " r" } else { "" };
            write += &format!("PUB {}{reply} 4\r\n{number:04}\r\n", SUBJECTS[subject]).repeat(count);
        }
        let mut got = Vec::new();
        for max in [WORK_A_TURN / 100, u64::MAX] {
            let local = cores(1).remove(0);
            let core = &mut *local.core.borrow_mut();
            // The output is never written to a socket, so its bound must be high.
            core.outputs.marks = crate::delivery::backlog::Marks::of(1 << 30);
            let (consumer, producer) = (enter(core), enter(core));
            say(core, consumer, words.as_bytes());
            let (mut at, bytes) = (0, write.as_bytes());
            while at < bytes.len() {
                core.begin_turn();
                core.turn.work = crate::delivery::work::Work::of(max);
                at += core.process(producer, &bytes[at..]).0;
                core.end_turn();
            }
            got.push(take(core, consumer));
        }
        prop_assert_eq!(bodies(&got[0]), bodies(&got[1]));
    }
}

/// Forty thousand subscriptions have received their last message. One client leaves, the other one
/// unsubscribes in a different order; no removal searches the other subscriptions.
#[test]
fn subscriptions_that_end_look_at_no_others() {
    const COUNT: usize = 20_000;
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let (one, two, producer) = (enter(core), enter(core), enter(core));
    let words: String = (0..COUNT).map(|n| format!("SUB x {n}\r\nUNSUB {n} 1\r\n")).collect();
    say(core, one, words.as_bytes());
    say(core, two, words.as_bytes());
    let run = crate::delivery::run::Run {
        bytes: b"PUB x 1\r\nm\r\n",
        stride: 12,
        tail_at: 5,
        body_bytes: 1,
        header_bytes: None,
        subject: b"x",
        shown: None,
        reply: b"",
    };
    let root = core.routing.subjects.root_of(0);
    let from = crate::delivery::producer::Producer { core: 0, conn: producer, cid: 0 };
    core.begin_turn();
    core.hand_out_at_once(&crate::delivery::origin::Origin::of_nobody(from, 0, root), &run);
    core.end_turn();
    assert_eq!(core.routing.subjects.subscriptions(), 2 * COUNT, "none is ended yet");
    end(core, two);
    let ends: String = (0..COUNT / 4).map(|n| format!("UNSUB {}\r\n", n * 3)).collect();
    say(core, one, ends.as_bytes());
    while core.routing.subjects.a_finished().is_some() {
        core.begin_turn();
        core.end_finished();
        core.end_turn();
    }
    assert_eq!(core.routing.subjects.subscriptions(), 0);
    let looked_at = core.routing.subjects.finished_looked_at();
    assert!(looked_at <= 4 * COUNT, "{looked_at} entries for {} subscriptions", 2 * COUNT);
}

/// Memory of subscriptions is bounded for each connection and in total, and freed as they end.
#[test]
fn memory_of_subscriptions_is_bounded() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let at_most = core.settings.config.limits.max_subscription_memory;
    let memory = |core: &Core, id: ConnId| {
        core.outputs.connections[id].subscription_memory.as_ref().map_or(0, engine::accounts::Charge::amount)
    };
    let attackers: Vec<ConnId> = (0..3).map(|_| enter(core)).collect();
    for (number, &attacker) in attackers.iter().enumerate() {
        let path = "t.".repeat(600);
        let words: String = (0..2000).map(|n| format!("SUB a{number}.{n}.{path}end {n}\r\n")).collect();
        say(core, attacker, words.as_bytes());
        assert!(memory(core, attacker) <= at_most / 2);
        assert!(take(core, attacker).contains("-ERR 'maximum subscriptions exceeded'"), "{number}");
    }
    let held: usize = attackers.iter().map(|&id| memory(core, id)).sum();
    assert!(held <= at_most, "{held}");
    assert!(core.routing.subjects.trie.nodes() * crate::routing::trie::NODE_BYTES <= at_most);
    let honest = enter(core);
    say(core, honest, b"SUB honest.> 1\r\n");
    assert_eq!(take(core, honest), "", "there is room for who takes little");
    for &attacker in &attackers {
        end(core, attacker);
        assert_eq!(memory(core, attacker), 0, "all of it is given back");
    }
}

/// A SUB whose pattern matches five hundred imported streams takes several turns, and so does its removal.
#[test]
fn a_subscription_follows_many_imports_in_turns() {
    use crate::accounts::identity::{Account, Authorization, Export, Import, Secret, User};
    const STREAMS: usize = 500;
    let user = |name: &str| User {
        user: Some(name.to_owned()),
        password: Some(Secret::new("x")),
        ..User::default()
    };
    let account =
        |name: &str| Account { name: name.to_owned(), users: vec![user(name)], ..Account::default() };
    let export =
        Export { subject: ">".to_owned(), service: None, accounts: Vec::new(), account_token_position: None };
    let import = |number: usize| Import {
        account: "e".to_owned(),
        subject: format!("s{number}.>"),
        to: None,
        prefix: Some("p".to_owned()),
        is_service: false,
        share: false,
    };
    let accounts = vec![
        Account { exports: vec![export], ..account("e") },
        Account { imports: (0..STREAMS).map(import).collect(), ..account("i") },
    ];
    let local =
        crate::fuzzing::cores_of(1, &Authorization { accounts, ..Authorization::default() }).remove(0);
    let core = &mut *local.core.borrow_mut();
    let enter_as = |core: &mut Core, user: &str| {
        let arrival = Arrival::new(core, SocketAddr::from(([127, 0, 0, 1], 1)), Transport::default());
        let id = core.enter(arrival, Writer::Task, true);
        let hello = format!("CONNECT {{\"verbose\":false,\"user\":\"{user}\",\"pass\":\"x\"}}\r\n");
        say(core, id, hello.as_bytes());
        id
    };
    let (attacker, other, exporter) = (enter_as(core, "i"), enter_as(core, "i"), enter_as(core, "e"));
    let imported = |core: &Core| core.routing.subjects.entries();
    let nothing = imported(core);
    let words: String = (0..20).map(|n| format!("SUB p.> {n}\r\n")).collect();
    let mut answered = 0;
    let turns = say_and(core, attacker, words.as_bytes(), |core| {
        say(core, other, b"PING\r\n");
        answered += 1;
    });
    assert!(turns > 5 && answered == turns - 1, "{turns} turns");
    say(core, exporter, b"PUB s7.x 1\r\nm\r\nPUB s499.x 1\r\nn\r\n");
    assert_eq!(take(core, attacker).matches("MSG p.s").count(), 40);
    // A subscription gets its last message while others are removed.
    say(core, attacker, b"UNSUB 3 3\r\n");
    let ends: String = (0..20).filter(|n| *n != 3).map(|n| format!("UNSUB {n}\r\n")).collect();
    let turns = say(core, attacker, ends.as_bytes());
    assert!(turns > 5, "{turns} turns");
    say(core, exporter, b"PUB s7.x 1\r\nm\r\n");
    say(core, attacker, b"PING\r\n");
    assert_eq!(take(core, attacker).matches("MSG p.s7.x 3").count(), 1);
    assert_eq!(imported(core), nothing, "nothing stays");
    assert!(core.outputs.connections[attacker].sids.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// No turn exceeds its budget by more than 64 units, whatever operations hostile clients send.
    #[test]
    fn no_operation_takes_unpaid_steps(
        words in prop::collection::vec((0_usize..9, 0_u32..40, 1_usize..900, 0_usize..3), 1..60),
        wild in prop::collection::vec(prop_oneof![3 => Just("a"), 2 => Just("*"), 1 => Just("b")], 900),
    ) {
        let local = cores(1).remove(0);
        let core = &mut *local.core.borrow_mut();
        core.outputs.marks = crate::delivery::backlog::Marks::of(1 << 30);
        let clients: Vec<ConnId> = (0..3).map(|_| enter(core)).collect();
        say(core, clients[0], b"CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":false}\r\n");
        for (kind, number, tokens, who) in words {
            let pattern = wild[..tokens].join(".");
            let literal = pattern.replace('*', "a");
            let text = match kind {
                0 => format!("SUB {pattern} {number}\r\n"),
                1 => format!("SUB {pattern} q{} {number}\r\n", number % 3),
                2 => (0..200).map(|n| format!("SUB {literal} g{n} {number}.{n}\r\n")).collect(),
                3 => (0..300).map(|n| format!("SUB {literal} q {number}.m.{n}\r\n")).collect(),
                4 => format!("UNSUB {number}\r\n"),
                // A group with members at many patterns, and messages that some members refuse.
                7 => {
                    let patterns = deep(3 + number % 6);
                    let words: String = (0..).zip(patterns).map(|(n, p)| format!("SUB {p} q {number}.d.{n}\r\n")).collect();
                    let subject = vec!["a"; 3 + number as usize % 6].join(".");
                    words + &format!("PUB {subject} 3\r\nabc\r\n").repeat(tokens % 4)
                }
                5 => format!("UNSUB {number} 2\r\n"),
                _ => format!("PUB {literal} 3\r\nabc\r\n").repeat(1 + number as usize % 4),
            };
            say(core, clients[who], text.as_bytes());
            clients.iter().for_each(|&id| drop(take(core, id)));
        }
        for id in clients {
            end(core, id);
        }
        prop_assert_eq!((core.routing.subjects.trie.nodes(), core.routing.subjects.subscriptions()), (1, 0));
        prop_assert!(core.routing.subjects.trie.marks.is_idle());
    }
}

/// While another core does not run, four hundred producers queue no more bytes for it than a few producers
/// do; they resume when it runs again.
#[test]
fn bytes_queued_for_a_stalled_core_are_bounded() {
    let locals = cores(2);
    {
        let far = &mut *locals[1].core.borrow_mut();
        let consumer = enter(far);
        far.begin_turn();
        far.process(consumer, b"SUB s 1\r\n");
        far.end_turn();
    }
    let near = &locals[0];
    let run = format!("PUB s 1000\r\n{}\r\n", "x".repeat(1000)).repeat(120).into_bytes();
    let producers: Vec<ConnId> = {
        let core = &mut *near.core.borrow_mut();
        near.take_inbox(core);
        (0..400).map(|_| enter(core)).collect()
    };
    let core = &mut *near.core.borrow_mut();
    let mut held = 0;
    for &producer in &producers {
        core.begin_turn();
        core.process(producer, &run);
        core.end_turn();
        held += usize::from(core.outputs.connections[producer].is_held());
        assert!(core.links.bytes_to(1) <= (8 << 20) + 2 * run.len(), "{} bytes", core.links.bytes_to(1));
    }
    assert!(held > 300, "{held} wait");
}

/// Clients cannot predict which sids, subjects or queue names collide in a table, because each core has its
/// own seed.
#[test]
fn tables_of_clients_words_are_seeded() {
    let (one, other) = (crate::routing::trie::Trie::new(), crate::routing::trie::Trie::new());
    assert_ne!(one.seed(), other.seed());
    let hash = |trie: &crate::routing::trie::Trie| crate::client::connection::sid_hash(trie.seed(), b"1");
    assert_ne!(hash(&one), hash(&other));
    assert_ne!(one.hash_of_name(b"q"), other.hash_of_name(b"q"));
}
