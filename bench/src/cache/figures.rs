//! The bounds for the accelerator, and the verdict on each.

use lab::paired::Sample;
use lab::paired::spread::median;
use lab::peers::cache::contenders::Contender;
use lab::report::Table;

use crate::cache::scenarios::{CHECKED, CROWD, LOGGED, MISS, PASS_LARGE, PASS_SMALL, PRIVATE_PAGE, UPLOAD};
use crate::record::{Comparison, Figure};

/// Name of Nighttrain on two cores.
pub(crate) const OURS_TWO: &str = "ours, two cores";

/// Name of Nighttrain on one core, under the same load as Nighttrain on two cores.
pub(crate) const OURS_ONE_SHARED: &str = "ours, one core shared with the load";

/// Scenarios in which our floor is compared with the shared reference floor.
pub(crate) const FLOOR_SCENARIOS: [&str; 3] = ["one-1k-64", "one-64k-64", "one-1k-1000"];

/// Function that reads one measured value from a sample.
type Measure = fn(&Sample) -> Option<f64>;

/// Values compared in scenarios whose requests go to the origin.
const MEASURED: [(&str, Measure); 3] =
    [("CPU", Sample::cpu_us_per_unit), ("p50", Sample::p50_us), ("p99", Sample::p99_us)];
/// Scenarios whose every request goes to the origin: description, scenario, number of [`MEASURED`] entries to
/// skip, and the bound. In the scenario with 100 waiting clients, CPU time is too small to compare. Its
/// latency is mostly the origin's 100 ms, measured with a timer that ticks every millisecond, so the bound
/// allows for 1%.
const THROUGH: [(&str, &str, usize, f64); 6] = [
    ("a miss", MISS, 0, 1.0),
    ("a revalidation", CHECKED, 0, 1.0),
    ("a pass of 1 KiB", PASS_SMALL, 0, 1.0),
    ("a pass of 64 KiB", PASS_LARGE, 0, 1.0),
    ("an upload of 1 MiB", UPLOAD, 0, 1.0),
    ("100 clients on a private page", PRIVATE_PAGE, 1, 1.01),
];

/// Computes every figure that these comparisons have the data for.
pub(crate) fn all(comparisons: &[Comparison]) -> Vec<Figure> {
    let limit = Contender::Limit.name();
    let ours = Contender::Ours.name();
    let on_file = Contender::OursOnFile.name();
    let against = |what: &str, scenario: &str, contender: &str, bound: f64, reference: &str| {
        let comparison = comparisons.iter().find(|comparison| comparison.scenario == scenario);
        let series = |name: &str| comparison.and_then(|comparison| comparison.series(name));
        Figure::at_most(format!("{what} ({scenario})"), bound, series(contender), series(reference))
    };
    let best_peer = |what: &str, scenario: &str, bound: f64| {
        let comparison = comparisons.iter().find(|comparison| comparison.scenario == scenario);
        let best =
            comparison.and_then(|comparison| comparison.cheapest(Contender::PEERS.map(Contender::name)));
        let ours = comparison.and_then(|comparison| comparison.series(ours));
        Figure::at_most(format!("{what} ({scenario})"), bound, ours, best)
    };
    let mut figures = vec![
        against("1 KiB hit, ≤ 1.3 × the limit", "one-1k-64", ours, 1.3, limit),
        best_peer("1 KiB hit, ≤ 0.8 × the best peer", "one-1k-64", 0.8),
        against("1 KiB hit, ≤ 1.3 × the limit", "zipf-1k-64", ours, 1.3, limit),
        best_peer("1 KiB hit, ≤ 0.8 × the best peer", "zipf-1k-64", 0.8),
        against("1 KiB hit, 1,000 connections, ≤ 1.4 × the limit", "one-1k-1000", ours, 1.4, limit),
        against("64 KiB hit, ≤ 1.2 × the limit", "one-64k-64", ours, 1.2, limit),
        against("64 KiB hit, ≤ 1.2 × the limit", "zipf-64k-64", ours, 1.2, limit),
        against("1 KiB hit with a file, ≤ 1.05 × without", "one-1k-64", on_file, 1.05, ours),
        against("1 KiB hit with a file, ≤ 1.05 × without", "zipf-1k-64", on_file, 1.05, ours),
        against("64 KiB hit with a file, ≤ 0.85 × the limit", "one-64k-64", on_file, 0.85, limit),
        against("64 KiB hit with a file, ≤ 0.85 × the limit", "zipf-64k-64", on_file, 0.85, limit),
        against(
            "a hit with the access log, ≤ 1.08 × without",
            LOGGED,
            Contender::OursLogged.name(),
            1.08,
            ours,
        ),
        against(
            "a hit that somebody's filter looks at, ≤ 1.08 × without",
            LOGGED,
            Contender::OursRead.name(),
            1.08,
            ours,
        ),
    ];
    let cores = comparisons.iter().find(|comparison| comparison.scenario == "two-cores");
    figures.push(Figure::at_most(
        "CPU a hit on two cores, ≤ 1.15 × on one, the cheaper way to load it (two-cores)".into(),
        1.15,
        cores.and_then(|cores| cores.series(OURS_TWO)),
        cores.and_then(|cores| cores.cheapest([ours, OURS_ONE_SHARED])),
    ));
    let reference = Contender::Reference.name();
    if comparisons.iter().any(|comparison| comparison.series(reference).is_some()) {
        for scenario in FLOOR_SCENARIOS {
            figures.push(against("our limit, ≤ 1.05 × the shared floor", scenario, limit, 1.05, reference));
        }
    }
    figures.extend(through(comparisons));
    // A scenario that was not selected gets no figure, not even "not measured".
    figures.retain(|figure| {
        comparisons.iter().any(|comparison| figure.what.contains(&format!("({})", comparison.scenario)))
    });
    figures
}

