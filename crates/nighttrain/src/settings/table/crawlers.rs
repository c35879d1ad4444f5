//! Settings of crawlers.

use std::path::PathBuf;

use cache::config::{Budget, InvalidBudget, LIST_MAX};

use crate::settings::{Section, Setting, ValueAccess, ValueShape, list, networks, value};

const CRAWLERS: &str = "Crawlers and strangers";

const fn row(
    key: &'static str,
    shape: ValueShape,
    value_name: &'static str,
    help: &'static str,
    access: ValueAccess,
) -> Setting {
    Setting { key, section: Section::Cache, shape, heading: CRAWLERS, value_name, help, access }
}

/// Settings table of crawlers.
pub(crate) const CRAWLER_SETTINGS: &[Setting] = &[
    row(
        "bots",
        ValueShape::Text,
        "BUDGET",
        "Budget of all crawlers for requests to origins: as-visitors, cached-only, or a rate such as 20/s; beyond it \
         they get stored answers, or 429",
        value!(cache.crawlers.budget, parse = budget, show = budget_text),
    ),
    row(
        "bot-agents",
        ValueShape::Texts,
        "LIST",
        "Words in the User-Agent of crawlers, in any case; a request without User-Agent counts as a crawler",
        ValueAccess {
            set: |settings, text| {
                settings.cache.crawlers.agents = agents(text)?;
                Ok(())
            },
            text: |settings| Some(settings.cache.crawlers.agents.join(",")),
        },
    ),
    row(
        "bot-networks",
        ValueShape::Texts,
        "LIST",
        "Networks of crawlers, whatever User-Agent they send (10.0.0.0/8,2001:db8::/32)",
        networks!(cache.crawlers.networks),
    ),
    row(
        "bots-approved",
        ValueShape::Texts,
        "FILES",
        "Networks of welcome crawlers, as their operators publish them: one network per line, or JSON with ipv4Prefix \
         and ipv6Prefix; requests from there are treated as visitors'",
        ValueAccess {
            set: |settings, text| {
                settings.bots_approved =
                    list(text).filter(|path| !path.is_empty()).map(PathBuf::from).collect();
                Ok(())
            },
            text: |settings| {
                let paths: Vec<_> =
                    settings.bots_approved.iter().map(|path| path.display().to_string()).collect();
                (!paths.is_empty()).then(|| paths.join(","))
            },
        },
    ),
    row(
        "strangers",
        ValueShape::Text,
        "BUDGET",
        "Budget of all other visitors without a cookie, in the same form",
        value!(cache.crawlers.strangers, parse = budget, show = budget_text),
    ),
];

fn budget(text: &str) -> Result<Budget, String> {
    text.parse().map_err(|error: InvalidBudget| error.to_string())
}

fn budget_text(budget: Budget) -> String {
    budget.to_string()
}

fn agents(text: &str) -> Result<Vec<Box<str>>, String> {
    let agents: Vec<Box<str>> = list(text).filter(|part| !part.is_empty()).map(Into::into).collect();
    if agents.len() > LIST_MAX {
        return Err(format!("too many: at most {LIST_MAX}"));
    }
    Ok(agents)
}
