//! Parsed forms of `Cache-Control`, `Pragma` and `CDN-Cache-Control` (RFC 9111 §5.2, RFC 9213).
//!
//! A contradictory or malformed value is read in the way that restricts the cache more.

use sfv::{BareItem, Dictionary, ListEntry, Parser};
use wire::http1::{
    fields::{DELTA_SECONDS_MAX, directives, list},
    head::Headers,
    known::KnownHeader,
};

use crate::config::ClientRule;

/// A directive whose argument is a number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Seconds {
    /// The directive is absent.
    #[default]
    Absent,
    /// The directive has no valid number, or occurs several times with different numbers: a response that
    /// depends on it counts as stale (RFC 9111 §4.2.1).
    Invalid,
    /// Number of seconds, at most 2³¹ (RFC 9111 §1.2.2).
    Of(u32),
}

impl Seconds {
    /// Returns the number of seconds if there is a valid one.
    pub const fn said(self) -> Option<u32> {
        match self {
            Seconds::Of(s) => Some(s),
            Seconds::Absent | Seconds::Invalid => None,
        }
    }

    fn add(&mut self, value: Option<u32>) {
        *self = match (*self, value) {
            (Seconds::Absent, Some(s)) => Seconds::Of(s),
            (Seconds::Of(before), Some(s)) if before == s => Seconds::Of(s),
            _ => Seconds::Invalid,
        };
    }
}

/// Directives of a request's `Cache-Control` (RFC 9111 §5.2.1). A cache may ignore them; a setting decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestDirectives {
    /// Nothing of this exchange may be stored (§5.2.1.5).
    pub no_store: bool,
    /// No stored response may be used unvalidated (§5.2.1.4).
    pub no_cache: bool,
    /// Only a stored response may be used (§5.2.1.7).
    pub only_if_cached: bool,
    /// Largest accepted age (§5.2.1.1); an invalid value counts as 0.
    pub max_age_s: Option<u32>,
    /// Time for which the answer must stay fresh (§5.2.1.3); an invalid value counts as the largest.
    pub min_fresh_s: Option<u32>,
    /// Accepted staleness (§5.2.1.2); without a number 2³¹ s. An invalid value counts as 0.
    pub max_stale_s: Option<u32>,
}

impl RequestDirectives {
    /// Returns the directives that a rule leaves in effect.
    pub fn by(self, rule: ClientRule) -> Self {
        match rule {
            ClientRule::Obey => self,
            ClientRule::Ignore => Self { only_if_cached: self.only_if_cached, ..Self::default() },
        }
    }

    /// Parses the directives in a request's headers.
    pub fn of(headers: &Headers<'_, '_>) -> Self {
        let mut read = Self::default();
        if !headers.has(KnownHeader::CacheControl) {
            // RFC 9111 §5.4: Pragma counts only if Cache-Control is absent.
            let mut pragmas = headers.known_all(KnownHeader::Pragma).flat_map(directives);
            read.no_cache = pragmas.any(|directive| directive.is("no-cache"));
            return read;
        }
        for directive in headers.known_all(KnownHeader::CacheControl).flat_map(directives) {
            if directive.is("no-store") {
                read.no_store = true;
            } else if directive.is("no-cache") {
                read.no_cache = true;
            } else if directive.is("only-if-cached") {
                read.only_if_cached = true;
            } else if directive.is("max-age") {
                let max_age_s = directive.seconds().unwrap_or(0);
                read.max_age_s = Some(read.max_age_s.map_or(max_age_s, |before| before.min(max_age_s)));
            } else if directive.is("min-fresh") {
                let min_fresh_s = directive.seconds().unwrap_or(DELTA_SECONDS_MAX);
                read.min_fresh_s =
                    Some(read.min_fresh_s.map_or(min_fresh_s, |before| before.max(min_fresh_s)));
            } else if directive.is("max-stale") {
                let any = directive.value.is_none();
                let max_stale_s = if any { DELTA_SECONDS_MAX } else { directive.seconds().unwrap_or(0) };
                read.max_stale_s =
                    Some(read.max_stale_s.map_or(max_stale_s, |before| before.min(max_stale_s)));
            }
        }
        read
    }
}

