//! Tests of pages and APIs over real sockets, with the twin.

mod api_tests;

use std::{io::BufRead, net::TcpListener, time::Duration};

use engine::cores::clock;
use serde_json::{Value, json};

use super::*;
use crate::{
    mailbox::{
        mailboxes::Mailboxes,
        twin::{Retention, Twin},
    },
    samples,
};

const TOKEN: &str = "0123456789abcdef-token";
/// Timeout for waits in tests.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Site {
    pub(super) web: Web,
    pub(super) twin: Twin,
    pub(super) agent: ureq::Agent,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: axum::http::HeaderMap,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Site {
    pub(super) fn new() -> Self {
        Self::with(Config::default())
    }

    fn with_token() -> Self {
        Self::with(Config { token: Some(Token::new(TOKEN).unwrap()), ..Config::default() })
    }

    pub(super) fn with(config: Config) -> Self {
        let twin = Twin::new(Retention::default(), "night.test");
        let config = Config { domain: "night.test".to_owned(), ..config };
        let web = serve(TcpListener::bind("127.0.0.1:0").unwrap(), twin.clone(), config).unwrap();
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(PATIENCE))
            .allow_non_standard_methods(true)
            .build()
            .into();
        Self { web, twin, agent }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.web.address())
    }

    pub(super) fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut request = axum::http::Request::builder().method(method).uri(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.agent.run(request.body(body.to_owned()).unwrap()).unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.into_with_config().limit(100 * 1024 * 1024).read_to_vec().unwrap();
        Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    pub(super) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "")
    }

    /// Fetches a body as raw bytes.
    pub(super) fn bytes(&self, path: &str) -> Vec<u8> {
        let response = self.agent.get(self.url(path)).call().unwrap();
        response.into_body().into_with_config().limit(100 * 1024 * 1024).read_to_vec().unwrap()
    }

    pub(super) fn page(&self, path: &str) -> String {
        let answer = self.ask("GET", path, &[("accept", "text/html")], "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }

    pub(super) fn deliver(&self, to: &str, raw: &str) -> String {
        let ids = self.twin.deliver_at(clock::unix_ms(), "sender@x.test", &[to.to_owned()], raw.as_bytes());
        ids.unwrap()[0].to_string()
    }

    /// Returns whether `/metrics` has this line.
    pub(super) fn counts(&self, line: &str) -> bool {
        let mut registry = engine::meter::Registry::new();
        registry.register(self.web.counters());
        engine::meter::prometheus::encode(&registry).lines().any(|said| said == line)
    }

    /// Waits until `/metrics` has this line.
    pub(super) fn until(&self, line: &str) {
        let begun = clock::now();
        while !self.counts(line) {
            assert!(begun.elapsed() < PATIENCE, "{line}");
            std::thread::yield_now();
        }
    }

    fn samples(&self) -> Vec<String> {
        let set = samples::set("ann@night.test", 1_795_298_400);
        set.iter().map(|s| self.deliver("ann", &String::from_utf8_lossy(&s.raw))).collect()
    }
}

#[test]
fn an_inbox_lists_mail_with_a_public_notice() {
    let site = Site::new();
    assert!(site.page("/").contains("Which inbox?"));
    let empty = site.page("/inbox/ann@night.test");
    assert!(empty.contains("Nothing has arrived yet") && empty.contains("send-sample ann@night.test"));
    let id = site.deliver("Ann+x", "From: Eve <eve@x.test>\r\nSubject: <b>Hi</b> & bye\r\n\r\n");
    let page = site.page("/inbox/ann@night.test");
    assert!(page.contains("&#60;b&#62;Hi&#60;/b&#62; &#38; bye"), "{page}");
    assert!(page.contains(&format!("/inbox/ann@night.test/{id}")));
    // The server listens on loopback only, and the page says so.
    assert!(page.contains("Anyone on this machine, or let in by a proxy, can read this inbox."));
    assert!(
        site.page("/about").contains("Anyone on this machine, or let in by a proxy, can read each inbox.")
    );
    let answer = site.get("/inbox/ann@night.test");
    assert_eq!(answer.header("cache-control"), "public, max-age=0, s-maxage=1");
    assert_eq!(answer.header("cdn-cache-control"), "max-age=1, stale-while-revalidate=1, stale-if-error=0");
    assert_eq!(answer.header("surrogate-key"), "list:ann@night.test inbox:ann@night.test");
    let inbox = Inbox::of("ann", "night.test").unwrap();
    assert_eq!(answer.header("surrogate-key"), format!("{} {}", list_tag(&inbox), inbox_tag(&inbox)));
    assert!(answer.header("content-security-policy").contains("script-src 'self'"));
    let mail = site.get(&format!("/inbox/ann@night.test/{id}"));
    assert_eq!(mail.header("surrogate-key"), format!("mail:{id} inbox:ann@night.test"));
    assert_eq!(mail.header("cdn-cache-control"), "max-age=1, stale-while-revalidate=0, stale-if-error=0");
}

use crate::mailbox::mailboxes::Inbox;

#[test]
fn one_inbox_has_one_path() {
    let site = Site::new();
    for (asked, path) in [
        ("/inbox?address=Ann%2Bshop", "/inbox/ann@night.test"),
        ("/inbox?address=%20ann@Example.ORG%20", "/inbox/ann@example.org"),
        ("/inbox/Ann", "/inbox/ann@night.test"),
        ("/inbox/gr%C3%BC%C3%9Fe+x@night.test", "/inbox/gr%C3%BC%C3%9Fe@night.test"),
    ] {
        let answer = site.get(asked);
        assert_eq!((answer.status, answer.header("location")), (303, path), "{asked}");
    }
    assert_eq!(site.get("/inbox/gr%C3%BC%C3%9Fe@night.test").status, 200);
}

#[test]
fn every_view_of_every_sample_is_a_page() {
    let site = Site::new();
    for id in site.samples() {
        for view in ["", "/text", "/html", "/headers", "/source", "/attachments"] {
            let page = site.page(&format!("/inbox/ann@night.test/{id}{view}"));
            assert!(page.contains("aria-current=\"page\"") || view == "/attachments", "{id}{view}");
        }
        let raw = site.get(&format!("/inbox/ann@night.test/{id}/raw"));
        assert!(raw.header("content-disposition").starts_with("attachment"));
    }
}

#[test]
fn html_is_sandboxed_and_remote_content_blocked() {
    let site = Site::new();
    let newsletter = &site.samples()[0];
    let base = format!("/inbox/ann@night.test/{newsletter}");
    let page = site.page(&base);
    assert!(
        page.contains("2 remote items from images.timetable.test and track.timetable.test blocked"),
        "{page}"
    );
    assert!(page.contains("sandbox=\"allow-same-origin allow-popups allow-popups-to-escape-sandbox\""));
    assert!(page.contains("https://click.timetable.test/?to="), "the true target is listed");
    let frame = site.get(&format!("{base}/frame"));
    assert!(!frame.body.contains("images.timetable.test"));
    let policy = frame.header("content-security-policy");
    assert!(
        policy.contains("sandbox allow-same-origin allow-popups") && policy.contains("img-src 'self' data:;")
    );
    assert!(!policy.contains("script") && !policy.contains("allow-top-navigation"), "{policy}");
    // The mail's own picture is served at the path in the frame, with a picture's media type.
    let (_, rest) = frame.body.split_once("src=\"attachments/").unwrap();
    let picture = site.get(&format!("{base}/attachments/{}", rest.split('"').next().unwrap()));
    assert_eq!((picture.status, picture.header("content-type")), (200, "image/bmp"));
    let loaded = site.get(&format!("{base}/frame?remote=load"));
    assert!(loaded.body.contains("https://images.timetable.test/winter/amsterdam.jpg"));
    assert!(loaded.header("content-security-policy").contains("img-src 'self' data: https: http:;"));
}

#[test]
fn attachments_are_files_and_never_pages() {
    let site = Site::new();
    let id = site.deliver(
        "ann",
        "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/html\r\n\
         Content-Disposition: attachment; filename=\"a\\\"b.html\"\r\n\r\n<script>alert(1)</script>\r\n\
         --b\r\nContent-Type: image/svg+xml\r\nContent-Disposition: inline; filename*=utf-8''%e2%82%ac.svg\r\n\r\n<svg onload=alert(1)>\r\n--b--\r\n",
    );
    let page = site.page(&format!("/inbox/ann@night.test/{id}/attachments"));
    let paths: Vec<&str> = page
        .split("href=\"")
        .filter_map(|rest| rest.split('"').next())
        .filter(|p| p.contains("/attachments/"))
        .collect();
    assert_eq!(paths.len(), 2, "{page}");
    for path in paths {
        let file = site.get(path);
        assert_eq!(file.header("content-type"), "application/octet-stream");
        assert!(file.header("content-disposition").starts_with("attachment; filename=\""));
        assert_eq!(file.header("content-security-policy"), "sandbox; default-src 'none'");
        assert_eq!(file.header("x-content-type-options"), "nosniff");
    }
    assert_eq!(site.get(&format!("/inbox/ann@night.test/{id}/attachments/99/x")).status, 404);
}

#[test]
fn a_mail_is_only_in_its_own_inbox() {
    let site = Site::with_token();
    let id = site.deliver("ann", "Subject: secret\r\n\r\n");
    for path in [
        format!("/inbox/bob@night.test/{id}"),
        format!("/inbox/bob@night.test/{id}/raw"),
        format!("/inbox/bob@night.test/api/v1/message/{id}"),
        format!("/api/v2/domains/public/inboxes/bob/messages/{id}"),
        format!("/inbox/bob@night.test/view/{id}.txt"),
    ] {
        assert_eq!(site.get(&path).status, 404, "{path}");
    }
    assert_eq!(site.ask("POST", &format!("/inbox/bob@night.test/{id}/delete"), &[], "").status, 404);
    let ids = json!({ "IDs": [id] }).to_string();
    site.ask(
        "DELETE",
        "/inbox/bob@night.test/api/v1/messages",
        &[("content-type", "application/json")],
        &ids,
    );
    assert_eq!(site.get(&format!("/inbox/ann@night.test/{id}")).status, 200, "it is still there");
}

const WIDE: [&str; 9] = [
    "/inbox/*@night.test",
    "/inbox/*@*/search?q=x",
    "/inbox/a*@night.test",
    "/api/v1/messages",
    "/api/v1/search?query=x",
    "/api/v2/domains/public/inboxes",
    "/api/v2/domains/public/inboxes/*",
    "/api/v2/domains/private/inboxes/ann",
    "/api/v2/domains/public/messages/*",
];

#[test]
fn more_than_one_inbox_needs_the_token() {
    let site = Site::with_token();
    for path in WIDE {
        let refused = site.get(path);
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.header("www-authenticate").starts_with("Basic"));
        for token in [TOKEN.to_owned(), format!("Bearer {TOKEN}")] {
            let answer = site.ask("GET", path, &[("authorization", &token)], "");
            assert_eq!(answer.status, 200, "{path}: {}", answer.body);
            assert_eq!(answer.header("cache-control"), "no-store", "{path}");
        }
        assert_eq!(site.ask("GET", path, &[("authorization", "0123456789abcdef-wrong")], "").status, 401);
    }
    assert_eq!(site.get("/inbox/ann@night.test").status, 200);
    assert_eq!(site.get("/api/v2/domains/public/inboxes/ann").status, 200);
}

