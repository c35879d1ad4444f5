//! The accelerator in front of a real site: Debian's nginx with a documentation tree of five thousand files,
//! and beside it an application with sessions, languages, validators, chunks, redirects and errors. Two
//! visitors go through all of it; every byte and every relevant header is compared with the origin's own
//! answer.

use std::{collections::HashMap, path::Path};

use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Client, Nginx, Request, Response, ScriptedOrigin, Stat, eventually, message::date,
    nginx::DOCUMENTATION, origin::Seen,
};

const MONTH_S: i64 = 30 * 86_400;

/// Request with the headers that a browser always sends.
fn browser(visitor: &Visitor, method: &str, target: &str) -> Request {
    let mut request = Request::new(method, target)
        .header("User-Agent", visitor.user_agent)
        .header("Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8")
        .header("Accept-Language", visitor.language)
        .header("Accept-Encoding", visitor.coding)
        .header("Connection", "keep-alive");
    if let Some(session) = &visitor.session {
        request = request.header("Cookie", &format!("theme=dark; session={session}"));
    }
    request
}

struct Visitor {
    name: &'static str,
    user_agent: &'static str,
    language: &'static str,
    coding: &'static str,
    session: Option<String>,
}

fn ada() -> Visitor {
    let user_agent = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
    Visitor {
        name: "ada",
        user_agent,
        language: "en-GB,en;q=0.5",
        coding: "gzip, deflate, br",
        session: None,
    }
}

fn bob() -> Visitor {
    let user_agent =
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/126.0.0.0 Safari/537.36";
    Visitor {
        name: "bob",
        user_agent,
        language: "de-DE,de;q=0.9",
        coding: "gzip, deflate, br",
        session: None,
    }
}

/// A typical application: careful in some places, careless in others. The careless places are traps: only
/// HTTP's rules for cookies and `Authorization` keep a cache from storing their answers.
fn application() -> ScriptedOrigin {
    let app = ScriptedOrigin::start();
    let text = |status: u16, body: String| Answer::new(status, body).header("Content-Type", "text/plain");
    app.on("/app/login", move |request, reply| {
        let name = String::from_utf8_lossy(&request.body).into_owned();
        let answer = text(303, String::new()).header("Location", "/app/account");
        reply.answer(&answer.header("Set-Cookie", &format!("session={name}-secret; Path=/; HttpOnly")))
    });
    app.on("/app/account", move |request, reply| match session(request) {
        Some(session) => {
            reply.answer(&text(200, format!("account of {session}")).header("Cache-Control", "private"))
        }
        None => reply.answer(&text(302, String::new()).header("Location", "/app/login")),
    });
    // No word about caching, and a `Last-Modified` old enough for heuristic freshness. The date is fixed, so
    // it does not change with each request.
    let changed = date(-MONTH_S);
    app.on("/app/basket", move |request, reply| {
        let whose = session(request).unwrap_or_else(|| "nobody".to_owned());
        reply.answer(&text(200, format!("basket of {whose}")).header("Last-Modified", &changed))
    });
    // The answer allows storing, but sets a cookie.
    app.on("/app/visit", move |request, reply| {
        let whose = session(request).unwrap_or_else(|| "nobody".to_owned());
        let answer = text(200, "visited".to_owned()).header("Cache-Control", "max-age=600");
        reply.answer(&answer.header("Set-Cookie", &format!("visit={whose}; Path=/")))
    });
    app.on("/app/hello", move |request, reply| {
        let german = request.header("accept-language").is_some_and(|language| language.starts_with("de"));
        let answer = text(200, if german { "Guten Tag" } else { "Hello" }.to_owned());
        reply.answer(&answer.header("Cache-Control", "public, max-age=600").header("Vary", "Accept-Language"))
    });
    app.on("/app/news", move |_, reply| {
        let lines: Vec<String> = (0..200).map(|number| format!("news number {number}\n")).collect();
        let pieces: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        let answer = Answer::chunked(200, &pieces, &[]).header("Content-Type", "text/plain");
        reply.answer(&answer.header("Cache-Control", "s-maxage=600"))
    });
    app.on("/app/report", move |request, reply| {
        let known = request.header("if-none-match") == Some("\"report-1\"");
        let answer = if known { Answer::new(304, "") } else { text(200, "a long report".to_owned()) };
        reply.answer(&answer.header("ETag", "\"report-1\"").header("Cache-Control", "no-cache"))
    });
    app.on("/app/old", move |_, reply| {
        reply.answer(
            &text(301, "moved".to_owned())
                .header("Location", "/app/news")
                .header("Cache-Control", "max-age=600"),
        )
    });
    app.on("/app/broken", move |_, reply| reply.answer(&text(500, "the application failed".to_owned())));
    app.on("/app/missing", move |_, reply| {
        reply.answer(&text(404, "no such thing".to_owned()).header("Cache-Control", "max-age=600"))
    });
    app.on("/app/admin", move |request, reply| match request.header("authorization") {
        Some(secret) => {
            reply.answer(&text(200, format!("admin by {secret}")).header("Cache-Control", "max-age=600"))
        }
        None => reply
            .answer(&text(401, "who are you?".to_owned()).header("WWW-Authenticate", "Basic realm=\"site\"")),
    });
    app
}

