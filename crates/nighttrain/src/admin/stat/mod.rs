//! The report of `nighttrain stat`: the registry's families, sorted into groups for the operator.
//!
//! ```text
//! Registry ──snapshot──▶ families ──PLACES──▶ Report ──▶ JSON (GET /stat) · table · status page
//! ```
//! `PLACES` gives each family its group and its short name. A family that is missing from the table still
//! shows, in `other` under its full name: an outdated table hides no counter.

use std::fmt::Write;

use engine::meter::{Family, Snapshot, Unit, Value};
use serde::{Serialize, Serializer, ser::SerializeMap};

mod certificates;
mod places;

pub(crate) use self::places::GROUPS;
use self::places::PLACES;
use crate::{
    admin::{
        cluster_table,
        numbers::{Number, uptime_text},
        peers_table,
    },
    services::certificates::CertificateStatus,
};

/// Quantiles that are shown for each histogram; the last is the maximum.
const QUANTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p999"), (1.0, "max")];

/// Status report of a server: its counters in groups, its certificates, and the state of its cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Report {
    /// Seconds since the server started.
    pub uptime_s: u64,
    /// True while the server accepts requests.
    pub ready: bool,
    /// Groups in the order of [`GROUPS`]; empty groups are included.
    pub groups: Vec<Group>,
    /// Certificates that the server presents, or will present.
    pub certificates: Vec<CertificateStatus>,
    /// State of the cluster of accelerators as the admin server's JSON; `None` without a cluster.
    pub cluster: Option<serde_json::Value>,
    /// Accelerators that share keys, as the admin server's JSON; `None` without peers.
    pub peers: Option<serde_json::Value>,
}

/// A group of related numbers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    /// Name in JSON.
    pub name: &'static str,
    /// Heading in the table.
    pub title: &'static str,
    /// Numbers of the group.
    pub entries: Vec<Entry>,
}

/// A named number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// Name in JSON.
    pub name: String,
    /// Value with its unit.
    pub number: Number,
}

impl Report {
    /// Sorts the registry's families into groups.
    pub(crate) fn new(snapshot: &Snapshot, ready: bool, uptime_s: u64) -> Self {
        let mut groups: Vec<Group> =
            GROUPS.iter().map(|&(name, title)| Group { name, title, entries: Vec::new() }).collect();
        let mut placed: Vec<(usize, &'static str, String, &Family)> = snapshot
            .families
            .iter()
            .map(|family| {
                let (place, group, name) = place(family);
                (place, group, name, family)
            })
            .collect();
        // The sort is stable: families that are missing from the table keep the registry's order, after the
        // known ones.
        placed.sort_by_key(|(place, ..)| *place);
        for (_, group, name, family) in placed {
            if let Some(group) = groups.iter_mut().find(|known| known.name == group) {
                entries(family, &name, &mut group.entries);
            }
        }
        Self { uptime_s, ready, groups, certificates: Vec::new(), cluster: None, peers: None }
    }

    /// Returns the number under `group` and `name`.
    pub(crate) fn number(&self, group: &str, name: &str) -> Option<Number> {
        let group = self.groups.iter().find(|known| known.name == group)?;
        group.entries.iter().find(|entry| entry.name == name).map(|entry| entry.number)
    }

    /// Returns the number under `group` and `name` as a count; 0 if it is missing.
    pub(crate) fn count(&self, group: &str, name: &str) -> u64 {
        match self.number(group, name) {
            Some(Number::Count(count) | Number::Bytes(count)) => count,
            _ => 0,
        }
    }

    /// Renders a readable table: names on the left, numbers aligned on the right.
    pub(crate) fn table(&self) -> String {
        let mut table = format!(
            "nighttrain {} · up {} · {}\n",
            env!("CARGO_PKG_VERSION"),
            uptime_text(self.uptime_s),
            if self.ready { "ready" } else { "not ready" },
        );
        let rows: Vec<(&Group, Vec<(&str, String)>)> = self
            .groups
            .iter()
            .map(|group| {
                (group, group.entries.iter().map(|e| (e.name.as_str(), e.number.for_people())).collect())
            })
            .filter(|(_, rows): &(_, Vec<_>)| !rows.is_empty())
            .collect();
        let all = || rows.iter().flat_map(|(_, rows)| rows);
        let name_width = all().map(|(name, _)| name.len()).max().unwrap_or(0);
        let number_width = all().map(|(_, number)| number.chars().count()).max().unwrap_or(0);
        for (group, rows) in &rows {
            _ = writeln!(table, "\n{}", group.title);
            for (name, number) in rows {
                let share =
                    self.share(group.name, name).map_or_else(String::new, |share| format!("  {share}"));
                _ = writeln!(table, "  {name:name_width$}  {number:>number_width$}{share}");
            }
        }
        if !self.certificates.is_empty() {
            table.push_str(&format!("\ncertificates\n{}", certificates::text(&self.certificates, now_s())));
        }
        if let Some(cluster) = &self.cluster {
            table.push_str(&format!("\ncluster: {}", cluster_table::text(cluster)));
        }
        if let Some(peers) = &self.peers {
            table.push_str(&format!("\npeers\n{}", peers_table::text(peers)));
        }
        if self.is_without_freshness() {
            table.push_str(
                "\nMost fetched pages state no freshness lifetime, so they are not served from the store:\nlet the \
                 origin send Cache-Control: max-age=…, or set default-ttl.\n",
            );
        }
        if let Some(sign) = self.silent_proxy() {
            table.push_str(&format!(
                "\nA proxy in front of the mail pages does not name its clients ({sign}), so its address may no longer \
                 see all\nmail: set token-file, or have it send X-Forwarded-For and list it in trusted-proxies.\n",
            ));
        }
        table
    }

    /// Returns the evidence, if any, that a proxy in front of the mail pages does not report its clients'
    /// addresses.
    fn silent_proxy(&self) -> Option<&'static str> {
        [
            ("mail_proxy_signs_http10", "HTTP/1.0 requests came from this machine"),
            ("mail_proxy_signs_host", "pages were opened at another host than their requests name"),
        ]
        .into_iter()
        .find(|(name, _)| self.count("errors", name) > 0)
        .map(|(_, sign)| sign)
    }

