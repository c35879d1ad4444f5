//! Table of the instances seen in the bucket, and the progress of a purge derived from it.
//!
//! ```text
//!  one watcher ─▶ entries, in the order of their revisions ─▶ InstanceTable ─▶ for each instance: applied · waiting · lease expired
//! ```
//! **Instances to wait for.** A purge was published, then we wrote our heartbeat, and the watcher has
//! delivered that heartbeat. It has therefore delivered every heartbeat written before; an instance that
//! wrote its first one later reads the stream from a position after the purge.
//!
//! **Expiry of a lease.** An instance counts a renewal only if it knows that it was accepted while the
//! previous lease was running ([`lease`](crate::lease)); whatever it counts was accepted by then. A lease has
//! expired if the instance's heartbeat has not changed, by our clock, for its lease and a margin since we
//! learned of it, and *after* that we wrote our own heartbeat and the watcher has delivered it, with nothing
//! from that instance before it. Our clock is the monotonic one, which stands still while the machine sleeps:
//! that makes us wait longer, never shorter. The instance's clock runs on. No wall clock is used.
//!
//! *Bound:* [`INSTANCES_MAX`] entries; beyond that no purge is acknowledged everywhere, and the reason is
//! reported.

use std::collections::BTreeMap;

use crate::{card::Heartbeat, record::AppliedNotice};

/// Maximum number of known instances, alive or not.
pub const INSTANCES_MAX: usize = 4096;

/// State of an instance with regard to a purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstancePurgeState {
    /// The instance has carried out the purge.
    Applied,
    /// The instance is configured to serve without a lease: purges do not wait for it, and it may serve
    /// purged objects.
    ServesOn {
        /// True if the instance has carried out the purge.
        has_applied: bool,
    },
    /// The instance has stopped.
    Left,
    /// The instance has not carried out the purge, and its lease has expired: it serves no stored object
    /// until it has carried out the purge.
    LeaseOut,
    /// The instance has not carried out the purge, and may still serve purged objects.
    Waiting,
}

impl InstancePurgeState {
    /// Returns a stable name of the state.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::ServesOn { has_applied: true } => "serves-on-applied",
            Self::ServesOn { has_applied: false } => "serves-on",
            Self::Left => "left",
            Self::LeaseOut => "lease-out",
            Self::Waiting => "waiting",
        }
    }
}

/// An instance that has not left, whose lease has not expired, and that announces an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveInstance {
    /// Name of the instance.
    pub name: String,
    /// Address at which other instances reach it.
    pub address: String,
}

/// Status of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceStatus {
    /// Name of the instance.
    pub name: String,
    /// Identity of the process.
    pub instance: String,
    /// Sequence number up to which the instance has carried out everything.
    pub applied: u64,
    /// Version of the instance's program.
    pub version: String,
    /// Address at which peers reach the instance.
    pub address: String,
    /// Milliseconds since the heartbeat last changed.
    pub quiet_ms: u64,
    /// Lease of the instance.
    pub lease_ms: u64,
    /// True if the instance serves stored objects even after its lease has expired.
    pub serves_on: bool,
    /// True if the instance has stopped.
    pub left: bool,
    /// True for this instance itself.
    pub is_own: bool,
}

/// Status of the cluster as reported to operators.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterStatus {
    /// State in words: joined, or the reason why not.
    pub state: String,
    /// True if this instance has joined and caught up.
    pub is_joined: bool,
    /// Sequence number up to which everything was carried out here.
    pub applied: u64,
    /// Generation of the stream to which `applied` refers.
    pub generation: u64,
    /// Status of the shared data; `None` if nothing is shared.
    pub vault: Option<String>,
    /// The known instances.
    pub instances: Vec<InstanceStatus>,
}

#[derive(Debug, Clone)]
struct Entry {
    /// The heartbeat; `None` if it is unreadable or was deleted, possibly by another program.
    card: Option<Heartbeat>,
    /// The longest lease that the instance may have.
    lease_ms: u64,
    learned_ms: u64,
}

