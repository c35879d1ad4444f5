//! What `nighttrain stat` says: the registry's families, sorted into the groups that an operator asks for.
//!
//! ```text
//! Registry ──snapshot──▶ families ──PLACES──▶ Report ──▶ JSON (GET /stat) · table · status page
//! ```
//! [`PLACES`] gives each family its group and its short name. A family that the table does not know still shows, in
//! `other` under its full name: nothing that is counted is hidden by a table that was not kept up.

use std::fmt::Write;

use engine::meter::{Family, Snapshot, Unit, Value};
use serde::{Serialize, Serializer, ser::SerializeMap};

use crate::units::size_for_people;

/// The groups, with the heading of each.
pub(crate) const GROUPS: [(&str, &str); 8] = [
    ("requests", "Requests"),
    ("messages", "Messages"),
    ("bytes", "Bytes"),
    ("store", "Store"),
    ("loops", "Loops"),
    ("limits", "Limits hit"),
    ("errors", "Errors"),
    ("other", "Other"),
];

/// Family, group, short name. The order is the one in which they are shown.
const PLACES: &[(&str, &str, &str)] = &[
    ("cache_requests", "requests", "received"),
    ("cache_hits", "requests", "hits"),
    ("cache_hits_not_modified", "requests", "hits_not_modified"),
    ("cache_hits_range", "requests", "hits_range"),
    ("cache_hits_coded", "requests", "hits_coded"),
    ("cache_codings_made", "requests", "codings_made"),
    ("cache_codings_not_shrunk", "requests", "codings_not_shrunk"),
    ("cache_bodies_lent", "requests", "bodies_lent"),
    ("cache_misses", "requests", "misses"),
    ("cache_misses_collapsed", "requests", "misses_collapsed"),
    ("cache_passes", "requests", "passes"),
    ("cache_fetches", "requests", "fetches"),
    ("cache_fetches_given_up", "requests", "fetches_given_up"),
    ("cache_uncacheable", "requests", "uncacheable"),
    ("cache_notes_left", "requests", "notes_left"),
    ("cache_notes_used", "requests", "notes_used"),
    ("cache_hits_stale", "requests", "hits_stale"),
    ("cache_refreshes", "requests", "refreshes"),
    ("cache_revalidated", "requests", "revalidated"),
    ("cache_interims_passed", "requests", "interims_passed"),
    ("cache_fetches_behind", "requests", "fetches_behind"),
    ("cache_passes_narrowed", "limits", "passes_narrowed"),
    ("cache_without_freshness", "requests", "without_freshness"),
    ("cache_shared_pages_differ", "requests", "shared_pages_differ"),
    ("cache_purges", "requests", "purges"),
    ("cache_invalidations", "requests", "invalidations"),
    ("cache_invalidated_dropped", "requests", "invalidated_dropped"),
    ("cache_tags_purged", "requests", "tags_purged"),
    ("cache_bans", "requests", "bans"),
    ("cache_bans_dropped", "requests", "bans_dropped"),
    ("cache_purges_forbidden", "requests", "purges_forbidden"),
    ("cache_purges_not_understood", "requests", "purges_not_understood"),
    ("cache_misdirected", "requests", "misdirected"),
    ("cache_methods_refused", "requests", "methods_refused"),
    ("cache_connections", "requests", "connections"),
    ("cache_connections_accepted", "requests", "connections_accepted"),
    ("cache_connections_handed_off", "requests", "connections_handed_off"),
    ("cache_origin_connects", "requests", "origin_connects"),
    ("cache_saved_milliseconds", "requests", "origin_time_saved_ms"),
    ("cache_sent_bytes", "bytes", "sent"),
    ("cache_fetched_bytes", "bytes", "fetched"),
    ("cache_saved_bytes", "bytes", "saved"),
    ("cache_coded_saved_bytes", "bytes", "saved_by_codings"),
    ("feed_messages_in", "messages", "received"),
    ("feed_messages_out", "messages", "delivered"),
    ("feed_no_responders", "messages", "no_responders"),
    ("feed_connections", "messages", "connections"),
    ("feed_accepted", "messages", "connections_accepted"),
    ("feed_handed_off", "messages", "connections_handed_off"),
    ("feed_subscriptions", "messages", "subscriptions"),
    ("feed_matches_kept", "messages", "matches_kept"),
    ("feed_matches_made", "messages", "matches_made"),
    ("feed_writes", "messages", "writes"),
    ("feed_runs_across", "messages", "runs_across"),
    ("feed_in_bytes", "bytes", "received"),
    ("feed_out_bytes", "bytes", "delivered"),
    ("mail_received", "messages", "mails"),
    ("mail_deliveries", "messages", "mail_deliveries"),
    ("mail_refused", "messages", "mails_refused"),
    ("mail_stored", "messages", "mails_stored"),
    ("mail_inboxes", "messages", "inboxes"),
    ("mail_expired", "messages", "mails_expired"),
    ("mail_deleted", "messages", "mails_deleted"),
    ("mail_connections", "messages", "mail_connections"),
    ("mail_connections_accepted", "messages", "mail_connections_accepted"),
    ("mail_connections_handed_off", "messages", "mail_connections_handed_off"),
    ("mail_tls_sessions", "messages", "mail_tls_sessions"),
    ("mail_bare_line_ends", "messages", "mails_with_bare_line_ends"),
    ("mail_received_bytes", "bytes", "mails_received"),
    ("mail_stored_bytes", "bytes", "mails_stored"),
    ("mail_index_bytes", "bytes", "mail_index"),
    ("loop_lateness_seconds", "loops", "lateness"),
    ("loop_stalls", "loops", "stalls"),
    ("loop_stalled_microseconds", "loops", "stalled_us"),
    ("loop_minor_faults", "loops", "minor_faults"),
    ("loop_major_faults", "loops", "major_faults"),
    ("loop_disk_wait_microseconds", "loops", "disk_wait_us"),
    ("loop_run_delay_microseconds", "loops", "run_delay_us"),
    ("store_reads", "store", "reads"),
    ("store_reads_joined", "store", "reads_joined"),
    ("store_read_bytes", "store", "read_bytes"),
    ("store_reads_waiting", "store", "reads_waiting"),
    ("store_reads_under_way", "store", "reads_under_way"),
    ("store_read_seconds", "store", "read"),
    ("store_read_disk_seconds", "store", "read_disk"),
    ("store_reads_failed", "store", "reads_failed"),
    ("store_reads_damaged", "store", "reads_damaged"),
    ("store_reads_too_slow", "store", "reads_too_slow"),
    ("store_reads_refused_queue", "limits", "reads_waiting"),
    ("store_reads_refused_buffers", "limits", "read_buffers"),
    ("mesh_sent", "loops", "messages_sent"),
    ("mesh_received", "loops", "messages_received"),
    ("mesh_batches", "loops", "message_batches"),
    ("mesh_wakes", "loops", "wakes"),
    ("cache_connections_refused", "limits", "connections"),
    ("cache_client_connections_refused", "limits", "connections_per_client"),
    ("cache_request_heads_too_large", "limits", "request_head_bytes"),
    ("cache_request_bodies_too_large", "limits", "request_body_bytes"),
    ("cache_slow_heads", "limits", "request_head_time"),
    ("cache_clients_stalled", "limits", "send_stall"),
    ("cache_slow_readers_cut", "limits", "slow_readers_cut"),
    ("cache_remainders_copied", "limits", "remainders_copied"),
    ("cache_origin_head_too_large", "limits", "response_head_bytes"),
    ("cache_origin_timeouts", "limits", "origin_time"),
    ("cache_origin_busy", "limits", "origin_connections"),
    ("cache_fetch_table_full", "limits", "fetches_under_way"),
    ("cache_core_ring_full", "limits", "ring_to_owner"),
    ("cache_codings_refused", "limits", "codings"),
    ("cache_purges_refused", "limits", "purges"),
    ("cache_tag_table_emptied", "limits", "tags_purged"),
    ("cache_bans_overflowed", "limits", "bans"),
    ("cache_tags_too_many", "limits", "tags_of_an_answer"),
    ("cache_variants_too_many", "limits", "variants_of_an_address"),
    ("cache_slow_bodies", "limits", "request_body_time"),
    ("cache_turns_cut", "limits", "requests_a_turn"),
    ("cache_clients_over_bytes", "limits", "client_bytes"),
    ("feed_connections_refused", "limits", "max_connections"),
    ("feed_subscriptions_refused", "limits", "max_subscriptions"),
    ("feed_payloads_too_large", "limits", "max_payload"),
    ("feed_control_lines_too_long", "limits", "max_control_line"),
    ("feed_producers_held", "limits", "producers_held"),
    ("feed_producers_held_for_cores", "limits", "producers_held_for_cores"),
    ("feed_held_for_answers", "limits", "held_for_answers"),
    ("feed_slow_consumers_pending", "limits", "slow_consumers_pending"),
    ("feed_slow_consumers_in_sum", "limits", "slow_consumers_in_sum"),
    ("feed_slow_consumers_hold", "limits", "slow_consumers_hold"),
    ("feed_slow_consumers_deadline", "limits", "slow_consumers_deadline"),
    ("feed_stale_connections", "limits", "stale_connections"),
    ("feed_password_checks_refused", "limits", "password_checks"),
    ("feed_authentication_timeouts", "limits", "auth_timeout"),
    ("mail_dropped_for_count", "limits", "mail_dropped_for_count"),
    ("mail_dropped_for_bytes", "limits", "mail_dropped_for_bytes"),
    ("mail_connections_refused", "limits", "mail_connections_refused"),
    ("mail_address_connections_refused", "limits", "mail_address_connections_refused"),
    ("mail_too_large", "limits", "mail_too_large"),
    ("mail_too_many_recipients", "limits", "mail_too_many_recipients"),
    ("mail_receiving_full", "limits", "mail_receiving_full"),
    ("mail_store_full", "limits", "mail_store_full"),
    ("mail_store_waits", "limits", "mail_store_waits"),
    ("mail_timeouts", "limits", "mail_timeouts"),
    ("mail_stalled", "limits", "mail_stalled"),
    ("mail_too_many_faults", "limits", "mail_too_many_faults"),
    ("mail_core_ring_full", "limits", "mail_core_ring_full"),
    ("mail_events_lost", "limits", "mail_events_lost"),
    ("mail_questions_refused", "limits", "mail_questions_refused"),
    ("mail_rate_connections", "limits", "mail_rate_connections"),
    ("mail_rate_mails", "limits", "mail_rate_mails"),
    ("mail_rate_inboxes", "limits", "mail_rate_inboxes"),
    ("mail_rate_subjects", "limits", "mail_rate_subjects"),
    ("mail_campaigns", "limits", "mail_campaigns"),
    ("mail_tarpitted", "limits", "mail_tarpitted"),
    ("listener_connections", "requests", "pages_connections"),
    ("listener_connections_accepted", "requests", "pages_connections_accepted"),
    ("listener_connections_waited", "limits", "pages_connections_waited"),
    ("listener_address_refused", "limits", "pages_connections_per_address"),
    ("listener_idle_evicted", "limits", "pages_idle_evicted"),
    ("listener_heads_evicted", "limits", "pages_heads_evicted"),
    ("listener_bodies_evicted", "limits", "pages_bodies_evicted"),
    ("listener_idle_ended", "limits", "pages_idle_time"),
    ("listener_slow_answers", "limits", "pages_answer_time"),
    ("listener_slow_heads", "limits", "pages_head_time"),
    ("listener_slow_bodies", "limits", "pages_body_time"),
    ("listener_stalled", "limits", "pages_send_stall"),
    ("mesh_refused", "limits", "ring"),
    ("cache_store_too_large", "limits", "object_bytes"),
    ("cache_parts_refused", "limits", "parts"),
    ("cache_parts_shared", "requests", "parts_shared"),
    ("cache_store_no_room", "limits", "store_room"),
    ("cache_file_reads_refused", "limits", "file_reads"),
    ("feed_system_refused", "limits", "system_questions"),
    ("feed_system_too_long", "limits", "system_options"),
    ("feed_authorization_violations", "errors", "authorization_violations"),
    ("feed_permissions_denied", "errors", "permissions_denied"),
    ("feed_protocol_violations", "errors", "protocol_violations"),
    ("feed_handshakes_failed", "errors", "handshakes_failed"),
    ("mail_tls_failures", "errors", "mail_tls_failures"),
    ("mail_damaged_records", "errors", "mail_damaged_records"),
    ("mail_bad_recipients", "errors", "mail_bad_recipients"),
    ("mail_foreign_domains", "errors", "mail_foreign_domains"),
    ("mail_store_failed", "errors", "mail_store_failed"),
    ("mail_command_faults", "errors", "mail_command_faults"),
    ("mail_gone_in_mail", "errors", "mail_gone_in_mail"),
    ("mail_bad_proxy_headers", "errors", "mail_bad_proxy_headers"),
    ("mail_banned_addresses", "errors", "mail_banned_addresses"),
    ("mail_banned_senders", "errors", "mail_banned_senders"),
    ("mail_banned_words", "errors", "mail_banned_words"),
    ("cache_origin_refused", "errors", "origin_refused"),
    ("cache_origin_closed", "errors", "origin_closed"),
    ("cache_origin_invalid", "errors", "origin_invalid"),
    ("cache_origin_body_short", "errors", "origin_body_short"),
    ("cache_bodies_cut", "errors", "bodies_cut"),
    ("cache_parts_cut", "errors", "parts_cut"),
    ("cache_bad_requests", "errors", "bad_requests"),
    ("cache_trailers_dropped", "errors", "trailers_dropped"),
    ("cache_clients_gone", "errors", "clients_gone"),
    ("cache_clients_gone_in_head", "errors", "clients_gone_in_head"),
];