    /// Returns whether more than half of at least [`FETCHES_MIN`] fetched answers have no freshness
    /// information, which keeps them from being served from the store.
    fn is_without_freshness(&self) -> bool {
        let (without, fetches) =
            (self.count("requests", "without_freshness"), self.count("requests", "fetches"));
        fetches >= FETCHES_MIN && without > fetches / 2
    }

    /// Returns the number's percentage of all requests.
    fn share(&self, group: &str, name: &str) -> Option<String> {
        let of = self.count("requests", "received");
        if group != "requests" || !matches!(name, "hits" | "misses" | "passes") || of == 0 {
            return None;
        }
        #[allow(clippy::cast_precision_loss, reason = "shown to a tenth of a percent")]
        let percent = self.count(group, name) as f64 * 100.0 / of as f64;
        Some(format!("{percent:5.1} %"))
    }
}

fn now_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs().cast_signed())
}

/// Minimum number of fetches before missing freshness is reported.
const FETCHES_MIN: u64 = 100;

/// Returns whether a number of this name is a histogram's quantile.
pub(crate) fn is_quantile(name: &str) -> bool {
    let last = name.rsplit_once('_').map(|(_, last)| last);
    QUANTILES.iter().any(|(_, quantile)| last == Some(quantile))
}

/// Returns the position, the group and the short name of a metric family in the report.
fn place(family: &Family) -> (usize, &'static str, String) {
    if let Some((at, (_, group, name))) =
        PLACES.iter().enumerate().find(|(_, (family_name, ..))| *family_name == family.name)
    {
        return (at, group, (*name).to_owned());
    }
    // Families of the store share a prefix and need no table.
    match family.name.strip_prefix("store_") {
        Some(name) => (PLACES.len(), "store", name.to_owned()),
        None => (PLACES.len(), "other", family.name.to_owned()),
    }
}

/// Labels that say which core or server did the counting; their points are summed into one entry. `/metrics`
/// keeps them apart.
const COUNTED_BY: [&str; 2] = ["core", "server"];

