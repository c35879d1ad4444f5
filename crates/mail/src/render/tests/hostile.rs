//! Tests of hostile mails, which must be cheap to process and harmless to show.

use std::{collections::HashMap, fmt::Write as _};

use super::super::{
    Notice,
    cost::HtmlLimit,
    html::{DisplayOptions, RemoteContent},
    *,
};
use super::{body, clean, with};

/// Hostile mails are processed quickly; slow processing fails the test by its time limit.
#[test]
fn bombs_are_defused() {
    // A mail within a mail is not parsed, so any number of levels is cheap.
    let nested = "Content-Type: message/rfc822\r\n\r\n".repeat(10_000) + "Subject: deep\r\n\r\nend";
    with(nested.as_bytes(), |r| assert_eq!((r.notices(), r.attachments().len()), (&[][..], 1)));

    let mut deep = String::new();
    for level in 0..10_000 {
        write!(deep, "Content-Type: multipart/mixed; boundary=b{level}\r\n\r\n--b{level}\r\n").unwrap();
    }
    assert_eq!(with(deep.as_bytes(), |r| r.notices().to_vec()), [Notice::TooDeep]);

    let mut wide = "Content-Type: multipart/mixed; boundary=b\r\n\r\n".to_owned();
    for part in 0..10_000 {
        write!(wide, "--b\r\nContent-Type: application/x-{part}\r\n\r\n{part}\r\n").unwrap();
    }
    with(wide.as_bytes(), |r| {
        assert_eq!(r.notices(), [Notice::AttachmentsCut]);
        assert_eq!(r.attachments().len(), ATTACHMENTS_MAX);
    });

    let mut broken = "Content-Type: multipart/mixed; boundary=b\r\n\r\n".to_owned();
    for _ in 0..10_000 {
        broken.push_str("--b\r\nContent-Transfer-Encoding: base64\r\n\r\n@@@@\r\n");
    }
    with(broken.as_bytes(), |r| assert!(r.attachments().len() <= ATTACHMENTS_MAX && r.text().1.is_none()));

    let words = format!("Subject: {}\r\n\r\n", "=?utf-8?q?=41?= ".repeat(50_000));
    with(words.as_bytes(), |r| {
        assert_eq!(r.notices(), [Notice::HeadCut]);
        assert!((8_000..=heads::FIELD_BYTES_MAX).contains(&r.subject().len()), "{}", r.subject().len());
    });

    let encoded_levels = {
        use base64::Engine as _;
        let inner =
            base64::prelude::BASE64_STANDARD.encode("Content-Type: message/rfc822\n\n".repeat(30_000));
        format!("Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n{inner}")
    };
    with(encoded_levels.as_bytes(), |r| assert_eq!(r.attachments().len(), 1));

    let digest = format!(
        "Content-Type: multipart/digest; boundary=b\r\n\r\n{}",
        "--b\r\n\r\nSubject: x\r\n\r\ny\r\n".repeat(10_000)
    );
    with(digest.as_bytes(), |r| assert_eq!(r.attachments()[0].content_type, "message/rfc822"));

    let fields = "X: y\r\n".repeat(100_000) + "\r\n";
    with(fields.as_bytes(), |r| {
        assert_eq!(
            (r.headers().len(), r.notices()),
            (HEADERS_MAX, &[Notice::HeadCut, Notice::HeadersCut][..])
        );
    });

    let long = format!("\r\n{}", "x".repeat(TEXT_BYTES_MAX + 10));
    assert_eq!(with(long.as_bytes(), |r| r.text().1), Some(Notice::TextCut));
}

