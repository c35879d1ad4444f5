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
    gauge("store_objects", "Objects that can be found.", None, |usage| usage.objects),
    gauge("store_capacity_bytes", "Bytes of all segments.", Bytes, |usage| usage.capacity_bytes),
    gauge("store_stored_bytes", "Bytes of records in segments, live and dead.", Bytes, |usage| {
        usage.stored_bytes
    }),
    gauge("store_live_bytes", "Bytes of records that can be found.", Bytes, |usage| usage.live_bytes),
    gauge("store_index_bytes", "Bytes of the index.", Bytes, |usage| usage.index_bytes),
    gauge("store_expiry_entries", "Entries of the expiry queue, outdated ones included.", None, |usage| {
        usage.expiry_entries
    }),
    gauge(
        "store_probation_bytes",
        "Bytes that are for objects of which nobody knows yet whether they are asked for again; those that come back move the bound.",
        Bytes,
        |usage| usage.probation_bytes,
    ),
    gauge("store_ghost_bytes", "Bytes of the list of what was evicted lately.", Bytes, |usage| {
        usage.ghost_bytes
    }),
    gauge("store_segments_free", "Segments with nothing in them.", None, |usage| usage.segments_free),
    gauge("store_segments_open", "Segments being filled.", None, |usage| usage.segments_open),
    gauge("store_segments_sealed", "Full segments.", None, |usage| usage.segments_sealed),
    gauge("store_segments_draining", "Segments that wait for their last reader.", None, |usage| {
        usage.segments_draining
    }),
    gauge("store_draining_bytes", "Bytes of segments that wait for their last reader.", Bytes, |usage| {
        usage.draining_bytes
    }),
    gauge("store_pinned_bytes", "Bytes of segments that a reader or writer holds.", Bytes, |usage| {
        usage.pinned_bytes
    }),
    counter("store_inserts", "Objects stored under a new key.", None, |usage| usage.inserts),
    counter("store_replacements", "Objects stored in place of an older one.", None, |usage| {
        usage.replacements
    }),
    counter("store_expiries", "Objects dropped because their time was over.", None, |usage| usage.expiries),
    counter("store_unlinks", "Objects dropped on request.", None, |usage| usage.unlinks),
    counter("store_evictions", "Objects dropped for room.", None, |usage| usage.evictions),
    counter(
        "store_evictions_of_visited",
        "Of these, visited ones that found no room in the main log.",
        None,
        |usage| usage.evictions_of_visited,
    ),
    counter("store_ghost_hits", "Objects that came back soon after their eviction.", None, |usage| {
        usage.ghost_hits
    }),
    counter(
        "store_promotions",
        "Objects copied to the main log because they had been visited.",
        None,
        |usage| usage.promotions,
    ),
    counter("store_promoted_bytes", "Bytes so copied.", Bytes, |usage| usage.promoted_bytes),
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
    counter("store_refused_crowded", "Objects refused because the index had no place.", None, |usage| {
        usage.refused_crowded
    }),
    counter("store_abandoned", "Objects given up before they were whole.", None, |usage| usage.abandoned),
    counter("store_reclaims", "Segments freed.", None, |usage| usage.reclaims),
    counter(
        "store_renewals",
        "Segments freed that got new memory, because sockets may still send from the old.",
        None,
        |usage| usage.renewals,
    ),
    gauge("store_file_objects", "Objects on the file.", None, |usage| usage.file_objects),
    gauge("store_file_directory_bytes", "Bytes of memory that know what is on the file.", Bytes, |usage| {
        usage.file_directory_bytes
    }),
    counter("store_file_kept", "Objects copied to the file.", None, |usage| usage.file_kept),
    counter(
        "store_file_written_back",
        "Objects evicted from memory whose first copy on the file had been given up.",
        None,
        |usage| usage.file_written_back,
    ),
    counter(
        "store_file_refused",
        "Objects not copied to the file because too much waited to be written.",
        None,
        |usage| usage.file_refused,
    ),
    counter(
        "store_file_too_large",
        "Objects not copied to the file because they are larger than a file of this size takes.",
        None,
        |usage| usage.file_too_large,
    ),
    counter("store_file_hits", "Objects read back from the file.", None, |usage| usage.file_hits),
    counter("store_file_hit_bytes", "Bytes so read.", Bytes, |usage| usage.file_hit_bytes),
    counter(
        "store_file_damaged",
        "Objects on the file that could not be read or were damaged.",
        None,
        |usage| usage.file_damaged,
    ),
    counter(
        "store_file_incomplete",
        "Large objects on the file that were given up because not all of their parts were there.",
        None,
        |usage| usage.file_incomplete,
    ),
    counter(
        "store_file_crowded_out",
        "Objects on the file that were given up for new ones, because there is no memory to know of more.",
        None,
        |usage| usage.file_crowded_out,
    ),
    counter("store_file_parts", "Parts of large objects written to the file.", None, |usage| {
        usage.file_parts
    }),
    counter(
        "store_file_heads",
        "Heads written to the file alone, because the object's body is there already.",
        None,
        |usage| usage.file_heads,
    ),
    counter(
        "store_file_not_admitted",
        "Objects not copied to the file when they were stored, because nobody had asked for them before.",
        None,
        |usage| usage.file_not_admitted,
    ),
    gauge("store_file_copying", "Large objects that are being copied to the file.", None, |usage| {
        usage.file_copying
    }),
    gauge(
        "store_file_warming",
        "Cores that do not yet know what the file holds, because it is still being read at the start.",
        None,
        |usage| usage.file_warming,
    ),
    gauge(
        "store_file_lost",
        "Cores that work in memory alone, because the file could not be read at the start.",
        None,
        |usage| usage.file_lost,
    ),
    counter(
        "store_lookups_contended",
        "Lookups answered by the owner because it was writing just there.",
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
    fn every_figure_has_its_name_once_and_ends_in_its_unit() {
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
