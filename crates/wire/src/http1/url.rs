//! Parser for a request's target and `Host`: the site, and the path within it (RFC 9112 §3.2, RFC 3986 §3).
//!
//! Only what an HTTP cache needs is supported. A host is letters, digits and `-._~`, or an IPv6 address in
//! brackets: the percent-encodings and sub-delimiters that RFC 3986 §3.2.2 would allow do not occur in real
//! host names, and would allow one `Host` to be read in two ways.

use super::head::TargetForm;

/// A host and an optional port, as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority<'a> {
    /// Name, IPv4 address or bracketed IPv6 address, in its original case. May be empty (`Host:` without a
    /// value, RFC 9112 §3.2), but not with a port.
    pub host: &'a str,
    /// The port, if given; `host:` with nothing after the colon gives none (RFC 3986 §3.2.3).
    pub port: Option<u16>,
}

impl<'a> Authority<'a> {
    /// Parses `host[:port]`. User names (`user@host`) are refused (RFC 9110 §4.2.4).
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (host, port) = split(bytes)?;
        Some(Self { host: std::str::from_utf8(host).ok()?, port })
    }

    /// Returns whether [`parse`](Self::parse) would accept the bytes.
    #[inline]
    pub fn is_valid(bytes: &[u8]) -> bool {
        bytes.iter().all(|&b| NAME_BYTE[b as usize]) || split(bytes).is_some()
    }

    /// Appends the normal form: the host in lower case, and `:port` unless the port is `default_port` (80 for
    /// http).
    pub fn normalise_into(&self, default_port: u16, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(self.host.as_bytes());
        out[start..].make_ascii_lowercase();
        if let Some(port) = self.port.filter(|&port| port != default_port) {
            out.push(b':');
            out.extend_from_slice(itoa::Buffer::new().format(port).as_bytes());
        }
    }

    /// Returns whether two authorities have the same normal form ([`normalise_into`](Self::normalise_into)).
    fn is_same(&self, other: &Authority<'_>, default_port: u16) -> bool {
        self.host.eq_ignore_ascii_case(other.host)
            && self.port.unwrap_or(default_port) == other.port.unwrap_or(default_port)
    }

    /// Returns whether the value of a `Host` field names this host and port.
    fn agrees_with(&self, host: &[u8], scheme: Scheme) -> bool {
        Authority::parse(host).is_some_and(|host| self.is_same(&host, scheme.default_port()))
    }
}

/// Returns whether a request is unambiguous about its host: there is at most one `Host` field, and it agrees
/// with the `authority` of an absolute-form target (RFC 9112 §3.2, §3.2.2); `scheme` tells its default port. A
/// server answers any other request with 400: a proxy before or behind it may have used the other host.
///
/// Needed only by listeners whose requests are not parsed by [`parse_request`](super::head::parse_request),
/// which makes the same check itself.
pub fn names_one_host<'h>(
    scheme: Scheme,
    authority: Option<&[u8]>,
    mut hosts: impl Iterator<Item = &'h [u8]>,
) -> bool {
    let Some(host) = hosts.next() else { return true };
    let agrees = authority.is_none_or(|authority| {
        Authority::parse(authority).is_some_and(|authority| authority.agrees_with(host, scheme))
    });
    agrees && hosts.next().is_none()
}

/// Lookup table of the bytes allowed in a host name or IPv4 address.
static NAME_BYTE: [bool; 256] = {
    let mut table = [false; 256];
    let mut b = 0;
    while b < 256 {
        table[b] = (b as u8).is_ascii_alphanumeric() || matches!(b as u8, b'-' | b'.' | b'_' | b'~');
        b += 1;
    }
    table
};

/// Splits an authority into host (ASCII) and port.
fn split(bytes: &[u8]) -> Option<(&[u8], Option<u16>)> {
    let host_len = if bytes.first() == Some(&b'[') {
        let len = bytes.iter().position(|&b| b == b']')? + 1;
        let inside = &bytes[1..len - 1];
        if inside.is_empty() || !inside.iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.')) {
            return None;
        }
        len
    } else {
        bytes.iter().position(|&b| !NAME_BYTE[b as usize]).unwrap_or(bytes.len())
    };
    let (host, rest) = bytes.split_at(host_len);
    match rest {
        [] => Some((host, None)),
        [b':', ..] if host.is_empty() => None,
        [b':'] => Some((host, None)),
        [b':', digits @ ..] => Some((host, Some(parse_port(digits)?))),
        _ => None,
    }
}

