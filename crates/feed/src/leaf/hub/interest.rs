//! Interest of hubs in subjects, and announcements of this server's own interest to them.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use super::super::trouble::Trouble;
use crate::{
    accounts::identity::Mappings,
    client::connection::ConnId,
    counters::Counter,
    delivery::work,
    leaf::limits::HEARD_MAX,
    mesh::core::{Core, Routing},
    routing::{subjects::Subjects, trie::HubId},
};

/// Interest of a hub's subscribers: in a pattern, outside of queue groups or as members of one.
#[derive(Debug, Clone, Copy)]
struct Interest<'a> {
    pattern: &'a [u8],
    queue: Option<&'a [u8]>,
}

impl Core {
    /// Records a hub's interest in a pattern, with or without a queue group.
    pub(in crate::leaf) fn hear_interest(
        &mut self,
        id: ConnId,
        of: HubId,
        pattern: &[u8],
        queue: Option<(&[u8], u32)>,
    ) {
        self.turn.work.add(work::SUBSCRIBE);
        if pattern.starts_with(b"$LDS.") {
            let settings = Arc::clone(&self.settings);
            if let Some((of, connection)) = self.hubs.own(of).closed_for_loop(pattern, &settings.hubs) {
                self.close_for_loop(of, connection);
                self.links.hub_loop(of, connection);
            }
            // A loop-detection subject concerns only the server that created it, and is not recorded as
            // interest.
            return;
        }
        // Interest in `$SYS.` subjects is ignored: the server that a client is connected to answers such
        // requests.
        if pattern.starts_with(b"$SYS.") {
            return;
        }
        if !wire::nats::subject::is_valid_pattern(pattern) {
            self.count(Counter::LeafInterestRefused);
            return;
        }
        self.hear_pattern(of, pattern, queue);
        self.pause_if_full(id);
    }

    /// Closes a connection to a hub on which messages loop, if this core has joined the hub and the
    /// connection is still open.
    pub(crate) fn close_for_loop(&mut self, of: HubId, connection: u64) {
        let Some(hub) = self.hubs.find(of).filter(|hub| hub.cid == connection) else { return };
        let Some(id) = hub.conn else { return };
        let text = format!("Loop detected for leafnode account={:?}", hub.seed.account_name);
        let line = format!("-ERR '{text}. Delaying attempt to reconnect for 30s'\r\n");
        self.count(Counter::LeafLoops);
        self.outputs.tell_hub(id, line.as_bytes());
        self.close_hub(id, Trouble::Loop(text));
    }

    pub(super) fn hear_pattern(&mut self, of: HubId, pattern: &[u8], queue: Option<(&[u8], u32)>) {
        let hub = self.hubs.own(of);
        let account = hub.seed.account;
        let (queue, members) = (queue.map(|(queue, _)| queue), queue.map_or(1, |(_, members)| members));
        let interest = Interest { pattern, queue };
        let key = interest.key();
        let before = hub.heard.get(&key).copied();
        if before.is_none() && hub.heard.len() >= HEARD_MAX {
            self.count(Counter::LeafInterestRefused);
            return;
        }
        if before == Some(members) {
            return;
        }
        hub.heard.insert(key, members);
        if before.is_none() {
            self.observers.counters.add(Counter::LeafInterest, 1);
        }
        self.set_wanted(of, account, interest, members);
        self.add_hub_imports(of, interest, members, before.is_none());
    }

    /// Tells all cores how many subscribers with an interest a hub has; 0 for none.
    fn set_wanted(&mut self, of: HubId, account: u16, interest: Interest<'_>, members: u32) {
        let Interest { pattern, queue } = interest;
        match queue {
            None => {
                self.routing.subjects.apply_hub_interest(of, account, pattern, members > 0);
                self.links.hub_interest(of, account, pattern, members > 0);
            }
            Some(queue) => {
                self.routing.subjects.apply_hub_members(of, account, pattern, queue, members);
                self.links.hub_members(of, account, pattern, queue, members);
            }
        }
        self.turn.work.pay(self.routing.subjects.trie.take_steps());
    }

    /// Translates a hub's interest in a pattern of its own account into interest in the streams that the
    /// account imports.
    fn add_hub_imports(&mut self, of: HubId, interest: Interest<'_>, members: u32, is_new: bool) {
        let account = self.hubs.own(of).seed.account;
        for (stream, there) in self.routing.subjects.abroad.reached(account, interest.pattern) {
            self.turn.work.add(work::SUBSCRIBE);
            let there = Interest { pattern: &there, ..interest };
            let key = (stream.exporter, there.key());
            let abroad = &mut self.hubs.own(of).abroad;
            let has_room = abroad.len() < HEARD_MAX;
            match abroad.entry(key) {
                Entry::Occupied(patterns) => *patterns.into_mut() += u32::from(is_new),
                Entry::Vacant(place) if is_new && has_room => _ = place.insert(1),
                Entry::Vacant(_) => {
                    self.observers.counters.add(Counter::LeafInterestRefused, u64::from(is_new));
                    continue;
                }
            }
            self.set_wanted(of, stream.exporter, there, members);
        }
    }

