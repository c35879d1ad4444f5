//! Choice of a page's form by the client's `Accept` (RFC 9110 §12.5.1).

/// A form that a page can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// HTML, for people in a browser.
    Html,
    /// Plain text, for people in a terminal; also used if the request names no form.
    Plain,
    /// JSON, for programs.
    Json,
    /// JSON under the media type of RFC 9457, for clients that accept it explicitly.
    ProblemJson,
}

impl Form {
    /// All forms, in order of preference. The order decides if a request names several forms with the same
    /// weight.
    pub const ALL: [Form; 4] = [Form::Html, Form::ProblemJson, Form::Json, Form::Plain];

    /// Returns the value of `Content-Type`.
    pub const fn content_type(self) -> &'static str {
        match self {
            Form::Html => "text/html; charset=utf-8",
            Form::Plain => "text/plain; charset=utf-8",
            Form::Json => "application/json",
            Form::ProblemJson => "application/problem+json",
        }
    }

    const fn media(self) -> (&'static str, &'static str) {
        match self {
            Form::Html => ("text", "html"),
            Form::Plain => ("text", "plain"),
            Form::Json => ("application", "json"),
            Form::ProblemJson => ("application", "problem+json"),
        }
    }
}

/// Chooses the form by the value of `Accept`: the highest weight wins, then the more specific range, then the
/// order of [`Form::ALL`]. Without `Accept`, with only `*/*` (curl), or without an available form, the page
/// is plain text: an error in an unwanted form is more useful than a 406 without text (RFC 9110 §15.5.7
/// permits this).
pub(super) fn choose(accept: Option<&[u8]>) -> Form {
    let Some(accept) = accept else { return Form::Plain };
    let mut best = (0u16, 0u8, Form::Plain);
    for form in Form::ALL {
        let Some((weight, specificity)) = weight_of(accept, form) else { continue };
        let named = specificity > 0;
        if named && (weight, specificity) > (best.0, best.1) {
            best = (weight, specificity, form);
        }
        if !named && form == Form::Plain && weight > best.0 {
            best = (weight, 0, Form::Plain);
        }
    }
    best.2
}

/// Returns the weight in thousandths and the specificity (0: `*/*`, 1: `text/*`, 2: the type itself) of the
/// most specific range that covers a form.
fn weight_of(accept: &[u8], form: Form) -> Option<(u16, u8)> {
    let (kind, subtype) = form.media();
    let mut found: Option<(u16, u8)> = None;
    for range in accept.split(|&b| b == b',') {
        let mut parts = range.split(|&b| b == b';').map(<[u8]>::trim_ascii);
        let Some(media) = parts.next() else { continue };
        let mut halves = media.splitn(2, |&b| b == b'/');
        let (Some(left), Some(right)) = (halves.next(), halves.next()) else { continue };
        let specificity = if left == b"*" && right == b"*" {
            0
        } else if left.eq_ignore_ascii_case(kind.as_bytes()) && right == b"*" {
            1
        } else if left.eq_ignore_ascii_case(kind.as_bytes()) && right.eq_ignore_ascii_case(subtype.as_bytes())
        {
            2
        } else {
            continue;
        };
        let weight = parts.find_map(quality).unwrap_or(1000);
        if found.is_none_or(|(_, before)| specificity > before) {
            found = Some((weight, specificity));
        }
    }
    found
}

/// Parses `q=0.8` as 800 (RFC 9110 §12.4.2); an invalid weight counts as 0, so that it never wins.
fn quality(parameter: &[u8]) -> Option<u16> {
    let value = parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))?;
    let (whole, fraction) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return Some(0),
    };
    let mut thousandths = match whole {
        b'0' => 0,
        b'1' => 1000,
        _ => return Some(0),
    };
    for (digit, unit) in fraction.iter().zip([100, 10, 1]) {
        if !digit.is_ascii_digit() {
            return Some(0);
        }
        thousandths += u16::from(digit - b'0') * unit;
    }
    Some(if thousandths > 1000 { 0 } else { thousandths })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_follows_accept() {
        let firefox = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, form) in [
            (firefox, Form::Html),
            ("*/*", Form::Plain),
            ("", Form::Plain),
            ("image/avif,image/webp,*/*;q=0.8", Form::Plain),
            ("image/png", Form::Plain),
            ("application/json", Form::Json),
            ("application/json, text/plain, */*", Form::Json),
            ("application/problem+json, application/json", Form::ProblemJson),
            ("application/*", Form::ProblemJson),
            ("text/*", Form::Html),
            ("text/html;q=0.5, application/json;q=0.7", Form::Json),
            ("text/html;q=0.5, application/json;q=0.500", Form::Html),
            ("text/html;q=0, */*", Form::Plain),
            ("text/html;q=0.1, */*;q=0.9", Form::Plain),
            ("text/html;q=0.9, */*;q=0.1", Form::Html),
            ("TEXT/HTML", Form::Html),
            ("text/html ; level=1 ; q=0.2, text/plain;q=0.3", Form::Plain),
            ("text/html;q=nonsense, application/json;q=0.1", Form::Json),
            ("text/html;q=1.5, application/json;q=0.1", Form::Json),
            ("text/html;q=0.12345, application/json;q=0.1", Form::Json),
            (",,;;/,//", Form::Plain),
        ] {
            assert_eq!(choose(Some(accept.as_bytes())), form, "{accept}");
        }
        assert_eq!(choose(None), Form::Plain);
    }
}
