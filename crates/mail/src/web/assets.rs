//! Style, scripts and the icon: in the program, under paths that change with their content, so that every cache may
//! keep them for a year.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use xxhash_rust::xxh3::xxh3_64;

use super::{answer::Fault, scope::Params};

const ASSETS: [(&str, &str, &str); 7] = [
    ("style.css", "text/css; charset=utf-8", include_str!("../../../../web/mail/style.css")),
    ("mail.js", "text/javascript; charset=utf-8", include_str!("../../../../web/mail/mail.js")),
    ("common.js", "text/javascript; charset=utf-8", include_str!("../../../../web/mail/common.js")),
    ("list.js", "text/javascript; charset=utf-8", include_str!("../../../../web/mail/list.js")),
    ("frame.js", "text/javascript; charset=utf-8", include_str!("../../../../web/mail/frame.js")),
    ("theme.js", "text/javascript; charset=utf-8", include_str!("../../../../web/mail/theme.js")),
    ("icon.svg", "image/svg+xml", include_str!("../../../../web/mail/icon.svg")),
];

/// Where an asset is found.
pub(super) fn path(name: &str) -> String {
    let content = ASSETS.iter().find(|(own, ..)| *own == name).map_or("", |(.., content)| content);
    format!("/static/{}/{name}", version(content))
}

fn version(content: &str) -> String {
    format!("{:016x}", xxh3_64(content.as_bytes()))
}

/// Whatever version is asked for gets the one there is; another than ours is not kept by caches.
pub(super) async fn asset(Params((asked, name)): Params<(String, String)>) -> Result<Response, Fault> {
    let (_, kind, content) = ASSETS.iter().find(|(own, ..)| *own == name).ok_or(Fault::NoSuchPage)?;
    let keep = if asked == version(content) { "public, max-age=31536000, immutable" } else { "no-store" };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static(keep)),
    ];
    Ok((headers, *content).into_response())
}
