//! `bheap-sim`: a replication of the simulation in the article “You're Doing It Wrong” (ACM Queue, June
//! 2010).
//!
//! ```text
//!  keys (random(3)) ──▶ three phases ──▶ heap over traced rows ──▶ addresses ──▶ perfect memory of every size
//!                                                                                    │
//!             figures 1–4, table, verdicts ◀── transfers × 1 ms or 10 ms, + CPU ◀────┘
//! ```
//! [`phases`] drives any queue, [`lru`] is the memory, [`run`] runs a classic heap through both, [`article`]
//! has the published figures, `findings` compares, `figures` draws, `sweep` varies the sizes, `costs` the
//! costs.

pub mod article;
mod costs;
pub mod cpu;
mod figures;
mod findings;
pub mod keys;
pub mod lru;
pub mod phases;
pub mod run;
mod sweep;

pub use phases::{Subject, three_phases};

use crate::experiment::{Experiment, Options, Refusal, Report};
use run::Shape;

/// `nighttrain lab bheap-sim`
pub const EXPERIMENT: Experiment = Experiment {
    name: "bheap-sim",
    claims: &["C3", "C4", "C5", "C6", "C21"],
    title: "A binary heap and a B-heap when memory runs out",
    statement: "With 8 to 10 pages resident a B-heap is ten times as fast as a binary heap: at nine pages it causes \
                1.14 page transfers an operation instead of 11.5. Without pressure it is 30% slower (5.92 s \
                against 4.55 s), and it catches up when four pages of 1,954 are missing. On a 10 ms disk it is \
                10% faster at one missing page and 37% faster at four. Smaller pointers and larger pages favour it.",
    source: "P.-H. Kamp, “You're Doing It Wrong”, ACM Queue 8(6), June 2010, figures 1 to 4",
    run: experiment,
};

fn experiment(options: &Options) -> Result<Report, Refusal> {
    let shape = Shape {
        items: options.items.unwrap_or(article::ITEMS),
        page_bytes: options.page_bytes.unwrap_or(article::PAGE_BYTES),
        item_bytes: options.item_bytes.unwrap_or(article::ITEM_BYTES),
    };
    shape.check()?;
    if options.costs.are_chosen() {
        return costs::report(options, shape);
    }
    let articles = shape.is_the_articles();
    let mut report = if articles {
        findings::of_the_article(options, shape)
    } else {
        findings::of_another_shape(options, shape)
    };
    if articles || options.sweep {
        // A quarter of the items keeps a quick run well below its 30 seconds.
        sweep::add(&mut report, options, if options.quick { shape.items.div_ceil(4) } else { shape.items });
    }
    Ok(report)
}
