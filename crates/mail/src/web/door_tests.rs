//! Tests of access control: every route, requested by every kind of client.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use engine::{cores::clock, meter::Value};

use super::{Config, Token, Web, routes, serve};
use crate::mailbox::twin::{Retention, Twin};

const TOKEN: &str = "0123456789abcdef-token";

/// Kind of access that a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RouteAccess {
    /// Shows no mail.
    Open,
    /// Shows no mail, but counts as a change.
    OpenChange,
    /// Shows the inbox in its path, which may be a pattern for several inboxes.
    Inbox,
    /// Changes the inbox in its path.
    InboxChange,
    /// Shows mail of many inboxes.
    Wide,
    /// Changes mail of many inboxes.
    WideChange,
}

use RouteAccess::{Inbox, InboxChange, Open, OpenChange, Wide, WideChange};

const PAGES: &[(&str, &str, RouteAccess)] = &[
    ("GET", "/", Open),
    ("GET", "/inbox", Open),
    ("GET", "/inbox/{address}", Inbox),
    ("GET", "/inbox/{address}/events", Inbox),
    ("GET", "/inbox/{address}/search", Inbox),
    ("POST", "/inbox/{address}/change", InboxChange),
    ("POST", "/inbox/{address}/delete", InboxChange),
    ("GET", "/inbox/{address}/{id}", Inbox),
    ("POST", "/inbox/{address}/{id}/delete", InboxChange),
    ("GET", "/inbox/{address}/{id}/frame", Inbox),
    ("GET", "/inbox/{address}/{id}/raw", Inbox),
    ("GET", "/inbox/{address}/{id}/{view}", Inbox),
    ("GET", "/inbox/{address}/{id}/attachments/{part}/{name}", Inbox),
    ("GET", "/about", Open),
    ("GET", "/terms", Open),
    ("GET", "/counters", Open),
    ("GET", "/static/{version}/{name}", Open),
    ("GET", "/robots.txt", Open),
    ("GET", "/healthz", Open),
    ("GET", "/api", Open),
    ("GET", "/api/openapi.json", Open),
];

/// Routes below `/api/v2`.
const MAILINATOR: &[(&str, &str, RouteAccess)] = &[
    ("GET", "/domains/{domain}/inboxes/{inbox}/wait", Inbox),
    ("GET", "/domains/{domain}/inboxes/{inbox}/messages/{id}/codes", Inbox),
    ("GET", "/domains/{domain}/inboxes/{inbox}/messages/{id}/links", Inbox),
    ("GET", "/domains/{domain}/inboxes/{inbox}", Inbox),
    ("DELETE", "/domains/{domain}/inboxes/{inbox}", InboxChange),
    ("POST", "/domains/{domain}/inboxes/{inbox}", InboxChange),
    ("POST", "/domains/{domain}/inboxes/{inbox}/messages", InboxChange),
    ("GET", "/domains/{domain}/inboxes/{inbox}/messages/{id}", Inbox),
    ("DELETE", "/domains/{domain}/inboxes/{inbox}/messages/{id}", InboxChange),
    ("GET", "/domains/{domain}/inboxes/{inbox}/messages/{id}/{what}", Inbox),
    ("GET", "/domains/{domain}/inboxes/{inbox}/messages/{id}/attachments/{part}", Inbox),
    ("GET", "/domains/{domain}/inboxes", Wide),
    ("DELETE", "/domains/{domain}/inboxes", WideChange),
    ("GET", "/domains/{domain}/messages/{id}", Wide),
    ("DELETE", "/domains/{domain}/messages/{id}", WideChange),
    ("GET", "/domains/{domain}/messages/{id}/{what}", Wide),
    ("GET", "/domains/{domain}/messages/{id}/attachments/{part}", Wide),
    ("GET", "/domains/{domain}/stream", Wide),
    ("GET", "/domains/{domain}/stream/", Wide),
    ("GET", "/domains/{domain}/stream/{inbox}", Inbox),
    ("POST", "/domains/{domain}/webhook", WideChange),
    ("POST", "/domains/{domain}/webhook/", WideChange),
    ("POST", "/domains/{domain}/webhook/{inbox}", InboxChange),
    ("GET", "/domains", Open),
    ("GET", "/domains/{domain}", Open),
    ("GET", "/domains/{domain}/", Open),
    ("POST", "/domains/{domain}", OpenChange),
    ("DELETE", "/domains/{domain}", OpenChange),
    ("GET", "/domains/{domain}/rules", Open),
    ("GET", "/domains/{domain}/rules/", Open),
    ("POST", "/domains/{domain}/rules", OpenChange),
    ("POST", "/domains/{domain}/rules/", OpenChange),
    ("GET", "/team", Open),
    ("GET", "/team/stats", Open),
    ("GET", "/team/stats/", Open),
    ("GET", "/teaminfo", Open),
];

