//! Code that all tests share: the union of the features that they need, and the number of cases of a property
//! test.
//!
//! Cargo compiles a library once for each set of features. A crate's own tests need fewer features than the
//! whole workspace, so `cargo test -p mail` after a whole build compiled tokio and everything above it a
//! second time: five minutes. Every crate has this one among its dev-dependencies. (cargo-hakari does this
//! for large workspaces; here it is done by hand, because it is short: docs/decisions/023-building.md tells
//! how to find what is missing.)

/// Number of cases of a property test: `everyday` in `make test`, `soak` if `FULL_CASES` is set, as `make
/// soak` does.
#[must_use]
pub fn cases(everyday: u32, soak: u32) -> u32 {
    if std::env::var_os("FULL_CASES").is_some() { soak } else { everyday }
}