fn parse_port(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0u16, |port, &b| {
        if !b.is_ascii_digit() {
            return None;
        }
        port.checked_mul(10)?.checked_add(u16::from(b - b'0'))
    })
}

/// The scheme of an absolute target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// `http`, default port 80.
    Http,
    /// `https`, default port 443.
    Https,
}

impl Scheme {
    /// Returns the port that an authority of this scheme may omit (RFC 9110 §4.2.1, §4.2.2).
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// A request's target, parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// The scheme of an absolute-form target.
    pub scheme: Option<Scheme>,
    /// The host that the target itself names (absolute-form, authority-form). In absolute-form `Host` must
    /// name the same host, or the head is refused.
    pub authority: Option<Authority<'a>>,
    /// Path and query as sent: `/a?b`; `*` in asterisk-form; empty in authority-form. In absolute-form the
    /// path may be missing (`http://a`, `http://a?b`): this field is then empty or begins with `?`, and is
    /// equivalent to the same text with a `/` before it (RFC 9110 §4.2.3).
    pub path_and_query: &'a str,
}

impl<'a> Target<'a> {
    /// Returns whether a `Host` field with this value names the host and port that the target names. Also
    /// true if the target names none, and in authority-form, where a proxy's client may name the proxy.
    pub fn agrees_with(&self, host: &[u8]) -> bool {
        match (self.scheme, self.authority) {
            (Some(scheme), Some(authority)) => authority.agrees_with(host, scheme),
            _ => true,
        }
    }

    /// Parses a target and determines its form; `None` if it has no form that the method allows:
    /// authority-form is only for CONNECT, asterisk-form only for OPTIONS (RFC 9112 §3.2.1 to §3.2.4).
    pub fn parse(method: &str, target: &'a str) -> Option<(TargetForm, Self)> {
        let plain = Target { scheme: None, authority: None, path_and_query: target };
        if method == "CONNECT" {
            let authority = Authority::parse(target.as_bytes())?;
            authority.port?;
            return Some((
                TargetForm::Authority,
                Target { authority: Some(authority), path_and_query: "", ..plain },
            ));
        }
        if target.starts_with('/') {
            return Some((TargetForm::Origin, plain));
        }
        if target == "*" {
            return (method == "OPTIONS").then_some((TargetForm::Asterisk, plain));
        }
        let (scheme, rest) = [("http://", Scheme::Http), ("https://", Scheme::Https)]
            .into_iter()
            .find_map(|(prefix, scheme)| Some((scheme, strip_prefix_ignoring_case(target, prefix)?)))?;
        let authority_len = rest.bytes().position(|b| b == b'/' || b == b'?').unwrap_or(rest.len());
        let authority = Authority::parse(&rest.as_bytes()[..authority_len])?;
        if authority.host.is_empty() {
            return None;
        }
        let target = Target {
            scheme: Some(scheme),
            authority: Some(authority),
            path_and_query: &rest[authority_len..],
        };
        Some((TargetForm::Absolute, target))
    }
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3986 §3.2.2, §3.2.3, except for the forms of host that do not occur on a network.
    #[test]
    fn authorities_are_read() {
        for (text, expected) in [
            ("", Some(("", None))),
            ("a", Some(("a", None))),
            ("A-b_c~.D9:080", Some(("A-b_c~.D9", Some(80)))),
            ("a:", Some(("a", None))),
            ("127.0.0.1:65535", Some(("127.0.0.1", Some(65535)))),
            ("[::1]", Some(("[::1]", None))),
            ("[::ffff:1.2.3.4]:8", Some(("[::ffff:1.2.3.4]", Some(8)))),
            ("[]", None),
            ("[::1", None),
            ("[::1]x", None),
            ("[fe80::1%25eth0]", None),
            ("::1", None),
            (":80", None),
            ("a:65536", None),
            ("a:+1", None),
            ("a:1:2", None),
            ("a b", None),
            ("a@b", None),
            ("a,b", None),
            ("a/b", None),
            ("a%41", None),
            ("\u{e9}", None),
        ] {
            assert_eq!(Authority::parse(text.as_bytes()).map(|a| (a.host, a.port)), expected, "{text:?}");
            assert_eq!(Authority::is_valid(text.as_bytes()), expected.is_some(), "{text:?}");
        }
    }

