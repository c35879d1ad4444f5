//! The simulation with costs that the user chose for a transfer, an operation and a first touch, instead of the
//! article's.

use bheap::PageQueue;
use bheap::blocks::{Arena, TracedBlocks};
use serde_json::json;

use super::article::{CPU_S, ITEMS, TRANSFER_S};
use super::cpu;
use super::findings::{SEED, figure, sampled};
use super::keys::Random3;
use super::lru::{LruTransfers, Transfers};
use super::phases::three_phases;
use super::run::{Shape, SimulatedHeaps};
use crate::costs::{Costs, Cpu, FirstTouch};
use crate::experiment::{Options, Refusal, Report, Table};
use crate::report::grouped;
use crate::report::plot::{Axis, Plot, Series, Stroke};

/// Costs as numbers.
#[derive(Debug, Clone, Copy)]
struct Prices {
    read_s: f64,
    write_s: f64,
    /// CPU seconds of all operations: binary heap, B-heap, page queue.
    cpu_s: [f64; 3],
    first: FirstTouch,
}

impl Prices {
    fn of(costs: &Costs, shape: Shape, options: &Options) -> Self {
        let operations = shape.operations() as f64;
        let cpu_s = match costs.cpu.unwrap_or(Cpu::Article) {
            Cpu::Article => [CPU_S.0, CPU_S.1, CPU_S.1].map(|all| all / (4 * ITEMS) as f64 * operations),
            Cpu::Given(each) => each.map(|each| each * operations),
            Cpu::Measured => {
                options.say("CPU time of the queues without pressure");
                let rounds = if options.quick { 3 } else { 7 };
                let (binary, paged) = cpu::measure(shape.items, shape.page_bytes, rounds).medians();
                [binary, paged, cpu::of_page_queue(shape.items, shape.page_bytes, rounds)]
            }
        };
        Self {
            read_s: costs.page_read_s.unwrap_or(TRANSFER_S.0),
            write_s: costs.page_write_s.unwrap_or(TRANSFER_S.0),
            cpu_s,
            first: costs.first_touch.unwrap_or(FirstTouch::Free),
        }
    }

    fn reads(&self, transfers: Transfers) -> u64 {
        match self.first {
            FirstTouch::Free => transfers.reads,
            FirstTouch::Charged => transfers.reads + transfers.first_touches,
        }
    }

    fn runtime_s(&self, queue: usize, transfers: Transfers) -> f64 {
        self.cpu_s[queue]
            + self.reads(transfers) as f64 * self.read_s
            + transfers.writes as f64 * self.write_s
    }
}

const NAMES: [&str; 3] = ["binary heap", "B-heap", "page queue"];

/// Simulates both classic heaps and the page queue with the costs that the user chose, and reports transfers
/// and run times.
///
/// # Errors
/// Returns [`Refusal`] if the memory has no page, or if no page queue has pages of this size.
pub(super) fn report(options: &Options, shape: Shape) -> Result<Report, Refusal> {
    let costs = &options.costs;
    if costs.memory_pages == Some(0) {
        return Err(Refusal::Usage("--memory-pages 0: at least one page".to_owned()));
    }
    options.say("three queues through the three phases before a perfect memory");
    let (simulated, queue) = std::thread::scope(|scope| {
        let simulated = scope.spawn(|| shape.simulate(SEED));
        let queue = page_queue(shape, costs.memory_pages);
        (simulated.join(), queue)
    });
    let Ok(simulated) = simulated else {
        return Err(Refusal::Failed("the simulation panicked".to_owned()));
    };
    let queue = queue?;
    let prices = Prices::of(costs, shape, options);
    let pages = simulated.pages.max(queue.pages());
    let residents = costs.memory_pages.map_or_else(|| sampled(pages), |one| vec![one]);
    let mut report = Report::default();
    tables(&mut report, &simulated, &queue, &prices, &residents);
    if residents.len() > 1 {
        draw(&mut report, &simulated, &queue, &prices, &residents);
    }
    report.note(format!(
        "{} items of {} bytes, {} a page; {} operations, each one insert or one remove. Reading a page takes {} s, writing \
         one {} s; all operations take {:.2}, {:.2} and {:.2} s of CPU ({}); first touches are {}.",
        grouped(shape.items as u64),
        shape.item_bytes,
        grouped(shape.page_items() as u64),
        grouped(shape.operations() as u64),
        prices.read_s,
        prices.write_s,
        prices.cpu_s[0],
        prices.cpu_s[1],
        prices.cpu_s[2],
        NAMES.join(", "),
        if prices.first == FirstTouch::Free { "free" } else { "charged" },
    ));
    report.note("The article's claims are judged at its own sizes and costs: without these options.");
    Ok(report)
}

