//! The scenarios of the cache bench, with their requests, contenders and rounds.

use lab::peers::cache::contenders::{Contender, KIB};
use lab::peers::cache::load::{LoadSpec, Urls, ZIPF_EXPONENT};
use lab::peers::cache::origin::{AWAITED_TIME, Page, SLOW_TIME};

/// Processors of the server and the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    /// The server on one core and the load on another, for every contender.
    Apart,
    /// Nighttrain on one core with the load on another, and Nighttrain on two cores that it shares with the
    /// load.
    OneAndTwo,
}

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) page: Page,
    pub(crate) body_bytes: u64,
    pub(crate) connections: u32,
    pub(crate) urls: Urls,
    pub(crate) sides: Sides,
    pub(crate) rounds: usize,
}

/// Number of objects of 1 KiB; 100,000 of them fit every cache in the comparison.
const URLS_SMALL: u64 = 100_000;
/// Number of objects of 64 KiB. 4,096 of them (256 MiB) fit the memory of each contender; 100,000 (6.4 GiB
/// for each of seven) would not fit this class of machine.
const URLS_LARGE: u64 = 4_096;
/// First URL number of the misses, beyond all URLs of the Zipf loads, so that no miss was requested before.
pub(crate) const MISSES_FROM: u64 = 1_000_000_000;
/// URL numbers reserved for a round of misses, more than a round requests.
pub(crate) const MISSES_A_ROUND: u64 = 10_000_000;

/// Number of URLs that are requested in a cycle and are stale after one second. No server answers this many
/// per second, so each is stale when it is requested again.
const URLS_CHECKED: u64 = 200_000;

/// Rounds of a scenario with a bound, and of one without.
const ROUNDS_GATE: usize = 7;
const ROUNDS_SHOWN: usize = 3;
/// Rounds of a scenario in which differences of a few percent must be visible.
const ROUNDS_FINE: usize = 15;

/// Names of the scenarios in which each request goes to the origin.
pub(crate) const MISS: &str = "miss-1k";
pub(crate) const PASS_SMALL: &str = "pass-1k";
pub(crate) const PASS_LARGE: &str = "pass-64k";
pub(crate) const UPLOAD: &str = "upload-1m";
pub(crate) const CHECKED: &str = "checked-1k";
pub(crate) const PRIVATE_PAGE: &str = "private-100";
/// Name of the scenario in which all clients wait for one page.
pub(crate) const CROWD: &str = "crowd-1000";
/// Name of the scenario in which hits are logged.
pub(crate) const LOGGED: &str = "logged-1k";

