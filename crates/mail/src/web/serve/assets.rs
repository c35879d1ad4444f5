//! Style sheet, scripts and the icon. Assets needed for the first paint are included in the page, and allowed
//! in its CSP by their hashes; all others have paths that change with their content, so that caches may keep
//! them for a year.

use std::sync::LazyLock;

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use xxhash_rust::xxh3::xxh3_64;

use super::{fault::Fault, params::PathParams};

/// Style sheet of every page.
pub(crate) const STYLE: &str = include_str!("../../../../../web/mail/style.css");
/// Script that runs before the first paint.
pub(crate) const THEME: &str = include_str!("../../../../../web/mail/theme.js");

const ASSETS: [(&str, &str, &str); 5] = [
    ("mail.js", "text/javascript; charset=utf-8", include_str!("../../../../../web/mail/mail.js")),
    ("common.js", "text/javascript; charset=utf-8", include_str!("../../../../../web/mail/common.js")),
    ("list.js", "text/javascript; charset=utf-8", include_str!("../../../../../web/mail/list.js")),
    ("frame.js", "text/javascript; charset=utf-8", include_str!("../../../../../web/mail/frame.js")),
    ("icon.svg", "image/svg+xml", include_str!("../../../../../web/mail/icon.svg")),
];

/// Content-Security-Policy of our pages: our own scripts and style sheets, and inline ones only with these
/// hashes (CSP 3 §2.3.1).
pub(crate) static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = |content: &str| STANDARD.encode(Sha256::digest(content));
    let policy = format!(
        "default-src 'none'; script-src 'self' 'sha256-{}'; style-src 'self' 'sha256-{}'; img-src 'self'; \
         connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(THEME),
        hash(STYLE)
    );
    // The text is ASCII, so the conversion succeeds. The fallback allows nothing, because a browser allows
    // everything without a policy.
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// Returns the path of an asset.
pub(crate) fn path(name: &str) -> String {
    let content = ASSETS.iter().find(|(own, ..)| *own == name).map_or("", |(.., content)| content);
    format!("/static/{}/{name}", version(content))
}

fn version(content: &str) -> String {
    format!("{:016x}", xxh3_64(content.as_bytes()))
}

/// Serves the current version of an asset, regardless of the version requested; caches may keep it only if
/// the versions match.
pub(crate) async fn asset(
    PathParams((asked, name)): PathParams<(String, String)>,
) -> Result<Response, Fault> {
    let (_, kind, content) = ASSETS.iter().find(|(own, ..)| *own == name).ok_or(Fault::NoSuchPage)?;
    let keep = if asked == version(content) { "public, max-age=31536000, immutable" } else { "no-store" };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static(keep)),
    ];
    Ok((headers, *content).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inlined_assets_cannot_close_their_element() {
        assert!(!STYLE.contains("</") && !THEME.contains("</"));
        let policy = POLICY.to_str().expect("text");
        assert_eq!(policy.matches("'sha256-").count(), 2, "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}
