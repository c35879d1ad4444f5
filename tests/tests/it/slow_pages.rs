//! Pages that take the origin as long as their lifetime: clients that wait for the same page get it together,
//! and no client gets another's page.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tests::{
    Accelerator, Answer, Client, Gate, Request, ScriptedOrigin, eventually, on_one_core,
    on_one_core_and_on_two, origin::Next,
};

on_one_core! {
    nobody_gets_what_is_anothers,
    an_operators_lifetime_counts_from_arrival,
    a_confirmed_page_is_waited_for_again,
    the_letter_of_the_rfc_shares_nothing_late,
    a_late_page_is_explained,
    chunked_twice_is_taken_as_once,
}

on_one_core_and_on_two! {
    who_waits_for_a_slow_page_gets_it,
    requests_run_in_parallel_after_a_vain_wait,
}

/// A request with no field about its visitor.
const NOBODY: &[(&str, &str)] = &[];

/// A delay longer than the one-second lifetime, even on clocks of whole seconds.
const LATE: Duration = Duration::from_millis(2_100);

/// Starts an origin whose first answer at `/slow` waits for the gate. Each answer shows its number and the
/// text that `of` makes from the request.
fn slow(
    fields: &'static [(&'static str, &'static str)],
    of: impl Fn(&tests::origin::Seen) -> String + Send + Sync + 'static,
) -> (ScriptedOrigin, Gate) {
    let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
    let (in_script, asked) = (gate.clone(), AtomicUsize::new(0));
    origin.on("/slow", move |request, reply| {
        let number = asked.fetch_add(1, Ordering::SeqCst);
        if number == 0 {
            in_script.pass();
        }
        let answer = Answer::new(200, format!("{number} {}", of(request))).undated();
        let with = |answer: Answer, (name, value): &(&str, &str)| answer.header(name, value);
        reply.answer(&fields.iter().fold(answer, with))
    });
    (origin, gate)
}

/// Sends a request for the page on a connection of its own.
fn ask(accelerator: &Accelerator, fields: &[(&str, &str)]) -> Client {
    let with = |request: Request, (name, value): &(&str, &str)| request.header(name, value);
    let mut client = accelerator.connect();
    client.send(&fields.iter().fold(Request::get("/slow"), with).bytes());
    client
}

fn text(client: &mut Client) -> String {
    client.response("GET").expect_status(200).text()
}

/// Sends a request for each of `askers`, waits until all of them wait for the first answer and that is late,
/// and then lets the answer come.
fn ask_together(
    accelerator: &Accelerator,
    origin: &ScriptedOrigin,
    gate: &Gate,
    askers: &[&[(&str, &str)]],
) -> Vec<Client> {
    let mut clients = Vec::new();
    for (number, asker) in askers.iter().enumerate() {
        clients.push(ask(accelerator, asker));
        eventually("the first is fetched, the others wait", || {
            origin.count("/slow") == 1
                && accelerator.stat().count("requests.misses_collapsed") == number as u64
        });
    }
    thread::sleep(LATE);
    gate.open();
    clients
}

fn who_waits_for_a_slow_page_gets_it(cores: &str) {
    for control in ["max-age=1", "public, max-age=1", "s-maxage=1"] {
        let fields: &'static [(&str, &str)] = vec![("Cache-Control", control)].leak();
        let (origin, gate) = slow(fields, |_| String::new());
        let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
        let mut clients = ask_together(&accelerator, &origin, &gate, &[NOBODY; 5]);
        for client in &mut clients {
            assert_eq!(text(client), "0 ", "{control}");
        }
        assert_eq!(origin.count("/slow"), 1, "{control}: one fetch for all");
        // The page was stale on arrival, so the next request fetches it again.
        assert_eq!(text(&mut ask(&accelerator, &[])), "1 ", "{control}");
        assert_eq!(accelerator.stat().count("requests.shared_late"), 1, "{control}");
    }
}