fn session(request: &Seen) -> Option<String> {
    let cookies = request.header("cookie")?;
    cookies.split("; ").find_map(|cookie| cookie.strip_prefix("session=")).map(str::to_owned)
}

/// Sends each request to the accelerator and directly to the origin; both answers must be the same.
struct Comparison {
    through: Client,
    direct: Client,
    compared_bytes: u64,
}

impl Comparison {
    fn new(accelerator: &Accelerator, nginx: &Nginx) -> Self {
        Self { through: accelerator.connect(), direct: Client::connect(nginx.address()), compared_bytes: 0 }
    }

    #[track_caller]
    fn ask(&mut self, request: &Request) -> Response {
        let through = self.through.exchange(request).whole();
        let direct = self.direct.exchange(&request.clone().header("X-Direct", "1")).whole();
        let shown = || format!("through us:\n{}past us:\n{}", through.text_of_head(), direct.text_of_head());
        assert_eq!(through.status(), direct.status(), "{}", shown());
        assert!(
            through.body == direct.body,
            "{} and {} bytes\n{}",
            through.body.len(),
            direct.body.len(),
            shown()
        );
        assert_eq!(fields_that_matter(&through), fields_that_matter(&direct), "{}", shown());
        // These come from the origin's clock, not ours, and differ by the age of the answer.
        for name in ["date", "expires"] {
            assert_eq!(through.header(name).is_some(), direct.header(name).is_some(), "{name}\n{}", shown());
        }
        self.compared_bytes += through.body.len() as u64;
        through
    }
}

/// All fields except those of the connection (framing is hop by hop, RFC 9110 §7.6.1), those that change with
/// the clock, and those that a cache adds.
fn fields_that_matter(response: &Response) -> Vec<(String, String)> {
    const OTHERS: [&str; 10] = [
        "connection",
        "keep-alive",
        "transfer-encoding",
        "date",
        "expires",
        "age",
        "via",
        "cache-status",
        // Known once the body is whole, so a hit may have it although the origin's answer came in chunks.
        "content-length",
        // Says what the next hop can do for later requests; a cache can serve ranges of stored objects (RFC
        // 9110 §14.3).
        "accept-ranges",
    ];
    let mut fields: Vec<(String, String)> = response.head.headers.0.clone();
    fields.iter_mut().for_each(|(name, _)| name.make_ascii_lowercase());
    fields.retain(|(name, _)| !OTHERS.contains(&name.as_str()));
    fields.sort();
    fields
}

fn pages(directory: &Path, under: &str, into: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).expect("a directory is readable") {
        let entry = entry.expect("a directory is readable");
        let name = entry.file_name().into_string().expect("a file's name is UTF-8");
        assert!(
            name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~+".contains(&b)),
            "{name} would need escapes"
        );
        if entry.file_type().expect("a file has a type").is_dir() {
            pages(&entry.path(), &format!("{under}{name}/"), into);
        } else {
            into.push(format!("{under}{name}"));
        }
    }
}