#[test]
fn remote_clients_need_a_token_for_all_mail() {
    let site = Site::with(Config { http_hosts: vec!["mail.night.test".to_owned()], ..Config::default() });
    for path in WIDE {
        assert_eq!(site.get(path).status, 200, "{path}");
        assert_eq!(site.ask("GET", path, &[("x-forwarded-for", "192.0.2.1")], "").status, 403, "{path}");
        // A valid host name proves nothing about the client.
        assert_eq!(site.ask("GET", path, &[("host", "mail.night.test")], "").status, 403, "{path}");
    }
}

#[test]
fn another_sites_page_changes_nothing() {
    let site = Site::new();
    let id = site.deliver("ann", "Subject: x\r\n\r\n");
    let path = format!("/inbox/ann@night.test/{id}/delete");
    for foreign in [("sec-fetch-site", "cross-site"), ("origin", "https://evil.test")] {
        assert_eq!(site.ask("POST", &path, &[foreign], "").status, 403);
        assert_eq!(site.ask("DELETE", "/inbox/ann@night.test/api/v1/messages", &[foreign], "").status, 403);
    }
    assert_eq!(site.get(&format!("/inbox/ann@night.test/{id}")).status, 200);
    let own = site.ask("POST", &path, &[("sec-fetch-site", "same-origin")], "");
    assert_eq!((own.status, own.header("location")), (303, "/inbox/ann@night.test"));
    assert_eq!(site.get(&format!("/inbox/ann@night.test/{id}")).status, 404);
}

