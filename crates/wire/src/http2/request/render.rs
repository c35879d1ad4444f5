//! A request as the head of an HTTP/1.1 message.

use super::{Ask, Content, Request};

impl Request<'_> {
    /// Appends the request as a head of HTTP/1.1, in the form in which this project's HTTP/1 parser reads it: one `host`,
    /// which is the site, before the other fields; the crumbs of a cookie as one line (RFC 9113 §8.2.3); without `te`,
    /// which is for this hop. What has content of no told length has `transfer-encoding: chunked`, because in HTTP/1 it
    /// would otherwise have none: whoever passes such content on must chunk it. Another protocol (RFC 8441) is asked for
    /// by `upgrade`, as HTTP/1 does; a WebSocket's key is not there, because HTTP/2 has none.
    ///
    /// It is never longer than the section is by the count of RFC 9113 §6.5.2, but for a tunnel, whose authority stands in it
    /// twice.
    pub fn render_head(&self, out: &mut Vec<u8>) {
        let (method, target) = match self.ask {
            Ask::Resource { path, .. } => (self.method, path),
            Ask::Tunnel => (self.method, self.authority),
            Ask::Upgrade { path, .. } => ("GET", path),
        };
        for part in [method, " ", target, " HTTP/1.1\r\nhost: ", self.authority, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        if let Ask::Upgrade { protocol, .. } = self.ask {
            for part in ["connection: upgrade\r\nupgrade: ", protocol, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
        if self.content == Content::ToTheEnd && matches!(self.ask, Ask::Resource { .. }) {
            out.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        let mut has_cookie = false;
        for (name, value) in self.fields() {
            match name {
                b"host" | b"te" => {}
                b"cookie" if has_cookie => {}
                b"cookie" => {
                    has_cookie = true;
                    self.render_cookie(out);
                }
                _ => append_line(out, name, value),
            }
        }
        out.extend_from_slice(b"\r\n");
    }

    fn render_cookie(&self, out: &mut Vec<u8>) {
        let mut before = b"cookie: ".as_slice();
        for (_, crumb) in self.fields().filter(|(name, _)| name == b"cookie") {
            out.extend_from_slice(before);
            out.extend_from_slice(crumb);
            before = b"; ";
        }
        out.extend_from_slice(b"\r\n");
    }
}

pub(super) fn append_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}
