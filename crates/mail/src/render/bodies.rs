//! Selects the parts that are the body of a mail, as text and as HTML, and the parts that are attachments
//! (RFC 2046, 5.1; RFC 2183; RFC 2387).

use super::mime::{Disposition, Kind, MultipartKind, Part, Tree};

/// Part numbers of the bodies, shown one after the other: as text, and as HTML.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bodies {
    pub(super) text: Vec<usize>,
    pub(super) html: Vec<usize>,
}

/// Position of a part in its multipart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartPosition {
    /// The part is the whole mail.
    Alone,
    First,
    Later,
    /// The part is one of several alternatives.
    Version,
}

/// Selects the bodies of a mail.
pub(super) fn of(tree: &Tree) -> Bodies {
    if tree.parts.is_empty() { Bodies::default() } else { of_part(tree, 0, PartPosition::Alone) }
}

/// Selects the bodies in a part. The recursion is bounded by [`super::mime::DEPTH_MAX`].
fn of_part(tree: &Tree, number: usize, place: PartPosition) -> Bodies {
    let part = &tree.parts[number];
    match part.kind {
        Kind::Leaf if is_body(part, place) => Bodies { text: vec![number], html: vec![number] },
        Kind::Leaf => Bodies::default(),
        Kind::Multipart(MultipartKind::Alternative) => of_versions(tree, number),
        Kind::Multipart(MultipartKind::Related) => {
            root(tree, number).map_or_else(Bodies::default, |root| of_part(tree, root, PartPosition::First))
        }
        Kind::Multipart(MultipartKind::Mixed | MultipartKind::Digest) => {
            let mut all = Bodies::default();
            for (at, child) in tree.children(number).enumerate() {
                let place = if at == 0 { PartPosition::First } else { PartPosition::Later };
                let of_child = of_part(tree, child, place);
                all.text.extend(of_child.text);
                all.html.extend(of_child.html);
            }
            all
        }
    }
}

/// Selects, once for text and once for HTML, the last alternative that can be shown, which is the preferred
/// one (RFC 2046, 5.1.4).
fn of_versions(tree: &Tree, number: usize) -> Bodies {
    let versions: Vec<Bodies> =
        tree.children(number).map(|child| of_part(tree, child, PartPosition::Version)).collect();
    let has_html = |parts: &[usize]| parts.iter().any(|part| tree.parts[*part].is_html());
    let is_plain = |parts: &[usize]| parts.iter().all(|part| tree.parts[*part].media_type == "text/plain");
    let last = |fits: &dyn Fn(&[usize]) -> bool| {
        versions.iter().rev().find(|version| !version.text.is_empty() && fits(&version.text))
    };
    let html = versions.iter().rev().find(|version| has_html(&version.html));
    let text = last(&|parts| is_plain(parts)).or_else(|| last(&|parts| !has_html(parts))).or(html);
    Bodies {
        text: text.map(|version| version.text.clone()).unwrap_or_default(),
        html: html.or(text).map(|version| version.html.clone()).unwrap_or_default(),
    }
}

/// Returns the root of a `multipart/related`: the part that `start` names, otherwise the first of the type
/// that `type` names, otherwise the first that can be shown. The root need not come first (RFC 2387, 3.2).
fn root(tree: &Tree, number: usize) -> Option<usize> {
    let part = &tree.parts[number];
    let named = part.start.as_ref().and_then(|start| {
        tree.children(number).find(|child| tree.parts[*child].content_id.as_ref() == Some(start))
    });
    let typed = || {
        let root_type = part.root_type.as_deref()?;
        tree.children(number).find(|child| tree.parts[*child].media_type == root_type)
    };
    let shown = || {
        tree.children(number).find(|child| {
            let child = &tree.parts[*child];
            child.kind != Kind::Leaf || is_body(child, PartPosition::First)
        })
    };
    named.or_else(typed).or_else(shown)
}

/// Returns whether a part is shown as body text at its position.
fn is_body(part: &Part, place: PartPosition) -> bool {
    let kind = &*part.media_type;
    let is_text = kind == "text/plain" || part.is_html() || is_written_text(kind);
    if part.disposition == Disposition::Attachment {
        return false;
    }
    match place {
        PartPosition::Alone => is_text || kind.starts_with("text/") || is_data(kind),
        PartPosition::First => is_text || (is_data(kind) && part.filename.is_none()),
        PartPosition::Later => is_text && part.filename.is_none(),
        PartPosition::Version => is_text,
    }
}

/// Returns whether a type is plain text with light markup, readable as it is.
fn is_written_text(kind: &str) -> bool {
    matches!(
        kind,
        "text/markdown" | "text/x-markdown" | "text/x-web-markdown" | "text/enriched" | "text/richtext"
    )
}

