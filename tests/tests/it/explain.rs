//! `nighttrain explain`: why a request was, or was not, answered from the store.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tests::{Accelerator, Answer, Request, ScriptedOrigin, eventually, on_one_core, on_one_core_and_on_two};

on_one_core! {
    a24_a_variant_is_explained_by_its_request_headers,
    a24_a_pass_is_explained_by_its_rule,
    a24_cookies_and_credentials_are_explained,
    a24_a_hit_for_miss_is_explained,
    a24_a_soft_purge_is_explained_as_stale,
    a24_what_is_on_the_file_alone_is_told,
    a24_what_is_no_request_is_one_clear_error,
}

on_one_core_and_on_two! {
    a24_a_site_without_freshness_is_reported_once,
    a24_explain_shows_a_stored_page_and_changes_nothing,
    a24_who_was_answered_last_is_told,
}

fn start(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url()).flag("--cores", cores).start()
}

/// Returns the output of `nighttrain explain --json` for a path of the tests' site.
#[track_caller]
fn explain(accelerator: &Accelerator, path: &str, arguments: &[&str]) -> Value {
    let url = format!("http://site.test{path}");
    let output = accelerator.ask(&[&["explain", "--json", &url], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Returns the last step of this state.
#[track_caller]
fn step<'s>(said: &'s Value, state: &str) -> &'s Value {
    let steps = said["steps"].as_array().expect("steps");
    steps.iter().rev().find(|step| step["state"] == state).unwrap_or_else(|| panic!("no {state}: {said:#}"))
}

#[track_caller]
fn words<'s>(said: &'s Value, state: &str) -> &'s str {
    step(said, state)["words"].as_str().expect("words")
}

/// Returns the request counters without those of the admin port and of connections that a client is just
/// closing.
fn of_visitors(accelerator: &Accelerator) -> Vec<(String, Value)> {
    let stat = accelerator.stat();
    let counted = stat.document()["requests"].as_object().expect("counters").clone();
    counted.into_iter().filter(|(name, _)| !name.ends_with("_admin") && name != "connections").collect()
}

fn a24_explain_shows_a_stored_page_and_changes_nothing(cores: &str) {
    let origin = ScriptedOrigin::start();
    let page = Answer::new(200, "all of it")
        .header("Cache-Control", "max-age=600, stale-while-revalidate=30")
        .header("Surrogate-Key", "a b")
        .header("ETag", "\"v1\"");
    origin.answers("/page", page);
    let running = start(&origin, cores);
    let unknown = explain(&running, "/page", &[]);
    assert_eq!((&unknown["outcome"], origin.count("/page")), (&Value::from("miss"), 0), "{unknown:#}");
    assert_eq!(step(&unknown, "store")["decision"], "nowhere");
    running.get("/page").expect_status(200);

    let before = of_visitors(&running);
    let said = explain(&running, "/page", &[]);
    assert_eq!(said["outcome"], "hit", "{said:#}");
    let key = step(&said, "key");
    assert_eq!(
        (&key["scheme"], &key["authority"], &key["path"]),
        (&"http".into(), &"site.test".into(), &"/page".into())
    );
    let store = step(&said, "store");
    assert_eq!(
        (&store["decision"], &store["status"], &store["body_bytes"]),
        (&"memory".into(), &200.into(), &9.into())
    );
    assert_eq!(store["tags"], 2);
    assert!(words(&said, "head").contains("max-age=600, stale-while-revalidate=30"), "{said:#}");
    let fresh = step(&said, "freshness");
    assert_eq!(
        (&fresh["lifetime_s"], &fresh["section"]),
        (&600.into(), &"RFC 9111 §5.2.2.1".into()),
        "{said:#}"
    );
    let sum = words(&said, "freshness");
    assert!(sum.starts_with("lifetime 600 s (max-age) - age ") && sum.contains(" = fresh for "), "{sum}");
    assert!(words(&said, "stale").contains("(stale-while-revalidate, 30 s)"), "{said:#}");
    let known = explain(&running, "/page", &["-H", "If-None-Match: \"v1\""]);
    assert!(known["outcome"] == "hit" && words(&known, "now").contains("304"), "{known:#}");

    let people = running.ask(&["explain", "http://site.test/page"]);
    let people = String::from_utf8(people.stdout).expect("text");
    assert!(
        people.starts_with("GET http://site.test/page\n\nrecv ") && people.contains("\nnow "),
        "{people}"
    );
    assert!(people.lines().all(|line| line.chars().count() <= 120), "{people}");
    assert_eq!(of_visitors(&running), before);
    assert_eq!(origin.count("/page"), 1);
}

