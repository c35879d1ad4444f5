//! Row A24 of the features: stored objects are listed and searched.

use std::collections::BTreeSet;

use serde_json::Value;
use tests::{Accelerator, Answer, Request, ScriptedOrigin, on_one_core, on_one_core_and_on_two};

on_one_core! {
    a24_it_is_searched_by_an_expression,
    a24_what_is_no_expression_is_one_clear_error,
}

on_one_core_and_on_two! {
    a24_stored_objects_are_listed_with_their_properties,
    a24_many_objects_are_listed_up_to_a_bound,
}

fn start(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url()).flag("--cores", cores).start()
}

/// Output of `nighttrain objects --json`.
#[track_caller]
fn objects(accelerator: &Accelerator, arguments: &[&str]) -> Value {
    let output = accelerator.ask(&[&["objects", "--json"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Paths of the listed objects, sorted.
#[track_caller]
fn paths(said: &Value) -> Vec<&str> {
    let mut paths = Vec::new();
    for row in said["objects"].as_array().expect("rows") {
        let path = row["url"].as_str().and_then(|url| url.strip_prefix("http://site.test"));
        paths.push(path.unwrap_or_else(|| panic!("of another site: {row}")));
    }
    paths.sort_unstable();
    paths
}

fn page(kind: &str) -> Answer {
    Answer::new(200, "a page").header("Cache-Control", "max-age=600").header("Content-Type", kind)
}

fn a24_stored_objects_are_listed_with_their_properties(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/plain", page("text/plain").header("Surrogate-Key", "one two"));
    origin.answers("/varied", page("text/html").header("Vary", "Accept-Language"));
    origin.answers("/private", Answer::new(200, "x").header("Cache-Control", "private"));
    origin.answers("/gone", Answer::new(404, "").header("Cache-Control", "max-age=600").header("Age", "100"));
    let accelerator = start(&origin, cores);
    let nothing = accelerator.ask(&["objects"]);
    assert_eq!(String::from_utf8_lossy(&nothing.stdout), "0 of 0 inspected, all in memory\n");
    for path in ["/plain", "/private", "/gone"] {
        accelerator.get(path);
    }
    for language in ["de", "en"] {
        accelerator.fetch(&Request::get("/varied").header("Accept-Language", language)).expect_status(200);
    }
    let said = objects(&accelerator, &[]);
    assert_eq!(paths(&said), ["/gone", "/plain", "/varied", "/varied"]);
    assert_eq!((said["looked_at"].as_u64(), said["all"].as_bool()), (Some(4), Some(true)));
    let row = |path: &str| {
        let rows = said["objects"].as_array().expect("rows");
        let url = format!("http://site.test{path}");
        rows.iter().find(|row| row["url"] == *url).expect("it is there").clone()
    };
    let plain = row("/plain");
    assert_eq!((&plain["status"], &plain["body_bytes"], &plain["tags"]), (&200.into(), &6.into(), &2.into()));
    assert_eq!((&plain["content_type"], &plain["variant"]), (&"text/plain".into(), &false.into()));
    let ttl_s = plain["ttl_s"].as_i64().expect("a number");
    assert!((560..=600).contains(&ttl_s), "{plain}");
    let gone = row("/gone");
    assert!(gone["age_s"].as_u64() >= Some(100) && gone["status"] == 404, "{gone}");
    assert_eq!(row("/varied")["variant"], true);
    // A listing counts as no request, and leaves out purged objects, though they are still in memory.
    assert_eq!(accelerator.stat().count("requests.received"), 5);
    assert!(accelerator.ask(&["purge", "--tag", "two"]).status.success());
    assert_eq!(paths(&objects(&accelerator, &[])), ["/gone", "/varied", "/varied"]);
    assert!(accelerator.ask(&["purge", "--soft", "--all"]).status.success());
    let stale = objects(&accelerator, &[]);
    assert!(stale["objects"].as_array().expect("rows").iter().all(|row| row["ttl_s"].as_i64() <= Some(0)));
    let table = accelerator.ask(&["objects", "req.url == /gone"]);
    let table = String::from_utf8(table.stdout).expect("text");
    assert!(table.contains("stale ") && table.ends_with("1 of 3 inspected, all in memory\n"), "{table}");
}

fn a24_it_is_searched_by_an_expression(cores: &str) {
    let origin = ScriptedOrigin::start();
    for (path, kind) in [("/news/1", "text/html"), ("/news/2.png", "image/png"), ("/other", "text/html")] {
        origin.answers(path, page(kind));
    }
    let accelerator = start(&origin, cores);
    for path in ["/news/1", "/news/2.png", "/other"] {
        accelerator.get(path).expect_status(200);
    }
    for (expression, found) in [
        ("req.url ~ ^/news/", &["/news/1", "/news/2.png"][..]),
        ("req.url ~ ^/news/ && obj.http.content-type ~ ^image/", &["/news/2.png"]),
        ("obj.ttl > 5m and not req.url == /other", &["/news/1", "/news/2.png"]),
        ("obj.age > 1h", &[]),
        ("req.http.host == site.test && obj.status == 200", &["/news/1", "/news/2.png", "/other"]),
    ] {
        assert_eq!(paths(&objects(&accelerator, &[expression])), found, "{expression}");
    }
}

fn a24_many_objects_are_listed_up_to_a_bound(cores: &str) {
    let origin = ScriptedOrigin::start();
    let names: BTreeSet<String> = (0..700).map(|number| format!("/{number}")).collect();
    for path in &names {
        origin.answers(path, page("text/plain"));
    }
    let accelerator = start(&origin, cores);
    let mut client = accelerator.connect();
    for path in &names {
        client.send(&Request::get(path).bytes());
        assert_eq!(client.response("GET").head.status, 200);
    }
    assert_eq!(paths(&objects(&accelerator, &["--limit", "10000"])), Vec::from_iter(&names));
    let some = objects(&accelerator, &[]);
    let listed: BTreeSet<&str> = paths(&some).into_iter().collect();
    assert_eq!((listed.len(), &some["all"]), (50, &false.into()), "fifty of those that are there");
    assert!(listed.iter().all(|path| names.contains(*path)));
}

fn a24_what_is_no_expression_is_one_clear_error(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator = start(&origin, cores);
    for (arguments, expected) in [
        (&["req.url ~~ x"][..], "req.url ~~ x"),
        (&["req.http.cookie ~ a"], "only req.http.host and req.url"),
        (&["obj.http.xkey == a"], "only hashes are stored"),
        (&["--limit", "0"], "1 to 10000"),
        (&["--limit", "10001"], "1 to 10000"),
    ] {
        let output = accelerator.ask(&[&["objects"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
    }
}
