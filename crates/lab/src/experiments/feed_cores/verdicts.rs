//! Verdicts on the claim, based on the figures of each placement.

use super::Graph;
use crate::{
    cores::Placement,
    experiment::{Report, Table, Verdict},
    experiments::servers::{
        by_cores, cell, cores_busy, doubt, draw_by_cores, gain, middle, middle_of, rates, times,
    },
    paired::{Series, spread::Ratio},
    report::grouped,
};

/// Minimum factor at which the CPU cost of a message counts as higher.
const DEARER: f64 = 1.05;
/// Published factor: 790 k/s on one core against 120 k/s unpinned.
const PUBLISHED: f64 = 6.5;

/// Builds the report of a run.
pub(super) fn report(graphs: &[Graph]) -> Report {
    let mut report = Report { data: serde_json::json!({ "graphs": graphs }), ..Report::default() };
    for graph in graphs {
        report.tables.push(table(graph));
    }
    figure(graphs, &mut report);
    for graph in graphs {
        judge(graph, &mut report);
    }
    explain(graphs, &mut report);
    report.note(
        "The load is never tied down. `free` is the server as it starts by itself: ours ties one loop to each core even \
         then, nats-server's threads go where the system puts them. Where a placement names every core that there is, \
         `free` and it differ, for nats-server, by noise alone.",
    );
    report
}

fn on(graph: &Graph, wanted: impl Fn(&Placement) -> bool) -> Option<&Series> {
    graph.placements.iter().position(wanted).and_then(|at| graph.series.get(at))
}

fn free(graph: &Graph) -> Option<&Series> {
    on(graph, |placement| placement.name == "free")
}

fn one(graph: &Graph) -> Option<&Series> {
    on(graph, |placement| placement.cores.len() == 1)
}

/// Returns the ratio of the throughput on all cores to the throughput without pinning. Both placements allow
/// the same cores, whether the kernel or the server itself places the threads, so a difference between them
/// is noise.
fn control(graph: &Graph) -> Option<Ratio> {
    let most = graph.placements.iter().find(|placement| placement.name == "free")?.cores.len();
    let all = on(graph, |placement| placement.name != "free" && placement.cores.len() == most)?;
    Ratio::paired(&rates(all), &rates(free(graph)?))
}

/// Relative width of the control ratio's interval above which the noise is too large: a ratio inside such an
/// interval gives no verdict.
const NOISE: f64 = 1.25;

fn is_within_noise(ratio: &Ratio, control: Option<&Ratio>) -> bool {
    control.is_some_and(|control| {
        control.high / control.low > NOISE && (control.low..=control.high).contains(&ratio.median)
    })
}

/// Returns the ratio of the throughput on one core to the throughput without pinning.
fn ratio(graph: &Graph) -> Option<Ratio> {
    Ratio::paired(&rates(one(graph)?), &rates(free(graph)?))
}

fn flows(graph: &Graph) -> String {
    match graph.flows {
        1 => "one producer, one consumer".to_owned(),
        flows => format!("{flows} producers, each with its consumer"),
    }
}

fn table(graph: &Graph) -> Table {
    let mut table = Table::new(
        format!("{}: {}", graph.server, flows(graph)),
        &[
            ("placement", ""),
            ("messages", "1/s"),
            ("to free", ""),
            ("CPU", "µs a message"),
            ("cores busy", ""),
            ("switches", "a 1,000 messages"),
            ("doubt", ""),
        ],
    );
    let base = free(graph).map(rates).unwrap_or_default();
    for (placement, series) in graph.placements.iter().zip(&graph.series) {
        let rates = rates(series);
        table.row([
            placement.name.clone(),
            middle(&rates).map_or_else(|| "–".to_owned(), |rate| grouped(rate as u64)),
            times(Ratio::paired(&rates, &base).as_ref()),
            cell(middle(&series.costs_us()), 3),
            cell(middle_of(series, cores_busy), 2),
            cell(middle_of(series, switches), 1),
            series.doubt().unwrap_or_default().to_owned(),
        ]);
    }
    table
}

fn switches(sample: &crate::paired::Sample) -> f64 {
    1e3 * (sample.switches_voluntary + sample.switches_involuntary) as f64 / sample.units.max(1) as f64
}

fn judge(graph: &Graph, report: &mut Report) {
    let article = "790 k/s on one core, 120 k/s unpinned: 6.6×";
    let who = format!("{}, {}", graph.server, flows(graph));
    if graph.placements.iter().all(|placement| placement.cores.len() < 2) {
        let ours = format!("{who}: there is one core only");
        return report.judge("C10", article, ours, Verdict::CannotBeTestedHere);
    }
    let ratio = ratio(graph);
    let rate = |series: Option<&Series>| {
        series.and_then(|series| middle(&rates(series))).map_or("–".to_owned(), |rate| grouped(rate as u64))
    };
    let ours = format!(
        "{who}: {} a second on one core, {} free: {}",
        rate(one(graph)),
        rate(free(graph)),
        times(ratio.as_ref())
    );
    let doubted = doubt([one(graph), free(graph)].into_iter().flatten());
    let noisy = ratio.as_ref().is_some_and(|ratio| is_within_noise(ratio, control(graph).as_ref()));
    let verdict =
        if doubted.is_some() || noisy { Verdict::TooNoisyToSay } else { gain(ratio.as_ref(), PUBLISHED) };
    report.judge("C10", article, ours, verdict);
}

