//! Distribution to all cores of purges by tag, soft purges, and purges of everything. Each core applies the
//! purge to its own table ([`invalidations`](crate::purging::invalidations)); the purge is answered once all
//! cores have applied it.
//!
//! If a core's ring is full, the purge waits as long as a purge of one address does
//! ([`purge`](crate::states::purge)), and is then reported as failed, although some cores may have applied
//! it. A second try does no harm.

use std::{sync::Arc, time::Duration};

use engine::cores::clock;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use crate::{
    admin::operator_port::Outside,
    core::{Core, CoreBusy, Message, RING_PAUSE, RING_WAIT_MAX, with_core},
    counters::Counter,
    purging::{
        invalidations::{Invalidation, Overflow, What},
        purge_log::{Book, Full},
    },
};

/// Time for which a purge waits for the disk. After that its answer says that it was not written.
pub(crate) const UNLINK_WAIT_MAX: Duration = Duration::from_secs(60);

/// Applies a purge on every core, and writes it to the file if there is one. Returns whether it will survive
/// a restart. Runs on any core.
///
/// # Errors
/// [`CoreBusy`] if the ring to a core stayed full, that core has ended, or too many purges wait for the disk.
pub(crate) async fn apply_on_all_cores(what: What, is_soft: bool) -> Result<bool, CoreBusy> {
    let (invalidation, kept, cores) = with_core(|core| {
        let entered = core.purges.purge_log.enter(what, is_soft, clock::unix_ms());
        let (invalidation, kept) = entered.map_err(|Full| {
            core.count(Counter::PurgesRefused);
            CoreBusy
        })?;
        apply(core, &invalidation);
        let others = (0..core.storage.store.cores()).filter(|index| *index != core.index);
        Ok((invalidation, kept, others.collect::<Vec<_>>()))
    })?;
    let until = Instant::now() + RING_WAIT_MAX;
    let mut answers = Vec::with_capacity(cores.len());
    for index in cores {
        let (mut message, answer) = message(&invalidation, false);
        while let Err(unsent) = with_core(|core| core.give(index, message)) {
            if Instant::now() >= until {
                with_core(|core| core.count(Counter::PurgesRefused));
                return Err(CoreBusy);
            }
            message = unsent;
            tokio::time::sleep(RING_PAUSE).await;
        }
        answers.push(answer);
    }
    for answer in answers {
        answer.await.map_err(|_| CoreBusy)?;
    }
    let Some(kept) = kept else { return Ok(true) };
    Ok(timeout(UNLINK_WAIT_MAX, kept).await.is_ok_and(|kept| kept == Ok(true)))
}

/// Does the same as [`apply_on_all_cores`], from a thread that may block.
///
/// # Errors
/// As [`apply_on_all_cores`].
pub(crate) fn spread_from_outside(
    cores: usize,
    book: &Book,
    what: What,
    is_soft: bool,
    outside: &Outside,
) -> Result<bool, CoreBusy> {
    let (invalidation, kept) = book.enter(what, is_soft, clock::unix_ms()).map_err(|Full| CoreBusy)?;
    let mut answers = Vec::with_capacity(cores);
    for index in 0..cores {
        let (message, answer) = message(&invalidation, index == 0);
        outside.give(index, message)?;
        answers.push(answer);
    }
    answers.into_iter().try_for_each(oneshot::Receiver::blocking_recv).map_err(|_| CoreBusy)?;
    Ok(kept.is_none_or(|kept| kept.blocking_recv() == Ok(true)))
}

fn message(invalidation: &Arc<Invalidation>, is_purge: bool) -> (Message, oneshot::Receiver<()>) {
    let (done, answer) = oneshot::channel();
    (Message::Invalidate { invalidation: Arc::clone(invalidation), is_purge, done }, answer)
}

/// Applies a purge to the table of this core.
pub(crate) fn apply(core: &Core, invalidation: &Invalidation) {
    let Overflow { is_emptied, bans } = core.purges.invalidations.apply(invalidation);
    if is_emptied {
        core.count(Counter::TagTableEmptied);
    }
    if bans > 0 {
        core.add(Counter::BansOverflowed, bans as u64);
        tracing::warn!(
            bans,
            core = core.index,
            "too many bans: objects older than the oldest ban are purged"
        );
    }
    core.gauge(Counter::TagsPurged, core.purges.invalidations.held() as u64);
    core.gauge(Counter::Bans, core.purges.invalidations.bans_held() as u64);
    // Wakes the lurker.
    core.storage.rounds.stir();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::test_core;

    #[tokio::test(flavor = "local")]
    async fn a_purge_waits_for_every_core() {
        let mut inboxes = test_core::install(3, 4);
        let tags = || What::Tags([7].into());
        let mut told = Vec::new();
        let others = async {
            for index in [1, 2] {
                while told.len() < index {
                    inboxes[index].try_recv_batch(&mut told);
                    tokio::time::sleep(RING_PAUSE).await;
                }
            }
            let numbers: Vec<u64> = told
                .drain(..)
                .map(|message| match message {
                    Message::Invalidate { invalidation, done, .. } => {
                        done.send(()).expect("it waits");
                        invalidation.number
                    }
                    _ => panic!("a purge"),
                })
                .collect();
            assert_eq!(numbers.len(), 2);
            assert_eq!(numbers[0], numbers[1]);
            numbers[0]
        };
        let (spread, number) = tokio::join!(super::apply_on_all_cores(tags(), false), others);
        assert_eq!(spread, Ok(true));
        with_core(|core| {
            assert_eq!(core.purges.invalidations.youngest(), number);
            assert_eq!(core.observers.counters.value(Counter::TagsPurged), 1);
        });

        // Fills the ring of the last core, which no longer reads it.
        while with_core(|core| core.give(2, message(&Arc::new(invalidation()), false).0)).is_ok() {}
        assert_eq!(super::apply_on_all_cores(tags(), false).await, Err(CoreBusy));
        with_core(|core| assert_eq!(core.observers.counters.value(Counter::PurgesRefused), 1));
    }

    fn invalidation() -> Invalidation {
        Invalidation { number: 1, what: What::All, is_soft: false }
    }
}
