//! The lurker: looks for what bans are about, so that they need not be kept for ever (Varnish's ban lurker).
//!
//! ```text
//!  a ban waits ─▶ the fetches that began before it end ─▶ a walk through what is in memory, some objects a round
//!                     (or it has waited long enough)        unlinks what it holds of ─▶ done here
//!                                                                                  done on all cores ─▶ dropped
//! ```
//! Each core walks through its own shard, in its housekeeping. *Bound of a round:* [`OBJECTS_A_ROUND`], for 16 bans at
//! most. What lies on a file alone it does not see: there a ban stays until its list is full.

use engine::cores::clock;

use crate::{core::Core, counters::Counter};

/// Objects that a round looks at: a quarter of a millisecond's work with one ban, some with the most.
const OBJECTS_A_ROUND: usize = 256;

/// A round, after letting go of the bans that are done everywhere; whether there is more to do now.
pub(crate) fn lurk(core: &Core) -> bool {
    let bans = &core.invalidations;
    bans.drop_done_bans(core.store.cores());
    core.gauge(Counter::Bans, bans.bans_held() as u64);
    let Some(from) = bans.walk(clock::unix_ms()) else { return false };
    let mut shard = core.shard.borrow_mut();
    if shard.is_warming() {
        // What the file holds is not known yet.
        return false;
    }
    let swept = shard.sweep(from, OBJECTS_A_ROUND, |object| bans.is_walked_down(object));
    core.add(Counter::BansDropped, swept.dropped as u64);
    bans.walked_to(swept.next, core.file.is_none());
    true
}

/// Whether there are bans to be looked after later: other cores may have more to walk through.
pub(crate) fn is_lurking(core: &Core) -> bool {
    core.file.is_none() && core.invalidations.has_unfinished_bans()
}
