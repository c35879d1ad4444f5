//! A rare word over many mails: how long it takes, what the index of it takes, and what other pages feel of it; and what a
//! search costs beside Mailpit's.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use lab::{
    paired::{
        Latency, Sample, Work, interleave, measure,
        record::{Comparison, Figure},
    },
    peers::{
        PeerError,
        mail::{
            MAIL_BYTES,
            contenders::{Contender, Running},
            letters::{Letters, RARE, RARE_MAILS},
            load::{self, Until},
            pages::{self, Pages, quantile},
        },
    },
};

use crate::{Bench, table};

/// Bounds over a million mails.
const SEARCH_MS_MAX: f64 = 300.0;
const INDEX_PERCENT_MAX: f64 = 15.0;
const INDEX_MEMORY_MIB_MAX: f64 = 64.0;
/// How much longer another page may take beside searches over many mails than beside those over next to none.
const BESIDE_TIMES_MAX: f64 = 1.25;
/// Searches and pages a second where both are asked for.
const SEARCH_EVERY: Duration = Duration::from_millis(100);
const PAGE_EVERY: Duration = Duration::from_millis(10);
/// How long the index may take.
const INDEXING_MAX: Duration = Duration::from_secs(3600);
/// Mails that Mailpit is searched for a rare word in, too.
const BESIDE_MAILPIT: u64 = 10_000;

impl Bench {
    pub(crate) fn rare_word(&mut self) -> Result<(), PeerError> {
        let mails = if self.options.chosen.quick { 5_000 } else { self.options.searched };
        let letters = Letters::new(mails, MAIL_BYTES, mails.div_ceil(10));
        let mut held_bytes = Vec::new();
        let mut many = None;
        for contender in [Contender::Unindexed, Contender::Ours] {
            let Some((_, started)) = self.start(&[contender])?.pop() else { return Ok(()) };
            load::written(started.address, Until::Mails(mails), &|number, mail| letters.write(number, mail))?;
            held_bytes.push(most_held(&started, if contender == Contender::Ours { mails } else { 0 })?);
            many = Some(started);
        }
        let Some(many) = many else { return Ok(()) };
        self.index_of(&many, mails, &held_bytes)?;
        let took_ms = self.searches_of(&many, mails)?;
        self.judged("a rare word, the longest", (quantile(&took_ms, 1.0), SEARCH_MS_MAX), "ms");
        let Some((_, few)) = self.start(&[Contender::Ours])?.pop() else { return Ok(()) };
        load::written(few.address, Until::Mails(10), &|number, mail| letters.write(number, mail))?;
        self.pages_beside(&many, &few, mails)
    }

    /// Bytes and memory of the index.
    fn index_of(&mut self, many: &Running, mails: u64, held_bytes: &[(f64, u64)]) -> Result<(), PeerError> {
        let stored = many.metric("mail_stored_bytes")?;
        let index = many.metric("mail_search_index_bytes")?;
        let percent = 100.0 * index / stored;
        let [(_, without), (seconds, with)] = held_bytes[..] else { return Ok(()) };
        let memory_mib = with.saturating_sub(without) as f64 / f64::from(1 << 20);
        self.tables.push(table(
            "Index for searches",
            &[
                ("mails", ""),
                ("their MiB", ""),
                ("index MiB", ""),
                ("%", ""),
                ("memory MiB at most", ""),
                ("indexed in s", ""),
            ],
            vec![vec![
                mails.to_string(),
                format!("{:.0}", stored / f64::from(1 << 20)),
                format!("{:.0}", index / f64::from(1 << 20)),
                format!("{percent:.1}"),
                format!("{memory_mib:.0}"),
                format!("{seconds:.0}"),
            ]],
        ));
        self.judged("the index on the disk, of the mails' bytes", (percent, INDEX_PERCENT_MAX), "%");
        self.judged(
            "memory of the index, at most beside a server without one",
            (memory_mib, INDEX_MEMORY_MIB_MAX),
            "MiB",
        );
        Ok(())
    }

    /// How long each search took, in milliseconds, shortest first.
    fn searches_of(&mut self, many: &Running, mails: u64) -> Result<Vec<f64>, PeerError> {
        let mut asking = Pages::connect(many.pages()?)?;
        let mut took_ms = Vec::new();
        for _ in 0..self.rounds() {
            for word in RARE {
                let begun = Instant::now();
                found(&mut asking, word)?;
                took_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            }
        }
        took_ms.sort_unstable_by(f64::total_cmp);
        let at = |part| format!("{:.1}", quantile(&took_ms, part));
        self.tables.push(table(
            format!(
                "A rare word over {mails} mails, each of {} words found in its {RARE_MAILS} mails",
                RARE.len()
            ),
            &[("searches", ""), ("p50 ms", ""), ("p99 ms", ""), ("longest ms", "")],
            vec![vec![took_ms.len().to_string(), at(0.5), at(0.99), at(1.0)]],
        ));
        Ok(took_ms)
    }

