//! Parsers of compression settings.

use cache::config::Coding;

use crate::settings::{list, units::parse_size};

/// Parses a list of codings without duplicates; `none` is the empty list.
pub(super) fn parse_codings(text: &str) -> Result<Vec<Coding>, String> {
    const RIGHT: &str = "expected br, zstd and gzip, each once; or none";
    let mut codings = Vec::new();
    if matches!(text, "" | "none") {
        return Ok(codings);
    }
    for name in list(text) {
        let coding = Coding::MADE.into_iter().find(|coding| coding.token() == name);
        match coding.filter(|coding| !codings.contains(coding)) {
            Some(coding) => codings.push(coding),
            None => return Err(RIGHT.to_owned()),
        }
    }
    Ok(codings)
}

pub(super) fn codings_text(codings: &[Coding]) -> String {
    let names: Vec<&str> = codings.iter().map(|coding| coding.token()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

/// Parses a media type, which may have a star at one end.
pub(super) fn parse_type(text: &str) -> Result<Box<str>, String> {
    let bare = text.strip_prefix('*').or_else(|| text.strip_suffix('*')).unwrap_or(text);
    let is_type = text == "*"
        || !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_graphic() && !b"*,;\"".contains(&b));
    if is_type {
        Ok(text.to_ascii_lowercase().into())
    } else {
        Err(format!("invalid media type `{text}`; expected text/html, text/* or *+json"))
    }
}

/// Parses the maximum size of answers to compress, at most 64 MiB: during compression both the content and
/// its encoded variant are in memory.
pub(super) fn compressed_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes <= 64 << 20 => Ok(bytes),
        _ => Err("at most 64MiB can be compressed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_and_types() {
        assert_eq!(parse_codings("gzip, br"), Ok(vec![Coding::Gzip, Coding::Brotli]));
        assert_eq!((parse_codings("none"), parse_codings("")), (Ok(Vec::new()), Ok(Vec::new())));
        for wrong in ["deflate", "gzip,gzip", "identity", "none,br", "br,"] {
            assert!(parse_codings(wrong).is_err(), "{wrong}");
        }
        for codings in [&[][..], &Coding::MADE] {
            assert_eq!(parse_codings(&codings_text(codings)).as_deref(), Ok(codings));
        }
        for right in ["Text/*", "*+json", "image/svg+xml", "*"] {
            assert_eq!(parse_type(right).as_deref(), Ok(&*right.to_ascii_lowercase()));
        }
        for wrong in ["", "text/ html", "*a*", "**", "text/html; charset=utf-8"] {
            assert!(parse_type(wrong).is_err(), "{wrong}");
        }
        assert!(compressed_size("64MiB").is_ok() && compressed_size("65MiB").is_err());
    }
}
