//! Detects proxies that forward requests without adding proxy headers.
//!
//! ```text
//!  strangers ──▶ nginx, without proxy_set_header ──HTTP/1.0, Host: 127.0.0.1:8025──▶ pages: "this machine asks"
//! ```
//! A request from such a proxy looks like one from the proxy's own machine. Two signs reveal it:
//! - HTTP/1.0 from this machine, which nginx uses for origins up to 1.29.6;
//! - a host name from the browser that differs from the request's `Host`: in `Origin` or `Referer` if the
//!   browser says that the page is our own or does not say anything about it (only for this machine: elsewhere a link
//!   from another site looks the same), and in `x-page-host`, which the script of our own pages sends.
//!
//! The address of a detected proxy loses its special access until the process ends: access to all mail then
//! needs a token, or a trusted proxy that names a reader. *Bound:* [`OTHERS_MAX`] addresses in addition to
//! this machine; beyond the bound, no address of another machine counts as a reader.

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::http::{HeaderMap, HeaderName, Uri, Version, header};
use engine::cold_mutex::ColdMutex;

use super::{
    client::Client,
    request_source::{RequestSource, host_name, is_this_machines_name},
};

/// Maximum number of addresses in readers' networks that are remembered as proxies.
const OTHERS_MAX: usize = 256;
/// Maximum number of bytes of a host name that a sign shows.
const HOST_BYTES_MAX: usize = 100;
/// Header sent by our pages' script: the host in the browser's address bar.
const PAGE_HOST: HeaderName = HeaderName::from_static("x-page-host");

/// Sign that revealed a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProxySign {
    /// The request came from this machine over HTTP/1.0.
    Http10,
    /// The browser opened the page at the host `named`, but the request names `host`.
    OtherHost { named: String, host: String },
}

impl std::fmt::Display for ProxySign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Http10 => f.write_str("an HTTP/1.0 request came from this machine"),
            Self::OtherHost { named, host } => {
                write!(f, "a page opened at `{named}` sent a request here for `{host}`")
            }
        }
    }
}

impl ProxySign {
    /// Returns the sign in a request.
    pub(crate) fn of(version: Version, headers: &HeaderMap, from: RequestSource) -> Option<Self> {
        let is_here = from.is_here();
        if is_here && from.is_direct() && version <= Version::HTTP_10 {
            return Some(Self::Http10);
        }
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = text(header::HOST).map(host_name).unwrap_or_default();
        let of_script = text(PAGE_HOST).map(|host| host_name(host).to_owned());
        let named = of_script.or_else(|| {
            // Without any proxy, a link on another site's page names that site's host.
            let is_own =
                matches!(text(HeaderName::from_static("sec-fetch-site")), None | Some("same-origin"));
            let of = |name| text(name).and_then(host_of);
            let of_browser = || of(header::ORIGIN).or_else(|| of(header::REFERER));
            if is_here && is_own { of_browser() } else { None }
        })?;
        // A page that this machine opened under one of the machine's own names is not a sign.
        let is_other =
            !named.is_empty() && !named.eq_ignore_ascii_case(host) && !is_this_machines_name(&named);
        let shown = |host: &str| crate::render::cut(host, HOST_BYTES_MAX).to_owned();
        is_other.then(|| Self::OtherHost { named: shown(&named), host: shown(host) })
    }
}

/// Returns the host of a URL.
fn host_of(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    uri.scheme()?;
    uri.host().map(|host| host.strip_suffix('.').unwrap_or(host).to_owned())
}

/// The detected proxies.
#[derive(Debug, Default)]
pub(crate) struct SilentProxies {
    here: AtomicBool,
    /// Locked to decide who may see all mail.
    others: ColdMutex<BTreeSet<Client>>,
    others_full: AtomicBool,
    /// The first sign of a proxy on this machine.
    why: OnceLock<ProxySign>,
}

/// Result of [`SilentProxies::remember_proxy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoteOutcome {
    New,
    Known,
    /// There is no room to remember the proxy: from now on every address counts as a proxy.
    Full,
}

impl SilentProxies {
    /// Remembers an address as a proxy.
    pub(crate) fn remember_proxy(&self, asker: IpAddr, sign: &ProxySign) -> NoteOutcome {
        let client = Client::of(httpd::Client(asker));
        if client.is_here() {
            let is_new = !self.here.swap(true, Ordering::Relaxed);
            _ = self.why.set(sign.clone());
            return if is_new { NoteOutcome::New } else { NoteOutcome::Known };
        }
        let mut others = self.others.lock();
        if others.contains(&client) {
            NoteOutcome::Known
        } else if others.len() < OTHERS_MAX {
            others.insert(client);
            NoteOutcome::New
        } else if self.others_full.swap(true, Ordering::Relaxed) {
            NoteOutcome::Known
        } else {
            NoteOutcome::Full
        }
    }

