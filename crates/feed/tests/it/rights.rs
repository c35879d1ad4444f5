//! Permissions, queue groups and allowed responses work as in nats-server 2.15.2.

use std::path::Path;

use feed::{Server, nats_config};

use crate::{
    accounts::Nothing,
    common::{Client, Got, start},
};

/// Starts a feed with `loops` event loops from a NATS configuration file.
fn feed(loops: usize, text: &str) -> Server {
    let (options, _) = nats_config::read(text, Path::new("nats.conf"), &Nothing).expect("it is sound");
    start(loops, |config| {
        config.authorization = options.authorization;
        config.limits.max_payload = options.max_payload.map_or(1 << 20, |bytes| bytes as usize);
    })
}

/// Connects as a user. With `echo` off in `more`, the client does not get its own messages.
fn client(server: &Server, user: &str, more: &str) -> Client {
    let mut client = Client::silent(server);
    client.send(
        format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\
             \"user\":\"{user}\",\"pass\":\"x\"{more}}}\r\n"
        )
        .as_bytes(),
    );
    client.ping();
    client
}

/// Operations as text: `sid subject payload` for a message, the text of an error.
fn shown(got: Vec<Got>) -> Vec<String> {
    let shown = |got| match got {
        Got::Message { subject, sid, payload, .. } => {
            format!("{sid} {subject} {}", String::from_utf8_lossy(&payload))
        }
        Got::Error(words) => words,
        other => format!("{other:?}"),
    };
    got.into_iter().map(shown).collect()
}

/// Messages and errors that each client received, once messages between cores have arrived.
fn all(clients: &mut [&mut Client]) -> Vec<Vec<String>> {
    let mut got = vec![Vec::new(); clients.len()];
    // Each core passes a message on at most once.
    for _ in 0..4 {
        for (client, got) in clients.iter_mut().zip(&mut got) {
            got.extend(shown(client.until_pong()));
        }
    }
    got
}

fn of(subject: &str, got: &[String]) -> usize {
    got.iter().filter(|line| line.split(' ').nth(1) == Some(subject)).count()
}

fn users(att: &str) -> String {
    format!(
        "authorization {{ users: [ {{user: pub, password: x}}, {{user: att, password: x, permissions: {att}}} ] }}"
    )
}

/// nats-server 2a45fb2e1: a wildcard subscription in the denied group does not get the denied subject.
#[test]
fn a_denied_group_gets_nothing_by_wildcards() {
    for loops in [1, 3] {
        for (deny, group) in [("admin.secret workers", "workers"), ("admin.secret work.*", "work.a")] {
            let server = feed(loops, &users(&format!("{{subscribe: {{allow: \">\", deny: [\"{deny}\"]}}}}")));
            let mut att = client(&server, "att", "");
            let mut publisher = client(&server, "pub", "");
            let mut legit = client(&server, "pub", "");
            att.send(
                format!("SUB admin.* {group} 1\r\nSUB admin.* auditors 2\r\nSUB admin.* 3\r\n").as_bytes(),
            );
            att.ping();
            publisher.send(b"PUB admin.secret 1\r\nx\r\nPUB admin.open 1\r\ny\r\n");
            let mut got = all(&mut [&mut publisher, &mut att]).remove(1);
            got.sort();
            assert_eq!(
                got,
                [
                    "1 admin.open y",
                    "2 admin.open y",
                    "2 admin.secret x",
                    "3 admin.open y",
                    "3 admin.secret x"
                ],
                "{deny} {loops}"
            );
            // Another member of the group gets all of the messages.
            legit.send(format!("SUB admin.* {group} 9\r\n").as_bytes());
            legit.ping();
            for _ in 0..100 {
                publisher.publish("admin.secret", b"x");
            }
            let got = all(&mut [&mut publisher, &mut att, &mut legit]);
            assert_eq!(of("admin.secret", &got[2]), 100, "{deny} {loops}");
            assert!(got[1].iter().all(|line| !line.starts_with("1 ")), "{deny} {loops}: {got:?}");
        }
    }
}

