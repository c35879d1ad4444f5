//! Names of the cookies that keep a site's pages out of the store, for a hint in the log.
//!
//! An answer without a freshness lifetime is not shared with visitors who send a cookie, and a visit counter
//! or a consent banner gives every browser a cookie. Such a site has almost no hits, although its pages are
//! identical for all visitors.
//!
//! ```text
//!  an answer not shared because of a cookie ─┐
//!                                            ├─▶ Majority (all cores, per site) ─ most requests ─▶ the log
//!  a pass by hit-for-miss for that reason ───┘      CookieNames (per core) ───── names ─────────────▲
//! ```
//! Only requests that an origin answers are counted, so hits cost nothing extra.
//!
//! Bounds: names of [`SITES_MAX`] sites per core, [`NAMES_MAX`] names per site, [`NAME_BYTES_MAX`] bytes per
//! name; at most [`REQUEST_NAMES_MAX`] names of one request are counted.

use std::collections::HashMap;

use wire::http1::{fields::is_token, head::Headers, known::KnownHeader};

/// Maximum number of sites for which a core counts cookie names.
const SITES_MAX: usize = 64;
/// Maximum number of cookie names that a core counts for one site; a new name replaces a rare one.
const NAMES_MAX: usize = 16;
/// Maximum number of cookie names counted in one request. A browser sends a few dozen, but a request head has
/// room for ten thousand.
const REQUEST_NAMES_MAX: usize = 64;
/// Maximum number of cookie names listed in the log.
const SHOWN_MAX: usize = 5;
/// Maximum length of a cookie name in bytes. Longer names are not counted.
const NAME_BYTES_MAX: usize = 64;
/// The log lists a cookie if at least one in `SHOWN_OF` counted requests carries it.
const SHOWN_OF: u64 = 10;

/// Counts of cookie names per site, keyed by the site's hosts. Each core has its own table.
#[derive(Default)]
pub(crate) struct CookieNames(HashMap<Box<str>, Names>);

/// Counts of one site's cookie names. Every name with more than a 1/[`NAMES_MAX`] share of the site's cookies
/// is guaranteed to be present (Misra and Gries, 1982).
#[derive(Default)]
struct Names {
    requests: u64,
    counts: Vec<(Box<str>, u64)>,
}

impl CookieNames {
    /// Counts the names of a request's cookies.
    pub(crate) fn take(&mut self, site: &str, headers: &Headers<'_, '_>) {
        if !self.0.contains_key(site) {
            if self.0.len() == SITES_MAX {
                return;
            }
            self.0.insert(site.into(), Names::default());
        }
        if let Some(names) = self.0.get_mut(site) {
            names.requests += 1;
            names_of(headers).take(REQUEST_NAMES_MAX).for_each(|name| names.count(name));
        }
    }

    /// Removes a site's counts and returns the cookie names to log.
    pub(crate) fn shown(&mut self, site: &str) -> String {
        let Names { requests, mut counts } = self.0.remove(site).unwrap_or_default();
        counts.retain(|(_, count)| *count >= requests.div_ceil(SHOWN_OF));
        counts.sort_by(|(a, a_count), (b, b_count)| b_count.cmp(a_count).then_with(|| a.cmp(b)));
        let names: Vec<&str> = counts.iter().take(SHOWN_MAX).map(|(name, _)| &**name).collect();
        names.join(", ")
    }
}

impl Names {
    fn count(&mut self, name: &str) {
        if let Some((_, count)) = self.counts.iter_mut().find(|(known, _)| **known == *name) {
            *count += 1;
        } else if self.counts.len() < NAMES_MAX {
            self.counts.push((name.into(), 1));
        } else {
            self.counts.retain_mut(|(_, count)| {
                *count -= 1;
                *count > 0
            });
        }
    }
}

/// Returns the names of a request's cookies. A pair without `=` is a bare value, which may be private, and
/// has no name.
fn names_of<'h>(headers: &Headers<'h, '_>) -> impl Iterator<Item = &'h str> {
    headers.known_all(KnownHeader::Cookie).flat_map(|line| line.split(|&b| b == b';')).filter_map(|pair| {
        let name = pair.trim_ascii_start().split(|&b| b == b'=').next()?;
        let is_name = name.len() <= NAME_BYTES_MAX && is_token(name) && pair.contains(&b'=');
        std::str::from_utf8(name).ok().filter(|_| is_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::test_heads::with_request;

    #[test]
    fn frequent_names_are_shown_and_no_values() {
        let mut names = CookieNames::default();
        for n in 0..100 {
            let theme = if n % 5 == 0 { "; theme=dark" } else { "" };
            let lines = format!("Cookie: _ga=GA1.{n};_gid=7{theme}; secret-{n}=1\nCookie: bare{n}; a b=c");
            with_request("GET /", &lines, |head| names.take("site", &head.headers));
        }
        with_request("GET /", "Cookie: other=1", |head| names.take("another", &head.headers));
        assert_eq!(names.shown("site"), "_ga, _gid, theme");
        assert_eq!((names.shown("site"), names.shown("another")), (String::new(), "other".to_owned()));
    }

    #[test]
    fn names_are_bounded() {
        let mut names = CookieNames::default();
        for n in 0..1_000 {
            let line = format!("Cookie: n{n}=1; {}=1", "x".repeat(NAME_BYTES_MAX + 1));
            with_request("GET /", &line, |head| names.take(&format!("site{}", n % 100), &head.headers));
        }
        assert_eq!(names.0.len(), SITES_MAX);
        assert!(names.0.values().all(|names| names.counts.len() <= NAMES_MAX));
    }
}
