//! `nighttrain feed` as a program: its flags, its errors, and its own client commands against it.

use crate::support::{program, run};

#[test]
fn the_promised_flags_are_there_with_their_defaults() {
    let help = run(&mut program(&["feed", "--help"])).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for flag in [
        "--listen <ADDRESS>",
        "--monitor <ADDRESS>",
        "--nats-config <FILE>",
        "--websocket <ADDRESS>",
        "--max-payload <SIZE>",
        "[default: 127.0.0.1:4222]",
        "[default: 127.0.0.1:8222]",
        "[default: 127.0.0.1:9181]",
        "[env: NIGHTTRAIN_FEED_LISTEN=]",
    ] {
        assert!(help.contains(flag), "{flag}: {help}");
    }
    assert!(!help.contains("--origin"), "{help}");
    let bench = run(&mut program(&["feed", "bench", "--help"])).stdout;
    for flag in ["--url", "--messages", "--size", "--producers", "--consumers", "--rate", "--json", "--html"]
    {
        assert!(bench.contains(flag), "{flag}: {bench}");
    }
}

#[test]
fn invalid_feed_usage_gets_a_hint() {
    let directory = tempfile::tempdir().expect("a directory");
    let nats = directory.path().join("nats.conf");
    std::fs::write(&nats, "port: 4222\nmax_payload: much\noperator: x\n").expect("a file");
    let nats = nats.to_str().expect("text");
    for (arguments, code, says) in [
        (vec!["feed", "--nats-config", nats], 3, "nats.conf:2: invalid whole number `much`"),
        (vec!["feed", "--nats-config", nats], 3, "nats.conf:3: `operator`: JWT accounts are not supported"),
        (vec!["feed", "--tls-cert", "/c"], 3, "tls-key"),
        (vec!["feed", "--tls-cert", "/c", "--tls-key", "/k"], 3, "/c"),
        (vec!["feed", "--listen", "4222"], 2, "perhaps 127.0.0.1:4222"),
        (vec!["feed", "pub", "a b", "x"], 2, "invalid subject"),
        (vec!["feed", "pub", "a.*", "x"], 2, "invalid subject"),
        (vec!["feed", "sub", "a..b"], 2, "invalid subject"),
        (vec!["feed", "bench", "--size", "3"], 2, "--size must be at least 32"),
        (vec!["feed", "bench", "--producers", "0"], 2, "--producers must be 1 to"),
        (vec!["feed", "pub", "a", "x", "--url", "http://x"], 2, "a server is nats://HOST:PORT"),
        (
            vec!["feed", "pub", "a", "x", "--url", "nats://127.0.0.1:1"],
            1,
            "cannot connect to nats://127.0.0.1:1",
        ),
    ] {
        let ended = run(&mut program(&arguments));
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{arguments:?}: {}", ended.stderr);
        assert!(!ended.stderr.contains("changeme"), "{}", ended.stderr);
    }
}
