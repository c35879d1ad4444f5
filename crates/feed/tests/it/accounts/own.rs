//! Behaviour in which we differ from nats-server: error messages, reloads, limits, turns.

use std::{collections::BTreeMap, path::Path};

use feed::{Config, Server, nats_config};

use super::{Nothing, Peer, Talk, config_of, file, ours};
use crate::common::wait_until;

/// An invalid import or export is refused with its line, and what would be right; nats-server refuses it,
/// too.
#[test]
fn invalid_imports_and_exports_name_their_line() {
    const REFUSED: &[(&str, &str, &str)] = &[
        (
            "exports: [ {stream: a} ]",
            "imports: [ {stream: {account: X, subject: a}} ]",
            "imported from `X`, which is not an account",
        ),
        ("exports: [ {stream: a, accounts: [X]} ]", "", "exported to `X`, which is not an account"),
        (
            "exports: [ {stream: a} ]",
            "imports: [ {stream: {account: A, subject: b}} ]",
            "`A` does not export the stream `b`",
        ),
        (
            "exports: [ {stream: a} ]",
            "imports: [ {service: {account: A, subject: a}} ]",
            "add it to that account's `exports`",
        ),
        (
            "exports: [ {stream: a.x} ]",
            "imports: [ {stream: {account: A, subject: \"a.*\"}} ]",
            "does not export",
        ),
        (
            "exports: [ {stream: a, accounts: [C]} ]",
            "imports: [ {stream: {account: A, subject: a}} ]",
            "to `B`: name it",
        ),
        (
            "exports: [ {stream: \"by.*\", account_token_position: 2} ]",
            "imports: [ {stream: {account: A, subject: by.C}} ]",
            "to `B`",
        ),
        ("exports: [ {stream: \"by.*\", account_token_position: 1} ]", "", "is not a `*`"),
        (
            "exports: [ {stream: \"a.>\"} ]",
            "imports: [ {stream: {account: A, subject: \"a.>\"}, prefix: \"p.*\"} ]",
            "without wildcards",
        ),
        (
            "exports: [ {stream: \"a.>\"} ]",
            "imports: [ {stream: {account: A, subject: \"a.>\"}, to: b} ]",
            "at the end of both",
        ),
        (
            "exports: [ {stream: \"a.*\"} ]",
            "imports: [ {stream: {account: A, subject: \"a.*\"}, to: b} ]",
            "must appear in `b` once",
        ),
        (
            "exports: [ {service: \"a.*\"} ]",
            "imports: [ {service: {account: A, subject: \"a.*\"}, to: \"b.$2\"} ]",
            "no wildcard number 2",
        ),
        (
            "exports: [ {stream: \"a.>\"} ]",
            "imports: [ {stream: {account: A, subject: a.x}}, {stream: {account: A, subject: a.x}, prefix: p} ]",
            "is imported twice",
        ),
        (
            "exports: [ {service: a}, {service: b} ]",
            "imports: [ {service: {account: A, subject: a}, to: n}, {service: {account: A, subject: b}, to: n} ]",
            "give this one another `to`",
        ),
        ("exports: [ {stream: a, response_type: stream} ]", "", "applies to services"),
        ("exports: [ {service: a, response_type: often} ]", "", "invalid response type"),
        ("exports: [ {stream: a, service: b} ]", "", "an entry of its own"),
        ("exports: [ {stream: a, nonsense: b} ]", "", "not supported in an export"),
        ("exports: [ {stream: a} ]", "imports: [ {stream: {account: A}} ]", "an `account` and a `subject`"),
        ("exports: {stream: a}", "", "expected a list [ … ]"),
        (
            "exports: [ {service: s} ], imports: [ {service: {account: B, subject: s}} ]",
            "exports: [ {service: s} ], imports: [ {service: {account: A, subject: s}} ]",
            "forms a cycle: B from A from B",
        ),
        (
            "exports: [ {stream: s} ], imports: [ {stream: {account: B, subject: s}} ]",
            "exports: [ {stream: s} ], imports: [ {stream: {account: A, subject: s}} ]",
            "forms a cycle",
        ),
    ];
    for (a, b, why) in REFUSED {
        let text = format!("accounts {{\nA {{\n{a}\n}}\nB {{\n{b}\n}}\nC {{\n}}\n}}\n");
        let faults = nats_config::read(&text, Path::new("nats.conf"), &Nothing).expect_err(why);
        let [fault] = &faults[..] else { panic!("one thing is wrong: {faults:?}") };
        assert!(fault.message.contains(why), "{why}: {fault}");
        let line = if b.is_empty() { 3 } else { 6 };
        assert_eq!(fault.line, line, "{fault}");
        assert_ne!(Peer::refuses(&text), Some(false), "{text}");
    }
    // A cycle under other names, which nats-server finds only when a message goes round.
    let text = "accounts {\nA { exports: [ {service: a} ], imports: [ {service: {account: B, subject: b}, to: a} ] }\n\
                B { exports: [ {service: b} ], imports: [ {service: {account: C, subject: c}, to: b} ] }\n\
                C { exports: [ {service: c} ], imports: [ {service: {account: A, subject: a}, to: c} ] }\n}\n";
    let faults = nats_config::read(text, Path::new("nats.conf"), &Nothing).expect_err("a cycle");
    assert_eq!(faults[0].line, 4, "{faults:?}");
    // Mutual imports of different services are no cycle.
    let text = "accounts {\nA { exports: [ {service: a} ], imports: [ {service: {account: B, subject: b}} ] }\n\
                B { exports: [ {service: b} ], imports: [ {service: {account: A, subject: a}, to: b} ] }\n}\n";
    assert!(nats_config::read(text, Path::new("nats.conf"), &Nothing).is_ok());
}

