//! Hit-for-miss: requests for an address whose answers are not stored pass at once, side by side, each with
//! its own headers.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tests::{
    Accelerator, Answer, Client, Request, ScriptedOrigin, content::content, eventually, on_one_core,
    on_one_core_and_on_two,
};

on_one_core! {
    a5_their_conditions_reach_the_origin,
    requests_with_cookies_leave_no_hit_for_miss,
    an_error_leaves_no_note,
    a_note_holds_for_its_variant_alone,
    ranges_of_unstorable_objects_are_fetched_as_ranges,
}

on_one_core_and_on_two! {
    a5_requests_for_a_private_page_run_in_parallel,
    a_purge_forgets_the_note,
}

fn start(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--purge-from", "127.0.0.1")
        .flag("--memory", "64MiB")
        .start()
}

fn private(text: &str) -> Answer {
    Answer::new(200, text).header("Cache-Control", "private, max-age=600").header("ETag", "\"v1\"")
}

fn a5_requests_for_a_private_page_run_in_parallel(cores: &str) {
    const CLIENTS: usize = 8;
    let origin = ScriptedOrigin::start();
    let there = Arc::new(AtomicUsize::new(CLIENTS));
    let in_script = Arc::clone(&there);
    origin.on("/mine", move |_, reply| {
        // The origin holds requests until those of all clients have arrived; only the first client comes
        // alone.
        in_script.fetch_add(1, Ordering::SeqCst);
        while in_script.load(Ordering::SeqCst) < CLIENTS && !reply.stopped() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        reply.answer(&private("mine"))
    });
    let accelerator = start(&origin, cores);
    let first = accelerator.get("/mine").expect_status(200);
    assert!(
        first.header("cache-status").is_some_and(|s| s.contains("fwd=uri-miss") && s.contains("private"))
    );
    there.store(0, Ordering::SeqCst);
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| accelerator.connect()).collect();
    for client in &mut clients {
        client.send(&Request::get("/mine").bytes());
    }
    for client in &mut clients {
        assert_eq!(client.response("GET").expect_status(200).text(), "mine");
    }
    assert!(accelerator.stat().count("requests.notes_used") >= CLIENTS as u64);
}

/// A page is private in one language and storable in the others: hit-for-miss holds for the private variant
/// alone.
fn a_note_holds_for_its_variant_alone(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/", |request, reply| {
        let language = request.header("accept-language").unwrap_or("none").to_owned();
        let says = if language == "fr" { "private" } else { "max-age=600" };
        let answer = Answer::new(200, &language).header("Vary", "Accept-Language");
        reply.answer(&answer.header("Cache-Control", says))
    });
    let accelerator = start(&origin, cores);
    let get = |language: &str| {
        let answer = accelerator.fetch(&Request::get("/").header("Accept-Language", language));
        assert_eq!(answer.text(), language);
        answer.header("cache-status").expect("it is said").to_owned()
    };
    assert!(get("fr").contains("detail=private"));
    for language in ["de", "en"] {
        assert!(!get(language).contains("detail"), "{language} is not private");
        assert!(get(language).contains("; hit"), "{language} is stored");
    }
    // Storing the other variants does not remove the private variant's hit-for-miss.
    let used = accelerator.stat().count("requests.notes_used");
    get("fr");
    assert_eq!(accelerator.stat().count("requests.notes_used"), used + 1);
    accelerator.fetch(&Request::new("PURGE", "/")).expect_status(200);
    get("fr");
    assert_eq!(accelerator.stat().count("requests.notes_used"), used + 1, "a purge forgets it");
}

fn a5_their_conditions_reach_the_origin(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/mine", |request, reply| match request.header("if-none-match") {
        Some("\"v1\"") => reply.answer(&Answer::new(304, "").header("ETag", "\"v1\"")),
        _ => reply.answer(&private("mine")),
    });
    let accelerator = start(&origin, cores);
    accelerator.get("/mine").expect_status(200);
    let again =
        accelerator.fetch(&Request::get("/mine").header("If-None-Match", "\"v1\"")).expect_status(304);
    assert!(again.header("cache-status").is_some_and(|s| s.contains("detail=private")), "{again:?}");
}

fn requests_with_cookies_leave_no_hit_for_miss(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/", |request, reply| match request.header("cookie") {
        Some(_) => reply.answer(&private("yours")),
        None => reply
            .answer(&Answer::new(200, "all").header("Cache-Control", "max-age=600").header("Vary", "Cookie")),
    });
    let accelerator = start(&origin, cores);
    let mine = Request::get("/").header("Cookie", "session=1");
    assert_eq!(accelerator.fetch(&mine).expect_status(200).text(), "yours");
    for _ in 0..3 {
        assert_eq!(accelerator.get("/").expect_status(200).text(), "all");
        assert_eq!(accelerator.fetch(&mine).expect_status(200).text(), "yours");
    }
    assert_eq!(origin.count("/"), 1 + 1 + 3, "stored for those who have none");
}

fn a_purge_forgets_the_note(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/page", private("not yet"));
    let accelerator = start(&origin, cores);
    accelerator.get("/page").expect_status(200);
    accelerator.get("/page").expect_status(200);
    origin.answers("/page", Answer::new(200, "for all").header("Cache-Control", "max-age=600"));
    accelerator.fetch(&Request::new("PURGE", "/page"));
    for _ in 0..3 {
        assert_eq!(accelerator.get("/page").expect_status(200).text(), "for all");
    }
    assert_eq!(origin.count("/page"), 3);
}

fn an_error_leaves_no_note(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/page", Answer::new(500, "oh").header("Cache-Control", "no-store"));
    let accelerator = start(&origin, cores);
    accelerator.get("/page").expect_status(500);
    origin.answers("/page", Answer::new(200, "well").header("Cache-Control", "max-age=600"));
    for _ in 0..3 {
        assert_eq!(accelerator.get("/page").expect_status(200).text(), "well");
    }
    assert_eq!(origin.count("/page"), 2);
}

fn ranges_of_unstorable_objects_are_fetched_as_ranges(cores: &str) {
    const LENGTH: usize = 80 << 20;
    let origin = ScriptedOrigin::start();
    origin.on("/film", |request, reply| {
        let answer = match request.header("range") {
            Some("bytes=70000000-70000099") => Answer::new(206, content(1, 70_000_000, 100))
                .header("Content-Range", &format!("bytes 70000000-70000099/{LENGTH}")),
            _ => Answer::new(200, content(1, 0, LENGTH)),
        };
        reply.answer(&answer.header("Cache-Control", "max-age=600"))
    });
    let accelerator = start(&origin, cores);
    let range = Request::get("/film").header("Range", "bytes=70000000-70000099");
    for time in 0..3 {
        let part = accelerator.fetch(&range).expect_status(206);
        assert_eq!(part.body, content(1, 70_000_000, 100), "{time}");
        // The first fetch does not read up to the range once the answer's head says that the object is too
        // large.
        let detail = if time == 0 { "detail=range-alone" } else { "detail=too-large" };
        assert!(part.header("cache-status").is_some_and(|s| s.contains(detail)), "{part:?}");
    }
    eventually("all were asked for", || origin.count("/film") == 4);
    let seen = origin.seen("/film");
    assert_eq!(seen[0].header("range"), None, "the first was for the store");
    assert!(seen[1..].iter().all(|seen| seen.header("range").is_some()), "{seen:?}");
}
