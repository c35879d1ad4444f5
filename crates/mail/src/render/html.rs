//! A mail's HTML, shown as it was sent and made harmless.
//!
//! ```text
//!  source ─▶ tree (the browser's own rules, within bounds) ─▶ a walk: each node kept, opened up or dropped ─▶ a document
//!                                                               ├▶ css: style sheets and attributes
//!                                                               └▶ sources: pictures
//! ```
//! Three walls, each of which is enough alone:
//! - only listed elements and attributes are written, and every `<` of the document is one that opens or closes a listed
//!   element: texts and values are escaped, style sheets have none that is not parted from what follows. So however a
//!   browser reads the document, it finds no element and no attribute that is not listed;
//! - the frame that it is shown in is sandboxed and runs no scripts;
//! - the frame's Content-Security-Policy lets it fetch nothing but the mail's own pictures, or after the reader asked for
//!   it pictures only.

use std::collections::HashMap;

use html5ever::{Attribute, QualName, interface::QuirksMode, ns};

use super::{
    StepLimit,
    cost::{self, HtmlLimit},
    css::{Css, CssLimit},
    cut,
    lists::{self, Element, RemovalReason},
    sources::{RemoteHost, Source, Sources, is_one_of, scheme},
    tree::{Content, Id, Step, Tree},
};

/// Of longer HTML only the beginning is cleaned and shown.
pub const HTML_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Hosts that are named as sources of blocked content; the rest is counted.
const HOSTS_MAX: usize = 20;
/// Pixels of the box that stands for a picture.
const BOX_PIXELS_MAX: u32 = 4_000;
/// Of the words in it.
const BOX_WORDS_BYTES_MAX: usize = 120;
/// Of all drawn boxes of a mail; further ones are not drawn.
const BOXES_BYTES_MAX: usize = 256 * 1024;

/// Steps that a node costs beside its bytes.
const STEPS_A_NODE: usize = 16;

/// Whether the frame may fetch what the mail names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RemoteContent {
    /// Not before the reader asks: a fetched image tells the sender that and where the mail was read.
    #[default]
    Blocked,
    /// The reader asked.
    Loaded,
}

/// How HTML is to be shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct DisplayOptions<'a> {
    /// Whether what others have is fetched.
    pub remote: RemoteContent,
    /// In the dark: by the mail's own rules for it, or its colours turned round where it has none.
    pub dark: bool,
    /// The path below which the mail's attachments are, `PART/NAME`.
    pub pictures: &'a str,
}

/// HTML that can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SanitizedHtml {
    /// A document. Empty if it is over a bound.
    pub html: String,
    /// How many remote items the mail names that can be fetched on request.
    pub remote_items: usize,
    /// The hosts that they would come from, each once, at most `HOSTS_MAX`.
    pub remote_hosts: Vec<String>,
    /// What is not shown.
    pub taken: RemovedCounts,
    /// Only the beginning is there.
    pub cut: bool,
    /// RemovalReason it is not shown.
    pub over: Option<HtmlLimit>,
    /// RemovalReason a part of its style sheets is left out.
    pub css_over: Option<CssLimit>,
    /// The mail has colours of its own for the dark.
    pub has_dark: bool,
}

/// What was taken out, by how many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovedCounts {
    /// Scripts, and attributes and links that run one.
    pub scripts: usize,
    /// Forms and their fields.
    pub forms: usize,
    /// Frames, plug-ins, sound, video and drawings.
    pub embedded: usize,
    /// Fonts to be fetched.
    pub fonts: usize,
    /// Style sheets to be fetched.
    pub imports: usize,
    /// Declarations and rules that fetch, ran something, or are not known.
    pub styles: usize,
    /// Orders to go elsewhere.
    pub redirects: usize,
}

