//! The configuration: precedence of its sources, the printed form, and the error for each mistake.

use crate::support::{configuration, program, run};

/// A key's line in the output of `config --print`, without the alignment.
fn line(printed: &str, key: &str) -> String {
    let line = printed.lines().find(|line| line.starts_with(&format!("{key} = "))).expect(key);
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn flag_before_environment_before_file_before_default() {
    let (_directory, path) =
        configuration("[cache]\nlisten = \"127.0.0.1:1\"\nmemory = \"1MiB\"\ndefault-ttl = \"1s\"\n");
    let ended = run(program(&["config", "--print", "--config", &path, "--listen", "127.0.0.1:3"])
        .env("NIGHTTRAIN_CACHE_LISTEN", "127.0.0.1:2")
        .env("NIGHTTRAIN_CACHE_MEMORY", "2MiB"));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(line(&ended.stdout, "listen"), "listen = \"127.0.0.1:3\" # flag");
    assert_eq!(line(&ended.stdout, "memory"), "memory = \"2MiB\" # environment");
    assert_eq!(line(&ended.stdout, "default-ttl"), "default-ttl = \"1s\" # file");
    assert_eq!(line(&ended.stdout, "cookies"), "cookies = \"safe\" # default");
}

#[test]
fn the_file_may_be_named_by_the_environment() {
    let (_directory, path) = configuration("log = \"warn\"\n");
    let ended = run(program(&["config", "--print"]).env("NIGHTTRAIN_CONFIG", &path));
    assert_eq!(line(&ended.stdout, "log"), "log = \"warn\" # file");
}

#[test]
fn what_is_printed_is_right_as_a_file() {
    let printed = run(&mut program(&["config", "--print", "--origin", "http://[::1]:3000", "--cores", "0"]));
    let (_directory, path) = configuration(&printed.stdout);
    let checked = run(&mut program(&["check", "--config", &path]));
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    assert!(checked.stdout.starts_with(&format!("{path} is right.\n")), "{}", checked.stdout);
    let again = run(&mut program(&["config", "--print", "--config", &path]));
    assert_eq!(line(&again.stdout, "origin"), "origin = \"http://[::1]:3000\" # file");
    assert_eq!(line(&again.stdout, "cores"), "cores = [0] # file");
}

/// Each mistake in a file gives one line, with its place and what would be right, and exit code 3. `check`
/// and `cache` print the same.
#[test]
fn each_configuration_fault_gives_a_single_line() {
    for (text, place, says) in [
        ("[cache]\nlisten = 8080\n", ":2:10: ", "expected a string in quotes"),
        ("[cache]\nlisten = \"8080\"\n", ":2:10: ", "perhaps 127.0.0.1:8080"),
        ("[cache]\nlistn = \"127.0.0.1:1\"\n", ":2:1: ", "unknown key `listn`; perhaps `listen`"),
        ("[cahce]\n", ":1:2: ", "unknown section `cahce`; perhaps [cache]"),
        ("listen = \"127.0.0.1:1\"\n", ":1:1: ", "`listen` belongs under [cache]"),
        ("[cache]\nmemory = \"256M\"\n", ":2:10: ", "perhaps 256MiB"),
        ("[cache]\nmemory = \"1.5GiB\"\n", ":2:10: ", "not a whole number"),
        ("[cache]\ndefault-ttl = \"1 hour\"\n", ":2:15: ", "ms, s, m, h or d"),
        ("[cache]\nstore = \"\"\n", ":2:9: ", "expected a file, or anon"),
        ("[cache]\npaging = \"mmap\"\n", ":2:10: ", "expected direct or kernel"),
        ("[cache]\ncookies = \"none\"\n", ":2:11: ", "safe, strict or rfc"),
        ("[cache]\norigin = \"example.org\"\n", ":2:10: ", "perhaps http://example.org"),
        ("[cache]\norigin = \"http://a/b\"\n", ":2:10: ", "leave the path off"),
        ("[cache]\nconnections-max = 0\n", ":2:19: ", "at least 1"),
        ("[cache]\nconnections-max = -1\n", ":2:19: ", "expected a whole number"),
        ("[cache]\nidle-time-max = \"0s\"\n", ":2:17: ", "above zero"),
        ("[cache]\nrequest-head-bytes-max = \"1B\"\n", ":2:26: ", "1KiB to 16MiB"),
        ("[cache]\npurge-from = [\"somewhere\"]\n", ":2:14: ", "invalid network"),
        ("[cache]\nname = \"two words\"\n", ":2:8: ", "a name starts with a letter"),
        ("cores = [0, 0]\n", ":1:9: ", "twice"),
        ("cores = \"0\"\n", ":1:9: ", "a list of whole numbers"),
        ("log = \"loud\"\n", ":1:7: ", "invalid log level"),
        ("log = \"info\"\nlog = \"warn\"\n", ":2:1: ", "duplicate key"),
        ("[cache\n", ":1:", ""),
        ("listen = \"\n", ":1:", ""),
    ] {
        let (_directory, path) = configuration(text);
        for command in
            [&["check", "--config", &path][..], &["cache", "--config", &path], &["stat", "--config", &path]]
        {
            let ended = run(&mut program(command));
            assert_eq!(ended.code, 3, "{text:?}: {}", ended.stderr);
            assert_eq!(ended.stderr.lines().count(), 1, "{text:?}: {}", ended.stderr);
            assert!(ended.stderr.contains(&format!("{path}{place}")), "{text:?}: {}", ended.stderr);
            assert!(ended.stderr.contains(says), "{text:?}: {}", ended.stderr);
            assert_eq!(ended.stdout, "");
        }
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let (_directory, path) = configuration("admn = 1\n[cache]\nlistn = 1\nmemory = \"x\"\n");
    let ended = run(&mut program(&["check", "--config", &path]));
    assert_eq!((ended.code, ended.stderr.lines().count()), (3, 3), "{}", ended.stderr);
}

#[test]
fn files_that_cannot_be_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let absent = directory.path().join("absent.toml");
    for path in [absent.to_str().expect("text"), directory.path().to_str().expect("text")] {
        let ended = run(&mut program(&["check", "--config", path]));
        assert_eq!(ended.code, 3);
        assert!(ended.stderr.contains(path) && ended.stderr.contains("cannot be read"), "{}", ended.stderr);
    }
}

#[test]
fn mistakes_in_the_environment() {
    for (name, value) in [
        ("NIGHTTRAIN_CACHE_LISTEN", "here"),
        ("NIGHTTRAIN_CACHE_MEMORY", "much"),
        ("NIGHTTRAIN_CACHE_PAGING", "mmap"),
        ("NIGHTTRAIN_ADMIN", "9180"),
        ("NIGHTTRAIN_CACHE_IDLE_TIME_MAX", "long"),
    ] {
        let ended = run(program(&["cache", "--demo"]).env(name, value));
        assert_eq!(ended.code, 3, "{name}: {}", ended.stderr);
        assert!(ended.stderr.starts_with(&format!("nighttrain: {name}: ")), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1);
    }
}

#[test]
fn an_admin_server_for_everybody_needs_a_token() {
    let ended = run(&mut program(&["cache", "--demo", "--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0"]));
    assert_eq!(ended.code, 3);
    assert!(ended.stderr.contains("admin-token-file"), "{}", ended.stderr);
    let (_directory, path) = configuration("short\n");
    let ended = run(&mut program(&["cache", "--demo", "--admin-token-file", &path]));
    assert_eq!(ended.code, 3);
    assert!(
        ended.stderr.contains("16 to 1024 characters") && !ended.stderr.contains("short"),
        "{}",
        ended.stderr
    );
}

/// Each row has one mistake in a file that the configuration names; before, only a start found it.
#[test]
fn check_finds_what_a_start_refuses() {
    for (text, says) in [
        ("admin = \"0.0.0.0:0\"\n", "a token is required"),
        ("admin-token-file = \"/nowhere/token\"\n", "/nowhere/token"),
        ("log-file = \"/nowhere/a.log\"\n", "/nowhere/a.log"),
        ("[cache]\naccess-log = \"/nowhere/b.log\"\n", "/nowhere/b.log"),
        ("pid-file = \"/nowhere/c.pid\"\n", "/nowhere/c.pid"),
        ("admin-tls = true\n", "admin-tls"),
        ("[cache]\nstore = \"/nowhere/d\"\n", "/nowhere/d"),
        ("[cache]\npurge-token-file = \"/nowhere/e\"\n", "/nowhere/e"),
        (
            "[cache]\ntls-listen = \"127.0.0.1:0\"\ntls-cert = \"/nowhere/f\"\ntls-key = \"/nowhere/g\"\n",
            "/nowhere/f",
        ),
        ("[feed]\ntls-cert = \"/nowhere/h\"\ntls-key = \"/nowhere/i\"\n", "/nowhere/h"),
        ("[feed]\nnats-config = \"/nowhere/j\"\n", "/nowhere/j"),
        ("[mail]\nstore = \"/nowhere/k\"\n", "/nowhere/k"),
        ("[mail]\ntls-cert = \"/nowhere/l\"\ntls-key = \"/nowhere/m\"\n", "/nowhere/l"),
    ] {
        // The admin port and mail's store differ from those of other tests.
        let (directory, path) = configuration(text);
        let state = directory.path().to_str().expect("text").to_owned();
        let checked = run(&mut program(&["check", &path]));
        assert_eq!((checked.code, checked.stdout.as_str()), (3, ""), "{text:?}: {}", checked.stderr);
        assert!(checked.stderr.contains(says), "{text:?}: {}", checked.stderr);
        let mut start = program(&["serve", "--config", &path, "--state", &state]);
        for port in ["CACHE_LISTEN", "FEED_LISTEN", "FEED_MONITOR", "MAIL_SMTP", "MAIL_HTTP"] {
            start.env(format!("NIGHTTRAIN_{port}"), "127.0.0.1:0");
        }
        if !text.starts_with("admin = ") {
            start.env("NIGHTTRAIN_ADMIN", "127.0.0.1:0");
        }
        let started = run(&mut start);
        assert_ne!(started.code, 0, "{text:?}: {}", started.stdout);
        assert!(started.stderr.contains(says), "{text:?}: {}", started.stderr);
    }
}

#[test]
fn check_tells_the_sum_of_memory() {
    let (_directory, path) = configuration("[cache]\nmemory = \"300MiB\"\n");
    let ended = run(&mut program(&["check", &path]));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("`nighttrain serve` with it: memory at most: "), "{}", ended.stdout);
    let line = |what: &str| ended.stdout.lines().any(|line| line.trim_start().starts_with(what));
    assert!(
        line("300MiB  stored objects") && line("114MiB  memory that clients may hold"),
        "{}",
        ended.stdout
    );
}