/// Routes that are served over all mail, and again below the page of an inbox for that inbox only; the path
/// then determines the access.
const MAILPIT: &[(&str, &str, RouteAccess)] = &[
    ("GET", "/api/v1/messages", Wide),
    ("PUT", "/api/v1/messages", WideChange),
    ("DELETE", "/api/v1/messages", WideChange),
    ("GET", "/api/v1/search", Wide),
    ("DELETE", "/api/v1/search", WideChange),
    ("GET", "/api/v1/message/{id}", Wide),
    ("GET", "/api/v1/message/{id}/headers", Wide),
    ("GET", "/api/v1/message/{id}/raw", Wide),
    ("GET", "/api/v1/message/{id}/part/{part}", Wide),
    ("GET", "/api/v1/message/{id}/part/{part}/thumb", Wide),
    ("POST", "/api/v1/send", WideChange),
    ("GET", "/api/v1/tags", Wide),
    ("PUT", "/api/v1/tags", WideChange),
    ("PUT", "/api/v1/tags/{tag}", WideChange),
    ("DELETE", "/api/v1/tags/{tag}", WideChange),
    ("GET", "/api/v1/info", Wide),
    ("GET", "/view/{file}", Wide),
    ("GET", "/api/events", Wide),
    ("GET", "/api/v1/webui", Open),
    ("GET", "/api/v1/message/{id}/html-check", Open),
    ("GET", "/api/v1/message/{id}/link-check", Open),
    ("GET", "/api/v1/message/{id}/sa-check", Open),
    ("POST", "/api/v1/message/{id}/release", OpenChange),
    ("GET", "/api/v1/chaos", Open),
    ("PUT", "/api/v1/chaos", OpenChange),
];

/// Routes over all mail that are also served below `/mailhog`.
const MAILHOG: &[(&str, &str, RouteAccess)] = &[
    ("GET", "/api/v2/messages", Wide),
    ("GET", "/api/v2/search", Wide),
    ("GET", "/api/v1/messages/{id}", Wide),
    ("DELETE", "/api/v1/messages/{id}", WideChange),
    ("GET", "/api/v1/messages/{id}/download", Wide),
    ("GET", "/api/v1/messages/{id}/mime/part/{part}/download", Wide),
    ("GET", "/api/v1/events", Wide),
    ("GET", "/api/v2/websocket", Wide),
    ("GET", "/api/v2/outgoing-smtp", Open),
    ("GET", "/api/v2/jim", Open),
    ("POST", "/api/v2/jim", OpenChange),
    ("PUT", "/api/v2/jim", OpenChange),
    ("DELETE", "/api/v2/jim", OpenChange),
    ("POST", "/api/v1/messages/{id}/release", OpenChange),
];
const BELOW_MAILHOG: &[(&str, &str, RouteAccess)] =
    &[("GET", "/mailhog/api/v1/messages", Wide), ("DELETE", "/mailhog/api/v1/messages", WideChange)];