impl RemovedCounts {
    /// "2 scripts", "1 form": what there was any of.
    #[must_use]
    pub fn in_words(&self) -> Vec<String> {
        let counted = [
            (self.scripts, "script", "scripts"),
            (self.forms, "part of a form", "parts of forms"),
            (self.embedded, "embedded object", "embedded objects"),
            (self.fonts, "web font", "web fonts"),
            (self.imports, "linked style sheet", "linked style sheets"),
            (self.styles, "style that loads or runs", "styles that load or run"),
            (self.redirects, "redirection", "redirections"),
        ];
        let some = counted.iter().filter(|(n, ..)| *n > 0);
        some.map(|(n, one, many)| format!("{n} {}", if *n == 1 { one } else { many })).collect()
    }

    fn count(&mut self, why: RemovalReason) {
        match why {
            RemovalReason::Script => self.scripts += 1,
            RemovalReason::Form => self.forms += 1,
            RemovalReason::Embedded => self.embedded += 1,
            RemovalReason::Import => self.imports += 1,
            RemovalReason::Redirect => self.redirects += 1,
            RemovalReason::Nothing => {}
        }
    }

    fn add(&mut self, other: Self) {
        self.fonts += other.fonts;
        self.imports += other.imports;
        self.styles += other.styles;
    }
}

impl SanitizedHtml {
    /// The policy that the frame is served under. Its origin is ours, so that our page can read how high it is and its
    /// pictures are of one site; that is safe as long as no script runs in it, which three things see to (decision 051).
    #[must_use]
    pub fn content_security_policy(remote: RemoteContent) -> &'static str {
        match remote {
            RemoteContent::Blocked => {
                "default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; base-uri 'none'; \
                 form-action 'none'; frame-ancestors 'self'; \
                 sandbox allow-same-origin allow-popups allow-popups-to-escape-sandbox"
            }
            RemoteContent::Loaded => {
                "default-src 'none'; img-src 'self' data: https: http:; style-src 'unsafe-inline'; base-uri 'none'; \
                 form-action 'none'; frame-ancestors 'self'; \
                 sandbox allow-same-origin allow-popups allow-popups-to-escape-sandbox"
            }
        }
    }
}

/// What the document brings itself, in front of the mail's head. Nothing moves for who wants it so.
const HEAD: &str = "<meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\"><base target=\"_blank\"><style>\
    html{color-scheme:light}\
    @media (prefers-reduced-motion:reduce){*{animation:none!important;transition:none!important}}</style>";
/// In front of it, in the dark, where the mail has no rules for it. Pictures are turned back.
const TURNED: &str = "<style>html{background:#fff;filter:invert(1) hue-rotate(180deg)}\
    img:not([blocked]){filter:invert(1) hue-rotate(180deg)}</style>";
/// Where it has.
const DARK: &str = "<style>html{color-scheme:dark}</style>";

/// Cleans. `pictures` are Content-IDs, and the paths of what they name.
#[must_use]
pub fn clean(
    source: &str,
    how: &DisplayOptions<'_>,
    pictures: HashMap<String, String>,
    until: &StepLimit,
) -> SanitizedHtml {
    let shown = cut(source, HTML_BYTES_MAX);
    let sources = Sources::new(how.remote, pictures);
    let mut writer = Writer::new(&sources, how.dark, shown.len());
    let written = cost::check(shown, until).and_then(|()| {
        let tree = Tree::parse(shown, until)?;
        writer.write(&tree, until)
    });
    writer.into_clean(written, shown.len() < source.len())
}

/// A document under way.
struct Writer<'a> {
    out: String,
    /// Where the head's own lines end, for what is known only in the end.
    head_end: usize,
    css: Css<'a>,
    sources: &'a Sources,
    dark: bool,
    taken: RemovedCounts,
    remote_items: usize,
    remote_hosts: Vec<String>,
    boxes_bytes: usize,
}

impl<'a> Writer<'a> {
    fn new(sources: &'a Sources, dark: bool, bytes: usize) -> Self {
        Self {
            out: String::with_capacity(HEAD.len() + bytes + bytes / 16),
            head_end: 0,
            css: Css::new(sources, dark),
            sources,
            dark,
            taken: RemovedCounts::default(),
            remote_items: 0,
            remote_hosts: Vec::new(),
            boxes_bytes: 0,
        }
    }

