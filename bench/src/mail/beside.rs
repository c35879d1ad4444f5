//! Latency of page views while searches for a rare word run.
//!
//! ```text
//!  core 0: the server                      core 1: a page every 4 ms, counted from when it was due
//!   ours, a million mails  ◄── nobody searches │ ten searches a second   turn after turn, a second each,
//!   ours, ten mails        ◄── nobody searches │ ten searches a second   31 times: a ratio is of turns
//!   mailpit, 10,000 mails  ◄── nobody searches │ as many as it answers   that stand beside each other
//! ```
//! The searches and the machine's other load differ from turn to turn by more than the effect to be measured,
//! so one long turn of each kind proves nothing. Many short interleaved turns do, by the median of their
//! ratios. The load stays on its own core. The page is the same everywhere: an inbox of ten mails, or in
//! Mailpit, which has no inboxes, the list of ten mails that its web page requests. Mailpit has 10,000 mails:
//! with 100,000, a search takes it seconds.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use lab::{
    paired::{Sample, Series, Work, interleave, measure, spread::median},
    peers::{
        PeerError,
        mail::{
            MAIL_BYTES,
            contenders::{Contender, ServerProcess},
            load,
        },
    },
    placement,
};

use crate::mail::page_client::{self, Pages};
use crate::mail::sample_mails::{RARE, SampleMails};
use crate::mail::{
    Bench,
    search::{BESIDE_MAILPIT, timed},
    table,
};
use crate::record::{Comparison, Figure};

/// Bound on the ratio of page latencies: during searches over many mails, relative to searches over ten
/// mails.
const BESIDE_TIMES_MAX: f64 = 1.25;
/// Intervals between searches and between page requests.
const SEARCH_EVERY: Duration = Duration::from_millis(100);
const PAGE_EVERY: Duration = Duration::from_millis(4);
const TURN: Duration = Duration::from_secs(1);
const TURNS: usize = 31;
/// Number of mails in the requested inbox, and in the store that is almost empty.
const FEW_MAILS: u64 = 10;