/// Directives of a response for shared caches (RFC 9111 §5.2.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResponseDirectives {
    /// `no-store` (§5.2.2.5).
    pub no_store: bool,
    /// `no-cache` without field names (§5.2.2.4).
    pub no_cache: bool,
    /// `private` without field names (§5.2.2.7).
    pub private: bool,
    /// `public` (§5.2.2.9).
    pub public: bool,
    /// `must-revalidate` (§5.2.2.2).
    pub must_revalidate: bool,
    /// `proxy-revalidate` (§5.2.2.8).
    pub proxy_revalidate: bool,
    /// `must-understand` (§5.2.2.3).
    pub must_understand: bool,
    /// `max-age` (§5.2.2.1).
    pub max_age: Seconds,
    /// `s-maxage` (§5.2.2.10).
    pub s_maxage: Seconds,
    /// `stale-while-revalidate` (RFC 5861 §3).
    pub stale_while_revalidate: Seconds,
    /// `stale-if-error` (RFC 5861 §4).
    pub stale_if_error: Seconds,
    /// Fields that `private="…"` or `no-cache="…"` names, in lower case. They are not stored with the
    /// response (§5.2.2.4, §5.2.2.7). Allocates only if there are any.
    pub omit: Vec<Box<str>>,
}

impl ResponseDirectives {
    /// Parses `Cache-Control` in a response's headers.
    pub fn of_cache_control(headers: &Headers<'_, '_>) -> Self {
        let mut read = Self::default();
        for directive in headers.known_all(KnownHeader::CacheControl).flat_map(directives) {
            // A name that is not UTF-8 matches no known directive.
            let name = std::str::from_utf8(directive.name).unwrap_or_default();
            if let Some(seconds) = read.seconds(name) {
                seconds.add(directive.seconds());
            } else if let Some(flag) = read.flag(name) {
                *flag = true;
            } else if directive.is("private") {
                read.private |= !read.add_omitted(directive.value.unwrap_or_default());
            } else if directive.is("no-cache") {
                read.no_cache |= !read.add_omitted(directive.value.unwrap_or_default());
            }
        }
        read
    }

    /// Parses `CDN-Cache-Control`. Returns `None` if it is absent, empty, not a structured dictionary (RFC
    /// 9651 §3.2), or a directive in it has a value of the wrong type: the field then counts as absent (RFC
    /// 9213 §2.1). Otherwise it replaces `Cache-Control` and `Expires` altogether (RFC 9213 §2.2).
    ///
    /// Allocates only if the field occurs.
    pub fn of_cdn_cache_control(headers: &Headers<'_, '_>) -> Option<Self> {
        if !headers.has(KnownHeader::CdnCacheControl) {
            return None;
        }
        let lines: Vec<&[u8]> = headers.known_all(KnownHeader::CdnCacheControl).collect();
        let dictionary: Dictionary = Parser::new(&lines.join(&b", "[..])).parse().ok()?;
        if dictionary.is_empty() {
            return None;
        }
        let mut read = Self::default();
        for (key, entry) in &dictionary {
            let value = match entry {
                ListEntry::Item(item) => Some(&item.bare_item),
                ListEntry::InnerList(_) => None,
            };
            match (key.as_str(), value) {
                ("private", Some(BareItem::Boolean(said))) => read.private |= said,
                ("no-cache", Some(BareItem::Boolean(said))) => read.no_cache |= said,
                ("private", Some(BareItem::String(names))) => {
                    read.private |= !read.add_omitted(names.as_str().as_bytes());
                }
                ("no-cache", Some(BareItem::String(names))) => {
                    read.no_cache |= !read.add_omitted(names.as_str().as_bytes());
                }
                ("private" | "no-cache", _) => return None,
                (name, value) => {
                    if let Some(seconds) = read.seconds(name) {
                        let Some(BareItem::Integer(s)) = value else { return None };
                        seconds.add(delta_seconds((*s).into()));
                    } else if let Some(flag) = read.flag(name) {
                        let Some(BareItem::Boolean(said)) = value else { return None };
                        *flag = *said;
                    }
                }
            }
        }
        Some(read)
    }

