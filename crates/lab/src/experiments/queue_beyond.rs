//! `queue-beyond`: the page queue under short memory, in RAM, and operation by operation (C8).

use super::bheap_sim::lru::AllSizes;
use super::bheap_sim::{Rows, Which, random_keys, run};
use super::outcome::{Outcome, Table, Verdict};
use super::plot::{Line, Plot};
use bheap::PageQueue;
use bheap::blocks::Arena;
use bheap::heap::Heap;
use bheap::layout::{Binary, Dary, Layout, PageSizeError, Paged};
use bheap::memory::AlignedRows;
use std::cmp::Reverse;
use std::time::Instant;

/// A named sequence of keys; each is made from the key that left last.
pub type Keys = (&'static str, Box<dyn FnMut(u64) -> u64>);

/// The sequences besides the article's, with seeds that nothing was tuned on.
#[must_use]
pub fn sequences() -> Vec<Keys> {
    let mut random = 0x51ED_270B_9F2A_11D7_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let (mut up, mut down) = (0, u64::MAX / 2);
    let (mut other, mut more) = (next, next);
    vec![
        ("uniform, another seed", Box::new(random_keys(20_250_101))),
        (
            "sorted",
            Box::new(move |_| {
                up += 1;
                up
            }),
        ),
        (
            "reversed",
            Box::new(move |_| {
                down -= 1;
                down
            }),
        ),
        ("clustered", Box::new(move |_| ((next() % 50) << 40) + next() % 10_000)),
        (
            "expiries: now + a popular ttl",
            Box::new(move |now| {
                now + [60_000, 600_000, 3_600_000, 86_400_000][(other() >> 40) as usize % 4] + other() % 1000
            }),
        ),
        ("ten different keys", Box::new(move |_| more() % 10)),
    ]
}

/// Under short memory: the article's keys, then the other sequences.
///
/// # Errors
/// Never for the article's page size.
pub fn under_pressure(items: usize) -> Result<Outcome, PageSizeError> {
    let operations = 4.0 * items as f64;
    let per = |memory: &AllSizes, resident: usize| memory.transfers(resident).charged() as f64 / operations;
    let small = run(Which::Beyond(9), items, 4096, Rows::Aligned, random_keys(1))?;
    let large = run(Which::Beyond(64), items, 4096, Rows::Aligned, random_keys(1))?;
    let paged = run(Which::BHeap, items, 4096, Rows::Aligned, random_keys(1))?;
    let sizes = [8, 9, 10, 12, 16, 32, 64, 128, 256, 512, 1024, 1800, 1953, 1970, 2000];
    let mut table = Table::new(
        "Transfers an operation, first touches charged",
        &["pages resident", "B-heap", "page queue for 9 pages", "page queue for 64 pages"],
    );
    for resident in sizes {
        let cells = [&paged, &small, &large].map(|memory| format!("{:.5}", per(memory, resident)));
        table.rows.push(std::iter::once(resident.to_string()).chain(cells).collect());
    }
    let above = |memory: &AllSizes| {
        (8..=1800).filter(|&resident| per(memory, resident) > per(&paged, resident)).count()
    };
    let mut verdicts = vec![
        Verdict::at_most("transfers an operation at 9 pages", per(&small, 9), 0.015, ""),
        Verdict::at_most("transfers an operation at 64 pages", per(&large, 64), 0.004, ""),
        Verdict::at_most(
            "sizes from 8 to 1,800 pages at which it is above the B-heap (for 9 pages)",
            above(&small) as f64,
            0.0,
            "",
        ),
        Verdict::at_most(
            "sizes from 8 to 1,800 pages at which it is above the B-heap (for 64 pages)",
            above(&large) as f64,
            0.0,
            "",
        ),
    ];
    let mut others = Table::new(
        "Other keys, transfers an operation at nine pages, charged",
        &["keys", "B-heap", "page queue"],
    );
    for ((name, keys), (_, again)) in sequences().into_iter().zip(sequences()) {
        let queue = run(Which::Beyond(9), items, 4096, Rows::Aligned, keys)?;
        let heap = run(Which::BHeap, items, 4096, Rows::Aligned, again)?;
        others.rows.push(vec![
            name.into(),
            format!("{:.5}", per(&heap, 9)),
            format!("{:.5}", per(&queue, 9)),
        ]);
        verdicts.push(Verdict::at_most(
            &format!("{name}: share of the B-heap's transfers at 9 pages"),
            per(&queue, 9) / per(&heap, 9),
            1.0,
            "",
        ));
    }
    let line = |name: &str, memory: &AllSizes| Line {
        name: name.into(),
        right: false,
        points: (8..2000).step_by(8).map(|resident| (resident as f64, per(memory, resident))).collect(),
    };
    let plot = Plot {
        x: "pages resident".into(),
        left: "transfers an operation".into(),
        right: String::new(),
        log: true,
        lines: vec![
            line("B-heap", &paged),
            line("page queue for 9", &small),
            line("page queue for 64", &large),
        ],
    };
    Ok(Outcome {
        name: "queue-beyond".into(),
        title: format!(
            "With nine pages the page queue moves {:.0} times fewer pages than the B-heap",
            per(&paged, 9) / per(&small, 9)
        ),
        notes: vec![format!(
            "{items} items of 8 bytes, pages of 4,096; the small heap, the front, the lists' headers and the chunk in hand are counted like any other page. In all {} and {} pages; the B-heap {}.",
            small.pages(),
            large.pages(),
            paged.pages()
        )],
        tables: vec![table, others],
        verdicts,
        drawings: vec![("Transfers an operation against memory.".into(), plot.svg())],
    })
}

type Item = (u64, u64);

trait Timed {
    fn push(&mut self, item: Item);
    fn pop(&mut self) -> Option<Item>;
}

impl<L: Layout, R: bheap::Rows<Item>> Timed for Heap<Item, L, R> {
    fn push(&mut self, item: Item) {
        Heap::push(self, item);
    }
    fn pop(&mut self) -> Option<Item> {
        Heap::pop(self)
    }
}

impl Timed for PageQueue<Item> {
    fn push(&mut self, item: Item) {
        PageQueue::push(self, item);
    }
    fn pop(&mut self) -> Option<Item> {
        PageQueue::pop(self)
    }
}

impl Timed for std::collections::BinaryHeap<Reverse<Item>> {
    fn push(&mut self, item: Item) {
        self.push(Reverse(item));
    }
    fn pop(&mut self) -> Option<Item> {
        self.pop().map(|item| item.0)
    }
}

impl<const D: usize> Timed for dary_heap::DaryHeap<Reverse<Item>, D> {
    fn push(&mut self, item: Item) {
        self.push(Reverse(item));
    }
    fn pop(&mut self) -> Option<Item> {
        self.pop().map(|item| item.0)
    }
}

struct Orx(orx_priority_queue::DaryHeap<u64, u64, 4>);

impl Timed for Orx {
    fn push(&mut self, item: Item) {
        orx_priority_queue::PriorityQueue::push(&mut self.0, item.1, item.0);
    }
    fn pop(&mut self) -> Option<Item> {
        orx_priority_queue::PriorityQueue::pop(&mut self.0).map(|(node, key)| (key, node))
    }
}

/// Nanoseconds an operation in each phase, and over all (an insert or a remove is one operation).
fn time(queue: &mut dyn Timed, items: usize, repeats: usize, seed: u64) -> [f64; 4] {
    let mut random = seed;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 33, random)
    };
    let mut phases = [0.0; 3];
    for _ in 0..repeats {
        let start = Instant::now();
        (0..items).for_each(|_| queue.push(next()));
        let inserted = Instant::now();
        for _ in 0..items {
            std::hint::black_box(queue.pop());
            queue.push(next());
        }
        let held = Instant::now();
        for _ in 0..items {
            std::hint::black_box(queue.pop());
        }
        let done = Instant::now();
        for (phase, spent) in phases.iter_mut().zip([inserted - start, held - inserted, done - held]) {
            *phase += spent.as_secs_f64() * 1e9;
        }
    }
    let operations = (items * repeats) as f64;
    [
        phases[0] / operations,
        phases[1] / operations / 2.0,
        phases[2] / operations,
        phases.iter().sum::<f64>() / operations / 4.0,
    ]
}