/// Name of a latency quantile, and the function that reads it from a sample.
type Part = (&'static str, fn(&Sample) -> Option<f64>);

/// Latency quantiles of pages that have a bound.
const LATENCIES: [Part; 3] = [("p50", Sample::p50_us), ("p95", Sample::p95_us), ("p99", Sample::p99_us)];

/// A server, the requested page, and whether searches run meanwhile.
type Turn<'r> = (&'r ServerProcess, &'static str, bool);

impl Bench {
    /// Measures a page at a steady rate with and without searches; `many` is a Nighttrain server with `mails`
    /// mails.
    pub(crate) fn beside_searches(&mut self, many: &ServerProcess, mails: u64) -> Result<(), PeerError> {
        let Some((_, few)) = self.start(&[Contender::Ours])?.pop() else { return Ok(()) };
        let few = &few;
        let quick = self.options.selection.quick;
        let in_mailpit = if quick { BESIDE_MAILPIT / 100 } else { BESIDE_MAILPIT };
        let mailpit = self.start(&[Contender::Mailpit])?.pop().map(|(_, mailpit)| mailpit);
        if let Some(mailpit) = &mailpit {
            let letters = SampleMails::new(in_mailpit, MAIL_BYTES, in_mailpit.div_ceil(10));
            load::fill(mailpit, in_mailpit, &|number, mail| letters.write(number, mail))?;
        }
        // All mails go to the inbox i0, which has as many in the store of `many`.
        let letters = SampleMails::new(FEW_MAILS, MAIL_BYTES, 1);
        load::fill(few, FEW_MAILS, &|number, mail| letters.write(number, mail))?;
        let inbox = "/inbox/i0@bench.test";
        let over = |who: &str, mails: u64| format!("{who}, searches over {mails} mails");
        let mut all: Vec<(String, Turn<'_>)> = vec![
            ("ours, no search".to_owned(), (few, inbox, false)),
            (over("ours", FEW_MAILS), (few, inbox, true)),
            (format!("ours with {mails} mails, no search"), (many, inbox, false)),
            (over("ours", mails), (many, inbox, true)),
        ];
        if let Some(mailpit) = &mailpit {
            let list = "/api/v1/messages?limit=10";
            all.push(("mailpit, no search".to_owned(), (mailpit, list, false)));
            all.push((over("mailpit", in_mailpit), (mailpit, list, true)));
        }
        let (turns, turn) = if quick { (1, TURN / 4) } else { (self.options.selection.pairs(TURNS), TURN) };
        let (server, load) = (self.session.server.clone(), self.session.load.clone());
        let series = interleave(&all, turns, |(running, page, searches): &Turn<'_>, _| {
            let at = running.pages()?;
            measure(&running.tree, &server, || {
                placement::within(load.list(), || beside(at, page, *searches, turn))?
            })
        })?;
        let of = |name: String| series.iter().find(|series| series.name == name);
        let ours = of(over("ours", mails));
        for (part, figure) in LATENCIES {
            self.outcome.figures.push(Figure::of(
                format!("{part} of other pages beside searches over {mails} mails, ≤ {BESIDE_TIMES_MAX} × beside those over {FEW_MAILS}"),
                BESIDE_TIMES_MAX,
                ours,
                of(over("ours", FEW_MAILS)),
                figure,
            ));
        }
        if mailpit.is_some() {
            self.outcome.figures.push(Figure::of(
                format!("p95 of other pages beside searches over {mails} mails, ≤ 1 × Mailpit's beside those over {in_mailpit}"),
                1.0,
                ours,
                of(over("mailpit", in_mailpit)),
                Sample::p95_us,
            ));
        }
        self.outcome.tables.push(table(
            "Pages, 250 a second, beside ten searches for a rare word a second",
            &[("beside", ""), ("p50 µs", ""), ("p95 µs", ""), ("p99 µs", ""), ("longest µs", "")],
            series.iter().map(row).collect(),
        ));
        self.outcome.comparisons.push(Comparison {
            scenario: "beside-searches".to_owned(),
            what: "a page every 4 ms, beside a search for a rare word every 100 ms".to_owned(),
            unit: "page".to_owned(),
            series,
        });
        Ok(())
    }
}

/// Formats a series as a table row: medians of the turns, and the slowest request of all.
fn row(of: &Series) -> Vec<String> {
    let us = |of: Option<f64>| of.map_or_else(String::new, |us| format!("{us:.0}"));
    let middle =
        LATENCIES.map(|(_, what)| us(median(&of.samples.iter().filter_map(what).collect::<Vec<_>>())));
    let last = of.samples.iter().filter_map(Sample::last_us).fold(0.0, f64::max);
    std::iter::once(of.name.clone()).chain(middle).chain([us(Some(last))]).collect()
}

/// Requests pages at a steady rate, with or without concurrent searches.
fn beside(at: SocketAddr, page: &str, searches: bool, lasting: Duration) -> Result<Work, PeerError> {
    let ends = AtomicBool::new(false);
    let took_us = thread::scope(|scope| {
        let searching = searches.then(|| scope.spawn(|| search_until(at, &ends)));
        let took_us = page_client::steadily(at, page, (PAGE_EVERY, lasting));
        ends.store(true, Ordering::Relaxed);
        if let Some(searching) = searching {
            searching.join().map_err(|_| PeerError::failed("who searches panicked"))??;
        }
        took_us
    })?;
    Ok(timed(took_us))
}

fn search_until(at: SocketAddr, ends: &AtomicBool) -> Result<(), PeerError> {
    let mut asking = Pages::connect(at)?;
    let (begun, mut due) = (Instant::now(), Duration::ZERO);
    for word in RARE.iter().cycle() {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        thread::sleep(due.saturating_sub(begun.elapsed()));
        asking.ask(&format!("/api/v1/search?query={word}&limit=50"), &mut io::sink())?;
        due = begun.elapsed().max(due + SEARCH_EVERY);
    }
    Ok(())
}