    /// Returns the directive with an argument in seconds that has this name, ignoring case.
    fn seconds(&mut self, name: &str) -> Option<&mut Seconds> {
        let all: [(&str, &mut Seconds); 4] = [
            ("max-age", &mut self.max_age),
            ("s-maxage", &mut self.s_maxage),
            ("stale-while-revalidate", &mut self.stale_while_revalidate),
            ("stale-if-error", &mut self.stale_if_error),
        ];
        all.into_iter().find(|(seconds, _)| seconds.eq_ignore_ascii_case(name)).map(|(_, seconds)| seconds)
    }

    /// Returns the directive without an argument that has this name, ignoring case.
    fn flag(&mut self, name: &str) -> Option<&mut bool> {
        let flags: [(&str, &mut bool); 5] = [
            ("no-store", &mut self.no_store),
            ("public", &mut self.public),
            ("must-revalidate", &mut self.must_revalidate),
            ("proxy-revalidate", &mut self.proxy_revalidate),
            ("must-understand", &mut self.must_understand),
        ];
        flags.into_iter().find(|(flag, _)| flag.eq_ignore_ascii_case(name)).map(|(_, flag)| flag)
    }

    /// Adds the named fields, and returns whether there was a name. Without a name the directive applies to
    /// the whole response.
    fn add_omitted(&mut self, names: &[u8]) -> bool {
        let before = self.omit.len();
        self.omit.extend(list(names).map(|name| String::from_utf8_lossy(name).to_ascii_lowercase().into()));
        self.omit.len() > before
    }
}

