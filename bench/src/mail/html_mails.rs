//! The cost of showing an HTML mail, and the delay that mails built to be slow cause for other pages.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use lab::{
    paired::{Work, interleave, measure},
    peers::{
        PeerError,
        mail::{
            contenders::{Contender, ServerProcess},
            load,
        },
    },
};

use crate::mail::page_client::{Pages, quantile};
use crate::mail::sample_mails::{newsletter, slow};
use crate::mail::{Bench, table};
use crate::record::{Comparison, Figure};

const NEWSLETTER_BYTES: usize = 60 << 10;
/// Number of newsletters shown in a round; and number of those that are shown again, as often in all, while
/// their rendered HTML is still cached.
const VIEWS: usize = 400;
const AGAIN: usize = 100;
const NEWSLETTER_US_MAX: f64 = 3_000.0;
/// Bound on the delay that mails built to be slow cause for other pages.
const DELAY_MS_MAX: f64 = 50.0;
/// Number of copies of each slow mail, because the rendered HTML of one mail is cached.
const COPIES: usize = 40;
/// Query strings of a mail's frame; each variant is rendered separately.
const SEEN: [&str; 4] = ["", "?remote=load", "?dark=1", "?remote=load&dark=1"];
const HONEST_EVERY: Duration = Duration::from_millis(50);

fn html(subject: &str, html: &str) -> Vec<u8> {
    let head = format!("From: a@bench.test\r\nTo: b@bench.test\r\nSubject: {subject}\r\nMIME-Version: 1.0");
    format!("{head}\r\nContent-Type: text/html; charset=utf-8\r\n\r\n{html}").into_bytes()
}

/// Returns the IDs of the newest mails, newest first, over the API that Nighttrain and Mailpit share.
fn names(asking: &mut Pages, count: usize) -> Result<Vec<String>, PeerError> {
    let told = asking.json(&format!("/api/v1/messages?limit={count}"))?;
    let mails = told["messages"].as_array().into_iter().flatten();
    Ok(mails.filter_map(|mail| mail["ID"].as_str().map(str::to_owned)).collect())
}

impl Bench {
    /// Measures a newsletter in its frame, on the first and on a repeated request. Mailpit returns the HTML
    /// unchanged.
    pub(crate) fn newsletter(&mut self) -> Result<(), PeerError> {
        let running = self.start(&[Contender::Ours, Contender::Other, Contender::Mailpit])?;
        let (server, count) =
            (self.session.server.clone(), if self.options.selection.quick { 5 } else { VIEWS });
        let all: Vec<(String, (&ServerProcess, bool))> = running
            .iter()
            .flat_map(|(name, contender)| {
                let first = (name.clone(), (contender, false));
                std::iter::once(first)
                    .chain(contender.is_ours().then(|| (format!("{name}, again"), (contender, true))))
            })
            .collect();
        let letter = newsletter(NEWSLETTER_BYTES);
        let series =
            interleave(&all, self.rounds(), |(contender, again): &(&ServerProcess, bool), round| {
                let mut asking = Pages::connect(contender.pages()?)?;
                if !again {
                    let mails = (0..count)
                        .map(|n| ("news@bench.test".to_owned(), html(&format!("{round}, {n}"), &letter)));
                    load::handed(contender.address, mails)?;
                }
                let mut names = names(&mut asking, count)?;
                if *again {
                    // The oldest newsletters were shown last, so their HTML is still cached.
                    let kept = names.split_off(names.len().saturating_sub(AGAIN));
                    names = kept.iter().cycle().take(count).cloned().collect();
                }
                measure(&contender.tree, &server, || {
                    for name in &names {
                        let path = match contender.is_ours() {
                            true => format!("/inbox/news@bench.test/{name}/frame"),
                            false => format!("/view/{name}.html"),
                        };
                        asking.ask(&path, &mut io::sink())?;
                    }
                    Ok::<_, PeerError>(Work { units: names.len() as u64, ..Work::default() })
                })
            })?;
        let comparison = Comparison {
            scenario: "newsletter".to_owned(),
            what: format!("a mail of {} KiB of HTML, shown; and again", NEWSLETTER_BYTES >> 10),
            unit: "view".to_owned(),
            series,
        };
        if let Some(cost) = comparison.cost("ours") {
            self.judged("a newsletter of 60 KiB made safe and shown", (cost, NEWSLETTER_US_MAX), "µs of CPU");
        }
        self.outcome.figures.push(Figure::at_most(
            "CPU of a newsletter made safe and shown, ≤ 1 × Mailpit, which hands it out as it came (newsletter)".to_owned(),
            1.0,
            comparison.series("ours"),
            comparison.series("mailpit"),
        ));
        self.outcome.figures.push(Figure::at_most(
            "a newsletter asked for again, ≤ 0.2 × its making (newsletter)".to_owned(),
            0.2,
            comparison.series("ours, again"),
            comparison.series("ours"),
        ));
        self.outcome.comparisons.push(comparison);
        Ok(())
    }

