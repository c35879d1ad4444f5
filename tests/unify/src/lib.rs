//! Nothing but its dependencies' features: the union of what the tests of all crates ask for.
//!
//! Cargo compiles a library once for each set of features. A crate's tests alone ask for fewer than the whole workspace
//! does, so `cargo test -p mail` after a whole build compiled tokio and all above it a second time: five minutes. Every
//! crate has this one among its dev-dependencies. (As cargo-hakari does for large workspaces, by hand, because
//! it is short: docs/decisions/023-building.md says how to look for what is missing.)
