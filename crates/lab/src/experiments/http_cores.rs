//! `http-cores`: rates of small pages served from one core, two cores and all cores, with the load of each
//! core (C22).
//!
//! This is the counter-example to `feed-cores`: independent requests can be answered at the same time, so a
//! CPU-bound server gains from each additional core. The load is never pinned; if server and load share all
//! cores, the sum of their CPU time is bounded, and the table shows it.

use std::{cell::RefCell, path::PathBuf};

use serde::Serialize;

use super::{
    cache_vs_peers::Bench,
    servers::{all_cores, by_cores, cell, cores_busy, doubt, draw_by_cores, middle, middle_of, rates, times},
};
use crate::{
    cores::{Placement, placements},
    experiment::{Experiment, Options, Refusal, Report, Table, Verdict},
    paired::{
        Series, interleave,
        spread::{ROUNDS_MIN, Ratio},
        tree::{Cores, busy_s},
    },
    peers::{
        PeerError,
        cache::contenders::{Contender, ServerProcess},
    },
    placement::allowed,
    report::grouped,
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "http-cores",
    claims: &["C22"],
    title: "small pages: the server on one core, on two, on all",
    statement: "A server that is bound by its CPU (Tomcat with a tiny page) gains nothing from being tied to one core",
    source: "P. Tyma, How I sped up my server by a factor of 6, June 2010",
    run,
};

/// Figures of one server under every placement.
#[derive(Debug, Clone, Serialize)]
struct Graph {
    server: &'static str,
    placements: Vec<Placement>,
    series: Vec<Series>,
    /// For each placement, the busy fraction of each allowed core, whichever process used it; medians.
    busy: Vec<Vec<f64>>,
}

fn run(options: &Options) -> Result<Report, Refusal> {
    let ours = Contender::Ours.program().map_err(Refusal::Missing)?;
    let mut here = vec![(Contender::Ours, ours)];
    let mut remarks = Vec::new();
    // Varnish has a thread per busy connection, as Tomcat does in the published test.
    match Contender::Varnish.program() {
        Ok(program) => here.push((Contender::Varnish, program)),
        Err(why) => remarks.push(why),
    }
    let (rounds, seconds) = if options.quick { (3, 1) } else { (7, 2) };
    let graphs = measured(&here, (rounds, seconds), &|what| options.say(what))?;
    let mut report = report(&graphs);
    for remark in remarks {
        report.note(remark);
    }
    Ok(report)
}

fn measured(
    here: &[(Contender, PathBuf)],
    (rounds, seconds): (usize, u64),
    say: &dyn Fn(&str),
) -> Result<Vec<Graph>, Refusal> {
    let bench = Bench::prepared()?;
    let load = all_cores()?;
    let cores = allowed().map_err(PeerError::from)?;
    // The free placement is left out: these servers use all the cores that they are allowed to use, so it
    // equals the placement on all cores.
    let placements: Vec<Placement> = placements()
        .map_err(PeerError::from)?
        .into_iter()
        .filter(|placement| placement.name != "free")
        .collect();
    let mut seats: Vec<(String, ServerProcess)> = Vec::new();
    for (contender, program) in here {
        for placement in &placements {
            let name = format!("{}, {}", contender.name(), placement.name);
            say(&format!("starting {name}"));
            let on = Cores::new(placement.cores.clone())
                .ok_or_else(|| Refusal::Failed("a placement on no core".to_owned()))?;
            let slug = name.replace([' ', ','], "-");
            seats.push((name, bench.filled(*contender, &slug, program, &on, &load)?));
        }
    }
    let shares: RefCell<Vec<Vec<Vec<f64>>>> = RefCell::new(vec![Vec::new(); seats.len()]);
    let at = RefCell::new(0);
    let series = interleave(&seats, rounds, |server, round| {
        say(&format!("round {} of {rounds}: {}", round + 1, server.name));
        let busy = || cores.iter().map(|core| core_busy_s(*core)).collect::<Result<Vec<_>, _>>();
        let before = busy()?;
        let sample = bench.sample(server, seconds);
        let after = busy()?;
        let share = |(after, before): (&f64, &f64)| ((after - before) / sample.wall_s.max(1e-9)).min(1.0);
        let seat = at.replace_with(|at| *at + 1) % seats.len();
        shares.borrow_mut()[seat].push(after.iter().zip(&before).map(share).collect());
        Ok::<_, Refusal>(sample)
    })?;
    let mut busy = shares.into_inner().into_iter().map(|rounds| middles(&rounds));
    let mut series = series.into_iter();
    Ok(here
        .iter()
        .map(|(contender, _)| Graph {
            server: contender.name(),
            placements: placements.clone(),
            series: series.by_ref().take(placements.len()).collect(),
            busy: busy.by_ref().take(placements.len()).collect(),
        })
        .collect())
}

fn core_busy_s(core: usize) -> Result<f64, PeerError> {
    let one = Cores::new(vec![core]).ok_or_else(|| PeerError::failed("no core"))?;
    Ok(busy_s(&one)?)
}

/// Returns the median of each column.
fn middles(rounds: &[Vec<f64>]) -> Vec<f64> {
    let columns = rounds.first().map_or(0, Vec::len);
    (0..columns)
        .filter_map(|column| {
            middle(&rounds.iter().map(|round| round.get(column).copied()).collect::<Vec<_>>())
        })
        .collect()
}