#[test]
fn html_bombs_are_defused() {
    // Levels below html and body.
    let levels = cost::DEPTH_MAX - 2;
    let deep = clean(&"<div>".repeat(levels), RemoteContent::Blocked);
    assert_eq!((deep.over, body(&deep.html).len()), (None, levels * "<div></div>".len()));
    let long = clean(&"x".repeat(html::HTML_BYTES_MAX + 1), RemoteContent::Blocked);
    assert!(long.cut && body(&long.html).len() == html::HTML_BYTES_MAX);
    let attributes = |n: usize| format!("<p {}>", (0..n).map(|n| format!("a{n}=1 ")).collect::<String>());
    assert_eq!(body(&clean(&attributes(cost::TAG_ATTRIBUTES_MAX), RemoteContent::Blocked).html), "<p></p>");
    let unclosed = |n: usize| (0..n).map(|n| format!("<font color={n}>")).collect::<String>();
    for (source, over) in [
        ("<div>".repeat(cost::TAGS_MAX + 1), HtmlLimit::Tags),
        ("<div>".repeat(cost::DEPTH_MAX + 1), HtmlLimit::Depth),
        (attributes(60_000), HtmlLimit::TagAttributes),
        // Attributes without blanks, in quotes, in an end tag, after something like a comment or an unclosed
        // value.
        (
            format!("<p{}>", (0..60_000).map(|n| format!("/a{n}")).collect::<String>()),
            HtmlLimit::TagAttributes,
        ),
        (
            format!("<p {}>", (0..60_000).map(|n| format!("a{n}=\">\"")).collect::<String>()),
            HtmlLimit::TagAttributes,
        ),
        (attributes(60_000).replace("<p", "</p"), HtmlLimit::TagAttributes),
        (format!("<!-- <a x=\" -->{}", attributes(60_000)), HtmlLimit::TagAttributes),
        (format!("<title><a x='</title>{}", attributes(60_000)), HtmlLimit::TagAttributes),
        ("<a".repeat(10_000), HtmlLimit::TagAttributes),
        (attributes(200).repeat(1_100), HtmlLimit::Attributes),
        (attributes(150).replace("<p", "<html").repeat(1_000), HtmlLimit::Looks),
        // Each of 10,000 paragraphs reconstructs 500 elements.
        (format!("<p>{}{}", unclosed(500), "<p>x".repeat(10_000)), HtmlLimit::Elements),
        (format!("<p>{}{}", unclosed(10_000), "<p>x".repeat(9_000)), HtmlLimit::Depth),
    ] {
        let said = clean(&source, RemoteContent::Blocked);
        assert_eq!((said.over, said.html.len()), (Some(over), 0), "{}", cut(&source, 40));
    }
    // Content that is not allowed in a table is inserted before the table, at a position that is found
    // immediately.
    let before = clean(&format!("<table>{}", "<b></b>".repeat(9_000)), RemoteContent::Blocked);
    assert_eq!((before.over, before.html.matches("<b>").count()), (None, 9_000));
}

/// When the client disconnects, running work ends and no further work begins.
#[test]
fn a_render_ends_when_it_is_enough() {
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let source = "<p>x".repeat(5_000);
    for pieces in [0, 3, 25] {
        asked.store(0, std::sync::atomic::Ordering::Relaxed);
        let counts = std::sync::Arc::clone(&asked);
        let until =
            StepLimit::new(move || counts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= pieces);
        let ended = html::clean(&source, &DisplayOptions::default(), HashMap::new(), &until);
        assert_eq!((ended.over, &*ended.html), (Some(HtmlLimit::Time), ""));
        assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), pieces + 1, "it went on");
    }
    let raw = format!("Content-Type: text/html\r\n\r\n{source}");
    let text =
        with(raw.as_bytes(), |r| r.html(&DisplayOptions::default(), &StepLimit::new(|| true)).unwrap());
    assert!(text.over == Some(HtmlLimit::Time) && body(&text.html).starts_with("<pre"), "its text is shown");
}

/// Returns hostile HTML from OWASP's XSS filter evasion cheat sheet and from real newsletters; the browser
/// test uses the same samples.
pub(super) fn tricks() -> Vec<String> {
    serde_json::from_str(include_str!("../../../../../tests/browser/tricks.json")).unwrap()
}

