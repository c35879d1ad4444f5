//! Crawlers, and budgets for the origin requests that they may cause.

use std::{fmt, str::FromStr};

use engine::network::Network;

/// Budget of origin requests that all visitors of a class may cause together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Budget {
    /// No limit.
    #[default]
    Unlimited,
    /// Requests per second; 0 means none, so that the class gets stored answers only.
    PerSecond(u32),
}

const CACHED_ONLY: &str = "cached-only";
const AS_VISITORS: &str = "as-visitors";

/// The text is not a budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid budget `{0}`: expected as-visitors, cached-only, or a rate of requests to origins such as 20/s"
)]
pub struct InvalidBudget(String);

impl FromStr for Budget {
    type Err = InvalidBudget;

    fn from_str(text: &str) -> Result<Self, InvalidBudget> {
        match (text, text.strip_suffix("/s").and_then(|number| number.parse().ok())) {
            (AS_VISITORS, _) => Ok(Self::Unlimited),
            (CACHED_ONLY, _) => Ok(Self::PerSecond(0)),
            (_, Some(number @ 1..)) => Ok(Self::PerSecond(number)),
            _ => Err(InvalidBudget(text.to_owned())),
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str(AS_VISITORS),
            Self::PerSecond(0) => f.write_str(CACHED_ONLY),
            Self::PerSecond(number) => write!(f, "{number}/s"),
        }
    }
}

/// Definition of crawlers, and their budgets of origin requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrawlerRules {
    /// Substrings of crawlers' `User-Agent` values, in lower case. A request without a `User-Agent` also
    /// counts as a crawler's.
    pub agents: Vec<Box<str>>,
    /// Networks whose clients are crawlers, whatever their `User-Agent`.
    pub networks: Vec<Network>,
    /// Networks whose clients are never limited, for welcome crawlers, which publish their networks; the
    /// `User-Agent` is not checked.
    pub approved: Vec<Network>,
    /// Budget for all crawlers together.
    pub budget: Budget,
    /// Budget for all other clients that send no cookie.
    pub strangers: Budget,
}

impl Default for CrawlerRules {
    fn default() -> Self {
        Self {
            agents: ["bot", "crawl", "spider", "slurp", "scrapy"].map(Into::into).into(),
            networks: Vec::new(),
            approved: Vec::new(),
            budget: Budget::Unlimited,
            strangers: Budget::Unlimited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_shown_again() {
        for (text, budget) in [
            ("as-visitors", Budget::Unlimited),
            ("cached-only", Budget::PerSecond(0)),
            ("20/s", Budget::PerSecond(20)),
        ] {
            assert_eq!(text.parse(), Ok(budget));
            assert_eq!(budget.to_string(), text);
        }
        for wrong in ["", "0/s", "20", "20/m", "-1/s", "cached"] {
            assert_eq!(wrong.parse::<Budget>(), Err(InvalidBudget(wrong.to_owned())));
        }
    }
}