/// Our own heartbeat as delivered by the watcher.
#[derive(Debug, Clone, Copy)]
struct OwnHeartbeat {
    sent_ms: u64,
    generation: u64,
    applied: u64,
}

/// Table of the instances (see the module documentation).
#[derive(Debug, Clone, Default)]
pub(crate) struct InstanceTable {
    entries: BTreeMap<String, Entry>,
    own: Option<OwnHeartbeat>,
    /// Time since which the watch has been uninterrupted.
    since_ms: u64,
    generation: u64,
    is_full: bool,
}

/// Position of a purge: a sequence number in a stream of this generation or a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamPosition {
    pub(crate) sequence: u64,
    pub(crate) generation: u64,
}

/// Progress of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PurgeProgress {
    pub(crate) instances: Vec<(String, InstancePurgeState)>,
    /// True if the purge is in force everywhere.
    pub(crate) is_settled: bool,
    /// Time at which a new heartbeat of this instance may show progress.
    pub(crate) again_ms: Option<u64>,
}

/// Returns how long to wait until a lease has surely expired: its length and a margin, since clocks run at
/// different rates.
pub(crate) fn with_margin(lease_ms: u64) -> u64 {
    lease_ms + (lease_ms / 10).max(20)
}

impl InstanceTable {
    /// Begins a new watch, possibly of another bucket. Purges then wait for instances that joined under the
    /// old bucket, for as long as their leases may run.
    pub(crate) fn watch_begins(&mut self, now_ms: u64) {
        self.since_ms = now_ms;
        self.own = None;
    }

    /// Records a heartbeat; `card` is `None` if it was deleted or is unreadable.
    pub(crate) fn see(&mut self, name: &str, card: Option<Heartbeat>, longest_ms: u64, now_ms: u64) {
        let before = self.entries.get(name).map_or(0, |entry| entry.lease_ms);
        if before == 0 && self.entries.len() >= INSTANCES_MAX {
            self.is_full = true;
            return;
        }
        let lease_ms = match &card {
            Some(card) => card.lease_ms(),
            None if before > 0 => before,
            None => longest_ms,
        };
        let mut card = card;
        if let Some((card, before)) =
            card.as_mut().zip(self.entries.get(name).and_then(|entry| entry.card.as_ref()))
            && (&card.instance, card.generation) == (&before.instance, before.generation)
        {
            // A notice from the instance may have been newer than this heartbeat.
            card.applied = card.applied.max(before.applied);
        }
        self.generation = self.generation.max(card.as_ref().map_or(0, |card| card.generation));
        self.entries.insert(name.to_owned(), Entry { card, lease_ms, learned_ms: now_ms });
    }

    /// Records an instance's notice that it has carried out more purges than its heartbeat reports. The
    /// notice does not affect the lease.
    pub(crate) fn note_applied(&mut self, carried: &AppliedNotice) {
        if let Some(card) = self.entries.get_mut(&carried.name).and_then(|entry| entry.card.as_mut())
            && (&card.instance, card.generation) == (&carried.instance, carried.generation)
        {
            card.applied = card.applied.max(carried.applied);
        }
    }

    /// Records the delivery of our own heartbeat, sent at `sent_ms`.
    pub(crate) fn see_own(&mut self, card: &Heartbeat, sent_ms: u64) {
        self.own = Some(OwnHeartbeat { sent_ms, generation: card.generation, applied: card.applied });
    }

    /// Returns the highest generation seen.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Removes instances that have been silent for `older_than_ms`.
    pub(crate) fn forget(&mut self, older_than_ms: u64, now_ms: u64) {
        self.entries.retain(|_, entry| now_ms.saturating_sub(entry.learned_ms) < older_than_ms);
        self.is_full = false;
    }