/// Asserts that HTML contains no element, attribute or URL that runs or fetches anything. The check has its
/// own parser, independent of the sanitizer.
pub(in crate::render) fn assert_harmless(html: &str, source: &str) {
    let lower = html.to_ascii_lowercase();
    let mut rest = &*lower;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        // A `<` in a style sheet, which ends only at its end tag.
        if rest.starts_with(' ') {
            continue;
        }
        // A `>` within quotes does not end the tag.
        let mut quoted = false;
        let end = rest.find(|c| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let (tag, after) = rest.split_at(end.expect("a tag ends"));
        rest = after;
        let name: String =
            tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        // Tags of our own head content.
        if ["meta", "base", ""].contains(&&*name) {
            let own = [
                "meta charset=\"utf-8\"",
                "meta name=\"referrer\" content=\"no-referrer\"",
                "base target=\"_blank\"",
            ];
            assert!(own.contains(&tag) || tag.starts_with("!doctype html"), "{tag} of {source}\n=> {html}");
            continue;
        }
        for forbidden in [
            "script",
            "iframe",
            "object",
            "embed",
            "form",
            "input",
            "button",
            "link",
            "svg",
            "math",
            "template",
            "textarea",
            "noscript",
            "video",
            "audio",
            "source",
            "frame",
            "frameset",
            "xmp",
            "plaintext",
            "portal",
            "title",
            "select",
        ] {
            assert_ne!(name, forbidden, "{source}\n=> {html}");
        }
        if name == "style" && !tag.starts_with('/') {
            let sheet = rest[1..].split("</style>").next().unwrap_or_default();
            assert_quiet(sheet, source);
        }
        let pieces: Vec<&str> = tag.split('"').collect();
        for (before, value) in pieces.iter().step_by(2).zip(pieces.iter().skip(1).step_by(2)) {
            let attribute = before.trim().trim_end_matches('=').rsplit(' ').next().unwrap_or_default();
            assert!(!attribute.starts_with("on"), "{source}\n=> {html}");
            assert!(
                !["srcset", "ping", "poster", "lowsrc", "srcdoc", "action", "formaction", "http-equiv"]
                    .contains(&attribute),
                "{source}\n=> {html}"
            );
            if attribute == "style" {
                // Text that is not a URL may stay: `a:b//evil.test` fetches nothing.
                assert_quiet(&value.replace("&quot;", "\"").replace("&amp;", "&"), source);
            }
            if matches!(attribute, "href" | "src" | "background" | "style") {
                let is_fetched = matches!(attribute, "src" | "background");
                assert!(!is_fetched || !value.contains("evil.test"), "{source}\n=> {html}");
                let squeezed: String =
                    value.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
                assert!(!squeezed.starts_with("javascript:"), "{source}\n=> {html}");
                assert!(!squeezed.starts_with("vbscript:"), "{source}\n=> {html}");
                assert!(!squeezed.starts_with("data:text"), "{html}");
                // The box that we draw ourselves is allowed.
                let drawn = squeezed
                    .starts_with("data:image/svg+xml,%3csvgxmlns='http://www.w3.org/2000/svg'width='")
                    && tag.contains(" blocked=\"\"")
                    && !squeezed.contains("%3cscript")
                    && !squeezed.contains("<");
                assert!(drawn || !squeezed.contains("svg+xml"), "{html}");
            }
            if attribute == "style" {
                assert_quiet(&value.replace("&quot;", "\""), source);
            }
        }
    }
}

