//! A crawl from thousands of addresses over a site with a slow origin, and visitors beside it. Measures how
//! long stored and new pages take the visitors, with the crawl and without.
//!
//! ```text
//!   crawlers, each from an address of its own in 127.0.0.0/8, new pages all the time ─▶ nighttrain cache --bots 5/s ─▶ an origin
//!   visitors: stored pages, over and over; a new page every now and then ──────────▲                    that does 20 a second
//! ```

use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{Accelerator, Answer, PATIENCE, ScriptedOrigin, connections::connect_from};

/// Time that the origin takes for a request; it answers one after the other.
const ORIGIN_TIME: Duration = Duration::from_millis(50);
/// Rate of origin fetches that crawlers may cause.
const BUDGET: &str = "5/s";
/// Pause between two pages of a visitor.
const VISITS_EVERY: Duration = Duration::from_millis(5);
/// Pause between two new pages of the visitors.
const NEW_EVERY: Duration = Duration::from_millis(250);
const CRAWLER: &str = "Mozilla/5.0 (compatible; EverythingBot/9.0)";
const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64; rv:150.0) Gecko/20100101 Firefox/150.0";

/// Results of a spell.
#[derive(Debug, Default, Clone)]
pub struct Spell {
    /// Times in which visitors got stored pages, in µs, sorted.
    pub stored_us: Vec<u64>,
    /// Times in which visitors got new pages, in µs, sorted.
    pub new_us: Vec<u64>,
    /// Visits without the right answer.
    pub failed: u64,
    /// Requests of the crawlers.
    pub crawled: u64,
    /// Requests of the crawlers that were answered with a page.
    pub crawled_well: u64,
    /// Requests that reached the origin.
    pub asked: usize,
}

/// Returns the quantile of sorted times: `share` of them do not exceed it.
#[must_use]
pub fn quantile_us(sorted: &[u64], share: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index in the list")]
    let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(0)
}

/// Sends one GET on a connection of its own from an address of 127.0.0.0/8. Returns the status.
fn ask(server: SocketAddr, from: u32, agent: &str, path: &str) -> std::io::Result<u16> {
    let [_, b, c, d] = from.to_be_bytes();
    let mut stream = connect_from([127, b, c, d.max(1)], server)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: site.test\r\nUser-Agent: {agent}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let status = answer.get(9..12).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    status.ok_or_else(|| std::io::ErrorKind::InvalidData.into())
}

/// Runs one spell of this duration: visitors, and crawlers from this many addresses (0: no crawl).
///
/// # Panics
/// If the accelerator does not start, or a thread fails.
#[must_use]
pub fn spell(addresses: u32, time: Duration) -> Spell {
    let origin = ScriptedOrigin::start();
    let turn = Arc::new(Mutex::new(()));
    origin.otherwise(move |request, reply| {
        {
            let _one_at_a_time = turn.lock().expect("nobody panics");
            thread::sleep(ORIGIN_TIME);
        }
        reply.answer(&Answer::new(200, &request.target).header("Cache-Control", "max-age=3600"))
    });
    let cores = crate::cores(2).or_else(|| crate::cores(1)).expect("a processor");
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", &cores).flag("--bots", BUDGET).start();
    let server = accelerator.address();
    for page in 0..10 {
        assert_eq!(ask(server, 2, BROWSER, &format!("/stored/{page}")).ok(), Some(200));
    }
    let asked_before = origin.all_seen().len();
    let (over, crawled, crawled_well, failed) =
        (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    let timed = |path: &str| {
        let start = Instant::now();
        let is_well = ask(server, 3, BROWSER, path).is_ok_and(|status| status == 200);
        failed.fetch_add(u64::from(!is_well), Relaxed);
        u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
    };
    let (mut stored_us, mut new_us) = thread::scope(|scope| {
        for crawler in 0..8_u32.min(addresses) {
            let (over, crawled, crawled_well) = (&over, &crawled, &crawled_well);
            scope.spawn(move || {
                for number in 0.. {
                    if over.load(Relaxed) {
                        break;
                    }
                    // The addresses take turns, and no page is requested twice.
                    let from = 0x0001_0000 + (number * 8 + crawler) % addresses;
                    let status = ask(server, from, CRAWLER, &format!("/crawled/{crawler}/{number}"));
                    crawled.fetch_add(1, Relaxed);
                    crawled_well.fetch_add(u64::from(status.is_ok_and(|status| status == 200)), Relaxed);
                    // A crawler pauses between two pages: together they send about a thousand requests a
                    // second.
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let new = scope.spawn(|| {
            let mut new_us = Vec::new();
            while begun.elapsed() < time {
                new_us.push(timed(&format!("/new/{}", new_us.len())));
                thread::sleep(NEW_EVERY);
            }
            new_us
        });
        let mut stored_us = Vec::new();
        while begun.elapsed() < time {
            stored_us.push(timed(&format!("/stored/{}", stored_us.len() % 10)));
            thread::sleep(VISITS_EVERY);
        }
        let new_us = new.join().expect("no panic");
        over.store(true, Relaxed);
        (stored_us, new_us)
    });
    stored_us.sort_unstable();
    new_us.sort_unstable();
    Spell {
        stored_us,
        new_us,
        failed: failed.into_inner(),
        crawled: crawled.into_inner(),
        crawled_well: crawled_well.into_inner(),
        asked: origin.all_seen().len() - asked_before,
    }
}
