//! The transaction log: read live from another process, filtered and grouped, and written to a file; with
//! readers that die, never read or send nonsense, and clients that try to forge records.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::{
    Accelerator, Answer, Gate, Next, Request, ScriptedOrigin, Stat,
    client::fetch,
    eventually,
    mail::{MailService, Smtp},
    program,
};

/// A `nighttrain log` of a running server; killed on drop.
struct Reader {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Reader {
    /// Starts a reader, and waits until the server has registered it.
    fn start(admin: SocketAddr, arguments: &[&str]) -> Self {
        let mut command = program::command();
        command.arg("log").args(arguments).args(["--admin", &admin.to_string()]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let (stdout, collected) = (child.stdout.take().expect("a pipe"), Arc::clone(&lines));
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                collected.lock().expect("no thread panics with it").push(line);
            }
        });
        eventually("the log is read", || is_read(admin));
        Self { child, lines }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no thread panics with it").clone()
    }

    /// Returns the lines once there are this many.
    fn wait_for(&self, count: usize) -> Vec<String> {
        eventually("the log says it", || self.lines().len() >= count);
        self.lines()
    }

    fn objects(&self, count: usize) -> Vec<Value> {
        let lines = self.wait_for(count);
        lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("our own child");
    }

    /// Waits until the reader ends. Returns whether it succeeded, and its error output.
    fn ended(mut self) -> (bool, String) {
        let mut status = None;
        eventually("the reader ends", || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        let mut said = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        (status.is_some_and(|status| status.success()), said)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stat(admin: SocketAddr) -> Stat {
    let mut command = program::command();
    let output = command.args(["stat", "--json", "--admin", &admin.to_string()]).output().expect("it runs");
    Stat::parse(&output.stdout)
}

fn is_read(admin: SocketAddr) -> bool {
    stat(admin).count("log.read") == 1
}

/// Starts an origin with a page to store, one to pass, and one that fails.
fn origin() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.answers("/page", Answer::new(200, "a page").header("Cache-Control", "max-age=600"));
    origin.answers("/private", Answer::new(200, "for one").header("Cache-Control", "private"));
    origin.answers("/api/broken", Answer::new(503, "no"));
    origin
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

#[test]
fn a26_a_live_reader_sees_requests_and_their_fetches() {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url()).start();
    let reader = Reader::start(accelerator.admin(), &["--json"]);
    let agent = "reader \"of\" \\ logs \u{9b}31m";
    for target in ["/page?token=hush&a=1", "/page?token=hush&a=1", "/private", "/private"] {
        let mut request = Request::get(target)
            .header("User-Agent", agent)
            .header("Referer", "http://elsewhere/?password=hush&b=2");
        if target == "/private" {
            request = request.header("Cookie", "session=hush").header("Authorization", "Basic hush");
        }
        accelerator.fetch(&request).expect_status(200);
    }
    let objects = reader.objects(7);
    assert!(!format!("{objects:?}").contains("hush"), "{objects:?}");
    let clients = of_kind(&objects, "client");
    let origins = of_kind(&objects, "origin");
    let of = |name: &str| clients.iter().map(|client| client[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("cache"), ["miss", "hit", "miss", "pass"]);
    assert_eq!(of("status"), vec![200; 4]);
    assert_eq!(of("url"), ["/page?token=***&a=1", "/page?token=***&a=1", "/private", "/private"]);
    assert_eq!(of("bytes.body"), [6, 6, 7, 7]);
    assert_eq!(of("referer"), vec!["http://elsewhere/?password=***&b=2"; 4]);
    assert_eq!(of("user_agent"), vec![agent; 4]);
    assert_eq!(of("protocol"), vec!["HTTP/1.1"; 4]);
    assert_eq!(of("client"), vec!["127.0.0.1"; 4]);
    for (client, fetched) in [clients[0], clients[2], clients[3]].into_iter().zip(&origins) {
        assert_eq!((&client["fetch"], &client["id"]), (&fetched["id"], &fetched["parent"]), "{objects:?}");
        assert_eq!(fetched["server"], origin.url().as_str());
        let at = |name: &str| client[name].as_u64().expect("a time");
        assert!(at("time.asked_us") <= at("time.first_byte_us"), "{client}");
        assert!(at("time.first_byte_us") <= at("time.done_us"), "{client}");
    }
    assert!(clients[1]["fetch"].is_null(), "a hit asks nobody");
    assert_eq!([&origins[0]["why"], &origins[1]["why"], &origins[2]["why"]], ["fetch", "fetch", "pass"]);
    assert_eq!(origins[0]["bytes.body"], 6);
    reader.signal(Signal::INT);
    assert_eq!(reader.ended(), (true, "7 shown, 0 lost\n".to_owned()));
}

#[test]
fn a26_filters_limits_and_groups() {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url()).start();
    let admin = accelerator.admin();
    let failing = Reader::start(
        admin,
        &["status >= 500 and url ~ \"^/api\"", "--format", "{kind} {status} {url}", "--limit", "2"],
    );
    let grouped = Reader::start(admin, &["--json", "--group", "url == /page"]);
    let common = Reader::start(admin, &["--format", "common"]);
    // The server may have registered another reader before this one, so no request counts until each of them
    // reads.
    eventually("all of them read", || {
        accelerator.get("/private").expect_status(200);
        !common.lines().is_empty()
    });
    for target in ["/page", "/api/broken", "/page"] {
        accelerator.get(target);
    }
    let (is_good, said) = failing.ended();
    assert!(is_good && said.starts_with("2 shown"), "{said}");
    let groups = grouped.objects(2);
    assert_eq!(groups[0]["origins"][0]["parent"], groups[0]["id"]);
    assert_eq!(groups[0]["fetch"], groups[0]["origins"][0]["id"]);
    assert_eq!((&groups[1]["cache"], &groups[1]["origins"]), (&"hit".into(), &Value::Array(Vec::new())));
    let lines = common.wait_for(3);
    let line = lines.iter().find(|line| line.contains("/api/broken")).expect("it was asked");
    assert!(
        line.starts_with("127.0.0.1 - - [") && line.ends_with("\"GET /api/broken HTTP/1.1\" 503 2"),
        "{line}"
    );
}

#[test]
fn a26_a_query_error_names_its_position() {
    let accelerator = Accelerator::before("http://127.0.0.1:9").start();
    for (arguments, says) in [
        (
            &["log", "status >= 500 and stauts"][..],
            "byte 18:\nstatus >= 500 and stauts\n                  ^ found `stauts`",
        ),
        (&["log", "url ~ \"(\""][..], "byte 7"),
        (&["log", "time.first_byte > soon"][..], "expected a duration such as 0.5"),
        (&["log", "--format", "{status} {stauts}"][..], "byte 10"),
        (&["log", "--group", "--format", "common"][..], "nothing to group"),
        (&["log", "--json", "--format", "common"][..], "cannot be used with"),
    ] {
        let output = accelerator.ask(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says), "{said}");
    }
    let output = program::command().args(["log", "--admin", "127.0.0.1:9"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a26_who_joins_a_fetch_names_it() {
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    let held = gate.clone();
    origin.on("/slow", move |_, reply| {
        held.pass();
        reply.answer(&Answer::new(200, "at last").header("Cache-Control", "max-age=600"))
    });
    let accelerator = Accelerator::before(&origin.url()).start();
    let reader = Reader::start(accelerator.admin(), &["--json", "kind == client"]);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| accelerator.get("/slow").expect_status(200));
        }
        eventually("two have joined", || accelerator.stat().count("requests.misses_collapsed") == 2);
        gate.open();
    });
    let clients = reader.objects(3);
    let fetches: Vec<_> = clients.iter().map(|client| &client["fetch"]).collect();
    assert!(fetches[0].is_string() && fetches.iter().all(|fetch| *fetch == fetches[0]), "{clients:?}");
    assert_eq!(clients.iter().filter(|client| client["collapsed"] == 1).count(), 2, "{clients:?}");
}