#[test]
fn a_real_site_is_served_unchanged() {
    let app = application();
    let nginx = Nginx::start(app.address());
    let cores = tests::cores(2).or_else(|| tests::cores(1)).expect("a machine has a processor");
    // Compression by the accelerator is tested in codings.rs; here nginx's own compression is kept.
    let setup = Accelerator::before(&nginx.url()).flag("--cores", &cores).flag("--memory", "512MiB");
    let accelerator = setup.flag("--compress", "none").start();

    let mut targets = vec!["/".to_owned()];
    pages(Path::new(DOCUMENTATION), "/", &mut targets);
    targets.sort();
    assert!(targets.len() > 2000, "only {} files in {DOCUMENTATION}", targets.len());

    let mut visitors = [ada(), bob()];
    for visitor in &mut visitors {
        log_in(&accelerator, visitor);
    }
    let compared_bytes = read_the_documentation(&accelerator, &nginx, &visitors, &targets);
    read_what_says_nothing(&accelerator, &nginx, &targets[..100]);
    use_the_application(&accelerator, &nginx, &app, &visitors);
    no_session_went_astray(&app);

    let stat = accelerator.stat();
    let requests = 2 * targets.len() as u64;
    the_counters_tell_it(&stat, requests, compared_bytes);
}

/// The site on a file store: after a kill in the middle, the restarted accelerator fetches nothing that was
/// on the file.
#[test]
fn a_real_site_survives_a_kill() {
    let app = application();
    let nginx = Nginx::start(app.address());
    let directory = tempfile::tempdir().expect("a directory");
    let cores = tests::cores(2).or_else(|| tests::cores(1)).expect("a machine has a processor");
    let start = || {
        Accelerator::before(&nginx.url())
            .flag("--compress", "none")
            .flag("--cores", &cores)
            .flag("--memory", "24MiB")
            .store_in(&directory.path().join("store"), "512MiB")
            .start()
            .warm()
    };
    let mut targets = vec!["/".to_owned()];
    pages(Path::new(DOCUMENTATION), "/", &mut targets);
    targets.sort();
    let (flushed, underway) = targets.split_at(targets.len() / 2);
    let mut visitors = [ada(), bob()];
    let mut accelerator = start();
    for visitor in &mut visitors {
        log_in(&accelerator, visitor);
    }
    let mut comparison = Comparison::new(&accelerator, &nginx);
    for target in flushed {
        comparison.ask(&browser(&visitors[0], "GET", target)).expect_status(200);
    }
    eventually("the first half is on the file", || {
        let stat = accelerator.stat();
        stat.number("store.file_copying") == 0.0 && stat.number("store.log_records_waiting") == 0.0
    });
    for target in underway.iter().take(underway.len() / 2) {
        comparison.ask(&browser(&visitors[0], "GET", target)).expect_status(200);
    }
    let first = fetched(&nginx);
    accelerator.signal(Signal::KILL);
    accelerator.wait();

    let accelerator = start();
    let mut comparison = Comparison::new(&accelerator, &nginx);
    for visitor in &visitors {
        for target in &targets {
            comparison.ask(&browser(visitor, "GET", target)).expect_status(200);
        }
    }
    let both = fetched(&nginx);
    for target in flushed {
        assert_eq!(
            (first[target], both[target]),
            (1, 1),
            "{target} was on the file, and was asked for again"
        );
    }
    for target in underway {
        assert!(both[target] <= 2, "{target} was asked for more than once in a life");
    }
    use_the_application(&accelerator, &nginx, &app, &visitors);
    no_session_went_astray(&app);
    let stat = accelerator.stat();
    assert!(stat.number("store.file_hits") > 100.0, "{:#}", stat.document());
    assert_eq!(stat.number("store.file_damaged"), 0.0);
}

