//! The page of a site's own that is sent where no answer can be: HTML with places for what failed.
//!
//! It is read once, into texts and places; what is put into those is escaped by who fills them (`error_page`).

use std::fmt;

/// Bytes of a page.
pub const PAGE_BYTES_MAX: usize = 64 << 10;

/// What stands in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `{{status}}`: the status, such as 502.
    Status,
    /// `{{reason}}`: its phrase, such as Bad Gateway.
    Reason,
    /// `{{message}}`: what happened, in a sentence or two.
    Message,
    /// `{{request-id}}`: the number of the request, which the log has.
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
    /// HTML as it is.
    Html(Box<str>),
    /// What is put in.
    Place(Place),
}

/// Why a text is no page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPage {
    /// It is too long.
    #[error("a page has at most 64 KiB")]
    TooLong,
    /// There is no such place.
    #[error("line {line}, column {column}: there is no {{{{{name}}}}}, only {}", places())]
    Unknown {
        /// From 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
        /// What stands between the braces.
        name: String,
    },
    /// A place does not end.
    #[error("line {line}, column {column}: a place ends with }}}} on its line, such as {}", places())]
    Open {
        /// From 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
    },
}

fn places() -> String {
    Place::ALL.map(|(name, _)| format!("{{{{{name}}}}}")).join(", ")
}

/// A page of a site's own.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnPage {
    /// Where it was read, for people.
    pub name: String,
    parts: Vec<Part>,
}

impl fmt::Debug for OwnPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnPage({})", self.name)
    }
}

impl OwnPage {
    /// Reads one.
    ///
    /// # Errors
    /// It is too long, or has a place that there is not.
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

    /// Its parts, in order.
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
                "line 2, column 3: there is no {{titel}}, only {{status}}, {{reason}}, {{message}}",
            ),
            ("{{status}", "line 1, column 1: a place ends with }}"),
            ("{{\nstatus}}", "line 1, column 1: a place ends with }}"),
            ("{{}}", "there is no {{}}"),
            ("{{{status}}}", "there is no {{{status}}"),
            (&"x".repeat(PAGE_BYTES_MAX + 1), "at most 64 KiB"),
        ] {
            let error = read(text).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }
}
