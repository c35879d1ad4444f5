//! The stored objects as a readable table: one line per object, numbers aligned, the address last.

use serde_json::Value;

use crate::{
    admin::{
        explained::plain,
        numbers::{thousands, uptime_text},
    },
    settings::units::size_for_people,
};

/// Returns the admin server's JSON as a table.
pub(crate) fn text(said: &Value) -> String {
    let rows = said["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
    let heading = ["age", "fresh for", "size", "status", "address"].map(str::to_owned);
    let lines: Vec<[String; 5]> = std::iter::once(heading).chain(rows.iter().map(row)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let mut text = String::new();
    if !rows.is_empty() {
        for [age, fresh, size, status, address] in &lines {
            let [ages, fresh_for, sizes, statuses] = widths;
            text.push_str(&format!(
                "{age:>ages$}  {fresh:>fresh_for$}  {size:>sizes$}  {status:>statuses$}  {address}\n"
            ));
        }
        text.push('\n');
    }
    let looked_at = said["looked_at"].as_u64().unwrap_or_default();
    let of = if said["all"] == true { "all" } else { "not all" };
    text.push_str(&format!(
        "{} of {} inspected, {of} in memory\n",
        thousands(rows.len() as u64),
        thousands(looked_at)
    ));
    text
}

fn row(object: &Value) -> [String; 5] {
    let ttl_s = object["ttl_s"].as_i64().unwrap_or_default();
    let stale = uptime_text(ttl_s.unsigned_abs());
    let mut address = plain(object["url"].as_str().unwrap_or_default());
    if object["variant"] == true {
        address.push_str("  (a variant)");
    }
    [
        uptime_text(object["age_s"].as_u64().unwrap_or_default()),
        if ttl_s > 0 { stale } else { format!("stale {stale}") },
        size_for_people(object["body_bytes"].as_u64().unwrap_or_default()),
        object["status"].to_string(),
        address,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_and_addresses_move_no_cursor() {
        let object = |url: &str, ttl_s: i64, body_bytes: u64| {
            serde_json::json!({
                "url": url, "variant": body_bytes == 0, "status": 200, "body_bytes": body_bytes, "age_s": 12, "ttl_s": ttl_s,
            })
        };
        let rows = [object("http://a/", 48, 1536), object("http://a/\u{1b}[2J", -300, 0)];
        let table = text(&serde_json::json!({ "objects": rows, "looked_at": 1200, "all": false }));
        let want = " age    fresh for      size  status  address\n\
                    12 s         48 s  1.50 KiB     200  http://a/\n\
                    12 s  stale 5 min       0 B     200  http://a/\u{fffd}[2J  (a variant)\n\n\
                    2 of 1,200 inspected, not all in memory\n";
        assert_eq!(table, want);
        let nothing = text(&serde_json::json!({ "objects": [], "looked_at": 3, "all": true }));
        assert_eq!(nothing, "0 of 3 inspected, all in memory\n");
    }
}
