//! A mail's HTML, made harmless.
//!
//! Three walls, each of which is enough alone: only listed elements, attributes and style properties pass (ammonia, on
//! the browser's own parsing rules); the frame it is shown in is sandboxed, without scripts and with an origin of its
//! own; and the frame's Content-Security-Policy lets it fetch nothing, or after the reader asked for it images only.

use std::{
    borrow::Cow,
    collections::HashSet,
    io,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
};

use ammonia::{Builder, UrlRelative};
use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::{
    Until,
    cost::{self, Over},
    cut,
};

/// Of longer HTML only the beginning is cleaned and shown.
pub const HTML_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Images of the mail itself that are shown in its HTML, in all, however often it shows the same.
pub const INLINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Hosts that are named as sources of blocked content; the rest is counted.
const HOSTS_MAX: usize = 20;

/// Whether the frame may fetch what the mail names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remote {
    /// Not before the reader asks: a fetched image tells the sender that and where the mail was read.
    Blocked,
    /// The reader asked.
    Loaded,
}

/// HTML that can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clean {
    /// Cleaned; the children of a body. Empty if it is over a bound.
    pub html: String,
    /// How many remote items the mail names.
    pub remote_items: usize,
    /// The hosts that they would come from, each once, at most `HOSTS_MAX`.
    pub remote_hosts: Vec<String>,
    /// Only the beginning is there.
    pub cut: bool,
    /// Why it is not shown.
    pub over: Option<Over>,
    /// Images of the mail itself are missing, because it shows more than [`INLINE_BYTES_MAX`] of them.
    pub images_cut: bool,
}

impl Clean {
    /// The policy that the frame is served under.
    #[must_use]
    pub fn content_security_policy(remote: Remote) -> &'static str {
        match remote {
            Remote::Blocked => {
                "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; \
                 form-action 'none'; frame-ancestors 'self'; sandbox allow-popups allow-popups-to-escape-sandbox"
            }
            Remote::Loaded => {
                "default-src 'none'; img-src data: https: http:; style-src 'unsafe-inline'; base-uri 'none'; \
                 form-action 'none'; frame-ancestors 'self'; sandbox allow-popups allow-popups-to-escape-sandbox"
            }
        }
    }
}

/// Cleans. `images` are Content-IDs and the `data:` URLs of what they name.
#[must_use]
pub fn clean(source: &str, remote: Remote, images: Vec<(String, String)>, until: &Until) -> Clean {
    let shown = cut(source, HTML_BYTES_MAX);
    let mut clean = Clean {
        html: String::new(),
        remote_items: 0,
        remote_hosts: Vec::new(),
        cut: shown.len() < source.len(),
        over: cost::check(shown, until).err(),
        images_cut: false,
    };
    if clean.over.is_some() {
        return clean;
    }
    // What the filter sees goes through a channel, because it must not borrow. Bounded by the attributes.
    let (tell, seen) = mpsc::channel();
    let images = Images { urls: images, bytes_left: AtomicUsize::new(INLINE_BYTES_MAX) };
    let mut builder = policy();
    builder.attribute_filter(move |element, attribute, value| {
        let kept = attribute_value(element, attribute, value, remote, &images);
        // The receiver outlives the builder.
        match kept {
            Kept::Remote(_) | Kept::DroppedRemote => _ = tell.send(Seen::Remote(host(value))),
            Kept::DroppedImage => _ = tell.send(Seen::ImageCut),
            Kept::As(_) | Kept::Dropped => {}
        }
        match kept {
            Kept::As(value) | Kept::Remote(value) => Some(value),
            Kept::Dropped | Kept::DroppedRemote | Kept::DroppedImage => None,
        }
    });
    match builder.clean_from_reader(Pieces { rest: shown.as_bytes(), until }) {
        Ok(document) => clean.html = document.to_string(),
        Err(_) => clean.over = Some(Over::Time),
    }
    drop(builder);
    for seen in seen.try_iter() {
        match seen {
            Seen::ImageCut => clean.images_cut = true,
            Seen::Remote(host) => {
                clean.remote_items += 1;
                if !clean.remote_hosts.contains(&host) && clean.remote_hosts.len() < HOSTS_MAX {
                    clean.remote_hosts.push(host);
                }
            }
        }
    }
    clean
}

/// What the filter came across.
enum Seen {
    Remote(String),
    ImageCut,
}

