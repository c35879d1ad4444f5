//! `nighttrain feed` with nats-server's own flags and configuration files.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use crate::support::{program, run};

struct Feed {
    child: Child,
    address: String,
}

impl Feed {
    /// Sends operations and a PING; returns everything received until the PONG, or until the end.
    fn say(&self, words: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.write_all(format!("{words}PING\r\n").as_bytes()).expect("sent");
        let mut heard = Vec::new();
        let mut some = [0; 4096];
        while !heard.windows(6).any(|six| six == b"PONG\r\n") {
            match stream.read(&mut some) {
                Ok(bytes) if bytes > 0 => heard.extend_from_slice(&some[..bytes]),
                _ => break,
            }
        }
        String::from_utf8(heard).expect("text")
    }

    fn id(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn a_nats_server_command_line_starts_the_feed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let (log, pid) = (path("night.log"), path("night.pid"));
    fs::write(path("users.conf"), "users: [{user: a, password: $SECRET}]").expect("a file");
    let conf = format!(
        "port: 1\nauthorization {{\n include users.conf\n}}\njetstream: {{}}\ncluster {{}}\n\
         no_header_support: true\nlog_file: \"{}\"\npid_file: \"{}\"\n",
        log.display(),
        pid.display()
    );
    fs::write(path("nats.conf"), conf).expect("a file");
    let conf = path("nats.conf");
    let conf = conf.to_str().expect("text");
    let refused = run(&mut program(&["feed", "-c", conf, "-p", "-1", "-m", "-1"]));
    assert!(
        refused.code == 3 && refused.stderr.contains("`$SECRET` is defined neither"),
        "{}",
        refused.stderr
    );
    let directory = directory.path().to_str().expect("text");
    let mut command = program(&["feed", "-c", conf, "-a", "localhost", "-p", "-1", "-m", "-1", "-DV"]);
    let mut child = command
        .args(["--admin", "127.0.0.1:0"])
        .env("SECRET", "from-outside")
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let address = lines
        .find_map(|line| line.strip_prefix("feed: listening on nats://").map(str::to_owned))
        .expect("the address");
    let mut first = String::new();
    BufReader::new(child.stderr.take().expect("piped")).read_line(&mut first).expect("text");
    let feed = Feed { child, address };
    assert!(first.ends_with("nats.conf: ignored: `jetstream` (line 5), `cluster` (line 6)\n"), "{first}");
    assert_eq!(text(&pid), feed.id());
    let hello = "CONNECT {\"verbose\":false,\"headers\":true,\"user\":\"a\",\"pass\":\"from-outside\"}\r\n";
    let heard = feed.say(&format!("{hello}SUB a 1\r\nPUB a 2\r\nhi\r\n"));
    assert!(heard.contains("\"headers\":false") && heard.contains("MSG a 1 2\r\nhi\r\n"), "{heard}");
    assert!(!feed.say(&format!("{hello}HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n")).contains("PONG"));
    until("the protocol is traced", || text(&log).contains("->> [MSG a"));
    let traced = text(&log);
    assert!(traced.contains("<<- [SUB a") && traced.contains("<<- [PUB a"), "{traced}");
    assert!(!traced.contains("from-outside"), "a password in the log: {traced}");

    // The log file is renamed, and a new one is written.
    fs::rename(&log, path_of(directory, "old.log")).expect("moved");
    let sent = run(&mut program(&["feed", "--signal", &format!("reopen={}", pid.display())]));
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    until("the log is written anew", || text(&log).contains("reopened"));
    let sent = run(&mut program(&["feed", "--signal", &format!("quit={}", feed.id())]));
    assert_eq!(sent.code, 0, "{}", sent.stderr);
    until("it removes its number", || !pid.exists());
}

fn path_of(directory: &str, name: &str) -> std::path::PathBuf {
    Path::new(directory).join(name)
}

#[test]
fn signals_that_nobody_gets_are_said() {
    for (signal, code, says) in [
        ("louder", 2, "invalid signal: expected stop, quit, term, reopen, reload or ldm"),
        ("reload=/nowhere/pid", 1, "neither a process id nor a file"),
        ("reload=0", 1, "neither a process id nor a file"),
    ] {
        let ended = run(&mut program(&["feed", "--signal", signal]));
        assert!(
            ended.code == code && ended.stderr.contains(says),
            "{signal}: {} {}",
            ended.code,
            ended.stderr
        );
    }
}
