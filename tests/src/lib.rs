//! Tests that only make sense across crates: the harness they share.