/// GHSA-wh7g-5m82-pmhr: a plain deny holds for every queue group, whatever entries with groups allow.
#[test]
fn a_plain_deny_applies_to_every_group() {
    let server = feed(1, &users("{subscribe: {deny: [\"admin.secret\", \"admin.secret workers\"]}}"));
    let mut att = client(&server, "att", "");
    att.send(b"SUB admin.secret auditors 1\r\nSUB admin.secret 2\r\n");
    assert_eq!(
        shown(att.until_pong()),
        [
            "Permissions Violation for Subscription to \"admin.secret\" using queue \"auditors\"",
            "Permissions Violation for Subscription to \"admin.secret\""
        ]
    );
}

/// GHSA-jx8g-9g95-6322: denies that overlap a subscription without covering it hold, plain and in a group.
#[test]
fn overlapping_denies_hold_and_no_message_is_lost() {
    const PAIRS: [(&str, &str, &str, &str); 4] = [
        ("*.secret", "foo.*", "foo.secret", "foo.open"),
        ("foo.*.bar", "foo.baz.*", "foo.baz.bar", "foo.baz.open"),
        ("*.*.bar", "foo.*.*", "foo.a.bar", "foo.a.open"),
        ("a.>", "*.b", "a.b", "c.b"),
    ];
    for loops in [1, 2, 3] {
        for (deny, pattern, denied, beside) in PAIRS {
            for (deny_queue, of_group) in [("", false), ("", true), (" g", true)] {
                let server =
                    feed(loops, &users(&format!("{{subscribe: {{deny: [\"{deny}{deny_queue}\"]}}}}")));
                let mut att = client(&server, "att", "");
                let mut other = client(&server, "pub", "");
                let mut publisher = client(&server, "pub", "");
                let group = if of_group { "g " } else { "" };
                att.send(format!("SUB {pattern} {group}1\r\n").as_bytes());
                att.ping();
                other.send(format!("SUB {pattern} g 2\r\n").as_bytes());
                other.ping();
                for subject in [denied, beside] {
                    for _ in 0..100 {
                        publisher.publish(subject, b"x");
                    }
                }
                let got = all(&mut [&mut publisher, &mut att, &mut other]);
                let what = format!("{deny}{deny_queue} {pattern} {group} {loops}");
                assert_eq!(of(denied, &got[1]), 0, "{what}");
                assert_eq!(of(denied, &got[2]), 100, "{what}");
                if of_group {
                    assert_eq!((of(beside, &got[1]), of(beside, &got[2])), (50, 50), "{what}");
                } else {
                    assert_eq!((of(beside, &got[1]), of(beside, &got[2])), (100, 100), "{what}");
                }
            }
        }
    }
}

/// Members on several cores may not receive a message: it goes to each core once, and is delivered by the
/// core whose member may.
#[test]
fn a_group_asks_every_core_until_one_takes() {
    let server = feed(4, &users("{subscribe: {deny: [\"a.secret\"]}}"));
    let mut refusing: Vec<Client> = (0..3).map(|_| client(&server, "att", "")).collect();
    let mut taking = client(&server, "pub", "");
    for refusing in &mut refusing {
        refusing.send(b"SUB a.* g 1\r\n");
        refusing.ping();
    }
    taking.send(b"SUB a.* g 2\r\n");
    taking.ping();
    // One producer on each core, which is itself a member without echo.
    let mut producers: Vec<Client> = (0..4).map(|_| client(&server, "pub", ",\"echo\":false")).collect();
    for producer in &mut producers {
        producer.send(b"SUB a.secret g 3\r\n");
        producer.ping();
    }
    for producer in &mut producers {
        for _ in 0..25 {
            producer.publish("a.secret", b"x");
        }
    }
    let mut everybody: Vec<&mut Client> = producers.iter_mut().chain(&mut refusing).collect();
    everybody.push(&mut taking);
    let got = all(&mut everybody);
    assert_eq!(got.iter().map(|got| of("a.secret", got)).sum::<usize>(), 100, "each once");
    // Messages that no member may receive are dropped, and do not circulate.
    drop((taking, producers));
    let mut producer = client(&server, "pub", ",\"echo\":false");
    producer.send(b"SUB a.secret g 3\r\n");
    producer.ping();
    producer.publish("a.secret", b"x");
    let got = all(&mut [&mut producer]);
    assert_eq!(of("a.secret", &got[0]), 0);
}