/// Returns all scenarios, in the order in which they run.
pub(crate) fn all(quick: bool) -> Vec<Scenario> {
    let (small, large, crowd) = if quick { (500, 100, 100) } else { (URLS_SMALL, URLS_LARGE, 1_000) };
    let one = |name, body_bytes, connections, rounds| Scenario {
        name,
        page: Page::Shared,
        body_bytes,
        connections,
        urls: Urls::One,
        sides: Sides::Apart,
        rounds,
    };
    let zipf = |name, body_bytes, urls| Scenario {
        urls: Urls::Zipf(urls),
        ..one(name, body_bytes, 64, ROUNDS_GATE)
    };
    let through = |name, page, body_bytes, connections| Scenario {
        page,
        ..one(name, body_bytes, connections, ROUNDS_GATE)
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
    all.extend([
        Scenario { urls: Urls::Each(MISSES_FROM), ..one(MISS, KIB, 64, ROUNDS_GATE) },
        Scenario {
            urls: Urls::Round { urls: URLS_CHECKED, first: 0 },
            ..through(CHECKED, Page::Checked, KIB, 64)
        },
        through(PASS_SMALL, Page::Private, KIB, 64),
        through(PASS_LARGE, Page::Private, 64 * KIB, 64),
        through(UPLOAD, Page::Upload, KIB * KIB, 16),
        through(PRIVATE_PAGE, Page::Slow, KIB, 100),
        through(CROWD, Page::Awaited, KIB, crowd),
        one(LOGGED, KIB, 64, ROUNDS_FINE),
    ]);
    all
}

impl Scenario {
    /// Returns whether requests are answered from the store; otherwise each goes to the origin.
    pub(crate) fn is_hit(&self) -> bool {
        self.page == Page::Shared && !matches!(self.urls, Urls::Each(_))
    }

    /// Returns whether a contender takes part; floors that only answer from memory have no origin.
    pub(crate) fn is_for(&self, contender: Contender) -> bool {
        // Contenders that can write an access log themselves are measured with and without it.
        if self.name == LOGGED {
            let without = [Contender::Ours, Contender::Nginx, Contender::Varnish];
            return without.contains(&contender) || Contender::LOGGED.contains(&contender);
        }
        if Contender::LOGGED.contains(&contender) {
            return false;
        }
        let is_proxy = [Contender::Ours, Contender::Other].contains(&contender)
            || Contender::PROXIES.contains(&contender);
        match self.page {
            // HAProxy's cache does not collapse requests.
            Page::Awaited => contender == Contender::Crowd || is_proxy && contender != Contender::Haproxy,
            Page::Slow => contender == Contender::Direct || is_proxy,
            _ if self.is_hit() => !matches!(contender, Contender::Crowd | Contender::Direct),
            _ => is_proxy,
        }
    }

    /// Describes the scenario in a sentence.
    pub(crate) fn what(&self) -> String {
        let urls = match self.urls {
            Urls::One => "one URL, wrk's short request".to_owned(),
            Urls::Zipf(urls) => format!("{urls} URLs by Zipf ({ZIPF_EXPONENT}), browser-like requests"),
            Urls::Each(_) => "each request another URL that is stored, browser-like requests".to_owned(),
            Urls::Round { urls, .. } => format!("{urls} URLs in turn, browser-like requests"),
        };
        let page = match self.page {
            Page::Shared => String::new(),
            Page::Private => ", `Cache-Control: private`".to_owned(),
            Page::Slow => {
                format!(", `Cache-Control: private`, made by the origin in {} ms", SLOW_TIME.as_millis())
            }
            Page::Checked => ", stored, stale, and still the same at the origin".to_owned(),
            Page::Awaited => {
                format!(
                    ", asked for by all at once for the first time, made by the origin in {} ms; latencies from its answer on",
                    AWAITED_TIME.as_millis()
                )
            }
            Page::Upload => ", uploaded by POST".to_owned(),
        };
        let sides = match self.sides {
            Sides::Apart => "",
            Sides::OneAndTwo => {
                "; on one core with the load on the other, on two cores shared with the load, and on one of these"
            }
        };
        format!("{} KiB, {} connections, {urls}{page}{sides}.", self.body_bytes / KIB, self.connections)
    }

    /// Returns the load's requests; `first` is the first URL number where URLs are not repeated or are
    /// requested in a cycle.
    pub(crate) const fn asked(&self, first: u64) -> LoadSpec {
        let urls = match self.urls {
            Urls::Each(_) => Urls::Each(first),
            Urls::Round { urls, .. } => Urls::Round { urls, first },
            urls => urls,
        };
        LoadSpec { page: self.page, body_bytes: self.body_bytes, connections: self.connections, urls }
    }

    /// Returns the IDs of the scenario's stored objects, fresh or stale. The single URL has ID 0; the Zipf
    /// URLs begin at 1.
    pub(crate) fn ids(&self) -> std::ops::Range<u64> {
        match self.urls {
            Urls::Round { urls, .. } => 0..urls,
            _ if !self.is_hit() => 0..0,
            Urls::One => 0..1,
            Urls::Zipf(urls) => 1..urls + 1,
            Urls::Each(_) => 0..0,
        }
    }
}