fn nobody_gets_what_is_anothers(cores: &str) {
    let of = |request: &tests::origin::Seen| {
        let said = |name| request.header(name).unwrap_or("-").to_owned();
        format!("{}/{}/{}", said("authorization"), said("cookie"), said("accept-language"))
    };
    for control in [
        "max-age=1",
        "public, max-age=1",
        "s-maxage=1",
        "max-age=1, must-revalidate",
        "max-age=1, proxy-revalidate",
        "max-age=1, no-cache",
        "max-age=0",
        "private, max-age=1",
        "no-store",
    ] {
        // These three directives let an answer to a request with credentials be shared (RFC 9111 §3.5); a
        // page that differs by credentials must say so in Vary.
        let is_for_all = ["public", "s-maxage", "must-revalidate"].iter().any(|word| control.contains(word));
        let vary =
            if is_for_all { "Cookie, Accept-Language, Authorization" } else { "Cookie, Accept-Language" };
        let fields: &'static [(&str, &str)] =
            vec![("Cache-Control", control), ("ETag", "\"e\""), ("Vary", vary)].leak();
        let (origin, gate) = slow(fields, of);
        let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
        let askers: [&[(&str, &str)]; 6] = [
            &[("Cookie", "s=ada")],
            &[("Authorization", "Bearer ada")],
            &[("Accept-Language", "de")],
            &[("Authorization", "Bearer bob")],
            &[("Cookie", "s=bob")],
            &[("Accept-Language", "en")],
        ];
        let wants = ["-/s=ada/-", "Bearer ada/-/-", "-/-/de", "Bearer bob/-/-", "-/s=bob/-", "-/-/en"];
        let mut clients = ask_together(&accelerator, &origin, &gate, &askers);
        for (client, want) in clients.iter_mut().zip(wants) {
            let got = text(client);
            assert_eq!(got.split_once(' ').expect("a number").1, want, "{control}");
        }
    }
    // The rule also holds if the fetch is for a request with a bearer token and the page has no Vary.
    let (origin, gate) = slow(&[("Cache-Control", "public, max-age=1")], of);
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let askers: [&[(&str, &str)]; 3] =
        [&[("Authorization", "Bearer ada")], &[("Authorization", "Bearer bob")], &[]];
    let mut clients = ask_together(&accelerator, &origin, &gate, &askers);
    let said: Vec<String> = clients.iter_mut().map(text).collect();
    assert_eq!(said[0], "0 Bearer ada/-/-");
    assert!(
        said[1..].iter().all(|said| !said.starts_with("0 ")),
        "what had expired is its bearer's: {said:?}"
    );
}

/// An operator's lifetime counts from arrival: each page arrives with an `Age` above it, like a page that
/// takes longer than its lifetime.
fn an_operators_lifetime_counts_from_arrival(cores: &str) {
    let origin = ScriptedOrigin::start();
    for path in ["/default", "/static/x"] {
        let page = Answer::new(200, path).undated().header("Age", "7000");
        let said = if path == "/default" { page } else { page.header("Cache-Control", "max-age=5") };
        origin.answers(path, said);
    }
    let file = format!(
        "[cache]\ndefault-ttl = \"600s\"\n\n[[cache.site]]\nhosts = [\"site.test\"]\norigin = \"{}\"\n\n\
         [[cache.site.path]]\npath = \"/static/*\"\nttl = \"600s\"\n",
        origin.url()
    );
    let accelerator = Accelerator::configured(&file).flag("--cores", cores).start();
    for path in ["/default", "/static/x"] {
        accelerator.get(path).expect_status(200).whole();
        let again = accelerator.get(path).expect_status(200).whole();
        assert!(again.header("cache-status").is_some_and(|said| said.contains("hit")), "{again:?}");
        let age: u64 = again.header("age").and_then(|age| age.parse().ok()).expect("an age");
        assert!((7000..7600).contains(&age), "it says how old it is: {age}");
        assert_eq!(origin.count(path), 1, "{path}");
        let url = format!("http://site.test{path}");
        let said = accelerator.ask(&["explain", &url]);
        let words = String::from_utf8_lossy(&said.stdout).into_owned();
        let by = if path == "/default" { "default-ttl" } else { "path-ttl" };
        assert!(words.contains(&format!("{by}, 600 s from its arrival")), "{words}");
    }
}

/// A page that must be revalidated each time, and differs each time: after one wait in vain, requests pass
/// side by side.
fn requests_run_in_parallel_after_a_vain_wait(cores: &str) {
    for control in ["max-age=0", "no-cache"] {
        let origin = ScriptedOrigin::start();
        let gates = [Gate::new(), Gate::new(), Gate::new()];
        let (in_script, asked) = (gates.clone(), Arc::new(AtomicUsize::new(0)));
        let in_origin = Arc::clone(&asked);
        origin.on("/slow", move |_, reply| {
            let number = in_origin.fetch_add(1, Ordering::SeqCst);
            in_script[match number {
                0 => 0,
                1..4 => 1,
                _ => 2,
            }]
            .pass();
            let page = Answer::new(200, number.to_string()).header("ETag", &format!("\"{number}\""));
            reply.answer(&page.header("Cache-Control", control))
        });
        let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
        let mut clients: Vec<Client> = (0..4).map(|_| ask(&accelerator, &[])).collect();
        eventually("one is fetched for, three wait", || {
            accelerator.stat().count("requests.misses_collapsed") == 3
        });
        gates[0].open();
        eventually("all three are at the origin", || asked.load(Ordering::SeqCst) == 4);
        gates[1].open();
        let mut said: Vec<String> = clients.iter_mut().map(text).collect();
        said.sort();
        assert_eq!(said, ["0", "1", "2", "3"], "{control}: each its own");
        // The next requests do not wait at all.
        let mut next: Vec<Client> = (0..3).map(|_| ask(&accelerator, &[])).collect();
        eventually("they are at the origin together", || asked.load(Ordering::SeqCst) == 7);
        gates[2].open();
        next.iter_mut().for_each(|client| drop(text(client)));
        assert_eq!(accelerator.stat().count("requests.waits_in_vain"), 1, "{control}");
    }
}

