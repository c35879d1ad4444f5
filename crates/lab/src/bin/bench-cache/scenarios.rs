//! What is asked, of whom, how often.

use lab::peers::cache::contenders::KIB;
use lab::peers::cache::load::{Asked, Urls, ZIPF_EXPONENT};

/// Which processors the two sides have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    /// The server on one core, the load on another: everybody takes part.
    Apart,
    /// Ours on one core with the load apart, and ours on two cores that it shares with the load.
    OneAndTwo,
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) body_bytes: u64,
    pub(crate) connections: u32,
    pub(crate) urls: Urls,
    pub(crate) sides: Sides,
    pub(crate) rounds: usize,
}

/// 100,000 × 1 KiB fit any cache here.
const URLS_SMALL: u64 = 100_000;
/// 4,096 × 64 KiB = 256 MiB fit the memory that each contender is given; 100,000 (6.4 GiB, seven times over)
/// would not fit this class of machine.
const URLS_LARGE: u64 = 4_096;

/// Rounds where a figure depends on it, and elsewhere.
const ROUNDS_GATE: usize = 7;
const ROUNDS_SHOWN: usize = 3;

/// All scenarios, in the order in which they run.
pub(crate) fn all(quick: bool) -> Vec<Scenario> {
    let (small, large) = if quick { (500, 100) } else { (URLS_SMALL, URLS_LARGE) };
    let one = |name, body_bytes, connections, rounds| Scenario {
        name,
        body_bytes,
        connections,
        urls: Urls::One,
        sides: Sides::Apart,
        rounds,
    };
    let zipf = |name, body_bytes, urls| Scenario {
        name,
        body_bytes,
        connections: 64,
        urls: Urls::Zipf(urls),
        sides: Sides::Apart,
        rounds: ROUNDS_GATE,
    };
    let mut all = vec![
        one("one-1k-64", KIB, 64, ROUNDS_GATE),
        one("one-64k-64", 64 * KIB, 64, ROUNDS_GATE),
        zipf("zipf-1k-64", KIB, small),
        Scenario { sides: Sides::OneAndTwo, ..one("two-cores", KIB, 64, ROUNDS_GATE) },
    ];
    if !quick {
        all.extend([
            zipf("zipf-64k-64", 64 * KIB, large),
            one("one-1k-1000", KIB, 1_000, ROUNDS_GATE),
            one("one-1k-8", KIB, 8, ROUNDS_SHOWN),
            one("one-64k-8", 64 * KIB, 8, ROUNDS_SHOWN),
            one("one-64k-1000", 64 * KIB, 1_000, ROUNDS_SHOWN),
        ]);
    }
    all
}

impl Scenario {
    /// In a sentence.
    pub(crate) fn what(&self) -> String {
        let urls = match self.urls {
            Urls::One => "one URL, wrk's short request".to_owned(),
            Urls::Zipf(urls) => format!("{urls} URLs by Zipf ({ZIPF_EXPONENT}), browser-like requests"),
        };
        let sides = match self.sides {
            Sides::Apart => "",
            Sides::OneAndTwo => {
                "; on one core with the load on the other, on two cores shared with the load, and on one of these"
            }
        };
        format!("{} KiB, {} connections, {urls}{sides}.", self.body_bytes / KIB, self.connections)
    }

    /// What the load is told.
    pub(crate) const fn asked(&self) -> Asked {
        Asked { body_bytes: self.body_bytes, connections: self.connections, urls: self.urls }
    }

    /// The IDs of the objects that it asks for. One URL is ID 0; the drawn ones begin at 1.
    pub(crate) fn ids(&self) -> std::ops::Range<u64> {
        match self.urls {
            Urls::One => 0..1,
            Urls::Zipf(urls) => 1..urls + 1,
        }
    }
}