fn log_in(accelerator: &Accelerator, visitor: &mut Visitor) {
    let request = browser(visitor, "POST", "/app/login").body(visitor.name.as_bytes());
    let response = accelerator.fetch(&request).expect_status(303);
    assert_eq!(response.header("location"), Some("/app/account"));
    let cookie = response.header("set-cookie").expect("a login sets a cookie");
    let value = cookie.strip_prefix("session=").and_then(|rest| rest.split(';').next()).expect("a session");
    assert_eq!(value, format!("{}-secret", visitor.name), "one's own session");
    visitor.session = Some(value.to_owned());
}

/// Reads every file as one visitor and then as another, whose answers all come from the store.
fn read_the_documentation(
    accelerator: &Accelerator,
    nginx: &Nginx,
    visitors: &[Visitor],
    targets: &[String],
) -> u64 {
    let mut comparison = Comparison::new(accelerator, nginx);
    for visitor in visitors {
        for target in targets {
            comparison.ask(&browser(visitor, "GET", target)).expect_status(200);
        }
    }
    let fetched = fetched(nginx);
    for target in targets {
        assert_eq!(fetched.get(target), Some(&1), "{target} reached the origin more or less than once");
    }
    // A third visitor without compression: other variants of pages that vary, the stored answer for the rest.
    let plain = Visitor { coding: "identity", ..ada() };
    for _ in 0..2 {
        for target in targets.iter().step_by(20) {
            comparison.ask(&browser(&plain, "GET", target)).expect_status(200);
        }
    }
    // A visitor who already has all pages.
    for target in targets.iter().step_by(20) {
        let known = accelerator.fetch(&browser(&visitors[1], "GET", target)).expect_status(200);
        let validator = known.header("etag").expect("nginx gives validators");
        accelerator
            .fetch(&browser(&visitors[1], "GET", target).header("If-None-Match", validator))
            .expect_status(304);
        let head = accelerator.fetch(&browser(&visitors[1], "HEAD", target)).expect_status(200);
        assert_eq!(fields_that_matter(&head), fields_that_matter(&known));
    }
    let fetched_now = self::fetched(nginx);
    for target in targets {
        assert!(fetched_now[target] <= 2, "{target}: one variant with compression, one without");
    }
    comparison.compared_bytes
}

/// A default nginx sends no freshness information: answers are stored by heuristic freshness from
/// `Last-Modified`, for visitors without cookies.
fn read_what_says_nothing(accelerator: &Accelerator, nginx: &Nginx, targets: &[String]) {
    let mut comparison = Comparison::new(accelerator, nginx);
    let targets: Vec<String> = targets.iter().map(|target| format!("/unsaid{target}")).collect();
    for visitor in [ada(), bob()] {
        for target in &targets {
            comparison.ask(&browser(&visitor, "GET", target)).expect_status(200);
        }
    }
    let fetched = fetched(nginx);
    for target in &targets {
        assert_eq!(fetched.get(target), Some(&1), "{target} reached the origin more or less than once");
    }
}

