//! `bench pages` and `bench html`: pages that are generated from the records of measurements.
//!
//! ```text
//!  bench/records/*.json ─┐            ┌─▶ docs/benchmarks.md            every table, every loss, the machine once
//!  docs/lab/results.json ┴─▶ RecordSet ───┼─▶ docs/benchmarks/*.svg         a small chart a server, × the limit
//!                                     └─▶ README.md, between two marks  the charts, and a line of losses each
//!  one record.json ──────────────────────▶ HTML on stdout
//! ```
//! Nothing is measured here, and no figure is written by hand: every number of a section comes from the
//! newest record that measured it ([`record_set`]). A test checks that the committed files match the records.
mod cache;
mod chart;
mod claims;
mod contenders;
mod edge;
mod feed;
pub(crate) mod html;
mod mail;
mod markdown;
mod page;
mod pressure;
mod queues;
mod record_set;

use std::path::Path;
use std::{fs, io};

use lab::paired::place::workspace;

use record_set::RecordSet;

/// Removes superseded records and writes docs/benchmarks.md, its charts, and the README's part; returns a
/// line for each file with what was done to it.
///
/// # Errors
/// A message if a record is missing or cannot be read, or a file cannot be written.
pub(crate) fn write() -> Result<Vec<String>, String> {
    let root = workspace();
    let mut lines = Vec::new();
    for path in RecordSet::read(&root)?.superseded() {
        for path in [path.to_owned(), path.replace(".json", ".md")] {
            match fs::remove_file(root.join(&path)) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(format!("{path}: {why}")),
                _ => lines.push(format!("{path}: removed, newer records have all of it")),
            }
        }
    }
    let set = RecordSet::read(&root)?;
    for (path, text) in page::files(&set, &root)? {
        let changed = replace(&root.join(&path), &text).map_err(|why| format!("{path}: {why}"))?;
        lines.push(format!("{path}{}", if changed { "" } else { ": unchanged" }));
    }
    Ok(lines)
}

/// Writes a file if its text has changed, and returns whether it has.
fn replace(path: &Path, text: &str) -> io::Result<bool> {
    if fs::read_to_string(path).is_ok_and(|before| before == text) {
        return Ok(false);
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, text)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_record_is_kept_in_vain() {
        let set = RecordSet::read(&workspace()).unwrap();
        assert_eq!(set.superseded(), [""; 0], "run `make benchmarks-page`");
    }

    /// A change of the records or of the wording must be followed by `make benchmarks-page`.
    #[test]
    fn committed_pages_are_those_of_the_records() {
        let root = workspace();
        let set = RecordSet::read(&root).unwrap();
        for (path, text) in page::files(&set, &root).unwrap() {
            let committed = fs::read_to_string(root.join(&path)).unwrap_or_default();
            assert!(committed == text, "{path} is not what its records give: run `make benchmarks-page`");
        }
    }
}
