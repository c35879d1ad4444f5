//! Ban lurker: searches the store for objects that bans match, so that the bans can be dropped (as in
//! Varnish).
//!
//! ```text
//!  a ban waits ─▶ the fetches that began before it end ─▶ a walk through the objects in memory, some per step
//!                     (or it has waited long enough)        unlinks those that match ─▶ done here
//!                                                                                  done on all cores ─▶ dropped
//! ```
//! Each core walks through its own shard, in its housekeeping. *Bound of a step:* [`OBJECTS_A_STEP`], for
//! at most 16 bans. Objects that are only in the file are not searched: if the store has a file, a ban stays
//! until its list is full.

use engine::cores::clock;

use crate::{core::Core, counters::Counter};

/// Number of objects that a step examines: this takes some tens of microseconds with one ban, and up to a
/// millisecond with the maximum number of bans.
const OBJECTS_A_STEP: usize = 64;

/// Drops the bans that are done on all cores, then runs a step. Returns whether there is more to do now.
pub(crate) fn lurk(core: &Core) -> bool {
    let bans = &core.purges.invalidations;
    bans.drop_done_bans(core.storage.store.cores());
    core.gauge(Counter::Bans, bans.bans_held() as u64);
    let Some(from) = bans.walk(clock::unix_ms()) else { return false };
    let mut shard = core.storage.shard.borrow_mut();
    if shard.is_warming() {
        // The store is still reading its file, so not all objects are known.
        return false;
    }
    let swept = shard.sweep(from, OBJECTS_A_STEP, |object| bans.is_walked_down(object));
    core.add(Counter::BansDropped, swept.dropped as u64);
    bans.walked_to(swept.next, core.storage.file.is_none());
    true
}

/// Returns whether the lurker must run again later, because some bans are not done on all cores.
pub(crate) fn is_lurking(core: &Core) -> bool {
    core.storage.file.is_none() && core.purges.invalidations.has_unfinished_bans()
}