#[test]
fn a26_how_an_answer_ended_is_said() {
    let origin = ScriptedOrigin::start();
    origin.sends(
        "/short",
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nCache-Control: max-age=600\r\n\r\nnot a hundred",
        Next::Close,
    );
    let gate = Gate::new();
    let held = gate.clone();
    origin.on("/endless", move |_, reply| {
        reply.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\nCache-Control: private\r\n\r\n")?;
        while !held.is_open() {
            reply.send(&[b'x'; 65536])?;
        }
        Ok(Next::Close)
    });
    let accelerator = Accelerator::before(&origin.url()).start();
    let reader = Reader::start(accelerator.admin(), &["--json"]);
    accelerator.get("/short");
    let mut client = accelerator.connect();
    client.send(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n");
    client.head("GET");
    client.body_exactly(100_000);
    drop(client);
    accelerator.fetch(&Request::get("/nothing").header("Transfer-Encoding", "odd"));
    let ended = |url: &str, kind: &str| {
        let mut found = None;
        eventually("its end is logged", || {
            let lines = reader.lines();
            let objects = lines.iter().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
            found = objects.into_iter().find(|object| object["url"] == url && object["kind"] == kind);
            found.is_some()
        });
        found.expect("it is there")
    };
    assert_eq!(ended("/short", "client")["end"], "origin-broke");
    let short = ended("/short", "origin");
    assert!(
        short["end"] == "not-whole" && short["error"].is_string() && short["bytes.body"] == 13,
        "{short}"
    );
    let endless = ended("/endless", "client");
    assert_eq!(endless["end"], "client-gone");
    assert!(endless["bytes.body"].as_u64().expect("bytes") >= 100_000, "{endless}");
    let refused = ended("/nothing", "client");
    assert!(refused["cache"] == "synth" && refused["request_id"].is_string(), "{refused}");
    assert!(refused["detail"].is_string() && refused["status"].as_u64() >= Some(400), "{refused}");
    gate.open();
}

#[test]
fn a26_a_killed_or_stalled_reader_only_loses_records() {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url()).flag("--log-ring", "64KiB").start();
    let admin = accelerator.admin();
    let reader = Reader::start(admin, &["--format", "{url}"]);
    reader.signal(Signal::STOP);
    let mut client = accelerator.connect();
    for number in 0..2000 {
        let target = if number % 2 == 0 { "/page" } else { "/page?b" };
        assert!(client.get(target).status() < 500);
    }
    let written = stat(admin).count("log.records");
    assert!(written > 500, "{written} records went over what was not read");
    reader.signal(Signal::CONT);
    // New records tell the reader how many it has missed; its lease may have expired meanwhile.
    eventually("it goes on with what is there", || {
        accelerator.get("/last").status();
        reader.lines().iter().any(|line| line == "/last")
    });
    reader.signal(Signal::TERM);
    let (is_good, said) = reader.ended();
    let lost =
        said.split_once(" shown, ").and_then(|(_, rest)| rest.split_once(" lost")).expect("it says so").0;
    assert!(is_good && lost.parse::<u64>().expect("a number") > 500, "{said}");
    let killed = Reader::start(admin, &["--json"]);
    killed.signal(Signal::KILL);
    eventually("nobody reads any more", || !is_read(admin));
    let before = stat(admin).count("log.records");
    accelerator.get("/page").expect_status(200);
    assert_eq!(stat(admin).count("log.records"), before, "and nothing is written");
}

