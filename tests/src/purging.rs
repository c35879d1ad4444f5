//! Harness of the tests for purges and bans: an accelerator that loopback may purge, and the pages that it
//! fetches again.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use rustix::process::Signal;

use crate::{Accelerator, Answer, Gate, Next, Request, ScriptedOrigin, accelerator::Setup, eventually};

fn before(origin: &ScriptedOrigin, cores: &str) -> Setup {
    Accelerator::before(&origin.url()).flag("--cores", cores).flag("--purge-from", "127.0.0.1")
}

/// Starts an accelerator that loopback may purge.
#[must_use]
pub fn start(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    before(origin, cores).start()
}

/// Starts an accelerator that loopback may purge, with its store on a file, and waits until the file has been
/// read.
///
/// # Panics
/// When the path is not in UTF-8.
#[must_use]
pub fn on_file(origin: &ScriptedOrigin, store: &Path, cores: &str) -> Accelerator {
    before(origin, cores)
        .flag("--memory", "16MiB")
        .flag("--store", store.to_str().expect("a path in UTF-8"))
        .flag("--store-size", "128MiB")
        .start()
        .warm()
}

/// Waits until this many objects are on the file.
pub fn is_all_on_file(running: &Accelerator, objects: usize) {
    eventually("all of it is on the file", || {
        let stat = running.stat();
        stat.count("store.file_objects") >= objects as u64 && stat.count("store.log_records_waiting") == 0
    });
}

/// Requests each page a few times, so that other cores answer, too. Returns the pages that were fetched from
/// the origin.
///
/// # Panics
/// When a status differs, or a page was fetched more than once.
pub fn fetched<'p>(
    accelerator: &Accelerator,
    origin: &ScriptedOrigin,
    pages: impl IntoIterator<Item = (&'p str, u16)>,
) -> Vec<&'p str> {
    let is_fetched = |path: &str, status| {
        let before = origin.count(path);
        for _ in 0..4 {
            accelerator.get(path).expect_status(status);
        }
        let fetches = origin.count(path) - before;
        assert!(fetches <= 1, "{path} was fetched {fetches} times");
        fetches == 1
    };
    let fetched = pages.into_iter().filter(|(path, status)| is_fetched(path, *status));
    fetched.map(|(path, _)| path).collect()
}

/// Sends each request, kills the accelerator, and starts it again: the pages that the request purged are
/// fetched again, the other pages and those stored since are not. Returns the last accelerator.
///
/// # Panics
/// When anything else is fetched.
pub fn outlives_kills<'p>(
    origin: &ScriptedOrigin,
    (store, cores): (&Path, &str),
    pages: &[(&'p str, u16)],
    steps: &[(Request, &[&'p str])],
) -> Accelerator {
    let mut running = on_file(origin, store, cores);
    let fetched = |running: &Accelerator| fetched(running, origin, pages.iter().copied());
    assert_eq!(fetched(&running).len(), pages.len());
    is_all_on_file(&running, pages.len());
    for (request, want) in steps {
        running.fetch(request).expect_status(200);
        running.signal(Signal::KILL);
        running.wait();
        drop(running);
        running = on_file(origin, store, cores);
        assert_eq!(fetched(&running), *want, "{request:?}");
        assert_eq!(fetched(&running), [""; 0]);
        is_all_on_file(&running, pages.len());
    }
    running
}

/// An answer that was requested from the origin before a purge is not served to clients that ask after it,
/// and not stored, whether its head has arrived or not. The purge covers objects with this field; `meanwhile`
/// runs while the older answer is still on its way, `after` once it has arrived.
///
/// # Panics
/// When the accelerator behaves otherwise.
pub fn what_is_on_its_way_is_older(
    cores: &str,
    (name, value): (&'static str, &'static str),
    purge: &Request,
    meanwhile: impl Fn(&Accelerator),
    after: impl Fn(&Accelerator),
) {
    for head_first in [false, true] {
        let origin = ScriptedOrigin::start();
        let (before_head, before_body, asked) = (Gate::new(), Gate::new(), AtomicUsize::new(0));
        let (head_gate, body_gate) = (before_head.clone(), before_body.clone());
        origin.on("/page", move |_, reply| {
            let number = asked.fetch_add(1, Relaxed);
            let body = format!("version {number}");
            let answer = Answer::new(200, &body).header("Cache-Control", "max-age=600").header(name, value);
            if number == 0 {
                head_gate.pass();
            }
            reply.send(&answer.head_bytes())?;
            if number == 0 {
                body_gate.pass();
            }
            reply.send(body.as_bytes())?;
            Ok(Next::KeepAlive)
        });
        let accelerator = start(&origin, cores);
        let request = Request::get("/page");
        let mut early = accelerator.connect();
        early.send(&request.bytes());
        eventually("the origin is asked", || origin.count("/page") == 1);
        if head_first {
            before_head.open();
            assert_eq!(early.head("GET").status, 200);
        }
        accelerator.fetch(purge).expect_status(200);
        let mut late = accelerator.connect();
        late.send(&request.bytes());
        if !head_first {
            // The request waits for the fetch: only the answer's head shows that the answer was purged.
            eventually("it waits for it", || accelerator.stat().count("requests.misses_collapsed") == 1);
            before_head.open();
        }
        // The old body has not arrived yet.
        assert_eq!(late.response("GET").expect_status(200).text(), "version 1");
        meanwhile(&accelerator);
        before_body.open();
        if head_first {
            assert_eq!(early.rest_of_body().0, b"version 0", "it had asked before");
        } else {
            assert_eq!(early.response("GET").text(), "version 0");
        }
        after(&accelerator);
        for _ in 0..4 {
            assert_eq!(accelerator.get("/page").text(), "version 1");
        }
        assert_eq!(origin.count("/page"), 2);
    }
}
