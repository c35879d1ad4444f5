//! Tests of the admin server over HTTP, in front of a fake accelerator.

use std::net::SocketAddr;

use cache::{
    ByHand, ExplainError, Explanation, HealthState, MemberSaid, ObjectSeen, Objects, ObjectsError, RequestOf,
};

use super::*;
use crate::admin::stat::tests::registry;

/// Fake server that has one URL.
struct OneUrlServer {
    registry: Arc<engine::meter::Registry>,
    ready: bool,
}

impl OperatorView for OneUrlServer {
    fn registry(&self) -> Arc<engine::meter::Registry> {
        Arc::clone(&self.registry)
    }

    fn is_ready(&self) -> bool {
        self.ready
    }
}

impl Purger for OneUrlServer {
    fn purge(&self, url: &str) -> Result<PurgeResult, PurgeError> {
        match url {
            "http://a/known?x=1&y=2" => Ok(PurgeResult::Dropped(vec!["https://a/known".to_owned()])),
            "stopped" => Err(PurgeError::NoAnswer),
            _ if url.starts_with("http://") => Ok(PurgeResult::Absent),
            _ => Err(PurgeError::NotAUrl(url.to_owned())),
        }
    }

    fn invalidate(&self, what: &Invalidate, is_soft: bool) -> Result<(), PurgeError> {
        match (what, is_soft) {
            (Invalidate::Url(url), true) if !url.starts_with("http://") => {
                Err(PurgeError::NotAUrl(url.clone()))
            }
            (Invalidate::Tags(tags), _) if tags == &["stopped"] => Err(PurgeError::NoAnswer),
            (Invalidate::Tags(tags), false) => {
                assert_eq!(tags, &["a", "b c"]);
                Ok(())
            }
            (Invalidate::Url(_), false) => panic!("a URL is dropped"),
            (Invalidate::Ban(text), _) if text != "req.url ~ ^/a" => Err(PurgeError::NotABan(text.clone())),
            _ => Ok(()),
        }
    }

    fn bans(&self) -> Result<Vec<BanSeen>, PurgeError> {
        let seen = |number, cores_done: Option<usize>| BanSeen {
            number,
            is_soft: cores_done.is_none(),
            text: "req.url ~ \"a\"".to_owned(),
            cores_done,
        };
        Ok(vec![seen(7, Some(1)), seen(8, None)])
    }

    fn objects(&self, expression: Option<&str>, rows_max: usize) -> Result<Objects, ObjectsError> {
        match expression {
            None => {
                assert_eq!(rows_max, 7);
                let url = "http://a/known?x=1&y=2".to_owned();
                let object = ObjectSeen {
                    url,
                    is_variant: false,
                    status: 200,
                    content_type: None,
                    body_bytes: 3,
                    age_s: 1,
                    ttl_s: -2,
                    tags: 0,
                };
                Ok(Objects { seen: vec![object], looked_at: 9, is_all: true })
            }
            Some("late") => Err(ObjectsError::NoAnswer),
            Some(other) => Err(ObjectsError::NotAnExpression(format!("not: {other}"))),
        }
    }

    fn origins(&self) -> Vec<MemberSaid> {
        vec![MemberSaid {
            server: "http://a:80".to_owned(),
            standing: HealthState::Warming(4),
            by_hand: ByHand::Auto,
            busy: 1,
            requests: 5,
            failures: 2,
            probes: Some((3, 8)),
        }]
    }

    fn set_origin(&self, server: &str, by_hand: ByHand) -> bool {
        assert_eq!(by_hand, ByHand::Drain);
        server == "http://a:80"
    }

    fn explain(&self, request: &RequestOf) -> Result<Explanation, ExplainError> {
        match &*request.url {
            "http://a/known?x=1&y=2" => {
                assert_eq!((&*request.method, &request.headers[..]), ("HEAD", &["A: b c".to_owned()][..]));
                let figures =
                    vec![("age_s", cache::Figure::Number(7)), ("lines", cache::Figure::Text("x".into()))];
                let words = "it is there".to_owned();
                let step =
                    cache::Step { state: "now", decision: "hit", words, section: "RFC 9111 §4", figures };
                Ok(Explanation { steps: vec![step] })
            }
            "http://a/late" => Err(ExplainError::NoAnswer),
            other => Err(ExplainError::NotAUrl(other.to_owned())),
        }
    }
}

