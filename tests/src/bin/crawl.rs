//! What a crawl of thousands of addresses costs the visitors of a site whose origin does twenty requests a second:
//! `crawl [--addresses 5000] [--seconds 30] [--pairs 9]`.
#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a program for the terminal"
)]

use std::{process::ExitCode, time::Duration};

use tests::crawl::{Spell, quantile_us, spell};

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
    let (mut stored, mut new, mut failed) = (Vec::new(), Vec::new(), 0);
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
        let ratio = |of: fn(&Spell) -> &[u64]| {
            quantile_us(of(&beside), 0.5) as f64 / (quantile_us(of(&alone), 0.5) as f64).max(1.0)
        };
        stored.push(ratio(|spell| &spell.stored_us));
        new.push(ratio(|spell| &spell.new_us));
        failed += beside.failed + alone.failed;
    }
    for (what, mut ratios) in [("stored", stored), ("new", new)] {
        ratios.sort_unstable_by(f64::total_cmp);
        if let Some(median) = ratios.get(ratios.len() / 2) {
            println!(
                "{what} pages take visitors {median:.2} times as long beside the crawl, median of p50 of {} pairs",
                ratios.len()
            );
        }
    }
    println!("{failed} visits failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