fn table() -> Vec<(&'static str, String, RouteAccess)> {
    let in_an_inbox = |door| match door {
        Wide => Inbox,
        WideChange => InboxChange,
        door => door,
    };
    let pages = PAGES.iter().map(|(method, path, door)| (*method, (*path).to_owned(), *door));
    let mailinator = MAILINATOR.iter().map(|(method, path, door)| (*method, format!("/api/v2{path}"), *door));
    let mailpit = MAILPIT.iter().flat_map(|(method, path, door)| {
        let of_inbox = (*method, format!("/inbox/{{address}}{path}"), in_an_inbox(*door));
        [(*method, (*path).to_owned(), *door), of_inbox]
    });
    let mailhog = MAILHOG.iter().flat_map(|(method, path, door)| {
        [(*method, (*path).to_owned(), *door), (*method, format!("/mailhog{path}"), *door)]
    });
    let below = BELOW_MAILHOG.iter().map(|(method, path, door)| (*method, (*path).to_owned(), *door));
    pages.chain(mailinator).chain(mailpit).chain(mailhog).chain(below).collect()
}

/// The routes come from the router itself, so a route that is missing in this table fails the test.
#[test]
fn every_route_has_a_door() {
    let (_, all) = routes::<Twin>().finish();
    let routed: BTreeSet<String> = all.iter().map(|(method, path)| format!("{method} {path}")).collect();
    let known: BTreeSet<String> =
        table().iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    assert_eq!(routed.len(), all.len(), "a route is there twice");
    assert_eq!(routed.difference(&known).collect::<Vec<_>>(), [""; 0], "routes without a door");
    assert_eq!(known.difference(&routed).collect::<Vec<_>>(), [""; 0], "doors without a route");
}

/// A site with one mail, to `ann`.
struct TestSite {
    web: Web,
    id: String,
}

impl TestSite {
    fn new() -> Self {
        let twin = Twin::new(Retention::default(), "night.test");
        let raw = b"Subject: x\r\n\r\nsecret\r\n";
        let ids = twin.deliver_at(clock::unix_ms(), "a@b.test", &["ann".to_owned()], raw).unwrap();
        let config = Config {
            domain: "night.test".to_owned(),
            token: Some(Token::new(TOKEN).unwrap()),
            ..Config::default()
        };
        let web = serve(TcpListener::bind("127.0.0.1:0").unwrap(), twin, config).unwrap();
        Self { web, id: ids[0].to_string() }
    }

    /// Returns only the status, because streams do not end.
    fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            .allow_non_standard_methods(true)
            .build()
            .into();
        let mut request =
            axum::http::Request::builder().method(method).uri(format!("http://{}{path}", self.web.address()));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        agent.run(request.body("{}".to_owned()).unwrap()).unwrap().status().as_u16()
    }

    fn filled(&self, path: &str, address: &str, inbox: &str) -> String {
        path.replace("{address}", address)
            .replace("{domain}", "public")
            .replace("{inbox}", inbox)
            .replace("{id}", &self.id)
            .replace("{what}", "text")
            .replace("{view}", "text")
            .replace("{part}", "0")
            .replace("{tag}", "x")
            .replace("{file}", &format!("{}.txt", self.id))
            .replace("{version}", "0")
            .replace("{name}", "x")
    }
}

const REFUSED: [u16; 3] = [401, 403, 421];

/// Requests every route for one inbox, for all inboxes, from a foreign origin, without a token, and with a
/// foreign host name.
#[test]
fn every_door_lets_in_whom_it_should() {
    let token = ("authorization", TOKEN);
    let foreign = ("origin", "https://evil.test");
    for (method, path, door) in table() {
        let house = TestSite::new();
        let own = house.filled(&path, "ann@night.test", "ann");
        let all = house.filled(&path, "*@*", "*");
        let of_inbox = matches!(door, Inbox | InboxChange);
        let open = matches!(door, Open | OpenChange);
        let change = matches!(door, OpenChange | InboxChange | WideChange);
        let asked =
            |path: &str, headers: &[(&str, &str)]| (house.ask(method, path, headers), path.to_owned());
        // The requests to be refused come first, as accepted ones may delete the mail.
        let (status, path) = asked(&own, &[token, ("host", "rebound.test")]);
        assert_eq!(status, 421, "{method} {path} by a foreign name");
        let (status, path) = asked(&all, &[]);
        assert_eq!(status == 401, !open, "{method} {path} without a token: {status}");
        for path in [&own, &all] {
            let (status, path) = asked(path, &[token, foreign]);
            assert_eq!(status == 403, change, "{method} {path} for another site: {status}");
            if method == "GET" {
                let deleting = format!("{path}?delete=1ms");
                assert_eq!(
                    house.ask(method, &deleting, &[token, foreign]),
                    403,
                    "{deleting} for another site"
                );
            }
        }
        let (status, path) = asked(&own, &[]);
        assert_eq!(status == 401, !open && !of_inbox, "{method} {path} of one's own: {status}");
        let (status, path) = asked(&all, &[token]);
        assert!(!REFUSED.contains(&status), "{method} {path} with the token: {status}");
    }
}

