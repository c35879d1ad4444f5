//! Momentary purges: changes of content that is fresh for only a second or two, such as the list of an inbox
//! that receives many mails a second.
//!
//! ```text
//!  change at ───────▼──────▼───────────────▼─────────────▶ time
//!  answer      ▲ fetched   │◀─── SHOWN_STALE_MS ───▶│
//!              └ lacks the first of them ──────┘      └ whoever requests it now waits for a fetch
//!                 shown meanwhile; one fetch renews it
//! ```
//! A purge by number ([`invalidations`](crate::purging::invalidations)) would cost a fetch a change. Here an
//! answer may be shown for [`SHOWN_STALE_MS`] after the oldest change that it does not contain, while one
//! fetch renews it, however many changes there are. A fetch that was under way when a change came is stored,
//! and is stale from that change on. An answer knows when its request was sent
//! ([`tags::fetched_ms`](crate::tags::fetched_ms)). A deletion is hard: the answer is not shown again.
//!
//! *Memory:* a table on each core, of at most [`TAGS_MAX`] tags, which forgets a change after [`KEPT_MS`]; if
//! it is full, all momentary answers count as changed. It is apart from the table of purges by tag, which it
//! never fills, and nothing of it is written to the disk: after a start all answers of before count as
//! changed. *Clock:* UNIX milliseconds, because answers survive a restart; if it is set back, everything counts
//! as changed at the next change.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    hash::BuildHasherDefault,
};

use smallvec::SmallVec;

use crate::{core::identity_hasher::IdentityHasher, purging::bans::Verdict};

/// Milliseconds after the oldest change that an answer does not contain, for which it may be shown. A reader
/// sees a change within a second; the rest is for the way of the change to the cores.
const SHOWN_STALE_MS: u64 = 850;
/// Milliseconds between two fetches that renew an answer in the background.
pub(crate) const RENEW_EVERY_MS: u64 = SHOWN_STALE_MS / 2;
/// Milliseconds for which a change is kept: longer than momentary answers are used.
const KEPT_MS: u64 = 4000;
/// Maximum number of tags in a core's table.
const TAGS_MAX: usize = 8192;
/// Number of spans in which the changes of one tag are noted.
const SPANS: usize = 8;
/// Milliseconds within which changes share a span.
const SPAN_MS: u64 = KEPT_MS / SPANS as u64;
/// Milliseconds between two searches for changes to forget.
const FORGET_EVERY_MS: u64 = 1000;
/// Key for the changes of everything; 0 is never a tag's hash.
const EVERYTHING: u64 = 0;

/// Times of the first and last of several changes, in milliseconds since 1970.
#[derive(Debug, Clone, Copy)]
struct Span {
    first_ms: u64,
    last_ms: u64,
}

/// Changes of the content under one tag.
#[derive(Debug, Default)]
struct Changes {
    /// Oldest first; at least [`SPAN_MS`] apart.
    spans: SmallVec<[Span; 2]>,
    /// Time of the last deletion; 0 for none.
    deleted_ms: u64,
}

impl Changes {
    fn note(&mut self, at_ms: u64, is_deletion: bool) {
        if is_deletion {
            self.deleted_ms = self.deleted_ms.max(at_ms);
            return;
        }
        if let Some(last) = self.spans.last_mut()
            && at_ms < last.first_ms + SPAN_MS
        {
            last.last_ms = last.last_ms.max(at_ms);
            return;
        }
        if self.spans.len() == SPANS {
            self.spans.remove(0);
        }
        self.spans.push(Span { first_ms: at_ms, last_ms: at_ms });
    }

    /// Returns a time no later than the oldest change since `since_ms`, and not before it.
    fn oldest_since(&self, since_ms: u64) -> Option<u64> {
        let span = self.spans.iter().find(|span| span.last_ms >= since_ms)?;
        Some(span.first_ms.max(since_ms))
    }

    fn newest_ms(&self) -> u64 {
        self.spans.last().map_or(0, |span| span.last_ms).max(self.deleted_ms)
    }
}

/// Momentary purges that a core knows.
#[derive(Debug, Default)]
pub(crate) struct MomentaryPurges {
    changes: RefCell<HashMap<u64, Changes, BuildHasherDefault<IdentityHasher>>>,
    /// Time of the last search for changes to forget.
    searched_ms: Cell<u64>,
    /// Time of the newest change that is not known: it was forgotten, or came before the start.
    forgotten_ms: Cell<u64>,
}

impl MomentaryPurges {
    /// Forgets all changes until `at_ms`: no answer whose request was sent by then is shown.
    pub(crate) fn forget_until(&self, at_ms: u64) {
        self.changes.borrow_mut().clear();
        self.searched_ms.set(at_ms);
        self.forgotten_ms.set(at_ms);
    }

    /// Notes a change of the content under these tags, or of everything if there are none. Returns false if
    /// the table was full, and everything counts as changed.
    pub(crate) fn note(&self, tags: &[u64], at_ms: u64, is_deletion: bool) -> bool {
        if at_ms < self.searched_ms.get() {
            // The clock was set back: times of before cannot be compared.
            self.forget_until(at_ms);
        }
        let mut changes = self.changes.borrow_mut();
        if at_ms >= self.searched_ms.get() + FORGET_EVERY_MS {
            changes.retain(|_, changes| {
                let newest_ms = changes.newest_ms();
                let is_kept = newest_ms + KEPT_MS > at_ms;
                if !is_kept {
                    self.forgotten_ms.set(self.forgotten_ms.get().max(newest_ms));
                }
                is_kept
            });
            self.searched_ms.set(at_ms);
        }
        let unknown = tags.iter().filter(|tag| !changes.contains_key(tag)).count();
        let has_room = changes.len() + unknown <= TAGS_MAX;
        let noted = if has_room && !tags.is_empty() { tags } else { &[EVERYTHING] };
        for tag in noted {
            changes.entry(*tag).or_default().note(at_ms, is_deletion);
        }
        has_room
    }

