//! Table of sites: the site of a host, and its rules. It is built at the start, and then only read.
//!
//! A host is looked up in the form of a key, in lower case and without its port: first by its whole name,
//! then by its suffixes, beginning with the longest. *Bounds:* [`SITES_MAX`] sites. Names longer than
//! [`HOST_BYTES_MAX`] belong to no site, and no suffix is looked up that is longer than the longest
//! configured one, so a host with many dots costs little.

use std::collections::HashMap;

use wire::http1::head::RequestHead;

use crate::{
    config::{ClientCertificates, Config, HostPattern, LIST_MAX, PATHS_MAX, SITES_MAX, Site, SiteRules},
    policy::RuleResult,
};

/// Maximum length of a host's name in bytes (RFC 1035 §2.3.4).
const HOST_BYTES_MAX: usize = 255;

/// Number of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SiteId(u16);

impl SiteId {
    /// The default site, for hosts that no other site names.
    pub(crate) const DEFAULT: Self = Self(0);

    /// Returns the index among the sites, of which the default one is the first.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Error in the sites' definitions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SitesError {
    /// Two sites have the same host.
    #[error("two sites have the host {0}")]
    Twice(String),
    /// There are too many sites, hosts or path rules.
    #[error("too many sites: at most 1000 are allowed, each with at most 64 hosts and 64 path rules")]
    TooMany,
}

/// Sites by host, or by suffix.
type Hosts = HashMap<Box<[u8]>, SiteId>;

/// The sites of a configuration.
#[derive(Debug)]
pub(crate) struct SiteTable {
    exactly: Hosts,
    /// Sites by a suffix of the host's name, including the suffix's first dot.
    below: Hosts,
    /// Length of the longest suffix in bytes.
    end_bytes_max: usize,
    /// Rules by site, those of the default site first.
    rules: Box<[SiteRules]>,
    /// Hosts that each site names, for operators.
    names: Box<[String]>,
    /// Fields of all sites that tell origins about their clients' certificates; no client can send any of
    /// them to any site.
    certificate_fields: Box<[Box<str>]>,
    /// The default site has an origin.
    has_default: bool,
    /// The default site has an origin, and no site has a rule that could decide a request.
    decides_nothing: bool,
}

impl Default for SiteTable {
    /// Returns a table with one site for all hosts, without rules.
    fn default() -> Self {
        Self {
            exactly: Hosts::new(),
            below: Hosts::new(),
            end_bytes_max: 0,
            rules: Box::new([SiteRules::default()]),
            names: Box::new([String::new()]),
            certificate_fields: Box::new([]),
            has_default: true,
            decides_nothing: true,
        }
    }
}

impl SiteTable {
    /// Builds the table for a configuration.
    ///
    /// # Errors
    /// [`SitesError::Twice`] if two sites have the same host; [`SitesError::TooMany`] if there are too many.
    pub(crate) fn of(config: &Config) -> Result<Self, SitesError> {
        let (mut exactly, mut below) = (Hosts::new(), Hosts::new());
        if config.sites.len() > SITES_MAX || config.rules.paths.len() > PATHS_MAX {
            return Err(SitesError::TooMany);
        }
        for (number, Site { hosts, rules, .. }) in (1..).zip(&config.sites) {
            if hosts.len() > LIST_MAX || rules.paths.len() > PATHS_MAX {
                return Err(SitesError::TooMany);
            }
            for host in hosts {
                let (map, name) = match host {
                    HostPattern::Exactly(name) => (&mut exactly, name),
                    HostPattern::Below(end) => (&mut below, end),
                };
                if map.insert(name.as_bytes().into(), SiteId(number)).is_some() {
                    return Err(SitesError::Twice(host.to_string()));
                }
            }
        }
        let named = |site: &Site| site.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let rules: Box<[_]> =
            [&config.rules].into_iter().chain(config.sites.iter().map(|site| &site.rules)).cloned().collect();
        let mut fields: Vec<_> = rules
            .iter()
            .flat_map(|rules| rules.client_certificates.iter().flat_map(ClientCertificates::fields))
            .collect();
        fields.sort_unstable();
        fields.dedup();
        Ok(Self {
            certificate_fields: fields.into(),
            end_bytes_max: below.keys().map(|end| end.len()).max().unwrap_or(0),
            names: [String::new()].into_iter().chain(config.sites.iter().map(named)).collect(),
            has_default: config.origin.is_some(),
            decides_nothing: config.origin.is_some() && rules.iter().all(SiteRules::decide_nothing),
            exactly,
            below,
            rules,
        })
    }

    /// Returns the site of a host, which must be in lower case and without a port.
    #[inline]
    pub(crate) fn of_host(&self, host: &[u8]) -> SiteId {
        if self.rules.len() == 1 { SiteId::DEFAULT } else { self.look_up(host) }
    }

    fn look_up(&self, host: &[u8]) -> SiteId {
        // A dot at the end marks a fully qualified name (RFC 1034 §3.1).
        let host = host.strip_suffix(b".").unwrap_or(host);
        if host.len() > HOST_BYTES_MAX {
            return SiteId::DEFAULT;
        }
        if let Some(site) = self.exactly.get(host) {
            return *site;
        }
        let from = host.len().saturating_sub(self.end_bytes_max).max(1);
        let ends = (from..host.len()).filter(|at| host[*at] == b'.').map(|at| &host[at..]);
        ends.filter_map(|end| self.below.get(end)).copied().next().unwrap_or(SiteId::DEFAULT)
    }