/// Converts a structured integer to delta-seconds; `None` if it is negative.
fn delta_seconds(s: i64) -> Option<u32> {
    Some(u64::try_from(s).ok()?.min(u64::from(DELTA_SECONDS_MAX)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::test_heads::{with_request, with_response};

    fn of_request(headers: &str) -> RequestDirectives {
        with_request("GET /", headers, |head| RequestDirectives::of(&head.headers))
    }

    #[test]
    fn a_request_is_read_restrictively() {
        let none = RequestDirectives::default();
        for (headers, want) in [
            ("", none),
            ("Cache-Control: no-store", RequestDirectives { no_store: true, ..none }),
            ("Cache-Control: No-Cache", RequestDirectives { no_cache: true, ..none }),
            ("Pragma: no-cache", RequestDirectives { no_cache: true, ..none }),
            ("Pragma: foo, no-cache", RequestDirectives { no_cache: true, ..none }),
            ("Pragma: no-cache\nCache-Control: max-age=3", RequestDirectives { max_age_s: Some(3), ..none }),
            ("Cache-Control: only-if-cached", RequestDirectives { only_if_cached: true, ..none }),
            (
                "Cache-Control: max-age=9\nCache-Control: max-age=7",
                RequestDirectives { max_age_s: Some(7), ..none },
            ),
            ("Cache-Control: max-age=x", RequestDirectives { max_age_s: Some(0), ..none }),
            ("Cache-Control: max-age", RequestDirectives { max_age_s: Some(0), ..none }),
            ("Cache-Control: max-age=99999999999", RequestDirectives { max_age_s: Some(1 << 31), ..none }),
            ("Cache-Control: min-fresh=5", RequestDirectives { min_fresh_s: Some(5), ..none }),
            ("Cache-Control: min-fresh=x", RequestDirectives { min_fresh_s: Some(1 << 31), ..none }),
            ("Cache-Control: max-stale", RequestDirectives { max_stale_s: Some(1 << 31), ..none }),
            ("Cache-Control: max-stale=4", RequestDirectives { max_stale_s: Some(4), ..none }),
            ("Cache-Control: max-stale=x", RequestDirectives { max_stale_s: Some(0), ..none }),
            ("Cache-Control: x=\"no-store, no-cache\"", none),
        ] {
            assert_eq!(of_request(headers), want, "{headers}");
        }
    }

    #[test]
    fn a_response_is_read_restrictively() {
        let of = |value: &str| {
            with_response("200 OK", &format!("Cache-Control: {value}"), |head| {
                ResponseDirectives::of_cache_control(&head.headers)
            })
        };
        assert_eq!(of("max-age=10").max_age, Seconds::Of(10));
        assert_eq!(of("max-age=\"10\"").max_age, Seconds::Of(10));
        assert_eq!(of("max-age=10, MAX-AGE=10").max_age, Seconds::Of(10));
        assert_eq!(of("max-age=10, max-age=11").max_age, Seconds::Invalid);
        assert_eq!(of("max-age=003600").max_age, Seconds::Of(3600));
        for bad in
            ["max-age", "max-age=", "max-age=-1", "max-age=1.5", "max-age= 1", "max-age='1'", "max-age=1a"]
        {
            assert_eq!(of(bad).max_age, Seconds::Invalid, "{bad}");
        }
        assert_eq!(of("extension=\"max-age=3600\", max-age=1").max_age, Seconds::Of(1));
        assert_eq!(of("max-age=3000000000").max_age, Seconds::Of(1 << 31));
        assert_eq!(of("s-maxage=7").s_maxage, Seconds::Of(7));
        assert!(of("No-StOrE").no_store && of("public").public && of("must-revalidate").must_revalidate);
        assert!(of("proxy-revalidate").proxy_revalidate && of("must-understand").must_understand);
        assert!(of("private").private && of("no-cache").no_cache);
        assert!(of("private=\"\"").private && of("no-cache=").no_cache);
        let qualified = of("private=\"Set-Cookie, X-User\", no-cache=Etag");
        assert!(!qualified.private && !qualified.no_cache);
        assert_eq!(
            qualified.omit.iter().map(|name| &**name).collect::<Vec<_>>(),
            ["set-cookie", "x-user", "etag"]
        );
        let both = of("private, private=\"a\"");
        assert!(both.private);
    }

    /// Cases of the public test suite (`cdn-cache-control`), and the types of RFC 9213 §2.1.
    #[test]
    fn targeted_directives_are_structured() {
        let of = |value: &str| {
            with_response("200 OK", &format!("CDN-Cache-Control: {value}"), |head| {
                ResponseDirectives::of_cdn_cache_control(&head.headers)
            })
        };
        assert_eq!(of("max-age=3600").unwrap().max_age, Seconds::Of(3600));
        assert_eq!(of("max-age=99999999999").unwrap().max_age, Seconds::Of(1 << 31));
        assert_eq!(of("foobar, max-age=3600;x=1").unwrap().max_age, Seconds::Of(3600));
        assert_eq!(
            of("max-age=1, max-age=2").unwrap().max_age,
            Seconds::Of(2),
            "RFC 9651 §4.2.2: the last counts"
        );
        assert_eq!(of("max-age=-1").unwrap().max_age, Seconds::Invalid);
        assert_eq!(of("s-maxage=5").unwrap().s_maxage, Seconds::Of(5));
        assert!(of("no-store").unwrap().no_store && !of("no-store=?0").unwrap().no_store);
        assert!(of("private").unwrap().private && of("no-cache").unwrap().no_cache);
        assert_eq!(of("private=\"A, b\"").unwrap().omit.len(), 2);
        assert!(of("no-cache=\"\"").unwrap().no_cache);
        for ignored in [
            "",
            "max-age=\"10000\"",
            "max-age=1.0",
            "max-age",
            "max-age=(1 2)",
            "max-age =100",
            "max-age= 100",
            "MaX-aGe=3600",
            "max-age=10000, &&&&&",
            "public=1",
            "no-store=(a)",
            "private=7",
        ] {
            assert_eq!(of(ignored), None, "{ignored}");
        }
        let two_lines =
            with_response("200 OK", "CDN-Cache-Control: max-age=5\nCDN-Cache-Control: public", |head| {
                ResponseDirectives::of_cdn_cache_control(&head.headers)
            });
        assert!(two_lines.is_some_and(|d| d.public && d.max_age == Seconds::Of(5)));
    }
}