#[test]
fn only_addresses_and_configured_hosts_are_served() {
    let house = TestSite::new();
    for (host, ours) in [
        ("127.0.0.1:8025", true),
        ("[::1]", true),
        ("localhost:1", true),
        ("LOCALHOST.", true),
        ("rebound.test", false),
        ("127.0.0.1.rebound.test", false),
        ("localhost.rebound.test:8025", false),
        ("", false),
    ] {
        let status = house.ask("GET", "/inbox/ann@night.test", &[("host", host)]);
        assert_eq!(status, if ours { 200 } else { 421 }, "{host}");
    }
    let named = |http_hosts: &[&str]| {
        let twin = Twin::new(Retention::default(), "night.test");
        let http_hosts = http_hosts.iter().map(|&host| host.to_owned()).collect();
        let config = Config { http_hosts, ..Config::default() };
        let web = serve(TcpListener::bind("127.0.0.1:0").unwrap(), twin, config).unwrap();
        TestSite { web, id: String::new() }
    };
    assert_eq!(named(&["mail.night.test"]).ask("GET", "/about", &[("host", "Mail.Night.test:80")]), 200);
    assert_eq!(named(&["mail.night.test"]).ask("GET", "/about", &[("host", "other.night.test")]), 421);
    assert_eq!(named(&["*"]).ask("GET", "/about", &[("host", "other.night.test")]), 200);
}

/// Starts a site on `listen`, with one mail.
fn site(listen: &str, config: Config) -> TestSite {
    let twin = Twin::new(Retention::default(), "night.test");
    let ids =
        twin.deliver_at(clock::unix_ms(), "a@b.test", &["ann".to_owned()], b"Subject: x\r\n\r\nsecret\r\n");
    let config = Config { domain: "night.test".to_owned(), ..config };
    let web = serve(TcpListener::bind(listen).unwrap(), twin, config).unwrap();
    TestSite { web, id: ids.unwrap()[0].to_string() }
}

/// Sends a raw request over IPv4 from this machine, and returns the response's status and text.
fn written(house: &TestSite, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", house.web.address().port())).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default(), answer)
}

const ALL: &str = "/api/v1/messages";

/// Formats a request from this machine for `path`, with additional fields.
fn local(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:8025\r\nConnection: close\r\n{fields}\r\n")
}

/// A peer that connects to `[::]` by IPv4 has the address `::ffff:127.0.0.1`, which counts as 127.0.0.1.
#[test]
fn an_unbelieved_proxy_on_ipv6_is_no_reader() {
    for listen in ["[::]:0", "127.0.0.1:0"] {
        let readers = vec!["127.0.0.0/8".parse().unwrap()];
        let house =
            site(listen, Config { readers, token: Some(Token::new(TOKEN).unwrap()), ..Config::default() });
        assert_eq!(written(&house, &local(ALL, "")).0, 200, "{listen}: a reader by itself");
        let stranger = local(ALL, "X-Forwarded-For: 203.0.113.9\r\n");
        assert_eq!(written(&house, &stranger).0, 401, "{listen}: through a proxy that is not believed");
    }
    let proxies = vec!["127.0.0.1".parse().unwrap()];
    let readers = vec!["192.0.2.0/24".parse().unwrap()];
    let house = site("[::]:0", Config { readers, proxies, ..Config::default() });
    assert_eq!(
        written(&house, &local(ALL, "X-Forwarded-For: 192.0.2.4\r\n")).0,
        200,
        "a reader who is named"
    );
    assert_eq!(written(&house, &local(ALL, "X-Forwarded-For: 203.0.113.9\r\n")).0, 403);
}

