//! Options for showing a mail's HTML, and the sanitized document with what was removed from it.

use crate::render::{cost::HtmlLimit, css::CssLimit, lists::RemovalReason};

/// Permission for the frame to fetch remote content of the mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RemoteContent {
    /// Nothing is fetched before the reader asks: a fetched image reveals to the sender that the mail was
    /// read, and where.
    #[default]
    Blocked,
    /// The reader asked for remote content.
    Loaded,
}

/// Options for showing HTML.
#[derive(Debug, Clone, Copy, Default)]
pub struct DisplayOptions<'a> {
    /// Permission to fetch remote content.
    pub remote: RemoteContent,
    /// Shows the mail in dark colours: by the mail's own rules, or with inverted colours if it has none.
    pub dark: bool,
    /// Base path of the mail's attachments, which are at `PART/NAME` below it.
    pub pictures: &'a str,
}

/// Sanitized HTML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SanitizedHtml {
    /// The whole document; empty if a limit was exceeded.
    pub html: String,
    /// Number of remote items of the mail that can be fetched on request.
    pub remote_items: usize,
    /// Hosts of these items, each once, at most `HOSTS_MAX`.
    pub remote_hosts: Vec<String>,
    /// Counts of removed items.
    pub taken: RemovedCounts,
    /// True if only the beginning of the HTML is included.
    pub cut: bool,
    /// Limit that kept the HTML from being shown, if any.
    pub over: Option<HtmlLimit>,
    /// Limit that cut the style sheets, if any.
    pub css_over: Option<CssLimit>,
    /// True if the mail has colours of its own for dark mode.
    pub has_dark: bool,
}

/// Counts of removed items by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovedCounts {
    /// Scripts, and attributes and links that run them.
    pub scripts: usize,
    /// Forms and their fields.
    pub forms: usize,
    /// Frames, plug-ins, audio, video and drawings.
    pub embedded: usize,
    /// Remote fonts.
    pub fonts: usize,
    /// Remote style sheets.
    pub imports: usize,
    /// Declarations and rules that fetch, ran code in some browser, or are unknown.
    pub styles: usize,
    /// Redirects by meta refresh.
    pub redirects: usize,
}

impl RemovedCounts {
    /// Lists the nonzero counts in words: "2 scripts", "1 form".
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

    pub(super) fn count(&mut self, why: RemovalReason) {
        match why {
            RemovalReason::Script => self.scripts += 1,
            RemovalReason::Form => self.forms += 1,
            RemovalReason::Embedded => self.embedded += 1,
            RemovalReason::Import => self.imports += 1,
            RemovalReason::Redirect => self.redirects += 1,
            RemovalReason::Nothing => {}
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.fonts += other.fonts;
        self.imports += other.imports;
        self.styles += other.styles;
    }
}

impl SanitizedHtml {
    /// Returns the Content-Security-Policy with which the frame is served. The frame has our origin, so that
    /// our page can read its height and its pictures are same-site. This is safe as long as no script runs in
    /// the frame, which three measures ensure (decision 051).
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
