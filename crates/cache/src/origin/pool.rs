//! One core's connections to the servers of all origins, and the state of their round robin.
//!
//! A server is added at the first request to it. It is removed once neither the active configuration nor the
//! configuration of any request under way contains it. *Bounds:* the servers of those configurations.

use std::{collections::HashMap, hash::BuildHasherDefault, sync::Arc, time::Duration};

use super::{
    Tell,
    group::{Group, MemberId, TriedMembers, Wish},
    member::Member,
    upstream::{Streams, Upstream},
};
use crate::{config::Limits, core::identity_hasher::IdentityHasher};

/// Map whose keys are numbers given out here, one after the other, and never by a client.
type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<IdentityHasher>>;

/// A core's connections to all origins.
pub(crate) struct Pool {
    upstreams: NumberMap<MemberId, Upstream>,
    /// Budget of buffered bytes for exchanges over HTTP/2, with all servers.
    streams: Streams,
    /// Callback for events of HTTP/2 connections.
    tell: Tell,
    /// Round robin state by group.
    turns: NumberMap<u64, Turns>,
}

struct Turns {
    group: Arc<Group>,
    numbers: Box<[i64]>,
}

impl Pool {
    pub(crate) fn new(limits: &Limits, tell: Tell) -> Self {
        Self {
            upstreams: NumberMap::default(),
            streams: Streams::new(limits),
            tell,
            turns: NumberMap::default(),
        }
    }

    /// Returns the connections to a server, and adds it if it is new.
    pub(crate) fn upstream(&mut self, member: &Arc<Member>, limits: &Limits) -> &mut Upstream {
        let made = || Upstream::new(Arc::clone(member), limits, self.streams.clone(), self.tell);
        self.upstreams.entry(member.id).or_insert_with(made)
    }

    /// Returns the connections to a server that has been added before.
    pub(crate) fn known(&mut self, member: MemberId) -> Option<&mut Upstream> {
        self.upstreams.get_mut(&member)
    }

    /// Chooses the server of an origin to ask next.
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

    /// Closes connections to origins that have been idle for too long, and forgets servers that no
    /// configuration contains any more. Returns the time until the next connection will have been idle for
    /// too long.
    pub(crate) fn close_old(&mut self) -> Option<Duration> {
        // Groups are removed first, because each group keeps its servers alive.
        self.turns.retain(|_, turns| Arc::strong_count(&turns.group) > 1);
        self.upstreams.retain(|_, upstream| Arc::strong_count(&upstream.member) > 1);
        self.upstreams.values_mut().filter_map(Upstream::close_old).min()
    }
}