/// A GET with `delete=` counts as a change, as any page on the web may contain `<img
/// src="http://localhost:8025/api/…?delete=1m">`.
#[test]
fn a_get_that_deletes_is_a_change() {
    let site = Site::new();
    let other_sites: [&[(&str, &str)]; 4] = [
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "cross-site"), ("origin", "https://evil.test")],
        // Browsers send neither header to an address that is not `localhost` and has no TLS.
        &[("user-agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36")],
    ];
    for foreign in other_sites {
        let id = site.deliver("ann", "Subject: x\r\n\r\n");
        let inbox = "/api/v2/domains/public/inboxes/ann";
        for path in [
            format!("{inbox}/messages/{id}?delete=1ms"),
            format!("{inbox}/messages/{id}?%64elete=1ms"),
            format!("/api/v2/domains/public/messages/{id}?delete=1ms"),
            format!("{inbox}?limit=1&delete=1ms"),
            "/api/v2/domains/public/inboxes?delete=1ms".to_owned(),
            format!("{inbox}/wait?timeout=1s&delete=true"),
        ] {
            for method in ["GET", "HEAD"] {
                let answer = site.ask(method, &path, foreign, "");
                assert_eq!(answer.status, 403, "{method} {path} {foreign:?}: {}", answer.body);
            }
        }
        // Reading is not a change, and a read from another site does not mark the mail read.
        assert_eq!(site.ask("GET", &format!("/api/v1/message/{id}"), foreign, "").status, 200);
    }
    assert_eq!(site.get("/api/v1/messages").json()["unread"], 4);
    // Requests of Mailinator's own clients, and a URL that a person types.
    for own in [
        &[][..],
        &[("user-agent", "axios/1.7")],
        &[("sec-fetch-site", "none"), ("user-agent", "Mozilla/5.0")],
    ] {
        let answer = site.ask("GET", "/api/v2/domains/public/inboxes/ann/wait?delete=true", own, "");
        assert_eq!(answer.status, 200, "{own:?}: {}", answer.body);
    }
    assert_eq!(site.get("/api/v1/messages").json()["total"], 1);
}

