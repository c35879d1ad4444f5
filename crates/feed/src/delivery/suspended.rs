//! Progress of a delivery that takes more than one turn.

use smallvec::SmallVec;

use crate::{
    accounts::service_chain::ServiceImportChain,
    routing::{
        matching::Match,
        number_reuse::Mark,
        trie::{CoreMask, HubId, OpenLookup, Part},
    },
};

/// Hubs whose queue group members get a message, each with the group.
pub(crate) type AtHubs = SmallVec<[(HubId, Part); 2]>;

/// Progress in delivering a run (consecutive messages to one subject) to the subscribers in its [`Match`].
#[derive(Debug, Default)]
pub(super) struct DeliveryProgress {
    /// Index of the next subscriber or, once all subscribers are served, of the next queue group.
    pub(super) next: usize,
    pub(super) reached: bool,
    /// Index of the next message of the run for the current queue group.
    pub(super) message: usize,
    /// Members of the current queue group that have refused the current message.
    pub(super) refused: GroupRefusals,
    /// A member of the current queue group has accepted an earlier message of the run.
    pub(super) has_taken: bool,
    /// Queue groups of which no member here accepts the message, each with the hub whose members get it.
    pub(super) at_hubs: AtHubs,
}

/// A run that was not delivered to all subscribers before the turn's budget was used up.
#[derive(Debug)]
pub(crate) struct SuspendedDelivery {
    /// Length of the run in bytes. More messages with the same control line may have arrived after it.
    pub(crate) run_bytes: usize,
    pub(super) slot: usize,
    pub(super) matched: Match,
    /// Parts of the trie that are still to be searched for subscribers; the delivery begins when none are
    /// left.
    pub(super) open: OpenLookup,
    pub(super) way: DeliveryProgress,
    /// There were no responders, so the search is now for subscribers to the reply subject.
    pub(super) is_for_reply: bool,
    /// Mapped subject of the run, if it has one.
    pub(crate) mapped: Option<BegunMapped>,
    /// State of the forwarding through service imports, once the run is delivered in its own account.
    pub(crate) crossing: Option<Box<ServiceImportChain>>,
    pub(super) mark: Mark,
}

/// Mapping state of a suspended run; each message may have a different mapped subject.
#[derive(Debug)]
pub(crate) struct BegunMapped {
    /// Subject that the mapping has chosen.
    pub(crate) subject: Box<[u8]>,
    /// Index of the message in the run, if each message is mapped separately.
    pub(crate) message: Option<usize>,
}

/// Members and cores of a group that have refused a message so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GroupRefusals {
    /// Number of refusals by members on this core, at the pattern or patterns that are being tried.
    pub(super) members: usize,
    /// Cores on which all members have refused.
    pub(super) cores: CoreMask,
    /// On a core that got the message from another core: all members at the pattern that the sender chose
    /// have refused, so the other matching patterns are tried.
    pub(super) is_beyond_pattern: bool,
}

impl GroupRefusals {
    /// Returns whether any member has refused the message.
    #[inline]
    pub(crate) fn has_begun(self) -> bool {
        self.members > 0 || self.cores != 0
    }
}