/// Adds notes on the costs that rise with the number of cores while the throughput does not.
fn explain(graphs: &[Graph], report: &mut Report) {
    for graph in graphs.iter().filter(|graph| graph.flows == 1) {
        let (Some(one), Some(free)) = (one(graph), free(graph)) else { continue };
        let (Some(cost_one), Some(cost_free)) = (middle(&one.costs_us()), middle(&free.costs_us())) else {
            continue;
        };
        let (switches_one, switches_free) = (middle_of(one, switches), middle_of(free, switches));
        let why = if cost_free > DEARER * cost_one {
            "What one flow needs is done one message after another: a second core adds wake-ups and cache lines that \
             travel, and no work that could be done at the same time."
        } else {
            "The second core makes a message no dearer here: what it is paid for in wake-ups is saved where messages \
             gather and are handled together."
        };
        report.note(format!(
            "Why, for {}: a message costs {cost_one:.3} µs of CPU on one core and {cost_free:.3} µs free ({:.2}×), with \
             {} and {} context switches a thousand messages. {why}",
            graph.server,
            cost_free / cost_one,
            cell(switches_one, 1),
            cell(switches_free, 1)
        ));
    }
}

fn figure(graphs: &[Graph], report: &mut Report) {
    let curve = |graph: &Graph| {
        let points = by_cores(&graph.placements, &graph.series, |placement| {
            placement.name != "free" && !placement.siblings
        });
        (format!("{}, {} flows", graph.server, graph.flows), points)
    };
    let caption = "100 bytes a message, every one verified; medians of the rounds.";
    draw_by_cores(graphs.iter().map(curve).collect(), "messages", caption, report);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::servers::planted;

    fn graph(flows: usize, free: &[f64], one: &[f64]) -> Graph {
        let placement = |name: &str, cores: usize| Placement {
            name: name.to_owned(),
            cores: (0..cores).collect(),
            siblings: false,
        };
        Graph {
            server: "planted",
            flows,
            placements: vec![placement("free", 2), placement("1 core", 1), placement("2 cores", 2)],
            series: vec![
                planted("free", free, 1.5),
                planted("1 core", one, 1.0),
                planted("2 cores", free, 1.5),
            ],
        }
    }

    fn verdict(graph: Graph) -> Verdict {
        report(&[graph]).verdicts[0].verdict
    }

    #[test]
    fn the_verdict_follows_the_planted_core_cost() {
        let free = [1e5, 1.02e5, 0.99e5];
        assert_eq!(verdict(graph(1, &free, &[7.9e5, 8.0e5, 7.8e5])), Verdict::Holds);
        assert_eq!(verdict(graph(1, &free, &[2.0e5, 2.1e5, 1.9e5])), Verdict::HoldsWithAnotherFigure);
        assert_eq!(verdict(graph(16, &free, &[0.5e5, 0.5e5, 0.5e5])), Verdict::DoesNotHoldHere);
        assert_eq!(verdict(graph(1, &free, &[0.9e5, 1.2e5, 0.95e5])), Verdict::TooNoisyToSay);
    }

    #[test]
    fn what_the_control_moves_by_says_nothing() {
        let mut noisy = graph(1, &[1e5; 3], &[2e5; 3]);
        noisy.series[2] = planted("2 cores", &[0.5e5, 1e5, 2.5e5], 1.5);
        assert_eq!(verdict(noisy), Verdict::TooNoisyToSay);
    }

    #[test]
    fn doubtful_or_single_core_rounds_get_no_verdict() {
        let mut doubtful = graph(1, &[1e5; 3], &[8e5; 3]);
        doubtful.series[0].samples[0].doubts.push("a message was lost".into());
        assert_eq!(verdict(doubtful), Verdict::TooNoisyToSay);
        let mut alone = graph(1, &[1e5; 3], &[1e5; 3]);
        alone.placements.iter_mut().for_each(|placement| placement.cores.truncate(1));
        assert_eq!(verdict(alone), Verdict::CannotBeTestedHere);
    }

    #[test]
    fn the_graph_and_the_reason_are_there() {
        let report = report(&[graph(1, &[1e5; 3], &[2e5; 3])]);
        assert_eq!((report.figures.len(), report.tables.len()), (1, 1));
        // A core and a half for half as many messages is three times the CPU per message.
        assert!(report.notes.iter().any(|note| note.contains("(3.00×)")), "{:?}", report.notes);
    }
}