#[test]
fn a26_a_reader_ends_with_server_or_pipe() {
    let origin = origin();
    let mut accelerator = Accelerator::before(&origin.url()).start();
    let reader = Reader::start(accelerator.admin(), &["--json"]);
    accelerator.get("/page").expect_status(200);
    reader.wait_for(2);
    accelerator.signal(Signal::KILL);
    accelerator.wait();
    assert_eq!(reader.ended(), (true, "2 shown, 0 lost\n".to_owned()));
    let accelerator = Accelerator::before(&origin.url()).start();
    let script =
        format!("{} log --admin {} --json | head -n 1", program::program().display(), accelerator.admin());
    let piped = thread::spawn(move || {
        std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell")
    });
    eventually("head has its line", || {
        accelerator.get("/private").status();
        piped.is_finished()
    });
    let output = piped.join().expect("it ran");
    assert!(
        output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("error"),
        "{output:?}"
    );
}

/// Fields that equal those of the connection's previous request are reused in its record; all others are the
/// request's own.
#[test]
fn a26_each_request_on_a_connection_is_logged_separately() {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url()).flag("--trusted-proxies", "127.0.0.1").start();
    let reader = Reader::start(accelerator.admin(), &["--json", "kind == client"]);
    let asked = [
        ("GET /page", "Host: a\r\nUser-Agent: one\r\n"),
        ("GET /page?x", "Host: a\r\nUser-Agent: one\r\n"),
        ("GET /page", "Host: a\r\nUser-Agent: two\r\n"),
        ("HEAD /page", "Host: a\r\nUser-Agent: two\r\n"),
        ("GET /page", "Host: b\r\nX-Forwarded-For: 192.0.2.7\r\n"),
        ("GET /page?y", "Host: b\r\nX-Forwarded-For: 192.0.2.7\r\n"),
        ("GET /page", "Host: b\r\nX-Forwarded-For: 192.0.2.8\r\n"),
        ("GET http://c/page", "Host: c\r\n"),
        ("GET /page", "Host: c\r\nReferer: /?token=x\r\n"),
    ];
    let mut stream = TcpStream::connect(accelerator.address()).expect("connected");
    let all: String = asked.map(|(line, headers)| format!("{line} HTTP/1.1\r\n{headers}\r\n")).concat();
    stream.write_all(all.as_bytes()).expect("sent");
    let clients = reader.objects(asked.len());
    drop(stream);
    let of = |name: &str| -> Vec<&str> {
        clients.iter().map(|client| client[name].as_str().unwrap_or_default()).collect()
    };
    let urls = ["/page", "/page?x", "/page", "/page", "/page", "/page?y", "/page", "/page", "/page"];
    assert_eq!(of("url"), urls);
    assert_eq!(of("host"), ["a", "a", "a", "a", "b", "b", "b", "c", "c"]);
    assert_eq!(of("user_agent"), ["one", "one", "two", "two", "", "", "", "", ""]);
    assert_eq!(of("method"), ["GET", "GET", "GET", "HEAD", "GET", "GET", "GET", "GET", "GET"]);
    let (own, seven, eight) = ("127.0.0.1", "192.0.2.7", "192.0.2.8");
    assert_eq!(of("client"), [own, own, own, own, seven, seven, eight, own, own]);
    assert_eq!(of("referer"), ["", "", "", "", "", "", "", "", "/?token=***"]);
    let bytes = asked.map(|(line, headers)| (line.len() + headers.len() + "HTTP/1.1 \r\n\r\n".len()) as u64);
    assert_eq!(clients.iter().filter_map(|client| client["bytes.in"].as_u64()).collect::<Vec<_>>(), bytes);
}