/// Once the origin confirms the page again, one revalidation serves all clients that request it at once.
fn a_confirmed_page_is_waited_for_again(cores: &str) {
    let origin = ScriptedOrigin::start();
    let (first, later) = (Gate::new(), Gate::new());
    let (in_script, in_script_later) = (first.clone(), later.clone());
    let asked = AtomicUsize::new(0);
    origin.on("/slow", move |request, reply| {
        let number = asked.fetch_add(1, Ordering::SeqCst);
        if number == 0 {
            in_script.pass();
        }
        if request.header("if-none-match").is_none() {
            let page = Answer::new(200, "page").header("ETag", "\"e\"");
            return reply.answer(&page.header("Cache-Control", "no-cache"));
        }
        if number > 3 {
            in_script_later.pass();
        }
        reply.answer(&Answer::new(304, "").header("ETag", "\"e\""))
    });
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let mut clients: Vec<Client> = (0..2).map(|_| ask(&accelerator, &[])).collect();
    eventually("one waits", || accelerator.stat().count("requests.misses_collapsed") == 1);
    first.open();
    clients.iter_mut().for_each(|client| assert_eq!(text(client), "page"));
    assert_eq!(text(&mut ask(&accelerator, &[])), "page");
    assert_eq!(accelerator.stat().count("requests.revalidated"), 1);
    let before = origin.count("/slow");
    later.open();
    let mut clients: Vec<Client> = (0..3).map(|_| ask(&accelerator, &[])).collect();
    clients.iter_mut().for_each(|client| assert_eq!(text(client), "page"));
    assert!(origin.count("/slow") <= before + 3);
    let asked = origin.seen("/slow");
    assert!(asked[before..].iter().all(|seen| seen.header("if-none-match").is_some()), "none was passed");
}

fn the_letter_of_the_rfc_shares_nothing_late(cores: &str) {
    let (origin, gate) = slow(&[("Cache-Control", "max-age=1")], |_| String::new());
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--cookies", "rfc").start();
    let mut clients = ask_together(&accelerator, &origin, &gate, &[NOBODY; 3]);
    let mut said: Vec<String> = clients.iter_mut().map(text).collect();
    said.sort();
    assert_eq!(said[0], "0 ");
    assert!(said[1..].iter().all(|said| said != "0 "), "{said:?}");
}

fn a_late_page_is_explained(cores: &str) {
    let (origin, gate) = slow(&[("Cache-Control", "max-age=1")], |_| String::new());
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    for client in &mut ask_together(&accelerator, &origin, &gate, &[NOBODY; 2]) {
        let response = client.response("GET").expect_status(200);
        let status = response.header("cache-status").expect("each answer has one");
        assert!(status.contains("detail=expired-on-arrival"), "{status}");
    }
    let said = accelerator.ask(&["explain", "http://site.test/slow"]);
    let words = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(words.contains("expired on arrival"), "{words}");
    // The note is information for `explain` only: requests wait for the next fetch as usual.
    assert!(words.contains("fetched from the origin"), "{words}");
}

fn chunked_twice_is_taken_as_once(cores: &str) {
    let origin = ScriptedOrigin::start();
    for (path, coding) in [
        ("/list", "Transfer-Encoding: chunked, chunked\r\n"),
        ("/lines", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
    ] {
        let head = format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n{coding}\r\n");
        origin.sends(path, [head.as_bytes(), b"5\r\nhello\r\n0\r\n\r\n"].concat(), Next::KeepAlive);
    }
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    for path in ["/list", "/lines"] {
        for _ in 0..2 {
            assert_eq!(accelerator.get(path).expect_status(200).whole().text(), "hello", "{path}");
        }
        assert_eq!(origin.count(path), 1, "{path}");
    }
}