/// nats-server: one group name is one group, over any number of matching patterns with members.
#[test]
fn one_name_on_overlapping_patterns_is_one_group() {
    for loops in [1, 2, 3] {
        for patterns in [&["e.*", "e.>"][..], &["e.a", "e.*", "e.>"], &["e.>", ">", "*.a", "e.a", "*.*"]] {
            let server = feed(loops, &users("{}"));
            let mut members: Vec<Client> = patterns
                .iter()
                .map(|pattern| {
                    let mut member = client(&server, "pub", "");
                    member.send(
                        format!("SUB {pattern} q 1\r\nSUB {pattern} other{} 2\r\n", pattern.len()).as_bytes(),
                    );
                    member.ping();
                    member
                })
                .collect();
            let mut publisher = client(&server, "pub", "");
            let each = 60;
            for _ in 0..each * patterns.len() {
                publisher.publish("e.a", b"x");
            }
            let mut everybody = vec![&mut publisher];
            everybody.extend(&mut members);
            let got = all(&mut everybody);
            let of_q: Vec<usize> =
                got[1..].iter().map(|got| got.iter().filter(|line| line.starts_with("1 ")).count()).collect();
            assert_eq!(of_q, vec![each; patterns.len()], "{patterns:?} {loops}");
        }
    }
}

#[test]
fn one_name_is_one_group_over_imports() {
    let accounts = "accounts {\nA { users: [ {user: a, password: x} ], exports: [ {stream: \"e.>\"} ] }\n\
                    B { users: [ {user: b, password: x} ], imports: [ {stream: {account: A, subject: \"e.>\"}} ] }\n}";
    for loops in [1, 2, 3] {
        let server = feed(loops, accounts);
        let (mut one, mut two) = (client(&server, "b", ""), client(&server, "b", ""));
        one.send(b"SUB e.* q 1\r\n");
        one.ping();
        two.send(b"SUB e.> q 1\r\n");
        two.ping();
        let mut publisher = client(&server, "a", "");
        for _ in 0..100 {
            publisher.publish("e.a", b"x");
        }
        let got = all(&mut [&mut publisher, &mut one, &mut two]);
        assert_eq!((of("e.a", &got[1]), of("e.a", &got[2])), (50, 50), "{loops}");
    }
}

/// A requester needs no permission to publish to its reply subject; reply subjects that servers generate are
/// refused.
#[test]
fn who_asks_need_not_publish_to_its_reply() {
    let server = feed(1, &users("{publish: \"req.>\", subscribe: \"_INBOX.>\"}"));
    let mut responder = client(&server, "pub", "");
    responder.subscribe("req.>", "1");
    let mut asker = client(&server, "att", "");
    asker.send(b"SUB _INBOX.1 2\r\nPUB req.a _INBOX.1 2\r\nhi\r\n");
    asker.ping();
    let Got::Message { reply, .. } = responder.next() else { panic!("the request comes") };
    assert_eq!(reply, "_INBOX.1");
    responder.publish("_INBOX.1", b"ho");
    responder.ping();
    assert_eq!(shown(asker.until_pong()), ["2 _INBOX.1 ho"]);
    for reserved in ["_R_.a.b", "$JS.ACK.s.c.1.2.3.4.5", "_GR_.a.b.c", "$GR.a.b"] {
        for who in [&mut asker, &mut responder] {
            who.send(format!("PUB req.a {reserved} 2\r\nhi\r\n").as_bytes());
            let said = format!("Permissions Violation for Publish with Reply of \"{reserved}\"");
            assert_eq!(shown(who.until_pong()), [said], "and nothing is delivered");
        }
    }
}

