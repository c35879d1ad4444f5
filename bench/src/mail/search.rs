//! Searches for a rare word over many mails: their latency, the size and memory of the index, and the cost of
//! a search in Nighttrain and Mailpit.

use std::time::{Duration, Instant};

use lab::{
    paired::{Latency, Work, interleave, measure},
    peers::{
        PeerError,
        mail::{
            MAIL_BYTES,
            contenders::{Contender, ServerProcess},
            load,
        },
    },
};

use crate::mail::page_client::{Pages, quantile};
use crate::mail::sample_mails::{RARE, RARE_MAILS, SampleMails};
use crate::mail::{Bench, LARGE_STORE_GIB, table};
use crate::record::{Comparison, Figure};

/// Bounds for searches over a million mails.
const SEARCH_MS_MAX: f64 = 300.0;
const INDEX_PERCENT_MAX: f64 = 15.0;
const INDEX_MEMORY_MIB_MAX: f64 = 64.0;
/// Time limit for indexing the mails.
const INDEXING_MAX: Duration = Duration::from_secs(3600);
/// Minimum number of mails from which a store has an index.
const INDEXED_FROM: u64 = 2_000;
/// Number of mails that `search` searches for a rare word in Nighttrain and in Mailpit.
pub(crate) const BESIDE_MAILPIT: u64 = 10_000;

impl Bench {
    pub(crate) fn rare_word(&mut self) -> Result<(), PeerError> {
        let quick = self.options.selection.quick;
        let mails = if quick { 5_000 } else { self.options.searched };
        let letters = SampleMails::new(mails, MAIL_BYTES, mails.div_ceil(10));
        let mut held_bytes = Vec::new();
        let mut many: Option<ServerProcess> = None;
        for contender in [Contender::Unindexed, Contender::Ours] {
            // The disk must be free before the next server starts.
            drop(many.take());
            let started = self.start_with_store(&[contender], LARGE_STORE_GIB)?.pop();
            let Some((_, started)) = started else { return Ok(()) };
            load::fill(&started, mails, &|number, mail| letters.write(number, mail))?;
            held_bytes.push(most_held(&started, if contender == Contender::Ours { mails } else { 0 })?);
            many = Some(started);
        }
        let Some(many) = many else { return Ok(()) };
        self.index_of(&many, mails, &held_bytes)?;
        let took_ms = self.searches_of(&many, mails)?;
        self.judged("a rare word, the longest", (quantile(&took_ms, 1.0), SEARCH_MS_MAX), "ms");
        let in_both = if quick { 500 } else { self.options.searched_in_both };
        self.searched("rare-word", in_both, 1)?;
        self.beside_searches(&many, mails)
    }

    /// Reports the size and the memory of the index.
    fn index_of(
        &mut self,
        many: &ServerProcess,
        mails: u64,
        held_bytes: &[(f64, u64)],
    ) -> Result<(), PeerError> {
        let stored = many.metric("mail_stored_bytes")?;
        let index = many.metric("mail_search_index_bytes")?;
        let percent = 100.0 * index / stored;
        let [(_, without), (seconds, with)] = held_bytes[..] else { return Ok(()) };
        let memory_mib = with.saturating_sub(without) as f64 / f64::from(1 << 20);
        self.outcome.tables.push(table(
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

    /// Returns the latency of each search in milliseconds, shortest first.
    fn searches_of(&mut self, many: &ServerProcess, mails: u64) -> Result<Vec<f64>, PeerError> {
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
        self.outcome.tables.push(table(
            format!(
                "A rare word over {mails} mails, each of {} words found in its {RARE_MAILS} mails",
                RARE.len()
            ),
            &[("searches", ""), ("p50 ms", ""), ("p99 ms", ""), ("longest ms", "")],
            vec![vec![took_ms.len().to_string(), at(0.5), at(0.99), at(1.0)]],
        ));
        Ok(took_ms)
    }

    /// Measures a search for a rare word over Mailpit's API, which Nighttrain supports too.
    pub(crate) fn search(&mut self) -> Result<(), PeerError> {
        let mails = if self.options.selection.quick { 100 } else { BESIDE_MAILPIT };
        self.searched("search", mails, 5)
    }

    /// Searches for each rare word `times` times per round over `mails` mails; each word is in three mails.
    fn searched(&mut self, scenario: &str, mails: u64, times: usize) -> Result<(), PeerError> {
        let running = self.start(&[Contender::Ours, Contender::Other, Contender::Mailpit])?;
        let letters = SampleMails::new(mails, MAIL_BYTES, mails.div_ceil(10));
        for (name, contender) in &running {
            let begun = Instant::now();
            load::fill(contender, mails, &|number, mail| letters.write(number, mail))?;
            println!("{name}: {mails} letters stored in {:.1} s", begun.elapsed().as_secs_f64());
            // A smaller store is not indexed.
            if contender.is_ours() && mails >= INDEXED_FROM {
                most_held(contender, mails)?;
            }
        }
        let (server, times) =
            (self.session.server.clone(), if self.options.selection.quick { 1 } else { times });
        let series = interleave(&running, self.rounds(), |contender: &ServerProcess, _| {
            measure(&contender.tree, &server, || {
                let mut asking = Pages::connect(contender.pages()?)?;
                let mut took_us = Vec::new();
                for word in RARE.iter().cycle().take(RARE.len() * times) {
                    let begun = Instant::now();
                    found(&mut asking, word)?;
                    took_us.push(begun.elapsed().as_secs_f64() * 1e6);
                }
                Ok::<_, PeerError>(timed(took_us))
            })
        })?;
        let comparison = Comparison {
            scenario: scenario.to_owned(),
            what: format!("GET /api/v1/search for a word that {RARE_MAILS} of {mails} mails have"),
            unit: "search".to_owned(),
            series,
        };
        self.outcome.figures.push(Figure::at_most(
            format!("CPU a search for a rare word, ≤ 1 × Mailpit ({scenario})"),
            1.0,
            comparison.series("ours"),
            comparison.series("mailpit"),
        ));
        self.outcome.comparisons.push(comparison);
        Ok(())
    }
}

/// Returns the work of a round with its latencies, from the microseconds of each request.
pub(crate) fn timed(mut took_us: Vec<f64>) -> Work {
    took_us.sort_unstable_by(f64::total_cmp);
    let latency = Latency {
        p50_us: quantile(&took_us, 0.5),
        p95_us: Some(quantile(&took_us, 0.95)),
        p99_us: quantile(&took_us, 0.99),
        last_us: Some(quantile(&took_us, 1.0)),
    };
    Work { units: took_us.len() as u64, latency: Some(latency), ..Work::default() }
}

/// Searches for a word and checks that all mails with it are found.
fn found(asking: &mut Pages, word: &str) -> Result<(), PeerError> {
    let told = asking.json(&format!("/api/v1/search?query={word}&limit=50"))?;
    let count = told["messages"].as_array().map_or(0, Vec::len) as u64;
    if count == RARE_MAILS { Ok(()) } else { Err(PeerError::failed(format!("{word}: {count} mails found"))) }
}

/// Waits until `indexed` mails are indexed; returns the seconds that it took and the server's peak of
/// anonymous memory.
fn most_held(running: &ServerProcess, indexed: u64) -> Result<(f64, u64), PeerError> {
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
