//! Reloads while requests are under way (A34, A12): sites, rules and the CAs of client certificates change at
//! SIGHUP, no request is lost, and no request is answered by a mix of two configurations.

use std::{
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Request, ScriptedOrigin,
    certificate::{Authority, Certificate},
    eventually, on_one_core_and_on_two,
};

on_one_core_and_on_two! {
    a34_sites_and_rules_change_at_a_reload,
    a34_a_request_keeps_its_configuration_across_a_reload,
    a34_reloads_under_load_fail_no_request,
    a12_a_reload_changes_client_certificate_rules,
}

/// A server whose configuration file is rewritten.
struct Reloaded {
    accelerator: Accelerator,
    _directory: tempfile::TempDir,
    file: PathBuf,
}

impl Reloaded {
    fn start(cores: &str, configuration: &str) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("n.toml");
        std::fs::write(&file, configuration).expect("a file");
        let setup = Accelerator::configured("").flag("--config", file.to_str().expect("UTF-8"));
        Self { accelerator: setup.flag("--cores", cores).start(), _directory: directory, file }
    }

    /// Reloads with another configuration; returns the log lines about it.
    fn reload(&self, configuration: &str) -> String {
        std::fs::write(&self.file, configuration).expect("a file");
        let before = self.accelerator.printed().len();
        self.accelerator.signal(Signal::HUP);
        eventually("what came of it is said", || {
            let said = self.accelerator.printed();
            let said = said.get(before..).unwrap_or_default();
            ["reload: changed", "reload: nothing", "reload: only", "reload failed"]
                .iter()
                .any(|end| said.contains(end))
        });
        self.accelerator.printed().get(before..).unwrap_or_default().to_owned()
    }

    fn ask(&self, host: &str, path: &str) -> (u16, String) {
        let answer = self.accelerator.fetch(&Request::get(path).header("Host", host));
        (answer.status(), answer.text().to_owned())
    }
}

fn named(name: &'static str) -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.otherwise(move |request, reply| {
        let said = format!("{name} {}", request.header("Host").unwrap_or_default());
        reply.answer(&Answer::new(200, said).header("Cache-Control", "max-age=600"))
    });
    origin
}

fn a34_sites_and_rules_change_at_a_reload(cores: &str) {
    let (one, other) = (named("one"), named("other"));
    let site = |host: &str, origin: &ScriptedOrigin, more: &str| {
        format!("[[cache.site]]\nhosts = [\"{host}\"]\norigin = \"{}\"\n{more}", origin.url())
    };
    let first = site("a.test", &one, "") + &site("b.test", &one, "");
    let running = Reloaded::start(cores, &first);
    assert_eq!(running.ask("a.test", "/"), (200, "one a.test".to_owned()));
    assert_eq!(running.ask("b.test", "/"), (200, "one b.test".to_owned()));
    assert_eq!(running.ask("c.test", "/").0, 421);

    // Another origin and host, a rule for a path, one site removed, and one added before it: each site gets
    // another index.
    let rule = "host = \"inner.test\"\n[[cache.site.path]]\npath = \"/no/*\"\nmethods = [\"POST\"]\n";
    let second = site("c.test", &other, "") + &site("a.test", &other, rule);
    let said = running.reload(&second);
    assert!(said.contains("reload: changed sites"), "{said}");
    assert_eq!(running.ask("c.test", "/"), (200, "other c.test".to_owned()));
    assert_eq!(running.ask("b.test", "/").0, 421);
    assert_eq!(running.ask("a.test", "/"), (200, "one a.test".to_owned()), "it is stored still");
    assert_eq!(running.ask("a.test", "/new"), (200, "other inner.test".to_owned()));
    assert_eq!(running.ask("a.test", "/no/x").0, 405);
    let explained = running.accelerator.ask(&["explain", "http://a.test/no/x"]);
    assert!(String::from_utf8_lossy(&explained.stdout).contains("405"));

    // Settings of `[cache]` and limits change too; a setting that a reload cannot change is logged and keeps
    // its value.
    let third = format!(
        "[cache]\nname = \"edge\"\nclient-requests-per-second-max = 1\nclient-requests-burst = 2\n{second}"
    );
    let said = running.reload(&third);
    assert!(said.contains("changed client-requests-per-second-max, client-requests-burst"), "{said}");
    assert!(said.contains("only a restart changes name"), "{said}");
    let statuses: Vec<u16> = (0..5).map(|_| running.ask("a.test", "/").0).collect();
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");

    // An invalid configuration is refused with its line number, and the previous one stays active.
    let said = running.reload(&(site("d.test", &one, "") + "orgin = \"http://127.0.0.1:1\"\n"));
    assert!(said.contains("n.toml:4:1: unknown key `orgin`") && said.contains("reload failed"), "{said}");
    let said = running
        .reload(&site("d.test", &one, "origin-tls-ca = \"/nowhere.pem\"\n").replace("http:", "https:"));
    assert!(said.contains("/nowhere.pem") && said.contains("reload failed"), "{said}");
    running.reload(&second);
    assert_eq!(running.ask("c.test", "/x"), (200, "other c.test".to_owned()));
    assert_eq!(running.ask("d.test", "/x").0, 421);
}