/// Subjects and groups that nats-servers use among themselves are refused to clients.
#[test]
fn subjects_of_servers_are_refused() {
    let server = feed(1, &users("{}"));
    let mut one = client(&server, "pub", "");
    one.subscribe(">", "1");
    for subject in ["$NRG.V.x", "_GR_.a.b.c", "$GR.a.b"] {
        one.publish(subject, b"x");
        let said = format!("Permissions Violation for Publish to \"{subject}\"");
        assert_eq!(shown(one.until_pong()), [said]);
    }
    one.send(b"SUB a _sys_ 2\r\n");
    assert_eq!(
        shown(one.until_pong()),
        ["Permissions Violation for Subscription to \"a\" using queue \"_sys_\""]
    );
}

/// Each response counts against the limit, even if many arrive in one read.
#[test]
fn each_response_counts_however_it_is_cut() {
    for (rule, max) in [("true", 1), ("{max: 2}", 2), ("{max: 3, expires: \"1m\"}", 3)] {
        let text = format!("PUB inbox.1 1{}", "\r\nx\r\nPUB inbox.1 1".repeat(5)) + "\r\nx\r\n";
        for cut in [0, 1, 7, 13, 14, 15, 18, 19, 20, 40, text.len()] {
            let server = feed(1, &users(&format!("{{subscribe: \"svc.>\", allow_responses: {rule}}}")));
            let mut responder = client(&server, "att", "");
            responder.subscribe("svc.>", "1");
            let mut asker = client(&server, "pub", "");
            asker.subscribe("inbox.1", "2");
            asker.send(b"PUB svc.a inbox.1 1\r\n?\r\n");
            asker.ping();
            let Got::Message { .. } = responder.next() else { panic!("the request comes") };
            responder.send(&text.as_bytes()[..cut]);
            let mut answers = shown(asker.until_pong());
            responder.send(&text.as_bytes()[cut..]);
            let refused = shown(responder.until_pong());
            answers.extend(shown(asker.until_pong()));
            assert_eq!(refused.len(), 6 - max, "{rule} {cut}: {refused:?}");
            assert!(
                refused.iter().all(|said| said == "Permissions Violation for Publish to \"inbox.1\""),
                "{refused:?}"
            );
            assert_eq!(answers.len(), max, "{rule} {cut}");
        }
    }
}

/// A verbose client gets one answer for each operation: a refused message gets an error and no +OK.
#[test]
fn a_refused_message_gets_no_ok() {
    let server = feed(1, &users("{publish: \"a\", subscribe: \"a\"}"));
    let mut one = Client::silent(&server);
    one.send(b"CONNECT {\"pedantic\":false,\"user\":\"att\",\"pass\":\"x\"}\r\n");
    assert_eq!(shown(one.until_pong()), ["Ok"]);
    one.send(b"PUB a 1\r\nx\r\nPUB b 1\r\nx\r\nSUB a 1\r\nSUB b 2\r\n");
    assert_eq!(
        shown(one.until_pong()),
        [
            "Ok",
            "Permissions Violation for Publish to \"b\"",
            "Ok",
            "Permissions Violation for Subscription to \"b\""
        ]
    );
}

