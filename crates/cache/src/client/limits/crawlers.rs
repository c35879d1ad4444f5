//! Budgets for requests of crawlers and of clients without cookies that cause work for the origin; visitors'
//! requests are not limited.
//!
//! A hit costs the origin nothing and is not counted here. A request that the store cannot answer costs it
//! work, and a crawl from thousands of addresses overloads the origin even if no single address sends many
//! requests. So requests that look like a crawler's share one budget, and requests without a cookie share
//! another. Beyond the budget they get a stored answer, stale if that is allowed, or 429.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use wire::http1::{head::RequestHead, known::KnownHeader};

use crate::{
    config::{Budget, CrawlerRules},
    counters::Counter,
};

/// Spent budgets, shared by all cores.
#[derive(Debug)]
pub(crate) struct Work {
    of_crawlers: Spent,
    of_strangers: Spent,
}

/// Class of a request's sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Crawler,
    Stranger,
    Visitor,
}

impl Work {
    pub(crate) fn new(rules: &CrawlerRules) -> Self {
        Self { of_crawlers: Spent::new(rules.budget), of_strangers: Spent::new(rules.strangers) }
    }

    /// Counts a request that would cause work for its origin. If the budget of its class is spent, returns
    /// the counter for the refusal as the error.
    pub(crate) fn admit(
        &self,
        rules: &CrawlerRules,
        head: &RequestHead<'_, '_>,
        address: IpAddr,
        now_ms: u64,
    ) -> Result<(), Counter> {
        if rules.budget == Budget::Unlimited && rules.strangers == Budget::Unlimited {
            return Ok(());
        }
        let (spent, counter) = match class(rules, head, address) {
            Class::Visitor => return Ok(()),
            Class::Crawler => (&self.of_crawlers, Counter::CrawlersHeldBack),
            Class::Stranger => (&self.of_strangers, Counter::StrangersHeldBack),
        };
        if spent.admit(now_ms * 1000) { Ok(()) } else { Err(counter) }
    }
}

fn class(rules: &CrawlerRules, head: &RequestHead<'_, '_>, address: IpAddr) -> Class {
    let is_in =
        |networks: &[engine::network::Network]| networks.iter().any(|network| network.contains(address));
    if is_in(&rules.approved) {
        return Class::Visitor;
    }
    if is_in(&rules.networks) || is_crawlers(head.header("user-agent").unwrap_or_default(), &rules.agents) {
        return Class::Crawler;
    }
    if head.headers.has(KnownHeader::Cookie) { Class::Visitor } else { Class::Stranger }
}

/// Returns whether a `User-Agent` belongs to a crawler: it contains a known name, or is empty.
fn is_crawlers(agent: &[u8], agents: &[Box<str>]) -> bool {
    // No real name is longer; the bound limits the cost of the comparison.
    let agent = &agent[..agent.len().min(512)];
    let has = |part: &str| {
        agent.windows(part.len().max(1)).any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
    };
    agent.is_empty() || agents.iter().any(|part| has(part))
}

/// Usage of a budget, kept as the time at which all requests admitted so far would be due at the allowed rate
/// (see [`rates`](crate::client::limits::rates)).
#[derive(Debug)]
struct Spent {
    due_us: AtomicU64,
    /// Time between two requests; `None` if none are allowed.
    each_us: Option<u64>,
}

/// Length of a burst: the requests allowed in this time may all come at once.
const BURST_US: u64 = 1_000_000;

impl Spent {
    fn new(budget: Budget) -> Self {
        let each_us = match budget {
            Budget::Unlimited => Some(0),
            Budget::PerSecond(0) => None,
            Budget::PerSecond(number) => Some((1_000_000 / u64::from(number)).max(1)),
        };
        Self { due_us: AtomicU64::new(0), each_us }
    }

    fn admit(&self, now_us: u64) -> bool {
        let Some(each_us) = self.each_us else { return false };
        let next = |due_us: u64| {
            let next = due_us.max(now_us) + each_us;
            (next - now_us <= BURST_US).then_some(next)
        };
        self.due_us.fetch_update(Relaxed, Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::test_heads::with_request;

    #[test]
    fn crawlers_are_recognised_by_agent_and_network() {
        let networks = |text: &str| vec![text.parse().expect("a network")];
        let rules = CrawlerRules {
            networks: networks("192.0.2.0/24"),
            approved: networks("198.51.100.0/24"),
            ..CrawlerRules::default()
        };
        let browser = "User-Agent: Mozilla/5.0 (X11; Linux x86_64) Firefox/150.0\n";
        for (address, fields, of) in [
            ("10.0.0.1", format!("{browser}Cookie: a=b\n"), Class::Visitor),
            ("10.0.0.1", browser.to_owned(), Class::Stranger),
            (
                "10.0.0.1",
                "User-Agent: Mozilla/5.0 (compatible; GPTBot/1.2)\nCookie: a=b\n".to_owned(),
                Class::Crawler,
            ),
            ("10.0.0.1", "User-Agent: Bytespider\n".to_owned(), Class::Crawler),
            ("10.0.0.1", "Cookie: a=b\n".to_owned(), Class::Crawler),
            ("192.0.2.7", format!("{browser}Cookie: a=b\n"), Class::Crawler),
            ("198.51.100.7", "User-Agent: Googlebot/2.1\n".to_owned(), Class::Visitor),
        ] {
            let address = address.parse().expect("an address");
            with_request("GET /", &fields, |head| assert_eq!(class(&rules, head, address), of, "{fields}"));
        }
    }

    #[test]
    fn a_budget_is_for_all_together() {
        let spent = Spent::new(Budget::PerSecond(10));
        let count = |now_ms: u64| (0..100).filter(|_| spent.admit(now_ms * 1000)).count();
        assert_eq!([count(5000), count(5000), count(5250), count(60_000)], [10, 0, 2, 10]);
        let nothing = Spent::new(Budget::PerSecond(0));
        assert!(!nothing.admit(5_000_000));
        let all = Spent::new(Budget::Unlimited);
        assert!((0..1000).all(|_| all.admit(5_000_000)));
    }
}
