//! The bounds for the feed, and the verdict on each.

use lab::paired::spread::{Ratio, Verdict};
use lab::paired::{Sample, Series};
use lab::peers::feed::contenders::Contender;

use crate::record::{Comparison, Figure};

/// Suffix of the names of Nighttrain and nats-server on two cores.
pub(crate) const TWO_CORES: &str = ", two cores";

/// Suffix of the names of Nighttrain and nats-server as leaf nodes of a hub.
pub(crate) const AT_HUB: &str = ", to a hub";

/// Computes every figure that these comparisons have the data for.
pub(crate) fn all(comparisons: &[Comparison]) -> Vec<Figure> {
    let floor = Contender::Floor.name();
    let ours = Contender::Ours.name();
    let nats = Contender::Nats.name();
    let find = |scenario: &str| comparisons.iter().find(|comparison| comparison.scenario == scenario);
    let against = |what: &str, scenario: &str, contender: &str, bound: f64, reference: &str| {
        let series = |name: &str| find(scenario).and_then(|comparison| comparison.series(name));
        Figure::at_most(format!("{what} ({scenario})"), bound, series(contender), series(reference))
    };
    let cheapest = |what: &str, scenario: &str, bound: f64| {
        let comparison = find(scenario);
        let peers = Contender::PEERS.map(Contender::name);
        let best = comparison.and_then(|comparison| comparison.cheapest(peers));
        let ours = comparison.and_then(|comparison| comparison.series(ours));
        Figure::at_most(format!("{what} ({scenario})"), bound, ours, best)
    };
    let mut figures = vec![
        against("1→1, ≤ 2 × the floor", "one", ours, 2.0, floor),
        against("1→1, ≤ 1/4 of nats-server's", "one", ours, 0.25, nats),
        cheapest("1→1, ≤ 1/3 of the cheapest peer's", "one", 1.0 / 3.0),
    ];
    for (scenario, name) in [("ten", "1→10"), ("hundred", "1→100")] {
        figures.push(against(&format!("{name}, ≤ 2.5 × the floor"), scenario, ours, 2.5, floor));
        figures.push(against(&format!("{name}, ≤ 1/5 of nats-server's"), scenario, ours, 0.2, nats));
        figures.push(cheapest(&format!("{name}, ≤ 1/2.5 of the cheapest peer's"), scenario, 0.4));
    }
    figures.push(cheapest("no consumer, ≤ 1/2 of the cheapest peer's", "none", 0.5));
    for (what, bound, reference) in [
        ("a message to a hub, ≤ 2 × one between two clients", 2.0, ours.to_owned()),
        ("a message to a hub, ≤ 1/2 of nats-server's as a leaf node", 0.5, format!("{nats}{AT_HUB}")),
    ] {
        figures.push(against(what, "leaf", &format!("{ours}{AT_HUB}"), bound, &reference));
    }
    for (scenario, what) in [
        ("cores-one", "1→1, time a delivery on two cores ≤ on one"),
        ("cores-pairs", "many pairs, time a delivery on two cores ≤ on one"),
    ] {
        let series = |name: &str| find(scenario).and_then(|comparison| comparison.series(name));
        figures.push(faster(
            format!("{what} ({scenario})"),
            series(&format!("{ours}{TWO_CORES}")),
            series(ours),
        ));
    }
    let reference = Contender::Reference.name();
    if comparisons.iter().any(|comparison| comparison.series(reference).is_some()) {
        for scenario in ["one", "ten", "hundred"] {
            figures.push(against("our floor, ≤ 1.05 × the shared floor", scenario, floor, 1.05, reference));
        }
    }
    // A scenario that was not selected gets no figure, not even "not measured".
    figures.retain(|figure| {
        comparisons.iter().any(|comparison| figure.what.contains(&format!("({})", comparison.scenario)))
    });
    figures
}

/// Compares the elapsed time per delivery, not the CPU time.
fn faster(what: String, two: Option<&Series>, one: Option<&Series>) -> Figure {
    let (Some(two), Some(one)) = (two, one) else {
        let remark = "the contender did not take part".into();
        return Figure { what, bound: 1.0, ratio: None, verdict: Verdict::NotMeasured, remark };
    };
    let times = |series: &Series| -> Vec<Option<f64>> {
        let time = |sample: &Sample| (sample.units > 0).then(|| sample.wall_s / sample.units as f64);
        series.samples.iter().map(time).collect()
    };
    let ratio = Ratio::paired(&times(two), &times(one));
    let verdict = ratio.map_or(Verdict::NotMeasured, |ratio| Verdict::at_most(1.0, &ratio));
    Figure { what, bound: 1.0, ratio, verdict, remark: format!("{} against {}", two.name, one.name) }
}