    /// Measures a client that views ordinary mails while four others keep viewing slow ones.
    pub(crate) fn slow_mails(&mut self) -> Result<(), PeerError> {
        let Some((_, ours)) = self.start(&[Contender::Ours])?.pop() else { return Ok(()) };
        let honest = if self.options.selection.quick { 5 } else { 100 };
        let copies = if self.options.selection.quick { 2 } else { COPIES };
        let mut asking = Pages::connect(ours.pages()?)?;
        let kinds = slow();
        let mut of_kind = Vec::new();
        let mut rows = Vec::new();
        for (what, slow) in &kinds {
            let mails =
                (0..copies).map(|n| ("slow@bench.test".to_owned(), html(&format!("{what} {n}"), slow)));
            load::handed(ours.address, mails)?;
            let names = names(&mut asking, copies)?;
            let begun = Instant::now();
            asking.ask(
                &format!("/inbox/slow@bench.test/{}/frame?remote=load&dark=1", names[0]),
                &mut io::sink(),
            )?;
            rows.push(vec![
                format!("made to be slow: {what}"),
                format!("{:.1}", begun.elapsed().as_secs_f64() * 1e3),
            ]);
            of_kind.push(names);
        }
        let letter = newsletter(NEWSLETTER_BYTES);
        let [mut alone, mut beside] = [Vec::new(), Vec::new()];
        for (is_beside, took) in [(false, &mut alone), (true, &mut beside)] {
            let mails = (0..honest)
                .map(|n| ("ann@bench.test".to_owned(), html(&format!("news {is_beside} {n}"), &letter)));
            load::handed(ours.address, mails)?;
            let names = names(&mut asking, honest)?;
            *took = looked_at(ours.pages()?, &names, if is_beside { &of_kind } else { &[] })?;
        }
        for (name, took) in [("an honest mail alone", &alone), ("beside four slow ones", &beside)] {
            let at = |part| format!("{:.1}", quantile(took, part));
            rows.push(vec![
                format!("{name}: p50, p99, longest"),
                format!("{}, {}, {}", at(0.5), at(0.99), at(1.0)),
            ]);
        }
        self.outcome.tables.push(table("Mails made to be slow", &[("what", ""), ("ms", "")], rows));
        let delay_ms = quantile(&beside, 0.99) - quantile(&alone, 0.5);
        self.judged("four slow mails delay an honest newsletter by, p99", (delay_ms, DELAY_MS_MAX), "ms");
        Ok(())
    }
}

/// Returns the time for each ordinary mail's page and frame together, in milliseconds, shortest first.
fn looked_at(at: SocketAddr, honest: &[String], slow: &[Vec<String>]) -> Result<Vec<f64>, PeerError> {
    let ends = AtomicBool::new(false);
    let begun = AtomicUsize::new(0);
    thread::scope(|scope| {
        let lookers: Vec<_> =
            slow.iter().map(|names| scope.spawn(|| look_until(at, names, (&ends, &begun)))).collect();
        while begun.load(Ordering::Relaxed) < lookers.len() {
            thread::sleep(Duration::from_millis(1));
        }
        let took_ms = look_at(at, honest);
        ends.store(true, Ordering::Relaxed);
        for looker in lookers {
            looker.join().map_err(|_| PeerError::failed("who looks at slow mails panicked"))??;
        }
        took_ms
    })
}

fn look_at(at: SocketAddr, honest: &[String]) -> Result<Vec<f64>, PeerError> {
    let mut asking = Pages::connect(at)?;
    let mut took_ms = Vec::new();
    for name in honest {
        let begun = Instant::now();
        for view in ["", "/frame"] {
            asking.ask(&format!("/inbox/ann@bench.test/{name}{view}"), &mut io::sink())?;
        }
        took_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        thread::sleep(HONEST_EVERY);
    }
    took_ms.sort_unstable_by(f64::total_cmp);
    Ok(took_ms)
}

/// Requests every mail in every variant in a cycle, so that as few requests as possible are answered from the
/// cache.
fn look_until(
    at: SocketAddr,
    names: &[String],
    (ends, begun): (&AtomicBool, &AtomicUsize),
) -> Result<(), PeerError> {
    let asking = Pages::connect(at);
    begun.fetch_add(1, Ordering::Relaxed);
    let mut asking = asking?;
    let all = SEEN.iter().flat_map(|seen| names.iter().map(move |name| (name, seen)));
    for (name, seen) in all.cycle() {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        asking.ask(&format!("/inbox/slow@bench.test/{name}/frame{seen}"), &mut io::sink())?;
    }
    Ok(())
}