/// Converts a family's points into entries. Points that differ only in the core or server that counted are
/// summed; other labels become part of the name.
fn entries(family: &Family, name: &str, entries: &mut Vec<Entry>) {
    let mut kinds: Vec<(String, Vec<&Value>)> = Vec::new();
    for point in &family.points {
        let labels = point.labels.iter().filter(|(label, _)| !COUNTED_BY.contains(label));
        let name = labels.fold(name.to_owned(), |name, (_, value)| format!("{name}_{value}"));
        match kinds.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(&point.value),
            None => kinds.push((name, vec![&point.value])),
        }
    }
    for (name, values) in kinds {
        if let Some(Value::Histogram(first)) = values.first() {
            let mut whole = first.clone();
            for value in &values[1..] {
                if let Value::Histogram(more) = value {
                    whole.merge(more);
                }
            }
            let found = whole.quantiles(QUANTILES.map(|(quantile, _)| quantile));
            for ((_, quantile), value) in QUANTILES.iter().zip(found) {
                #[allow(
                    clippy::cast_precision_loss,
                    reason = "a histogram's value has two digits that count"
                )]
                let (suffix, number) = match family.unit {
                    Unit::Seconds => ("_us", Number::Micros(value as f64 / 1e3)),
                    Unit::Bytes => ("", Number::Bytes(value)),
                    Unit::None => ("", Number::Count(value)),
                };
                entries.push(Entry { name: format!("{name}{suffix}_{quantile}"), number });
            }
            continue;
        }
        let counts: Option<u64> = values.iter().try_fold(0_u64, |sum, value| match value {
            Value::Counter(count) => Some(sum + count),
            Value::Gauge(gauge) => Some(sum + whole_number(*gauge)?),
            Value::Histogram(_) => None,
        });
        let number = match (counts, family.unit) {
            (Some(count), Unit::Bytes) => Number::Bytes(count),
            (Some(count), Unit::None) => Number::Count(count),
            _ => Number::Measure(values.iter().map(|value| measure(value)).sum()),
        };
        entries.push(Entry { name, number });
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked: whole, and within 2^53")]
fn whole_number(gauge: f64) -> Option<u64> {
    (gauge.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&gauge)).then_some(gauge as u64)
}

#[allow(clippy::cast_precision_loss, reason = "what has a fraction is shown to three digits")]
fn measure(value: &Value) -> f64 {
    match value {
        Value::Counter(count) => *count as f64,
        Value::Gauge(gauge) => *gauge,
        Value::Histogram(_) => 0.0,
    }
}

impl Serialize for Report {
    /// Writes `{"version": …, "uptime_s": …, "ready": …, "requests": {"received": …}, …}`. The names are
    /// stable.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("version", env!("CARGO_PKG_VERSION"))?;
        map.serialize_entry("uptime_s", &self.uptime_s)?;
        map.serialize_entry("ready", &self.ready)?;
        for group in &self.groups {
            map.serialize_entry(group.name, group)?;
        }
        map.serialize_entry("certificates", &self.certificates)?;
        if let Some(cluster) = &self.cluster {
            map.serialize_entry("accelerators", cluster)?;
        }
        if let Some(peers) = &self.peers {
            map.serialize_entry("peers", peers)?;
        }
        map.end()
    }
}

impl Serialize for Group {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.entries.len()))?;
        for entry in &self.entries {
            match entry.number {
                Number::Count(count) | Number::Bytes(count) => map.serialize_entry(&entry.name, &count)?,
                Number::Measure(number) | Number::Micros(number) => {
                    map.serialize_entry(&entry.name, &number)?
                }
            }
        }
        map.end()
    }
}

