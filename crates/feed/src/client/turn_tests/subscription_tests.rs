//! Bounded turns for long patterns, for many patterns, and for announcements of subscriptions to other cores.

use std::rc::Rc;

use super::{end, enter, say, say_and, take};
use crate::{client::connection::ConnId, delivery::hot_path_tests::cores, mesh::core::Local};

/// A client that subscribes and unsubscribes again and again is paused while another core has not applied its
/// changes. The changes recorded for that core in the meantime are bounded.
#[test]
fn subscription_changes_queued_for_other_cores_are_bounded() {
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
        // The client is paused before many more bytes than the bound are recorded, and resumes once the other
        // core has applied the changes.
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

/// Connects a client to the first core and subscribes it so that in every core's trie a pattern of `tokens`
/// tokens `t` consists of one node per token: another pattern branches off after each token.
fn split_at_each_token(locals: &[Rc<Local>], tokens: usize) -> ConnId {
    let words: String = (0..tokens).map(|n| format!("SUB {}x {n}\r\n", "t.".repeat(n))).collect();
    let client = enter(&mut locals[0].core.borrow_mut());
    let mut at = 0;
    while at < words.len() {
        for local in locals.iter().skip(1).chain([&locals[0]]) {
            let core = &mut *local.core.borrow_mut();
            core.begin_turn();
            local.take_inbox(core);
            local.deliver_waiting(core);
            core.end_turn();
        }
        let core = &mut *locals[0].core.borrow_mut();
        core.begin_turn();
        at += core.process(client, &words.as_bytes()[at..]).0;
        core.end_turn();
    }
    client
}

/// Clients of other cores subscribe to long patterns before and after a message. The message waits for the
/// earlier subscriptions, and is published before the later ones are applied.
#[test]
fn later_subscriptions_keep_nobody_from_publishing() {
    let locals = cores(4);
    split_at_each_token(&locals, 600);
    let path = "t.".repeat(600);
    let words: String = (0..1000).map(|n| format!("SUB {path}{n} {n}\r\n")).collect();
    let subscribe = |of: usize| {
        let core = &mut *locals[of].core.borrow_mut();
        let (client, mut at) = (enter(core), 0);
        while !core.outputs.connections[client].is_held() {
            core.begin_turn();
            at += core.process(client, &words.as_bytes()[at..]).0;
            core.end_turn();
        }
    };
    let hear = || {
        let core = &mut *locals[1].core.borrow_mut();
        core.begin_turn();
        locals[1].take_inbox(core);
        core.end_turn();
        core.turn.backlog.unheard
    };
    let honest = enter(&mut locals[1].core.borrow_mut());
    let publish = || {
        let core = &mut *locals[1].core.borrow_mut();
        core.begin_turn();
        let (done, _) = core.process(honest, b"PUB honest 1\r\nx\r\n");
        core.end_turn();
        done > 0
    };
    subscribe(0);
    assert!(hear() > 0, "more was said than a turn applies");
    {
        let core = &mut *locals[1].core.borrow_mut();
        core.outputs.connections[honest].behind = core.turn.backlog.queued;
    }
    assert!(!publish(), "what was said before is waited for");
    subscribe(2);
    subscribe(3);
    let mut unheard = hear();
    while locals[1].core.borrow().outputs.connections[honest].waits_for_inbox {
        unheard = hear();
    }
    assert!(unheard > 0 && publish(), "what was said later is not waited for");
}

/// A client that subscribes to long patterns is paused before its changes use up the space for messages
/// between the cores.
#[test]
fn subscriptions_leave_messages_room_between_cores() {
    let locals = cores(2);
    {
        let core = &mut *locals[1].core.borrow_mut();
        let consumer = enter(core);
        say(core, consumer, b"SUB honest 1\r\n");
    }
    let core = &mut *locals[0].core.borrow_mut();
    core.begin_turn();
    locals[0].take_inbox(core);
    core.end_turn();
    let (restless, producer) = (enter(core), enter(core));
    let path = "t.".repeat(600);
    let words: String = (0..1000).map(|n| format!("SUB {n}.{path}end {n}\r\n")).collect();
    let mut at = 0;
    while !core.outputs.connections[restless].is_held() {
        core.begin_turn();
        at += core.process(restless, &words.as_bytes()[at..]).0;
        core.end_turn();
    }
    assert!(at < words.len() / 10, "{at} bytes of subscriptions");
    for _ in 0..100 {
        say(core, producer, &[b"PUB honest 1000\r\n", &[b'x'; 1000][..], b"\r\n"].concat());
        assert!(!core.outputs.connections[producer].is_held());
    }
    let mut turns = 0;
    while core.outputs.connections[restless].is_held() {
        let other = &mut *locals[1].core.borrow_mut();
        other.begin_turn();
        locals[1].take_inbox(other);
        locals[1].deliver_waiting(other);
        other.end_turn();
        core.begin_turn();
        locals[0].take_inbox(core);
        core.end_turn();
        turns += 1;
        assert!(turns < 100, "the client is let go again");
    }
}

/// Subscribing to patterns as long as a control line, and unsubscribing, takes several turns, between which
/// another client is answered; every unit is charged.
#[test]
fn long_patterns_take_turns() {
    let local = cores(1).remove(0);
    let fixed = split_at_each_token(std::slice::from_ref(&local), 1900);
    let core = &mut *local.core.borrow_mut();
    let (attacker, other) = (enter(core), enter(core));
    let path = "t.".repeat(1900);
    let words: String = (0..100).map(|n| format!("SUB {path}{n} {n}\r\n")).collect();
    let ends: String = (0..50).map(|n| format!("UNSUB {n}\r\n")).collect();
    let mut answered = 0;
    let turns = say_and(core, attacker, (words + &ends).as_bytes(), |core| {
        say(core, other, b"PING\r\n");
        answered += 1;
    });
    assert!(turns >= 10, "{turns} turns");
    assert_eq!(take(core, other), "PONG\r\n".repeat(answered));
    assert!(end(core, attacker) >= 3);
    end(core, fixed);
    assert_eq!(core.routing.subjects.trie.nodes(), 1);
}

/// A pattern that shares nothing with others takes one node for each [256 bytes](crate::routing::trie),
/// however many tokens it has.
#[test]
fn a_long_pattern_takes_few_nodes() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let client = enter(core);
    let path = "t.".repeat(600);
    let words: String = (0..100).map(|n| format!("SUB {n}.{path}end {n}\r\n")).collect();
    say(core, client, words.as_bytes());
    assert_eq!(core.routing.subjects.trie.nodes(), 1 + 100 * 5);
    end(core, client);
    assert_eq!(core.routing.subjects.trie.nodes(), 1);
}

/// A pattern with more tokens than a turn can walk is refused with a protocol error.
#[test]
fn a_pattern_of_too_many_tokens_is_refused() {
    let local = cores(1).remove(0);
    let core = &mut *local.core.borrow_mut();
    let settings = crate::mesh::settings::Settings {
        config: crate::Config {
            limits: crate::Limits { max_control_line: 1 << 20, ..crate::Limits::default() },
            ..core.settings.config.clone()
        },
        identities: crate::accounts::identity::Identities::build(
            &crate::accounts::identity::Authorization::default(),
            None,
        )
        .expect("it is sound"),
        acceptors: crate::client::acceptors::Acceptors::default(),
        hubs: std::sync::Arc::clone(&core.settings.hubs),
    };
    core.settings = std::sync::Arc::new(settings);
    let client = enter(core);
    say(core, client, format!("SUB {}z 1\r\nSUB a 2\r\nPING\r\n", "t.".repeat(3000)).as_bytes());
    assert_eq!(take(core, client), "-ERR 'maximum subscriptions exceeded'\r\nPONG\r\n");
    assert_eq!(core.outputs.connections[client].sids.len(), 1);
}