/// A mail's frame has our origin, but the reader does not intend the requests for pictures in the mail.
#[test]
fn a_picture_deletes_nothing() {
    let site = Site::new();
    let id = site.deliver("ann", "Subject: x\r\n\r\n");
    let path = format!("/api/v2/domains/public/inboxes/ann/messages/{id}?delete=1ms");
    for dest in ["image", "style", "font", "iframe", "video"] {
        let asked = [("sec-fetch-site", "same-origin"), ("sec-fetch-dest", dest)];
        assert_eq!(site.ask("GET", &path, &asked, "").status, 403, "{dest}");
    }
    let own = [("sec-fetch-site", "same-origin"), ("sec-fetch-dest", "empty")];
    assert_eq!(site.ask("GET", &path, &own, "").status, 200);
}

/// Every page that shows mail states who can read it, and the home page states where to find all mail.
#[test]
fn who_can_read_it_is_said_truly() {
    let here = Site::new();
    let id = here.deliver("ann", "Subject: x\r\n\r\n");
    let all = "Shown together on this machine alone.";
    let one = "Anyone on this machine";
    for (path, said) in [
        ("/inbox/ann@night.test".to_owned(), one),
        (format!("/inbox/ann@night.test/{id}"), one),
        (format!("/inbox/ann@night.test/{id}?part=reading"), one),
        ("/inbox/ann@night.test/search?q=x".to_owned(), one),
        ("/inbox/*@*".to_owned(), all),
        (format!("/inbox/*@*/{id}"), all),
    ] {
        assert!(here.page(&path).contains(said), "{path}");
    }
    let home = here.ask("GET", "/", &[("accept", "text/html")], "");
    assert!(home.body.contains("href=\"/inbox/*@*\"") && home.header("cache-control") == "no-store");
    let through = here.ask("GET", "/", &[("accept", "text/html"), ("x-forwarded-for", "192.0.2.1")], "");
    assert!(
        !through.body.contains("*@*") && through.header("cache-control") == "public, max-age=0, s-maxage=1"
    );
    let secured = Site::with_token();
    assert!(secured.page("/").contains("with the operator"));
    let token = [("authorization", TOKEN), ("accept", "text/html")];
    assert!(
        secured.ask("GET", "/inbox/*@*", &token, "").body.contains("Visible with the operator&#39;s token")
    );
    let own = Site::with(Config { warning: "For the team alone.".to_owned(), ..Config::default() });
    assert!(own.page("/inbox/ann@night.test").contains("For the team alone."));
}

fn wish(site: &Site, path: &str, form: &str) -> Answer {
    let headers = [("content-type", "application/x-www-form-urlencoded"), ("accept", "application/json")];
    site.ask("POST", &format!("{path}/change"), &headers, form)
}

