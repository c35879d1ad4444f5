//! Converts HTML to plain text: for previews of mails without a plain-text body, for search, and for the text
//! view.
//!
//! mail-parser's converter breaks lines only at `<br>` and `<p>`, so that a cell, a heading and the next cell
//! would become one word. Line breaks are therefore inserted beforehand, where a browser begins a new line.

use memchr::memchr_iter;

use super::until::StepLimit;

/// Elements that begin on a line of their own (HTML §15.3), except for `p`, which the converter knows.
const BLOCKS: [&str; 27] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "center",
    "dd",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "li",
    "ol",
    "section",
    "tr",
    "ul",
];
/// Elements that are shown side by side, separated by a blank.
const CELLS: [&str; 2] = ["td", "th"];
/// Length of the longest name in `BLOCKS` and `CELLS`.
const NAME_BYTES_MAX: usize = 10;

/// Returns the text of HTML as lines, with at most one empty line in a row.
pub(super) fn of_html(html: &str, until: &StepLimit) -> String {
    // Three passes over the bytes: `parted`, mail-parser's reader and `one_blank_line`.
    if until.pay(3 * html.len()).is_err() {
        return String::new();
    }
    one_blank_line(&mail_parser::decoders::html::html_to_text(&parted(html)))
}

/// Returns the HTML with a line break before each block and after each heading and table, and a blank before
/// each cell and after each block. Insertions within an attribute or a comment have no effect, as these are
/// not shown.
fn parted(html: &str) -> String {
    let mut out = String::with_capacity(html.len() + html.len() / 8);
    let mut copied = 0;
    for at in memchr_iter(b'<', html.as_bytes()) {
        let rest = &html.as_bytes()[at + 1..];
        let (is_end, rest) = rest.strip_prefix(b"/").map_or((false, rest), |rest| (true, rest));
        let length =
            rest.iter().take(NAME_BYTES_MAX + 1).take_while(|byte| byte.is_ascii_alphanumeric()).count();
        let is_one_of =
            |names: &[&str]| names.iter().any(|name| rest[..length].eq_ignore_ascii_case(name.as_bytes()));
        let is_heading = || length == 2 && matches!(rest[0], b'h' | b'H') && rest[1].is_ascii_digit();
        let before = match is_end {
            false if is_one_of(&CELLS) => " ",
            false if is_one_of(&BLOCKS) => "<br>",
            true if is_heading() || is_one_of(&["table"]) => "<br>",
            true if is_one_of(&BLOCKS) => " ",
            _ => continue,
        };
        out.push_str(&html[copied..at]);
        out.push_str(before);
        copied = at;
    }
    out.push_str(&html[copied..]);
    out
}

/// Trims all lines, and reduces consecutive empty lines to one.
fn one_blank_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut empty = 0;
    for line in text.lines().map(str::trim) {
        if line.is_empty() {
            empty += 1;
            continue;
        }
        if !out.is_empty() {
            out.push_str(if empty > 0 { "\n\n" } else { "\n" });
        }
        empty = 0;
        out.push_str(line);
    }
    if !out.is_empty() {
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn html_blocks_stay_apart_as_plain_text() {
        for (html, text) in [
            ("<h1>Sale</h1><p>All &amp; everything</p>", "Sale\nAll & everything\n"),
            (
                "<table><tr><td>Berth</td><TD class=x>7</TD></tr><tr><th>At</th><td>nine</td></tr></table>",
                "Berth 7\nAt nine\n",
            ),
            ("<ul><li>one</li><li>two</li></ul>after", "one\ntwo after\n"),
            ("<div>a</div>b", "a b\n"),
            ("<div>a<div>b</div></div><div>c</div>", "a\nb\nc\n"),
            ("a<b>c</b>d", "acd\n"),
            ("<div></div><div></div>x<div></div><div></div>y", "x\n\ny\n"),
            ("<style>td{a:b}</style>x", "x\n"),
            ("<!-- <div> -->x", "x\n"),
            ("", ""),
        ] {
            assert_eq!(of_html(html, &StepLimit::default()), text, "{html}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_little_added(html in "(<(/?)(td|div|p|h1|b|br|x)( a=\"<div>\")?>|[a-z<>&; \n]){0,60}") {
            let words = |text: &str| text.split_whitespace().collect::<String>();
            let plain = mail_parser::decoders::html::html_to_text(&html);
            prop_assert_eq!(words(&of_html(&html, &StepLimit::default())), words(&plain));
            prop_assert!(parted(&html).len() <= html.len() * 2);
        }
    }
}