#[test]
fn a26_http2_is_logged_as_http1_is() {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url()).start();
    let reader = Reader::start(accelerator.admin(), &["--json", "kind == client"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let address = accelerator.address();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.expect("connected");
        let (sender, connection) = h2::client::handshake(stream).await.expect("a connection");
        tokio::spawn(connection);
        for path in ["/page", "/page", "/private", "/private", "/api/broken"] {
            let request = http::Request::get(format!("http://Site{path}"))
                .header("user-agent", "h2")
                .body(())
                .expect("a request");
            let mut sender = sender.clone().ready().await.expect("room");
            let (answer, _) = sender.send_request(request, true).expect("sent");
            let mut body = answer.await.expect("an answer").into_body();
            while let Some(piece) = body.data().await {
                piece.expect("content");
            }
        }
    });
    let clients = reader.objects(5);
    let of = |name: &str| clients.iter().map(|client| client[name].clone()).collect::<Vec<_>>();
    assert_eq!(of("cache"), ["miss", "hit", "miss", "pass", "miss"]);
    assert_eq!(of("status"), [200, 200, 200, 200, 503]);
    assert_eq!(of("bytes.body"), [6, 6, 7, 7, 2]);
    assert_eq!(of("protocol"), vec!["HTTP/2.0"; 5]);
    assert_eq!(of("user_agent"), vec!["h2"; 5]);
    assert!(clients.iter().all(|client| client["end"].is_null() && client["bytes.in"].as_u64() > Some(0)));
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[test]
fn a26_the_access_log_is_reopened_and_complete() {
    let origin = origin();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access.log");
    let mut accelerator =
        Accelerator::before(&origin.url()).flag("--access-log", path.to_str().expect("UTF-8")).start();
    accelerator.fetch(&Request::get("/page").header("User-Agent", "a \"client\"")).expect_status(200);
    eventually("it is written", || lines(&path).len() == 1);
    let line = lines(&path).remove(0);
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    assert!(line.ends_with("] \"GET /page HTTP/1.1\" 200 6 \"-\" \"a \\x22client\\x22\""), "{line}");
    let aside = directory.path().join("access.log.old");
    std::fs::rename(&path, &aside).expect("moved away");
    accelerator.signal(Signal::USR1);
    eventually("it is opened again", || path.exists());
    for _ in 0..3 {
        accelerator.get("/page").expect_status(200);
    }
    // The last records may not be in the file yet: a stop writes them.
    accelerator.signal(Signal::TERM);
    assert!(accelerator.wait().success());
    assert_eq!((lines(&aside).len(), lines(&path).len()), (1, 3));
}

