//! Parsers and formatters of mail's setting values: rates, sizes, names and counts.

use mail::config::{STORE_BYTES_MIN, Store};

use crate::settings::{
    any_count, one_or_more, parse_path, path_text,
    units::{parse_size, size_text},
};

/// Parses a rate, which is a number per minute.
pub(super) fn rate(text: &str) -> Result<u32, String> {
    any_count(text).and_then(narrow)
}

pub(super) fn narrow(count: usize) -> Result<u32, String> {
    u32::try_from(count).map_err(|_| "at most 4294967295".to_owned())
}

pub(super) fn store_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes < STORE_BYTES_MIN {
        return Err(format!("too small: a store has at least {}", size_text(STORE_BYTES_MIN)));
    }
    Ok(bytes)
}

pub(super) fn store(text: &str) -> Result<Store, String> {
    match text {
        "anon" => Ok(Store::Anonymous),
        path => parse_path(path).map(Store::File),
    }
}

pub(super) fn store_text(store: &Store) -> String {
    match store {
        Store::Anonymous => "anon".to_owned(),
        Store::File(path) => path_text(path),
    }
}

pub(super) fn any_text(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

pub(super) fn host_name(text: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if text.is_empty() || text.len() > 255 || !text.bytes().all(is_name) {
        return Err("expected a host name, such as mx.example.org".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses a name as browsers send it in `Host`, or `*` for all names.
pub(super) fn http_host(text: &str) -> Result<String, String> {
    if text == "*" { Ok(text.to_owned()) } else { host_name(text).map(|name| name.to_ascii_lowercase()) }
}

pub(super) fn domain(text: &str) -> Result<String, String> {
    mail::address::fold_domain(text)
        .map(String::from)
        .map_err(|_| "expected a domain, such as example.org".to_owned())
}

/// Parses the maximum number of recipients of a mail. The number is bounded because a mail's record lists all
/// recipients before the mail's content.
pub(super) fn recipients(text: &str) -> Result<usize, String> {
    match one_or_more(text)? {
        count if count > RECIPIENTS_MAX => Err(format!("at most {RECIPIENTS_MAX}")),
        count => Ok(count),
    }
}

/// Upper bound for [`recipients`].
const RECIPIENTS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_a_least_size() {
        assert!(store_size("1MiB").expect_err("too small").contains("128MiB"));
    }

    #[test]
    fn a_name_is_a_name() {
        for wrong in ["", "a b", "a\r\nb"] {
            assert!(host_name(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(domain("Example.ORG").as_deref(), Ok("example.org"));
    }
}