/// A proxy that adds no proxy headers is recognized by other signs. From then on, requests from this machine
/// get no access to all mail together.
#[test]
fn a_silent_proxy_closes_all_mail() {
    let signs = [
        "GET /healthz HTTP/1.0\r\nHost: 127.0.0.1:8025\r\n\r\n".to_owned(),
        local("/about", "Referer: http://mail.example.org/\r\n"),
        local("/about", "Origin: https://mail.example.org\r\n"),
        local("/healthz", "X-Page-Host: mail.example.org\r\nSec-Fetch-Site: same-origin\r\n"),
    ];
    for sign in signs {
        for listen in ["127.0.0.1:0", "[::]:0", "0.0.0.0:0"] {
            let house = site(listen, Config::default());
            assert_eq!(written(&house, &local(ALL, "")).0, 200, "{listen}: this machine");
            assert_eq!(written(&house, &local("/inbox/*@*", "")).0, 200);
            assert_eq!(written(&house, &sign).0, 200, "{sign}");
            let (status, said) = written(&house, &local(ALL, ""));
            assert_eq!(status, 403, "{listen} after {sign}");
            assert!(said.contains("proxy") && said.contains("all_mail_is_shown_to"), "{said}");
            let (status, page) = written(&house, &local("/inbox/*@*", "Accept: text/html\r\n"));
            assert_eq!(status, 403);
            assert!(page.contains("--token-file") && page.contains("in mail-readers</th>"), "{page}");
            let home = written(&house, &local("/", "")).1;
            assert!(!home.contains("/inbox/*@*") && home.contains("does not name its clients"), "{home}");
            assert_eq!(written(&house, &local("/inbox/ann@night.test", "")).0, 200, "one inbox stays public");
            let counted =
                metrics(&house).iter().filter(|(name, n)| name.contains("proxy_signs") && *n > 0).count();
            assert_eq!(counted, 1, "{sign}");
        }
    }
}

/// A token still gives access to all mail after a silent proxy is recognized. A proxy that names its clients
/// does not count as silent.
#[test]
fn a_token_opens_all_mail_behind_a_proxy() {
    let house = site("127.0.0.1:0", Config { token: Some(Token::new(TOKEN).unwrap()), ..Config::default() });
    let token = format!("Authorization: {TOKEN}\r\n");
    written(&house, "GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    assert_eq!(written(&house, &local(ALL, &token)).0, 200);
    let house = site("127.0.0.1:0", Config::default());
    written(&house, "GET / HTTP/1.0\r\nHost: 127.0.0.1\r\nX-Real-IP: 203.0.113.9\r\n\r\n");
    written(&house, &local("/", "Referer: https://wiki.test/\r\nSec-Fetch-Site: cross-site\r\n"));
    assert_eq!(written(&house, &local(ALL, "")).0, 200, "a proxy that names its visitor, and a link");
}

/// For a client in a readers' network, only the header that our own pages' script sends reveals a silent
/// proxy. The other host names are no proof there, because a link from another site looks the same.
#[test]
fn a_silent_proxy_among_readers_is_no_reader() {
    let readers = vec!["127.0.0.0/8".parse().unwrap()];
    let house =
        site("127.0.0.1:0", Config { readers, token: Some(Token::new(TOKEN).unwrap()), ..Config::default() });
    assert_eq!(written(&house, &local(ALL, "")).0, 200);
    written(&house, &local("/healthz", "X-Page-Host: mail.example.org\r\n"));
    assert_eq!(written(&house, &local(ALL, "")).0, 401);
}

fn metrics(house: &TestSite) -> Vec<(&'static str, u64)> {
    let mut families = Vec::new();
    house.web.counters().collect(&mut families);
    let counts = families.iter().filter_map(|family| match family.points.first()?.value {
        Value::Counter(n) => Some((family.name, n)),
        _ => None,
    });
    counts.collect()
}