    /// RFC 9110 §4.2.3: hosts in lower case, no default port.
    #[test]
    fn authorities_have_one_normal_form() {
        for (text, default_port, normal) in [
            ("Example.COM", 80, "example.com"),
            ("Example.COM:80", 80, "example.com"),
            ("example.com:", 80, "example.com"),
            ("example.com:00080", 80, "example.com"),
            ("example.com:80", 443, "example.com:80"),
            ("[FE80::A]:8080", 80, "[fe80::a]:8080"),
        ] {
            let mut out = b"KEY ".to_vec();
            Authority::parse(text.as_bytes()).unwrap().normalise_into(default_port, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("KEY {normal}"));
        }
    }

    /// RFC 9112 §3.2, §3.2.2: `Host` occurs at most once and agrees with an absolute target.
    #[test]
    fn a_request_names_one_host() {
        for (scheme, authority, hosts, expected) in [
            (Scheme::Http, None, &["a"][..], true),
            (Scheme::Http, None, &[], true),
            (Scheme::Http, None, &["a", "a"], false),
            (Scheme::Http, Some("a"), &[], true),
            (Scheme::Http, Some("a"), &["A:80"], true),
            (Scheme::Http, Some("a:0080"), &["a:"], true),
            (Scheme::Https, Some("a"), &["a:443"], true),
            (Scheme::Https, Some("a"), &["a:80"], false),
            (Scheme::Http, Some("a"), &["a", "a"], false),
            (Scheme::Http, Some("a"), &["b"], false),
            (Scheme::Http, Some("a:81"), &["a"], false),
            (Scheme::Http, Some("a"), &[""], false),
            (Scheme::Http, Some("u@a"), &["a"], false),
        ] {
            let bytes = authority.map(str::as_bytes);
            let is_one = names_one_host(scheme, bytes, hosts.iter().map(|host| host.as_bytes()));
            assert_eq!(is_one, expected, "{scheme:?} {authority:?} {hosts:?}");
        }
    }

    /// RFC 9112 §3.2.1 to §3.2.4: the four forms of a target.
    #[test]
    fn targets_are_taken_apart() {
        let parse = |method: &'static str, target: &'static str| {
            Target::parse(method, target)
                .map(|(form, t)| (form, t.scheme, t.authority.map(|a| (a.host, a.port)), t.path_and_query))
        };
        use TargetForm::{Absolute, Asterisk, Authority, Origin};
        assert_eq!(parse("GET", "/a?b"), Some((Origin, None, None, "/a?b")));
        assert_eq!(parse("GET", "//a/b"), Some((Origin, None, None, "//a/b")));
        assert_eq!(parse("OPTIONS", "*"), Some((Asterisk, None, None, "*")));
        assert_eq!(parse("CONNECT", "a:443"), Some((Authority, None, Some(("a", Some(443))), "")));
        let http = Some(Scheme::Http);
        assert_eq!(parse("GET", "http://A:1/b?c"), Some((Absolute, http, Some(("A", Some(1))), "/b?c")));
        assert_eq!(parse("GET", "HTTP://a"), Some((Absolute, http, Some(("a", None)), "")));
        assert_eq!(parse("GET", "http://a?b/c"), Some((Absolute, http, Some(("a", None)), "?b/c")));
        assert_eq!(parse("GET", "https://a/"), Some((Absolute, Some(Scheme::Https), Some(("a", None)), "/")));
        for (method, target) in [
            ("GET", "*"),
            ("GET", ""),
            ("GET", "a"),
            ("GET", "a:443"),
            ("CONNECT", "/a"),
            ("CONNECT", "a"),
            ("CONNECT", "a:"),
            ("CONNECT", "http://a:1"),
            ("CONNECT", ":443"),
            ("GET", "http:/a"),
            ("GET", "http://"),
            ("GET", "http://:80/"),
            ("GET", "ws://a/"),
            ("GET", "http://a\\b/"),
            ("GET", "http://a b/"),
        ] {
            assert_eq!(parse(method, target), None, "{method} {target}");
        }
    }
}
