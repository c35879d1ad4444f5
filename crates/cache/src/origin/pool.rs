//! One core's connections to the servers of all origins, and whose turn it is there.
//!
//! A server is entered when it is asked for the first time, and forgotten when no configuration has it any more that is in
//! force, or was when a request began that is still under way. *Bounds:* the servers of those configurations.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{
    Tell,
    group::{Group, MemberId, TriedMembers, Wish},
    member::Member,
    upstream::{Streams, Upstream},
};
use crate::config::Limits;

/// A core's part of all origins.
pub(crate) struct Pool {
    upstreams: HashMap<MemberId, Upstream>,
    /// What exchanges over HTTP/2 may keep, with all servers.
    streams: Streams,
    /// Who is told what becomes of connections of HTTP/2.
    tell: Tell,
    /// By groups: whose turn it is.
    turns: HashMap<u64, Turns>,
}

struct Turns {
    group: Arc<Group>,
    numbers: Box<[i64]>,
}

impl Pool {
    pub(crate) fn new(limits: &Limits, tell: Tell) -> Self {
        Self { upstreams: HashMap::new(), streams: Streams::new(limits), tell, turns: HashMap::new() }
    }

    /// The connections to a server.
    pub(crate) fn upstream(&mut self, member: &Arc<Member>, limits: &Limits) -> &mut Upstream {
        let made = || Upstream::new(Arc::clone(member), limits, self.streams.clone(), self.tell);
        self.upstreams.entry(member.id).or_insert_with(made)
    }

    /// Those to one that is known.
    pub(crate) fn known(&mut self, member: MemberId) -> Option<&mut Upstream> {
        self.upstreams.get_mut(&member)
    }

    /// The server of an origin that is asked next.
    pub(crate) fn choose(
        &mut self,
        group: &Arc<Group>,
        wish: Wish,
        tried: &mut TriedMembers,
        now_ms: u64,
    ) -> Option<MemberId> {
        let turns = self
            .turns
            .entry(group.number)
            .or_insert_with(|| Turns { group: Arc::clone(group), numbers: group.turns() });
        group.choose(wish, tried, &mut turns.numbers, now_ms)
    }

    /// Closes connections to origins that have been idle for too long, and forgets who is in no configuration any more; when
    /// the next one will have been.
    pub(crate) fn close_old(&mut self) -> Option<Duration> {
        // First the groups, each of which holds its servers.
        self.turns.retain(|_, turns| Arc::strong_count(&turns.group) > 1);
        self.upstreams.retain(|_, upstream| Arc::strong_count(&upstream.member) > 1);
        self.upstreams.values_mut().filter_map(Upstream::close_old).min()
    }
}