fn a34_a_request_keeps_its_configuration_across_a_reload(cores: &str) {
    let (one, other) = (named("one"), named("other"));
    let (has_come, may_go) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (come, go) = (Arc::clone(&has_come), Arc::clone(&may_go));
    one.on("/slow", move |request, reply| {
        come.store(true, Relaxed);
        while !go.load(Relaxed) && !reply.stopped() {
            thread::sleep(Duration::from_millis(1));
        }
        let said = format!("slow {}", request.header("Host").unwrap_or_default());
        reply.answer(&Answer::new(404, said).header("Vary", "X"))
    });
    let site = |origin: &ScriptedOrigin, host: &str, ttl: &str| {
        format!(
            "[[cache.site]]\nhosts = [\"a.test\"]\norigin = \"{}\"\nhost = \"{host}\"\ndefault-ttl = \"{ttl}\"\n",
            origin.url()
        )
    };
    let running = Reloaded::start(cores, &site(&one, "old.test", "1h"));
    let answered = thread::scope(|scope| {
        let asking = scope.spawn(|| running.ask("a.test", "/slow"));
        eventually("it is under way", || has_come.load(Relaxed));
        let spare = "[[cache.site]]\nhosts = [\"z.test\"]\norigin = \"http://127.0.0.1:1\"\n";
        running.reload(&format!("{spare}{}", site(&other, "new.test", "0s")));
        assert_eq!(running.ask("a.test", "/new"), (200, "other new.test".to_owned()));
        may_go.store(true, Relaxed);
        asking.join().expect("no panic")
    });
    assert_eq!(answered, (404, "slow old.test".to_owned()));
    // The answer was stored for an hour, by the rules that were active when its request began.
    assert_eq!(running.ask("a.test", "/slow"), (404, "slow old.test".to_owned()));
    assert_eq!((one.count("/slow"), other.count("/slow")), (1, 0));
}