    /// Determines the state of each instance for the purge at this position. `own_lease_ms` is our lease.
    pub(crate) fn judge(
        &self,
        own_name: &str,
        own_lease_ms: u64,
        StreamPosition { sequence, generation }: StreamPosition,
    ) -> PurgeProgress {
        let own = self.own.unwrap_or(OwnHeartbeat { sent_ms: 0, generation: 0, applied: 0 });
        // This instance has carried out the purge itself, and knows all instances that joined before its
        // heartbeat announced that.
        let is_ours = self.own.is_some()
            && own.applied >= sequence
            && own.generation == self.generation
            && own.generation >= generation;
        // An instance known only from a bucket that no longer exists may serve until this time.
        let known_ms = self.since_ms + with_margin(own_lease_ms);
        let (mut again_ms, mut instances) = (None, Vec::with_capacity(self.entries.len()));
        let mut wait_until =
            |at_ms: u64| again_ms = Some(again_ms.map_or(at_ms, |before: u64| before.min(at_ms)));
        let mut is_settled = is_ours && !self.is_full && own.sent_ms >= known_ms;
        if own.sent_ms < known_ms {
            wait_until(known_ms);
        }
        for (name, entry) in &self.entries {
            let out_ms = entry.learned_ms + with_margin(entry.lease_ms);
            let has_applied = entry.card.as_ref().is_some_and(|card| {
                card.generation == self.generation
                    && card.generation >= generation
                    && card.applied >= sequence
            });
            let standing = match &entry.card {
                Some(_) if name == own_name => {
                    if is_ours {
                        InstancePurgeState::Applied
                    } else {
                        InstancePurgeState::Waiting
                    }
                }
                Some(card) if card.left => InstancePurgeState::Left,
                Some(card) if card.serves_on => InstancePurgeState::ServesOn { has_applied },
                _ if has_applied => InstancePurgeState::Applied,
                _ if is_ours && own.sent_ms >= out_ms => InstancePurgeState::LeaseOut,
                _ => {
                    wait_until(out_ms);
                    InstancePurgeState::Waiting
                }
            };
            is_settled &= standing != InstancePurgeState::Waiting;
            instances.push((name.clone(), standing));
        }
        PurgeProgress { instances, is_settled, again_ms }
    }

    /// Returns the live instances with an address: those that have not left and whose lease has not expired.
    pub(crate) fn live_instances(&self, now_ms: u64) -> Vec<LiveInstance> {
        let is_there = |(name, entry): (&String, &Entry)| {
            let card = entry.card.as_ref().filter(|card| !card.left && !card.address.is_empty())?;
            let out_ms = entry.learned_ms + with_margin(entry.lease_ms);
            (now_ms < out_ms).then(|| LiveInstance { name: name.clone(), address: card.address.clone() })
        };
        self.entries.iter().filter_map(is_there).collect()
    }

    /// Returns whether a live instance has this name.
    pub(crate) fn is_there(&self, name: &str, now_ms: u64) -> bool {
        self.entries.get(name).is_some_and(|entry| {
            let has_left = entry.card.as_ref().is_none_or(|card| card.left);
            !has_left && now_ms < entry.learned_ms + with_margin(entry.lease_ms)
        })
    }