#[test]
fn a26_the_access_log_is_set_aside_by_size() {
    let origin = origin();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access.log");
    let accelerator = Accelerator::before(&origin.url())
        .flag("--access-log", path.to_str().expect("UTF-8"))
        .flag("--access-log-format", "json")
        .flag("--access-log-rotate", "4KiB")
        .flag("--access-log-keep", "2")
        .start();
    let aside = |number: usize| directory.path().join(format!("access.log.{number}"));
    eventually("two files are set aside", || {
        accelerator.get("/page").expect_status(200);
        aside(2).exists()
    });
    eventually("and no more", || {
        accelerator.get("/page").expect_status(200);
        accelerator.stat().count("log.access_rotations") > 3
    });
    assert!(!aside(3).exists());
    for file in [path.clone(), aside(1), aside(2)] {
        for line in lines(&file) {
            let object: Value = serde_json::from_str(&line).expect("a line is whole");
            assert_eq!(object["kind"], "client");
        }
    }
}

#[test]
fn a26_a_full_access_log_disk_is_only_counted() {
    let origin = origin();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("access.log");
    std::os::unix::fs::symlink("/dev/full", &path).expect("a link");
    let accelerator =
        Accelerator::before(&origin.url()).flag("--access-log", path.to_str().expect("UTF-8")).start();
    let mut client = accelerator.connect();
    for _ in 0..50 {
        client.get("/page").expect_status(200);
    }
    eventually("it is counted", || accelerator.stat().count("log.access_failures") > 0);
    let said = || accelerator.printed().matches("cannot write the access log").count();
    eventually("and said", || said() == 1);
    std::fs::remove_file(&path).expect("removed");
    accelerator.signal(Signal::USR1);
    eventually("it is written once there is room", || lines(&path).len() == 50);
    assert_eq!((said(), accelerator.stat().count("log.access_dropped")), (1, 0));
    let ended =
        Accelerator::before(&origin.url()).flag("--access-log", "/nowhere/access.log").run_to_its_end();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("access-log: /nowhere/access.log: No such file"), "{said}");
}