/// In RAM, u64 key and u64 handle: every heap, interleaved, the median of `rounds` rounds. `others` are queues in
/// other languages, timed by their own program in the same round: a name and nanoseconds a phase.
///
/// # Errors
/// Never for the page sizes used.
pub fn in_memory(
    items: usize,
    rounds: usize,
    mut others: impl FnMut(usize, usize) -> Vec<(String, [f64; 4])>,
) -> Result<Outcome, PageSizeError> {
    let repeats = (1_000_000 / items).max(1);
    let mut samples: Vec<(String, Vec<[f64; 4]>)> = Vec::new();
    for round in 0..rounds {
        let seed = 0x9E37_79B9_7F4A_7C15 ^ (round as u64 + 1);
        let mut queues: Vec<(&str, Box<dyn Timed>)> = vec![
            ("page queue", Box::new(PageQueue::with_store(Arena::new(4096)?, 16))),
            ("binary", Box::new(Heap::with_rows(Binary, Vec::new()))),
            ("4-ary", Box::new(Heap::with_rows(Dary::<4>, Vec::new()))),
            ("8-ary aligned", Box::new(Heap::with_rows(Dary::<8>, AlignedRows::new(128, 7)?))),
            (
                "B-heap",
                Box::new(Heap::with_rows(Paged::for_page_bytes::<Item>(4096)?, AlignedRows::new(4096, 1)?)),
            ),
            ("std::collections", Box::new(std::collections::BinaryHeap::new())),
            ("dary_heap 4", Box::new(dary_heap::DaryHeap::<_, 4>::new())),
            ("dary_heap 8", Box::new(dary_heap::DaryHeap::<_, 8>::new())),
            ("orx-priority-queue 4", Box::new(Orx(orx_priority_queue::DaryHeap::default()))),
        ];
        let turn = round % queues.len();
        queues.rotate_left(turn);
        for (name, mut queue) in queues {
            let figures = time(queue.as_mut(), items, repeats, seed);
            match samples.iter_mut().find(|sample| sample.0 == name) {
                Some(sample) => sample.1.push(figures),
                None => samples.push((name.to_owned(), vec![figures])),
            }
        }
        for (name, figures) in others(items, repeats) {
            match samples.iter_mut().find(|sample| sample.0 == name) {
                Some(sample) => sample.1.push(figures),
                None => samples.push((name, vec![figures])),
            }
        }
    }
    let median = |figures: &[[f64; 4]], phase: usize| {
        let mut values: Vec<f64> = figures.iter().map(|figure| figure[phase]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    samples.sort_by(|a, b| median(&a.1, 3).total_cmp(&median(&b.1, 3)));
    let mut table = Table::new(
        &format!("{items} items of 16 bytes, ns an operation, medians of {rounds} interleaved rounds"),
        &["queue", "insert", "remove + insert", "remove", "all"],
    );
    let (mut ours, mut best) = (f64::NAN, f64::INFINITY);
    for (name, figures) in &samples {
        let all = median(figures, 3);
        if name == "page queue" {
            ours = all
        } else {
            best = best.min(all)
        }
        table.rows.push(
            std::iter::once(name.clone())
                .chain((0..4).map(|phase| format!("{:.1}", median(figures, phase))))
                .collect(),
        );
    }
    let bound = if items < 10_000 {
        1.1
    } else if items < 10_000_000 {
        0.85
    } else {
        0.65
    };
    Ok(Outcome {
        name: "queue-beyond".into(),
        title: format!(
            "At {items} items in RAM the page queue takes {:.2} times the time of the best heap",
            ours / best
        ),
        notes: vec![
            "Each phase by itself: an insert is an append and a little work put off till later.".into(),
        ],
        tables: vec![table],
        verdicts: vec![Verdict::at_most(
            &format!("time of the best of the others, {items} items"),
            ours / best,
            bound,
            "×",
        )],
        drawings: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::outcome::Holds;

    #[test]
    fn it_stays_below_the_b_heap_on_keys_in_no_order() -> Result<(), PageSizeError> {
        let outcome = under_pressure(60_000)?;
        // Keys that come sorted or reversed are where a heap hardly moves anything.
        let beyond_nine =
            |claim: &str| ["uniform", "clustered", "expiries"].iter().any(|name| claim.starts_with(name));
        assert_eq!(outcome.verdicts.iter().filter(|verdict| beyond_nine(&verdict.claim)).count(), 3);
        for verdict in outcome.verdicts.iter().filter(|verdict| beyond_nine(&verdict.claim)) {
            assert_eq!(verdict.holds, Holds::Yes, "{verdict:?}");
        }
        Ok(())
    }

    #[test]
    fn every_queue_can_be_timed() -> Result<(), PageSizeError> {
        let outcome = in_memory(100, 1, |_, _| Vec::new())?;
        assert_eq!(outcome.tables[0].rows.len(), 9);
        Ok(())
    }
}
