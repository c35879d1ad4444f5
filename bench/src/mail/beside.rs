//! Latency of other pages beside searches for a rare word.
//!
//! ```text
//!  core 0: the server                      core 1: a page every 4 ms, counted from when it was due
//!   ours, a million mails  ◄── nobody searches │ ten searches a second   turn after turn, a second each,
//!   ours, ten mails        ◄── nobody searches │ ten searches a second   31 times: a ratio is of turns
//!   mailpit, 10,000 mails  ◄── nobody searches │ as many as it answers   that stand beside each other
//! ```
//! Which searches a turn meets, and who else used the machine in it, differs from turn to turn more than what is looked for:
//! one long turn of each says nothing. Many short ones in turn do, by the median of their ratios. Whoever asks stays on the
//! load's core; the page is the same everywhere, an inbox of ten mails, or of Mailpit, which has no inboxes, the list of ten
//! mails that its page asks for. Mailpit has 10,000 mails: over 100,000 a search keeps it busy for seconds.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::mail::page_client::{self, Pages};
use crate::mail::sample_mails::{RARE, SampleMails};
use crate::record::{Comparison, Figure};
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

use crate::mail::{
    Bench,
    search::{BESIDE_MAILPIT, timed},
    table,
};

/// How much longer another page may take beside searches over many mails than beside those over next to none.
const BESIDE_TIMES_MAX: f64 = 1.25;
/// Searches and pages a second where both are asked for.
const SEARCH_EVERY: Duration = Duration::from_millis(100);
const PAGE_EVERY: Duration = Duration::from_millis(4);
const TURN: Duration = Duration::from_secs(1);
const TURNS: usize = 31;
/// Mails of the inbox that is shown, and of the store that has next to none.
const FEW_MAILS: u64 = 10;

/// A part of how long pages took, and where a sample has it.
type Part = (&'static str, fn(&Sample) -> Option<f64>);

/// Latencies of pages that have a goal.
const LATENCIES: [Part; 3] = [("p50", Sample::p50_us), ("p95", Sample::p95_us), ("p99", Sample::p99_us)];

/// A server, the page that is asked for, and whether somebody searches meanwhile.
type Turn<'r> = (&'r ServerProcess, &'static str, bool);

impl Bench {
    /// A page at a steady rate beside searches at another, or beside none; `many` is ours and has so many mails.
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
        // All in the inbox i0, as there are in it of `many`.
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

/// Medians of the turns, and the longest of all.
fn row(of: &Series) -> Vec<String> {
    let us = |of: Option<f64>| of.map_or_else(String::new, |us| format!("{us:.0}"));
    let middle =
        LATENCIES.map(|(_, what)| us(median(&of.samples.iter().filter_map(what).collect::<Vec<_>>())));
    let last = of.samples.iter().filter_map(Sample::last_us).fold(0.0, f64::max);
    std::iter::once(of.name.clone()).chain(middle).chain([us(Some(last))]).collect()
}

/// Pages, with or without somebody who searches all the while.
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
