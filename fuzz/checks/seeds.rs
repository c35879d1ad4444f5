//! Runs every seed of a target through the target's own check in the test suite, so that the checks are
//! built, and hold, without a nightly compiler.

/// Calls `check` with each of `fuzz/seeds/NAME`.
#[allow(
    clippy::print_stderr,
    clippy::expect_used,
    reason = "what fails is a panic: its output names the seed"
)]
pub(crate) fn replay(name: &str, check: fn(&[u8])) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut seeds: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{} is empty", folder.display());
    for seed in seeds {
        let bytes = std::fs::read(&seed).expect("a file");
        eprintln!("{}", seed.display());
        check(&bytes);
    }
    check(&[]);
}
