//! Handles the URLs that a displayed mail would fetch: the mail's own pictures are kept, with paths on our
//! server; remote pictures are blocked until the reader asks for them.

use std::{borrow::Cow, collections::HashMap};

use percent_encoding::percent_decode_str;

use super::{
    fields::printable,
    html::{RemoteContent, is_image},
};

/// The mail's own pictures, and the permission to fetch remote ones.
pub(super) struct Sources {
    remote: RemoteContent,
    /// Paths of the pictures by Content-ID (RFC 2392).
    pictures: HashMap<String, String>,
}

/// Handling of a URL that a browser would fetch.
pub(super) enum Source<'v> {
    /// A picture from the mail itself.
    Kept(Cow<'v, str>),
    /// A remote picture that is fetched, because the reader asked.
    Remote(Cow<'v, str>),
    /// A remote picture that is not fetched before the reader asks.
    Blocked,
    /// A URL that cannot be shown.
    Nothing,
}

/// Host of a remote item in the mail.
pub(super) struct RemoteHost(pub(super) String);

impl RemoteHost {
    pub(super) fn of(url: &str) -> Self {
        Self(host(url))
    }
}

impl Sources {
    pub(super) fn new(remote: RemoteContent, pictures: HashMap<String, String>) -> Self {
        Self { remote, pictures }
    }

    /// Returns how a URL is handled.
    pub(super) fn of<'v>(&self, url: &'v str) -> Source<'v> {
        let url = url.trim();
        match scheme(url) {
            Some(scheme) if scheme.eq_ignore_ascii_case("cid") => {
                let id = percent_decode_str(url[4..].trim_matches(['<', '>'])).decode_utf8_lossy();
                self.pictures.get(&*id).map_or(Source::Nothing, |path| Source::Kept(path.clone().into()))
            }
            Some(scheme) if scheme.eq_ignore_ascii_case("data") => {
                let kind = url[5..].split([';', ',']).next().unwrap_or_default();
                let shown = is_image(&kind.trim().to_ascii_lowercase());
                if shown { Source::Kept(url.into()) } else { Source::Nothing }
            }
            Some(scheme) if is_one_of(scheme, &["http", "https"]) => self.remote(url.into()),
            None if url.starts_with("//") => self.remote(format!("https:{url}").into()),
            _ => Source::Nothing,
        }
    }

    fn remote<'v>(&self, url: Cow<'v, str>) -> Source<'v> {
        match self.remote {
            RemoteContent::Blocked => Source::Blocked,
            RemoteContent::Loaded => Source::Remote(url),
        }
    }
}

/// Returns the scheme of a URL (RFC 3986, 3.1). A scheme with blanks or line ends, which browsers skip, is
/// not recognized.
pub(super) fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let valid = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    (valid && !scheme.is_empty()).then_some(scheme)
}

pub(super) fn is_one_of(scheme: &str, allowed: &[&str]) -> bool {
    allowed.iter().any(|one| scheme.eq_ignore_ascii_case(one))
}

/// Returns the host of a URL, or "somewhere else" if it has none.
pub(crate) fn host(url: &str) -> String {
    let begin = url.find("//").map_or(0, |at| at + 2);
    let authority = url[begin..].split(['/', '?', '#', ')', '"', '\'', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host: String = printable(host).chars().take(100).collect();
    if begin == 0 || host.is_empty() { "somewhere else".to_owned() } else { host.to_ascii_lowercase() }
}
