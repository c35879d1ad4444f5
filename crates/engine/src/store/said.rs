//! Metrics of a store.

use super::{Store, Usage};
use crate::meter::{
    Family, Figure, Source,
    Unit::{Bytes, None},
    counter, gauge,
};

impl Source for Store {
    fn collect(&self, families: &mut Vec<Family>) {
        let usage = self.usage();
        families.extend(SAID.iter().map(|figure| figure.family(&usage)));
    }
}

const SAID: &[Figure<Usage>] = &[
    gauge("store_objects", "Stored objects in the index.", None, |usage| usage.objects),
    gauge("store_capacity_bytes", "Bytes of all segments in memory.", Bytes, |usage| usage.capacity_bytes),
    gauge("store_stored_bytes", "Bytes of records in segments, live and dead.", Bytes, |usage| {
        usage.stored_bytes
    }),
    gauge("store_live_bytes", "Bytes of live records.", Bytes, |usage| usage.live_bytes),
    gauge("store_index_bytes", "Bytes of the index.", Bytes, |usage| usage.index_bytes),
    gauge("store_expiry_entries", "Entries of the expiry queue, including outdated ones.", None, |usage| {
        usage.expiry_entries
    }),
    gauge(
        "store_probation_bytes",
        "Size of the probation log for objects not requested again yet; ghost hits move the bound.",
        Bytes,
        |usage| usage.probation_bytes,
    ),
    gauge("store_ghost_bytes", "Bytes of the list of recently evicted objects.", Bytes, |usage| {
        usage.ghost_bytes
    }),
    gauge("store_segments_free", "Free segments.", None, |usage| usage.segments_free),
    gauge("store_segments_open", "Segments being filled.", None, |usage| usage.segments_open),
    gauge("store_segments_sealed", "Full segments.", None, |usage| usage.segments_sealed),
    gauge("store_segments_draining", "Segments draining: waiting for their last reader.", None, |usage| {
        usage.segments_draining
    }),
    gauge("store_draining_bytes", "Bytes of draining segments.", Bytes, |usage| usage.draining_bytes),
    gauge("store_pinned_bytes", "Bytes of segments pinned by a reader or writer.", Bytes, |usage| {
        usage.pinned_bytes
    }),
    counter("store_inserts", "Objects stored under a new key.", None, |usage| usage.inserts),
    counter("store_replacements", "Objects stored in place of an older one.", None, |usage| {
        usage.replacements
    }),
    counter("store_expiries", "Objects dropped because they expired.", None, |usage| usage.expiries),
    counter("store_unlinks", "Objects dropped on request, such as by a purge.", None, |usage| usage.unlinks),
    counter("store_evictions", "Objects evicted.", None, |usage| usage.evictions),
    counter(
        "store_evictions_of_visited",
        "Evicted objects that had been hit and found no room in the main log.",
        None,
        |usage| usage.evictions_of_visited,
    ),
    counter("store_ghost_hits", "Objects stored again soon after their eviction.", None, |usage| {
        usage.ghost_hits
    }),
    counter(
        "store_promotions",
        "Objects promoted to the main log because they had been hit.",
        None,
        |usage| usage.promotions,
    ),
    counter("store_promoted_bytes", "Bytes promoted to the main log.", Bytes, |usage| usage.promoted_bytes),
    counter("store_refused_no_room", "Objects refused because no segment could be freed.", None, |usage| {
        usage.refused_no_room
    }),
    counter(
        "store_refused_too_large",
        "Objects refused because they are larger than allowed.",
        None,
        |usage| usage.refused_too_large,
    ),
    counter("store_refused_short", "Objects refused because their body ended early.", None, |usage| {
        usage.refused_short
    }),
    counter("store_refused_crowded", "Objects refused because the index bucket was full.", None, |usage| {
        usage.refused_crowded
    }),
    counter("store_abandoned", "Objects abandoned before they were complete.", None, |usage| usage.abandoned),
    counter("store_reclaims", "Segments freed.", None, |usage| usage.reclaims),
    counter(
        "store_renewals",
        "Segments freed with new memory, because sockets may still send from the old.",
        None,
        |usage| usage.renewals,
    ),
    gauge("store_file_objects", "Objects on the file.", None, |usage| usage.file_objects),
    gauge("store_file_directory_bytes", "Memory of the directory of objects on the file.", Bytes, |usage| {
        usage.file_directory_bytes
    }),
    counter("store_file_kept", "Objects copied to the file.", None, |usage| usage.file_kept),
    counter(
        "store_file_written_back",
        "Evicted objects copied to the file again because their first copy had been dropped.",
        None,
        |usage| usage.file_written_back,
    ),
    counter(
        "store_file_refused",
        "Objects not copied to the file because too much was waiting to be written.",
        None,
        |usage| usage.file_refused,
    ),
    counter(
        "store_file_too_large",
        "Objects not copied to the file because they are too large for a file of this size.",
        None,
        |usage| usage.file_too_large,
    ),
    counter("store_file_hits", "Objects read back from the file.", None, |usage| usage.file_hits),
    counter("store_file_hit_bytes", "Bytes of objects read back from the file.", Bytes, |usage| {
        usage.file_hit_bytes
    }),
    counter("store_file_damaged", "Objects on the file that were unreadable or damaged.", None, |usage| {
        usage.file_damaged
    }),
    counter(
        "store_file_incomplete",
        "Large objects on the file dropped because parts were missing.",
        None,
        |usage| usage.file_incomplete,
    ),
    counter(
        "store_file_crowded_out",
        "Objects on the file dropped for new ones because the directory's memory was full.",
        None,
        |usage| usage.file_crowded_out,
    ),
    counter("store_file_parts", "Parts of large objects written to the file.", None, |usage| {
        usage.file_parts
    }),
    counter(
        "store_file_heads",
        "Heads written to the file alone because the object's body was there already.",
        None,
        |usage| usage.file_heads,
    ),
    counter(
        "store_file_not_admitted",
        "Objects not copied to the file when stored, because they had not been requested before.",
        None,
        |usage| usage.file_not_admitted,
    ),
    gauge("store_file_copying", "Large objects being copied to the file.", None, |usage| usage.file_copying),
    gauge("store_file_warming", "Cores still reading the store's file at the start.", None, |usage| {
        usage.file_warming
    }),
    gauge(
        "store_file_lost",
        "Cores working in memory alone because the file could not be read at the start.",
        None,
        |usage| usage.file_lost,
    ),
    counter(
        "store_lookups_contended",
        "Lookups answered by the owning core because it was writing to the bucket.",
        None,
        |usage| usage.lookups_contended,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::{Registry, prometheus};
    use crate::store::{StoreConfig, open_anon};

    #[test]
    fn metric_names_are_unique_with_unit_suffixes() {
        let (store, _shards) = open_anon(&StoreConfig::default()).expect("a store");
        let mut registry = Registry::new();
        registry.register(store);
        let text = prometheus::encode(&registry);
        for Figure { name, unit, .. } in SAID {
            assert_eq!(text.matches(&format!("# TYPE {name} ")).count(), 1, "{name}");
            assert!(unit.suffix().is_none_or(|suffix| name.ends_with(suffix)), "{name}");
        }
    }
}