/// Images of the mail itself.
struct Images {
    /// Content-IDs and `data:` URLs.
    urls: Vec<(String, String)>,
    /// Of those URLs, how much may still be put in. Atomic because the filter must be of any thread; it is of one.
    bytes_left: AtomicUsize,
}

impl Images {
    fn put(&self, id: &str) -> Kept<'static> {
        let Some((_, url)) = self.urls.iter().find(|(name, _)| *name == id) else { return Kept::Dropped };
        let left = self.bytes_left.load(Ordering::Relaxed);
        let Some(left) = left.checked_sub(url.len()) else { return Kept::DroppedImage };
        self.bytes_left.store(left, Ordering::Relaxed);
        Kept::As(Cow::Owned(url.clone()))
    }
}

/// The source in pieces, until it is said to be enough.
struct Pieces<'a> {
    rest: &'a [u8],
    until: &'a Until,
}

impl io::Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.until.is_over() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.rest.read(out)
    }
}

/// A text as HTML that shows it as it stands.
#[must_use]
pub fn of_text(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + text.len() / 8);
    html.push_str("<pre style=\"white-space:pre-wrap\">");
    escape(text, &mut html);
    html.push_str("</pre>");
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

/// Types that a browser shows as a picture and never runs; SVG is none of them.
#[must_use]
pub fn is_image(content_type: &str) -> bool {
    matches!(
        content_type,
        "image/png" | "image/jpeg" | "image/jpg" | "image/gif" | "image/webp" | "image/bmp" | "image/avif"
    )
}

pub(super) fn data_url(content_type: &str, bytes: &[u8]) -> String {
    format!("data:{content_type};base64,{}", BASE64_STANDARD.encode(bytes))
}

enum Kept<'a> {
    As(Cow<'a, str>),
    /// Kept, and it will be fetched.
    Remote(Cow<'a, str>),
    Dropped,
    /// Dropped because it would be fetched.
    DroppedRemote,
    /// Dropped because too much of the mail's own images was shown already.
    DroppedImage,
}

fn attribute_value<'a>(
    element: &str,
    attribute: &str,
    value: &'a str,
    remote: Remote,
    images: &Images,
) -> Kept<'a> {
    match (element, attribute) {
        (_, "href") => {
            let target = value.trim();
            match scheme(target) {
                Some(scheme) if is_one_of(scheme, &["http", "https", "mailto", "tel"]) => {
                    Kept::As(Cow::Borrowed(target))
                }
                _ => Kept::Dropped,
            }
        }
        (_, "src" | "background") => source(value.trim(), remote, images),
        (_, "style") => {
            let (style, dropped) = harmless_style(value);
            if dropped { Kept::DroppedRemote.or(style) } else { Kept::As(style) }
        }
        (_, "cite" | "longdesc") => Kept::Dropped,
        _ => Kept::As(Cow::Borrowed(value)),
    }
}

impl<'a> Kept<'a> {
    /// A style that lost a declaration is kept without it, and counts as remote.
    fn or(self, style: Cow<'a, str>) -> Self {
        match self {
            Self::DroppedRemote => Self::Remote(style),
            other => other,
        }
    }
}

fn source<'a>(value: &'a str, remote: Remote, images: &Images) -> Kept<'a> {
    match scheme(value) {
        Some(scheme) if scheme.eq_ignore_ascii_case("cid") => {
            let id = value[4..].trim_matches(['<', '>']);
            images.put(&percent_encoding::percent_decode_str(id).decode_utf8_lossy())
        }
        Some(scheme) if scheme.eq_ignore_ascii_case("data") => {
            let kind = value[5..].split([';', ',']).next().unwrap_or_default();
            if is_image(&kind.to_ascii_lowercase()) { Kept::As(Cow::Borrowed(value)) } else { Kept::Dropped }
        }
        Some(scheme) if is_one_of(scheme, &["http", "https"]) => match remote {
            Remote::Blocked => Kept::DroppedRemote,
            Remote::Loaded => Kept::Remote(Cow::Borrowed(value)),
        },
        None if value.starts_with("//") => match remote {
            Remote::Blocked => Kept::DroppedRemote,
            Remote::Loaded => Kept::Remote(Cow::Owned(format!("https:{value}"))),
        },
        _ => Kept::Dropped,
    }
}