fn a34_reloads_under_load_fail_no_request(cores: &str) {
    // Each configuration sends its own host, and those with odd numbers use the second origin.
    let mixed = Arc::new(AtomicUsize::new(0));
    let origins = [0, 1].map(|parity| {
        let (origin, mixed) = (ScriptedOrigin::start(), Arc::clone(&mixed));
        origin.otherwise(move |request, reply| {
            let host = request.header("Host").unwrap_or_default();
            let number: usize =
                host.trim_start_matches('g').trim_end_matches(".test").parse().expect("a number");
            // The path rule of a configuration has the same number as its site.
            let is_mixed = number % 2 != parity || request.header("X-Forwarded-Host") != Some("a.test");
            mixed.fetch_add(usize::from(is_mixed), Relaxed);
            reply.answer(&Answer::new(200, host).header("Cache-Control", "max-age=600"))
        });
        origin
    });
    let configuration = |number: usize| {
        // Other sites come and go, so that this site's index changes with each reload.
        let others: String = (0..number % 3)
            .map(|at| format!("[[cache.site]]\nhosts = [\"o{at}.test\"]\norigin = \"http://127.0.0.1:1\"\n"))
            .collect();
        format!(
            "{others}[[cache.site]]\nhosts = [\"a.test\"]\norigin = \"{}\"\nhost = \"g{number}.test\"\n",
            origins[number % 2].url()
        )
    };
    let running = Reloaded::start(cores, &configuration(0));
    running.ask("a.test", "/hit");
    let (over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for client in 0..4 {
            let (running, over, asked) = (&running, &over, &asked);
            scope.spawn(move || {
                let mut connection = running.accelerator.connect();
                for number in 0.. {
                    if over.load(Relaxed) {
                        break;
                    }
                    let path =
                        if number % 2 == 0 { "/hit".to_owned() } else { format!("/{client}/{number}") };
                    connection.send(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes());
                    let answer = connection.response("GET");
                    assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
                    asked.fetch_add(1, Relaxed);
                }
            });
        }
        for number in 1..=100 {
            running.reload(&configuration(number));
        }
        over.store(true, Relaxed);
    });
    assert_eq!(mixed.load(Relaxed), 0);
    assert!(asked.load(Relaxed) > 100);
    assert_eq!(running.ask("a.test", "/last"), (200, "g100.test".to_owned()));
}

fn a12_a_reload_changes_client_certificate_rules(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request, reply| {
        let who = request.header("X-Client-Cert").unwrap_or("nobody");
        reply.answer(&Answer::new(200, who).header("Cache-Control", "no-store"))
    });
    let server = Certificate::of(&["a.example"]);
    let (ours, theirs) = (Authority::named("ours"), Authority::named("theirs"));
    let configuration = |demand: &str, authority: &Authority| {
        format!(
            "[cache]\norigin = \"{}\"\ntls-listen = \"127.0.0.1:0\"\ntls-cert = \"{}\"\ntls-key = \"{}\"\n\
             tls-client = \"{demand}\"\ntls-client-ca = \"{}\"\n",
            origin.url(),
            server.file().display(),
            server.key().display(),
            authority.file().display()
        )
    };
    let running = Reloaded::start(cores, &configuration("none", &ours));
    let port = running.accelerator.secured().port();
    let (alice, eve) = (ours.signs("alice", 2090), theirs.signs("eve", 2090));
    let curl = |shown: Option<&PathBuf>| {
        let mut command = Command::new("curl");
        command.args(["--disable", "--silent", "--fail", "--noproxy", "*", "--max-time", "60"]);
        command.args(["--connect-to", &format!("::127.0.0.1:{port}")]).arg("--cacert").arg(server.file());
        if let Some(shown) = shown {
            command.arg("--cert").arg(shown);
        }
        let output = command.arg("https://a.example/").output().expect("curl is installed");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let told = |who: &str| Some(who.to_owned());
    assert_eq!((curl(None), curl(Some(&alice))), (told("nobody"), told("nobody")));
    running.reload(&configuration("required", &ours));
    assert_eq!((curl(None), curl(Some(&alice)), curl(Some(&eve))), (None, told("CN=alice"), None));
    running.reload(&configuration("asked", &theirs));
    assert_eq!((curl(None), curl(Some(&alice)), curl(Some(&eve))), (told("nobody"), None, told("CN=eve")));
    // The file keeps its name, but now holds other CAs.
    std::fs::copy(ours.file(), theirs.file()).expect("copied");
    running.reload(&configuration("required", &theirs));
    assert_eq!((curl(Some(&alice)), curl(Some(&eve))), (told("CN=alice"), None));
    std::fs::write(theirs.file(), "nothing").expect("written");
    let said = running.reload(&configuration("required", &theirs));
    assert!(said.contains("tls-client-ca: ") && said.contains("no certificate in it (PEM)"), "{said}");
    assert_eq!((curl(None), curl(Some(&alice))), (None, told("CN=alice")));
}