/// Histograms are shown by these quantiles; the last is the maximum.
const QUANTILES: [(f64, &str); 4] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p999"), (1.0, "max")];

/// What a server says about itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Report {
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Whether it takes requests.
    pub ready: bool,
    /// In the order of [`GROUPS`]; a group with nothing in it is there all the same.
    pub groups: Vec<Group>,
}

/// Numbers that answer one question.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Group {
    /// Its name in JSON.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Its numbers.
    pub entries: Vec<Entry>,
}

/// One number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// Its name in JSON.
    pub name: String,
    /// What it is.
    pub number: Number,
}

/// A number and how to read it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    /// Pieces, or the unit that the name says.
    Count(u64),
    /// Bytes.
    Bytes(u64),
    /// A measure that has a fraction.
    Measure(f64),
    /// Microseconds.
    Micros(f64),
}

impl Report {
    /// Sorts what the registry said.
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
        // Stable: what the table does not know keeps the registry's order, after what it knows.
        placed.sort_by_key(|(place, ..)| *place);
        for (_, group, name, family) in placed {
            if let Some(group) = groups.iter_mut().find(|known| known.name == group) {
                entries(family, &name, &mut group.entries);
            }
        }
        Self { uptime_s, ready, groups }
    }

    /// The number under `group` and `name`.
    pub(crate) fn number(&self, group: &str, name: &str) -> Option<Number> {
        let group = self.groups.iter().find(|known| known.name == group)?;
        group.entries.iter().find(|entry| entry.name == name).map(|entry| entry.number)
    }

    /// The same as a count; 0 if there is none.
    pub(crate) fn count(&self, group: &str, name: &str) -> u64 {
        match self.number(group, name) {
            Some(Number::Count(count) | Number::Bytes(count)) => count,
            _ => 0,
        }
    }

    /// A table for people: names on the left, numbers aligned on the right.
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
        if self.is_without_freshness() {
            table.push_str(
                "\nMost pages that were fetched do not say how long they are fresh, so they are not answered from the store:\n\
                 let the origin say Cache-Control: max-age=…, or set default-ttl.\n",
            );
        }
        table
    }

    /// Whether that is what keeps most of many pages from being answered from the store.
    fn is_without_freshness(&self) -> bool {
        let (without, fetches) =
            (self.count("requests", "without_freshness"), self.count("requests", "fetches"));
        fetches >= FETCHES_MIN && without > fetches / 2
    }

    /// How much of all requests these are.
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

