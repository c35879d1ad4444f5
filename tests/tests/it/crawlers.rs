//! Crawlers and unknown clients cost the origin no more than their budget.

use std::fs;

use tests::{
    Accelerator, Answer, Request, Response, ScriptedOrigin, accelerator::Setup, eventually, on_one_core,
    on_one_core_and_on_two,
};

on_one_core! {
    a40_a_crawler_gets_stored_answers_only,
    a40_what_is_stale_is_shown_to_it,
    a40_approved_crawlers_are_recognized_by_network,
}

on_one_core_and_on_two! {
    a40_a_crawl_from_everywhere_costs_its_budget,
    a40_strangers_have_a_budget_of_their_own,
}

const BOT: &str = "Mozilla/5.0 (compatible; ExampleBot/1.0)";
const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:150.0) Gecko/20100101 Firefox/150.0";

fn site() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request, reply| {
        reply.answer(&Answer::new(200, &request.target).header("Cache-Control", "max-age=600"))
    });
    origin
}

fn before(origin: &ScriptedOrigin, cores: &str) -> Setup {
    Accelerator::before(&origin.url()).flag("--cores", cores)
}

fn ask(accelerator: &Accelerator, agent: &str, path: &str) -> Response {
    accelerator.fetch(&Request::get(path).header("User-Agent", agent))
}

fn a40_a_crawler_gets_stored_answers_only(cores: &str) {
    let origin = site();
    let accelerator = before(&origin, cores).flag("--bots", "cached-only").start();
    ask(&accelerator, BROWSER, "/known").expect_status(200);
    for _ in 0..3 {
        assert_eq!(ask(&accelerator, BOT, "/known").expect_status(200).text(), "/known");
        let refused = ask(&accelerator, BOT, "/new").expect_status(429);
        assert_eq!(refused.header("retry-after"), Some("5"));
    }
    let mut client = accelerator.connect();
    let post =
        format!("POST /form HTTP/1.1\r\nHost: site.test\r\nUser-Agent: {BOT}\r\nContent-Length: 0\r\n\r\n");
    client.send(post.as_bytes());
    client.response("POST").expect_status(429);
    // A client without a `User-Agent` counts as a crawler, too.
    accelerator.get("/new").expect_status(429);
    ask(&accelerator, BROWSER, "/new").expect_status(200);
    assert_eq!(ask(&accelerator, BOT, "/new").expect_status(200).text(), "/new");
    assert_eq!(origin.all_seen().len(), 2);
    assert_eq!(accelerator.stat().count("limits.crawlers"), 5);
}

fn a40_what_is_stale_is_shown_to_it(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers(
        "/page",
        Answer::new(200, "a page").header("Cache-Control", "max-age=1, stale-while-revalidate=1"),
    );
    let accelerator = before(&origin, cores).flag("--bots", "cached-only").start();
    ask(&accelerator, BROWSER, "/page").expect_status(200);
    eventually("it is stale", || {
        let answer = ask(&accelerator, BOT, "/page").expect_status(200);
        assert_eq!(answer.text(), "a page");
        answer.header("cache-status").is_some_and(|said| said.contains("stale-if-error"))
    });
    // Neither a foreground nor a background fetch was made.
    assert_eq!(origin.count("/page"), 1);
    ask(&accelerator, BROWSER, "/page").expect_status(200);
    assert_eq!(origin.count("/page"), 2);
}

fn a40_a_crawl_from_everywhere_costs_its_budget(cores: &str) {
    let origin = site();
    let accelerator =
        before(&origin, cores).flag("--bots", "1/s").flag("--trusted-proxies", "127.0.0.1").start();
    let crawl = |number: u32| {
        let from = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number * 7).to_string();
        let request =
            Request::get(&format!("/{number}")).header("User-Agent", BOT).header("X-Forwarded-For", &from);
        accelerator.fetch(&request).status()
    };
    let started = std::time::Instant::now();
    let statuses: Vec<u16> = (0..500).map(crawl).collect();
    let most = 2 + started.elapsed().as_secs() as usize;
    let fetched = statuses.iter().filter(|status| **status == 200).count();
    assert!((1..=most).contains(&fetched), "{fetched}, {most}");
    assert_eq!(origin.all_seen().len(), fetched);
    ask(&accelerator, BROWSER, "/visitor").expect_status(200);
}

fn a40_approved_crawlers_are_recognized_by_network(cores: &str) {
    let origin = site();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let list = directory.path().join("examplebot.json");
    fs::write(&list, r#"{"prefixes": [{"ipv4Prefix": "192.0.2.0/27"}, {"ipv6Prefix": "2001:db8::/32"}]}"#)
        .expect("written");
    let accelerator = before(&origin, cores)
        .flag("--bots", "cached-only")
        .flag("--bots-approved", &list.display().to_string())
        .flag("--bot-networks", "198.51.100.0/24")
        .flag("--trusted-proxies", "127.0.0.1")
        .start();
    let from = |address: &str, agent: &str, path: &str| {
        let request = Request::get(path).header("User-Agent", agent).header("X-Forwarded-For", address);
        accelerator.fetch(&request).status()
    };
    assert_eq!(from("192.0.2.1", BOT, "/a"), 200);
    assert_eq!(from("2001:db8::1", BOT, "/b"), 200);
    assert_eq!(from("192.0.2.33", BOT, "/c"), 429, "it only says so");
    assert_eq!(from("198.51.100.1", BROWSER, "/d"), 429, "it does not say so");
    fs::write(&list, "not networks\n").expect("written");
    let wrong = before(&origin, cores).flag("--bots-approved", &list.display().to_string()).run_to_its_end();
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        wrong.status.code() == Some(3) && said.contains("line 1") && said.contains("examplebot.json"),
        "{said}"
    );
}

fn a40_strangers_have_a_budget_of_their_own(cores: &str) {
    let origin = site();
    let accelerator = before(&origin, cores).flag("--strangers", "1/s").start();
    let statuses: Vec<u16> =
        (0..50).map(|page| ask(&accelerator, BROWSER, &format!("/{page}")).status()).collect();
    assert!(statuses[0] == 200 && statuses.contains(&429), "{statuses:?}");
    assert_eq!(ask(&accelerator, BROWSER, "/0").status(), 200, "it is stored");
    let known = |page: usize| {
        let request =
            Request::get(&format!("/known/{page}")).header("User-Agent", BROWSER).header("Cookie", "a=b");
        accelerator.fetch(&request).status()
    };
    assert!((0..20).all(|page| known(page) == 200));
    assert!(accelerator.stat().count("limits.strangers") > 0);
}

/// A short run of `crawl`: visitors are answered, and the crawl costs the origin only its budget. The
/// visitors' waiting time is measured by the program, on a quiet machine.
#[test]
fn a40_a_crawl_leaves_the_origin_to_visitors() {
    let spell = tests::crawl::spell(500, std::time::Duration::from_secs(3));
    assert_eq!(spell.failed, 0, "{spell:?}");
    assert!(spell.crawled > spell.crawled_well, "{spell:?}");
    // Five a second, and the allowed burst; the other fetches are the visitors'.
    assert!(spell.crawled_well <= 5 * 60, "{spell:?}");
    assert_eq!(spell.asked as u64, spell.crawled_well + spell.new_us.len() as u64, "{spell:?}");
}

#[test]
fn a40_the_guides_commands_work() {
    let Some(output) = tests::guide::run("crawlers.md") else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let statuses: Vec<_> = said.lines().filter(|line| line.len() == 3).collect();
    assert_eq!(statuses, ["429", "200", "200"], "{said}");
}