/// Without the declarations that could fetch or that hide what they are; and whether there were some. What is a
/// declaration is judged roughly here and exactly by ammonia after it.
fn harmless_style(style: &str) -> (Cow<'_, str>, bool) {
    let hides = |declaration: &str| {
        let lower = declaration.to_ascii_lowercase();
        ["url", "image", "expression", "import", "src(", "attr(", "\\", "/*", "@", "behavior", "-moz-binding"]
            .iter()
            .any(|sign| lower.contains(sign))
    };
    if !hides(style) {
        return (Cow::Borrowed(style), false);
    }
    let kept: Vec<&str> = style.split(';').filter(|declaration| !hides(declaration)).collect();
    let kept = kept.join(";");
    // A quote or a bracket that a dropped piece opened or closed would join what is left to something new.
    let balanced = kept.matches('"').count().is_multiple_of(2)
        && kept.matches('\'').count().is_multiple_of(2)
        && kept.matches('(').count() == kept.matches(')').count();
    (Cow::Owned(if balanced { kept } else { String::new() }), style.to_ascii_lowercase().contains("url"))
}

/// RFC 3986, 3.1, as a browser reads it: blanks and line ends within are skipped there, so they are none here.
fn scheme(url: &str) -> Option<&str> {
    let (scheme, _) = url.split_once(':')?;
    let valid = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    (valid && !scheme.is_empty()).then_some(scheme)
}

fn is_one_of(scheme: &str, allowed: &[&str]) -> bool {
    allowed.iter().any(|one| scheme.eq_ignore_ascii_case(one))
}

/// Where a URL points, in words; the whole of a style's is not taken apart.
pub(crate) fn host(url: &str) -> String {
    let begin = url.find("//").map_or(0, |at| at + 2);
    let authority = url[begin..].split(['/', '?', '#', ')', '"', '\'', '\\']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host: String = super::fields::printable(host).chars().take(100).collect();
    if begin == 0 || host.is_empty() { "somewhere else".to_owned() } else { host.to_ascii_lowercase() }
}

fn policy() -> Builder<'static> {
    let mut builder = Builder::default();
    builder
        .add_tags(["font", "big", "address", "main", "section", "tfoot", "s", "wbr"])
        // What these hold is no text for a reader.
        .add_clean_content_tags([
            "title",
            "iframe",
            "object",
            "embed",
            "noscript",
            "noembed",
            "noframes",
            "template",
            "textarea",
            "select",
            "svg",
            "math",
            "xmp",
            "plaintext",
            "applet",
            "audio",
            "video",
            "canvas",
        ])
        .add_generic_attributes(["style", "dir", "align", "valign", "width", "height", "bgcolor", "border"])
        .add_tag_attributes("font", ["color", "face", "size"])
        .add_tag_attributes("table", ["cellpadding", "cellspacing", "background"])
        .add_tag_attributes("td", ["background", "nowrap"])
        .add_tag_attributes("img", ["hspace", "vspace"])
        .url_schemes(["http", "https", "mailto", "tel", "cid", "data"].into())
        .url_relative(UrlRelative::PassThrough)
        .link_rel(Some("noopener noreferrer nofollow"))
        .set_tag_attribute_value("a", "target", "_blank")
        .filter_style_properties(style_properties());
    builder
}

/// What newsletters lay out with. Nothing that positions over the page, animates, or takes a URL.
fn style_properties() -> HashSet<&'static str> {
    [
        "background",
        "background-color",
        "border",
        "border-bottom",
        "border-bottom-color",
        "border-bottom-style",
        "border-bottom-width",
        "border-collapse",
        "border-color",
        "border-left",
        "border-left-color",
        "border-left-style",
        "border-left-width",
        "border-radius",
        "border-right",
        "border-right-color",
        "border-right-style",
        "border-right-width",
        "border-spacing",
        "border-style",
        "border-top",
        "border-top-color",
        "border-top-style",
        "border-top-width",
        "border-width",
        "box-sizing",
        "clear",
        "color",
        "direction",
        "display",
        "float",
        "font",
        "font-family",
        "font-size",
        "font-style",
        "font-variant",
        "font-weight",
        "height",
        "letter-spacing",
        "line-height",
        "list-style-type",
        "margin",
        "margin-bottom",
        "margin-left",
        "margin-right",
        "margin-top",
        "max-height",
        "max-width",
        "min-height",
        "min-width",
        "opacity",
        "overflow",
        "overflow-wrap",
        "padding",
        "padding-bottom",
        "padding-left",
        "padding-right",
        "padding-top",
        "table-layout",
        "text-align",
        "text-decoration",
        "text-indent",
        "text-transform",
        "unicode-bidi",
        "vertical-align",
        "visibility",
        "white-space",
        "width",
        "word-break",
        "word-spacing",
        "word-wrap",
    ]
    .into()
}