#[test]
fn check_reads_a_nats_configuration() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("nats.conf");
    let check = |text: &str| {
        std::fs::write(&path, text).expect("a file");
        run(&mut program(&["check", path.to_str().expect("text")]))
    };
    let right = check("port: 4333\nauthorization { user: a, password: b }\n");
    assert_eq!(right.code, 0, "{}", right.stderr);
    assert!(right.stdout.contains("nats.conf is right.") && right.stdout.contains("nighttrain feed"));
    let wrong = check("port: 4333\nmax_payload: \"many\"\n");
    assert!(wrong.code == 3 && wrong.stderr.contains("nats.conf:2:"), "{}", wrong.stderr);
}

/// A store larger than the process's memory limit is refused at the start, with the limit that would be
/// enough.
#[test]
fn memory_that_is_not_there_is_refused() {
    for (arguments, variable, says) in [
        (&["cache", "--demo", "--memory", "900GiB"][..], "", "needs 921620MiB"),
        (&["cache", "--demo", "--memory-limit", "128MiB"], "", "raise the limit to at least 276MiB"),
        (&["serve", "--demo"], "NIGHTTRAIN_CACHE_MEMORY", "900GiB for stored objects"),
        (&["mail", "--store", "anon", "--store-size", "900GiB"], "", "900GiB for mails"),
    ] {
        let mut command = program(arguments);
        if !variable.is_empty() {
            command.env(variable, "900GiB");
        }
        let ended = run(&mut command);
        assert_eq!(ended.code, 3, "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{arguments:?}: {}", ended.stderr);
    }
}
