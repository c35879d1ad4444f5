//! The program as a process: ports, signals, and commands that query it.

use crate::support::{Running, configuration, program, run};
use rustix::process::Signal;

const DEMO: [&str; 6] = ["cache", "--demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

#[test]
fn a_port_in_use_exits_with_1() {
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
    assert_eq!(
        (purge.code, purge.stdout.as_str()),
        (0, "No stored object: http://a.example/, by http or by https\n")
    );
    let purge = run(&mut program(&["purge", "no url", "--admin", &admin]));
    assert_eq!(purge.code, 1);
    assert!(purge.stderr.contains("not a URL"), "{}", purge.stderr);
    // The accelerator's own port is no admin server, and the error says so.
    let wrong = run(&mut program(&["stat", "--admin", &running.cache.to_string()]));
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.contains("is not a Nighttrain admin server"), "{}", wrong.stderr);

    running.signal(Signal::TERM);
    let (code, log) = running.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("stopped: all requests were answered"), "{log}");
}

/// `make run`'s promise: the second request is answered from memory, a session page from the site, and
/// Cache-Status says so.
#[test]
fn the_demonstration_saves_the_site_its_work() {
    let running = Running::start(&mut program(&DEMO));
    let ask = |path: &str| {
        let mut answer = ureq::get(format!("http://{}{path}", running.cache)).call().expect("an answer");
        let status =
            answer.headers().get("cache-status").map(|value| value.to_str().expect("text").to_owned());
        let cookie = answer.headers().get("set-cookie").cloned();
        (answer.body_mut().read_to_vec().expect("a body"), status.unwrap_or_default(), cookie)
    };
    let pages =
        ["/", "/timetable", "/cars", "/guards-log", "/style.css", "/pictures/night.bmp", "/pictures/map.svg"];
    for path in pages {
        let (first, status, _) = ask(path);
        assert!(!status.contains("hit"), "{path}: {status}");
        let (second, status, _) = ask(path);
        assert!(status.contains("hit"), "{path}: {status}");
        assert!(first == second && !first.is_empty(), "{path}");
    }
    let (one, _, first) = ask("/my-berth");
    let (other, status, second) = ask("/my-berth");
    assert!(one != other && !status.contains("hit"), "one visitor's berth reached another: {status}");
    assert!(first.is_some() && second.is_some() && first != second);

    let json = run(&mut program(&["stat", "--json", "--admin", &running.admin.to_string()])).stdout;
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value["requests"]["hits"], pages.len(), "{json}");
    assert_eq!(value["requests"]["received"], 2 * pages.len() + 2, "{json}");
    // One hit-for-miss is left, for the berth page.
    assert_eq!(value["requests"]["notes_left"], 1, "{json}");
    assert_eq!(value["store"]["objects"], pages.len() + 1, "{json}");
    assert!(value["bytes"]["saved"].as_u64().expect("a number") > 388_854, "{json}");
    assert!(value["loops"]["lateness_us_max"].is_number(), "{json}");
    assert_eq!(value["other"], serde_json::json!({}), "stat.rs does not know where these belong");
    let top =
        run(program(&["top", "--frames", "2", "--interval", "100ms", "--admin"])
            .arg(running.admin.to_string()));
    assert_eq!((top.code, top.stdout.matches("nighttrain 0.").count()), (0, 2), "{}", top.stdout);
    let hits: Vec<&str> = top.stdout.lines().filter(|line| line.trim_start().starts_with("hits ")).collect();
    assert_eq!(hits.len(), 2, "{hits:?}");
    assert_eq!(hits[1].split_whitespace().collect::<Vec<_>>(), ["hits", "7", "–"], "nothing moves now");

    running.signal(Signal::TERM);
    let mut rest = String::new();
    let mut running = running;
    std::io::Read::read_to_string(&mut running.stdout, &mut rest).expect("text");
    assert!(rest.contains(" of 16 requests answered from memory; the site was spared "), "{rest}");
    assert_eq!(running.end().0, Some(0));
}

#[test]
fn interrupt_stops_it_too() {
    let running = Running::start(&mut program(&DEMO));
    running.signal(Signal::INT);
    assert_eq!(running.end().0, Some(0));
}

/// The first signal waits for a request that the origin never answers; the second does not.
#[test]
fn a_second_signal_stops_at_once() {
    let origin = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", origin.local_addr().expect("an address"));
    let mut running = Running::start(&mut program(&[
        "cache",
        "--origin",
        &url,
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
    ]));
    let mut client = std::net::TcpStream::connect(running.cache).expect("a connection");
    std::io::Write::write_all(&mut client, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("a request");
    // The request is under way once the origin has the connection.
    let _held = origin.accept().expect("a connection from the accelerator");
    running.signal(Signal::TERM);
    let mut log = std::io::BufReader::new(running.child.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("stopping") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut log, &mut line).expect("text") > 0, "it ended");
    }
    let ready = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let answer = ready.get(format!("http://{}/readyz", running.admin)).call().expect("an answer");
    assert_eq!(answer.status(), 503, "who drains is not ready");
    running.signal(Signal::TERM);
    assert_eq!(running.child.wait().expect("our child").code(), Some(1));
}

#[test]
fn sighup_reloads_and_logs_the_outcome() {
    let (directory, path) = configuration("log = \"info\"\n");
    let mut running = Running::start(program(&DEMO).args(["--config", &path]));
    let write = |text: &str| std::fs::write(directory.path().join("n.toml"), text).expect("a file");
    let admin = running.admin.to_string();
    // Each reload is waited for before the next: two pending signals would be one.
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
    reload("log = \"info\"\n[cache]\nmemry = \"1MiB\"\n", "reload failed: keeping the current configuration");
    reload(
        "log = \"warn\"\n[cache]\nmemory = \"1MiB\"\n",
        "reload: changed log; only a restart changes memory",
    );
    assert!(seen.iter().any(|line| line.contains("n.toml:3:1: unknown key `memry`")), "{seen:?}");
    assert_eq!(run(&mut program(&["stat", "--admin", &admin])).code, 0, "it goes on serving");
}

#[test]
fn the_admin_token_is_required_and_reloadable() {
    let (directory, path) = configuration("the-first-token-of-all\n");
    let running = Running::start(program(&DEMO).args(["--admin-token-file", &path]));
    let admin = running.admin.to_string();
    let without = run(&mut program(&["stat", "--admin", &admin]));
    assert_eq!(without.code, 1);
    assert!(without.stderr.contains("requires a token"), "{}", without.stderr);
    let with = ["stat", "--admin", &admin, "--admin-token-file", &path];
    assert_eq!(run(&mut program(&with)).code, 0);

    let other = directory.path().join("other");
    std::fs::write(&other, "another-token-entirely\n").expect("a file");
    let wrong =
        run(&mut program(&["stat", "--admin", &admin, "--admin-token-file", other.to_str().expect("text")]));
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.contains("rejected the token"), "{}", wrong.stderr);

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