#[test]
fn deletes_can_be_undone_until_the_server_stops() {
    let site = Site::new();
    let ids: Vec<String> =
        (0..3).map(|n| site.deliver("ann", &format!("Subject: mail {n}\r\n\r\n"))).collect();
    let other = site.deliver("ben", "Subject: other\r\n\r\n");
    let path = "/inbox/ann@night.test";
    // Mails of other inboxes in the form are ignored.
    let deleted = wish(&site, path, &format!("do=delete&id={}&id={}&id={other}&id=x", ids[0], ids[1])).json();
    assert_eq!((&deleted["count"], &deleted["batch"]), (&json!(2), &json!(1)));
    let page = site.page(path);
    assert!(
        !page.contains("mail 0") && page.contains("mail 2") && page.contains("data-total=\"1\""),
        "{page}"
    );
    assert_eq!(site.get(&format!("{path}/{}", ids[0])).status, 404);
    assert!(site.counts("mail_web_leaving 2.0"));
    assert_eq!(wish(&site, "/inbox/ben@night.test", "do=undo&batch=1").status, 404, "it is not his");
    assert_eq!(wish(&site, path, "do=undo&batch=1").json()["count"], 2);
    assert!(site.page(path).contains("mail 0") && site.counts("mail_web_leaving 0.0"));
    // Without scripts a form deletes the mail, and the list offers the undo.
    let form = format!("do=delete&id={}&back=%2Finbox%2Fann%40night.test%2F{}", ids[2], ids[2]);
    let answer = site.ask("POST", &format!("{path}/change"), &[], &form);
    assert_eq!((answer.status, answer.header("location")), (303, "/inbox/ann@night.test?deleted=2"));
    assert!(site.page(answer.header("location")).contains("1 mail deleted."));
    assert_eq!(wish(&site, path, "do=delete-all").json()["count"], 2);
    assert!(site.page(path).contains("Nothing has arrived yet"));
    for bad in ["", "do=fly", "do=undo&batch=x", "do=undo&batch=99"] {
        assert!(wish(&site, path, bad).status >= 400, "{bad}");
    }
    let Site { web, twin, .. } = site;
    web.stop();
    assert_eq!(twin.totals().stored, 1, "only what was not deleted is left");
}

#[test]
fn a_mail_that_was_looked_at_is_read() {
    let site = Site::new();
    let ids: Vec<String> =
        (0..2).map(|n| site.deliver("ann", &format!("Subject: mail {n}\r\n\r\n"))).collect();
    let path = "/inbox/ann@night.test";
    let unread = || {
        let page = site.page(path);
        (page.matches("class=\"row\"").count(), page.matches("class=\"row read\"").count())
    };
    assert_eq!(unread(), (2, 0));
    assert!(site.page(path).contains("<title>(2) ann@night.test"));
    let mail = format!("{path}/{}", ids[0]);
    site.ask("GET", &mail, &[("sec-fetch-site", "cross-site"), ("accept", "text/html")], "");
    assert_eq!(unread(), (2, 0), "another site's page has not read it");
    let page = site.page(&mail);
    assert!(page.contains("data-step=\"-1\"") && !page.contains("data-step=\"1\""), "it is the oldest");
    assert!(page.contains("class=\"row read open\""));
    assert_eq!(unread(), (1, 1));
    wish(&site, path, &format!("do=unread&id={}", ids[0]));
    assert_eq!(unread(), (2, 0));
    wish(&site, path, &format!("do=read&id={}&id={}", ids[0], ids[1]));
    assert_eq!(unread(), (0, 2));
}

/// The page and its frame use the same rendered document.
#[test]
fn html_is_made_once() {
    let site = Site::new();
    let id = site.deliver("ann", "Content-Type: text/html\r\n\r\n<style>p{color:red}</style><p>x");
    let base = format!("/inbox/ann@night.test/{id}");
    assert!(site.page(&base).contains("iframe"));
    assert!(site.get(&format!("{base}/frame")).body.contains("<style>p{color:red;}</style>"));
    assert!(site.get(&format!("{base}/frame?dark=1")).body.contains("invert"));
    assert!(site.counts("mail_web_rendered_found_total 1"));
    assert_eq!(site.ask("POST", &format!("{base}/delete"), &[], "").status, 303);
    site.until("mail_web_rendered_bytes 0.0");
}

