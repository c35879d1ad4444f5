//! Error page of a site: HTML with placeholders for the error's details.
//!
//! The page is parsed once, into HTML and placeholders; `error_page` escapes the values that it fills in.

use std::fmt;

/// Maximum size of a page.
pub const PAGE_BYTES_MAX: usize = 64 << 10;

/// A placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `{{status}}`: the status code, such as 502.
    Status,
    /// `{{reason}}`: the status's reason phrase, such as Bad Gateway.
    Reason,
    /// `{{message}}`: a description of the fault, in a sentence or two.
    Message,
    /// `{{request-id}}`: the number of the request, which also appears in the log.
    RequestId,
}

impl Place {
    const ALL: [(&str, Self); 4] = [
        ("status", Self::Status),
        ("reason", Self::Reason),
        ("message", Self::Message),
        ("request-id", Self::RequestId),
    ];
}

/// A part of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// HTML, sent unchanged.
    Html(Box<str>),
    /// A placeholder, replaced by its value.
    Place(Place),
}

/// Reason why a text is not a valid page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPage {
    /// The page is too long.
    #[error("the page is larger than 64 KiB")]
    TooLong,
    /// The placeholder is unknown.
    #[error("line {line}, column {column}: unknown placeholder {{{{{name}}}}}; expected {}", places())]
    Unknown {
        /// Line number, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// Text between the braces.
        name: String,
    },
    /// A placeholder has no closing braces.
    #[error(
        "line {line}, column {column}: unclosed placeholder: it ends with }}}} on the same line, such as {}",
        places()
    )]
    Open {
        /// Line number, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },
}

fn places() -> String {
    Place::ALL.map(|(name, _)| format!("{{{{{name}}}}}")).join(", ")
}

/// Error page of a site.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnPage {
    /// File from which the page was read, for messages.
    pub name: String,
    parts: Vec<Part>,
}

impl fmt::Debug for OwnPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnPage({})", self.name)
    }
}

impl OwnPage {
    /// Parses a page.
    ///
    /// # Errors
    /// [`InvalidPage`] if the page is too long, or a placeholder is unknown or not closed.
    pub fn parse(name: &str, text: &str) -> Result<Self, InvalidPage> {
        if text.len() > PAGE_BYTES_MAX {
            return Err(InvalidPage::TooLong);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find("{{") {
            let before = &text[..text.len() - rest.len() + open];
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            let inside = &rest[open + 2..];
            let of_line = inside.lines().next().unwrap_or_default();
            let end = of_line.find("}}").ok_or(InvalidPage::Open { line, column })?;
            let said = inside[..end].trim();
            let place = Place::ALL.iter().find(|(known, _)| *known == said).map(|(_, place)| *place);
            let unknown = || InvalidPage::Unknown { line, column, name: said.chars().take(40).collect() };
            parts.push(Part::Html(rest[..open].into()));
            parts.push(Part::Place(place.ok_or_else(unknown)?));
            rest = &inside[end + 2..];
        }
        parts.push(Part::Html(rest.into()));
        Ok(Self { name: name.to_owned(), parts })
    }

    /// Returns the parts of the page, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        let page = OwnPage::parse("a.html", text).map_err(|error| error.to_string())?;
        let shown = |part: &Part| match part {
            Part::Html(text) => text.to_string(),
            Part::Place(place) => format!("<{place:?}>"),
        };
        Ok(page.parts().iter().map(shown).collect())
    }

    #[test]
    fn a31_a_page_is_texts_and_places() {
        let got = read("a{{status}}{{ reason }}\n{b} }} {{message}} {{request-id}}!");
        assert_eq!(got.as_deref(), Ok("a<Status><Reason>\n{b} }} <Message> <RequestId>!"));
        assert_eq!(read("").as_deref(), Ok(""));
        for (text, says) in [
            (
                "x\n\u{e9} {{titel}}",
                "line 2, column 3: unknown placeholder {{titel}}; expected {{status}}, {{reason}}, {{message}}",
            ),
            ("{{status}", "line 1, column 1: unclosed placeholder"),
            ("{{\nstatus}}", "line 1, column 1: unclosed placeholder"),
            ("{{}}", "unknown placeholder {{}}"),
            ("{{{status}}}", "unknown placeholder {{{status}}"),
            (&"x".repeat(PAGE_BYTES_MAX + 1), "larger than 64 KiB"),
        ] {
            let error = read(text).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }
}
