//! The recipes of `docs/guide/sites.md`, each as written there, before an origin that knows its visitors by a
//! cookie: rows A34 and A35 of the features. The origin marks every answer as public, like programs that
//! never ran behind a cache; only the recipe keeps the visitors apart.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tests::{Accelerator, Answer, Request, Response, ScriptedOrigin, on_one_core};

on_one_core! {
    a34_a35_the_static_site_of_the_guide_knows_nobody,
    a34_a35_the_api_recipe_keeps_visitors_apart,
    a34_a35_the_shop_recipe_keeps_visitors_apart,
    a34_a35_the_wordpress_recipe_keeps_visitors_apart,
}

/// The first configuration block under this heading of the guide.
pub(crate) fn recipe(heading: &str) -> String {
    let guide =
        std::fs::read_to_string(tests::node::source_tree().join("docs/guide/sites.md")).expect("the guide");
    let section = guide.split(&format!("\n### {heading}\n")).nth(1).expect("a section of this name");
    let block = section.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    block.expect("a block of configuration").to_owned()
}

/// The first host of a recipe.
pub(crate) fn host_of(recipe: &str) -> String {
    let hosts = recipe.lines().find(|line| line.starts_with("hosts = ")).expect("hosts");
    hosts.split('"').nth(1).expect("a host").to_owned()
}

/// A recipe with another origin, otherwise unchanged.
pub(crate) fn with_origin(recipe: &str, url: &str) -> String {
    let own = recipe.lines().find(|line| line.starts_with("origin = ")).expect("an origin");
    recipe.replace(own, &format!("origin = \"{url}\""))
}

/// A recipe's accelerator with its scripted origin.
struct Site {
    origin: ScriptedOrigin,
    running: Accelerator,
    host: String,
    cookie: &'static str,
}

/// A visitor with the header field that a browser or a program sends with each request.
#[derive(Clone)]
struct Visitor {
    name: &'static str,
    field: Option<(&'static str, String)>,
}

impl Site {
    /// Starts the recipe in front of an origin that knows a visitor by `cookie`, `Authorization` or
    /// `X-Api-Key`.
    fn start(heading: &str, cookie: &'static str, cores: &str) -> Self {
        let origin = ScriptedOrigin::start();
        let sessions = AtomicUsize::new(0);
        origin.otherwise(move |request, reply| {
            let cookies = request.headers.joined("cookie");
            let of_cookie = cookies.split("; ").filter_map(|pair| pair.split_once('='));
            let name = of_cookie.filter(|(name, _)| *name == cookie).map(|(_, value)| value).next();
            let name = name.or(request.header("authorization")).or(request.header("x-api-key"));
            let body = format!("{} for {}", request.path(), name.unwrap_or("anybody"));
            let answer = Answer::new(200, body).header("Cache-Control", "public, max-age=600");
            let begun = || format!("{cookie}=visitor-{}; Path=/", sessions.fetch_add(1, Relaxed));
            reply.answer(&match request.path() {
                "/login" | "/v1/login" | "/wp-login.php" if request.method == "POST" => {
                    let name = String::from_utf8_lossy(&request.body).into_owned();
                    Answer::new(303, "").header("Set-Cookie", &format!("{cookie}={name}; Path=/"))
                }
                // A session begins with the first page, which the program nevertheless marks as public.
                "/begin" if name.is_none() => answer.header("Set-Cookie", &begun()),
                _ => answer,
            })
        });
        let text = recipe(heading);
        let host = host_of(&text);
        let text = with_origin(&text, &origin.url());
        let running = Accelerator::configured(&text).flag("--cores", cores).start();
        Self { origin, running, host, cookie }
    }

    fn ask(&self, visitor: &Visitor, request: Request) -> Response {
        let request = request.header("Host", &self.host);
        let request = match &visitor.field {
            Some((name, value)) => request.header(name, value),
            None => request,
        };
        self.running.fetch(&request)
    }

    #[track_caller]
    fn page(&self, visitor: &Visitor, target: &str) -> String {
        let page = self.ask(visitor, Request::get(target)).expect_status(200);
        assert_eq!(page.header("set-cookie"), None, "{target} for {}", visitor.name);
        page.text()
    }

    /// A logged-in visitor, who also has an analytics cookie.
    #[track_caller]
    fn logged_in(&self, name: &'static str, path: &str) -> Visitor {
        let answer = self.ask(&STRANGER, Request::new("POST", path).body(name.as_bytes())).expect_status(303);
        let set = answer.header("set-cookie").expect("a session");
        let session = set.split(';').next().expect("a cookie");
        assert_eq!(session, format!("{}={name}", self.cookie));
        Visitor { name, field: Some(("Cookie", format!("_ga=GA1.{name}; {session}"))) }
    }

    /// Checks that strangers share pages, whatever their analytics cookies, and that known visitors get their
    /// own pages, in any order of requests.
    fn keeps_apart(&self, known: &[Visitor], targets: &[&str]) {
        let strangers =
            ["one", "two"].map(|name| Visitor { name, field: Some(("Cookie", format!("_ga=GA1.{name}"))) });
        for target in targets {
            let path = target.split('?').next().expect("a path");
            for round in 0..3 {
                for at in 0..known.len() {
                    let visitor = &known[(at + round) % known.len()];
                    assert_eq!(self.page(visitor, target), format!("{path} for {}", visitor.name));
                    for stranger in strangers.iter().chain([&STRANGER]) {
                        assert_eq!(self.page(stranger, target), format!("{path} for anybody"));
                    }
                }
            }
        }
    }