    /// Returns the rules of a site.
    #[inline]
    pub(crate) fn rules(&self, site: SiteId) -> &SiteRules {
        &self.rules[site.index()]
    }

    /// Returns the hosts that the site of a host names, ignoring case; empty for the default site.
    pub(crate) fn names_for(&self, host: &[u8]) -> &str {
        if self.rules.len() <= 1 {
            return "";
        }
        let mut lower = [0; HOST_BYTES_MAX];
        let Some(lower) = lower.get_mut(..host.len()) else { return "" };
        lower.copy_from_slice(host);
        lower.make_ascii_lowercase();
        self.names(self.of_host(lower))
    }

    /// Returns the hosts that the site at an index names.
    pub(crate) fn names_at(&self, place: usize) -> &str {
        self.names.get(place).map_or("", String::as_str)
    }

    /// Returns the hosts that a site names; empty for the default site.
    pub(crate) fn names(&self, site: SiteId) -> &str {
        &self.names[site.index()]
    }

    /// Returns the fields that no client can send to any site's origin.
    pub(crate) fn certificate_fields(&self) -> &[Box<str>] {
        &self.certificate_fields
    }

    /// Evaluates the rules of a request's site for a path (with its query, as in the key).
    #[inline]
    pub(crate) fn ruled(
        &self,
        site: SiteId,
        head: &RequestHead<'_, '_>,
        path_and_query: &[u8],
    ) -> RuleResult {
        if self.decides_nothing {
            return RuleResult::default();
        }
        let is_misdirected = site == SiteId::DEFAULT && !self.has_default;
        RuleResult { is_misdirected, ..RuleResult::by(self.rules(site), head, path_and_query) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::Origin;

    fn table(sites: &[&[&str]]) -> Result<SiteTable, SitesError> {
        let origin = Origin::http("127.0.0.1", 9);
        let site = |hosts: &&[&str]| Site {
            hosts: hosts.iter().map(|host| host.parse().expect("a host")).collect(),
            origin: origin.clone(),
            rules: SiteRules::default(),
        };
        SiteTable::of(&Config { sites: sites.iter().map(site).collect(), ..Config::new(origin.clone()) })
    }

    #[test]
    fn exact_hosts_win_then_the_longest_suffix() {
        let table = table(&[&["a.example", "b.example"], &["*.example"], &["*.x.example", "x.example"]])
            .expect("sites");
        for (host, site) in [
            ("a.example", 1),
            ("b.example", 1),
            ("b.example.", 1),
            ("c.example", 2),
            ("d.c.example", 2),
            ("x.example", 3),
            ("y.x.example", 3),
            ("z.y.x.example", 3),
            ("xx.example", 2),
            ("example", 0),
            (".example", 0),
            ("", 0),
            (".", 0),
            ("a.examples", 0),
        ] {
            assert_eq!(table.of_host(host.as_bytes()), SiteId(site), "{host}");
        }
        assert_eq!(table.of_host(&[&[b'.'; 300][..], b".example"].concat()), SiteId::DEFAULT);
        assert_eq!(table.names(SiteId(3)), "*.x.example, x.example");
    }

    #[test]
    fn duplicate_hosts_and_excess_sites_are_refused() {
        assert_eq!(table(&[&["a"], &["b", "A"]]).err(), Some(SitesError::Twice("a".to_owned())));
        assert_eq!(table(&[&["*.a"], &["a", "*.a"]]).err(), Some(SitesError::Twice("*.a".to_owned())));
        assert_eq!(table(&vec![&[][..]; SITES_MAX + 1]).err(), Some(SitesError::TooMany));
        assert!(table(&vec![&[][..]; SITES_MAX]).is_ok());
    }

    /// The slow twin: compares all names one by one.
    fn twin(sites: &[Vec<String>], host: &str) -> u16 {
        let host = host.strip_suffix('.').unwrap_or(host);
        let all =
            || (1..).zip(sites).flat_map(|(number, hosts)| hosts.iter().map(move |host| (number, host)));
        if let Some((number, _)) = all().find(|(_, name)| *name == host) {
            return number;
        }
        let is_below = |name: &str| {
            name.strip_prefix('*').is_some_and(|end| host.len() > end.len() && host.ends_with(end))
        };
        let below = all().filter(|(_, name)| is_below(name));
        below.max_by_key(|(_, name)| name.len()).map_or(0, |(number, _)| number)
    }

    proptest! {
        #[test]
        fn it_finds_what_the_twin_finds(
            sites in prop::collection::vec(prop::collection::vec("(\\*\\.)?[ab](\\.[ab]){0,3}", 0..4), 0..5),
            host in "([ab]\\.){0,4}[ab]?\\.?",
        ) {
            let borrowed: Vec<Vec<&str>> = sites.iter().map(|hosts| hosts.iter().map(String::as_str).collect()).collect();
            let borrowed: Vec<&[&str]> = borrowed.iter().map(Vec::as_slice).collect();
            if let Ok(table) = table(&borrowed) {
                prop_assert_eq!(table.of_host(host.as_bytes()), SiteId(twin(&sites, &host)));
            }
        }
    }
}
