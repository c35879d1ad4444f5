//! Totals of the simulation, frozen: they are integers and depend on nothing but the code.

use lab::experiments::bheap_sim::lru::ListLru;
use lab::experiments::bheap_sim::run::{HeapLayout, Shape};

/// Pages resident, then the transfers of the binary heap and of the B-heap, first touches free, after
/// `srandom(1)`.
type Frozen = (usize, u64, u64);

fn hold(shape: Shape, pages: usize, frozen: &[Frozen]) {
    let simulated = shape.simulate(1);
    assert_eq!((simulated.pages, simulated.binary.pages()), (pages, pages));
    let found: Vec<Frozen> = frozen
        .iter()
        .map(|&(resident, ..)| {
            let (binary, paged) = simulated.at(resident);
            (resident, binary.free(), paged.free())
        })
        .collect();
    assert_eq!(found, frozen);
}

/// The table of the article's sizes is reproduced, as `nighttrain lab bheap-sim` prints it. The independent
/// simulation has exactly the same totals for the B-heap at 8, 9, 10, 1,024, 1,800, 1,950 and 1,953 pages. An
/// unoptimised build takes a minute: the full size runs in `make soak`, a tenth of the items in every test
/// run.
#[test]
fn the_articles_sizes() {
    if unify::cases(0, 1) == 0 {
        let shape = Shape { items: 100_000, page_bytes: 4096, item_bytes: 8 };
        return hold(
            shape,
            196,
            &[
                (8, 2_837_184, 298_927),
                (16, 1_353_910, 270_040),
                (64, 426_721, 155_147),
                (128, 118_677, 61_704),
                (195, 1_183, 709),
                (196, 0, 0),
            ],
        );
    }
    hold(
        Shape { items: 1_000_000, page_bytes: 4096, item_bytes: 8 },
        1954,
        &[
            (8, 47_499_567, 4_729_956),
            (9, 46_077_574, 4_559_228),
            (10, 44_204_631, 4_408_210),
            (16, 29_312_511, 3_799_149),
            (64, 17_836_820, 3_058_177),
            (256, 9_288_781, 2_413_182),
            (1024, 2_020_585, 936_917),
            (1800, 181_152, 115_819),
            (1950, 4_374, 2_744),
            (1953, 1_015, 659),
            (1954, 0, 0),
        ],
    );
}

/// The one pass over all sizes agrees with a memory of a single size that is kept as a list.
#[test]
fn the_slow_twin_counts_the_same() {
    let shape = Shape { items: 30_000, page_bytes: 1024, item_bytes: 4 };
    let simulated = shape.simulate(7);
    for resident in [3, 9, 40] {
        for (which, transfers) in
            [(HeapLayout::Binary, simulated.at(resident).0), (HeapLayout::Paged, simulated.at(resident).1)]
        {
            let twin = ListLru::new(shape.page_bytes, resident);
            shape.drive(which, 7, &twin);
            assert_eq!(twin.transfers(), transfers, "{which:?} at {resident} pages");
            assert!(transfers.reads > 0 && transfers.writes > 0);
        }
    }
}
