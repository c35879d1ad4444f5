//! Fuzzing of monitoring queries (`monitor::query`).

use std::collections::BTreeMap;

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::{Value, json};

use crate::monitor::query::Query;

/// Fuzzes the query part of a URL. Each name has its first value, decoded as by the slow twin, and keeps that
/// value if the query is rewritten, in a URL or as JSON. A number parses as a number, and a flag is one of
/// nats-server's words.
pub fn monitor_query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let query = Query::new(text);
    let mut first: BTreeMap<String, String> = BTreeMap::new();
    for pair in text.split('&') {
        let Some((name, value)) = pair.split_once('=') else { continue };
        let (name, value) = (decode(name), decode(value));
        if !value.is_empty() {
            first.entry(name).or_insert(value);
        }
    }
    let encode = |text: &str| percent_encode(text.as_bytes(), NON_ALPHANUMERIC).to_string();
    let pairs: Vec<String> =
        first.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
    let written = pairs.join("&");
    let object = json!(first);
    let (again, of_json) = (Query::new(&written), Query::of_json(&object, &[("limits", "limit")]));
    for name in first.keys().map(String::as_str).chain(["limit", "offset", "subs", ""]) {
        let word = query.word(name);
        assert_eq!(word, first.get(name).map(String::as_str), "{name} of {text}");
        assert_eq!(again.word(name), word, "{written}");
        if !first.contains_key("limits") {
            assert_eq!(of_json.word(name), word, "{object}");
        }
        match query.number(name) {
            Ok(number) => {
                let word: Option<i64> = word.map(|word| word.parse().expect("it was read"));
                assert_eq!(number, word.and_then(|word| usize::try_from(word).ok()));
            }
            Err(why) => assert!(why.contains(name) && word.is_some_and(|word| word.parse::<i64>().is_err())),
        }
        match query.flag(name) {
            Ok(flag) => assert!(!flag || word.is_some_and(|word| "1tTtrueTRUETrue".contains(word))),
            Err(_) => assert!(word.is_some_and(|word| !["0", "1", "true", "false"].contains(&word))),
        }
    }
    // Queries in the system account are JSON, and any JSON value must be accepted.
    if let Ok(value) = serde_json::from_slice::<Value>(bytes) {
        let query = Query::of_json(&value, &[("subscriptions", "subs")]);
        let said = match value.get("limit") {
            Some(Value::Number(number)) => number.as_i64(),
            Some(Value::String(digits)) => digits.parse().ok(),
            _ => None,
        };
        assert_eq!(
            query.number("limit").ok().flatten(),
            said.and_then(|number| usize::try_from(number).ok())
        );
        let _ = query.flag("subs");
    }
}

/// Decodes percent-encoding (RFC 3986 §2.1) byte by byte; `+` is a space.
fn decode(text: &str) -> String {
    let (mut decoded, bytes, mut at) = (Vec::new(), text.as_bytes(), 0);
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        let escaped =
            digits.filter(|two| !two.starts_with('+')).and_then(|two| u8::from_str_radix(two, 16).ok());
        match (bytes[at], escaped) {
            (b'%', Some(byte)) => {
                decoded.push(byte);
                at += 2;
            }
            (b'+', _) => decoded.push(b' '),
            (byte, _) => decoded.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}
