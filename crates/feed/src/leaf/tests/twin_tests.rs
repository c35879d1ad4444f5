//! Comparison of the deliveries between two cores and a hub with a list of all subscriptions.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wire::nats::{
    Progress,
    leaf::{self, LeafOp, Limits},
    server::{self, ServerOp},
    subject,
};

use super::{INFO, World};

/// Number of times that a client or hub got each message (subject and payload).
type Got = BTreeMap<(Vec<u8>, Vec<u8>), usize>;

fn got_by_client(bytes: &[u8]) -> Got {
    let (mut got, mut rest) = (Got::new(), bytes);
    while let Ok(Progress::Complete(op, taken)) = server::parse(rest) {
        rest = &rest[taken..];
        if let ServerOp::Message { subject, payload, .. } = op {
            *got.entry((subject.to_vec(), payload.to_vec())).or_default() += 1;
        }
    }
    assert!(rest.is_empty(), "{:?}", String::from_utf8_lossy(rest));
    got
}

/// Parses a hub's output into messages and the groups that they name.
fn got_by_hub(bytes: &[u8]) -> (Got, BTreeMap<Vec<u8>, Vec<String>>) {
    let (mut got, mut groups, mut rest) = (Got::new(), BTreeMap::new(), bytes);
    while let Ok(Progress::Complete(op, taken)) = leaf::parse(rest, &Limits::default()) {
        rest = &rest[taken..];
        if let LeafOp::Message(message) = op {
            *got.entry((message.subject.to_vec(), message.body.to_vec())).or_default() += 1;
            let names = message.queue_names().map(|name| String::from_utf8_lossy(name).into_owned());
            groups.insert(message.body.to_vec(), names.collect());
        }
    }
    assert!(rest.is_empty(), "{:?}", String::from_utf8_lossy(rest));
    (got, groups)
}

const PATTERNS: [&str; 5] = ["a", "a.b", "a.*", ">", "*.b"];
const SUBJECTS: [&str; 4] = ["a", "a.b", "a.b.c", "z"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// With any subscriptions and messages on two cores and at the hub: each subscriber gets each message
    /// once, each queue group gets it once, and the hub gets it once if it has interest and did not send the
    /// message.
    #[test]
    fn each_message_is_had_once(
        wishes in prop::collection::vec((0_usize..3, 0_usize..5, prop::option::of(0_usize..2)), 0..8),
        published in prop::collection::vec((0_usize..3, 0_usize..4, 1_usize..4), 1..8),
    ) {
        let world = World::new(2, 1, INFO);
        let hub = world.hubs[0];
        let clients = [world.enter(0), world.enter(1)];
        let mut at_hub: BTreeMap<(usize, Option<usize>), u32> = BTreeMap::new();
        for (sid, &(who, pattern, queue)) in wishes.iter().enumerate() {
            let group = queue.map_or_else(String::new, |queue| format!(" q{queue}"));
            if who < 2 {
                world.say(clients[who], format!("SUB {}{group} {sid}\r\n", PATTERNS[pattern]).as_bytes());
            } else {
                let weight = at_hub.entry((pattern, queue)).or_default();
                *weight += 1;
                let weight = queue.map_or_else(String::new, |_| format!(" {weight}"));
                world.say(hub, format!("LS+ {}{group}{weight}\r\n", PATTERNS[pattern]).as_bytes());
            }
        }
        world.take(hub);
        let matches = |pattern: usize, text: &str| subject::matches(PATTERNS[pattern].as_bytes(), text.as_bytes());
        for (number, &(who, to, count)) in published.iter().enumerate() {
            let text = SUBJECTS[to];
            let body = format!("{number:03}");
            let key = (text.as_bytes().to_vec(), body.as_bytes().to_vec());
            let is_from_hub = who == 2;
            let verb = if is_from_hub { "LMSG" } else { "PUB" };
            let message = format!("{verb} {text} 3\r\n{body}\r\n").repeat(count);
            world.say(if is_from_hub { hub } else { clients[who] }, message.as_bytes());
            let (by_hub, groups_named) = got_by_hub(&world.take(hub));
            let by_clients: usize = clients.iter().map(|&of| got_by_client(&world.take(of)).get(&key).copied().unwrap_or(0)).sum();
            let plain = wishes.iter().filter(|(who, pattern, queue)| *who < 2 && queue.is_none() && matches(*pattern, text)).count();
            // A queue group may have members at several patterns. A group without members here is served at
            // the hub.
            let groups: std::collections::BTreeSet<usize> = wishes.iter()
                .filter(|(_, pattern, _)| matches(*pattern, text))
                .filter_map(|(_, _, queue)| *queue)
                .collect();
            let is_here = |group: &usize| wishes.iter().any(|(who, pattern, queue)| *who < 2 && *queue == Some(*group) && matches(*pattern, text));
            let here = if is_from_hub { 0 } else { groups.iter().filter(|group| is_here(group)).count() };
            prop_assert_eq!(by_clients, (plain + here) * count, "to {}", text);
            let is_wanted = wishes.iter().any(|(who, pattern, queue)| *who == 2 && queue.is_none() && matches(*pattern, text));
            let mut named: Vec<String> = groups.iter().filter(|group| !is_here(group)).map(|queue| format!("q{queue}")).collect();
            let expected = if !is_from_hub && (is_wanted || !named.is_empty()) { count } else { 0 };
            prop_assert_eq!(by_hub.get(&key).copied().unwrap_or(0), expected);
            prop_assert_eq!(by_hub.len(), usize::from(expected > 0));
            if expected > 0 {
                let mut seen = groups_named[body.as_bytes()].clone();
                seen.sort();
                named.sort();
                prop_assert_eq!(seen, named);
            }
        }
    }
}
