//! What one client asks for is done in turns of bounded work, whatever it asks: counted, on cores without sockets.

#![allow(clippy::expect_used, reason = "a test may fail")]

use std::{collections::HashMap, net::SocketAddr};

use proptest::prelude::*;

use crate::{
    connection::{ConnId, Transport, Writer},
    core::Core,
    hot_path_tests::cores,
    serve::Arrival,
    session::Processed,
    work::WORK_A_TURN,
};

const HELLO: &[u8] =
    b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}\r\n";
/// One step beyond: a subscriber's part of a run, or an operation.
const WORK_BEYOND: u64 = WORK_A_TURN / 8;

/// A client whose output nobody takes: what it was sent can be looked at.
fn enter(core: &mut Core) -> ConnId {
    let arrival = Arrival::new(core, SocketAddr::from(([127, 0, 0, 1], 1)), Transport::default());
    let id = core.enter(arrival, Writer::Task, true);
    say(core, id, HELLO);
    id
}

/// Does all that a client says, in as many turns as it takes; how many those were. `between`: what others do meanwhile.
fn say_and(core: &mut Core, id: ConnId, bytes: &[u8], mut between: impl FnMut(&mut Core)) -> usize {
    let (mut at, mut turns) = (0, 0);
    loop {
        core.begin_turn();
        let (done, processed) = core.process(id, &bytes[at..]);
        at += done;
        turns += 1;
        assert!(!core.work.is_over_by(WORK_BEYOND), "a turn of {:?}", core.work);
        core.end_turn();
        match processed {
            Processed::Over => between(core),
            Processed::More { .. } if at == bytes.len() => return turns,
            other => panic!("{other:?}, {} bytes left", bytes.len() - at),
        }
    }
}

fn say(core: &mut Core, id: ConnId, bytes: &[u8]) -> usize {
    say_and(core, id, bytes, |_| {})
}

/// What was sent to a client, and is not looked at again.
fn take(core: &mut Core, id: ConnId) -> String {
    let mut all = Vec::new();
    let crate::outputs::Outputs { connections, chunks, .. } = &mut core.outputs;
    let outbox = &mut connections[id].outbox;
    while !outbox.is_empty() {
        let front = outbox.front().to_vec();
        outbox.written(chunks, front.len());
        all.extend(front);
    }
    String::from_utf8(all).expect("text")
}

/// All patterns of so many tokens of which each is `a` or a wildcard.
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

/// 3,000 publishes to distinct subjects over 8,192 deep wildcards, none of which matches: a 100 KB write.
#[test]
fn to_look_for_subjects_in_many_branches_takes_many_turns() {
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

/// One message for more subscribers than a turn serves, while others come and go: who is there all the time gets each
/// message once and in order; who left gets nothing more, who came gets all that was published later.
#[test]
fn a_message_for_many_is_handed_out_in_turns() {
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
        // The same numbers, used again.
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
    // Nothing stays of who has gone.
    let (nodes, connections) = (core.subjects.trie.nodes(), [many, producer, restless]);
    assert!(core.subjects.trie.marks.is_idle());
    for id in connections {
        while !core.end_some(id) {}
    }
    assert!(core.subjects.trie.nodes() < nodes);
    assert_eq!((core.subjects.trie.nodes(), core.subjects.subscriptions()), (1, 0));
}

/// Requests that nobody answers are told so, and to look for who asks is work, too.
#[test]
fn requests_that_nobody_answers_take_turns() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let asker = enter(core);
    say(core, asker, &subscribe(deep(13)));
    let reply = ["a"; 13].join(".");
    let write: String = (0..50).map(|at| format!("PUB nobody.{at} {reply} 0\r\n\r\n")).collect();
    let turns = say(core, asker, write.as_bytes());
    assert!(turns > 10, "{turns} turns");
    assert_eq!(take(core, asker).matches("NATS/1.0 503").count(), 50);
    assert!(core.subjects.trie.marks.is_idle());
}

/// A producer that leaves while its message is under way leaves nothing behind.
#[test]
fn who_leaves_with_a_message_under_way() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let (many, producer) = (enter(core), enter(core));
    say(core, many, &subscribe((0..60_000).map(|_| "s".to_owned())));
    core.begin_turn();
    let (done, processed) = core.process(producer, b"PUB s 0\r\n\r\n");
    assert!(done == 0 && matches!(processed, Processed::Over), "{processed:?}");
    core.end_turn();
    let begun = core.outputs.connections[producer].begun.take().expect("it is under way");
    core.let_go(*begun);
    assert!(core.subjects.trie.marks.is_idle());
    say(core, many, b"UNSUB 1\r\n");
    assert_eq!(core.subjects.subscriptions(), 59_999);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    /// Against a run that is done in one go: the same messages, whatever the patterns, the runs and the groups.
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
            // Nobody takes what it is sent.
            core.outputs.marks = crate::backpressure::Marks::of(1 << 30);
            let (consumer, producer) = (enter(core), enter(core));
            say(core, consumer, words.as_bytes());
            let (mut at, bytes) = (0, write.as_bytes());
            while at < bytes.len() {
                core.begin_turn();
                core.work = crate::work::Work::of(max);
                at += core.process(producer, &bytes[at..]).0;
                core.end_turn();
            }
            got.push(take(core, consumer));
        }
        prop_assert_eq!(bodies(&got[0]), bodies(&got[1]));
    }
}

/// A client that subscribes and ends it, again and again, is not read from while another core has not heard of what it
/// did; and what is noted for that core meanwhile is bounded.
#[test]
fn what_other_cores_are_told_of_subscriptions_is_bounded() {
    let locals = cores(2);
    let restless = {
        let core = &mut *locals[0].core.borrow_mut();
        enter(core)
    };
    let long = "x".repeat(3000);
    let words = format!("SUB {long} 1\r\nUNSUB 1\r\n").repeat(2000).into_bytes();
    let mut at = 0;
    let mut pauses = 0;
    while at < words.len() {
        {
            let core = &mut *locals[0].core.borrow_mut();
            core.begin_turn();
            at += core.process(restless, &words[at..]).0;
            core.end_turn();
            if !core.outputs.connections[restless].is_held() {
                continue;
            }
        }
        pauses += 1;
        // Paused before much more than the bound is noted, and let go when the other core has heard.
        assert!(at < pauses * (5 << 20), "{at} bytes of subscriptions in {pauses} pauses");
        for local in locals.iter().rev() {
            let core = &mut *local.core.borrow_mut();
            core.begin_turn();
            local.take_inbox(core);
            core.end_turn();
        }
        assert!(!locals[0].core.borrow().outputs.connections[restless].is_held());
    }
    assert!(pauses > 1, "{pauses} pauses");
}