fn serve(ready: bool) -> SocketAddr {
    let port = Port::bind("admin", SocketAddr::from(([127, 0, 0, 1], 0)), false).expect("a free port");
    let address = port.address();
    let access = Access::for_address(address, None).expect("loopback");
    let known = Arc::new(OneUrlServer { registry: Arc::new(registry()), ready });
    let pages = pages(access, Arc::clone(&known) as Arc<dyn OperatorView>, Some(known), None);
    port.serve(pages, None).expect("a thread");
    address
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).build().into()
}

fn ask(address: SocketAddr, path: &str, fields: &[(&str, &str)]) -> (u16, String, String) {
    let mut request = agent().get(format!("http://{address}{path}"));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let mut answer = request.call().expect("an answer");
    let kind =
        answer.headers().get("content-type").map_or("", |kind| kind.to_str().expect("text")).to_owned();
    assert_eq!(answer.headers()["cache-control"], "no-store");
    assert!(!answer.headers().contains_key("access-control-allow-origin"));
    (answer.status().as_u16(), kind, answer.body_mut().read_to_string().expect("text"))
}

fn purge_of(address: SocketAddr, url: &str) -> (u16, serde_json::Value) {
    let request = agent().post(format!("http://{address}/purge")).query("url", url);
    let mut answer = request.send_empty().expect("an answer");
    let text = answer.body_mut().read_to_string().expect("text");
    (answer.status().as_u16(), serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn metrics_are_what_prometheus_reads() {
    let (status, kind, text) = ask(serve(true), "/metrics", &[]);
    assert_eq!(status, 200);
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    assert!(text.contains("cache_hits_total 617\n"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn stat_is_json_or_a_table() {
    let address = serve(true);
    let (_, kind, text) = ask(address, "/stat", &[]);
    assert_eq!(kind, "application/json");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["requests"]["hits"], 617);
    let (_, kind, text) = ask(address, "/stat", &[("accept", "text/plain")]);
    assert!(kind.starts_with("text/plain") && text.contains("Requests\n"), "{kind} {text}");
}

#[test]
fn the_page_says_how_it_is() {
    let (_, kind, text) = ask(serve(true), "/", &[]);
    assert!(kind.starts_with("text/html"));
    assert!(text.contains("617 of 1234 requests were answered from memory (50.0 %)"), "{text}");
    assert!(ask(serve(false), "/", &[]).2.contains("not accepting new requests"));
}

#[test]
fn health_and_readiness_differ() {
    for (ready, status) in [(true, 200), (false, 503)] {
        let address = serve(ready);
        assert_eq!(ask(address, "/healthz", &[]).0, 200);
        assert_eq!(ask(address, "/readyz", &[]).0, status);
        // A load balancer sends its own name as `Host`, or none.
        assert_eq!(ask(address, "/readyz", &[("host", "balancer.example")]).0, status);
    }
}

#[test]
fn rebound_hosts_and_foreign_origins_are_refused() {
    let address = serve(true);
    for path in ["/", "/metrics", "/stat"] {
        let (status, _, text) = ask(address, path, &[("host", "evil.example")]);
        assert_eq!(status, 421);
        assert!(!text.contains("617"), "{text}");
        assert_eq!(ask(address, path, &[("origin", "http://evil.example")]).0, 403);
    }
    assert_eq!(ask(address, "/nowhere", &[]).0, 404);
}

#[test]
fn purges() {
    let address = serve(true);
    let found = serde_json::json!({ "dropped": true, "found": ["https://a/known"] });
    assert_eq!(purge_of(address, "http://a/known?x=1&y=2"), (200, found));
    assert_eq!(purge_of(address, "http://a/other"), (200, serde_json::json!({ "dropped": false })));
    assert_eq!(purge_of(address, "what").0, 400);
    assert_eq!(purge_of(address, "stopped").0, 503);
    assert_eq!(ask(address, "/purge?url=http://a/other", &[]).0, 405);
    let mut answer = agent().post(format!("http://{address}/purge")).send_empty().expect("an answer");
    assert_eq!(answer.status(), 400);
    assert!(answer.body_mut().read_to_string().expect("text").contains("missing target"));
}

#[test]
fn purges_of_many() {
    let address = serve(true);
    let purge = |query: &str| {
        let mut answer =
            agent().post(format!("http://{address}/purge?{query}")).send_empty().expect("an answer");
        let text = answer.body_mut().read_to_string().expect("text");
        (answer.status().as_u16(), serde_json::from_str(&text).expect("JSON"))
    };
    let done = (200, serde_json::json!({ "invalidated": true }));
    for query in [
        "tag=a&tag=b+c",
        "all",
        "all&soft",
        "url=http://a/&soft=1",
        "tag=a&soft",
        "ban=req.url+~+%5E/a",
        "ban=req.url+~+%5E/a&soft",
    ] {
        assert_eq!(purge(query), done, "{query}");
    }
    let (status, _, list) = ask(address, "/purge", &[]);
    assert_eq!(status, 200);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&list).expect("JSON"),
        serde_json::json!([
            { "number": 7, "ban": "req.url ~ \"a\"", "soft": false, "cores_done": 1 },
            { "number": 8, "ban": "req.url ~ \"a\"", "soft": true, "cores_done": null },
        ])
    );
    for (query, status) in [
        ("tag=stopped", 503),
        ("soft", 400),
        ("tag=", 400),
        ("all&tag=a", 400),
        ("url=http://a/&tag=a", 400),
        ("what=1&all", 400),
        ("url=x&soft", 400),
        ("ban=req.what+~+a", 400),
        ("ban=req.url+~+%5E/a&ban=req.url+~+%5E/a", 400),
        ("ban=req.url+~+%5E/a&all", 400),
    ] {
        assert_eq!(purge(query).0, status, "{query}");
    }
}

#[test]
fn explanations() {
    let address = serve(true);
    let path = "/explain?url=http://a/known?x%3D1%26y%3D2&method=HEAD&header=A:%20b+c";
    let (status, kind, text) = ask(address, path, &[]);
    assert_eq!((status, &*kind), (200, "application/json"));
    let said: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let step = serde_json::json!({
        "state": "now", "decision": "hit", "words": "it is there", "section": "RFC 9111 §4", "age_s": 7, "lines": "x",
    });
    assert_eq!(
        said,
        serde_json::json!({ "method": "HEAD", "url": "http://a/known?x=1&y=2", "outcome": "hit", "steps": [step] })
    );
    for (query, status) in [
        ("", 400),
        ("?url=x", 400),
        ("?url=http://a/late", 503),
        ("?url=a&url=b", 400),
        ("?url=a&what=b", 400),
    ] {
        assert_eq!(ask(address, &format!("/explain{query}"), &[]).0, status, "{query}");
    }
    // A client that may not purge may not list bans either.
    assert_eq!(ask(address, path, &[("host", "evil.example")]).0, 421);
}

#[test]
fn what_is_stored() {
    let address = serve(true);
    let (status, kind, text) = ask(address, "/objects?limit=7", &[]);
    assert_eq!((status, &*kind), (200, "application/json"));
    let said: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let row = serde_json::json!({
        "url": "http://a/known?x=1&y=2", "variant": false, "status": 200, "content_type": null, "body_bytes": 3,
        "age_s": 1, "ttl_s": -2, "tags": 0,
    });
    assert_eq!(said, serde_json::json!({ "objects": [row], "looked_at": 9, "all": true }));
    for (query, status) in [
        ("?match=late", 503),
        ("?match=wrong", 400),
        ("?limit=0", 400),
        ("?limit=10001", 400),
        ("?limit=1&limit=2", 400),
        ("?url=x", 400),
    ] {
        assert_eq!(ask(address, &format!("/objects{query}"), &[]).0, status, "{query}");
    }
    assert_eq!(ask(address, "/objects?limit=7", &[("host", "evil.example")]).0, 421);
}

#[test]
fn a11_servers_are_listed_and_taken_out() {
    let address = serve(true);
    let (status, kind, text) = ask(address, "/origins", &[]);
    assert_eq!((status, kind.as_str()), (200, "application/json"));
    let said: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let row = serde_json::json!({
        "server": "http://a:80", "state": "warming", "sixteenths": 4, "busy": 1, "requests": 5, "failures": 2,
        "probes_good": 3, "probes": 8,
    });
    assert_eq!(said, serde_json::json!({ "origins": [row] }));
    for (query, status) in [
        ("?server=http://a:80&set=drain", 200),
        ("?server=http://b:80&set=drain", 404),
        ("?server=http://a:80&set=gone", 400),
        ("?server=http://a:80", 400),
        ("?set=drain", 400),
        ("", 400),
    ] {
        let request = agent().post(format!("http://{address}/origins{query}"));
        assert_eq!(request.send_empty().expect("an answer").status(), status, "{query}");
    }
}
