//! The sites of a configuration file, `[[cache.site]]`, and rules for paths, `[[cache.path]]` and `[[cache.site.path]]`.

use std::ops::Range;

use cache::config::{HostPattern, InvalidRule, LIST_MAX, PATHS_MAX, PathRule, SITES_MAX};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{FileReader, text_of, unknown};
use crate::settings::{
    Settings, ValueShape, by_key,
    site_settings::{SiteSettings, methods, of_a_site},
    truth,
    units::parse_duration,
};

/// What a file says of sites, and of hubs.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct FileSites {
    /// Those with hosts.
    pub sites: Vec<SiteSettings>,
    /// The rules for paths of all others.
    pub paths: Vec<PathRule>,
    /// The hubs that the feed joins.
    pub hubs: Vec<feed::leaf::Remote>,
}

/// The keys of a rule for paths.
const OF_PATHS: [(&str, ValueShape); 5] = [
    ("path", ValueShape::Text),
    ("pass", ValueShape::Flag),
    ("ttl", ValueShape::Text),
    ("methods", ValueShape::Texts),
    ("join", ValueShape::Flag),
];

pub(super) type Value<'v, 't> = &'v Spanned<DeValue<'t>>;

impl FileReader<'_> {
    /// Reads what `[cache]` has under these names; false for any other.
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

    /// The tables of a list, with where they begin.
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
                        _ => self.fault(&part.span(), format!("a section is wanted: {heading}")),
                    }
                }
            }
            _ => self.fault(&value.span(), format!("there may be several of it: {heading}")),
        }
        tables
    }

    fn sites(&mut self, value: Value<'_, '_>) {
        let tables = self.tables(value, "[[cache.site]]");
        if let Some((_, span)) = tables.get(SITES_MAX) {
            self.fault(span, format!("at most {SITES_MAX} sites are taken"));
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
                    "hosts: a site is for some, such as hosts = [\"www.example.org\"]".to_owned(),
                );
            }
            // TOML's tables have no order; `config --print` has.
            said.own.sort_unstable();
            self.sites.sites.push(said);
        }
    }

    /// A setting that a site says for itself, if it is right.
    fn of_a_site(&mut self, name: &str, key: &Range<usize>, value: Value<'_, '_>) -> Option<(usize, String)> {
        let Some((place, setting)) = of_a_site().find(|(_, setting)| setting.key == name) else {
            let message = match by_key(name) {
                // Which site a request is for is said by the host that it names, and by no address.
                Some(_) if matches!(name, "listen" | "tls-listen" | "listen-unix") => format!(
                    "`{name}` belongs under [cache], for all sites: a request's Host says which site it is for, and \
                     `hosts` names those of a site, without ports"
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

    /// The hosts of a site; none of them is another's.
    fn hosts(&mut self, value: Value<'_, '_>) -> Vec<HostPattern> {
        let mut hosts: Vec<HostPattern> = Vec::new();
        let DeValue::Array(parts) = value.get_ref() else {
            self.fault(
                &value.span(),
                "hosts: a list of strings is wanted, such as [\"www.example.org\"]".to_owned(),
            );
            return hosts;
        };
        if parts.is_empty() || parts.len() > LIST_MAX {
            self.fault(
                &value.span(),
                format!("hosts: at least one is wanted, and at most {LIST_MAX} are taken"),
            );
        }
        for part in parts {
            let host = text_of(part.get_ref(), ValueShape::Text)
                .and_then(|text| text.parse().map_err(|error: InvalidRule| error.to_string()));
            match host {
                Ok(host)
                    if hosts.contains(&host)
                        || self.sites.sites.iter().any(|site| site.hosts.contains(&host)) =>
                {
                    self.fault(&part.span(), format!("hosts: {host} is a site's already"));
                }
                Ok(host) => hosts.push(host),
                Err(message) => self.fault(&part.span(), format!("hosts: {message}")),
            }
        }
        hosts
    }

    /// Rules for paths, in their order.
    fn paths(&mut self, value: Value<'_, '_>, heading: &str) -> Option<Vec<PathRule>> {
        let tables = self.tables(value, heading);
        if let Some((_, span)) = tables.get(PATHS_MAX) {
            self.fault(span, format!("at most {PATHS_MAX} rules for paths are taken"));
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
            None => self.fault(span, "path: a rule is for some, such as path = \"/admin/*\"".to_owned()),
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
            self.fault(span, "ttl: what is passed is not stored, and has none".to_owned());
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
                "`listen` belongs under [cache], for all sites: a request's Host says",
            ),
            (
                "tls-listen = \"0.0.0.0:443\"",
                "`tls-listen` belongs under [cache], for all sites: a request's Host says",
            ),
            ("hosts = [\"localhost:8080\"]", "`localhost:8080` is no host: a name without scheme and port"),
        ] {
            let hosts = if line.starts_with("hosts") { "" } else { "hosts = [\"a.example\"]\n" };
            let (.., faults) =
                values("n.toml", &format!("[[cache.site]]\norigin = \"http://a\"\n{hosts}{line}\n"));
            let [fault] = &faults[..] else { panic!("one fault: {faults:?}") };
            assert!(fault.to_string().contains(says), "{fault}");
        }
    }

    #[test]
    fn a34_each_mistake_in_a_site_is_told_with_its_place_and_what_was_expected() {
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
                "n.toml:2:14: sort-query: true or false is wanted, without quotes",
                "n.toml:4:23: hosts: `http://b` is no host: a name without scheme and port, such as www.example.org, or \
                 *.example.org",
                "n.toml:4:35: hosts: a string in quotes is wanted",
                "n.toml:5:10: origin: no scheme: an origin is http://HOST or http://HOST:PORT, for instance \
                 http://127.0.0.1:3000; perhaps http://a:80",
                "n.toml:6:16: ignore-query: `a*b` is no pattern: a name, with at most one * and that at its end, such as \
                 utm_*",
                "n.toml:7:1: unknown key `bypass-cookie`; perhaps `bypass-cookies`",
                "n.toml:8:1: `memory` belongs under [cache], for all sites",
                "n.toml:9:1: `log` belongs at the top of the file, before any [section]",
                "n.toml:11:8: path: `admin` is no pattern of paths: it begins with / and has at most one *, at its end, such \
                 as /admin/*",
                "n.toml:12:1: path: a rule is for some, such as path = \"/admin/*\"",
                "n.toml:16:1: unknown key `pas`; perhaps `pass`",
                "n.toml:17:7: ttl: a string in quotes is wanted",
                "n.toml:18:11: methods: `get` is no method that is known here: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, \
                 and those of WebDAV",
                "n.toml:19:1: ttl: what is passed is not stored, and has none",
                "n.toml:23:1: hosts: a site is for some, such as hosts = [\"www.example.org\"]",
                "n.toml:26:10: hosts: a.example is a site's already",
                "n.toml:26:28: hosts: c is a site's already",
                "n.toml:27:11: methods: a list of strings is wanted, such as [\"10.0.0.7\"]",
                "n.toml:29:9: hosts: at least one is wanted, and at most 64 are taken",
                "n.toml:30:8: host: `a b` is no host that an origin could be sent: keep, or a name such as app.internal, with \
                 a port or without",
                "n.toml:31:1: path: a rule is for some, such as path = \"/admin/*\"",
                "n.toml:32:8: join: true or false is wanted, without quotes",
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
