//! Allow lists of the HTML elements and attributes that are shown.

/// Handling of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Element {
    /// Written with its allowed attributes.
    Kept {
        /// True for void elements, which have no content and no end tag (HTML, 13.1.2).
        void: bool,
    },
    /// Replaced by its children.
    Opened(RemovalReason),
    /// Removed with its content.
    Dropped(RemovalReason),
    /// A style sheet.
    Style,
}

/// Category in which a removed element is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemovalReason {
    Script,
    Form,
    Embedded,
    Import,
    Redirect,
    /// Not counted, as the element shows nothing.
    Nothing,
}

/// Returns how an HTML element is handled. An unknown element is replaced by its children, as in browsers.
pub(super) fn element(name: &str) -> Element {
    match name {
        "area" | "br" | "col" | "hr" | "img" | "wbr" => Element::Kept { void: true },
        "a" | "abbr" | "acronym" | "address" | "article" | "aside" | "b" | "bdi" | "bdo" | "big"
        | "blockquote" | "body" | "caption" | "center" | "cite" | "code" | "colgroup" | "dd" | "del"
        | "details" | "dfn" | "dir" | "div" | "dl" | "dt" | "em" | "fieldset" | "figcaption" | "figure"
        | "font" | "footer" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "head" | "header" | "hgroup"
        | "html" | "i" | "ins" | "kbd" | "label" | "legend" | "li" | "listing" | "main" | "map" | "mark"
        | "menu" | "nav" | "nobr" | "ol" | "p" | "pre" | "q" | "rb" | "rp" | "rt" | "rtc" | "ruby" | "s"
        | "samp" | "section" | "small" | "span" | "strike" | "strong" | "sub" | "summary" | "sup"
        | "table" | "tbody" | "td" | "tfoot" | "th" | "thead" | "time" | "tr" | "tt" | "u" | "ul" | "var" => {
            Element::Kept { void: false }
        }
        "style" => Element::Style,
        "script" => Element::Dropped(RemovalReason::Script),
        "input" | "select" | "textarea" | "datalist" | "option" | "optgroup" => {
            Element::Dropped(RemovalReason::Form)
        }
        "form" | "button" => Element::Opened(RemovalReason::Form),
        "iframe" | "frame" | "frameset" | "object" | "embed" | "applet" | "audio" | "video" | "canvas"
        | "portal" | "fencedframe" => Element::Dropped(RemovalReason::Embedded),
        // The content of these elements is not text for a reader, or not HTML.
        "title" | "template" | "noembed" | "noframes" | "xmp" | "plaintext" | "meta" | "link" | "base"
        | "basefont" | "bgsound" | "source" | "track" | "param" => Element::Dropped(RemovalReason::Nothing),
        _ => Element::Opened(RemovalReason::Nothing),
    }
}

/// Returns whether an element may have an attribute. Names that begin with `on` have been handled already.
pub(super) fn has_attribute(element: &str, name: &str) -> bool {
    match name {
        "class" | "id" | "style" | "dir" | "lang" | "title" | "align" | "valign" | "width" | "height"
        | "bgcolor" | "border" | "bordercolor" | "role" | "hidden" => true,
        "href" => matches!(element, "a" | "area"),
        "name" => matches!(element, "a" | "map"),
        "src" | "hspace" | "vspace" | "usemap" => element == "img",
        "alt" => matches!(element, "img" | "area"),
        "shape" | "coords" => element == "area",
        "background" => {
            matches!(element, "body" | "table" | "thead" | "tbody" | "tfoot" | "tr" | "td" | "th")
        }
        "text" | "link" | "vlink" | "alink" | "leftmargin" | "topmargin" | "rightmargin" | "bottommargin"
        | "marginwidth" | "marginheight" => element == "body",
        "cellpadding" | "cellspacing" | "rules" | "frame" | "summary" => element == "table",
        "nowrap" | "colspan" | "rowspan" | "abbr" | "axis" | "headers" | "scope" => {
            matches!(element, "td" | "th")
        }
        "span" => matches!(element, "col" | "colgroup"),
        "char" | "charoff" => matches!(element, "td" | "th" | "tr" | "col" | "colgroup" | "tbody"),
        "color" => matches!(element, "font" | "hr"),
        "face" => element == "font",
        "size" => matches!(element, "font" | "hr"),
        "noshade" => element == "hr",
        "start" | "reversed" => element == "ol",
        "type" => matches!(element, "ol" | "ul" | "li"),
        "value" => element == "li",
        "compact" => matches!(element, "ol" | "ul" | "dl" | "dir" | "menu"),
        "clear" => element == "br",
        "open" => element == "details",
        "datetime" => matches!(element, "time" | "ins" | "del"),
        _ => is_named_freely(name),
    }
}

/// Returns whether a name is `data-…` or `aria-…`, of letters, digits and hyphens: used by style sheets and
/// screen readers.
fn is_named_freely(name: &str) -> bool {
    let rest = name.strip_prefix("data-").or_else(|| name.strip_prefix("aria-"));
    rest.is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    })
}
