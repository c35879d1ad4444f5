//! A tiny run of the benchmark: it must work and count correctly. Its speed is not checked.
#![cfg(not(feature = "loom"))]

#[path = "../../examples/store_bench.rs"]
mod bench;

#[test]
fn the_benchmark_stores_and_finds_everything() {
    let outcome = bench::run(20_000, 200, 20_000);
    assert_eq!((outcome.objects, outcome.misses), (20_000, 0));
    assert_eq!(outcome.lookups.len(), 4);
    assert!(
        outcome.inserts > 0.0
            && outcome.inserts_full > 0.0
            && outcome.lookups.iter().all(|(_, lookups)| *lookups > 0.0)
    );
    assert!(bench::copy_ns(1000).is_finite());
    assert!(outcome.metadata_bytes.is_finite());
    assert!((25.0..70.0).contains(&outcome.accounted_bytes), "{} bytes an object", outcome.accounted_bytes);
}
