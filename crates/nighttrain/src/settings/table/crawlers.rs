//! Settings of crawlers.

use std::path::PathBuf;

use cache::config::{Budget, InvalidBudget, LIST_MAX};

use crate::settings::{
    Group, Section, Setting, access, list, list_text, network, path_text, plain, texts, value,
};

const CRAWLERS: Group = Group { section: Section::Cache, heading: "Crawlers and strangers" };

/// Settings table of crawlers.
pub(crate) const CRAWLER_SETTINGS: &[Setting] = &[
    CRAWLERS.text(
        "bots",
        "BUDGET",
        "Budget of all crawlers for requests to origins: as-visitors, cached-only, or a rate such as 20/s; \
         beyond it they get stored answers, or 429",
        value!(cache.crawlers.budget, parse = budget, show = plain),
    ),
    CRAWLERS.texts(
        "bot-agents",
        "LIST",
        "Words in the User-Agent of crawlers, in any case; a request without User-Agent counts as a crawler",
        value!(cache.crawlers.agents, parse = agents, show = |agents: Vec<Box<str>>| agents.join(",")),
    ),
    CRAWLERS.texts(
        "bot-networks",
        "LIST",
        "Networks of crawlers, whatever User-Agent they send (10.0.0.0/8,2001:db8::/32)",
        texts!(cache.crawlers.networks, each = network),
    ),
    CRAWLERS.texts(
        "bots-approved",
        "FILES",
        "Networks of welcome crawlers, as their operators publish them: one network per line, or JSON with \
         ipv4Prefix and ipv6Prefix; requests from there are treated as visitors'",
        access!(bots_approved, parse = paths, show = paths_text),
    ),
    CRAWLERS.text(
        "strangers",
        "BUDGET",
        "Budget of all other visitors without a cookie, in the same form",
        value!(cache.crawlers.strangers, parse = budget, show = plain),
    ),
];

fn budget(text: &str) -> Result<Budget, String> {
    text.parse().map_err(|error: InvalidBudget| error.to_string())
}

fn agents(text: &str) -> Result<Vec<Box<str>>, String> {
    let agents: Vec<Box<str>> = list(text).filter(|part| !part.is_empty()).map(Into::into).collect();
    if agents.len() > LIST_MAX {
        return Err(format!("too many: at most {LIST_MAX}"));
    }
    Ok(agents)
}

fn paths(text: &str) -> Result<Vec<PathBuf>, String> {
    Ok(list(text).filter(|path| !path.is_empty()).map(PathBuf::from).collect())
}

fn paths_text(paths: &[PathBuf]) -> Option<String> {
    let paths: Vec<_> = paths.iter().map(path_text).collect();
    list_text(&paths)
}