    fn into_clean(mut self, written: Result<(), HtmlLimit>, cut: bool) -> SanitizedHtml {
        let has_dark = self.css.has_dark;
        if self.dark && written.is_ok() {
            self.out.insert_str(self.head_end, if has_dark { DARK } else { TURNED });
        }
        self.taken.add(self.css.taken);
        SanitizedHtml {
            html: if written.is_ok() { self.out } else { String::new() },
            remote_items: self.remote_items,
            remote_hosts: self.remote_hosts,
            taken: self.taken,
            cut,
            over: written.err(),
            css_over: self.css.over,
            has_dark,
        }
    }

    fn write(&mut self, tree: &Tree, until: &StepLimit) -> Result<(), HtmlLimit> {
        // The mode says how high a line is and what a table takes over: it is part of what was sent.
        self.out.push_str(match tree.quirks {
            QuirksMode::NoQuirks => "<!doctype html>",
            QuirksMode::LimitedQuirks => {
                "<!doctype html public \"-//W3C//DTD XHTML 1.0 Transitional//EN\" \
                 \"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd\">"
            }
            QuirksMode::Quirks => "",
        });
        tree.walk(|step| {
            until.pay(STEPS_A_NODE)?;
            match step {
                Step::Into(id, node) => {
                    until.pay(bytes_of(tree, id, &node.content))?;
                    Ok(self.into(tree, id, &node.content))
                }
                Step::OutOf(node) => {
                    if let Content::Element { name, .. } = &node.content
                        && let Element::Kept { void: false } = element(name)
                    {
                        self.out.push_str("</");
                        self.out.push_str(&name.local);
                        self.out.push('>');
                    }
                    Ok(true)
                }
            }
        })
    }

    /// Whether its children are wanted.
    fn into(&mut self, tree: &Tree, id: Id, content: &Content) -> bool {
        let (name, attributes) = match content {
            Content::Nothing => return true,
            Content::Text(text) => {
                escape_text(text, &mut self.out);
                return true;
            }
            Content::Element { name, attributes, .. } => (name, attributes),
        };
        match element(name) {
            Element::Kept { .. } => {}
            Element::Opened(why) => {
                self.taken.count(why);
                self.running_attributes(attributes);
                return true;
            }
            Element::Dropped(why) => {
                self.taken.count(dropped(name, attributes, why));
                return false;
            }
            Element::Style => {
                self.style(&tree.text_of(id), attributes);
                return false;
            }
        }
        self.out.push('<');
        self.out.push_str(&name.local);
        self.attributes(&name.local, attributes);
        self.out.push('>');
        match &*name.local {
            "head" => {
                self.out.push_str(HEAD);
                self.head_end = self.out.len();
            }
            // The first line end in there is not read.
            "pre" | "listing" if tree.begins_with(id, '\n') => self.out.push('\n'),
            _ => {}
        }
        true
    }

    fn style(&mut self, text: &str, attributes: &[Attribute]) {
        let value =
            |name: &str| attributes.iter().find(|own| *own.name.local == *name).map(|own| &*own.value);
        if value("type").is_some_and(|kind| !kind.is_empty() && !kind.trim().eq_ignore_ascii_case("text/css"))
        {
            return;
        }
        self.out.push_str("<style");
        if let Some(media) = value("media") {
            // What cannot be told holds never.
            let media = self.css.media(media).unwrap_or_else(|| "not all".to_owned());
            self.attribute("media", &media);
        }
        self.out.push('>');
        self.css.sheet(text, &mut self.out);
        self.out.push_str("</style>");
        self.take_seen();
    }