fn talk(server: &Server) -> Talk {
    Talk { address: server.addresses()[0], clients: BTreeMap::new() }
}

fn lines(heard: Vec<(String, String)>) -> Vec<String> {
    heard.into_iter().map(|(name, what)| format!("{name}: {what}")).collect()
}

/// A subscription with a maximum ends after its last message, from any account. nats-server 2.15.2 goes on:
/// it does not pass the maximum to the subscription in the other account.
#[test]
fn an_imported_subscription_ends_at_its_maximum() {
    for loops in [1, 2] {
        let server = ours(
            loops,
            &file(
                "A { exports: [ {stream: \"a.>\"} ] } B { imports: [ {stream: {account: A, subject: \"a.>\"}} ] }",
            ),
        );
        let mut talk = talk(&server);
        talk.say("b SUB a.> 1");
        talk.say("b UNSUB 1 2");
        assert_eq!(lines(talk.say("a PUB a.x")).len(), 1);
        assert_eq!(lines(talk.say("b PUB a.x")).len(), 1);
        assert_eq!(lines(talk.say("a PUB a.x")).len(), 0);
        assert_eq!(server.counted(feed::Counter::ImportedSubscriptions), 0);
    }
}

/// A reload applies to connected clients: streams, services, and pending requests.
#[test]
fn a_reload_applies_changed_imports() {
    const A: &str = "A { exports: [ {stream: \"a.>\"}, {service: q}, {service: r} ] }";
    for loops in [1, 2] {
        let with = |imports: &str| file(&format!("{A} B {{ imports: [ {imports} ] }}"));
        let stream = |prefix: &str| format!("{{stream: {{account: A, subject: \"a.>\"}}, prefix: {prefix}}}");
        let service = |name: &str| format!("{{service: {{account: A, subject: {name}}}}}");
        let server = ours(loops, &with(&stream("one")));
        let mut talk = talk(&server);
        for said in ["b SUB *.a.> 1", "b SUB i 2", "a SUB q 1", "a SUB r 2"] {
            talk.say(said);
        }
        let reload = |text: &str| {
            let listen = server.addresses()[0];
            server.reload(Config { listen, ..config_of(text) })
        };
        assert_eq!(lines(talk.say("a PUB a.x")), ["b: one.a.x 1 [] [] text"]);
        reload(&with(&[stream("two"), service("q"), service("r")].join(", "))).expect("it is sound");
        wait_until("the other name", || lines(talk.say("a PUB a.x")) == ["b: two.a.x 1 [] [] text"]);
        assert_eq!(lines(talk.say("b PUB r i")).len(), 1);
        let waits = talk.client("a").1.clone();
        assert_eq!(lines(talk.say("b PUB q i")).len(), 1);
        reload(&with(&service("q"))).expect("it is sound");
        wait_until("the stream is gone", || lines(talk.say("a PUB a.x")).is_empty());
        assert_eq!(lines(talk.say(&format!("a PUB {waits}"))).len(), 0, "r is taken away");
        assert_eq!(lines(talk.say("a PUB {reply}")), ["b: i 2 [] [] text"], "q goes on");
        assert!(lines(talk.say("b PUB r i"))[0].contains("503"));
        // An invalid configuration changes nothing.
        let mut authorization = config_of(&with(&service("q"))).authorization;
        authorization.accounts.retain(|account| account.name != "A");
        let listen = server.addresses()[0];
        let error =
            server.reload(Config { listen, authorization, ..Config::default() }).expect_err("A is gone");
        assert!(error.to_string().contains("imported from `A`, which is not an account"), "{error}");
        assert_eq!(lines(talk.say("b PUB q i")).len(), 1);
    }
}

