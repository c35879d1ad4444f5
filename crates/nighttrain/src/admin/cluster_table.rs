//! The accelerators of a cluster, as JSON and as a readable table with one line per instance, the name last.

use cluster::{ClusterStatus, InstanceStatus};
use serde_json::{Value, json};

use crate::admin::{explained::plain, numbers::thousands};

/// Returns the cluster's status as the JSON that the admin server sends.
pub(crate) fn said(look: &ClusterStatus, lease_left_ms: Option<u64>) -> Value {
    let instance = |seen: &InstanceStatus| {
        json!({
            "name": seen.name,
            "instance": seen.instance,
            "is_this": seen.is_own,
            "applied": seen.applied,
            "quiet_ms": seen.quiet_ms,
            "lease_ms": seen.lease_ms,
            "serves_on": seen.serves_on,
            "left": seen.left,
            "version": seen.version,
            "address": seen.address,
        })
    };
    json!({
        "state": look.state,
        "joined": look.is_joined,
        "applied": look.applied,
        "generation": look.generation,
        "lease_left_ms": lease_left_ms,
        "shared": look.vault,
        "instances": look.instances.iter().map(instance).collect::<Vec<_>>(),
    })
}

/// Formats the JSON of the cluster's state as a table.
pub(crate) fn text(said: &Value) -> String {
    let lease = match said["lease_left_ms"].as_u64() {
        Some(0) => "lease expired: stored objects are revalidated before use".to_owned(),
        Some(left_ms) => format!("lease: {left_ms} ms left, unless renewed"),
        None => "stored objects are served even without the cluster".to_owned(),
    };
    let mut text = format!("{}; {lease}\n", plain(said["state"].as_str().unwrap_or_default()));
    if let Some(shared) = said["shared"].as_str() {
        text.push_str(&format!("certificates: {}\n", plain(shared)));
    }
    let rows = said["instances"].as_array().map(Vec::as_slice).unwrap_or_default();
    let heading = ["state", "applied", "heard of", "version", "instance"].map(str::to_owned);
    let lines: Vec<[String; 5]> = std::iter::once(heading).chain(rows.iter().map(row)).collect();
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let [states, applied, heard, versions] = std::array::from_fn(width);
    for [state, sequence, quiet, version, name] in &lines {
        text.push_str(&format!(
            "{state:<states$}  {sequence:>applied$}  {quiet:>heard$}  {version:<versions$}  {name}\n"
        ));
    }
    text
}

fn row(seen: &Value) -> [String; 5] {
    let number = |name: &str| seen[name].as_u64().unwrap_or_default();
    let is = |name: &str| seen[name] == true;
    let state = match () {
        () if is("left") => "left",
        () if is("serves_on") => "serves on",
        () if number("quiet_ms") > number("lease_ms") => "lease out",
        () => "serves",
    };
    let name = plain(seen["name"].as_str().unwrap_or_default());
    [
        state.to_owned(),
        thousands(number("applied")),
        format!("{} ms ago", thousands(number("quiet_ms"))),
        plain(seen["version"].as_str().unwrap_or_default()),
        if is("is_this") { format!("{name} (this one)") } else { name },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a38_a_line_for_each_instance() {
        let seen = |name: &str, quiet_ms, serves_on, left, is_own| InstanceStatus {
            name: name.into(),
            instance: "i".into(),
            applied: 1_234,
            version: "0.1.0".into(),
            address: String::new(),
            quiet_ms,
            lease_ms: 3_000,
            serves_on,
            left,
            is_own,
        };
        let instances = vec![
            seen("a", 20, false, false, true),
            seen("b", 5_000, false, false, false),
            seen("c", 20, true, false, false),
            seen("d", 20, false, true, false),
        ];
        let look = ClusterStatus {
            state: "joined".into(),
            is_joined: true,
            applied: 1_234,
            generation: 0,
            vault: None,
            instances,
        };
        assert_eq!(
            text(&said(&look, Some(2_980))),
            "joined; lease: 2980 ms left, unless renewed\n\
             state      applied      heard of  version  instance\n\
             serves       1,234     20 ms ago  0.1.0    a (this one)\n\
             lease out    1,234  5,000 ms ago  0.1.0    b\n\
             serves on    1,234     20 ms ago  0.1.0    c\n\
             left         1,234     20 ms ago  0.1.0    d\n"
        );
        assert!(text(&said(&look, None)).contains("even without the cluster"));
        assert!(text(&said(&look, Some(0))).contains("revalidated before use"));
    }
}