fn a24_a_variant_is_explained_by_its_request_headers(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers(
        "/",
        Answer::new(200, "x")
            .header("Cache-Control", "max-age=600")
            .header("Vary", "Accept-Language, X-Kind"),
    );
    let running = start(&origin, cores);
    running.fetch(&Request::get("/").header("Accept-Language", "de")).expect_status(200);
    let german = explain(&running, "/", &["-H", "Accept-Language: DE"]);
    assert_eq!(german["outcome"], "hit", "{german:#}");
    assert!(words(&german, "variant").contains("accept-language: de; x-kind is absent"), "{german:#}");
    let english = explain(&running, "/", &["-H", "Accept-Language: en"]);
    assert_eq!((&english["outcome"], origin.count("/")), (&"miss".into(), 1), "{english:#}");
}

fn a24_a_pass_is_explained_by_its_rule(cores: &str) {
    let origin = ScriptedOrigin::start();
    let running = start(&origin, cores);
    for (arguments, outcome, section) in [
        (&["-X", "POST"][..], "pass", Some("RFC 9111 §4")),
        (&["-H", "If-Match: \"a\""], "pass", Some("RFC 9110 §13.1")),
        (&["-H", "Content-Length: 3"], "pass", Some("RFC 9110 §9.3.1")),
        (&["-X", "PURGE"], "purge", None),
        (&["-X", "TRACE"], "synth", None),
        (&["-H", "Cache-Control: only-if-cached"], "synth", Some("RFC 9111 §5.2.1.7")),
        // By default the client's `no-store` is ignored.
        (&["-H", "Cache-Control: no-store"], "miss", Some("knob client-cache-control")),
    ] {
        let said = explain(&running, "/", arguments);
        assert_eq!(said["outcome"], outcome, "{arguments:?}: {said:#}");
        assert_eq!(step(&said, "recv")["section"].as_str(), section, "{arguments:?}: {said:#}");
    }
    assert_eq!(origin.all_seen().len(), 0);
}

fn a24_cookies_and_credentials_are_explained(cores: &str) {
    let origin = ScriptedOrigin::start();
    // An answer of heuristic freshness.
    origin
        .answers("/guess", Answer::new(200, "x").header("Last-Modified", &tests::message::date(-1_000_000)));
    let running = start(&origin, cores);
    running.get("/guess").expect_status(200);
    let plain = explain(&running, "/guess", &[]);
    assert_eq!(
        (&plain["outcome"], &step(&plain, "freshness")["section"]),
        (&"hit".into(), &"RFC 9111 §4.2.2".into())
    );
    let said = explain(&running, "/guess", &["-H", "Cookie: a=b"]);
    assert_eq!(said["outcome"], "revalidate", "{said:#}");
    assert_eq!(step(&said, "recv")["section"], "knob cookies=safe");
    assert_eq!(step(&said, "reuse")["section"], "knob cookies");
    assert!(words(&said, "now").contains("If-Modified-Since: "), "{said:#}");
    let said = explain(&running, "/other", &["-H", "Authorization: Basic eDp5"]);
    assert_eq!(
        (&said["outcome"], &step(&said, "recv")["section"]),
        (&"miss".into(), &"RFC 9111 §3.5".into())
    );
}

