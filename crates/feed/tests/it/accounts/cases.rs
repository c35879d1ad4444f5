//! Conversations on which the servers are compared.

use super::Case;

const fn case(name: &'static str, accounts: &'static str, said: &'static [&'static str]) -> Case {
    Case { name, accounts, said, any: false }
}

pub(super) const CASES: &[Case] = &[
    case(
        "a stream under its own name, and what it does not let through",
        "A { exports: [ {stream: \"a.>\"} ] } B { imports: [ {stream: {account: A, subject: \"a.>\"}} ] }",
        &[
            "b SUB a.> 1",
            "b SUB a.x 2",
            "b SUB a.*.z 3",
            "b SUB > 4",
            "b SUB *.x 5",
            "b SUB x.> 6",
            "b SUB *.*.* 7",
            "a SUB a.x 1",
            "a PUB a.x",
            "a PUB a.y.z",
            "a PUB x.y",
            "b PUB a.x",
            "a PUB a.x i",
            "b UNSUB 1",
            "b UNSUB 4",
            "a PUB a.x",
        ],
    ),
    case(
        "a prefix",
        "A { exports: [ {stream: \"a.>\"} ] } B { imports: [ {stream: {account: A, subject: \"a.>\"}, prefix: \"p.q\"} ] }",
        &[
            "b SUB p.q.a.> 1",
            "b SUB p.q.a.x 2",
            "b SUB p.*.a.* 3",
            "b SUB > 4",
            "b SUB *.q.> 5",
            "b SUB a.> 6",
            "b SUB p.> 7",
            "b SUB *.*.*.*.y 8",
            "a PUB a.x",
            "a PUB a.x.y",
            "b PUB a.x",
        ],
    ),
    case(
        "a prefix with a dot at its end",
        "A { exports: [ {stream: a} ] } B { imports: [ {stream: {account: A, subject: a}, prefix: \"p.\"} ] }",
        &["b SUB > 1", "b SUB p.a 2", "b SUB a 3", "a PUB a"],
    ),
    case(
        "another name, with wildcards in another order",
        "A { exports: [ {stream: \"a.*.*\"} ] } B { imports: [ {stream: {account: A, subject: \"a.*.*\"}, to: \"x.$2.y.$1\"} ] }",
        &[
            "b SUB x.*.y.* 1",
            "b SUB x.two.y.one 2",
            "b SUB x.two.> 3",
            "b SUB x.one.y.* 4",
            "b SUB x.*.y.one 5",
            "a PUB a.one.two",
            "a PUB a.two.one",
            "a PUB a.one",
        ],
    ),
    case(
        "one wildcard and all behind it under another name",
        "A { exports: [ {stream: \"a.*.>\"} ] } B { imports: [ {stream: {account: A, subject: \"a.*.>\"}, to: \"x.*.y.>\"} ] }",
        &[
            "b SUB x.*.y.> 1",
            "b SUB x.k.> 2",
            "b SUB *.*.*.*.m 3",
            "a PUB a.k.l",
            "a PUB a.k.l.m",
            "a PUB a.k",
        ],
    ),
    case(
        "less of a stream than there is",
        "A { exports: [ {stream: \"a.>\"} ] } B { imports: [ {stream: {account: A, subject: \"a.b.*\"}, to: \"n.*\"} ] }",
        &["b SUB > 1", "b SUB n.x 2", "a PUB a.b.x", "a PUB a.c.x", "a PUB a.b.x.y"],
    ),
    case(
        "two streams that overlap come twice",
        "A { exports: [ {stream: \"a.>\"} ] } B { imports: [ {stream: {account: A, subject: \"a.>\"}}, {stream: {account: A, subject: \"a.b\"}} ] }",
        &["b SUB > 1", "b SUB a.b 2", "b SUB a.* 3", "a PUB a.b", "a PUB a.c"],
    ),
    case(
        "the same of two accounts",
        "A { exports: [ {stream: \"s.>\"} ] } C { exports: [ {stream: \"s.>\"} ] } \
         B { imports: [ {stream: {account: A, subject: \"s.>\"}}, {stream: {account: C, subject: \"s.>\"}} ] }",
        &["b SUB s.x 1", "b SUB s.> 2", "a PUB s.x", "c PUB s.x", "b PUB s.x"],
    ),
    case(
        "a stream goes one step",
        "A { exports: [ {stream: \"a.>\"} ] } \
         B { imports: [ {stream: {account: A, subject: \"a.>\"}, prefix: b} ], exports: [ {stream: \"b.>\"} ] } \
         C { imports: [ {stream: {account: B, subject: \"b.>\"}} ] }",
        &["c SUB > 1", "b SUB > 1", "a PUB a.x", "b PUB b.a.x"],
    ),
    case(
        "a request in a stream is answered by nobody from elsewhere",
        "A { exports: [ {stream: \"a.>\"} ] } B { imports: [ {stream: {account: A, subject: \"a.>\"}} ] }",
        &[
            "a SUB i 1",
            "a PUB a.x i",
            "b SUB a.x 1",
            "a PUB a.x i",
            "b PUB {reply}",
            "b UNSUB 1",
            "a PUB a.x i",
        ],
    ),
    case(
        "permissions hold for the name that it has here",
        "A { exports: [ {stream: \"a.>\"} ] } \
         B { imports: [ {stream: {account: A, subject: \"a.>\"}, prefix: p} ], default_permissions: {subscribe: {deny: [\"p.a.secret\", \"a.>\"]}} }",
        &["b SUB p.> 1", "b SUB p.a.secret 2", "b SUB a.x 3", "a PUB a.secret", "a PUB a.x"],
    ),
    Case {
        any: true,
        ..case(
            "a group in both accounts takes turns",
            "A { exports: [ {stream: \"a.>\"} ] } B { imports: [ {stream: {account: A, subject: \"a.>\"}} ] }",
            &[
                "b SUB a.x q 1",
                "b2 SUB a.x q 1",
                "a SUB a.x q 1",
                "b SUB a.x r 2",
                "a PUB a.x",
                "a PUB a.x",
                "a PUB a.x",
            ],
        )
    },
    Case {
        any: true,
        ..case(
            "a group under a prefix",
            "A { exports: [ {stream: \"a.>\"} ] } B { imports: [ {stream: {account: A, subject: \"a.>\"}, prefix: p} ] }",
            &[
                "b SUB p.a.* q 1",
                "b2 SUB p.a.* q 1",
                "b3 SUB p.a.* q 1",
                "a PUB a.x",
                "a PUB a.y",
                "b2 UNSUB 1",
                "a PUB a.z",
            ],
        )
    },
    case(
        "a service, its answer, and no second one",
        "A { exports: [ {service: \"q.x\"} ] } B { imports: [ {service: {account: A, subject: \"q.x\"}} ] }",
        &[
            "b SUB i 1",
            "b PUB q.x i",
            "a SUB q.x 1",
            "b PUB q.x i",
            "a PUB {reply}",
            "a PUB {reply}",
            "b PUB q.x",
            "a PUB q.x i",
            "b PUB q.y i",
            "bo SUB j 1",
            "bo PUB q.x j",
            "a PUB {reply}",
        ],
    ),
    case(
        "a service under another name",
        "A { exports: [ {service: \"q.x\"} ] } B { imports: [ {service: {account: A, subject: \"q.x\"}, to: \"local.q\"} ] }",
        &[
            "a SUB q.x 1",
            "b SUB i.* 1",
            "b PUB local.q i.1",
            "a PUB {reply}",
            "b PUB q.x i.2",
            "b UNSUB 1",
            "b PUB local.q i.3",
            "a PUB {reply}",
        ],
    ),
    case(
        "a service with wildcards",
        "A { exports: [ {service: \"q.*\"}, {service: \"r.>\"}, {service: \"s.*.*\"} ] } \
         B { imports: [ {service: {account: A, subject: \"q.*\"}}, {service: {account: A, subject: \"r.>\"}, to: \"l.r.>\"}, \
             {service: {account: A, subject: \"s.*.*\"}, to: \"t.$2.$1\"} ] }",
        &[
            "a SUB > 1",
            "b SUB i 1",
            "b PUB q.one i",
            "a PUB {reply}",
            "b PUB l.r.x.y i",
            "a PUB {reply}",
            "b PUB t.one.two i",
            "a PUB {reply}",
            "b PUB q.a.b i",
            "b PUB r.x i",
        ],
    ),
    case(
        "less of a service than there is, and all to one",
        "A { exports: [ {service: \"q.>\"} ] } \
         B { imports: [ {service: {account: A, subject: \"q.x.*\"}, to: \"n.*\"}, {service: {account: A, subject: \"q.y\"}, to: \"all.*\"} ] }",
        &[
            "a SUB > 1",
            "b SUB i 1",
            "b PUB n.k i",
            "a PUB {reply}",
            "b PUB all.m i",
            "a PUB {reply}",
            "b PUB q.x.k i",
        ],
    ),
    case(
        "many answers, until an empty one",
        "A { exports: [ {service: q, response_type: stream}, {service: r, response: chunked} ] } \
         B { imports: [ {service: {account: A, subject: q}}, {service: {account: A, subject: r}} ] }",
        &[
            "a SUB > 1",
            "b SUB i 1",
            "b PUB q i",
            "a PUB {reply}",
            "a PUB {reply}",
            "a PUB {reply} ~",
            "a PUB {reply}",
            "b PUB r i",
            "a PUB {reply}",
            "a PUB {reply} ~",
            "a PUB {reply}",
        ],
    ),
    case(
        "an answer that wants an answer",
        "A { exports: [ {service: q} ] } B { imports: [ {service: {account: A, subject: q}} ] }",
        &[
            "a SUB q 1",
            "a SUB k 2",
            "b SUB i 1",
            "b PUB q i",
            "a PUB {reply} k",
            "b PUB {reply}",
            "b PUB {reply}",
        ],
    ),
    case(
        "from service to service",
        "A { exports: [ {service: q} ] } \
         B { imports: [ {service: {account: A, subject: q}, to: mid} ], exports: [ {service: mid} ] } \
         C { imports: [ {service: {account: B, subject: mid}, to: far} ] }",
        &[
            "c SUB i 1",
            "c PUB far i",
            "a SUB > 1",
            "c PUB far i",
            "a PUB {reply}",
            "b SUB > 1",
            "c PUB far i",
            "a PUB {reply}",
            "b PUB mid i",
        ],
    ),
    case(
        "the same name for services of two accounts, and somebody at home",
        "A { exports: [ {service: q} ] } C { exports: [ {service: q} ] } \
         B { imports: [ {service: {account: A, subject: q}}, {service: {account: C, subject: q}} ] }",
        &[
            "a SUB q 1",
            "c SUB q 1",
            "b SUB q 1",
            "b2 SUB i 1",
            "b2 PUB q i",
            "a PUB {reply}",
            "c PUB {reply}",
            "b PUB {reply}",
        ],
    ),
    case(
        "a request does not come out of a stream",
        "A { exports: [ {service: q}, {stream: \">\"} ] } B { imports: [ {service: {account: A, subject: q}} ] } \
         D { imports: [ {stream: {account: A, subject: \">\"}, prefix: s} ] }",
        // With d on another core, the server cannot know whether anyone else listens.
        &["d SUB > 1", "b SUB i 1", "a SUB q 1", "b PUB q i", "a PUB q", "a PUB {reply}"],
    ),
    case(
        "what the other account maps",
        "A { exports: [ {service: q} ], mappings: {q: \"really.q\"} } B { imports: [ {service: {account: A, subject: q}} ] }",
        &["a SUB > 1", "b SUB i 1", "b PUB q i", "a PUB {reply}"],
    ),
    case(
        "what the own account maps",
        "A { exports: [ {service: q} ] } B { imports: [ {service: {account: A, subject: q}} ], mappings: {\"my.q\": q} }",
        &["a SUB > 1", "b SUB i 1", "b PUB my.q i", "a PUB {reply}"],
    ),
    case(
        "an answer to a service",
        "A { exports: [ {service: q}, {service: r} ] } \
         B { imports: [ {service: {account: A, subject: q}}, {service: {account: A, subject: r}} ] }",
        &["a SUB > 1", "b PUB q r", "a PUB {reply}", "b PUB q q", "a PUB {reply}"],
    ),
    case(
        "who may have it",
        "A { exports: [ {service: \"p.*\", accounts: [B]}, {stream: \"t.>\", accounts: [B, C]}, {stream: \"by.*.x\", account_token_position: 2} ] } \
         B { imports: [ {service: {account: A, subject: \"p.*\"}}, {stream: {account: A, subject: \"t.>\"}}, {stream: {account: A, subject: \"by.B.x\"}} ] } \
         C { imports: [ {stream: {account: A, subject: \"t.x\"}} ] }",
        &[
            "b SUB > 1",
            "c SUB > 1",
            "a SUB p.x 1",
            "a PUB t.x",
            "a PUB t.y",
            "a PUB by.B.x",
            "a PUB by.C.x",
            "b PUB p.x b",
        ],
    ),
    case(
        "an empty list of accounts is everybody, as is a second export",
        "A { exports: [ {stream: t, accounts: []}, {service: q, accounts: [B]}, {service: q, accounts: [C]} ] } \
         B { imports: [ {stream: {account: A, subject: t}}, {service: {account: A, subject: q}} ] } \
         C { imports: [ {service: {account: A, subject: q}} ] }",
        &["b SUB t 1", "a PUB t", "a SUB q 1", "b PUB q", "c PUB q"],
    ),
    case(
        "who asks is said once, whatever a client says",
        "A { exports: [ {service: q} ] } B { imports: [ {service: {account: A, subject: q}} ] }",
        &["a SUB q 1", "b HPUB q Nats-Request-Info:{\"acc\":\"A\"}", "b HPUB q X:y", "b PUB q ~"],
    ),
    case(
        "who asks is said in full",
        "A { exports: [ {service: q} ] } B { imports: [ {service: {account: A, subject: q}, share: true} ] }",
        &["a SUB q 1", "b PUB q"],
    ),
    case(
        "nobody has answers come where another's come",
        "A { exports: [ {service: q} ] } B { imports: [ {service: {account: A, subject: q}} ] }",
        &["b PUB q _R_.x.y", "a PUB _R_.abcdef.abcdef", "a PUB q _R_.x", "b PUB _R_.x i"],
    ),
    Case {
        any: true,
        ..case(
            "one of a group answers",
            "A { exports: [ {service: q} ] } B { imports: [ {service: {account: A, subject: q}} ] }",
            &["a SUB q g 1", "a2 SUB q g 1", "a3 SUB q g 1", "b SUB i 1", "b PUB q i", "b PUB q i"],
        )
    },
];