/// Advisory 2026-03 and nats-server 894ecebe9: the server alone sets `Nats-Request-Info`; a client's own
/// header is dropped in any spelling.
#[test]
fn nobody_says_who_asks_but_the_server() {
    let accounts = "accounts {\nA { users: [ {user: a, password: x} ], imports: [ {service: {account: B, subject: ask.stock}, share: true} ] }\n\
                    B { users: [ {user: b, password: x} ], exports: [ {service: ask.stock} ] }\n}";
    for loops in [1, 2] {
        let server = feed(loops, accounts);
        let mut responder = client(&server, "b", "");
        responder.subscribe("ask.stock", "1");
        let mut asker = client(&server, "a", "");
        for lie in [
            "nats-request-info: {\"acc\":\"B\",\"user\":\"admin\"}",
            "NATS-REQUEST-INFO: {\"acc\":\"B\",\"user\":\"admin\"}",
            "Nats-Request-Info : {\"acc\":\"B\",\"user\":\"admin\"}",
            " Nats-Request-Info: {\"acc\":\"B\",\"user\":\"admin\"}",
            "Nats-Request-Info: {\"acc\":\"B\",\"user\":\"admin\"}",
            "Nats-Request-Info: {\"acc\":\"B\",\r\n \"user\":\"admin\"}",
            "Nats-Request-Info: {}\r\nnats-request-info: {\"user\":\"admin\"}",
        ] {
            let header = format!("NATS/1.0\r\nX: y\r\n{lie}\r\n\r\n");
            for reply in ["", "r "] {
                let sizes = (header.len(), header.len() + 2);
                asker.send(
                    format!("HPUB ask.stock {reply}{} {}\r\n{header}hi\r\n", sizes.0, sizes.1).as_bytes(),
                );
                asker.ping();
                let Got::Message { header, .. } = responder.next() else { panic!("the request comes") };
                let header = String::from_utf8_lossy(&header).into_owned();
                let said = header.to_ascii_lowercase().matches("nats-request-info").count();
                assert!(said == 1 && !header.contains("admin") && header.contains("X: y\r\n"), "{header}");
                assert!(header.contains("\r\nNats-Request-Info: {") && header.contains("\"user\":\"a\""));
            }
        }
    }
}

/// nats-server: accounts with only the system account's users, and no `authorization`, require no login.
#[test]
fn a_system_account_alone_keeps_nobody_out() {
    let connected = |text: &str, connect: &str| {
        let server = feed(1, text);
        let mut one = Client::silent(&server);
        one.send(format!("CONNECT {{\"verbose\":false{connect}}}\r\nPING\r\n").as_bytes());
        one.next()
    };
    let system = "accounts { $SYS { users: [ {user: sys, password: x} ] } }";
    let named = "accounts { SYS { users: [ {user: sys, password: x} ] } }\nsystem_account: SYS";
    for text in [system, named] {
        assert_eq!(connected(text, ""), Got::Pong, "{text}");
        assert_eq!(connected(text, ",\"user\":\"sys\",\"pass\":\"x\""), Got::Pong, "{text}");
        let wrong = Got::Error("Authorization Violation".to_owned());
        assert_eq!(connected(text, ",\"user\":\"sys\",\"pass\":\"y\""), wrong, "{text}");
        // GHSA-fr2g-9hjm-wr23: any `authorization` beside it requires a login.
        for more in [
            "authorization { }",
            "authorization { users: [ {user: a, password: x} ] }",
            "authorization { token: t }",
        ] {
            assert_eq!(connected(&format!("{text}\n{more}"), ""), wrong, "{text} {more}");
            let sys = connected(&format!("{text}\n{more}"), ",\"user\":\"sys\",\"pass\":\"x\"");
            assert_eq!(sys, Got::Pong, "{text} {more}");
        }
    }
    let two = "accounts { $SYS { users: [ {user: sys, password: x} ] }\n A { } }";
    assert_eq!(connected(two, ""), Got::Error("Authorization Violation".to_owned()));
}

/// CONNECT is parsed like Go's JSON: names are case-insensitive, the last of equal names counts, and null
/// changes nothing.
#[test]
fn connect_is_read_as_go_reads_it() {
    let server = feed(1, "authorization { user: u, password: p }");
    for (connect, is_let_in) in [
        ("{\"USER\":\"u\",\"PASS\":\"p\",\"Verbose\":false}", true),
        ("{\"user\":\"x\",\"User\":\"u\",\"pass\":\"p\",\"verbose\":false}", true),
        ("{\"user\":\"u\",\"USER\":null,\"pass\":\"p\",\"verbose\":false,\"unknown\":[{}]}", true),
        ("{\"user\":\"u\",\"User\":\"x\",\"pass\":\"p\",\"verbose\":false}", false),
    ] {
        let mut one = Client::silent(&server);
        one.send(format!("CONNECT {connect}\r\nPING\r\n").as_bytes());
        let expected = if is_let_in { Got::Pong } else { Got::Error("Authorization Violation".to_owned()) };
        assert_eq!(one.next(), expected, "{connect}");
    }
}