fn a24_a_hit_for_miss_is_explained(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/mine", Answer::new(200, "x").header("Cache-Control", "no-store"));
    let running = start(&origin, cores);
    running.get("/mine").expect_status(200);
    let said = explain(&running, "/mine", &[]);
    let note = step(&said, "note");
    assert_eq!((&said["outcome"], &note["reason"]), (&"pass".into(), &"no-store".into()), "{said:#}");
    assert_eq!(note["section"], "RFC 9111 §5.2.2.5");
    // For a request with a cookie there is no such hit-for-miss note.
    assert_eq!(explain(&running, "/mine", &["-H", "Cookie: a=b"])["outcome"], "miss");
    assert_eq!((origin.count("/mine"), running.stat().count("requests.notes_used")), (1, 0));
}

fn a24_a_soft_purge_is_explained_as_stale(cores: &str) {
    let origin = ScriptedOrigin::start();
    let page = Answer::new(200, "x").header("Cache-Control", "max-age=600").header("ETag", "\"v1\"");
    origin.answers("/page", page);
    let running = start(&origin, cores);
    running.get("/page").expect_status(200);
    assert_eq!(step(&explain(&running, "/page", &[]), "purges")["decision"], "valid");
    assert!(running.ask(&["purge", "--soft", "http://site.test/page"]).status.success());
    let said = explain(&running, "/page", &[]);
    assert_eq!(
        (&said["outcome"], &step(&said, "purges")["decision"]),
        (&"revalidate".into(), &"soft".into())
    );
    assert!(words(&said, "freshness").contains(", ended by a purge after "), "{said:#}");
    assert!(words(&said, "now").contains("If-None-Match: \"v1\""), "{said:#}");
    assert!(running.ask(&["purge", "--all"]).status.success());
    let said = explain(&running, "/page", &[]);
    assert_eq!((&said["outcome"], &step(&said, "purges")["decision"]), (&"miss".into(), &"hard".into()));
    assert_eq!(origin.count("/page"), 1);
}

fn a24_what_is_on_the_file_alone_is_told(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let origin = ScriptedOrigin::start();
    origin.answers("/page", Answer::new(200, "x").header("Cache-Control", "max-age=6000"));
    let begin = |store: &Path| {
        Accelerator::before(&origin.url()).flag("--cores", cores).store_in(store, "128MiB").start().warm()
    };
    let store = directory.path().join("store");
    let mut running = begin(&store);
    running.get("/page").expect_status(200);
    eventually("it is on the file", || {
        step(&explain(&running, "/page", &[]), "store")["decision"] == "memory-and-file"
    });
    running.signal(Signal::TERM);
    running.wait();
    let running = begin(&store);
    for _ in 0..2 {
        let said = explain(&running, "/page", &[]);
        assert_eq!(
            (&said["outcome"], &step(&said, "store")["decision"]),
            (&"read".into(), &"file".into()),
            "{said:#}"
        );
    }
    running.get("/page").expect_status(200);
    assert_eq!(explain(&running, "/page", &[])["outcome"], "hit");
    assert_eq!(origin.count("/page"), 1);
}

