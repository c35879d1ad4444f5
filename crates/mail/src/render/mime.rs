//! MIME structure of a mail: where each part begins and ends (RFC 2046, 5.1), and the content fields of its
//! head.
//!
//! ```text
//!  raw ─▶ head ─▶ multipart? ─ yes ▶ its boundary is open: lines are scanned for it, or for an outer one
//!                     └─ no ─▶ a leaf: everything until a boundary that is open
//! ```
//! One walk over the bytes, without recursion and without a copy: parts are recorded as ranges of the mail. A
//! boundary of an outer multipart ends all inner ones (RFC 2046, 5.1.2), and the end of the mail ends
//! everything, so nothing is lost if a closing line is missing. A mail within a mail is a leaf: it is shown
//! and saved as it is.
//!
//! *Bounds:* [`PARTS_MAX`] parts and [`DEPTH_MAX`] open multiparts; everything beyond stays part of the
//! enclosing part. The cost is a search for `--` at the beginning of lines, each compared with the open
//! boundaries.

use std::ops::Range;

use mail_parser::Encoding;
use memchr::{memchr, memmem};

use super::{
    heads::{self, HeadBudget, end_of_field},
    parameters::{Parameters, token},
    until::{StepLimit, StepLimitReached},
};

/// Maximum number of parts of one mail.
pub(super) const PARTS_MAX: usize = 10_000;
/// Deepest nesting of multiparts.
pub(super) const DEPTH_MAX: usize = 20;
/// Maximum number of invalid lines before the first field that are skipped.
const BAD_LINES_MAX: usize = 5;
/// Maximum number of bytes of a boundary that are compared (RFC 2046, 5.1.1 allows 70).
const BOUNDARY_BYTES_MAX: usize = 1000;

/// Relation of a multipart's parts to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MultipartKind {
    Alternative,
    Related,
    Digest,
    /// `mixed`, and any unknown kind (RFC 2046, 5.1.7).
    Mixed,
}

/// Kinds of parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Multipart(MultipartKind),
    Leaf,
}

/// Disposition of a part (RFC 2183).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disposition {
    Inline,
    Attachment,
    /// The head does not name a disposition.
    None,
}

/// A part of a mail; ranges refer to the mail's bytes.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) parent: Option<usize>,
    pub(super) head: Range<usize>,
    pub(super) body: Range<usize>,
    /// `type/subtype` in lower case.
    pub(super) media_type: String,
    pub(super) charset: Option<String>,
    pub(super) encoding: Encoding,
    pub(super) disposition: Disposition,
    /// File name given by the sender, decoded but not sanitized.
    pub(super) filename: Option<String>,
    /// Content-ID without angle brackets.
    pub(super) content_id: Option<String>,
    /// The Content-ID of the root of a `multipart/related`, and the root's type.
    pub(super) start: Option<String>,
    pub(super) root_type: Option<String>,
}

/// The parts of a mail in the order in which they begin; the first is the mail itself.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) parts: Vec<Part>,
    /// True if a limit was reached.
    pub(super) is_cut: bool,
    /// True if a multipart was nested too deep to be parsed.
    pub(super) is_too_deep: bool,
    /// True if a field had more pieces of a parameter than are read.
    pub(super) are_parameters_cut: bool,
    /// True if a head exceeded the limits of [`super::heads`].
    pub(super) are_heads_cut: bool,
    /// True unless the input is empty.
    pub(super) is_mail: bool,
}

impl Tree {
    /// Parses a mail. The walk reads each byte a few times at most, and its steps are charged in advance.
    ///
    /// # Errors
    /// [`StepLimitReached`] when `until` has ended: no part of the mail is parsed.
    pub(super) fn of(raw: &[u8], until: &StepLimit) -> Result<Self, StepLimitReached> {
        until.pay(raw.len())?;
        Ok(Self::walked(raw))
    }

