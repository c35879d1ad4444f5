//! Visitors who are programs, and how much work of the origins' is theirs.

use std::{fmt, str::FromStr};

use engine::network::Network;

/// Requests to origins that visitors of a class may cause, all of them together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Budget {
    /// As many as they like.
    #[default]
    Unlimited,
    /// So many a second; 0: none, they get what is stored.
    PerSecond(u32),
}

const CACHED_ONLY: &str = "cached-only";
const AS_VISITORS: &str = "as-visitors";

/// It says no budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of as-visitors, cached-only, and a number of requests to origins such as 20/s")]
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

/// Who is a crawler, and what it may ask of origins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrawlerRules {
    /// What the agents of crawlers have in their names, in lower case. Who says no agent is one, too.
    pub agents: Vec<Box<str>>,
    /// Where crawlers come from, whatever they say.
    pub networks: Vec<Network>,
    /// Who comes from there is none, whatever it says: crawlers that are welcome, by the networks that they publish.
    pub approved: Vec<Network>,
    /// Of all crawlers.
    pub budget: Budget,
    /// Of all others who show no cookie.
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