#[test]
fn a26_the_log_requires_the_admin_token() {
    let token = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(token.path(), "a-token-of-sixteen-letters").expect("written");
    let accelerator = Accelerator::before("http://127.0.0.1:9")
        .flag("--admin-token-file", token.path().to_str().expect("UTF-8"))
        .start();
    assert_eq!(accelerator.admin_get("/log").status(), 401);
    let output = accelerator.ask(&["log"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("requires a token"), "{output:?}");
    let request = Request::get("/log")
        .header("Host", &accelerator.admin().to_string())
        .header("Authorization", "Bearer a-token-of-sixteen-letters");
    let said: Value = serde_json::from_slice(&fetch(accelerator.admin(), &request).body).expect("JSON");
    assert_eq!(said["pid"].as_i64(), Some(i64::from(accelerator.pid().as_raw_nonzero().get())));
}

#[test]
fn a26_a_mails_way_is_logged() {
    let service = MailService::start(&["--store", "anon", "--domains", "example.org"]);
    let reader = Reader::start(service.admin, &["--json"]);
    let mut smtp = Smtp::greeted(service.smtp).expect("greeted");
    smtp.say("EHLO sender.example\r\n").expect("said");
    smtp.say("MAIL FROM:<a@sender.example>\r\n").expect("said");
    let refused = smtp.say("RCPT TO:<b@elsewhere.example>\r\n").expect("said");
    assert!(refused.starts_with("550"), "{refused}");
    smtp.say("RCPT TO:<c@example.org>\r\n").expect("said");
    smtp.say("DATA\r\n").expect("said");
    smtp.say("Subject: hush\r\n\r\nhush\r\n.\r\n").expect("said");
    let records = reader.objects(2);
    assert!(!format!("{records:?}").contains("hush"), "{records:?}");
    let (refused, kept) = (&records[0], &records[1]);
    assert_eq!((&refused["status"], &refused["to"][0]), (&550.into(), &"b@elsewhere.example".into()));
    assert!(refused["detail"].is_string() && refused["parent"] == kept["id"], "{records:?}");
    assert_eq!((&kept["status"], &kept["to"][0]), (&250.into(), &"c@example.org".into()));
    assert_eq!((&kept["from"], &kept["hello"]), (&"a@sender.example".into(), &"sender.example".into()));
    assert_eq!((&kept["recipients"], &kept["protocol"]), (&1.into(), &"ESMTP".into()));
    assert!(kept["time.durable_us"].is_u64() && kept["mail"].is_string(), "{kept}");
    assert!(kept["bytes.in"].as_u64() > Some(20), "{kept}");
}

#[test]
fn a26_a_slow_consumers_end_is_logged() {
    let mut command = program::command();
    command.args(["feed", "--listen", "127.0.0.1:0", "--monitor", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command.args(["--max-pending", "64KiB", "--producer-hold-max", "50ms"]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let (mut nats, mut admin) = (None, None);
    for line in BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok) {
        let address = line.rsplit("//").next().and_then(|text| text.parse::<SocketAddr>().ok());
        match line.split("//").next() {
            Some("feed: listening on nats:") => nats = address,
            Some("admin: listening on http:") => admin = address,
            _ => {}
        }
        if admin.is_some() {
            break;
        }
    }
    let (nats, admin) = (nats.expect("an address"), admin.expect("an address"));
    let reader = Reader::start(admin, &["--json"]);
    let mut slow = TcpStream::connect(nats).expect("connected");
    slow.write_all(b"CONNECT {\"verbose\":false,\"name\":\"sleeper\"}\r\nSUB night.> 1\r\nPING\r\n")
        .expect("sent");
    let mut producer = TcpStream::connect(nats).expect("connected");
    producer.write_all(b"CONNECT {\"verbose\":false}\r\n").expect("sent");
    let message = [&b"PUB night.train 8192\r\n"[..], &[b'x'; 8192], b"\r\n"].concat();
    let mut is_told = false;
    while !is_told {
        // The producer is held back at times, and never refused.
        producer.write_all(&message).expect("sent");
        is_told = !reader.lines().is_empty();
    }
    let record = &reader.objects(1)[0];
    assert_eq!((&record["kind"], &record["name"]), (&"consumer".into(), &"sleeper".into()));
    assert_eq!(record["subject"], "night.>");
    assert!(record["detail"].as_str().is_some_and(|detail| detail.starts_with("Slow Consumer")), "{record}");
    assert!(record["bytes.pending"].is_u64() && record["connection"].is_u64(), "{record}");
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn a26_the_guides_commands_work() {
    let Some(output) = tests::guide::run("log.md") else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("\"cache\":\"hit\""), "{output:?}");
    assert!(said.contains("] \"GET / HTTP/1.1\" 200 "), "{output:?}");
}
