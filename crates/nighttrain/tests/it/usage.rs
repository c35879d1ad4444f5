//! The command line: its output and its errors.

use crate::support::{program, run};

#[test]
fn help_and_version_are_on_stdout() {
    for arguments in [&["--help"][..], &["-h"], &["cache", "--help"], &["stat", "--help"], &["help", "purge"]]
    {
        let ended = run(&mut program(arguments));
        assert_eq!(ended.code, 0, "{arguments:?}");
        assert!(ended.stdout.contains("Usage: nighttrain"), "{}", ended.stdout);
        assert_eq!(ended.stderr, "");
    }
    let ended = run(&mut program(&["--version"]));
    assert_eq!(ended.stdout, format!("nighttrain {}\n", env!("CARGO_PKG_VERSION")));
}

/// Flags that the design names.
#[test]
fn the_promised_flags_are_there_with_their_defaults() {
    let help = run(&mut program(&["cache", "--help"])).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for flag in [
        "--origin <URL>",
        "--listen <ADDRESS>",
        "--memory <SIZE>",
        "--store <WHERE>",
        "--default-ttl <TIME>",
        "--cookies <RULE>",
        "--cores <LIST>",
        "--admin <ADDRESS>",
        "--state <DIR>",
        "--config <FILE>",
        "--demo",
        "[default: 127.0.0.1:8080]",
        "[default: 256MiB]",
        "[default: 0s]",
        "[default: safe]",
        "[default: 127.0.0.1:9180]",
        "[env: NIGHTTRAIN_CACHE_LISTEN=]",
        "[env: NIGHTTRAIN_ADMIN=]",
    ] {
        assert!(help.contains(flag), "{flag}: {help}");
    }
}

#[test]
fn wrong_usage_exits_2_with_a_hint() {
    for (arguments, says) in [
        (&["nonsense"][..], "unrecognized subcommand"),
        (&[], "Usage"),
        (&["cache", "--nonsense"], "unexpected argument"),
        (&["cache"], "--origin http://HOST:PORT"),
        (&["cache", "--origin", "http://a", "--demo"], "cannot be used with"),
        (&["cache", "--demo", "--memory", "256"], "perhaps 256MiB"),
        (&["cache", "--demo", "--memory", "0MiB"], "needs some memory"),
        (&["cache", "--demo", "--default-ttl", "10"], "perhaps 10s"),
        (&["cache", "--demo", "--listen", "8080"], "perhaps 127.0.0.1:8080"),
        (&["cache", "--demo", "--paging", "mmap"], "expected direct or kernel"),
        (&["cache", "--demo", "--cookies", "maybe"], "safe, strict or rfc"),
        (&["cache", "--demo", "--cores", "0,0"], "twice"),
        (&["cache", "--demo", "--log", "loud"], "invalid log level"),
        (&["cache", "--origin", "127.0.0.1:3000"], "perhaps http://127.0.0.1:3000"),
        (&["cache", "--origin", "ftp://a"], "unknown scheme"),
        (&["purge"], "<URL>"),
        (&["config"], "--print"),
        (&["check"], "<FILE>"),
        (&["completions", "csh"], "possible values"),
    ] {
        let ended = run(&mut program(arguments));
        assert_eq!(ended.code, 2, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }
}

#[test]
fn completions_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = run(&mut program(&["completions", shell]));
        assert_eq!(ended.code, 0);
        assert!(ended.stdout.contains("default-ttl"), "{shell}");
    }
}

#[test]
fn commands_exit_1_without_an_admin_listener() {
    // Bound without listening: connections are refused, and no other program gets the port in the meantime.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
    let address = socket.local_addr().expect("an address").as_socket().expect("an IP address").to_string();
    for arguments in [&["stat", "--admin", &address][..], &["purge", "http://a/", "--admin", &address]] {
        let ended = run(&mut program(arguments));
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("cannot connect to {address}")), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1);
        assert_eq!(ended.stdout, "");
    }
}

/// `nighttrain completions bash | head -1` is no failure.
#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child = program(&["completions", "bash"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
