//! Log tags of a connection's last request, kept for reuse by the next request.

use std::sync::{Arc, Weak};

use wire::http1::head::RequestHead;

use crate::{request::client_ip::Visitor, site::Sites};

/// Log tags of a connection's last request, all but its target. A request that differs only in its target
/// reuses these tags and is not analysed again. (Browsers, load balancers and other caches send such
/// requests, one for each part of a page.)
#[derive(Default)]
pub(crate) struct LastSaid {
    /// The method and a space, then the bytes of the head after the target.
    asked: Vec<u8>,
    /// Client of the last request.
    visitor: Option<Visitor>,
    /// Site table that was active at the last request. The weak reference keeps its address from being reused
    /// by a later table.
    sites: Weak<Sites>,
    /// Encoded log tags of the last request.
    tags: Vec<u8>,
}

/// Maximum length of a head that is remembered, in bytes. A connection keeps up to twice that while the log
/// has a reader.
const LAST_SAID_BYTES_MAX: usize = 1024;

impl LastSaid {
    /// Returns the tags if they also fit this request.
    #[inline]
    pub(crate) fn tags(
        &self,
        AroundTarget { before, after }: AroundTarget<'_>,
        visitor: Visitor,
        sites: &Arc<Sites>,
    ) -> Option<&[u8]> {
        let (method, rest) = self.asked.split_at_checked(before.len())?;
        let is_same = rest == after
            && method == before
            && self.visitor == Some(visitor)
            && std::ptr::eq(self.sites.as_ptr(), Arc::as_ptr(sites));
        is_same.then_some(&self.tags)
    }

    pub(crate) fn keep(
        &mut self,
        AroundTarget { before, after }: AroundTarget<'_>,
        visitor: Visitor,
        sites: &Arc<Sites>,
        tags: &[u8],
    ) {
        self.asked.clear();
        self.tags.clear();
        if before.len() + after.len().max(tags.len()) > LAST_SAID_BYTES_MAX {
            self.visitor = None;
            return;
        }
        self.asked.extend_from_slice(before);
        self.asked.extend_from_slice(after);
        self.tags.extend_from_slice(tags);
        self.visitor = Some(visitor);
        self.sites = Arc::downgrade(sites);
    }
}

/// Bytes of a request's head, without its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AroundTarget<'b> {
    /// The method and a space.
    before: &'b [u8],
    after: &'b [u8],
}

/// Returns a head's bytes around its target; `None` if the target does not follow the method at once, or is
/// not a path.
#[inline]
pub(crate) fn around<'b>(bytes: &'b [u8], head: &RequestHead<'_, '_>) -> Option<AroundTarget<'b>> {
    let (before, rest) = bytes.split_at_checked(head.method.len() + 1)?;
    let (target, after) = rest.split_at_checked(head.target.len())?;
    let is_so = head.target.starts_with('/')
        && before.strip_suffix(b" ") == Some(head.method.as_bytes())
        && target == head.target.as_bytes();
    is_so.then_some(AroundTarget { before, after })
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;
    use wire::http1::head::{HeadLimits, HeaderSlots, Progress, parse_request};

    use super::*;
    use crate::{
        config::{Config, Origin},
        request::active_config::ActiveConfig,
    };

    fn config() -> Config {
        Config::new(Origin::at(std::net::SocketAddr::from(([127, 0, 0, 1], 1))))
    }

    /// A request, its client, and the index of its site table (one of two).
    type RequestKey = (&'static str, &'static str, &'static str, u8, usize);

    fn asked() -> impl Strategy<Value = RequestKey> {
        let method = prop::sample::select(&["GET", "GET", "HEAD", "G"][..]);
        let target = prop::sample::select(&["/", "/a", "/a?b=c", "http://site/a", "*"][..]);
        let after = prop::sample::select(
            &["Host: a\r\n", "Host: b\r\n", "Host: a\r\nUser-Agent: b\r\n", "Host: a\r\nCookie: /a\r\n"][..],
        );
        (method, target, after, 1..3_u8, 0..2_usize)
    }

    proptest! {
        /// Reused tags come only from a request that differs in nothing but its target. The slow twin is the
        /// last request itself.
        #[test]
        fn a26_tags_are_reused_if_only_the_target_differs(
            all in proptest::collection::vec(asked(), 1..12),
        ) {
            let tables = [(), ()].map(|()| Arc::clone(&ActiveConfig::of_test(config(), 1).sites));
            let limits = HeadLimits::default();
            let (mut last, mut twin) = (LastSaid::default(), None);
            for (method, target, after, client, table) in all {
                let bytes = format!("{method} {target} HTTP/1.1\r\n{after}\r\n");
                let mut slots = HeaderSlots::new();
                let parsed = parse_request(bytes.as_bytes(), &mut slots, &limits);
                let Ok(Progress::Complete((head, _))) = parsed else { continue };
                let visitor = Visitor::alone(IpAddr::from(Ipv4Addr::new(10, 0, 0, client)));
                let Some(around) = around(bytes.as_bytes(), &head) else {
                    prop_assert!(!target.starts_with('/'));
                    continue;
                };
                let tags = format!("{method} {after} {client} {table}");
                let is_same = twin.as_ref() == Some(&tags);
                let said = last.tags(around, visitor, &tables[table]);
                prop_assert_eq!(said, is_same.then_some(tags.as_bytes()));
                if !is_same {
                    last.keep(around, visitor, &tables[table], tags.as_bytes());
                    twin = Some(tags);
                }
            }
        }
    }

    #[test]
    fn a26_a_long_head_clears_the_last_tags() {
        let sites = Arc::clone(&ActiveConfig::of_test(config(), 1).sites);
        let visitor = Visitor::alone(IpAddr::from([127, 0, 0, 1]));
        let mut last = LastSaid::default();
        let short = AroundTarget { before: b"GET ", after: b"short" };
        last.keep(short, visitor, &sites, b"tags");
        assert_eq!(last.tags(short, visitor, &sites), Some(&b"tags"[..]));
        let long = AroundTarget { before: b"GET ", after: &[b'x'; LAST_SAID_BYTES_MAX] };
        last.keep(long, visitor, &sites, b"tags");
        assert_eq!(last.tags(long, visitor, &sites), None);
        assert_eq!(last.tags(short, visitor, &sites), None);
        assert_eq!(last.tags(AroundTarget { before: b"", after: b"" }, visitor, &sites), None);
    }
}
