//! `nighttrain stat --residency`: how much of a file is in the page cache, even while a server uses it.
//!
//! ```text
//! file ─▶ 64 cells of equal length ─▶ each: up to 16 samples, evenly spread, of 256 pages ─▶ mincore
//! ```
//! Every page of a file up to 1 GiB is examined; of a larger file, a sample of 1 GiB, so that the cost does
//! not grow with the file. Nothing is read or locked.

use std::path::Path;

use engine::io::CachedFile;
use serde_json::json;

use crate::{failure::Failure, settings::units::size_for_people};

/// Number of cells in the map, which fills one terminal line.
const CELLS: u64 = 64;
/// Maximum number of samples per cell.
const SAMPLES: u64 = 16;
/// Bytes of a sample, the range of one `mincore` call.
const SAMPLE_BYTES: u64 = 1 << 20;
/// Characters of the map, from an empty cell to a completely resident one.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];

/// Residency of a file in the page cache.
#[derive(Debug, PartialEq)]
struct Residency {
    bytes: u64,
    /// Resident fraction of each cell, in the file's order.
    cells: Vec<f64>,
}

/// Returns the map of a file, as readable text or as JSON.
///
/// # Errors
/// Returns `Failure::Failed` if the file cannot be opened or mapped. The process must be allowed to write the
/// file, otherwise `mincore` does not report its true residency.
pub(crate) fn residency(path: &Path, json: bool) -> Result<String, Failure> {
    let failed = |error| Failure::Failed(format!("cannot inspect {}: {error}", path.display()));
    let file = CachedFile::open(path).map_err(failed)?;
    let mapping = file.mapping();
    let found = sample_cells(mapping.len() as u64, |from, to| {
        #[expect(clippy::cast_possible_truncation, reason = "within the mapping")]
        let range = from as usize..to as usize;
        mapping.resident_pages(range)
    })
    .map_err(failed)?;
    if json {
        let document = json!({
            "residency": {
                "file": path.display().to_string(),
                "bytes": found.bytes,
                "resident_share": found.share(),
                "cells": found.cells,
            }
        });
        return Ok(format!("{document:#}\n"));
    }
    Ok(format!("{}: {}\n{}", path.display(), size_for_people(found.bytes), found.map()))
}

/// Samples each cell; `resident_pages` counts the resident pages of a range of bytes.
fn sample_cells(
    bytes: u64,
    resident_pages: impl Fn(u64, u64) -> std::io::Result<usize>,
) -> std::io::Result<Residency> {
    const PAGE_BYTES: u64 = 4096;
    let pages = bytes / PAGE_BYTES;
    let cell_count = CELLS.min(pages.max(1));
    let mut cells = Vec::new();
    for cell in 0..cell_count {
        let (from, to) = (pages * cell / cell_count, pages * (cell + 1) / cell_count);
        let sample_pages = SAMPLE_BYTES / PAGE_BYTES;
        let samples = (to - from).div_ceil(sample_pages).clamp(1, SAMPLES);
        let (mut asked, mut resident) = (0, 0);
        for sample in 0..samples {
            let start = from + (to - from) * sample / samples;
            let end = (start + sample_pages).min(from + (to - from) * (sample + 1) / samples);
            asked += end - start;
            resident += resident_pages(start * PAGE_BYTES, end * PAGE_BYTES)? as u64;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few thousand pages")]
        cells.push(if asked == 0 { 0.0 } else { resident as f64 / asked as f64 });
    }
    Ok(Residency { bytes, cells })
}

impl Residency {
    /// Returns the resident fraction of the file.
    fn share(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "at most 64 cells")]
        let cells = self.cells.len().max(1) as f64;
        self.cells.iter().sum::<f64>() / cells
    }

    /// Returns a line with one character per cell.
    fn map(&self) -> String {
        let shade = |share: &f64| {
            // Blank means completely empty and solid means completely resident; each shade in between covers
            // a quarter.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 4")]
            let at = (share * 4.0).ceil() as usize;
            if *share >= 1.0 { SHADES[4] } else { SHADES[at.min(3)] }
        };
        let cells: String = self.cells.iter().map(shade).collect();
        format!("|{cells}| {:.1} % in the page cache\n", self.share() * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_half_of_which_is_resident() {
        for bytes in [4096 * 3, 1 << 20, 100 << 20, 1 << 40] {
            let found = sample_cells(bytes, |from, to| {
                assert!(from < to && to <= bytes && to - from <= SAMPLE_BYTES, "{from} to {to} of {bytes}");
                Ok(if to <= bytes / 2 { ((to - from) / 4096) as usize } else { 0 })
            })
            .expect("nothing fails");
            assert!((found.share() - 0.5).abs() < 0.2, "{bytes}: {}", found.share());
            assert!(found.cells.iter().all(|share| [0.0, 1.0].contains(share)), "{found:?}");
        }
    }

    #[test]
    fn pages_up_to_a_gibibyte_are_checked_once() {
        for bytes in [0, 4096, 1 << 20, (64 << 20) + 4096 * 77, 1 << 30] {
            let asked = std::cell::Cell::new(0);
            let next = std::cell::Cell::new(0);
            let found = sample_cells(bytes, |from, to| {
                assert_eq!(from, next.replace(to), "in order, without a gap");
                asked.set(asked.get() + to - from);
                Ok(0)
            })
            .expect("nothing fails");
            assert_eq!((asked.get(), found.share()), (bytes, 0.0));
        }
    }

    #[test]
    fn the_map_is_a_line() {
        let found = Residency { bytes: 1, cells: vec![0.0, 0.01, 0.3, 0.6, 0.99, 1.0] };
        assert_eq!(found.map(), "| ░▒▓▓█| 48.3 % in the page cache\n");
    }

    #[test]
    fn residency_is_shown_for_existing_files_only() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        std::fs::write(&path, vec![7; 1 << 20]).expect("a file");
        let text = residency(&path, false).expect("a map");
        assert!(text.contains("1.00 MiB") && text.contains(" % in the page cache"), "{text}");
        let document: serde_json::Value =
            serde_json::from_str(&residency(&path, true).expect("a map")).expect("JSON");
        assert_eq!(document["residency"]["cells"].as_array().map(Vec::len), Some(64), "{document}");
        let error = residency(&directory.path().join("none"), false).expect_err("no file");
        assert!(error.to_string().contains("cannot inspect"), "{error}");
    }
}
