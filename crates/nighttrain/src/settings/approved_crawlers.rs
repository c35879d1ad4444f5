//! The lists of networks that operators of approved crawlers publish.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use cache::Network;
use serde_json::Value;

use crate::{failure::Fault, settings::network};

/// Maximum size of a list; the largest that is published has a few hundred kilobytes.
const LIST_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of networks in all lists: on each cache miss by a crawler, its address is compared with all
/// of them.
const NETWORKS_MAX: usize = 8192;

/// Reads the networks of all lists.
///
/// # Errors
/// Returns a `Fault` if a file cannot be read or is not a list of networks.
pub(crate) fn approved(lists: &[PathBuf]) -> Result<Vec<Network>, Fault> {
    let mut all = Vec::new();
    for path in lists {
        let fault = |message| Fault { place: "bots-approved".to_owned(), message };
        all.extend(networks_in(path).map_err(fault)?);
        if all.len() > NETWORKS_MAX {
            return Err(fault(format!("{}: more than {NETWORKS_MAX} networks in all", path.display())));
        }
    }
    Ok(all)
}

fn networks_in(path: &Path) -> Result<Vec<Network>, String> {
    let cannot = |why: std::io::Error| format!("{}: cannot be read: {why}", path.display());
    let mut text = String::new();
    File::open(path).and_then(|file| file.take(LIST_BYTES_MAX).read_to_string(&mut text)).map_err(cannot)?;
    let said = if text.trim_start().starts_with('{') {
        let value: Value =
            serde_json::from_str(&text).map_err(|error| format!("{}: not JSON: {error}", path.display()))?;
        let mut prefixes = Vec::new();
        collect(&value, &mut prefixes);
        prefixes.into_iter().map(|prefix| network(&prefix)).collect::<Result<Vec<_>, _>>()
    } else {
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        lines.map(|(at, line)| network(line).map_err(|error| format!("line {at}: {error}"))).collect()
    };
    match said {
        Ok(networks) if networks.is_empty() => Err(format!("{}: no network in the file", path.display())),
        Ok(networks) => Ok(networks),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Collects the prefixes of a list as Google, Bing, OpenAI and others publish them, at any depth in the JSON.
fn collect(value: &Value, prefixes: &mut Vec<String>) {
    match value {
        Value::Array(parts) => parts.iter().for_each(|part| collect(part, prefixes)),
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_str().filter(|_| matches!(&**name, "ipv4Prefix" | "ipv6Prefix")) {
                    Some(prefix) => prefixes.push(prefix.to_owned()),
                    None => collect(field, prefixes),
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_are_published() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("bots");
        let read = |text: &str| {
            std::fs::write(&path, text).expect("written");
            networks_in(&path).map(|networks| networks.iter().map(Network::to_string).collect::<Vec<_>>())
        };
        let json = r#"{"creationTime":"2026-01-01","prefixes":[{"ipv6Prefix":"2001:db8::/32"},{"ipv4Prefix":"192.0.2.0/27"}]}"#;
        assert_eq!(read(json).expect("networks"), ["2001:db8::/32", "192.0.2.0/27"]);
        assert_eq!(read("# ours\n192.0.2.7\n\n10.0.0.0/8\n").expect("networks"), ["192.0.2.7", "10.0.0.0/8"]);
        for (wrong, said) in [
            ("", "no network"),
            ("{}", "no network"),
            ("{", "not JSON"),
            ("10.0.0.0/8\nthere\n", "line 2: invalid network `there`"),
            (r#"{"ipv4Prefix":"10.0.0.1/8"}"#, "10.0.0.0/8"),
        ] {
            let error = read(wrong).expect_err(wrong);
            assert!(error.contains(said) && error.contains("/bots"), "{wrong}: {error}");
        }
        assert!(networks_in(Path::new("/nowhere/bots")).expect_err("absent").contains("cannot be read"));
    }
}