    /// Returns whether an address counts as a proxy.
    pub(crate) fn has(&self, asker: IpAddr) -> bool {
        let client = Client::of(httpd::Client(asker));
        if client.is_here() {
            return self.here.load(Ordering::Relaxed);
        }
        self.others_full.load(Ordering::Relaxed) || self.others.lock().contains(&client)
    }

    /// Returns the first sign of a proxy on this machine.
    pub(crate) fn first_local_sign(&self) -> Option<&ProxySign> {
        self.why.get()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::web::serve::connections::Peer;

    fn sign(version: Version, pairs: &[(&'static str, &str)], is_here: bool) -> Option<ProxySign> {
        let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let address = if is_here { Ipv4Addr::LOCALHOST } else { Ipv4Addr::new(192, 0, 2, 1) };
        let from = RequestSource { peer: Peer((address, 5).into()), asker: address.into() };
        ProxySign::of(version, &headers.collect(), from)
    }

    #[test]
    fn another_host_than_ours_is_a_sign() {
        const HOST: (&str, &str) = ("host", "127.0.0.1:8025");
        let is_seen = |name, value| sign(Version::HTTP_11, &[HOST, (name, value)], true).is_some();
        assert!(is_seen("referer", "http://mail.example.org/inbox/ann"));
        assert!(is_seen("origin", "https://mail.example.org"));
        assert!(is_seen("x-page-host", "mail.example.org"));
        assert!(is_seen("x-page-host", "192.0.2.7:8080"));
        assert!(is_seen("referer", "http://192.0.2.7/"));
        for (name, value) in [
            ("referer", "http://127.0.0.1:8025/"),
            ("referer", "http://localhost:3000/x"),
            ("referer", "nothing"),
            ("origin", "null"),
            ("x-page-host", "127.0.0.1:9000"),
            ("x-page-host", "[::1]:9000"),
            ("x-page-host", ""),
        ] {
            assert!(!is_seen(name, value), "{name}: {value}");
        }
        let linked = [HOST, ("referer", "https://wiki.test/"), ("sec-fetch-site", "cross-site")];
        assert_eq!(sign(Version::HTTP_11, &linked, true), None, "a link of another site");
        let own = [HOST, ("referer", "https://wiki.test/"), ("sec-fetch-site", "same-origin")];
        assert!(sign(Version::HTTP_11, &own, true).is_some());
        assert_eq!(sign(Version::HTTP_11, &[HOST, ("referer", "http://a.test/")], false), None);
        assert!(sign(Version::HTTP_11, &[HOST, ("x-page-host", "a.test")], false).is_some());
    }

    #[test]
    fn http_1_0_is_a_sign_from_here() {
        assert_eq!(sign(Version::HTTP_10, &[], true), Some(ProxySign::Http10));
        assert_eq!(sign(Version::HTTP_10, &[], false), None);
        assert_eq!(sign(Version::HTTP_11, &[("host", "localhost")], true), None);
    }

    #[test]
    fn all_addresses_of_this_machine_are_one() {
        let proxies = SilentProxies::default();
        assert!(!proxies.has("::1".parse().unwrap()));
        assert_eq!(
            proxies.remember_proxy("127.0.0.2".parse().unwrap(), &ProxySign::Http10),
            NoteOutcome::New
        );
        assert_eq!(proxies.remember_proxy("::1".parse().unwrap(), &ProxySign::Http10), NoteOutcome::Known);
        assert!(proxies.has("127.0.0.1".parse().unwrap()) && proxies.has("::1".parse().unwrap()));
        assert!(!proxies.has("172.18.0.3".parse().unwrap()));
        assert_eq!(proxies.first_local_sign(), Some(&ProxySign::Http10));
    }

    #[test]
    fn beyond_the_bound_everybody_is_one() {
        let proxies = SilentProxies::default();
        let address = |n: usize| IpAddr::from([10, 0, (n / 256) as u8, (n % 256) as u8]);
        for n in 0..OTHERS_MAX {
            assert_eq!(proxies.remember_proxy(address(n), &ProxySign::Http10), NoteOutcome::New);
        }
        assert_eq!(proxies.remember_proxy(address(1), &ProxySign::Http10), NoteOutcome::Known);
        assert!(!proxies.has(address(OTHERS_MAX)));
        assert_eq!(proxies.remember_proxy(address(OTHERS_MAX), &ProxySign::Http10), NoteOutcome::Full);
        assert!(proxies.has(address(OTHERS_MAX + 7)));
    }
}