    /// Withdraws the interest in imported streams that resulted from a hub's pattern.
    fn remove_hub_imports(&mut self, of: HubId, interest: Interest<'_>) {
        let account = self.hubs.own(of).seed.account;
        for (stream, there) in self.routing.subjects.abroad.reached(account, interest.pattern) {
            self.turn.work.add(work::SUBSCRIBE);
            let there = Interest { pattern: &there, ..interest };
            let key = (stream.exporter, there.key());
            let abroad = &mut self.hubs.own(of).abroad;
            let Some(left) = abroad.get_mut(&key) else { continue };
            *left -= 1;
            if *left == 0 {
                abroad.remove(&key);
                self.set_wanted(of, stream.exporter, there, 0);
            }
        }
    }

    /// Recomputes, after a reload, the interest of hubs in imported streams, for accounts whose stream
    /// imports have changed.
    pub(crate) fn refresh_hub_imports(&mut self, is_changed: impl Fn(u16) -> bool) {
        let hubs = self.hubs.all.iter().filter(|hub| is_changed(hub.seed.account));
        let places: Vec<HubId> = hubs.map(|hub| hub.seed.hub).collect();
        for of in places {
            let before = std::mem::take(&mut self.hubs.own(of).abroad);
            let heard = std::mem::take(&mut self.hubs.own(of).heard);
            for (key, members) in &heard {
                self.add_hub_imports(of, Interest::of_key(key), *members, true);
            }
            self.hubs.own(of).heard = heard;
            for (account, key) in before.into_keys() {
                if !self.hubs.own(of).abroad.contains_key(&(account, key.clone())) {
                    self.set_wanted(of, account, Interest::of_key(&key), 0);
                }
            }
        }
    }

    /// Announces to hubs, after a reload, changes in the mapped subjects and imported services.
    pub(crate) fn tell_hubs_what_stands(&mut self) {
        let Self { links, routing: Routing { subjects, mappings, .. }, .. } = self;
        links.tellers.stand(
            |account| standing(subjects, mappings.as_deref(), account),
            |account, pattern| subjects.is_wanted(account, pattern),
        );
    }

    /// Notes that a hub has withdrawn its interest in a pattern.
    pub(in crate::leaf) fn hear_no_interest(
        &mut self,
        id: ConnId,
        of: HubId,
        pattern: &[u8],
        queue: Option<&[u8]>,
    ) {
        self.turn.work.add(work::SUBSCRIBE);
        let interest = Interest { pattern, queue };
        let hub = self.hubs.own(of);
        let account = hub.seed.account;
        if hub.heard.remove(&interest.key()).is_some() {
            self.observers.counters.sub(Counter::LeafInterest, 1);
            self.set_wanted(of, account, interest, 0);
            self.remove_hub_imports(of, interest);
            self.pause_if_full(id);
        }
    }

    /// Removes all interest of a lost hub from its state, and returns it as pairs of account and key.
    pub(in crate::leaf) fn take_wanted(
        &mut self,
        of: HubId,
    ) -> impl Iterator<Item = (u16, Box<[u8]>)> + use<> {
        let hub = self.hubs.own(of);
        let (account, heard) = (hub.seed.account, std::mem::take(&mut hub.heard));
        let abroad = std::mem::take(&mut hub.abroad);
        self.observers.counters.sub(Counter::LeafInterest, heard.len() as u64);
        heard.into_keys().map(move |key| (account, key)).chain(abroad.into_keys())
    }

    /// Removes a lost hub's interest under one key from all cores' tries.
    pub(in crate::leaf) fn forget_wanted(&mut self, of: HubId, account: u16, key: &[u8]) {
        self.set_wanted(of, account, Interest::of_key(key), 0);
    }
}

impl<'a> Interest<'a> {
    /// Returns the key of the interest in a hub's tables.
    fn key(self) -> Box<[u8]> {
        match self.queue {
            None => self.pattern.into(),
            Some(queue) => [self.pattern, b" ", queue].concat().into(),
        }
    }

    /// Splits a key built by [`Interest::key`] into pattern and queue group. (Neither can contain a space.)
    fn of_key(key: &'a [u8]) -> Self {
        match memchr::memchr(b' ', key) {
            None => Self { pattern: key, queue: None },
            Some(blank) => Self { pattern: &key[..blank], queue: Some(&key[blank + 1..]) },
        }
    }
}

/// Returns the subjects of an account that are announced to a hub even without subscribers, sorted: mapped
/// subjects, and imported services (as in nats-server).
pub(super) fn standing(
    subjects: &Subjects,
    mappings: Option<&HashMap<u16, Mappings>>,
    account: u16,
) -> Vec<Box<[u8]>> {
    let mapped = mappings.and_then(|all| all.get(&account)).into_iter().flat_map(Mappings::sources);
    let mut all: Vec<Box<[u8]>> =
        subjects.abroad.services(account).chain(mapped).map(|subject| subject.as_bytes().into()).collect();
    all.sort_unstable();
    all.dedup();
    all
}