/// Compares Nighttrain with the best peer in the scenarios whose every request goes to the origin.
fn through(comparisons: &[Comparison]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (what, scenario, left_out, bound) in THROUGH {
        let comparison = comparisons.iter().find(|comparison| comparison.scenario == scenario);
        for (name, measured) in MEASURED.into_iter().skip(left_out) {
            let peers = Contender::PROXIES.map(Contender::name);
            let best = comparison.and_then(|comparison| comparison.least(peers, measured));
            let ours = comparison.and_then(|comparison| comparison.series(Contender::Ours.name()));
            let what = format!("{name} of {what}, ≤ {bound} × the best peer ({scenario})");
            figures.push(Figure::of(what, bound, ours, best, measured));
        }
    }
    let direct = Contender::Direct.name();
    let crowd = Contender::Crowd.name();
    let waits: [(&str, &str, f64, &str, &str, Measure); 3] = [
        (
            "p50 of 100 clients on a private page",
            PRIVATE_PAGE,
            1.05,
            "asked directly",
            direct,
            Sample::p50_us,
        ),
        (
            "p99 of 100 clients on a private page",
            PRIVATE_PAGE,
            1.25,
            "asked directly",
            direct,
            Sample::p99_us,
        ),
        ("the last of a crowd", CROWD, 1.5, "a program in C that writes to the same", crowd, Sample::last_us),
    ];
    for (what, scenario, bound, beside, reference, measured) in waits {
        let comparison = comparisons.iter().find(|comparison| comparison.scenario == scenario);
        let series = |name| comparison.and_then(|comparison| comparison.series(name));
        let what = format!("{what}, ≤ {bound} × {beside} ({scenario})");
        figures.push(Figure::of(what, bound, series(Contender::Ours.name()), series(reference), measured));
    }
    figures
}

/// Tabulates the latencies of requests that went to the origin, as medians over the rounds.
pub(crate) fn latencies(comparisons: &[Comparison]) -> Option<Table> {
    let mut table = Table::new(
        "Latency, medians over the rounds",
        &[("scenario", ""), ("", ""), ("p50", "ms"), ("p99", "ms"), ("last", "ms")],
    );
    let through = |comparison: &&Comparison| {
        comparison.scenario == CROWD || THROUGH.iter().any(|one| one.1 == comparison.scenario)
    };
    for comparison in comparisons.iter().filter(through) {
        for series in &comparison.series {
            let cell = |measured: Measure| {
                let rounds: Vec<f64> = series.each(measured).into_iter().flatten().collect();
                median(&rounds).map_or_else(|| "–".to_owned(), |us| format!("{:.2}", us / 1e3))
            };
            table.row([
                comparison.scenario.clone(),
                series.name.clone(),
                cell(Sample::p50_us),
                cell(Sample::p99_us),
                cell(Sample::last_us),
            ]);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}