    /// Inbox pages at a steady rate beside searches at another.
    fn pages_beside(&mut self, many: &Running, few: &Running, mails: u64) -> Result<(), PeerError> {
        let lasting = Duration::from_secs(if self.options.chosen.quick { 1 } else { 5 });
        let server = self.server.clone();
        let all = [
            ("no search".to_owned(), (many, false)),
            ("searches over 10 mails".to_owned(), (few, true)),
            (format!("searches over {mails} mails"), (many, true)),
        ];
        let series = interleave(&all, self.rounds(), |(running, searches): &(&Running, bool), _| {
            measure(&running.tree, &server, || beside(running.pages()?, *searches, lasting))
        })?;
        self.figures.push(Figure::of(
            format!("p99 of other pages beside searches over {mails} mails, ≤ {BESIDE_TIMES_MAX} × beside those over 10"),
            BESIDE_TIMES_MAX,
            series.get(2),
            series.get(1),
            Sample::p99_us,
        ));
        let us = |of: Option<f64>| of.map_or_else(String::new, |us| format!("{us:.0}"));
        let middle = |samples: &[Sample], of: fn(&Sample) -> Option<f64>| {
            us(lab::paired::spread::median(&samples.iter().filter_map(of).collect::<Vec<_>>()))
        };
        self.tables.push(table(
            "Inbox pages, a hundred a second, beside ten searches for a rare word a second",
            &[("beside", ""), ("p50 µs", ""), ("p99 µs", ""), ("longest µs", "")],
            series
                .iter()
                .map(|of| {
                    let last = of.samples.iter().filter_map(Sample::last_us).fold(0.0, f64::max);
                    let [p50, p99] = [Sample::p50_us, Sample::p99_us].map(|what| middle(&of.samples, what));
                    vec![of.name.clone(), p50, p99, us(Some(last))]
                })
                .collect(),
        ));
        self.comparisons.push(Comparison {
            scenario: "rare-word".to_owned(),
            what: "an inbox's page every 10 ms, beside a search for a rare word every 100 ms".to_owned(),
            unit: "page".to_owned(),
            series,
        });
        Ok(())
    }

    /// A search that finds three mails, and one that finds none, over Mailpit's API, which both have.
    pub(crate) fn search(&mut self) -> Result<(), PeerError> {
        let running = self.start(&[Contender::Ours, Contender::Other, Contender::Mailpit])?;
        let mails = if self.options.chosen.quick { 100 } else { BESIDE_MAILPIT };
        let letters = Letters::new(mails, MAIL_BYTES, mails);
        for (_, contender) in &running {
            let written = (0..mails).map(|number| {
                let mut mail = Vec::new();
                let inbox = letters.write(number, &mut mail);
                (format!("i{inbox}@bench.test"), mail)
            });
            load::handed(contender.address, written)?;
            if contender.is_ours() && !self.options.chosen.quick {
                most_held(contender, mails)?;
            }
        }
        let (server, count) = (self.server.clone(), if self.options.chosen.quick { 1 } else { 5 });
        let series = interleave(&running, self.rounds(), |contender: &Running, _| {
            measure(&contender.tree, &server, || {
                let mut asking = Pages::connect(contender.pages()?)?;
                for word in RARE.iter().cycle().take(RARE.len() * count) {
                    found(&mut asking, word)?;
                }
                Ok::<_, PeerError>(Work { units: (RARE.len() * count) as u64, ..Work::default() })
            })
        })?;
        let comparison = Comparison {
            scenario: "search".to_owned(),
            what: format!("GET /api/v1/search for a word that {RARE_MAILS} of {mails} mails have"),
            unit: "search".to_owned(),
            series,
        };
        self.figures.push(Figure::at_most(
            "CPU a search for a rare word, ≤ 1 × Mailpit (search)".to_owned(),
            1.0,
            comparison.series("ours"),
            comparison.series("mailpit"),
        ));
        self.comparisons.push(comparison);
        Ok(())
    }
}

/// Searches for a word; its mails must be found.
fn found(asking: &mut Pages, word: &str) -> Result<(), PeerError> {
    let told = asking.json(&format!("/api/v1/search?query={word}&limit=50"))?;
    let count = told["messages"].as_array().map_or(0, Vec::len) as u64;
    if count == RARE_MAILS { Ok(()) } else { Err(PeerError::failed(format!("{word}: {count} mails found"))) }
}

/// Memory of its own that a server holds at most until so many mails are indexed, and the seconds until then.
fn most_held(running: &Running, indexed: u64) -> Result<(f64, u64), PeerError> {
    let begun = Instant::now();
    let mut most = 0;
    loop {
        most = most.max(running.tree.anonymous_bytes()?);
        let is_done = indexed == 0
            || running.metric("mail_search_index_mails")? as u64 >= indexed
                && running.metric("mail_search_index_pending")? == 0.0;
        if is_done {
            return Ok((begun.elapsed().as_secs_f64(), most));
        }
        if begun.elapsed() > INDEXING_MAX {
            return Err(PeerError::failed("the mails are not indexed"));
        }
    }
}

/// An inbox's pages, with or without somebody who searches all the while.
fn beside(at: SocketAddr, searches: bool, lasting: Duration) -> Result<Work, PeerError> {
    let ends = AtomicBool::new(false);
    let took_us = thread::scope(|scope| {
        let searching = searches.then(|| scope.spawn(|| search_until(at, &ends)));
        let took_us = pages::steadily(at, "/inbox/i1@bench.test", (PAGE_EVERY, lasting));
        ends.store(true, Ordering::Relaxed);
        if let Some(searching) = searching {
            searching.join().map_err(|_| PeerError::failed("who searches panicked"))??;
        }
        took_us
    })?;
    let latency = Latency {
        p50_us: quantile(&took_us, 0.5),
        p99_us: quantile(&took_us, 0.99),
        last_us: Some(quantile(&took_us, 1.0)),
    };
    Ok(Work { units: took_us.len() as u64, latency: Some(latency), ..Work::default() })
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