    /// Counts the origin's requests while several strangers visit each path.
    fn asked_for_strangers(&self, targets: &[&str]) -> usize {
        let asked = self.origin.all_seen().len();
        for target in targets {
            for number in 0..4 {
                let field = Some(("Cookie", format!("_ga=GA1.{number}; consent=yes")));
                self.page(&Visitor { name: "a stranger", field }, target);
            }
        }
        self.origin.all_seen().len() - asked
    }

    /// Checks that no visitor gets the session that another has just begun.
    fn begins_a_session_for_each(&self) {
        let begun = |_| {
            let page = self.ask(&STRANGER, Request::get("/begin")).expect_status(200);
            page.header("set-cookie").expect("a session of one's own").to_owned()
        };
        let sessions: std::collections::BTreeSet<String> = (0..4).map(begun).collect();
        assert_eq!(sessions.len(), 4, "{sessions:?}");
    }
}

const STRANGER: Visitor = Visitor { name: "a stranger", field: None };

fn a34_a35_the_static_site_of_the_guide_knows_nobody(cores: &str) {
    let site = Site::start("A static site", "session", cores);
    let known =
        ["anna", "ben"].map(|name| Visitor { name, field: Some(("Cookie", format!("session={name}"))) });
    for _ in 0..2 {
        for visitor in &known {
            for target in ["/", "/about?utm_source=mail", "/assets/style.1f.css"] {
                let path = target.split('?').next().expect("a path");
                assert_eq!(site.page(visitor, target), format!("{path} for anybody"));
            }
        }
    }
    assert_eq!(site.origin.all_seen().len(), 3);
    assert_eq!(site.asked_for_strangers(&["/about?utm_campaign=x", "/about?gclid=1", "/about"]), 0);
    site.begins_a_session_for_each();
    let refused = site.ask(&known[0], Request::new("POST", "/login").body(b"anna"));
    assert_eq!((refused.status(), refused.header("allow")), (405, Some("GET, HEAD")));
}

fn a34_a35_the_api_recipe_keeps_visitors_apart(cores: &str) {
    let site = Site::start("An API", "session", cores);
    let mut known = vec![site.logged_in("anna", "/v1/login"), site.logged_in("ben", "/v1/login")];
    known.push(Visitor { name: "Bearer-cleo", field: Some(("Authorization", "Bearer-cleo".to_owned())) });
    known.push(Visitor { name: "dan", field: Some(("X-Api-Key", "dan".to_owned())) });
    let targets =
        ["/v1/items?kind=a&page=2", "/v1/items?page=2&kind=a", "/v1/me", "/v1/me/orders", "/v1/export/all"];
    site.keeps_apart(&known, &targets);
    assert_eq!(site.asked_for_strangers(&targets[..2]), 0, "one order of parameters, stored");
    assert_eq!(site.asked_for_strangers(&["/v1/list"]), 1);
    assert_eq!(site.ask(&known[0], Request::new("DELETE", "/v1/export/all")).status(), 405);
    // A changed page is fetched again.
    site.ask(&known[0], Request::new("PUT", "/v1/list").body(b"x")).expect_status(200);
    assert_eq!(site.asked_for_strangers(&["/v1/list"]), 1);
    site.begins_a_session_for_each();
}

fn a34_a35_the_shop_recipe_keeps_visitors_apart(cores: &str) {
    let site = Site::start("A shop", "session", cores);
    let known = [site.logged_in("anna", "/login"), site.logged_in("ben", "/login")];
    let targets = ["/", "/p/7?colour=red&size=2", "/media/7.jpg", "/cart", "/checkout/pay", "/account"];
    site.keeps_apart(&known, &targets);
    let campaigns =
        ["/p/7?size=2&utm_source=mail&colour=red", "/p/7?fbclid=1&colour=red&size=2", "/", "/media/7.jpg"];
    assert_eq!(site.asked_for_strangers(&campaigns), 0);
    assert_eq!(site.asked_for_strangers(&["/cart"]), 4);
    site.begins_a_session_for_each();
}

fn a34_a35_the_wordpress_recipe_keeps_visitors_apart(cores: &str) {
    let site = Site::start("WordPress", "wordpress_logged_in_8e1f", cores);
    let known = [site.logged_in("anna", "/wp-login.php"), site.logged_in("ben", "/wp-login.php")];
    let targets =
        ["/", "/2026/11/a-post/", "/?s=words", "/wp-content/style.css?ver=6", "/wp-admin/index.php"];
    site.keeps_apart(&known, &targets);
    assert_eq!(site.asked_for_strangers(&["/2026/11/a-post/?utm_source=feed", "/?s=words&mc_cid=1", "/"]), 0);
    assert_eq!(site.asked_for_strangers(&["/wp-login.php"]), 4);
    // A visitor who has left a comment sees it at once.
    let field = Some(("Cookie", "comment_author_8e1f=cleo".to_owned()));
    let cleo = Visitor { name: "cleo", field };
    let page = site.ask(&cleo, Request::get("/2026/11/a-post/")).expect_status(200);
    assert!(page.header("cache-status").is_some_and(|status| status.contains("detail=bypass-cookie")));
    site.begins_a_session_for_each();
}
