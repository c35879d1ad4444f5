//! What all tests share: the union of the features that they ask for, and how often a property is tried.
//!
//! Cargo compiles a library once for each set of features. A crate's tests alone ask for fewer than the whole workspace
//! does, so `cargo test -p mail` after a whole build compiled tokio and all above it a second time: five minutes. Every
//! crate has this one among its dev-dependencies. (As cargo-hakari does for large workspaces, by hand, because
//! it is short: docs/decisions/023-building.md says how to look for what is missing.)

/// How many cases a property is tried with: `everyday` in `make test`, `soak` where `FULL_CASES` is set, as `make soak`
/// does.
#[must_use]
pub fn cases(everyday: u32, soak: u32) -> u32 {
    if std::env::var_os("FULL_CASES").is_some() { soak } else { everyday }
}