/// So many pages are fetched before anything is said of most of them.
const FETCHES_MIN: u64 = 100;

/// `3 d 4 h`, `12 min`, `7 s`: two units at most.
pub(crate) fn uptime_text(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

impl Number {
    /// With its unit and groups of three digits.
    pub(crate) fn for_people(self) -> String {
        match self {
            Self::Count(count) => thousands(count),
            Self::Bytes(bytes) => size_for_people(bytes),
            Self::Measure(measure) => format!("{measure:.3}"),
            Self::Micros(us) if us >= 10_000.0 => format!("{:.1} ms", us / 1000.0),
            Self::Micros(us) => format!("{us:.0} µs"),
        }
    }
}

/// Whether a number of this name is a histogram's quantile.
pub(crate) fn is_quantile(name: &str) -> bool {
    let last = name.rsplit_once('_').map(|(_, last)| last);
    QUANTILES.iter().any(|(_, quantile)| last == Some(quantile))
}

pub(crate) fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The place, the group and the short name of a family.
fn place(family: &Family) -> (usize, &'static str, String) {
    if let Some((at, (_, group, name))) =
        PLACES.iter().enumerate().find(|(_, (family_name, ..))| *family_name == family.name)
    {
        return (at, group, (*name).to_owned());
    }
    // Families of the store are named alike and need no table.
    match family.name.strip_prefix("store_") {
        Some(name) => (PLACES.len(), "store", name.to_owned()),
        None => (PLACES.len(), "other", family.name.to_owned()),
    }
}

/// Labels that say who counted; their points are one entry. `/metrics` keeps them apart.
const COUNTED_BY: [&str; 2] = ["core", "server"];

/// The points of a family as entries: those that differ by who counted are one; other labels become part of the name.
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
    /// `{"version": …, "uptime_s": …, "ready": …, "requests": {"received": …}, …}`: names that stay.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("version", env!("CARGO_PKG_VERSION"))?;
        map.serialize_entry("uptime_s", &self.uptime_s)?;
        map.serialize_entry("ready", &self.ready)?;
        for group in &self.groups {
            map.serialize_entry(group.name, group)?;
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

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use engine::meter::{CounterSet, HistogramSpec, Histograms, Point, Registry, Source};

    use super::*;

    engine::counters! {
        /// Some of what an accelerator counts.
        pub(crate) enum Sample {
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
    struct Labelled;
    impl Source for Labelled {
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

    /// A registry with known numbers.
    pub(crate) fn registry() -> Registry {
        let mut registry = Registry::new();
        let set = CounterSet::<Sample>::new(2);
        let (first, second) = (set.core(0), set.core(1));
        first.add(Sample::Requests, 1000);
        second.add(Sample::Requests, 234);
        first.add(Sample::Hits, 617);
        first.add(Sample::Saved, 3 << 20);
        second.add(Sample::Millis, 8200);
        first.add(Sample::New, 5);
        first.add(Sample::Objects, 42);
        first.add(Sample::Pinned, 2048);
        registry.register(set);
        let spec = HistogramSpec { name: "loop_lateness_seconds", help: "Late.", unit: Unit::Seconds };
        let lateness = Histograms::new(spec, 2);
        lateness.core(0).record(50_000);
        lateness.core(1).record(7_000_000);
        registry.register(lateness);
        registry.register(Arc::new(Labelled));
        registry
    }

    fn report() -> Report {
        Report::new(&registry().snapshot(), true, 3725)
    }

    #[test]
    fn numbers_of_all_cores_are_one_and_find_their_group() {
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
    fn texts() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(uptime_text(59), "59 s");
        assert_eq!(uptime_text(3 * 86_400 + 7200), "3 d 2 h");
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
