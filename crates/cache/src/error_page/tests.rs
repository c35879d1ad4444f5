use std::collections::BTreeSet;

use proptest::prelude::*;
use wire::http1::{
    framing::FramingError,
    head::{HeadError, HeadRule},
};

use super::*;

const HTML: Option<&[u8]> = Some(b"text/html");
const JSON: Option<&[u8]> = Some(b"application/json");

fn text(page: &Page) -> &str {
    std::str::from_utf8(&page.body).unwrap()
}

#[test]
fn every_fault_is_explained_in_every_format() {
    for fault in Fault::ALL {
        let words = fault.words();
        for form in Form::ALL {
            let page = render(fault, "01J-7", Some(form.content_type().as_bytes()), None);
            assert_eq!(page.content_type, form.content_type());
            assert_eq!(page.status, words.status);
            assert_ne!(page.reason, "Error", "status {} has no phrase", words.status);
            let body = text(&page);
            for part in [words.title, words.what, words.visitor, words.operator, "01J-7"] {
                assert!(body.contains(part), "{fault:?} as {form:?} lacks {part:?}");
            }
            if let Some(rule) = fault.rule() {
                assert!(body.contains(&rule.to_string()), "{fault:?} as {form:?}");
            }
        }
    }
}

#[test]
fn words_are_calm_and_codes_are_unique() {
    let mut codes = BTreeSet::new();
    for fault in Fault::ALL {
        let words = fault.words();
        assert!(codes.insert(words.code), "{} twice", words.code);
        assert!(words.code.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'));
        assert!(!words.title.ends_with('.'));
        assert!(words.title.len() < 60, "{}", words.title);
        for sentence in [words.what, words.visitor, words.operator] {
            assert!(sentence.ends_with('.'), "{sentence}");
        }
        for part in [words.title, words.what, words.visitor, words.operator] {
            assert!(!part.contains('!') && !part.contains("  ") && !part.contains('\n'), "{part}");
        }
        // RFC 9110 §15.5, §15.6: 4xx is the client's fault. The exceptions are the 504 for `only-if-cached`
        // (RFC 9111 §5.2.1.7) and two refusals for which only a 5xx status exists.
        match words.side {
            Side::Website => assert!(matches!(words.status, 502 | 504)),
            Side::Accelerator => assert!(matches!(words.status, 503 | 508)),
            Side::Yours => assert!(words.status < 500 || matches!(words.status, 501 | 504 | 505)),
        }
    }
}

#[test]
fn statuses_bring_the_headers_that_they_must() {
    assert!(render(Fault::Overloaded, "", None, None).headers.contains("Retry-After: 5\r\n"));
    assert!(render(Fault::MethodNotAllowed, "", None, None).headers.contains("Allow: GET, HEAD"));
    for fault in Fault::ALL {
        let headers = render(fault, "", None, None).headers;
        assert!(headers.starts_with("Cache-Control: no-store\r\n") && headers.ends_with("\r\n"));
        assert_eq!(headers.contains("Retry-After"), matches!(fault.status(), 429 | 503));
        assert!(headers.split_terminator("\r\n").all(|line| line.contains(": ") && !line.contains('\n')));
    }
}

/// Every rule of the parsers is displayed as a phrase, with the section of its RFC.
#[test]
fn every_parser_rule_has_text_and_status() {
    for &rule in HeadRule::ALL {
        let error = HeadError { rule, at: 3 };
        let fault = Fault::from(&error);
        assert!(matches!(fault.status(), 400 | 414 | 431 | 505), "{rule:?}");
        let words = Rule::Head(rule).to_string();
        assert!(words.contains(' ') && words.contains("RFC "), "{words}");
    }
    assert_eq!(Fault::from(FramingError::UnsupportedCoding).status(), 501);
    for error in [FramingError::BothLengths, FramingError::InvalidLength, FramingError::InvalidCoding] {
        assert_eq!(Fault::from(error).status(), 400);
        assert!(Rule::Framing(error).to_string().contains("(RFC 9"));
    }
}

#[test]
fn what_a_peer_sent_is_escaped() {
    let nasty = "<script>alert('1')&\"\\\u{1b}[2J\u{0}\n";
    let html = render(Fault::Overloaded, nasty, HTML, None);
    assert!(text(&html).contains("&lt;script&gt;alert(&#39;1&#39;)&amp;&quot;\\\u{fffd}[2J\u{fffd}\u{fffd}"));
    assert!(!text(&html).contains("<script"));
    let json = render(Fault::Overloaded, nasty, JSON, None);
    assert!(text(&json).contains(r#"<script>alert('1')&\"\\\u001b[2J\u0000\u000a"#));
    let plain = render(Fault::Overloaded, nasty, None, None);
    assert!(!text(&plain).contains(['\u{1b}', '\u{0}']));
}

#[test]
fn html_is_whole_and_accessible() {
    for fault in Fault::ALL {
        let page = render(fault, "r", HTML, None);
        let body = text(&page);
        for part in [
            "<html lang=\"en\">",
            "<main>",
            "</main>",
            "<footer>",
            "<h1>",
            "name=\"viewport\"",
            "aria-label=",
        ] {
            assert_eq!(body.matches(part).count(), 1, "{part}");
        }
        assert!(!body.contains("<script") && !body.contains("http://") && !body.contains("https://"));
        assert_eq!(body.matches("the fault is here").count(), 1);
        assert!(page.body.len() < 6 << 10, "{} bytes", page.body.len());
    }
}

proptest! {
    /// No text from a client adds a tag to a page.
    #[test]
    fn no_text_adds_a_tag(id in any::<String>()) {
        let bare = render(Fault::Overloaded, "y", HTML, None);
        let page = render(Fault::Overloaded, &id, HTML, None);
        for mark in ['<', '>', '"', '\''] {
            prop_assert_eq!(text(&bare).matches(mark).count(), text(&page).matches(mark).count());
        }
    }

    /// A JSON string has no raw control character and no unescaped quote, and a simple reader reads it back.
    #[test]
    fn json_reads_back(given in any::<String>()) {
        let mut escaped = String::new();
        push_json(&mut escaped, &given);
        let mut back = String::new();
        let mut chars = escaped.chars();
        while let Some(c) = chars.next() {
            prop_assert!(c != '"' && c >= ' ');
            if c != '\\' {
                back.push(c);
                continue;
            }
            match chars.next().unwrap() {
                'u' => {
                    let code: String = chars.by_ref().take(4).collect();
                    back.push(char::from_u32(u32::from_str_radix(&code, 16).unwrap()).unwrap());
                }
                other => back.push(other),
            }
        }
        prop_assert_eq!(back, given);
    }
}

/// `look.md`: text has a contrast of at least 4.5 to 1 with its background, meaningful symbols and lines at
/// least 3 to 1.
#[test]
fn contrast_is_enough_in_both_themes() {
    let (dark, light) = STYLE.split_once("prefers-color-scheme:light").unwrap();
    let light = light.split_once("}}").unwrap().0;
    for theme in [dark, light] {
        for ground in ["ground", "raised"] {
            for (colour, least) in
                [("text", 4.5), ("quiet", 4.5), ("red", 4.5), ("accent", 3.0), ("green", 3.0), ("edge", 3.0)]
            {
                let ratio = contrast(colour_of(theme, colour), colour_of(theme, ground));
                assert!(ratio >= least, "{colour} on {ground}: {ratio:.2}");
            }
        }
    }
}

fn colour_of(theme: &str, name: &str) -> [f64; 3] {
    let hex = theme.split_once(&format!("--{name}:#")).unwrap().1;
    [0, 2, 4].map(|at| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0)
}

/// Returns the contrast ratio of two colours (WCAG 2.2, relative luminance).
fn contrast(a: [f64; 3], b: [f64; 3]) -> f64 {
    let luminance = |colour: [f64; 3]| {
        let [r, g, b] =
            colour.map(|c| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    };
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn a31_a_custom_page_shows_the_escaped_error() {
    let own =
        OwnPage::parse("own.html", "<h1>{{status}} {{reason}}</h1><p>{{message}}</p><i>{{request-id}}</i>");
    let own = own.expect("a page");
    let page = render(Fault::OriginRefused, "<7>", HTML, Some(&own));
    let what = Fault::OriginRefused.words().what;
    assert_eq!(text(&page), format!("<h1>502 Bad Gateway</h1><p>{what}</p><i>&lt;7&gt;</i>"));
    assert!(!page.headers.contains("Content-Security-Policy") && page.headers.contains("no-store"));
    for accept in [JSON, None] {
        assert_eq!(
            render(Fault::OriginRefused, "7", accept, Some(&own)),
            render(Fault::OriginRefused, "7", accept, None)
        );
    }
    assert_ne!(render(Fault::OriginRefused, "7", HTML, None).headers, page.headers);
}
