//! Which subjects a hub has subscribers for, and which of ours it is told of.

use super::super::{HEARD_MAX, trouble::Trouble};
use crate::{
    accounts::identity::Mappings,
    client::connection::ConnId,
    counters::Counter,
    delivery::work,
    mesh::core::Core,
    routing::{subjects::Subjects, trie::HubId},
};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

impl Core {
    /// The hub wants a pattern, as a group's or not.
    pub(in crate::leaf) fn hear_interest(
        &mut self,
        id: ConnId,
        of: HubId,
        pattern: &[u8],
        queue: Option<(&[u8], u32)>,
    ) {
        self.work.add(work::SUBSCRIBE);
        if pattern.starts_with(b"$LDS.") {
            let settings = Arc::clone(&self.settings);
            if let Some((of, connection)) = self.hubs.own(of).closed_for_loop(pattern, &settings.hubs) {
                self.close_for_loop(of, connection);
                self.links.hub_loop(of, connection);
            }
            // Nobody but who said it is to have it back.
            return;
        }
        // What a client asks the server that it is connected to is that one's to answer.
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

    /// A connection to a hub has messages go round: it is closed, if it is one of this core's and still there.
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
        let key = key_of(pattern, queue);
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
            self.counters.add(Counter::LeafInterest, 1);
        }
        self.set_wanted(of, account, (pattern, queue), members);
        self.reach_abroad(of, (pattern, queue), members, before.is_none());
    }

    /// Has all cores know how many a hub has that want a pattern, of a queue group or of none.
    fn set_wanted(
        &mut self,
        of: HubId,
        account: u16,
        (pattern, queue): (&[u8], Option<&[u8]>),
        members: u32,
    ) {
        match queue {
            None => {
                self.subjects.apply_hub_interest(of, account, pattern, members > 0);
                self.links.hub_interest(of, account, pattern, members > 0);
            }
            Some(queue) => {
                self.subjects.apply_hub_members(of, account, (pattern, queue), members);
                self.links.hub_members(of, account, pattern, queue, members);
            }
        }
        self.work.pay(self.subjects.trie.take_steps());
    }

    /// What a hub wants of other accounts' streams, by a pattern in its own account, is wanted there.
    fn reach_abroad(
        &mut self,
        of: HubId,
        (pattern, queue): (&[u8], Option<&[u8]>),
        members: u32,
        is_new: bool,
    ) {
        let account = self.hubs.own(of).seed.account;
        for (stream, there) in self.subjects.abroad.reached(account, pattern) {
            self.work.add(work::SUBSCRIBE);
            let key = (stream.exporter, key_of(&there, queue));
            let abroad = &mut self.hubs.own(of).abroad;
            let has_room = abroad.len() < HEARD_MAX;
            match abroad.entry(key) {
                Entry::Occupied(patterns) => *patterns.into_mut() += u32::from(is_new),
                Entry::Vacant(place) if is_new && has_room => _ = place.insert(1),
                Entry::Vacant(_) => {
                    self.counters.add(Counter::LeafInterestRefused, u64::from(is_new));
                    continue;
                }
            }
            self.set_wanted(of, stream.exporter, (&there, queue), members);
        }
    }

    /// The same of a pattern that a hub wants no more.
    fn reach_abroad_no_more(&mut self, of: HubId, (pattern, queue): (&[u8], Option<&[u8]>)) {
        let account = self.hubs.own(of).seed.account;
        for (stream, there) in self.subjects.abroad.reached(account, pattern) {
            self.work.add(work::SUBSCRIBE);
            let key = (stream.exporter, key_of(&there, queue));
            let abroad = &mut self.hubs.own(of).abroad;
            let Some(left) = abroad.get_mut(&key) else { continue };
            *left -= 1;
            if *left == 0 {
                abroad.remove(&key);
                self.set_wanted(of, stream.exporter, (&there, queue), 0);
            }
        }
    }

    /// After a reload: what accounts take of others' streams may be something else, where this is so of them.
    pub(crate) fn hubs_reach_again(&mut self, is_changed: impl Fn(u16) -> bool) {
        let hubs = self.hubs.all.iter().filter(|hub| is_changed(hub.seed.account));
        let places: Vec<HubId> = hubs.map(|hub| hub.seed.hub).collect();
        for of in places {
            let before = std::mem::take(&mut self.hubs.own(of).abroad);
            let heard = std::mem::take(&mut self.hubs.own(of).heard);
            for (key, members) in &heard {
                self.reach_abroad(of, parts_of(key), *members, true);
            }
            self.hubs.own(of).heard = heard;
            for (account, key) in before.into_keys() {
                if !self.hubs.own(of).abroad.contains_key(&(account, key.clone())) {
                    self.set_wanted(of, account, parts_of(&key), 0);
                }
            }
        }
    }

    /// After a reload: what stands for other subjects, and services, may be others.
    pub(crate) fn tell_hubs_what_stands(&mut self) {
        let Self { subjects, links, mappings, .. } = self;
        links.tellers.stand(
            |account| standing(subjects, mappings.as_deref(), account),
            |account, pattern| subjects.is_wanted(account, pattern),
        );
    }

    /// The hub does not want a pattern any more.
    pub(in crate::leaf) fn hear_no_interest(
        &mut self,
        id: ConnId,
        of: HubId,
        pattern: &[u8],
        queue: Option<&[u8]>,
    ) {
        self.work.add(work::SUBSCRIBE);
        let key = key_of(pattern, queue);
        let hub = self.hubs.own(of);
        let account = hub.seed.account;
        if hub.heard.remove(&key).is_some() {
            self.counters.sub(Counter::LeafInterest, 1);
            self.set_wanted(of, account, (pattern, queue), 0);
            self.reach_abroad_no_more(of, (pattern, queue));
            self.pause_if_full(id);
        }
    }

    /// Takes out of the books what a hub wanted that is gone: in which accounts, and what.
    pub(in crate::leaf) fn take_wanted(
        &mut self,
        of: HubId,
    ) -> impl Iterator<Item = (u16, Box<[u8]>)> + use<> {
        let hub = self.hubs.own(of);
        let (account, heard) = (hub.seed.account, std::mem::take(&mut hub.heard));
        let abroad = std::mem::take(&mut hub.abroad);
        self.counters.sub(Counter::LeafInterest, heard.len() as u64);
        heard.into_keys().map(move |key| (account, key)).chain(abroad.into_keys())
    }

    /// Takes something of that out of the tries.
    pub(in crate::leaf) fn forget_wanted(&mut self, of: HubId, account: u16, key: &[u8]) {
        self.set_wanted(of, account, parts_of(key), 0);
    }
}

fn key_of(pattern: &[u8], queue: Option<&[u8]>) -> Box<[u8]> {
    match queue {
        None => pattern.into(),
        Some(queue) => [pattern, b" ", queue].concat().into(),
    }
}

/// What [`key_of`] has put together. (No pattern and no name of a queue has a blank.)
fn parts_of(key: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(b' ', key) {
        None => (key, None),
        Some(blank) => (&key[..blank], Some(&key[blank + 1..])),
    }
}

/// Subjects of an account that a hub is told of whoever subscribes, in their order: those that stand for others, and
/// services of other accounts. (As in nats-server.)
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