fn page_queue(shape: Shape, memory_pages: Option<usize>) -> Result<LruTransfers, Refusal> {
    let memory = LruTransfers::new(shape.page_bytes);
    let parts = (memory_pages.unwrap_or(9) / 4).clamp(4, 16);
    match shape.item_bytes {
        4 => drive::<u32>(shape, parts, &memory),
        16 => drive::<u128>(shape, parts, &memory),
        _ => drive::<u64>(shape, parts, &memory),
    }
    .map_err(|error| Refusal::Usage(format!("--page-bytes {}: {error}", shape.page_bytes)))?;
    Ok(memory)
}

fn drive<T: Ord + Copy + TryFrom<u64> + TryInto<u64>>(
    shape: Shape,
    parts: usize,
    memory: &LruTransfers,
) -> Result<(), bheap::layout::PageSizeError> {
    let blocks = TracedBlocks::new(Arena::<T>::new(shape.page_bytes)?, memory);
    let mut random = Random3::new(SEED);
    let mut queue = PageQueue::with_store(blocks, parts);
    three_phases(&mut queue, shape.items, |_| random.next().map_or(0, u64::from));
    Ok(())
}

fn at(simulated: &SimulatedHeaps, queue: &LruTransfers, resident: usize) -> [Transfers; 3] {
    let (binary, paged) = simulated.at(resident);
    [binary, paged, queue.transfers(resident)]
}

fn tables(
    report: &mut Report,
    simulated: &SimulatedHeaps,
    queue: &LruTransfers,
    prices: &Prices,
    residents: &[usize],
) {
    let mut transfers = Table::new(
        "Pages read and written",
        &[
            ("pages resident", ""),
            ("binary heap", "read"),
            ("", "written"),
            ("B-heap", "read"),
            ("", "written"),
            ("page queue", "read"),
            ("", "written"),
        ],
    );
    let mut runtimes = Table::new(
        "Runtime at these costs",
        &[
            ("pages resident", ""),
            ("binary heap", "s"),
            ("B-heap", "s"),
            ("page queue", "s"),
            ("binary ÷ B-heap", ""),
            ("B-heap ÷ page queue", ""),
        ],
    );
    let mut data = Vec::new();
    for &resident in residents {
        let found = at(simulated, queue, resident);
        let times = [0, 1, 2].map(|which| prices.runtime_s(which, found[which]));
        let mut counts = vec![grouped(resident as u64)];
        for transfers in found {
            counts.push(grouped(prices.reads(transfers)));
            counts.push(grouped(transfers.writes));
        }
        transfers.row(counts);
        let mut row = vec![grouped(resident as u64)];
        row.extend(times.map(figure));
        row.extend([figure(times[0] / times[1]), figure(times[1] / times[2])]);
        runtimes.row(row);
        let each: Vec<_> = (0..3)
            .map(|which| {
                json!({
                    "queue": NAMES[which], "reads": prices.reads(found[which]),
                    "writes": found[which].writes, "runtime_s": times[which],
                })
            })
            .collect();
        data.push(json!({ "resident": resident, "queues": each }));
    }
    report.tables.extend([transfers, runtimes]);
    report.data = json!({
        "items": simulated.shape.items,
        "page_bytes": simulated.shape.page_bytes,
        "item_bytes": simulated.shape.item_bytes,
        "pages": simulated.pages,
        "page_queue_pages": queue.pages(),
        "page_read_s": prices.read_s,
        "page_write_s": prices.write_s,
        "cpu_s": prices.cpu_s,
        "first_touch": if prices.first == FirstTouch::Free { "free" } else { "charged" },
        "sizes": data,
    });
}

