//! `nighttrain check --store` and `nighttrain stat --store`: the contents of a store's file, and its faults.

use std::path::Path;

use cache::{PurgesSeen, check_purges};
use engine::log::check::{CheckReport, check};
use serde_json::json;

use crate::{failure::Failure, settings::units::size_text};

/// Verifies the whole file, and returns a text that describes it.
///
/// # Errors
/// Returns `Failure::Failed` if the file cannot be opened (in use, not a store, another version, truncated),
/// or if anything in it is damaged: the message then contains the whole text.
pub(crate) fn verify(path: &Path) -> Result<String, Failure> {
    let checked = check(path).map_err(|error| Failure::Failed(error.to_string()))?;
    let mut text = explained(path, &checked);
    match check_purges(path, checked.header.hash_seed) {
        Ok(seen) => text.push_str(&seen.as_ref().map(told).unwrap_or_default()),
        // The server refuses to start with such a file too, because the purges are no longer known.
        Err(error) => return Err(Failure::Failed(format!("{text}{error}"))),
    }
    if checked.fault_count == 0 {
        text.push_str("All headers, tables, records and checksums are valid.\n");
        return Ok(text);
    }
    text.push_str(&format!("{} places are damaged:\n", checked.fault_count));
    for fault in &checked.faults {
        text.push_str(&format!("  {fault}\n"));
    }
    text.push_str(
        "Nothing was changed. A server can still use the file: damaged records are never served, but fetched again.",
    );
    Err(Failure::Failed(text))
}

/// Describes the contents of the file that records purges.
fn told(seen: &PurgesSeen) -> String {
    let PurgesSeen { path, bytes, purged, bans, torn_bytes, is_foreign } = seen;
    let path = path.display();
    if *is_foreign {
        return format!("{path}: of another store, or just created; a start replaces it\n");
    }
    let torn = if *torn_bytes == 0 {
        String::new()
    } else {
        format!(", and {} of an incomplete purge, which a start removes", size_text(*torn_bytes))
    };
    format!("{path}: {purged} purged tags and addresses, {bans} bans, {}{torn}\n", size_text(*bytes))
}

/// Returns the contents of the file, as readable text or as JSON.
///
/// # Errors
/// Returns `Failure::Failed` if the file cannot be opened.
pub(crate) fn describe(path: &Path, json: bool) -> Result<String, Failure> {
    let checked = check(path).map_err(|error| Failure::Failed(error.to_string()))?;
    if !json {
        return Ok(explained(path, &checked));
    }
    let document = json!({
        "store": {
            "file": path.display().to_string(),
            "purpose": purpose(&checked),
            "bytes": checked.header.file_bytes(),
            "segment_bytes": checked.header.segment_bytes,
            "segments": checked.header.segments,
            "segments_free": checked.segments_free,
            "segments_sealed": checked.segments_sealed,
            "segments_open": checked.segments_open,
            "records": checked.records,
            "payload_bytes": checked.payload_bytes,
            "ends": checked.ends,
            "faults": checked.fault_count,
        }
    });
    Ok(format!("{document:#}\n"))
}

fn purpose(checked: &CheckReport) -> String {
    String::from_utf8_lossy(&checked.header.purpose).trim_end_matches('\0').to_owned()
}

fn explained(path: &Path, checked: &CheckReport) -> String {
    let header = &checked.header;
    format!(
        "{}: a store of the {}, {} in {} segments of {}\n\
         segments: {} free, {} with their table, {} open when the last process ended (a start rolls them forward)\n\
         records: {} with {} of payload (dead ones included), {} name another that they end\n",
        path.display(),
        purpose(checked),
        size_text(header.file_bytes()),
        header.segments,
        size_text(u64::from(header.segment_bytes)),
        checked.segments_free,
        checked.segments_sealed,
        checked.segments_open,
        checked.records,
        size_text(checked.payload_bytes),
        checked.ends,
    )
}