    /// Returns the status of each instance.
    pub(crate) fn instance_statuses(&self, own_name: &str, now_ms: u64) -> Vec<InstanceStatus> {
        let seen = |(name, entry): (&String, &Entry)| {
            let card = entry.card.as_ref();
            let text = |of: fn(&Heartbeat) -> &String| card.map(of).cloned().unwrap_or_default();
            InstanceStatus {
                name: name.clone(),
                instance: text(|card| &card.instance),
                applied: card.map_or(0, |card| card.applied),
                version: text(|card| &card.version),
                address: text(|card| &card.address),
                quiet_ms: now_ms.saturating_sub(entry.learned_ms),
                lease_ms: entry.lease_ms,
                serves_on: card.is_some_and(|card| card.serves_on),
                left: card.is_some_and(|card| card.left),
                is_own: name == own_name,
            }
        };
        self.entries.iter().map(seen).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LEASE: u64 = 1_000;
    /// The lease with its margin, in milliseconds.
    const OUT: u64 = 1_100;

    fn at(sequence: u64) -> StreamPosition {
        StreamPosition { sequence, generation: 0 }
    }

    fn card(applied: u64) -> Heartbeat {
        let card = Heartbeat::new("i".into(), Duration::from_millis(LEASE), false, String::new());
        Heartbeat { applied, ..card }
    }

    /// Returns a table after a long watch: our heartbeat, sent at 10,000 ms, reports everything up to
    /// sequence 7 as carried out; the heartbeat of instance b is `of_b`, learned at `learned_ms`.
    fn instance_statuses(of_b: Heartbeat, learned_ms: u64) -> InstanceTable {
        let mut view = InstanceTable::default();
        view.see("a", Some(card(7)), LEASE, 10_000);
        view.see_own(&card(7), 10_000);
        view.see("b", Some(of_b), LEASE, learned_ms);
        view
    }

    fn of_b(view: &InstanceTable) -> (InstancePurgeState, bool) {
        let said = view.judge("a", LEASE, at(7));
        (said.instances[1].1, said.is_settled)
    }

    #[test]
    fn live_instances_have_addresses_and_recent_heartbeats() {
        let at = |address: &str| Heartbeat { address: address.to_owned(), ..card(7) };
        let mut view = instance_statuses(at("b:1"), 10_000);
        view.see("c", Some(at("c:1")), LEASE, 10_000 - OUT);
        view.see("d", Some(Heartbeat { left: true, ..at("d:1") }), LEASE, 10_000);
        view.see("e", None, LEASE, 10_000);
        let there = |name: &str| LiveInstance { name: name.to_owned(), address: format!("{name}:1") };
        assert_eq!(view.live_instances(10_000), [there("b")]);
        assert_eq!(view.live_instances(10_000 - 1), [there("b"), there("c")]);
        assert_eq!(view.live_instances(10_000 + OUT), []);
    }

    #[test]
    fn a_purge_settles_once_applied_or_lease_expired() {
        let left = Heartbeat { left: true, ..card(0) };
        let serves_on = Heartbeat { serves_on: true, ..card(0) };
        for (card, learned_ms, want, is_settled) in [
            (card(7), 10_000, InstancePurgeState::Applied, true),
            (card(6), 10_000 - OUT + 1, InstancePurgeState::Waiting, false),
            (card(6), 10_000 - OUT, InstancePurgeState::LeaseOut, true),
            (left, 10_000, InstancePurgeState::Left, true),
            (serves_on, 10_000, InstancePurgeState::ServesOn { has_applied: false }, true),
        ] {
            assert_eq!(
                of_b(&instance_statuses(card.clone(), learned_ms)),
                (want, is_settled),
                "{card:?} {learned_ms}"
            );
        }
    }

    #[test]
    fn only_an_echoed_heartbeat_expires_other_leases() {
        let mut view = instance_statuses(card(6), 9_500);
        assert_eq!(of_b(&view), (InstancePurgeState::Waiting, false));
        assert_eq!(view.judge("a", LEASE, at(7)).again_ms, Some(9_500 + OUT));
        // Time alone is not enough: our heartbeat was sent before b's lease expired.
        view.see("a", Some(card(7)), LEASE, 99_000);
        assert_eq!(of_b(&view), (InstancePurgeState::Waiting, false));
        view.see_own(&card(7), 9_500 + OUT);
        assert_eq!(of_b(&view), (InstancePurgeState::LeaseOut, true));
    }

    #[test]
    fn nobody_is_done_before_we_are() {
        let view = instance_statuses(card(7), 10_000);
        assert!(!view.judge("a", LEASE, at(8)).is_settled);
        let mut view = instance_statuses(card(7), 10_000);
        view.watch_begins(10_000);
        assert!(!view.judge("a", LEASE, at(7)).is_settled, "our card has not come back");
    }

    #[test]
    fn a_recreated_bucket_waits_for_old_leases() {
        let mut view = instance_statuses(card(7), 10_000);
        view.watch_begins(20_000);
        view.see_own(&card(7), 20_000 + OUT - 1);
        assert_eq!(view.judge("a", LEASE, at(7)).again_ms, Some(20_000 + OUT));
        assert!(!view.judge("a", LEASE, at(7)).is_settled);
        view.see_own(&card(7), 20_000 + OUT);
        assert!(view.judge("a", LEASE, at(7)).is_settled);
    }

    #[test]
    fn sequences_of_another_stream_are_none() {
        let mut view = instance_statuses(card(9), 10_000);
        let younger = |applied| Heartbeat { generation: 1, ..card(applied) };
        view.see("a", Some(younger(7)), LEASE, 10_000);
        view.see_own(&younger(7), 10_000);
        assert_eq!(of_b(&view), (InstancePurgeState::Waiting, false), "its nine is of the stream before");
        view.see("b", Some(younger(7)), LEASE, 10_000);
        assert_eq!(of_b(&view), (InstancePurgeState::Applied, true));
    }

    /// A newer stream accepts our purge as its second record, before we have learned that another instance
    /// has recreated the stream.
    #[test]
    fn a_recreated_stream_outdates_earlier_heartbeats() {
        let mut view = instance_statuses(card(9), 10_000);
        let place = StreamPosition { sequence: 2, generation: 1 };
        let said = view.judge("a", LEASE, place);
        assert!(!said.is_settled, "{said:?}");
        assert_eq!(
            said.instances.iter().filter(|(_, standing)| *standing == InstancePurgeState::Waiting).count(),
            2
        );
        let younger = |applied| Heartbeat { generation: 1, ..card(applied) };
        view.see("a", Some(younger(3)), LEASE, 10_000);
        view.see_own(&younger(3), 10_000);
        assert!(!view.judge("a", LEASE, place).is_settled, "b is where it was");
        view.see("b", Some(younger(2)), LEASE, 10_000);
        assert!(view.judge("a", LEASE, place).is_settled);
    }

    #[test]
    fn applied_notices_match_one_process_and_stream() {
        let carried = |instance: &str, generation, applied| AppliedNotice {
            name: "b".into(),
            instance: instance.into(),
            generation,
            applied,
        };
        let mut view = instance_statuses(card(6), 10_000);
        view.note_applied(&carried("another", 0, 7));
        view.note_applied(&carried("i", 1, 7));
        view.note_applied(&AppliedNotice { name: "nobody".into(), ..carried("i", 0, 7) });
        assert_eq!(of_b(&view), (InstancePurgeState::Waiting, false));
        view.note_applied(&carried("i", 0, 7));
        assert_eq!(of_b(&view), (InstancePurgeState::Applied, true));
        // A heartbeat that was written before the notice arrives after it.
        view.see("b", Some(card(6)), LEASE, 10_001);
        view.note_applied(&carried("i", 0, 3));
        assert_eq!(of_b(&view), (InstancePurgeState::Applied, true));
    }

    #[test]
    fn deleted_or_unreadable_heartbeats_are_waited_for() {
        let mut view = instance_statuses(card(7), 10_000);
        view.see("b", None, 60_000, 10_000);
        assert_eq!(of_b(&view), (InstancePurgeState::Waiting, false));
        view.see_own(&card(7), 10_000 + OUT);
        assert_eq!(of_b(&view), (InstancePurgeState::LeaseOut, true), "by the lease that it had");
        view.see("c", None, 60_000, 10_000);
        let said = view.judge("a", LEASE, at(7));
        assert_eq!(
            (said.instances[2].1, said.again_ms),
            (InstancePurgeState::Waiting, Some(10_000 + 66_000))
        );
    }

    #[test]
    fn too_many_are_never_said_to_be_all() {
        let mut view = instance_statuses(card(7), 10_000);
        for number in 0..=INSTANCES_MAX {
            view.see(&number.to_string(), Some(card(7)), LEASE, 10_000);
        }
        assert!(!view.judge("a", LEASE, at(7)).is_settled);
        view.forget(1_000, 11_000);
        assert_eq!(view.instance_statuses("a", 11_000), []);
    }
}