fn report(graphs: &[Graph]) -> Report {
    let mut report = Report { data: serde_json::json!({ "graphs": graphs }), ..Report::default() };
    for graph in graphs {
        report.tables.push(table(graph));
    }
    figure(graphs, &mut report);
    for graph in graphs {
        judge(graph, &mut report);
    }
    report.note(
        "The load (wrk) is never tied down and needs CPU of its own. Where the server may use all cores, both share \
         them: what the server gains by a core it partly takes from the load. On a machine with more cores than the load \
         needs, the gain is the server's alone.",
    );
    report
}

fn all_against_one(graph: &Graph) -> Option<Ratio> {
    let by_cores = |most: bool| {
        let counted = graph
            .placements
            .iter()
            .zip(&graph.series)
            .filter(|(placement, _)| placement.name != "2 siblings");
        let key = |(placement, _): &(&Placement, &Series)| placement.cores.len();
        if most { counted.max_by_key(key) } else { counted.min_by_key(key) }
    };
    let (all, one) = (by_cores(true)?, by_cores(false)?);
    if all.0.cores.len() == one.0.cores.len() {
        return None;
    }
    Ratio::paired(&rates(all.1), &rates(one.1))
}

/// Ratio from which all cores serve at least as much as one; a loss up to this is attributed to the load.
const SAME: f64 = 0.95;

fn judge(graph: &Graph, report: &mut Report) {
    let article = "one core instead of all: no gain for a server that is bound by its CPU";
    let ratio = all_against_one(graph);
    let ours = format!("{}: all cores serve {} what one core serves", graph.server, times(ratio.as_ref()));
    let verdict = match &ratio {
        None => Verdict::CannotBeTestedHere,
        Some(_) if doubt(&graph.series).is_some() => Verdict::TooNoisyToSay,
        Some(ratio) if ratio.rounds < ROUNDS_MIN => Verdict::TooNoisyToSay,
        Some(ratio) if ratio.low >= SAME => Verdict::Holds,
        Some(ratio) if ratio.high < SAME => Verdict::DoesNotHoldHere,
        Some(_) => Verdict::TooNoisyToSay,
    };
    report.judge("C22", article, ours, verdict);
}

fn table(graph: &Graph) -> Table {
    let mut table = Table::new(
        format!("{}: a page of 1 KiB, 64 connections", graph.server),
        &[
            ("placement", ""),
            ("pages", "1/s"),
            ("to one core", ""),
            ("CPU", "µs a page"),
            ("server", "cores busy"),
            ("each core busy, with the load", "%"),
            ("doubt", ""),
        ],
    );
    let base = graph.series.first().map(rates).unwrap_or_default();
    for ((placement, series), busy) in graph.placements.iter().zip(&graph.series).zip(&graph.busy) {
        let rates = rates(series);
        let shares: Vec<String> = busy.iter().map(|share| format!("{:.0}", 100.0 * share)).collect();
        table.row([
            placement.name.clone(),
            middle(&rates).map_or_else(|| "–".to_owned(), |rate| grouped(rate as u64)),
            times(Ratio::paired(&rates, &base).as_ref()),
            cell(middle(&series.costs_us()), 2),
            cell(middle_of(series, cores_busy), 2),
            shares.join(" "),
            series.doubt().unwrap_or_default().to_owned(),
        ]);
    }
    table
}

fn figure(graphs: &[Graph], report: &mut Report) {
    let curve = |graph: &Graph| {
        let points = by_cores(&graph.placements, &graph.series, |placement| placement.name != "2 siblings");
        (graph.server.to_owned(), points)
    };
    let caption = "1 KiB a page, 64 connections; medians of the rounds.";
    draw_by_cores(graphs.iter().map(curve).collect(), "pages", caption, report);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::servers::planted;

    fn graph(one: &[f64], two: &[f64]) -> Graph {
        let placement = |name: &str, cores: usize| Placement {
            name: name.to_owned(),
            cores: (0..cores).collect(),
            siblings: false,
        };
        Graph {
            server: "planted",
            placements: vec![placement("1 core", 1), placement("2 cores", 2)],
            series: vec![planted("1 core", one, 1.0), planted("2 cores", two, 2.0)],
            busy: vec![vec![1.0, 0.5], vec![1.0, 1.0]],
        }
    }

    fn verdict(one: &[f64], two: &[f64]) -> Verdict {
        report(&[graph(one, two)]).verdicts[0].verdict
    }

    #[test]
    fn the_verdict_follows_the_planted_core_gain() {
        let one = [10_000.0, 10_100.0, 9_900.0];
        assert_eq!(verdict(&one, &[19_000.0; 3]), Verdict::Holds);
        assert_eq!(
            verdict(&one, &[10_000.0; 3]),
            Verdict::Holds,
            "no gain either way is no gain of one core"
        );
        assert_eq!(verdict(&one, &[5_000.0; 3]), Verdict::DoesNotHoldHere);
        assert_eq!(verdict(&one, &[9_000.0, 12_000.0, 9_200.0]), Verdict::TooNoisyToSay);
        let mut alone = graph(&one, &one);
        alone.placements.truncate(1);
        alone.series.truncate(1);
        assert_eq!(report(&[alone]).verdicts[0].verdict, Verdict::CannotBeTestedHere);
    }

    #[test]
    fn core_use_is_the_median_of_rounds() {
        assert_eq!(middles(&[vec![0.1, 0.9], vec![0.3, 0.7], vec![0.2, 0.8]]), [0.2, 0.8]);
        let table = table(&graph(&[1e4; 3], &[2e4; 3]));
        assert_eq!(table.rows[0][5], "100 50");
    }
}
