//! Display names of contenders.

use std::collections::BTreeMap;

/// Returns the display name of a contender in a record, with its version.
pub(crate) fn shown(name: &str, versions: &BTreeMap<String, String>) -> String {
    let version = versions.get(name).and_then(|text| number(text));
    if name == "ours-shared" {
        let ours = shown("ours", versions);
        return format!("{ours}, equal bodies stored once (the default)");
    }
    if name == "ours-other" {
        return format!("{}, another build", shown("ours", versions));
    }
    if let ("hitch+varnish", Some((hitch, varnish))) =
        (name, versions.get(name).and_then(|text| text.split_once(" + ")))
    {
        let number = |text| number(text).unwrap_or_default().trim_end_matches(',');
        return format!("Hitch {} + Varnish {}", number(hitch), number(varnish));
    }
    let (name, version) = match name {
        "limit" => return "a bare event loop".into(),
        "floor" => return "a bare relay".into(),
        "limit-h2" => return "a bare HTTP/2 loop".into(),
        "sink" => return "smtp-sink".into(),
        "ours" | "ours-direct" | "ours-kernel" => ("nighttrain", version),
        "nats-server-debian" => ("nats-server", version),
        "trafficserver" => ("Traffic Server", version),
        "haproxy" => ("HAProxy", version),
        "varnish" => ("Varnish", version),
        "squid" => ("Squid", version),
        "redis" => ("Redis pub/sub", version),
        "mosquitto" => ("Mosquitto", version),
        "greenmail" => ("GreenMail", version),
        "mailpit" => ("Mailpit", version),
        // Postfix comes from the same package as smtp-sink, so the sink's version serves if Postfix's is
        // missing.
        "postfix" => ("Postfix", version.or_else(|| versions.get("sink").and_then(|text| number(text)))),
        other => (other, version),
    };
    version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}"))
}

/// Returns the display name without a version: `foyer (S3-FIFO)` for the library `foyer, S3-FIFO`, `HAProxy`
/// for `haproxy`.
pub(crate) fn plain(name: &str) -> String {
    name.split_once(", ")
        .map_or_else(|| shown(name, &BTreeMap::new()), |(name, way)| format!("{name} ({way})"))
}

/// Returns whether the contender is a third-party server.
pub(crate) fn is_peer(name: &str) -> bool {
    !is_ours(name) && !is_reference(name)
}

/// Returns whether the contender is Nighttrain, in any configuration.
pub(crate) fn is_ours(name: &str) -> bool {
    name.starts_with("ours")
}

/// Returns whether the contender is a floor, which does only what every server must do.
pub(crate) fn is_reference(name: &str) -> bool {
    matches!(name, "limit" | "limit-h2" | "floor" | "sink" | "reference" | "reference-h2")
}

/// Returns the first number with a dot in a program's version output, such as `nginx version: nginx/1.22.1`.
fn number(text: &str) -> Option<&str> {
    text.split([' ', '/', '-', '=', ':', '('])
        .map(|word| word.trim_start_matches('v'))
        .find(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_every_programs_own_words() {
        for (words, version) in [
            ("nginx version: nginx/1.22.1", "1.22.1"),
            ("HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/", "2.6.12"),
            ("varnishd (varnish-7.1.1 revision 7cee1c581bead20e)", "7.1.1"),
            ("Squid Cache: Version 5.7", "5.7"),
            ("nats-server: v2.15.2", "2.15.2"),
            ("Redis server v=7.0.15 sha=00000000:0", "7.0.15"),
            ("0.1.0", "0.1.0"),
        ] {
            assert_eq!(number(words), Some(version), "{words}");
        }
        let both = "hitch 1.7.2 + varnishd (varnish-7.1.1 revision 7cee)".to_owned();
        let versions = BTreeMap::from([("hitch+varnish".to_owned(), both)]);
        assert_eq!(shown("hitch+varnish", &versions), "Hitch 1.7.2 + Varnish 7.1.1");
        assert_eq!(number("the shared relay.c, by the same compiler"), None);
    }
}