/// Asserts that no style fetches anything. The CSS is parsed, because a search for keywords would also find
/// them in plain text.
fn assert_quiet(css: &str, source: &str) {
    fn look(input: &mut cssparser::Parser<'_>, source: &str) {
        while let Ok(token) = input.next().cloned() {
            match &token {
                cssparser::Token::AtKeyword(name) => {
                    assert!(!["import", "font-face"].contains(&&**name), "@{name} of {source}");
                }
                cssparser::Token::UnquotedUrl(url) => panic!("url({url}) of {source}"),
                cssparser::Token::Function(name) if name.eq_ignore_ascii_case("url") => {
                    let url = input.parse_nested_block(|input| {
                        Ok::<_, cssparser::ParseError<()>>(input.expect_string_cloned()?.to_string())
                    });
                    let url = url.expect("a string");
                    let own = url.starts_with("attachments/") || url.starts_with("data:image/");
                    assert!(own, "url({url}) of {source}");
                    continue;
                }
                cssparser::Token::Function(name) => {
                    for fetching in [
                        "image-set",
                        "-webkit-image-set",
                        "cross-fade",
                        "element",
                        "image",
                        "src",
                        "paint",
                        "expression",
                    ] {
                        assert!(!name.eq_ignore_ascii_case(fetching), "{name}() of {source}");
                    }
                }
                cssparser::Token::Ident(name) => {
                    assert!(!["behavior", "-moz-binding"].contains(&&**name), "{name} of {source}");
                }
                _ => {}
            }
            if matches!(
                token,
                cssparser::Token::Function(_)
                    | cssparser::Token::ParenthesisBlock
                    | cssparser::Token::SquareBracketBlock
                    | cssparser::Token::CurlyBracketBlock
            ) {
                _ = input.parse_nested_block(|input| {
                    look(input, source);
                    Ok::<_, cssparser::ParseError<()>>(())
                });
            }
        }
    }
    let mut input = cssparser::Parser::new(css);
    input.set_nested_block_limit(0);
    look(&mut input, source);
}

#[test]
fn no_trick_survives() {
    for trick in &tricks() {
        assert_harmless(&clean(trick, RemoteContent::Blocked).html, trick);
    }
    let all = tricks().concat();
    assert_harmless(&clean(&all, RemoteContent::Blocked).html, "all of them");
}

/// Sanitizing is idempotent, so the output is read the way it was written.
#[test]
fn cleaning_twice_changes_nothing() {
    // The two attributes added to every link change their order each time.
    let without_added = |html: &str| {
        body(html).replace(" target=\"_blank\"", "").replace(" rel=\"noopener noreferrer nofollow\"", "")
    };
    for trick in &tricks() {
        let once = clean(trick, RemoteContent::Blocked).html;
        let twice = clean(&once, RemoteContent::Blocked).html;
        assert_eq!(without_added(&twice), without_added(&once), "{trick}");
    }
}

#[test]
fn remote_content_is_named_and_loaded_on_request() {
    let source = "<img src=\"https://cdn.shop.test/a.png\" alt=\"Sale\"><img src=//track.test/p.gif>\
        <body background='http://cdn.shop.test/b.png'><style>p{color:red;background:url(http://s.test/y)}</style><p style=\"color:red;background:url(http://x.test/y)\">x</p>\
        <img src=\"data:image/png;base64,AA==\">";
    let blocked = clean(source, RemoteContent::Blocked);
    assert_eq!(blocked.remote_hosts, ["cdn.shop.test", "track.test", "s.test", "x.test"]);
    assert_eq!((blocked.remote_items, blocked.taken.styles), (5, 0));
    assert!(blocked.html.contains("alt=\"Sale\"") && blocked.html.contains("data:image/png;base64,AA=="));
    assert!(blocked.html.contains("color:red"), "{}", blocked.html);
    assert!(!blocked.html.contains("shop.test") && !blocked.html.contains("track.test"));
    let loaded = clean(source, RemoteContent::Loaded);
    assert!(loaded.html.contains("src=\"https://cdn.shop.test/a.png\""));
    assert!(loaded.html.contains("src=\"https://track.test/p.gif\""));
    assert!(
        loaded.html.contains("style=\"color:red;background:url(&quot;http://x.test/y&quot;);\""),
        "{}",
        loaded.html
    );
    assert!(loaded.html.contains("background:url(\"http://s.test/y\")"), "{}", loaded.html);
    assert_eq!((loaded.remote_items, &loaded.remote_hosts), (5, &blocked.remote_hosts));
}