fn draw(
    report: &mut Report,
    simulated: &SimulatedHeaps,
    queue: &LruTransfers,
    prices: &Prices,
    residents: &[usize],
) {
    let strokes = [Stroke::Two, Stroke::One, Stroke::Four];
    let curves: Vec<Series> = (0..3)
        .map(|which| {
            let time = |resident: usize| prices.runtime_s(which, at(simulated, queue, resident)[which]);
            let points = residents.iter().map(|&resident| (resident as f64, time(resident))).collect();
            Series::new(NAMES[which], strokes[which], points)
        })
        .collect();
    let values = || curves.iter().flat_map(|series| &series.points).map(|point| point.1.max(1e-9));
    let floor = values().fold(f64::INFINITY, f64::min).log10().floor();
    let ceiling = values().fold(0.0, f64::max).log10().ceil().max(floor + 1.0);
    let last = residents.last().copied().unwrap_or(10).max(10) as f64;
    let title = "Runtime at these costs, by the memory that there is";
    let plot = Plot {
        x: Axis::log("pages resident", 1.0, last * 1.1),
        left: Axis::log("runtime [s]", 10_f64.powf(floor), 10_f64.powf(ceiling)),
        right: None,
        series: curves,
        references: Vec::new(),
    };
    report.figure(title, plot.draw(title), "At the right everything is resident, and only CPU time remains.");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(costs: Costs) -> Report {
        let options = Options { costs, ..Options::default() };
        report(&options, Shape { items: 20_000, page_bytes: 512, item_bytes: 4 }).unwrap()
    }

    fn runtime(report: &Report, queue: usize) -> f64 {
        report.data["sizes"][0]["queues"][queue]["runtime_s"].as_f64().unwrap()
    }

    #[test]
    fn each_cost_adds_what_it_should() {
        let free = Costs {
            memory_pages: Some(9),
            page_read_s: Some(0.0),
            page_write_s: Some(0.0),
            cpu: Some(Cpu::Given([1e-3, 2e-3, 3e-3])),
            first_touch: Some(FirstTouch::Free),
        };
        let base = run(free);
        assert!((runtime(&base, 0) - 80.0).abs() < 1e-9 && (runtime(&base, 2) - 240.0).abs() < 1e-9);
        for queue in 0..3 {
            let count = |what: &str| base.data["sizes"][0]["queues"][queue][what].as_u64().unwrap() as f64;
            let more = |costs: Costs| runtime(&run(costs), queue) - runtime(&base, queue);
            let reading = more(Costs { page_read_s: Some(0.5), ..free });
            let writing = more(Costs { page_write_s: Some(0.25), ..free });
            assert!((reading - count("reads") * 0.5).abs() < 1e-6 && reading > 0.0);
            assert!((writing - count("writes") * 0.25).abs() < 1e-6 && writing > 0.0);
            let charged = Costs { page_read_s: Some(0.5), first_touch: Some(FirstTouch::Charged), ..free };
            // 20,000 items of 4 bytes in pages of 512 bytes touch at least 157 pages once.
            assert!(more(charged) - reading >= 157.0 * 0.5, "{}", more(charged) - reading);
        }
        assert!(base.figures.is_empty() && base.tables[0].rows.len() == 1, "one size of memory is no curve");
    }

    #[test]
    fn costs_without_a_memory_size_give_a_curve() {
        let report = run(Costs { page_read_s: Some(80e-6), ..Costs::default() });
        assert_eq!((report.figures.len(), report.verdicts.len()), (1, 0));
        assert!(report.tables[1].rows.len() > 10);
        let none =
            Options { costs: Costs { memory_pages: Some(0), ..Costs::default() }, ..Options::default() };
        let shape = Shape { items: 100, page_bytes: 512, item_bytes: 4 };
        assert!(matches!(super::report(&none, shape), Err(Refusal::Usage(_))));
    }
}
