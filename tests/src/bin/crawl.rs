//! Measures what a crawl of thousands of addresses costs the visitors of a site whose origin answers twenty
//! requests a second: `crawl [--addresses 5000] [--seconds 30] [--pairs 9]`.

use std::{process::ExitCode, time::Duration};

use tests::crawl::{Spell, quantile_us, spell};

/// Selects one kind of times of a [`Spell`].
type Of = fn(&Spell) -> &[u64];

/// Largest ratio of a stored page's time beside the crawl to its time alone; the excess over 1 is the
/// machine's noise.
const STORED_TIMES_MAX: f64 = 1.25;
/// Largest such ratio for a page that is not stored yet.
const NEW_TIMES_MAX: f64 = 2.0;

fn main() -> ExitCode {
    let (mut addresses, mut seconds, mut pairs) = (5000, 30, 9);
    let given: Vec<String> = std::env::args().skip(1).collect();
    for pair in given.chunks(2) {
        let number = pair.get(1).and_then(|text| text.parse().ok());
        match (pair[0].as_str(), number) {
            ("--addresses", Some(number @ 1..)) => addresses = number,
            ("--seconds", Some(number)) => seconds = u64::from(number),
            ("--pairs", Some(number)) => pairs = number,
            _ => {
                eprintln!("crawl [--addresses 5000] [--seconds 30] [--pairs 9]");
                return ExitCode::from(2);
            }
        }
    }
    let time = Duration::from_secs(seconds);
    println!(
        "pair  crawled  a page  origin  stored p50, p99 µs: beside it / alone   new p50, p99 ms: beside it / alone"
    );
    // Ratios of times beside the crawl to times alone, one per pair: p50 and p99 of stored pages, then of new
    // pages.
    let mut ratios: [Vec<f64>; 4] = Default::default();
    let mut failed = 0;
    for pair in 1..=pairs {
        let (beside, alone) = (spell(addresses, time), spell(0, time));
        let us = |spell: &Spell, share| quantile_us(&spell.stored_us, share);
        let ms = |spell: &Spell, share| quantile_us(&spell.new_us, share) / 1000;
        println!(
            "{pair:>4} {:>8} {:>7} {:>7}  {:>6} {:>6} / {:>6} {:>6}   {:>6} {:>6} / {:>6} {:>6}",
            beside.crawled,
            beside.crawled_well,
            beside.asked,
            us(&beside, 0.5),
            us(&beside, 0.99),
            us(&alone, 0.5),
            us(&alone, 0.99),
            ms(&beside, 0.5),
            ms(&beside, 0.99),
            ms(&alone, 0.5),
            ms(&alone, 0.99)
        );
        let ratio = |of: Of, share| {
            quantile_us(of(&beside), share) as f64 / (quantile_us(of(&alone), share) as f64).max(1.0)
        };
        let (stored, new): (Of, Of) = (|spell| &spell.stored_us, |spell| &spell.new_us);
        let of_pair = [ratio(stored, 0.5), ratio(stored, 0.99), ratio(new, 0.5), ratio(new, 0.99)];
        ratios.iter_mut().zip(of_pair).for_each(|(all, one)| all.push(one));
        failed += beside.failed + alone.failed;
    }
    let mut is_held = failed == 0;
    let judged = [
        ("stored pages, p50", Some(STORED_TIMES_MAX)),
        ("stored pages, p99", None),
        ("new pages, p50", Some(NEW_TIMES_MAX)),
        ("new pages, p99", None),
    ];
    for ((what, most), mut ratios) in judged.into_iter().zip(ratios) {
        ratios.sort_unstable_by(f64::total_cmp);
        let Some(median) = ratios.get(ratios.len() / 2).copied() else { continue };
        let verdict = match most {
            None => String::new(),
            Some(most) if median <= most => format!(": at most {most}, held"),
            Some(most) => format!(": more than {most}, not held"),
        };
        is_held &= most.is_none_or(|most| median <= most);
        println!(
            "{what}: {median:.2} times as long beside the crawl, median of {} pairs{verdict}",
            ratios.len()
        );
    }
    println!("{failed} visits failed");
    if is_held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
