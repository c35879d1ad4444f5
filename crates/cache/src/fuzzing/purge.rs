//! Fuzz checks of purge requests (`policy::purge`), and of the bans made from them.

use super::with_request;
use crate::{
    head::response_head::{BLANK, StoredMeta},
    policy::purge::{PurgeTarget, TAGS_ASKED_MAX, What, parse_purge},
    purging::bans::{Ban, Bans, Subject, Verdict},
    tags::TAG_FIELDS,
};

const HOST: &str = "a.example";

/// Checks the head of a purge request.
pub fn purge_request(bytes: &[u8]) {
    let fields = TAG_FIELDS.map(Into::into);
    with_request(bytes, |head, _| {
        let Ok(PurgeTarget { what, is_soft }) = parse_purge(head, HOST.as_bytes(), &fields) else { return };
        assert!(!is_soft || head.headers.iter().any(|(name, _)| name.to_ascii_lowercase().contains("soft")));
        match what {
            What::Address => assert_eq!(head.method, "PURGE"),
            What::Tagged(pattern) => assert!(!pattern.is_empty()),
            What::All => assert!(head.headers.iter().any(|(_, value)| value.trim_ascii() == b".*")),
            What::Tags(tags) => {
                assert!((1..=TAGS_ASKED_MAX).contains(&tags.len()));
                assert!(tags.iter().all(|tag| !tag.is_empty() && !tag.contains(&b' ')));
            }
            What::Ban(expression) => {
                let is_ours = head.method == "BAN"
                    && head.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("x-ban"));
                // Text from a client never ends a quoted value, so only a pattern can be wrong.
                match Ban::parse(&expression, &fields) {
                    Ok(ban) if !is_ours => check_ban(head.method, head.target, &ban),
                    Ok(_) => {}
                    Err(fault) => {
                        assert!(is_ours || fault.found.contains("pattern") || fault.found.contains("bytes"))
                    }
                }
            }
        }
    });
}

/// Checks that a ban matches only the host to which the request was sent, or all hosts, and always matches
/// the target as a path.
fn check_ban(method: &str, target: &str, ban: &std::sync::Arc<Ban>) {
    let holds_of = |host: &str, path: &str| {
        let mut bans = Bans::default();
        bans.enter(1, false, ban);
        let key = format!("{host}\0{path}");
        let meta = StoredMeta { status: 200, ..BLANK };
        let subject = Subject { key: key.as_bytes(), head: b"HTTP/1.1 200 OK\r\n", meta: &meta, asker: None };
        bans.verdict(0, &subject, false) == Verdict::Hard
    };
    if method == "PURGE" {
        assert!(!holds_of("b.example", "/") && !holds_of("b.example", target));
        let is_with_wildcards =
            ban.text().contains("\"^\\/") && target.starts_with('/') && !ban.text().contains("\"\"");
        if is_with_wildcards && target.contains('*') && !target.ends_with("/.*") {
            assert!(holds_of(HOST, target) || !ban.text().ends_with("$\""), "{target}");
        }
    }
}
