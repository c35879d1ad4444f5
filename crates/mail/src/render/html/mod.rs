//! Sanitizer of a mail's HTML: shows the mail as it was sent, without anything harmful.
//!
//! ```text
//!  source ─▶ tree (the browser's own rules, within bounds) ─▶ a walk: each node kept, unwrapped or dropped ─▶ a document
//!                                                               ├▶ css: style sheets and attributes
//!                                                               └▶ sources: pictures
//! ```
//! There are three defences, each of which is sufficient on its own:
//! - only listed elements and attributes are written, and every `<` of the document opens or closes a
//!   listed element: texts and values are escaped, and a `<` in a style sheet is followed by a blank. No browser can
//!   therefore find other elements or attributes in the document;
//! - the frame that shows the document is sandboxed and runs no scripts;
//! - the frame's Content-Security-Policy allows it to fetch only the mail's own pictures, or only pictures
//!   after the reader asked for remote content.

mod document;
mod escape;
mod pictures;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use html5ever::{Attribute, QualName, interface::QuirksMode, ns};

use super::{
    StepLimit,
    cost::{self, HtmlLimit},
    css::Css,
    cut,
    lists::{self, Element, RemovalReason},
    sources::{RemoteHost, Source, Sources, is_one_of, scheme},
    tree::{Content, Id, Step, Tree},
};

pub use document::{DisplayOptions, RemoteContent, RemovedCounts, SanitizedHtml};
use escape::{HEAD, escape_text, escape_value};
pub(crate) use escape::{escape, of_text};
pub use pictures::is_image;
pub(crate) use pictures::picture_type;
pub(super) use pictures::pictures;

/// Maximum number of bytes at the beginning of the HTML that are sanitized and shown.
pub const HTML_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Maximum number of hosts that are named as sources of blocked content; further ones are only counted.
const HOSTS_MAX: usize = 20;
/// Largest width or height, in pixels, of the box drawn in place of a picture.
const BOX_PIXELS_MAX: u32 = 4_000;
/// Maximum number of bytes of alternative text drawn in a box.
const BOX_WORDS_BYTES_MAX: usize = 120;
/// Maximum total size of the boxes drawn for a mail, in bytes; further ones are not drawn.
const BOXES_BYTES_MAX: usize = 256 * 1024;

/// Steps charged for a node in addition to its bytes.
const STEPS_A_NODE: usize = 16;

/// Added in dark mode if the mail has no dark rules: inverts all colours, and inverts pictures back.
const TURNED: &str = "<style>html{background:#fff;filter:invert(1) hue-rotate(180deg)}\
    img:not([blocked]){filter:invert(1) hue-rotate(180deg)}</style>";
/// Added in dark mode if the mail has dark rules.
const DARK: &str = "<style>html{color-scheme:dark}</style>";

/// Sanitizes HTML. `pictures` maps Content-IDs to paths.
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

/// Writer of the sanitized document.
struct Writer<'a> {
    out: String,
    /// End of our own head content, where text that is known only after the walk is inserted.
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
        // Quirks mode affects line heights and inheritance into tables, so the mode is kept as sent.
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

    /// Writes the beginning of a node. Returns whether its children are to be visited.
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
            // Parsers skip the first line end in these elements, so one is added.
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
            // An invalid condition never holds.
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

    /// Writes a box in place of a picture that is not shown.
    fn quiet_box(&mut self, attributes: &[Attribute]) {
        // Neither our pages nor mails use this attribute for anything else.
        self.out.push_str(" blocked=\"\"");
        let drawn = quiet_box(attributes);
        self.boxes_bytes += drawn.len();
        self.attribute("src", if self.boxes_bytes > BOXES_BYTES_MAX { "data:," } else { &drawn });
    }

    /// Counts the script attributes of an element that is not written.
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

/// Returns the bytes read for a node, without its children. The text of a style sheet counts three times,
/// because it is read three times.
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

/// Returns a drawing of the picture's stated width and height with its alternative text, so that the layout
/// stays. Without size and text, or if the picture is invisibly small, the drawing is empty.
fn quiet_box(attributes: &[Attribute]) -> String {
    let value =
        |name: &str| attributes.iter().find(|own| *own.name.local == *name).map_or("", |own| &own.value);
    // A percentage has no size in pixels.
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

/// Returns how an element is handled.
fn element(name: &QualName) -> Element {
    if name.ns == ns!(html) { lists::element(&name.local) } else { Element::Dropped(RemovalReason::Embedded) }
}

/// Returns the reason for a removal, which for some elements depends on their attributes.
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

/// Target of a link.
enum Target<'v> {
    Elsewhere(&'v str),
    /// A place in the same document.
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
