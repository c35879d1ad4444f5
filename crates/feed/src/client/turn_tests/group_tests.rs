//! Cost of one message to queue groups whose members refuse it, leave, or are many.

use super::{bodies, deep, end, enter, say, say_and, take};
use crate::delivery::hot_path_tests::cores;

/// All twenty thousand members of a group refuse the messages of one write, because they have echo off. Each
/// attempt to deliver is charged.
#[test]
fn members_that_refuse_are_work() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let (attacker, other) = (enter(core), enter(core));
    say(core, attacker, b"CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":false}\r\n");
    let members: String = (0..20_000).map(|n| format!("SUB refused q {n}\r\n")).collect();
    say(core, attacker, members.as_bytes());
    say(core, other, b"SUB refused 1\r\n");
    let mut answered = 0;
    let turns = say_and(core, attacker, b"PUB refused 1\r\nx\r\n".repeat(20).as_slice(), |core| {
        say(core, other, b"PING\r\n");
        answered += 1;
    });
    // There are four hundred thousand attempts, sixteen thousand per turn.
    assert!((20..200).contains(&turns), "{turns} turns");
    let got = take(core, other);
    assert_eq!((got.matches("PONG").count(), got.matches("MSG").count()), (answered, 20));
    assert_eq!(take(core, attacker), "");
}

/// A single accepting member among members that refuse gets each message, however many turns the search
/// takes.
#[test]
fn who_takes_is_found_among_those_that_refuse() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let (attacker, other) = (enter(core), enter(core));
    say(core, attacker, b"CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":false}\r\n");
    let members: String = (0..30_000).map(|n| format!("SUB refused q {n}\r\n")).collect();
    say(core, attacker, members.as_bytes());
    say(core, other, b"SUB refused q 1\r\n");
    let turns = say(core, attacker, b"PUB refused 1\r\na\r\nPUB refused 1\r\nb\r\nPUB refused 2\r\ncd\r\n");
    assert!(turns > 3, "{turns} turns");
    assert_eq!(bodies(&take(core, other))["1"], ["a", "b", "cd"]);
    assert!(core.routing.subjects.trie.marks.is_idle());
}

fn subscribe_in_group(patterns: impl Iterator<Item = String>) -> Vec<u8> {
    (1..)
        .zip(patterns)
        .map(|(sid, pattern)| format!("SUB {pattern} q {sid}\r\n"))
        .collect::<String>()
        .into_bytes()
}

/// A queue group that occurs at 2,048 matching patterns, and whose members refuse their own client's
/// messages, is not traversed again for each message.
#[test]
fn a_group_at_many_patterns_is_not_walked() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let (attacker, other) = (enter(core), enter(core));
    say(core, attacker, b"CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":false}\r\n");
    say(core, attacker, &subscribe_in_group(deep(11)));
    let subject = ["a"; 11].join(".");
    let write = format!("PUB {subject} 1\r\nx\r\n");
    let turns = say(core, attacker, write.repeat(20).as_bytes());
    assert!(turns < 20, "{turns} turns");
    assert_eq!(take(core, attacker), "");
    // If the members accept, each of them gets one message per round.
    core.begin_turn();
    core.routing.subjects.trie.take_parts_visited();
    core.process(other, write.as_bytes());
    let parts = core.routing.subjects.trie.take_parts_visited();
    core.end_turn();
    assert!(parts < 8, "{parts} parts were looked at for one message");
    say(core, other, write.repeat(2047).as_bytes());
    let got = take(core, attacker);
    let by_sid = bodies(&got);
    assert!(by_sid.len() == 2048 && by_sid.values().all(|got| got.len() == 1), "{} members", by_sid.len());
    end(core, attacker);
    assert_eq!((core.routing.subjects.trie.nodes(), core.routing.subjects.subscriptions()), (1, 0));
}

/// Members of a group at several patterns come and go during the search for one that accepts: the member that
/// stays gets the message.
#[test]
fn members_that_leave_refuse() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let (attacker, other) = (enter(core), enter(core));
    say(core, attacker, b"CONNECT {\"verbose\":false,\"pedantic\":false,\"echo\":false}\r\n");
    let patterns = ["a.b", "a.*", "*.b", "*.*", "a.>", ">"];
    let members: String = (0..36_000).map(|n| format!("SUB {} q {n}\r\n", patterns[n % 6])).collect();
    say(core, attacker, members.as_bytes());
    say(core, other, b"SUB *.b q 1\r\n");
    let mut left = 0;
    let turns = say_and(core, attacker, b"PUB a.b 1\r\na\r\nPUB a.b 1\r\nb\r\n", |core| {
        // The part of the group that stores the round-robin position disappears, too.
        say(core, other, format!("SUB a.b x y{left}\r\nUNSUB y{left}\r\n").as_bytes());
        left += 1;
    });
    assert!(turns > 2, "{turns} turns");
    assert_eq!(bodies(&take(core, other))["1"], ["a", "b"]);
    assert!(core.routing.subjects.trie.marks.is_idle());
}

/// Merging queue groups that occur at several patterns is charged group by group.
#[test]
fn many_groups_at_several_patterns_take_turns() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let (attacker, other) = (enter(core), enter(core));
    core.outputs.marks = crate::delivery::backlog::Marks::of(1 << 30);
    let members = (0..60_000).map(|n| format!("SUB {} q{} {n}\r\n", ["a", "*", ">"][n % 3], n / 3));
    say(core, attacker, members.collect::<String>().as_bytes());
    let mut answered = 0;
    let turns = say_and(core, other, b"PUB a 1\r\nm\r\nPUB a 1\r\nn\r\n", |core| {
        say(core, attacker, b"PING\r\n");
        answered += 1;
    });
    assert!(turns > 5, "{turns} turns");
    let got = take(core, attacker);
    assert_eq!((got.matches("MSG a ").count(), got.matches("PONG").count()), (40_000, answered));
}

/// With tens of thousands of groups at one subject, a group is found without a search when a member joins or
/// leaves it.
#[test]
fn a_group_among_many_is_found_directly() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let attacker = enter(core);
    let words: String = (0..40_000).map(|n| format!("SUB x q{n} {n}\r\n")).collect();
    let turns = say(core, attacker, words.as_bytes());
    assert!(turns < 100, "{turns} turns");
    let before = core.routing.subjects.subscriptions();
    say(core, attacker, b"SUB x q7 more\r\nUNSUB 7\r\nUNSUB 8\r\nSUB x q8 again\r\n");
    assert_eq!(core.routing.subjects.subscriptions(), before);
    say(core, attacker, b"PUB x 1\r\nm\r\n");
    let got = take(core, attacker);
    assert_eq!(got.matches("MSG x ").count(), 40_000);
    assert!(got.contains("MSG x more 1") && got.contains("MSG x again 1") && !got.contains("MSG x 7 1"));
    end(core, attacker);
    assert_eq!((core.routing.subjects.trie.nodes(), core.routing.subjects.subscriptions()), (1, 0));
}
