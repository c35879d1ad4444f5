//! The program as a process: ports, signals, and the commands that ask it.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    missing_docs,
    reason = "a test of a process waits, and may fail"
)]

mod support;

use rustix::process::Signal;
use support::{Running, configuration, program, run};

const DEMO: [&str; 6] = ["cache", "--demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

#[test]
fn a_port_in_use_is_1_and_one_line() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("an address").to_string();
    for arguments in
        [["--listen", &address, "--admin", "127.0.0.1:0"], ["--admin", &address, "--listen", "127.0.0.1:0"]]
    {
        let ended = run(program(&["cache", "--demo"]).args(arguments));
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert!(ended.stderr.contains(&address) && ended.stderr.contains("another process listens there"));
        assert_eq!(ended.stdout, "");
    }
}

#[test]
fn it_says_what_it_bound_answers_and_stops() {
    let running = Running::start(&mut program(&DEMO));
    assert!(running.announced.contains("slow demonstration site"), "{}", running.announced);
    let admin = running.admin.to_string();

    let stat = run(&mut program(&["stat", "--admin", &admin]));
    assert_eq!(stat.code, 0, "{}", stat.stderr);
    assert!(stat.stdout.contains("ready"), "{}", stat.stdout);
    let json = run(&mut program(&["stat", "--json", "--admin", &admin]));
    let value: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    for group in ["requests", "bytes", "store", "loops", "limits", "errors"] {
        assert!(value[group].is_object(), "{group}: {}", json.stdout);
    }
    let purge = run(&mut program(&["purge", "http://a.example/", "--admin", &admin]));
    assert_eq!((purge.code, purge.stdout.as_str()), (0, "Nothing was stored under http://a.example/\n"));
    let purge = run(&mut program(&["purge", "no url", "--admin", &admin]));
    assert_eq!(purge.code, 1);
    assert!(purge.stderr.contains("not a URL"), "{}", purge.stderr);
    // The accelerator's own port is no admin server, and the difference is told.
    let wrong = run(&mut program(&["stat", "--admin", &running.cache.to_string()]));
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.contains("is no admin server"), "{}", wrong.stderr);

    running.signal(Signal::TERM);
    let (code, log) = running.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("stopped: every request was answered"), "{log}");
}

#[test]
fn interrupt_stops_it_too() {
    let running = Running::start(&mut program(&DEMO));
    running.signal(Signal::INT);
    assert_eq!(running.end().0, Some(0));
}

#[test]
fn hangup_reads_the_file_again_and_says_what_came_of_it() {
    let (directory, path) = configuration("log = \"info\"\n");
    let mut running = Running::start(program(&DEMO).args(["--config", &path]));
    let write = |text: &str| std::fs::write(directory.path().join("n.toml"), text).expect("a file");
    let admin = running.admin.to_string();
    // Each reload is seen through before the next: two signals at once are one.
    let mut seen = Vec::new();
    let mut stderr = std::io::BufReader::new(running.child.stderr.take().expect("piped"));
    let mut reload = |text: &str, until: &str| {
        write(text);
        running.signal(Signal::HUP);
        loop {
            let mut line = String::new();
            assert!(
                std::io::BufRead::read_line(&mut stderr, &mut line).expect("text") > 0,
                "it ended: {seen:?}"
            );
            let done = line.contains(until);
            seen.push(line);
            if done {
                break;
            }
        }
    };
    reload("log = \"info\"\n", "reload: nothing changed");
    reload("log = \"info\"\ndrain-time-max = \"1s\"\n", "reload: changed drain-time-max");
    reload("log = \"info\"\n[cache]\nmemory = \"1MiB\"\n", "only a restart changes memory");
    reload("log = \"info\"\n[cache]\nmemry = \"1MiB\"\n", "reload: the configuration stays as it was");
    reload(
        "log = \"warn\"\n[cache]\nmemory = \"1MiB\"\n",
        "reload: changed log; only a restart changes memory",
    );
    assert!(seen.iter().any(|line| line.contains("n.toml:3:1: unknown key `memry`")), "{seen:?}");
    assert_eq!(run(&mut program(&["stat", "--admin", &admin])).code, 0, "it goes on serving");
}

#[test]
fn a_token_is_demanded_and_a_reload_changes_it() {
    let (directory, path) = configuration("the-first-token-of-all\n");
    let running = Running::start(program(&DEMO).args(["--admin-token-file", &path]));
    let admin = running.admin.to_string();
    let without = run(&mut program(&["stat", "--admin", &admin]));
    assert_eq!(without.code, 1);
    assert!(without.stderr.contains("demands a token"), "{}", without.stderr);
    let with = ["stat", "--admin", &admin, "--admin-token-file", &path];
    assert_eq!(run(&mut program(&with)).code, 0);

    let other = directory.path().join("other");
    std::fs::write(&other, "another-token-entirely\n").expect("a file");
    let wrong =
        run(&mut program(&["stat", "--admin", &admin, "--admin-token-file", other.to_str().expect("text")]));
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.contains("does not accept the token"), "{}", wrong.stderr);

    let old = directory.path().join("old");
    std::fs::copy(&path, &old).expect("a copy");
    std::fs::write(&path, "the-second-token-of-all\n").expect("a file");
    running.signal(Signal::HUP);
    let start = std::time::Instant::now();
    while run(&mut program(&with)).code != 0 {
        assert!(start.elapsed().as_secs() < 60, "the new token is not taken");
    }
    let late =
        run(&mut program(&["stat", "--admin", &admin, "--admin-token-file", old.to_str().expect("text")]));
    assert_eq!(late.code, 1);
    running.signal(Signal::TERM);
    let (_, log) = running.end();
    assert!(!log.contains("token-of-all"), "a token is in the log: {log}");
}

#[test]
fn no_color_and_no_terminal_leave_no_escapes() {
    let running = Running::start(program(&DEMO).env("NO_COLOR", "1"));
    running.signal(Signal::TERM);
    let (_, log) = running.end();
    assert!(log.contains("INFO") && !log.contains('\u{1b}'), "{log:?}");
}