    fn attributes(&mut self, element: &str, attributes: &[Attribute]) {
        let (mut link, mut within) = (false, false);
        for Attribute { name, value } in attributes {
            if name.ns != ns!() {
                continue;
            }
            let name = &*name.local;
            if name.starts_with("on") {
                self.taken.scripts += 1;
                continue;
            }
            if !lists::has_attribute(element, name) {
                continue;
            }
            match name {
                "href" => match target(value) {
                    Target::Elsewhere(target) => {
                        self.attribute(name, target);
                        link = true;
                    }
                    Target::Within(target) => {
                        self.attribute(name, target);
                        within = true;
                    }
                    Target::Script => self.taken.scripts += 1,
                    Target::Nothing => {}
                },
                "src" | "background" => self.source(element, name, value, attributes),
                "usemap" if !value.starts_with('#') => {}
                "style" => {
                    if let Some(style) = self.css.attribute(value) {
                        self.attribute(name, &style);
                    }
                    self.take_seen();
                }
                _ => self.attribute(name, value),
            }
        }
        if link {
            self.out.push_str(" target=\"_blank\" rel=\"noopener noreferrer nofollow\"");
        } else if within {
            self.out.push_str(" target=\"_self\"");
        }
    }

    fn source(&mut self, element: &str, name: &str, value: &str, attributes: &[Attribute]) {
        let is_picture = element == "img";
        let sources = self.sources;
        match sources.of(value) {
            Source::Kept(url) => self.attribute(name, &url),
            Source::Remote(url) => {
                self.see(RemoteHost::of(&url));
                self.attribute(name, &url);
            }
            Source::Blocked => {
                self.see(RemoteHost::of(value));
                if is_picture {
                    self.quiet_box(attributes);
                }
            }
            Source::Nothing if is_picture => self.quiet_box(attributes),
            Source::Nothing => {}
        }
    }

    /// In the place of a picture that is not shown.
    fn quiet_box(&mut self, attributes: &[Attribute]) {
        // No page of ours, and none of a mail's, has such an attribute else.
        self.out.push_str(" blocked=\"\"");
        let drawn = quiet_box(attributes);
        self.boxes_bytes += drawn.len();
        self.attribute("src", if self.boxes_bytes > BOXES_BYTES_MAX { "data:," } else { &drawn });
    }

    /// Of an element that is not written itself.
    fn running_attributes(&mut self, attributes: &[Attribute]) {
        self.taken.scripts += attributes.iter().filter(|own| own.name.local.starts_with("on")).count();
    }

    fn attribute(&mut self, name: &str, value: &str) {
        self.out.push(' ');
        self.out.push_str(name);
        self.out.push_str("=\"");
        escape_value(value, &mut self.out);
        self.out.push('"');
    }

    fn take_seen(&mut self) {
        for seen in std::mem::take(&mut self.css.seen) {
            self.see(seen);
        }
    }

    fn see(&mut self, RemoteHost(host): RemoteHost) {
        self.remote_items += 1;
        if self.remote_hosts.len() < HOSTS_MAX && !self.remote_hosts.contains(&host) {
            self.remote_hosts.push(host);
        }
    }
}

/// Bytes that are read for a node, without its children. A style sheet's text counts three times, because it is read
/// three times.
fn bytes_of(tree: &Tree, id: Id, content: &Content) -> usize {
    match content {
        Content::Nothing => 0,
        Content::Text(text) => text.len(),
        Content::Element { name, attributes, .. } => {
            let sheet = if element(name) == Element::Style { 3 * tree.text_bytes_of(id) } else { 0 };
            sheet + attributes.iter().map(|own| own.name.local.len() + own.value.len()).sum::<usize>()
        }
    }
}