fn use_the_application(accelerator: &Accelerator, nginx: &Nginx, app: &ScriptedOrigin, visitors: &[Visitor]) {
    let mut comparison = Comparison::new(accelerator, nginx);
    const ROUNDS: usize = 3;
    // Direct requests carry `X-Direct`, so that only those through the accelerator are counted.
    let through = |path: &str| app.seen(path).iter().filter(|seen| seen.header("x-direct").is_none()).count();
    for _ in 0..ROUNDS {
        for visitor in visitors {
            let secret = visitor.session.as_deref().expect("logged in");
            let mut get = |path: &str| comparison.ask(&browser(visitor, "GET", path));
            assert_eq!(get("/app/account").expect_status(200).text(), format!("account of {secret}"));
            assert_eq!(get("/app/basket").expect_status(200).text(), format!("basket of {secret}"));
            let visit = get("/app/visit").expect_status(200);
            assert_eq!(visit.header("set-cookie"), Some(&*format!("visit={secret}; Path=/")));
            let hello = if visitor.name == "bob" { "Guten Tag" } else { "Hello" };
            assert_eq!(get("/app/hello").expect_status(200).text(), hello);
            assert!(get("/app/news").expect_status(200).text().ends_with("news number 199\n"));
            assert_eq!(get("/app/old").expect_status(301).header("location"), Some("/app/news"));
            assert_eq!(get("/app/broken").expect_status(500).text(), "the application failed");
            assert_eq!(get("/app/missing").expect_status(404).text(), "no such thing");
            assert_eq!(get("/app/report").expect_status(200).text(), "a long report");
            get("/app/admin").expect_status(401);
            let known = browser(visitor, "GET", "/app/report").header("If-None-Match", "\"report-1\"");
            comparison.ask(&known).expect_status(304);
            let authorization = format!("Bearer {}", visitor.name);
            let admin = browser(visitor, "GET", "/app/admin").header("Authorization", &authorization);
            assert_eq!(comparison.ask(&admin).expect_status(200).text(), format!("admin by {authorization}"));
        }
        // A visitor without a session gets no other visitor's pages.
        let stranger = Visitor { name: "stranger", ..ada() };
        let mut get = |path: &str| comparison.ask(&browser(&stranger, "GET", path));
        assert_eq!(get("/app/account").expect_status(302).header("location"), Some("/app/login"));
        assert_eq!(get("/app/basket").expect_status(200).text(), "basket of nobody");
        assert_eq!(get("/app/visit").expect_status(200).header("set-cookie"), Some("visit=nobody; Path=/"));
        get("/app/admin").expect_status(401);
    }
    for (path, times) in [("/app/hello", 2), ("/app/news", 1), ("/app/old", 1), ("/app/missing", 1)] {
        assert_eq!(through(path), times, "{path} is everybody's: once for each variant");
    }
    for path in ["/app/account", "/app/visit"] {
        assert_eq!(through(path), 3 * ROUNDS, "{path} is one visitor's own, each time");
    }
    assert_eq!(through("/app/broken"), 2 * ROUNDS, "an error is not kept unless it says so");
}

/// Checks that the origin got each visitor's own headers: no request carried one visitor's cookie for
/// another.
fn no_session_went_astray(app: &ScriptedOrigin) {
    for seen in app.all_seen() {
        let is_of = |name: &str| {
            seen.header("cookie").is_some_and(|cookie| cookie.contains(&format!("{name}-secret")))
        };
        assert!(!(is_of("ada") && is_of("bob")), "{seen:?}");
        let german = seen.header("accept-language").is_some_and(|language| language.starts_with("de"));
        assert!(!is_of("ada") || !german, "{seen:?}");
        assert!(!is_of("bob") || german, "{seen:?}");
    }
}

/// Counts nginx's answers to the accelerator, by target.
fn fetched(nginx: &Nginx) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for (_, target, _) in nginx.log() {
        *counts.entry(target).or_default() += 1;
    }
    counts
}

fn the_counters_tell_it(stat: &Stat, pages_read: u64, compared_bytes: u64) {
    let shown = || format!("{:#}", stat.document());
    let hits = stat.count("requests.hits");
    let misses = stat.count("requests.misses");
    assert!(misses >= pages_read / 2 && misses < pages_read, "{}", shown());
    assert!(hits >= pages_read / 2, "{}", shown());
    assert!(stat.count("requests.passes") > 0, "{}", shown());
    assert!(stat.count("bytes.sent") >= compared_bytes, "{}", shown());
    assert!(stat.count("bytes.fetched") < stat.count("bytes.sent"), "{}", shown());
    assert_eq!(stat.count("store.evictions"), 0, "everything had room: {}", shown());
    assert_eq!(stat.count("store.expiries"), 0, "nothing lived for less than ten minutes: {}", shown());
    assert_eq!(stat.count("store.pinned_bytes"), 0, "nobody is reading any more: {}", shown());
    assert!(stat.number("loops.lateness_us_max") >= stat.number("loops.lateness_us_p50"), "{}", shown());
    assert!(stat.number("loops.lateness_us_max") > 0.0, "{}", shown());
}
