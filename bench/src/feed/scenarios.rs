//! The scenarios of the feed bench, with their messages, consumers and rounds.

use std::time::Duration;

use lab::peers::feed::{PAYLOAD_BYTES, contenders::Contender, load::Shape, wire::Wire};

/// Processors of the server and the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    /// The server on one core and the load on another, for every contender.
    Apart,
    /// One and two cores, both shared with the load.
    OneAndTwo,
    /// Leaf nodes of one hub, which shares the load's core: the producer is at the leaf node, the consumer at
    /// the hub. Nighttrain is also measured with both clients on its own server.
    Leaf,
}

/// The pattern of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// Producers, each with its own consumers.
    Flows,
    /// This number of clients, each with one outstanding request, and one client that answers.
    Asking(usize),
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) pattern: Pattern,
    pub(crate) shape: Shape,
    pub(crate) sides: Sides,
    pub(crate) rounds: usize,
    pub(crate) run: Duration,
}

const ROUNDS: usize = 7;
const RUN: Duration = Duration::from_millis(700);
const RUN_QUICK: Duration = Duration::from_millis(200);

/// Further names that `--scenario` accepts, with their descriptions.
pub(crate) const OTHERS: [(&str, &str); 3] = [
    (
        "latency",
        "10,000 and 100,000 messages/s by the clock: p50, p99, p99.9, worst from when a message was due.",
    ),
    ("crowd", "10,000 idle connections, then ten wildcard subscriptions on each: resident bytes of each."),
    ("churn", "50,000 subscribe and unsubscribe a second beside a flow of 10,000 messages/s."),
];

/// Returns all closed-loop scenarios, in the order in which they run.
pub(crate) fn all(quick: bool) -> Vec<Scenario> {
    let run = if quick { RUN_QUICK } else { RUN };
    let of = |name, flows, consumers, payload_bytes, window, sides| Scenario {
        name,
        pattern: Pattern::Flows,
        shape: Shape { flows, consumers, payload_bytes, window, per_second: None },
        sides,
        rounds: ROUNDS,
        run,
    };
    let asking = |name, askers| Scenario {
        pattern: Pattern::Asking(askers),
        ..of(name, 1, 1, PAYLOAD_BYTES, 1, Sides::Apart)
    };
    let mut slow = of("many-slow", 1_000, 1, PAYLOAD_BYTES, 2, Sides::Apart);
    slow.shape.per_second = Some(10);
    let one =
        |name, flows, consumers, window, sides| of(name, flows, consumers, PAYLOAD_BYTES, window, sides);
    vec![
        one("none", 1, 0, 16_384, Sides::Apart),
        one("one", 1, 1, 16_384, Sides::Apart),
        one("ten", 1, 10, 8_192, Sides::Apart),
        one("hundred", 1, 100, 4_096, Sides::Apart),
        of("one-64k", 1, 1, 64 << 10, 64, Sides::Apart),
        of("ten-64k", 1, 10, 64 << 10, 32, Sides::Apart),
        of("one-1m", 1, 1, 1 << 20, 8, Sides::Apart),
        // The fan-out benchmark that BusterMQ published.
        of("fan-out", 10, 10, 128, 4_096, Sides::Apart),
        asking("ask-one", 1),
        asking("ask-fifty", 50),
        slow,
        one("leaf", 1, 1, 16_384, Sides::Leaf),
        one("cores-one", 1, 1, 16_384, Sides::OneAndTwo),
        one("cores-pairs", 16, 1, 4_096, Sides::OneAndTwo),
    ]
}

impl Scenario {
    /// Returns whether a contender can take part: a floor relays only one flow of messages of the default
    /// size, and only the NATS protocol has replies.
    pub(crate) fn is_for(&self, contender: Contender) -> bool {
        match self.pattern {
            Pattern::Asking(_) => contender.wire() == Wire::Nats,
            Pattern::Flows => {
                !contender.is_floor() || (self.shape.flows == 1 && self.shape.payload_bytes == PAYLOAD_BYTES)
            }
        }
    }

    pub(crate) fn unit(&self) -> &'static str {
        match self.pattern {
            Pattern::Asking(_) => "answer",
            Pattern::Flows if self.shape.consumers == 0 => "message",
            Pattern::Flows => "delivery",
        }
    }

    /// Describes the scenario in a sentence.
    pub(crate) fn what(&self) -> String {
        let Shape { flows, consumers, payload_bytes, per_second, .. } = self.shape;
        if let Pattern::Asking(askers) = self.pattern {
            let askers = if askers == 1 { "One asks".to_owned() } else { format!("{askers} ask") };
            return format!(
                "{askers}, with one question under way each, and one answers; {payload_bytes} bytes a message."
            );
        }
        let consumers = match consumers {
            0 => "nobody subscribed".to_owned(),
            1 => "one consumer".to_owned(),
            n => format!("{n} consumers, each with an identifier of its own"),
        };
        let flows =
            if flows == 1 { "One producer".to_owned() } else { format!("{flows} producers, each with") };
        let sides = match self.sides {
            Sides::Apart => "",
            Sides::OneAndTwo => "; the server on one core and on two, both shared with the load",
            Sides::Leaf => {
                "; the producer at a leaf node, the consumer at its hub, and for ours also at itself"
            }
        };
        let pace = per_second.map_or_else(String::new, |rate| format!(", {rate} messages a second each"));
        format!("{flows} {consumers}; {payload_bytes} bytes a message{pace}{sides}.")
    }
}