/// A drawing as high and as wide as the picture says that it is, with its words: the mail is laid out as with it. Of one
/// that says neither and has no words, and of one that nobody would see, there is nothing to be drawn.
fn quiet_box(attributes: &[Attribute]) -> String {
    let value =
        |name: &str| attributes.iter().find(|own| *own.name.local == *name).map_or("", |own| &own.value);
    // Part of a line is not known in pixels.
    let pixels = |name: &str| {
        let value = value(name).trim();
        let digits = value.bytes().take_while(u8::is_ascii_digit).count();
        let known = digits > 0 && !value.ends_with('%');
        known.then(|| value[..digits].parse::<u32>().unwrap_or(BOX_PIXELS_MAX).min(BOX_PIXELS_MAX))
    };
    let (width, height) = (pixels("width"), pixels("height"));
    let words = cut(value("alt").trim(), BOX_WORDS_BYTES_MAX);
    let unseen = width.is_some_and(|n| n < 4) || height.is_some_and(|n| n < 4);
    if unseen || (width.is_none() && height.is_none() && words.is_empty()) {
        return format!(
            "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='{}' height='{}'/%3E",
            width.unwrap_or(1),
            height.unwrap_or(1)
        );
    }
    let width = width.unwrap_or_else(|| 24 + 8 * words.chars().count() as u32);
    let mut escaped = String::new();
    escape(words, &mut escaped);
    let words = percent_encoding::utf8_percent_encode(&escaped, percent_encoding::NON_ALPHANUMERIC);
    format!(
        "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{}'%3E\
         %3Crect width='100%25' height='100%25' fill='%23f4f3ee' stroke='%23b9b4a6' stroke-width='2' \
         stroke-dasharray='4 3'/%3E%3Ctext x='8' y='20' font-family='system-ui,sans-serif' font-size='13' \
         fill='%23596079'%3E{words}%3C/text%3E%3C/svg%3E",
        height.unwrap_or(32),
    )
}

/// What becomes of an element.
fn element(name: &QualName) -> Element {
    if name.ns == ns!(html) { lists::element(&name.local) } else { Element::Dropped(RemovalReason::Embedded) }
}

/// Some are dropped for what their attributes say.
fn dropped(name: &QualName, attributes: &[Attribute], why: RemovalReason) -> RemovalReason {
    let is = |attribute: &str, word: &str| {
        let own = attributes.iter().find(|own| *own.name.local == *attribute);
        own.is_some_and(|own| own.value.split_ascii_whitespace().any(|own| own.eq_ignore_ascii_case(word)))
    };
    match &*name.local {
        "link" if is("rel", "stylesheet") => RemovalReason::Import,
        "meta" if is("http-equiv", "refresh") => RemovalReason::Redirect,
        _ => why,
    }
}

/// Where a link goes.
enum Target<'v> {
    Elsewhere(&'v str),
    /// In the same document.
    Within(&'v str),
    Script,
    Nothing,
}

fn target(href: &str) -> Target<'_> {
    let href = href.trim();
    match scheme(href) {
        _ if href.starts_with('#') => Target::Within(href),
        Some(scheme) if is_one_of(scheme, &["http", "https", "mailto", "tel"]) => Target::Elsewhere(href),
        Some(scheme) if is_one_of(scheme, &["javascript", "vbscript"]) => Target::Script,
        _ => Target::Nothing,
    }
}

/// A text as a document that shows it as it stands.
#[must_use]
pub fn of_text(text: &str) -> String {
    let mut html = String::with_capacity(HEAD.len() + text.len() + text.len() / 8 + 64);
    html.push_str("<!doctype html><html><head>");
    html.push_str(HEAD);
    html.push_str("</head><body><pre style=\"white-space:pre-wrap\">");
    escape(text, &mut html);
    html.push_str("</pre></body></html>");
    html
}

/// A text where HTML is: nothing in it is a tag, an entity or the end of a quoted value.
pub(crate) fn escape(text: &str, html: &mut String) {
    for character in text.chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            '\0' => html.push('\u{fffd}'),
            c => html.push(c),
        }
    }
}

/// Between tags.
fn escape_text(text: &str, html: &mut String) {
    let mut rest = text;
    while let Some(at) = memchr::memchr3(b'&', b'<', b'>', rest.as_bytes()) {
        html.push_str(&rest[..at]);
        html.push_str(entity(rest.as_bytes()[at]));
        rest = &rest[at + 1..];
    }
    html.push_str(rest);
}