fn a24_what_is_no_request_is_one_clear_error(cores: &str) {
    let origin = ScriptedOrigin::start();
    let running = start(&origin, cores);
    for (arguments, words) in [
        (&["site.test/page"][..], "not a URL: \"site.test/page\""),
        (&["http://site.test/", "-H", "what"], "not a header: \"what\""),
        (&["http://site.test/", "-H", "a b: c"], "refused with 400: white space stands between"),
        (&["http://site.test/", "-X", "no method"], "refused with 400: the method is not a token"),
    ] {
        let output = running.ask(&[&["explain"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

/// The commands of docs/guide/operating.md show what it says.
#[test]
fn a24_the_guides_commands_work() {
    let Some(output) = tests::guide::run("operating.md") else { return };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let outcomes = said.lines().filter(|line| line.starts_with("now ")).collect::<Vec<_>>();
    assert!(outcomes.len() == 2 && outcomes[0].contains("hit") && outcomes[1].contains("pass"), "{said}");
}

/// The commands of docs/guide/caching.md show the `Cache-Status` that it describes.
#[test]
fn a24_cache_status_is_as_the_guide_describes() {
    let Some(output) = tests::guide::run("caching.md") else { return };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let statuses: Vec<_> =
        said.lines().filter_map(|line| line.strip_prefix("Cache-Status: nighttrain; ")).collect();
    let [first, second, berth, timetable] = statuses[..] else { panic!("{said}") };
    assert_eq!((first, berth), ("fwd=uri-miss; stored", "fwd=uri-miss; detail=no-store"), "{said}");
    assert!(second.starts_with("hit; ttl="), "{said}");
    assert!(timetable.starts_with("fwd=uri-miss; stored") || timetable.starts_with("hit"), "{said}");
}

/// When most pages of a site have no explicit freshness, the log, `stat` and `explain` say so.
fn a24_a_site_without_freshness_is_reported_once(cores: &str) {
    let origin = ScriptedOrigin::start();
    let answer_all = |origin: &ScriptedOrigin, from: usize, to: usize, control: Option<&'static str>| {
        for number in from..to {
            let answer = Answer::new(200, "a page");
            let answer = control.map_or(answer.clone(), |control| answer.header("Cache-Control", control));
            origin.answers(&format!("/{number}"), answer);
        }
    };
    answer_all(&origin, 0, 60, Some("max-age=60"));
    answer_all(&origin, 60, 180, None);
    let hints = |accelerator: &Accelerator| {
        let table = accelerator.ask(&["stat"]);
        let table = String::from_utf8(table.stdout).expect("text");
        (accelerator.printed().matches("freshness lifetime").count(), table.contains("default-ttl"))
    };
    let ask_all = |accelerator: &Accelerator, from: usize, to: usize| {
        for number in from..to {
            accelerator.get(&format!("/{number}")).expect_status(200);
        }
    };
    let accelerator = start(&origin, cores);
    ask_all(&accelerator, 0, 119);
    assert_eq!(hints(&accelerator), (0, false), "59 of 119 are not most");
    ask_all(&accelerator, 119, 180);
    eventually("the log has it", || hints(&accelerator) == (1, true));
    assert_eq!(accelerator.stat().count("requests.without_freshness"), 120);
    assert!(words(&explain(&accelerator, "/170", &[]), "note").contains("default-ttl"));
    // With the setting there is nothing to report.
    let helped =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--default-ttl", "10s").start();
    ask_all(&helped, 0, 180);
    assert_eq!(hints(&helped), (0, false));
    assert_eq!(helped.stat().count("requests.without_freshness"), 0);
}

fn a24_who_was_answered_last_is_told(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/a", Answer::new(200, "a").header("Cache-Control", "max-age=600"));
    origin.answers("/b", Answer::new(200, "b").header("Cache-Control", "max-age=600"));
    let accelerator = start(&origin, cores);
    accelerator.get("/a").expect_status(200);
    let first = explain(&accelerator, "/a", &[]);
    assert_eq!(step(&first, "asked")["address"], "127.0.0.1");
    // Several connections, so that several cores record a client.
    for _ in 0..8 {
        let other =
            std::net::TcpStream::connect(("127.0.0.1", accelerator.address().port())).expect("it listens");
        tests::Client::over(other).expect("a client").exchange(&Request::get("/a")).expect_status(200);
    }
    let later = explain(&accelerator, "/a", &[]);
    assert_eq!(step(&later, "asked")["decision"], "last");
    assert!(step(&later, "asked")["at_s"].as_u64() >= step(&first, "asked")["at_s"].as_u64());
    assert!(words(&later, "asked").contains("last served to 127.0.0.1, on "), "{later:#}");
    let steps = later["steps"].as_array().expect("steps");
    assert_eq!(steps.last().expect("an outcome")["state"], "now");
    // A path that is not stored has no last client.
    let nothing = explain(&accelerator, "/b", &[]);
    let states = nothing["steps"].as_array().expect("steps");
    assert!(states.iter().all(|step| step["state"] != "asked"), "{nothing:#}");
}