    /// Returns the tree of a mail that is not parsed.
    pub(super) fn empty() -> Self {
        Self { is_mail: true, ..Self::walked(&[]) }
    }

    fn walked(raw: &[u8]) -> Self {
        let mut walk = Walk {
            raw,
            open: Vec::new(),
            heads: HeadBudget::default(),
            tree: Self {
                parts: Vec::new(),
                is_cut: false,
                is_too_deep: false,
                are_parameters_cut: false,
                are_heads_cut: false,
                is_mail: true,
            },
        };
        walk.all();
        walk.tree
    }

    /// Returns the numbers of a multipart's direct parts.
    pub(super) fn children(&self, number: usize) -> impl Iterator<Item = usize> + '_ {
        // The direct parts follow the multipart, and end before the first part outside of it.
        let end = self.parts[number].body.end;
        let within = self.parts.iter().enumerate().skip(number + 1);
        within
            .take_while(move |(_, part)| part.head.start <= end)
            .filter(move |(_, part)| part.parent == Some(number))
            .map(|(at, _)| at)
    }
}

/// Returns name and value of each field of a head, still folded, as slices of the head. A field that is too
/// long is cut to its first [`heads::FIELD_BYTES_MAX`] bytes.
pub(super) fn fields(head: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = head;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = end_of_field(rest);
            let field = &rest[..end.min(heads::FIELD_BYTES_MAX)];
            rest = &rest[end..];
            if let Some(colon) = field_name_end(field) {
                return Some((field[..colon].trim_ascii_end(), field[colon + 1..].trim_ascii()));
            }
        }
        None
    })
}

/// Returns the value of the first field with this name.
pub(super) fn first<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    fields(head).find(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
}

/// Returns the position of the colon if a line begins with a field name: printable characters without a
/// blank, then a colon, possibly after blanks (RFC 5322, 4.5).
fn field_name_end(line: &[u8]) -> Option<usize> {
    let colon = memchr(b':', line)?;
    let name = line[..colon].trim_ascii_end();
    (!name.is_empty() && name.iter().all(u8::is_ascii_graphic)).then_some(colon)
}

/// A multipart whose closing boundary has not been seen yet.
struct OpenMultipart {
    part: usize,
    boundary: Vec<u8>,
}

struct Walk<'a> {
    raw: &'a [u8],
    open: Vec<OpenMultipart>,
    heads: HeadBudget,
    tree: Tree,
}

/// A boundary line.
struct Boundary {
    /// Beginning of the line end before the boundary, which belongs to the boundary (RFC 2046, 5.1.1).
    begin: usize,
    /// Beginning of the next line.
    after: usize,
    /// Index of the boundary's multipart among the open ones.
    level: usize,
    is_last: bool,
}