/// A delayed deletion takes no listener slot; 21 of them once blocked all live pages while they waited.
#[test]
fn a_mail_that_goes_later_takes_nobodys_place() {
    let site = Site::with(Config { listeners_max: 1, ..Config::default() });
    let id = site.deliver("ann", "Subject: x\r\n\r\n");
    let message = format!("/api/v2/domains/public/inboxes/ann/messages/{id}");
    for _ in 0..3 {
        assert_eq!(site.get(&format!("{message}?delete=5m")).status, 200);
        assert_eq!(site.get("/api/v2/domains/public/inboxes/ann?delete=4m").status, 200);
    }
    let waited = site.get("/api/v2/domains/public/inboxes/ann/wait?timeout=1s");
    assert_eq!(waited.status, 200, "{}", waited.body);
    // The earlier of the two deletions applies; it was requested a moment ago, or within the same
    // millisecond.
    let page = site.page(&format!("/inbox/ann@night.test/{id}"));
    assert!(["3 minutes", "4 minutes"].iter().any(|left| page.contains(left)), "{page}");
    site.get(&format!("{message}?delete=0"));
    assert_eq!(site.get(&message).status, 404);
}

#[test]
fn errors_are_html_for_browsers_json_for_programs() {
    let site = Site::new();
    for (path, status, words) in [
        ("/nowhere", 404, "No such page"),
        ("/inbox/ann@night.test/aaaaaaaaaaaaaaaa", 404, "This mail is gone"),
        ("/inbox/a%20b", 400, "Invalid address"),
        ("/inbox/ann@%3Cscript%3E", 400, "Invalid address"),
    ] {
        let page = site.ask("GET", path, &[("accept", "text/html,*/*")], "");
        assert_eq!(page.status, status, "{path}");
        assert!(page.body.contains(words) && page.body.contains("request "), "{path}: {}", page.body);
        assert!(page.body.contains(page.header("x-request-id")));
        // The only script is our own.
        assert_eq!(page.body.matches("<script>").count(), 1, "{path}");
        let program = site.get(path);
        assert_eq!(program.status, status);
        assert!(program.json()["error"].is_string());
    }
    assert_eq!(site.ask("PUT", "/about", &[], "").status, 405);
    let search = site.page("/inbox/ann@night.test/search?q=before:never");
    assert!(search.contains("invalid date `never`"), "{search}");
}

/// Reads events until one with this name comes; returns its data and ID.
pub(super) fn next_event(reader: &mut impl BufRead, name: &str) -> (String, String) {
    let (mut event, mut data, mut id) = (String::new(), String::new(), String::new());
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the stream ended");
        match line.trim_end().split_once(": ") {
            Some(("event", value)) => event = value.to_owned(),
            Some(("data", value)) => data.push_str(value),
            Some(("id", value)) => id = value.to_owned(),
            _ if line.trim().is_empty() && event == name => return (data, id),
            _ if line.trim().is_empty() => (event, data, id) = Default::default(),
            _ => {}
        }
    }
}

#[test]
fn long_inboxes_have_pages_and_searches_go_on() {
    let site = Site::new();
    for n in 0..130 {
        site.deliver("ann", &format!("Subject: mail {n}\r\n\r\nbody\r\n"));
    }
    let first = site.page("/inbox/ann@night.test");
    assert_eq!(first.matches("class=\"row\"").count(), 100);
    let second = site.page("/inbox/ann@night.test?skip=100");
    assert_eq!(second.matches("class=\"row\"").count(), 30);
    assert!(!second.contains("data-events"), "an older page is not live");
    let found = site.page("/inbox/ann@night.test/search?q=body");
    assert_eq!(found.matches("class=\"row\"").count(), 50);
    let next = found
        .split("href=\"")
        .filter_map(|rest| rest.split('"').next())
        .find(|href| href.contains("cursor="))
        .unwrap();
    let more = site.page(&next.replace("&#38;", "&").replace("&amp;", "&"));
    assert_eq!(more.matches("class=\"row\"").count(), 50);
    let last = site.get("/api/v2/domains/public/inboxes/ann?limit=99&skip=99").json();
    assert_eq!((last["msgs"].as_array().unwrap().len(), &last["cursor"]), (31, &json!("")));
}

#[test]
fn counters_tell_what_happened() {
    let site = Site::with_token();
    site.get("/inbox/*@*");
    site.deliver("ann", "Subject: x\r\n\r\n");
    assert_eq!(site.get("/counters").json()["stored"], site.twin.totals().stored);
    let mut registry = engine::meter::Registry::new();
    registry.register(site.web.counters());
    let text = engine::meter::prometheus::encode(&registry);
    assert!(text.contains("mail_web_unauthorized_total 1"), "{text}");
}