/// Lists the families that are shown in a group, each with its name there.
#[cfg(test)]
pub(crate) fn places_of(group: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    PLACES.iter().filter(move |(_, of, _)| *of == group).map(|(family, _, name)| (*family, *name))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use engine::meter::{CounterSet, HistogramSpec, Histograms, Point, Registry, Source};

    use super::*;

    engine::counters! {
        /// A sample of the accelerator's counters.
        pub(crate) enum SampleCounter {
            Requests => Counter, "cache_requests", None, "Requests.";
            Hits => Counter, "cache_hits", None, "Hits.";
            Saved => Counter, "cache_saved_bytes", Bytes, "Saved.";
            Millis => Counter, "cache_saved_milliseconds", None, "Saved.";
            Objects => Gauge, "store_objects", None, "Objects.";
            Pinned => Gauge, "store_pinned_bytes", Bytes, "Pinned.";
            New => Counter, "cache_something_new", None, "Not in the table.";
        }
    }

    #[derive(Debug)]
    struct LabelledSource;
    impl Source for LabelledSource {
        fn collect(&self, families: &mut Vec<Family>) {
            let point = |reason: &str, core: &str, count| Point {
                labels: vec![("core", core.to_owned()), ("reason", reason.to_owned())],
                value: Value::Counter(count),
            };
            families.push(Family {
                name: "store_refused",
                help: "Refused.",
                unit: Unit::None,
                points: vec![point("room", "0", 1), point("size", "0", 2), point("room", "1", 4)],
            });
        }
    }

    /// Returns a registry with known numbers.
    pub(crate) fn registry() -> Registry {
        let mut registry = Registry::new();
        let set = CounterSet::<SampleCounter>::new(2);
        let (first, second) = (set.core(0), set.core(1));
        first.add(SampleCounter::Requests, 1000);
        second.add(SampleCounter::Requests, 234);
        first.add(SampleCounter::Hits, 617);
        first.add(SampleCounter::Saved, 3 << 20);
        second.add(SampleCounter::Millis, 8200);
        first.add(SampleCounter::New, 5);
        first.add(SampleCounter::Objects, 42);
        first.add(SampleCounter::Pinned, 2048);
        registry.register(set);
        let spec = HistogramSpec { name: "loop_lateness_seconds", help: "Late.", unit: Unit::Seconds };
        let lateness = Histograms::new(spec, 2);
        lateness.core(0).record(50_000);
        lateness.core(1).record(7_000_000);
        registry.register(lateness);
        registry.register(Arc::new(LabelledSource));
        registry
    }

    fn report() -> Report {
        Report::new(&registry().snapshot(), true, 3725)
    }

    #[test]
    fn core_metrics_are_merged_and_grouped() {
        let report = report();
        assert_eq!(report.count("requests", "received"), 1234);
        assert_eq!(report.number("bytes", "saved"), Some(Number::Bytes(3 << 20)));
        assert_eq!(report.number("store", "objects"), Some(Number::Count(42)));
        assert_eq!(report.number("store", "pinned_bytes"), Some(Number::Bytes(2048)));
        assert_eq!(report.number("store", "refused_room"), Some(Number::Count(5)));
        assert_eq!(report.number("store", "refused_size"), Some(Number::Count(2)));
        assert_eq!(report.number("other", "cache_something_new"), Some(Number::Count(5)));
        let Some(Number::Micros(max)) = report.number("loops", "lateness_us_max") else {
            panic!("{report:?}")
        };
        assert!((max - 7000.0).abs() < 70.0, "{max}");
    }

    #[test]
    fn json_has_every_group_and_stays_in_order() {
        let text = serde_json::to_string(&report()).expect("JSON");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for (group, _) in GROUPS {
            assert!(value[group].is_object(), "{group}");
        }
        assert_eq!(value["requests"]["hits"], 617);
        assert_eq!(value["ready"], true);
        assert_eq!(value["uptime_s"], 3725);
        assert!(text.find("\"received\"") < text.find("\"hits\""));
    }

    #[test]
    fn the_table_is_aligned() {
        let table = report().table();
        assert!(table.contains("up 1 h 2 min · ready"), "{table}");
        let ends: Vec<usize> = table
            .lines()
            .filter(|line| line.starts_with("  ") && !line.ends_with('%'))
            .map(|line| line.chars().count())
            .collect();
        assert!(ends.len() > 10 && ends.windows(2).all(|pair| pair[0] == pair[1]), "{table}");
        assert!(table.contains("1,234\n") && table.contains("617   50.0 %"), "{table}");
        assert!(table.contains("3.00 MiB"), "{table}");
    }

    #[test]
    fn the_table_of_places_names_each_once() {
        for (i, (family, group, name)) in PLACES.iter().enumerate() {
            assert!(GROUPS.iter().any(|(known, _)| known == group), "{group}");
            for (other_family, other_group, other_name) in &PLACES[..i] {
                assert!(family != other_family && (group, name) != (other_group, other_name), "{family}");
            }
        }
    }
}