impl Walk<'_> {
    fn all(&mut self) {
        let begin = self.first_field();
        let mut next = self.part(begin, None);
        self.tree.is_mail = !self.raw.is_empty();
        // The preamble and the epilogue of a multipart are not shown (RFC 2046, 5.1.1).
        while let Some(at) = next.filter(|_| !self.open.is_empty()) {
            let Some(boundary) = self.boundary(at) else {
                self.close(0, self.raw.len());
                return;
            };
            self.close(boundary.level + 1, boundary.begin);
            let parent = self.open[boundary.level].part;
            next = Some(boundary.after);
            if boundary.is_last {
                self.close(boundary.level, boundary.begin);
            } else if self.tree.parts.len() < PARTS_MAX {
                next = self.part(boundary.after, Some(parent));
            } else {
                self.tree.is_cut = true;
            }
        }
    }

    /// Parses the part that begins here, up to its end. Returns where the search for boundaries continues;
    /// `None` if it ends.
    fn part(&mut self, begin: usize, parent: Option<usize>) -> Option<usize> {
        let (head_end, body) = self.head_end(begin);
        let (read, is_whole) = self.heads.take(&self.raw[begin..head_end]);
        self.tree.are_heads_cut |= !is_whole;
        let number = self.tree.parts.len();
        let (part, boundary) = self.described(begin..begin + read, body, parent);
        self.tree.parts.push(part);
        if let Some(boundary) = boundary {
            if self.open.len() < DEPTH_MAX {
                self.open.push(OpenMultipart { part: number, boundary });
                return Some(body);
            }
            self.tree.is_too_deep = true;
            self.tree.parts[number].kind = Kind::Leaf;
        }
        let end = match self.open.is_empty() {
            true => None,
            false => self.boundary(body).map(|boundary| boundary.begin),
        };
        let end = end.unwrap_or(self.raw.len()).max(body);
        self.tree.parts[number].body = body..end;
        (end < self.raw.len()).then_some(end)
    }

    /// Returns the part that a head describes, and its boundary if it is a multipart.
    fn described(
        &mut self,
        head: Range<usize>,
        body: usize,
        parent: Option<usize>,
    ) -> (Part, Option<Vec<u8>>) {
        let bytes = &self.raw[head.clone()];
        let mut kind = None;
        let (mut disposition, mut encoding, mut content_id) = (None, None, None);
        // The first of several fields with the same name is used.
        for (name, value) in fields(bytes) {
            let slot = match name.len() {
                12 if name.eq_ignore_ascii_case(b"content-type") => &mut kind,
                19 if name.eq_ignore_ascii_case(b"content-disposition") => &mut disposition,
                25 if name.eq_ignore_ascii_case(b"content-transfer-encoding") => &mut encoding,
                10 if name.eq_ignore_ascii_case(b"content-id") => &mut content_id,
                _ => continue,
            };
            if slot.is_none() {
                *slot = Some(value);
            }
        }
        let is_typed = kind.is_some();
        let kind = Parameters::of(kind.unwrap_or_default());
        let disposition = Parameters::of(disposition.unwrap_or_default());
        self.tree.are_parameters_cut |= kind.is_cut || disposition.is_cut;
        let in_digest = parent
            .is_some_and(|parent| self.tree.parts[parent].kind == Kind::Multipart(MultipartKind::Digest));
        let media_type = match (is_typed, in_digest) {
            (false, true) => "message/rfc822".to_owned(),
            (false, false) => "text/plain".to_owned(),
            (true, _) => media_type(&kind.value),
        };
        let together = media_type.strip_prefix("multipart/").map(|subtype| match subtype {
            "alternative" => MultipartKind::Alternative,
            "related" => MultipartKind::Related,
            "digest" => MultipartKind::Digest,
            _ => MultipartKind::Mixed,
        });
        let boundary = kind.bytes("boundary").filter(|boundary| {
            !boundary.is_empty() && boundary.len() <= BOUNDARY_BYTES_MAX && together.is_some()
        });
        let part = Part {
            kind: match (together, &boundary) {
                (Some(together), Some(_)) => Kind::Multipart(together),
                _ => Kind::Leaf,
            },
            parent,
            head,
            body: body..self.raw.len(),
            // A multipart without a boundary is shown as text.
            media_type: match (together, &boundary) {
                (Some(_), None) => "text/plain".to_owned(),
                _ => media_type,
            },
            charset: kind.text("charset"),
            encoding: match encoding.map(token) {
                Some(named) if named.eq_ignore_ascii_case(b"base64") => Encoding::Base64,
                Some(named) if named.eq_ignore_ascii_case(b"quoted-printable") => Encoding::QuotedPrintable,
                _ => Encoding::None,
            },
            disposition: match &*disposition.value.to_ascii_lowercase() {
                "attachment" => Disposition::Attachment,
                "inline" => Disposition::Inline,
                _ => Disposition::None,
            },
            filename: disposition.text("filename").or_else(|| kind.text("name")),
            content_id: content_id.map(|id| content_id_of(&String::from_utf8_lossy(id))),
            start: kind.text("start").map(|start| content_id_of(&start)),
            root_type: kind.text("type").map(|root| root.to_ascii_lowercase()),
        };
        (part, boundary)
    }

    /// Closes the open multiparts at this level and all inner ones.
    fn close(&mut self, level: usize, end: usize) {
        for OpenMultipart { part: number, .. } in self.open.drain(level..) {
            let has_parts = self.tree.parts.len() > number + 1;
            let part = &mut self.tree.parts[number];
            part.body.end = end.max(part.body.start);
            if !has_parts {
                // Without any boundary line the multipart is shown as text.
                part.kind = Kind::Leaf;
                part.media_type = "text/plain".to_owned();
            }
        }
    }

    /// Finds the next line that is a boundary of an open multipart.
    fn boundary(&self, from: usize) -> Option<Boundary> {
        let raw = self.raw;
        let mut at = from;
        loop {
            let line = match raw[at..].starts_with(b"--") && (at == 0 || raw[at - 1] == b'\n') {
                true => at,
                false => at + memmem::find(&raw[at..], b"\n--")? + 1,
            };
            let text = &raw[line + 2..];
            let found = self.open.iter().enumerate().rev().find_map(|(level, open)| {
                let rest = text.strip_prefix(&*open.boundary)?;
                let (rest, is_last) = rest.strip_prefix(b"--").map_or((rest, false), |rest| (rest, true));
                // Blanks after a boundary may have been added in transit.
                let end = memchr(b'\n', rest).unwrap_or(rest.len());
                rest[..end].trim_ascii().is_empty().then_some((level, is_last))
            });
            let after = memchr(b'\n', text).map_or(raw.len(), |end| line + 2 + end + 1);
            if let Some((level, is_last)) = found {
                let before = &raw[from..line.max(from)];
                let before = before.strip_suffix(b"\n").unwrap_or(before);
                let begin = from + before.strip_suffix(b"\r").unwrap_or(before).len();
                return Some(Boundary { begin, after, level, is_last });
            }
            at = line + 2;
        }
    }

    /// Returns where the head of the mail begins: after a byte order mark, and after lines that are not fields if
    /// fields follow.
    fn first_field(&self) -> usize {
        let mark = if self.raw.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let mut at = mark;
        for _ in 0..=BAD_LINES_MAX {
            let rest = &self.raw[at..];
            let line = &rest[..memchr(b'\n', rest).map_or(rest.len(), |end| end + 1)];
            if field_name_end(line).is_some() && (at == mark || self.is_head(at)) {
                return at;
            }
            if line.trim_ascii().is_empty() {
                break;
            }
            at += line.len();
        }
        mark
    }

    /// Returns whether a mail's head begins at `begin`; plain text with colons in it is not a head. Reads at
    /// most [`heads::HEAD_BYTES_MAX`] bytes, as the check is repeated for each invalid line before it.
    fn is_head(&self, begin: usize) -> bool {
        const KNOWN: [&str; 8] =
            ["From", "To", "Subject", "Date", "Received", "Message-ID", "MIME-Version", "Content-Type"];
        let end = self.raw.len().min(begin + heads::HEAD_BYTES_MAX);
        let head = &self.raw[begin..self.head_end_before(end, begin).0];
        fields(head).any(|(own, _)| KNOWN.iter().any(|name| own.eq_ignore_ascii_case(name.as_bytes())))
    }

    /// Returns where a head ends, and where its body begins: after the first empty line, or at the first line
    /// that neither is a field nor continues one.
    fn head_end(&self, begin: usize) -> (usize, usize) {
        self.head_end_before(self.raw.len(), begin)
    }

    /// Returns where a head ends, at or before `end`, and where its body begins.
    fn head_end_before(&self, end: usize, begin: usize) -> (usize, usize) {
        let mut at = begin;
        while at < end {
            let rest = &self.raw[at..end];
            let line = &rest[..memchr(b'\n', rest).map_or(rest.len(), |end| end + 1)];
            match line.first() {
                _ if line.trim_ascii().is_empty() => return (at, at + line.len()),
                Some(b' ' | b'\t') if at > begin => {}
                _ if field_name_end(line).is_some() && !self.is_boundary(at) => {}
                _ => return (at, at),
            }
            at += line.len();
        }
        (at, at)
    }

    /// Returns whether the line that begins at `line` is an open boundary. A boundary with a colon looks like
    /// a field.
    fn is_boundary(&self, line: usize) -> bool {
        self.raw[line..].starts_with(b"--")
            && self.open.iter().any(|open| self.raw[line + 2..].starts_with(&open.boundary))
    }
}