/// nats-server: a second CONNECT is another login, without the earlier subscriptions.
#[test]
fn another_connect_is_another_login() {
    let accounts =
        "accounts {\nA { users: [ {user: a, password: x} ] }\nB { users: [ {user: b, password: x} ] }\n}";
    let server = feed(1, accounts);
    let (mut of_a, mut of_b) = (client(&server, "a", ""), client(&server, "b", ""));
    let mut one = client(&server, "a", "");
    one.subscribe("s", "1");
    // A CONNECT without credentials keeps the user.
    one.send(b"CONNECT {\"verbose\":false}\r\n");
    one.subscribe("s", "2");
    of_a.publish("s", b"x");
    of_a.ping();
    assert_eq!(shown(one.until_pong()), ["2 s x"]);
    one.send(b"CONNECT {\"user\":\"b\",\"pass\":\"x\"}\r\n");
    of_b.ping();
    one.subscribe("s", "3");
    for other in [&mut of_a, &mut of_b] {
        other.publish("s", b"y");
        other.ping();
    }
    assert_eq!(shown(one.until_pong()), ["3 s y"], "of B alone, once");
    one.send(b"CONNECT {\"user\":\"b\",\"pass\":\"wrong\"}\r\n");
    assert_eq!((one.next(), one.next()), (Got::Error("Authorization Violation".to_owned()), Got::Closed));
}

/// nats-server: with `no_auth_user` a client may begin with any operation.
#[test]
fn who_says_nothing_needs_no_connect() {
    let text = "authorization { users: [ {user: nobody, password: x, permissions: {publish: a}}, {user: b, password: x} ] }\n\
                no_auth_user: nobody";
    let server = feed(1, text);
    let mut watcher = client(&server, "b", "");
    watcher.subscribe(">", "1");
    let mut socket = Client::silent(&server);
    socket.send(b"PUB a 1\r\nx\r\nPUB b 1\r\nx\r\n");
    assert_eq!(shown(socket.until_pong()), ["Ok", "Permissions Violation for Publish to \"b\""]);
    assert_eq!(shown(watcher.until_pong()), ["1 a x"]);
    // Without `no_auth_user` the first operation must be CONNECT.
    let server = feed(1, "authorization { users: [ {user: b, password: x} ] }");
    let mut socket = Client::silent(&server);
    socket.send(b"PING\r\n");
    assert_eq!(socket.next(), Got::Error("Authorization Violation".to_owned()));
}

#[test]
fn an_account_has_its_own_limits() {
    let accounts = "accounts {\nA { users: [ {user: a, password: x} ], limits { max_connections: 2, max_subs: 1, max_payload: 10 } }\n\
                    B { users: [ {user: b, password: x} ] }\n}";
    for loops in [1, 2] {
        let server = feed(loops, accounts);
        let (mut one, two) = (client(&server, "a", ""), client(&server, "a", ""));
        let third = |user: &str| {
            let mut third = Client::silent(&server);
            third.send(
                format!("CONNECT {{\"verbose\":false,\"user\":\"{user}\",\"pass\":\"x\"}}\r\nPING\r\n")
                    .as_bytes(),
            );
            (third.next(), third)
        };
        assert_eq!(third("a").0, Got::Error("maximum account active connections exceeded".to_owned()));
        let (of_b, mut b) = third("b");
        assert_eq!(of_b, Got::Pong);
        b.send(b"SUB a 1\r\nSUB b 2\r\nPUB x 11\r\n01234567890\r\n");
        assert!(shown(b.until_pong()).is_empty());
        one.send(b"SUB a 1\r\nSUB b 2\r\nPUB x 10\r\n0123456789\r\n");
        assert_eq!(shown(one.until_pong()), ["maximum subscriptions exceeded"]);
        one.send(b"PUB x 11\r\n01234567890\r\n");
        assert_eq!(one.next(), Got::Error("Maximum Payload Violation".to_owned()));
        drop((one, two));
        crate::common::wait_until("there is room again", || third("a").0 == Got::Pong);
    }
}