/// Between double quotes. Angle brackets mean nothing there, and are escaped for who reads it with less care.
fn escape_value(value: &str, html: &mut String) {
    let special = |byte: &u8| matches!(byte, b'&' | b'<' | b'>' | b'"');
    // Most have none. Looked for to the end, it is done with many bytes at a time.
    if !value.as_bytes().iter().fold(false, |any, byte| any | special(byte)) {
        html.push_str(value);
        return;
    }
    let mut rest = value;
    while let Some(at) = rest.as_bytes().iter().position(special) {
        html.push_str(&rest[..at]);
        html.push_str(entity(rest.as_bytes()[at]));
        rest = &rest[at + 1..];
    }
    html.push_str(rest);
}

fn entity(byte: u8) -> &'static str {
    match byte {
        b'&' => "&amp;",
        b'<' => "&lt;",
        b'>' => "&gt;",
        _ => "&quot;",
    }
}

/// Types that a browser shows as a picture and never runs; SVG is none of them.
#[must_use]
pub fn is_image(content_type: &str) -> bool {
    matches!(
        content_type,
        "image/png" | "image/jpeg" | "image/jpg" | "image/gif" | "image/webp" | "image/bmp" | "image/avif"
    )
}

/// Returns the type as which a part is drawn where the mail names it as a picture: its own, or the one that the end of its
/// name tells of bytes of no known type. An SVG is drawn by `<img>` as any picture, which runs no script and fetches nothing (SVG 2, 2.5).
pub(crate) fn picture_type(attachment: &super::Attachment) -> Option<&str> {
    match &*attachment.content_type {
        kind if is_image(kind) || kind == "image/svg+xml" => Some(kind),
        "application/octet-stream" => {
            let (_, end) = attachment.filename.rsplit_once('.')?;
            Some(match &*end.to_ascii_lowercase() {
                "png" => "image/png",
                "jpg" | "jpeg" => "image/jpeg",
                "gif" => "image/gif",
                "webp" => "image/webp",
                "bmp" => "image/bmp",
                "avif" => "image/avif",
                "svg" => "image/svg+xml",
                _ => return None,
            })
        }
        _ => None,
    }
}

/// The paths of the mail's own pictures, by their Content-IDs.
pub(super) fn pictures<'a>(
    attachments: impl Iterator<Item = &'a super::Attachment>,
    below: &str,
) -> HashMap<String, String> {
    let named = attachments.filter(|attachment| picture_type(attachment).is_some());
    let path = |attachment: &super::Attachment| {
        let name =
            percent_encoding::utf8_percent_encode(&attachment.filename, percent_encoding::NON_ALPHANUMERIC);
        // A browser draws what is named a picture only if it is sent as one.
        let as_picture = if is_image(&attachment.content_type) { "" } else { "?picture=1" };
        format!("{below}/{}/{name}{as_picture}", attachment.part)
    };
    let mut pictures = HashMap::new();
    for attachment in named {
        if let Some(id) = &attachment.content_id {
            // The first of a name.
            pictures.entry(id.clone()).or_insert_with(|| path(attachment));
        }
    }
    pictures
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_and_texts_are_escaped_sign_by_sign(text in "[a-c&<>\"'é ]{0,80}") {
            let escaped = |escaped: &[u8]| -> String {
                let signs = text.chars().map(|sign| match u8::try_from(sign) {
                    Ok(byte) if escaped.contains(&byte) => entity(byte).to_owned(),
                    _ => sign.to_string(),
                });
                signs.collect()
            };
            let [mut value, mut between] = [String::new(), String::new()];
            escape_value(&text, &mut value);
            escape_text(&text, &mut between);
            prop_assert_eq!(value, escaped(b"&<>\""));
            prop_assert_eq!(between, escaped(b"&<>"));
        }
    }
}
