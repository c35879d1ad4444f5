//! The sites of a configuration file, `[[cache.site]]`, and rules for paths, `[[cache.path]]` and `[[cache.site.path]]`.

use std::ops::Range;

use cache::config::{HostPattern, InvalidRule, LIST_MAX, PATHS_MAX, PathRule, SITES_MAX};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{FileReader, text_of, unknown};
use crate::settings::{
    Settings, SiteSettings, ValueShape, by_key, site_settings::of_a_site, table::sites::methods, truth,
    units::parse_duration,
};

/// Sites and hubs of a configuration file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FileSites {
    /// Sites with hosts.
    pub sites: Vec<SiteSettings>,
    /// Rules for paths on all other hosts.
    pub paths: Vec<PathRule>,
    /// Hubs that the feed joins.
    pub hubs: Vec<feed::leaf::Remote>,
}

/// Keys of a rule for paths.
const OF_PATHS: [(&str, ValueShape); 5] = [
    ("path", ValueShape::Text),
    ("pass", ValueShape::Flag),
    ("ttl", ValueShape::Text),
    ("methods", ValueShape::Texts),
    ("join", ValueShape::Flag),
];

pub(super) type Value<'v, 't> = &'v Spanned<DeValue<'t>>;

impl FileReader<'_> {
    /// Reads sites or rules for paths from a key of `[cache]`; returns false for any other key.
    pub(super) fn has_read_sites(&mut self, name: &str, value: Value<'_, '_>) -> bool {
        match name {
            "site" => self.sites(value),
            "path" => {
                if let Some(paths) = self.paths(value, "[[cache.path]]") {
                    self.sites.paths = paths;
                }
            }
            _ => return false,
        }
        true
    }

    /// Returns the tables of a list, each with its range in the file.
    pub(super) fn tables<'v, 't>(
        &mut self,
        value: Value<'v, 't>,
        heading: &str,
    ) -> Vec<(&'v DeTable<'t>, Range<usize>)> {
        let mut tables = Vec::new();
        match value.get_ref() {
            DeValue::Array(parts) => {
                for part in parts {
                    match part.get_ref() {
                        DeValue::Table(table) => tables.push((table, part.span())),
                        _ => self.fault(&part.span(), format!("expected a section: {heading}")),
                    }
                }
            }
            _ => self.fault(&value.span(), format!("expected a list of sections: {heading}")),
        }
        tables
    }

    fn sites(&mut self, value: Value<'_, '_>) {
        let tables = self.tables(value, "[[cache.site]]");
        if let Some((_, span)) = tables.get(SITES_MAX) {
            self.fault(span, format!("too many sites: at most {SITES_MAX}"));
        }
        for (table, span) in tables.into_iter().take(SITES_MAX) {
            let place = self.place(span.start);
            let mut said = SiteSettings { hosts: Vec::new(), own: Vec::new(), paths: None, place };
            let mut has_hosts = false;
            for (key, value) in table {
                match key.get_ref().as_ref() {
                    "hosts" => {
                        has_hosts = true;
                        said.hosts = self.hosts(value);
                    }
                    "path" => said.paths = self.paths(value, "[[cache.site.path]]"),
                    name => said.own.extend(self.of_a_site(name, &key.span(), value)),
                }
            }
            if !has_hosts {
                self.fault(
                    &span,
                    "hosts: missing; set the hosts of the site, such as hosts = [\"www.example.org\"]"
                        .to_owned(),
                );
            }
            // TOML's tables have no order; sorted settings give `config --print` a stable one.
            said.own.sort_unstable();
            self.sites.sites.push(said);
        }
    }

    /// Reads a setting that a site overrides; `None`, with a fault, if it is unknown or invalid.
    fn of_a_site(&mut self, name: &str, key: &Range<usize>, value: Value<'_, '_>) -> Option<(usize, String)> {
        let Some((place, setting)) = of_a_site().find(|(_, setting)| setting.key == name) else {
            let message = match by_key(name) {
                // The request's host selects the site; the listening address does not.
                Some(_) if matches!(name, "listen" | "tls-listen" | "listen-unix") => format!(
                    "`{name}` belongs under [cache], for all sites: a request's Host selects its site, and `hosts` \
                     lists the names of a site, without ports"
                ),
                Some((_, setting)) => match setting.section.name() {
                    Some(section) => format!("`{name}` belongs under [{section}], for all sites"),
                    None => format!("`{name}` belongs at the top of the file, before any [section]"),
                },
                None => {
                    let keys = of_a_site().map(|(_, setting)| setting.key).chain(["hosts", "path"]);
                    unknown(name, keys)
                }
            };
            self.fault(key, message);
            return None;
        };
        let text = text_of(value.get_ref(), setting.shape)
            .and_then(|text| setting.set(&mut Settings::default(), &text).map(|()| text));
        match text {
            Ok(text) => Some((place, text)),
            Err(message) => {
                self.fault(&value.span(), format!("{name}: {message}"));
                None
            }
        }
    }

    /// Reads the hosts of a site; no host may belong to two sites.
    fn hosts(&mut self, value: Value<'_, '_>) -> Vec<HostPattern> {
        let mut hosts: Vec<HostPattern> = Vec::new();
        let DeValue::Array(parts) = value.get_ref() else {
            self.fault(
                &value.span(),
                "hosts: expected a list of strings, such as [\"www.example.org\"]".to_owned(),
            );
            return hosts;
        };
        if parts.is_empty() || parts.len() > LIST_MAX {
            self.fault(&value.span(), format!("hosts: expected 1 to {LIST_MAX} names"));
        }
        for part in parts {
            let host = text_of(part.get_ref(), ValueShape::Text)
                .and_then(|text| text.parse().map_err(|error: InvalidRule| error.to_string()));
            match host {
                Ok(host)
                    if hosts.contains(&host)
                        || self.sites.sites.iter().any(|site| site.hosts.contains(&host)) =>
                {
                    self.fault(&part.span(), format!("hosts: {host} belongs to another site already"));
                }
                Ok(host) => hosts.push(host),
                Err(message) => self.fault(&part.span(), format!("hosts: {message}")),
            }
        }
        hosts
    }

    /// Reads the rules for paths, in the order of the file.
    fn paths(&mut self, value: Value<'_, '_>, heading: &str) -> Option<Vec<PathRule>> {
        let tables = self.tables(value, heading);
        if let Some((_, span)) = tables.get(PATHS_MAX) {
            self.fault(span, format!("too many path rules: at most {PATHS_MAX}"));
        }
        Some(tables.into_iter().filter_map(|(table, span)| self.path(table, &span)).collect())
    }

    fn path(&mut self, table: &DeTable<'_>, span: &Range<usize>) -> Option<PathRule> {
        let mut rule = None;
        let mut texts = Vec::new();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let Some((name, shape)) = OF_PATHS.into_iter().find(|(known, _)| *known == name) else {
                self.fault(&key.span(), unknown(name, OF_PATHS.into_iter().map(|(known, _)| known)));
                continue;
            };
            match text_of(value.get_ref(), shape) {
                Ok(text) => texts.push((name, text, value.span())),
                Err(message) => self.fault(&value.span(), format!("{name}: {message}")),
            }
        }
        match texts.iter().find(|(name, ..)| *name == "path") {
            Some((_, text, span)) => match PathRule::of(text) {
                Ok(right) => rule = Some(right),
                Err(error) => self.fault(span, format!("path: {error}")),
            },
            None => self.fault(
                span,
                "path: missing; set the paths that the rule applies to, such as path = \
                                      \"/admin/*\""
                    .to_owned(),
            ),
        }
        let mut rule = rule?;
        for (name, text, span) in &texts {
            let set = match *name {
                "pass" => truth(text).map(|is_so| rule.pass = is_so),
                "join" => truth(text).map(|is_so| rule.join = is_so),
                "ttl" => parse_duration(text).map(|ttl| rule.ttl = Some(ttl)),
                "methods" => methods(text).map(|methods| rule.methods = methods),
                _ => Ok(()),
            };
            if let Err(message) = set {
                self.fault(span, format!("{name}: {message}"));
            }
        }
        if rule.pass && rule.ttl.is_some() {
            self.fault(span, "ttl: passed answers are not stored, so they have no ttl".to_owned());
        }
        Some(rule)
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::file::values;

    #[test]
    fn a_site_is_told_by_its_hosts() {
        for (line, says) in [
            (
                "listen = \"localhost:8080\"",
                "`listen` belongs under [cache], for all sites: a request's Host selects its site",
            ),
            (
                "tls-listen = \"0.0.0.0:443\"",
                "`tls-listen` belongs under [cache], for all sites: a request's Host selects its site",
            ),
            (
                "hosts = [\"localhost:8080\"]",
                "invalid host `localhost:8080`: expected a name without scheme and port",
            ),
        ] {
            let hosts = if line.starts_with("hosts") { "" } else { "hosts = [\"a.example\"]\n" };
            let (.., faults) =
                values("n.toml", &format!("[[cache.site]]\norigin = \"http://a\"\n{hosts}{line}\n"));
            let [fault] = &faults[..] else { panic!("one fault: {faults:?}") };
            assert!(fault.to_string().contains(says), "{fault}");
        }
    }

    #[test]
    fn a34_site_faults_name_place_and_expectation() {
        let text = "[cache]\nsort-query = \"yes\"\n[[cache.site]]\nhosts = [\"a.example\", \"http://b\", 5]\norigin = \"a:80\"\n\
                    ignore-query = [\"utm_*\", \"a*b\"]\nbypass-cookie = [\"x\"]\nmemory = \"1GiB\"\nlog = \"info\"\n\
                    [[cache.site.path]]\npath = \"admin\"\n[[cache.site.path]]\nttl = \"1s\"\n[[cache.site.path]]\npath = \"/a\"\n\
                    pas = true\nttl = 5\nmethods = [\"get\"]\n[[cache.site.path]]\npath = \"/b\"\npass = true\nttl = \"1s\"\n\
                    [[cache.site]]\norigin = \"http://c\"\n[[cache.site]]\nhosts = [\"A.example\", \"c\", \"c\"]\nmethods = \"GET\"\n\
                    [[cache.site]]\nhosts = []\nhost = \"a b\"\n[[cache.path]]\njoin = 1\n[cache.paths]\n";
        let (_, _, faults) = values("n.toml", text);
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            [
                "n.toml:2:14: sort-query: expected true or false, without quotes",
                "n.toml:4:23: hosts: invalid host `http://b`: expected a name without scheme and port, such as \
                 www.example.org, or *.example.org",
                "n.toml:4:35: hosts: expected a string in quotes",
                "n.toml:5:10: origin: missing scheme: an origin is http://HOST or http://HOST:PORT, for instance \
                 http://127.0.0.1:3000; perhaps http://a:80",
                "n.toml:6:16: ignore-query: invalid pattern `a*b`: expected a name, optionally with one * at its \
                 end, such as utm_*",
                "n.toml:7:1: unknown key `bypass-cookie`; perhaps `bypass-cookies`",
                "n.toml:8:1: `memory` belongs under [cache], for all sites",
                "n.toml:9:1: `log` belongs at the top of the file, before any [section]",
                "n.toml:11:8: path: invalid path pattern `admin`: it begins with / and may have one *, at its \
                 end, such as /admin/*",
                "n.toml:12:1: path: missing; set the paths that the rule applies to, such as path = \"/admin/*\"",
                "n.toml:16:1: unknown key `pas`; perhaps `pass`",
                "n.toml:17:7: ttl: expected a string in quotes",
                "n.toml:18:11: methods: unknown method `get`: expected GET, HEAD, POST, PUT, PATCH, DELETE, \
                 OPTIONS, or one of WebDAV",
                "n.toml:19:1: ttl: passed answers are not stored, so they have no ttl",
                "n.toml:23:1: hosts: missing; set the hosts of the site, such as hosts = [\"www.example.org\"]",
                "n.toml:26:10: hosts: a.example belongs to another site already",
                "n.toml:26:28: hosts: c belongs to another site already",
                "n.toml:27:11: methods: expected a list of strings, such as [\"10.0.0.7\"]",
                "n.toml:29:9: hosts: expected 1 to 64 names",
                "n.toml:30:8: host: invalid host `a b` for the origin: expected keep, or a name such as \
                 app.internal, with or without a port",
                "n.toml:31:1: path: missing; set the paths that the rule applies to, such as path = \"/admin/*\"",
                "n.toml:32:8: join: expected true or false, without quotes",
                "n.toml:33:8: unknown section `paths`; perhaps [[cache.path]]",
            ]
        );
        assert_eq!(
            values("n.toml", "[cache.site]\nhosts = [\"a\"]\n[cache]\npath = \"/x\"\n").2.len(),
            2,
            "one of what there may be several"
        );
    }
}