    /// Returns the effect of the changes on an answer with these tags whose request was sent at `fetched_ms`.
    pub(crate) fn judge(&self, tags: impl Iterator<Item = u64>, fetched_ms: u64, now_ms: u64) -> Verdict {
        // An answer from the future is of a clock that was set back since; one that is older than a forgotten
        // change may lack it.
        if fetched_ms > now_ms || fetched_ms <= self.forgotten_ms.get() {
            return Verdict::Hard;
        }
        let changes = self.changes.borrow();
        let mut oldest_ms = u64::MAX;
        for tag in tags.chain([EVERYTHING]) {
            let Some(changes) = changes.get(&tag) else { continue };
            // A change in the same tick of the clock as the request may be later than the request.
            if changes.deleted_ms >= fetched_ms {
                return Verdict::Hard;
            }
            oldest_ms = oldest_ms.min(changes.oldest_since(fetched_ms).unwrap_or(u64::MAX));
        }
        match oldest_ms {
            u64::MAX => Verdict::Valid,
            oldest_ms if now_ms >= oldest_ms + SHOWN_STALE_MS => Verdict::Hard,
            _ => Verdict::Outdated,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn judge(purges: &MomentaryPurges, tag: u64, fetched_ms: u64, now_ms: u64) -> Verdict {
        purges.judge([3, tag].into_iter(), fetched_ms, now_ms)
    }

    #[test]
    fn an_answer_is_shown_until_its_time_ends() {
        let purges = MomentaryPurges::default();
        assert!(purges.note(&[7], 10_000, false));
        for (fetched_ms, now_ms, want) in [
            (10_001, 19_999, Verdict::Valid),
            (10_000, 10_000, Verdict::Outdated),
            (9_000, 10_000 + SHOWN_STALE_MS - 1, Verdict::Outdated),
            (9_000, 10_000 + SHOWN_STALE_MS, Verdict::Hard),
        ] {
            assert_eq!(judge(&purges, 7, fetched_ms, now_ms), want, "{fetched_ms} {now_ms}");
        }
        assert_eq!(judge(&purges, 8, 9_000, 10_100), Verdict::Valid);
        assert!(purges.note(&[7], 10_500, true));
        assert_eq!(judge(&purges, 7, 10_500, 10_501), Verdict::Hard);
        assert_eq!(judge(&purges, 7, 10_501, 10_501), Verdict::Valid);
    }

    #[test]
    fn a_clock_that_is_set_back_changes_everything() {
        let purges = MomentaryPurges::default();
        assert!(purges.note(&[7], 100_000, true));
        assert_eq!(judge(&purges, 8, 100_001, 90_000), Verdict::Hard, "it came before the step");
        assert!(purges.note(&[9], 90_000, false));
        assert_eq!(judge(&purges, 8, 90_000, 90_000), Verdict::Hard);
        assert_eq!(judge(&purges, 7, 90_001, 90_001), Verdict::Valid);
    }

    #[test]
    fn a_full_table_counts_everything_as_changed() {
        let purges = MomentaryPurges::default();
        let tags: Vec<u64> = (1..=TAGS_MAX as u64).collect();
        assert!(purges.note(&tags, 10_000, false));
        assert!(!purges.note(&[u64::MAX], 10_001, false));
        assert_eq!(judge(&purges, u64::MAX - 1, 10_000, 10_002), Verdict::Outdated);
        // Later it has room again, and answers older than what was forgotten are not shown.
        assert!(purges.note(&[u64::MAX], 10_001 + KEPT_MS, false));
        assert_eq!(purges.changes.borrow().len(), 1);
        assert_eq!(judge(&purges, 4, 10_000, 10_100), Verdict::Hard);
        assert_eq!(judge(&purges, 4, 10_002, 10_100), Verdict::Valid);
        assert!(purges.note(&[], 20_000, true));
        assert_eq!(judge(&purges, 5, 19_999, 20_001), Verdict::Hard);
    }

    proptest! {
        /// Compared with a list of all changes, an answer is never shown longer, and never considered
        /// outdated without a change.
        #[test]
        fn spans_never_show_an_answer_longer(
            mut at in prop::collection::vec(0_u64..KEPT_MS, 1..60),
            fetched in 0_u64..KEPT_MS,
            later in 0_u64..2 * SHOWN_STALE_MS,
        ) {
            let base = 1_000_000;
            at.sort_unstable();
            let purges = MomentaryPurges::default();
            at.iter().for_each(|at| assert!(purges.note(&[7], base + at, false)));
            let oldest = at.iter().copied().find(|at| *at >= fetched);
            let now = oldest.unwrap_or(fetched) + later;
            let found = judge(&purges, 7, base + fetched, base + now);
            match oldest {
                None => prop_assert_eq!(found, Verdict::Valid),
                Some(_) if later >= SHOWN_STALE_MS => prop_assert_eq!(found, Verdict::Hard),
                Some(_) => prop_assert_ne!(found, Verdict::Valid),
            }
        }
    }
}
