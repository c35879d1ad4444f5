//! Renders a request as the head of an HTTP/1.1 message.

use super::{Content, Request, RequestTarget, Serial};
use crate::http1::{
    fields::trim_ows,
    head::{HeadError, HeadLimits, HeaderSlots, Progress, RequestHead, TargetForm, Version, parse_request},
};

impl Request<'_> {
    /// Appends the request as an HTTP/1.1 head, in the form that this project's HTTP/1 parser reads: one
    /// `host`, which is the site, before the other fields; the cookie fields joined in one line (RFC 9113
    /// §8.2.3); no `te`, which is for this hop. Content of unknown length gets `transfer-encoding: chunked`,
    /// because an HTTP/1 request would otherwise have none; such content must be chunked when forwarded.
    /// Another protocol (RFC 8441) becomes an `upgrade`, as in HTTP/1; a WebSocket's key is missing, because
    /// HTTP/2 has none.
    ///
    /// The head is never longer than the section counted as in RFC 9113 §6.5.2, except for a tunnel, whose
    /// authority appears in it twice.
    pub fn render_head(&self, out: &mut Vec<u8>) {
        self.render(&mut Lines { out, slots: None, are_whole: true });
    }

    /// Writes the head of [`render_head`](Self::render_head) to `room` and returns what [`parse_request`]
    /// would find in it, including its length. The head is not parsed again unless it exceeds the limits or
    /// the slots; the parser then reports the error. If `room` holds the head of a request that differs only
    /// in its path, only the path is written.
    ///
    /// # Errors
    /// Returns the errors of [`parse_request`].
    #[inline]
    pub fn as_head<'r>(
        &self,
        room: &'r mut HeadRoom,
        limits: &HeadLimits,
    ) -> Result<Progress<(RequestHead<'r, 'r>, usize)>, HeadError> {
        let (method, target, form) = match self.ask {
            RequestTarget::Resource { path: "*", .. } => (self.method, "*", TargetForm::Asterisk),
            RequestTarget::Resource { path, .. } => (self.method, path, TargetForm::Origin),
            RequestTarget::Upgrade { path, .. } => ("GET", path, TargetForm::Origin),
            RequestTarget::Tunnel => (self.method, self.authority, TargetForm::Authority),
        };
        let has_room = match (room.of, self.alike) {
            (Some((of, target_bytes)), Some(alike)) if of == alike => {
                room.replace_target(method.len() + " ".len(), target_bytes, target);
                true
            }
            _ => room.write(self),
        };
        let line_bytes = method.len() + target.len() + " ".len() + " HTTP/1.1".len();
        if !has_room || line_bytes > limits.line_bytes_max || room.bytes.len() > limits.head_bytes_max {
            room.of = None;
            return parse_request(&room.bytes, &mut room.slots, limits);
        }
        room.of = Some((self.section.serial(), target.len()));
        let buf = &*room.bytes;
        // The parts are slices of the head's own buffer, because a kept head stores their offsets.
        let text = |from: usize, bytes: usize| super::text(&buf[from..from + bytes]);
        let head = RequestHead {
            method: text(0, method.len()),
            target: text(method.len() + 1, target.len()),
            form,
            version: Version::Http11,
            scheme: None,
            headers: room.slots.headers(buf),
        };
        Ok(Progress::Complete((head, buf.len())))
    }

    fn render(&self, lines: &mut Lines<'_, '_>) {
        let (method, target) = match self.ask {
            RequestTarget::Resource { path, .. } => (self.method, path),
            RequestTarget::Tunnel => (self.method, self.authority),
            RequestTarget::Upgrade { path, .. } => ("GET", path),
        };
        for part in [method, " ", target, " HTTP/1.1\r\n"] {
            lines.out.extend_from_slice(part.as_bytes());
        }
        lines.append(b"host", self.authority.as_bytes());
        if let RequestTarget::Upgrade { protocol, .. } = self.ask {
            lines.append(b"connection", b"upgrade");
            lines.append(b"upgrade", protocol.as_bytes());
        }
        if self.content == Content::ToTheEnd && matches!(self.ask, RequestTarget::Resource { .. }) {
            lines.append(b"transfer-encoding", b"chunked");
        }
        let mut has_cookie = false;
        for (name, value) in self.fields() {
            match name {
                b"host" | b"te" => {}
                b"cookie" if has_cookie => {}
                b"cookie" => {
                    has_cookie = true;
                    self.render_cookie(lines);
                }
                _ => lines.append(name, value),
            }
        }
        lines.out.extend_from_slice(b"\r\n");
    }

    fn render_cookie(&self, lines: &mut Lines<'_, '_>) {
        let start = lines.out.len();
        let mut before = b"cookie: ".as_slice();
        for (_, crumb) in self.fields().filter(|(name, _)| name == b"cookie") {
            lines.out.extend_from_slice(before);
            lines.out.extend_from_slice(crumb);
            before = b"; ";
        }
        // Empty cookie fields leave a blank at the end, which is not part of the value.
        let value_bytes = trim_ows(&lines.out[start + b"cookie: ".len()..]).len();
        lines.out.extend_from_slice(b"\r\n");
        lines.note(start, b"cookie", value_bytes);
    }
}

/// Memory for rendering requests as HTTP/1 heads, one after another; each loop has its own.
#[derive(Debug, Default)]
pub struct HeadRoom {
    bytes: Vec<u8>,
    slots: HeaderSlots,
    /// Serial of the request whose head `bytes` and `slots` hold, and its target's length; `None` if nothing
    /// can be reused.
    of: Option<(Serial, usize)>,
}

impl HeadRoom {
    /// Creates an empty `HeadRoom` that can hold heads of up to `bytes` bytes without a further allocation.
    pub fn new(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), slots: HeaderSlots::new(), of: None }
    }

    /// Writes a whole head. Returns whether all of its fields fit the slots.
    fn write(&mut self, request: &Request<'_>) -> bool {
        self.bytes.clear();
        self.slots.clear();
        let mut lines = Lines { out: &mut self.bytes, slots: Some(&mut self.slots), are_whole: true };
        request.render(&mut lines);
        lines.are_whole
    }

    fn replace_target(&mut self, at: usize, bytes: usize, target: &str) {
        if bytes != target.len() {
            let (old, behind) = (self.bytes.len(), at + bytes);
            let new = old - bytes + target.len();
            if new > old {
                self.bytes.resize(new, 0);
            }
            self.bytes.copy_within(behind..old, at + target.len());
            self.bytes.truncate(new);
            self.slots.shift(bytes, target.len());
        }
        self.bytes[at..][..target.len()].copy_from_slice(target.as_bytes());
    }
}

/// Output for header lines, which also records their offsets.
struct Lines<'o, 's> {
    out: &'o mut Vec<u8>,
    slots: Option<&'s mut HeaderSlots>,
    /// True if the slots had room for all lines.
    are_whole: bool,
}

impl Lines<'_, '_> {
    fn append(&mut self, name: &[u8], value: &[u8]) {
        let start = self.out.len();
        append_line(self.out, name, value);
        self.note(start, name, value.len());
    }

    fn note(&mut self, start: usize, name: &[u8], value_bytes: usize) {
        if let Some(slots) = &mut self.slots {
            self.are_whole &= slots.push(start, name, start + name.len() + b": ".len(), value_bytes);
        }
    }
}

pub(super) fn append_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}
