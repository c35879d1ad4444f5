//! What a request's target and `Host` name: the site, and the path within it (RFC 9112 §3.2, RFC 3986 §3).
//!
//! Only what an HTTP cache needs. A host is letters, digits and `-._~`, or an IPv6 address in brackets: the
//! percent-encodings and sub-delimiters that RFC 3986 §3.2.2 would allow name no host on the network, and let
//! one `Host` be read as two.

use super::head::TargetForm;

/// A host and an optional port, as they were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority<'a> {
    /// Name, IPv4 address or bracketed IPv6 address, in the case in which it was sent. May be empty
    /// (`Host:` without a value, RFC 9112 §3.2), but not with a port.
    pub host: &'a str,
    /// The port, where one was given; `host:` with nothing after the colon gives none (RFC 3986 §3.2.3).
    pub port: Option<u16>,
}

impl<'a> Authority<'a> {
    /// Reads `host[:port]`. User names (`user@host`) are refused (RFC 9110 §4.2.4).
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let host_len = if bytes.first() == Some(&b'[') {
            let len = bytes.iter().position(|&b| b == b']')? + 1;
            let inside = &bytes[1..len - 1];
            if inside.is_empty() || !inside.iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
            {
                return None;
            }
            len
        } else {
            bytes.iter().position(|&b| !is_name_byte(b)).unwrap_or(bytes.len())
        };
        let (host, rest) = bytes.split_at(host_len);
        let port = match rest {
            [] => None,
            [b':', ..] if host.is_empty() => return None,
            [b':'] => None,
            [b':', digits @ ..] => Some(parse_port(digits)?),
            _ => return None,
        };
        Some(Self { host: std::str::from_utf8(host).ok()?, port })
    }

    /// Appends the normal form: lower case, without the port if it is `default_port` (80 for http). A `:` before
    /// any other port.
    pub fn normalise_into(&self, default_port: u16, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(self.host.as_bytes());
        out[start..].make_ascii_lowercase();
        if let Some(port) = self.port.filter(|&port| port != default_port) {
            out.push(b':');
            out.extend_from_slice(itoa::Buffer::new().format(port).as_bytes());
        }
    }
}

/// Bytes of a host name or IPv4 address.
#[inline]
fn is_name_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~')
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

/// A request's target, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// The scheme of an absolute-form target.
    pub scheme: Option<Scheme>,
    /// The host that the target itself names (absolute-form, authority-form). Where there is one, `Host` is to
    /// be ignored (RFC 9112 §3.2.2).
    pub authority: Option<Authority<'a>>,
    /// Path and query as they were sent: `/a?b`; `*` in asterisk-form; empty in authority-form. In absolute-form
    /// the path may be missing (`http://a`, `http://a?b`): then this is empty or begins with `?`, and means the
    /// same with a `/` before it (RFC 9110 §4.2.3).
    pub path_and_query: &'a str,
}

impl<'a> Target<'a> {
    /// Takes a target apart, and decides its form; `None` if it has none that the method allows: authority-form
    /// is for CONNECT and only it, asterisk-form for OPTIONS (RFC 9112 §3.2.1 to §3.2.4).
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