#[test]
fn a_late_service_response_is_dropped() {
    let server = ours(
        2,
        &file(
            "A { exports: [ {service: q, response_threshold: \"20ms\"} ] } B { imports: [ {service: {account: A, subject: q}} ] }",
        ),
    );
    let mut talk = talk(&server);
    for said in ["a SUB q 1", "b SUB i 1", "b PUB q i"] {
        talk.say(said);
    }
    wait_until("its time is up", || server.counted(feed::Counter::RequestsUnanswered) == 1);
    assert_eq!(lines(talk.say("a PUB {reply}")).len(), 0);
    assert_eq!(server.counted(feed::Counter::RequestsOpen), 0);
}

/// Unanswered requests are bounded: at the bound a requester gets 503 (no responders), and another client
/// still gets its answer.
#[test]
fn requests_over_the_bound_get_503() {
    const AT_ONCE: usize = 10_000;
    let server = ours(
        1,
        &file("A { exports: [ {service: q} ] } B { imports: [ {service: {account: A, subject: q}} ] }"),
    );
    let mut talk = talk(&server);
    for said in ["a SUB q 1", "b SUB i 1", "b2 SUB i2 1"] {
        talk.say(said);
    }
    let mut refused = 0;
    for _ in 0..40 {
        let (greedy, _) = talk.client("b");
        greedy.send("PUB q i 0\r\n\r\n".repeat(AT_ONCE).as_bytes());
        refused += greedy.until_pong().len();
        assert!(talk.client("a").0.until_pong().len() <= AT_ONCE);
        if refused > 0 {
            break;
        }
    }
    assert!(refused > 0, "there is a bound");
    assert_eq!(server.counted(feed::Counter::RequestsRefused), refused as u64);
    talk.say("b2 PUB q i2");
    assert_eq!(lines(talk.say("a PUB {reply}")), ["b2: i2 1 [] [] text"]);
    assert!(server.counted(feed::Counter::RequestsForgotten) > 0);
}

/// A request to more subscriptions than one turn serves continues in later turns, and each subscription gets
/// it once; so does its answer.
#[test]
fn a_request_for_many_needs_several_turns() {
    const SUBSCRIPTIONS: usize = 40_000;
    for loops in [1, 2] {
        let server = ours(
            loops,
            &file("A { exports: [ {service: q} ] } B { imports: [ {service: {account: A, subject: q}} ] }"),
        );
        let mut talk = talk(&server);
        let all = |subject: &str| -> String {
            (1..=SUBSCRIPTIONS).map(|sid| format!("SUB {subject} {sid}\r\n")).collect()
        };
        for (who, subject) in [("a", "q"), ("b", "i")] {
            let (client, _) = talk.client(who);
            client.send(all(subject).as_bytes());
            assert_eq!(client.until_pong(), []);
        }
        assert_eq!(lines(talk.say("b PUB q i")).len(), SUBSCRIPTIONS);
        assert!(server.counted(feed::Counter::TurnsEnded) > 0);
        assert_eq!(lines(talk.say("a PUB {reply}")).len(), SUBSCRIPTIONS);
        assert_eq!(server.counted(feed::Counter::RequestsOpen), 0);
    }
}