/// Returns whether a type is structured data that programs send as a mail's text.
fn is_data(kind: &str) -> bool {
    let is_text =
        matches!(kind, "application/json" | "application/xml" | "application/yaml" | "application/x-yaml");
    is_text || kind.ends_with("+json") || (kind.ends_with("+xml") && kind.starts_with("application/"))
}

/// Returns whether a part counts as attached, as in Mailpit: its head says so, or it is of unknown type.
/// Alternatives of the text, the parts of a bounce and inline parts are not attached.
pub(super) fn is_attached(part: &Part) -> bool {
    part.disposition == Disposition::Attachment
        || (part.disposition == Disposition::None && part.media_type == "application/octet-stream")
}

impl Part {
    pub(super) fn is_html(&self) -> bool {
        matches!(&*self.media_type, "text/html" | "application/xhtml+xml")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bodies as text and as HTML, and the other leaves.
    fn seen(raw: &str) -> [Vec<String>; 3] {
        let tree = Tree::of(raw.as_bytes(), &super::super::StepLimit::default()).unwrap();
        let bodies = of(&tree);
        let words = |part: &usize| raw[tree.parts[*part].body.clone()].trim().to_owned();
        let others = (0..tree.parts.len()).filter(|part| {
            tree.parts[*part].kind == Kind::Leaf && !bodies.text.contains(part) && !bodies.html.contains(part)
        });
        let others = others.map(|part| words(&part)).collect();
        [bodies.text.iter().map(words).collect(), bodies.html.iter().map(words).collect(), others]
    }

    fn part(head: &str, body: &str) -> String {
        format!("Content-Type: {head}\r\n\r\n{body}\r\n")
    }

    fn multipart(kind: &str, parts: &[String]) -> String {
        let boundary = kind.replace(|c: char| !c.is_ascii_alphanumeric(), "");
        let parts: String = parts.iter().map(|part| format!("--{boundary}\r\n{part}")).collect();
        format!("Content-Type: multipart/{kind}; boundary={boundary}\r\n\r\n{parts}--{boundary}--\r\n")
    }

    #[test]
    fn the_body_is_found_where_senders_put_it() {
        let [plain, html] = [part("text/plain", "plain"), part("text/html", "html")];
        let pdf = part("application/pdf\r\nContent-Disposition: inline; filename=a.pdf", "pdf");
        let invite = part("text/calendar; method=REQUEST", "invite");
        let one_two = multipart("mixed", &[part("text/html", "one"), pdf.clone(), part("text/html", "two")]);
        let bounce =
            [plain.clone(), part("message/delivery-status", "status"), part("message/rfc822", "mail")];
        let png = part("image/png\r\nContent-ID: <p@x>", "png");
        let late = part("text/html\r\nContent-ID: <root@x>", "html");
        let cases = [
            (part("text/html\r\nContent-Disposition: inline", "html"), ["html", "html", ""]),
            (
                multipart("mixed", &[part("text/html\r\nContent-Disposition: inline", "html")]),
                ["html", "html", ""],
            ),
            (
                multipart("alternative", &[plain.clone(), html.clone(), invite.clone()]),
                ["plain", "html", "invite"],
            ),
            (multipart("alternative", &[plain.clone(), invite]), ["plain", "plain", "invite"]),
            (multipart("alternative", &[plain.clone(), one_two]), ["plain", "one two", "pdf"]),
            (
                multipart("alternative", &[plain.clone(), part("text/x-amp-html", "amp"), html.clone()]),
                ["plain", "html", "amp"],
            ),
            (multipart("report", &bounce), ["plain", "plain", "status mail"]),
            (multipart("related; start=\"<root@x>\"", &[png.clone(), late.clone()]), ["html", "html", "png"]),
            (multipart("related; type=\"text/html\"", &[png.clone(), late.clone()]), ["html", "html", "png"]),
            (multipart("related", &[png.clone(), late]), ["html", "html", "png"]),
            (multipart("mixed", &[plain.clone(), html.clone()]), ["plain html", "plain html", ""]),
            (part("text/markdown", "mark"), ["mark", "mark", ""]),
            (part("application/json; charset=utf-8", "{}"), ["{}", "{}", ""]),
            (
                multipart("mixed", &[plain.clone(), part("text/plain; name=a.txt", "file")]),
                ["plain", "plain", "file"],
            ),
            (part("text/plain\r\nContent-Disposition: attachment", "file"), ["", "", "file"]),
            (multipart("alternative", &[html, part("text/markdown", "mark")]), ["mark", "html", ""]),
        ];
        for (raw, expected) in cases {
            assert_eq!(seen(&raw).map(|parts| parts.join(" ")), expected, "{raw}");
        }
    }
}