fn content_id_of(id: &str) -> String {
    let id = id.trim().trim_matches(['<', '>']);
    // Some senders write the URL of RFC 2392 in place of the Content-ID.
    let id = match id.get(..4) {
        Some(scheme) if scheme.eq_ignore_ascii_case("cid:") => &id[4..],
        _ => id,
    };
    super::fields::printable(id).into_owned()
}

/// Normalizes a media type to `type/subtype` of tokens only (RFC 2045, 5.1), so that it can be used in our
/// own header fields. `text` and `text/` become plain text (RFC 2045, 5.2).
fn media_type(declared: &str) -> String {
    let lower: String = declared.to_ascii_lowercase().split_ascii_whitespace().collect();
    let is_token = |token: &str| {
        (1..=127).contains(&token.len())
            && token.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b))
    };
    match lower.split_once('/') {
        Some((kind, subtype)) if is_token(kind) && is_token(subtype) => lower,
        Some(("text", "")) => "text/plain".to_owned(),
        None if lower == "text" || lower.is_empty() => "text/plain".to_owned(),
        _ => "application/octet-stream".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns depth, type and body of each part.
    fn seen(raw: &str) -> Vec<(usize, String, String)> {
        let tree = Tree::walked(raw.as_bytes());
        let depth =
            |part: &Part| std::iter::successors(part.parent, |parent| tree.parts[*parent].parent).count();
        let rows = tree.parts.iter().map(|part| {
            let body = match part.kind {
                Kind::Multipart(_) => String::new(),
                Kind::Leaf => raw[part.body.clone()].to_owned(),
            };
            (depth(part), part.media_type.clone(), body)
        });
        rows.collect()
    }

    fn rows(rows: &[(usize, &str, &str)]) -> Vec<(usize, String, String)> {
        rows.iter().map(|(depth, kind, body)| (*depth, (*kind).to_owned(), (*body).to_owned())).collect()
    }

    /// Each invalid line before megabytes of fields causes only a bounded read.
    #[test]
    fn a_head_behind_bad_lines_is_near() {
        let begin = |fields: usize| {
            let raw = format!("stray\nb:\n{}From: a\n\nbody", "a:\n".repeat(fields));
            Tree::walked(raw.as_bytes()).parts[0].head.start
        };
        assert_eq!(begin(1_000), "stray\n".len());
        assert_eq!(begin(heads::HEAD_BYTES_MAX), 0);
    }

    #[test]
    fn an_outer_boundary_ends_what_is_within() {
        let raw = "Content-Type: multipart/mixed; boundary=o\r\n\r\npreamble\r\n--o\r\n\
                   Content-Type: multipart/alternative; boundary=\"i\"\r\n\r\n--i\r\n\r\nplain\r\n--i\r\n\
                   Content-Type: text/html\r\n\r\n<b>html</b>\r\n--o \r\nContent-Type: image/png\r\n\r\nPNG\r\n--o--\r\nepilogue";
        let expected = [
            (0, "multipart/mixed", ""),
            (1, "multipart/alternative", ""),
            (2, "text/plain", "plain"),
            (2, "text/html", "<b>html</b>"),
            (1, "image/png", "PNG"),
        ];
        assert_eq!(seen(raw), rows(&expected));
        assert_eq!(seen(&raw.replace("\r\n", "\n")), rows(&expected), "line feeds alone");
        let open = &raw[..raw.find("\r\n--o--").unwrap()];
        assert_eq!(seen(open), rows(&expected), "no closing line");
    }

    #[test]
    fn boundaries_are_whole_lines() {
        let raw = "Content-Type: multipart/mixed; boundary=a\n\n--a\n\nx --a\n--ab\n--a-\n\n--a\n\ny\n--a--";
        assert_eq!(
            seen(raw),
            rows(&[
                (0, "multipart/mixed", ""),
                (1, "text/plain", "x --a\n--ab\n--a-\n"),
                (1, "text/plain", "y")
            ])
        );
    }

    #[test]
    fn a_multipart_without_parts_is_a_text() {
        for raw in [
            "Content-Type: multipart/mixed; boundary=never\r\n\r\nbody",
            "Content-Type: multipart/mixed\r\n\r\nbody",
            "Content-Type: text\r\n\r\nbody",
            "X: y\r\n\r\nbody",
            "From x@y Sat Nov 21 22:00\r\nX: y\r\nTo: y\r\n\r\nbody",
            "\u{feff}X: y\r\n\r\nbody",
            "bad line\r\nSubject: y\r\n\r\nbody",
            "X: y\r\nbody",
        ] {
            assert_eq!(seen(raw), rows(&[(0, "text/plain", "body")]), "{raw}");
        }
    }

    #[test]
    fn the_first_of_two_fields_counts() {
        let raw =
            "Content-Type: text/html\r\nContent-Type: text/plain\r\nSubject: one\r\nsubject: two\r\n\r\n";
        let tree = Tree::walked(raw.as_bytes());
        assert_eq!(tree.parts[0].media_type, "text/html");
        assert_eq!(first(raw.as_bytes(), "Subject"), Some(&b"one"[..]));
    }

    #[test]
    fn too_many_and_too_deep_stay_together() {
        let deep: String = (0..=DEPTH_MAX)
            .map(|n| format!("Content-Type: multipart/mixed; boundary={n}x\n\n--{n}x\n"))
            .collect();
        let tree = Tree::walked(deep.as_bytes());
        assert!(tree.is_too_deep && tree.parts.len() == DEPTH_MAX + 1);
        let many =
            format!("Content-Type: multipart/mixed; boundary=x\n\n{}", "--x\n\na\n".repeat(PARTS_MAX + 5));
        let tree = Tree::walked(many.as_bytes());
        assert!(tree.is_cut && tree.parts.len() == PARTS_MAX);
    }

    proptest! {
        /// Parts are within their parents, in order, and within the mail.
        #[test]
        fn parts_lie_within_each_other(picks in proptest::collection::vec(0usize..9, 0..60)) {
            const LINES: [&str; 9] = [
                "Content-Type: multipart/mixed; boundary=a\n", "Content-Type: multipart/alternative; boundary=b\r\n",
                "\n", "\r\n", "--a\n", "--b\r\n", "--a--\n", "text", "X: y\n",
            ];
            let raw: String = picks.into_iter().map(|pick| LINES[pick]).collect();
            let tree = Tree::walked(raw.as_bytes());
            for (at, part) in tree.parts.iter().enumerate() {
                prop_assert!(part.head.start <= part.head.end && part.head.end <= part.body.start);
                prop_assert!(part.body.start <= part.body.end && part.body.end <= raw.len());
                if let Some(parent) = part.parent {
                    let outer = &tree.parts[parent];
                    prop_assert!(parent < at && outer.body.start <= part.head.start, "{:?}", raw);
                    prop_assert!(part.body.end <= outer.body.end, "{:?}", raw);
                    prop_assert!(tree.children(parent).any(|child| child == at));
                }
            }
        }
    }
}
