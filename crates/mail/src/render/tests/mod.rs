mod hostile;
use std::collections::HashMap;

use mail_parser::HeaderName;
use proptest::prelude::*;

use super::{
    Notice, ParsedMail,
    findings::{codes, in_text},
    html::{DisplayOptions, RemoteContent, SanitizedHtml},
    *,
};

pub(super) use hostile::assert_harmless;
use hostile::tricks;

pub(super) fn clean(source: &str, remote: RemoteContent) -> SanitizedHtml {
    html::clean(
        source,
        &DisplayOptions { remote, ..DisplayOptions::default() },
        HashMap::new(),
        &StepLimit::default(),
    )
}

/// Returns the content of the body element.
pub(super) fn body(html: &str) -> &str {
    // A document with frames has no body.
    let Some(begin) = html.find("<body") else { return "" };
    let begin = begin + html[begin..].find('>').expect("its tag ends") + 1;
    html[begin..].strip_suffix("</body></html>").expect("it ends")
}

fn shown(reading: &DecodedMail<'_>, remote: RemoteContent) -> SanitizedHtml {
    let how = DisplayOptions { remote, pictures: "attachments", ..DisplayOptions::default() };
    reading.html(&how, &StepLimit::default()).expect("it has HTML")
}

fn links(reading: &DecodedMail<'_>) -> Vec<findings::Link> {
    findings::links(reading, &StepLimit::default())
}

fn with<T>(raw: &[u8], look: impl FnOnce(&DecodedMail<'_>) -> T) -> T {
    let prepared = ParsedMail::new(raw);
    look(&prepared.read())
}

#[test]
fn encoded_words_and_charsets_are_decoded() {
    for (value, text) in [
        (&b"plain"[..], "plain"),
        (b"=?UTF-8?B?44GT44KT44Gr44Gh44Gv?=", "こんにちは"),
        (b"=?iso-8859-1?q?caf=E9?= =?iso-8859-1?q?_cr=E8me?=", "café crème"),
        (b"=?ISO-2022-JP?B?GyRCRnxLXDhsGyhC?=", "日本語"),
        (b"=?windows-1251?Q?=CF=F0=E8=E2=E5=F2?=", "Привет"),
        (b"=?unknown?q?x?=", "x"),
        ("naïve – raw UTF-8".as_bytes(), "naïve – raw UTF-8"),
        (b"two\r\n lines", "two lines"),
        ("gpj.\u{202e}exe".as_bytes(), "gpj.exe"),
        (b"bell\x07 null\0", "bell null"),
    ] {
        assert_eq!(fields::decode(value), text, "{}", String::from_utf8_lossy(value));
    }
}

#[test]
fn a_from_field_gives_name_and_address() {
    for (value, name, address) in [
        (&b"Ann Lee <ann@example.org>"[..], "Ann Lee", "ann@example.org"),
        (b"ann@example.org", "", "ann@example.org"),
        (b"=?utf-8?q?J=C3=BCrgen?= <j@example.org>", "Jürgen", "j@example.org"),
        (b"\"Lee, Ann\" <ann@example.org>, b@c", "Lee, Ann", "ann@example.org"),
    ] {
        let decoded = fields::decode_address(value);
        assert_eq!((&*decoded.name, &*decoded.address), (name, address));
    }
    assert_eq!(fields::decode_address(b"").label(), "");
}

#[test]
fn bodies_in_any_charset_are_text() {
    let japanese = b"Content-Type: text/plain; charset=iso-2022-jp\r\n\r\n\x1b$BF|K\\8l\x1b(B";
    assert_eq!(with(japanese, |r| r.text().0), "日本語");
    let lie = b"Content-Type: text/plain; charset=utf-8\r\n\r\ncaf\xe9";
    assert_eq!(with(lie, |r| r.text().0), "caf\u{fffd}");
    let html_only = b"Content-Type: text/html; charset=koi8-r\r\n\r\n<p>\xf0\xd2\xc9\xd7\xc5\xd4</p>";
    with(html_only, |r| {
        assert_eq!(r.text().0.trim(), "Привет");
        assert!(!r.has_own_text());
        assert_eq!(body(&shown(r, RemoteContent::Blocked).html), "<p>Привет</p>");
    });
}

#[test]
fn alternatives_and_attachments_are_told_apart() {
    let raw = b"From: a@b\r\nTo: c@d, E <e@f>\r\nSubject: s\r\nDate: Sat, 21 Nov 2026 22:00:00 +0000\r\n\
        Content-Type: multipart/mixed; boundary=m\r\n\r\n\
        --m\r\nContent-Type: multipart/alternative; boundary=a\r\n\r\n\
        --a\r\nContent-Type: text/plain\r\n\r\nthe text\r\n\
        --a\r\nContent-Type: text/html\r\n\r\n<b>the html</b><img src=\"cid:pic@x\">\r\n--a--\r\n\
        --m\r\nContent-Type: image/png\r\nContent-ID: <pic@x>\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw0KGgo=\r\n\
        --m\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename=\"../../etc/pass wd\"\r\n\r\n%PDF\r\n\
        --m--\r\n";
    with(raw, |r| {
        assert_eq!(r.text().0.trim_end(), "the text");
        assert_eq!(r.subject(), "s");
        assert_eq!(r.date_ms(), Some(1_795_298_400_000));
        let to: Vec<String> = r.addresses(HeaderName::To).iter().map(ToString::to_string).collect();
        assert_eq!(to, ["c@d", "E <e@f>"]);
        assert_eq!(
            body(&shown(r, RemoteContent::Blocked).html).trim_end(),
            "<b>the html</b><img src=\"attachments/4/part%2D4%2Epng\">"
        );
        let names: Vec<&str> = r.attachments().iter().map(|a| &*a.filename).collect();
        assert_eq!(names, ["part-4.png", "pass wd"]);
        assert_eq!(&*r.attachment_bytes(&r.attachments()[1]), b"%PDF");
        assert_eq!(r.headers()[2], ("Subject".to_owned(), "s".to_owned()));
        assert!(r.notices().is_empty());
    });
}

#[test]
fn broken_mails_are_still_shown() {
    for raw in [
        &b""[..],
        b"\r\n",
        b"no head, no colon",
        b":\r\n\r\n",
        b"Content-Type: multipart/mixed; boundary=never\r\n\r\nbody",
        b"Content-Type: multipart/mixed\r\n\r\nbody",
        b"Content-Type: text/plain\r\nContent-Transfer-Encoding: base64\r\n\r\n!!!not base64!!!",
        b"Content-Type: message/rfc822\r\n\r\n",
        b"\xff\xfe\0\0",
    ] {
        with(raw, |r| {
            let _ = (
                r.subject(),
                r.text(),
                r.html(&DisplayOptions::default(), &StepLimit::default()),
                r.headers(),
                r.date_ms(),
                links(r),
            );
        });
    }
    assert_eq!(with(b"", |r| r.notices().to_vec()), [Notice::NotAMail]);
    let broken = b"Content-Type: text/plain\r\nContent-Transfer-Encoding: base64\r\n\r\n!!!not base64!!!";
    assert!(with(broken, |r| r.text().0).contains("not base64"));
}

/// Each of these searches once took quadratic time.
#[test]
fn long_texts_are_searched_once() {
    let brackets = format!("http://x.test/{}", ")".repeat(1 << 20));
    let mut found = Vec::new();
    in_text(&brackets, &mut found, &StepLimit::default());
    assert_eq!(found[0].link, "http://x.test/");
    in_text("http://x.test/(a) http://x.test/(b).) http://x.test/[c]].", &mut found, &StepLimit::default());
    let links: Vec<&str> = found.iter().map(|link| &*link.link).collect();
    assert_eq!(links[1..], ["http://x.test/(a)", "http://x.test/(b)", "http://x.test/[c]"]);
    let many: String = (0..1_000)
        .map(|part| format!("--b\r\nContent-Type: image/png\r\nContent-ID: <{part}@x>\r\n\r\n{part}\r\n"))
        .collect();
    let raw = format!(
        "Content-Type: multipart/related; boundary=b\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n{}<img src=\"cid:7@x\">\r\n{many}",
        "x".repeat(1 << 20)
    );
    let html = with(raw.as_bytes(), |r| shown(r, RemoteContent::Blocked).html);
    assert!(
        html.ends_with("<img src=\"attachments/9/part%2D9%2Epng\"></body></html>"),
        "{}",
        &html[html.len() - 99..]
    );
}

#[test]
fn a_newsletters_layout_stays() {
    let source = "<center><table width=\"600\" cellpadding=\"0\" bgcolor=\"#ffffff\" style=\"border-collapse:collapse\"><tr>\
        <td align=\"center\" style=\"padding: 20px; font-family: Arial, sans-serif\"><font color=\"#333\" size=2>Hello</font>\
        <a href=\"https://shop.test/?a=1&amp;b=2\" style=\"display:inline-block\">Buy</a></td></tr></table></center>";
    let html = clean(source, RemoteContent::Blocked).html;
    for kept in [
        "<center>",
        "width=\"600\"",
        "cellpadding=\"0\"",
        "bgcolor=\"#ffffff\"",
        "border-collapse:collapse",
        "align=\"center\"",
        "<font color=\"#333\" size=\"2\">",
        "href=\"https://shop.test/?a=1&amp;b=2\"",
        "target=\"_blank\"",
        "rel=\"noopener noreferrer nofollow\"",
        "display:inline-block",
    ] {
        assert!(html.contains(kept), "{kept} is lost: {html}");
    }
}

#[test]
fn links_have_their_true_targets() {
    let raw = b"Content-Type: text/html\r\n\r\n<a href=\"https://evil.test/?a=1&amp;b=2\">https://<b>bank</b>.test/</a> \
        <a href='mailto:x@y'>write</a> <a>none</a> see https://plain.test/a_(b).";
    let found = with(raw, links);
    let pairs: Vec<(&str, &str)> = found.iter().map(|l| (&*l.link, &*l.text)).collect();
    assert!(
        pairs.starts_with(&[("https://evil.test/?a=1&b=2", "https://bank.test/"), ("mailto:x@y", "write")]),
        "{pairs:?}"
    );
    assert!(pairs.contains(&("https://plain.test/a_(b)", "")), "{pairs:?}");
    let mut bare = Vec::new();
    in_text("(see http://a.test/x) and <https://b.test>, http://c.test.", &mut bare, &StepLimit::default());
    let bare: Vec<&str> = bare.iter().map(|l| &*l.link).collect();
    assert_eq!(bare, ["http://a.test/x", "https://b.test", "http://c.test"]);
}

#[test]
fn one_time_codes_are_found() {
    for (subject, text, expected) in [
        ("Your code", "Your code is 493021. It is valid for 10 minutes.", &["493021"][..]),
        ("482913 is your verification code", "", &["482913"]),
        ("Login", "Use this:\n\n  907 114  \n\nto sign in.", &["907114"]),
        ("Google", "G-882914 is your Google verification code.", &["882914"]),
        ("Confirm", "Your confirmation code: 123-456", &["123456"]),
        ("Sign in", "Enter the code\n\nX7K2P9\n\nto go on", &["X7K2P9"]),
        ("認証コード", "認証コード：583920", &["583920"]),
        ("Ihr Bestätigungscode", "lautet 4711.", &["4711"]),
        (
            "Sign in",
            "Order 774411. Your code is 482913, call 555120 for help.",
            &["482913", "774411", "555120"],
        ),
        ("Sign in", "Your code is = 482913", &["482913"]),
        ("Sign in", "Zip 94107. Use 48291377 as your code.", &["48291377", "94107"]),
        ("Your code", "12-34-56", &["123456"]),
        ("Your code", "Enter AB12-CD34 to go on.", &["AB12-CD34"]),
        ("Your code", "4 8 2 9 1 3", &["482913"]),
        ("Your code", "Pages 1 2 3 4 5", &[]),
        ("Invoice 2026", "We charged $4900 on 2026-11-21. Call 1800555000.", &[]),
        ("Newsletter", "Since 2019 we have sent 12000 mails.", &[]),
    ] {
        assert_eq!(codes(subject, text, &StepLimit::default()), expected, "{subject} / {text}");
    }
}

#[test]
fn a_final_soft_break_keeps_the_text() {
    for line_end in ["\r\n", "\n"] {
        let raw = "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Transfer-Encoding: quoted-printable\n\n\
                   caf=C3=A9 au lait=\n--b--\n"
            .replace('\n', line_end);
        with(raw.as_bytes(), |r| assert_eq!(r.text().0, "café au lait", "{line_end:?}"));
    }
}

/// Mails from public bug reports that other programs read correctly. Each was once read wrongly here, or was
/// untested.
#[test]
fn mails_are_read_as_others_read_them() {
    let text = |raw: &str| with(raw.as_bytes(), |r| r.text().0.trim().to_owned());
    let qp = |body: &str| text(&format!("Content-Transfer-Encoding: quoted-printable\r\n\r\n{body}\r\n"));
    assert_eq!(qp("Your code is = 482913"), "Your code is = 482913");
    assert_eq!(qp("a = b"), "a = b");
    assert_eq!(qp("x=5=ZZ a=3Db"), "x=5=ZZ a=b");
    let hebrew = b"Subject: =?ISO-8859-8-i?B?8vjhIOjl4S4g7Ons5CDo5eEu4eX3+CDo5eE=?=\r\n\
        Content-Type: text/plain; charset=iso-8859-8-i\r\nContent-Transfer-Encoding: 8bit\r\n\r\n\xf2\xf8\xe1 \xe8\xe5\xe1";
    with(hebrew, |r| {
        assert_eq!((&*r.subject(), &*r.text().0), ("ערב טוב. לילה טוב.בוקר טוב", "ערב טוב"));
    });
    let dotted = "Content-Type: text/html\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n\
        <a href=3D\"https://x.test/confirm?user=3Dann@example=\r\n.com&_t=3D1\">go</a>\r\n";
    assert_eq!(with(dotted.as_bytes(), links)[0].link, "https://x.test/confirm?user=ann@example.com&_t=1");
    let open = "Content-Type: multipart/mixed; boundary=o\r\n\r\n--o\r\nContent-Type: multipart/alternative; boundary=i\r\n\r\n\
        --i\r\n\r\nplain\r\n--i\r\nContent-Type: text/html\r\n\r\n<b>html</b>\r\n\
        --o\r\nContent-Type: image/png\r\nContent-Disposition: attachment; filename=a.png\r\n\r\nPNG\r\n--o--\r\n";
    with(open.as_bytes(), |r| {
        assert_eq!((&*r.text().0, r.html_source().as_deref()), ("plain", Some("<b>html</b>")));
        assert_eq!(r.attachments().len(), 1);
        assert!(r.attachments()[0].attached && &*r.attachment_bytes(&r.attachments()[0]) == b"PNG");
    });
    let cut_off = &open[..open.find("\r\n--o\r\nContent-Type: image").unwrap()];
    with(cut_off.as_bytes(), |r| assert_eq!(r.html_source().as_deref(), Some("<b>html</b>")));
    assert_eq!(fields::decode(b"=?utf-8?q?caf=C3?= =?utf-8?q?=A9?="), "café");
    assert_eq!(fields::decode_address(b"=?utf-8?b?w4?= =?utf-8?q?=84nn?= <a@b>").name, "Änn");
    with(b"Subject: one\r\nSubject: two\r\nFrom: a@b\r\nFrom: c@d\r\n\r\n", |r| {
        assert_eq!((&*r.subject(), r.addresses(HeaderName::From).len()), ("one", 1));
    });
    with("\u{feff}Subject: x\r\n\r\nbody".as_bytes(), |r| {
        assert_eq!((&*r.subject(), &*r.text().0), ("x", "body"))
    });
    assert_eq!(text("Content-Type: text/markdown\r\n\r\n# a"), "# a");
    assert_eq!(text("Content-Type: application/json\r\n\r\n{\"a\":1}"), "{\"a\":1}");
    let both = "Content-Type: multipart/alternative; boundary=a\r\n\r\n--a\r\n\r\nsee the HTML\r\n\
        --a\r\nContent-Type: text/html\r\n\r\n<table><tr><td>4</td><td>8</td><td>2</td><td>9</td><td>1</td><td>3</td></tr></table> is your code\r\n--a--";
    with(both.as_bytes(), |r| assert_eq!(codes("", &r.whole_text(), &StepLimit::default()), ["482913"]));
    let bounce = "Content-Type: multipart/report; boundary=b\r\n\r\n--b\r\n\r\nnot delivered\r\n--b\r\n\
        Content-Type: message/delivery-status\r\n\r\nAction: failed\r\n--b\r\nContent-Type: message/rfc822\r\n\r\nSubject: x\r\n\r\ny\r\n--b--";
    with(bounce.as_bytes(), |r| {
        assert!(r.attachments().len() == 2 && r.attachments().iter().all(|own| !own.attached));
        assert_eq!(&*r.attachment_bytes(&r.attachments()[1]), b"Subject: x\r\n\r\ny");
    });
}

#[test]
fn pictures_of_the_mail_are_shown() {
    let raw = "Content-Type: multipart/related; boundary=b\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n\
        <img src=cid:s><img src=cid:p><table background=cid:p></table><p style=\"background:url(cid:x@y)\">z</p>\r\n\
        --b\r\nContent-Type: image/svg+xml\r\nContent-ID: <s>\r\n\r\n<svg/>\r\n\
        --b\r\nContent-Type: application/octet-stream; name=\"p.png\"\r\nContent-ID: <cid:p>\r\n\r\nx\r\n\
        --b\r\nContent-Type: image/gif\r\nContent-ID: <x@y>\r\n\r\nx\r\n--b--";
    let html = with(raw.as_bytes(), |r| shown(r, RemoteContent::Blocked).html);
    for path in
        ["src=\"attachments/2/part%2D2%2Esvg?picture=1\"", "background=\"attachments/3/p%2Epng?picture=1\""]
    {
        assert!(html.contains(path), "{html}");
    }
    assert!(
        html.contains("src=\"attachments/3/p%2Epng?picture=1\"") && html.contains("attachments/4/"),
        "{html}"
    );
}

/// File names contain no path and nothing that ends a header field, and keep their extension.
#[test]
fn file_names_are_names() {
    let long = format!("{}.txt", "l".repeat(130));
    for (given, expected) in [
        ("a/../../b.txt", "b.txt"),
        ("con.txt", "con.txt"),
        ("C:\\dir\\file.txt", "file.txt"),
        ("x\u{7}y.txt", "xy.txt"),
        ("..", "part-1.bin"),
        (&*long, &*format!("{}.txt", "l".repeat(116))),
    ] {
        let raw = format!(
            "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: application/pdfx\r\n\
             Content-Disposition: attachment; filename=\"{}\"\r\n\r\nx\r\n--b--",
            given.replace('\\', "\\\\")
        );
        assert_eq!(with(raw.as_bytes(), |r| r.attachments()[0].filename.clone()), expected, "{given}");
    }
}

/// Each code on a line as long as the searched text costs the same, and the step limit ends the search.
#[test]
fn codes_of_one_long_line_are_paid_for() {
    let line = "your code is 482913 ".repeat(3_000);
    let until = StepLimit::default();
    assert_eq!(codes("", &line, &until), ["482913"]);
    let whole = until.steps();
    let half = StepLimit::default();
    _ = codes("", &line[..line.len() / 2], &half);
    assert!(whole <= 2 * half.steps() + 1_000, "{whole} steps, {} for half of it", half.steps());
    let over = StepLimit::new(|| true);
    assert!(codes("", &line, &over).is_empty());
    assert!(over.refusals() <= 1);
}

proptest! {
    #[test]
    fn no_bytes_are_too_odd_to_be_read(raw in proptest::collection::vec(any::<u8>(), 0..600)) {
        with(&raw, |r| {
            let _ = (r.subject(), r.text(), r.html(&DisplayOptions::default(), &StepLimit::default()), r.headers(), links(r), codes(&r.subject(), &r.text().0, &StepLimit::default()));
        });
    }

    #[test]
    fn no_structure_is_too_odd_to_be_read(pieces in proptest::collection::vec(0usize..16, 0..60)) {
        const PIECES: [&str; 16] = [
            "Content-Type: multipart/mixed; boundary=b\r\n", "Content-Type: multipart/alternative; boundary=\"c\"\r\n",
            "Content-Type: message/rfc822\r\n", "Content-Type: text/html; charset=utf-16\r\n", "\r\n", "--b\r\n", "--c\r\n",
            "--b--\r\n", "--c--\r\n", "Content-Transfer-Encoding: base64\r\n", "Content-Transfer-Encoding: quoted-printable\r\n",
            "Content-Disposition: attachment; filename*=utf-8''%ff%00\r\n", "aGVsbG8=\r\n", "=3D=\r\n", "<p>x\r\n",
            "Content-Type: multipart/related; boundary=b\r\n",
        ];
        let raw: String = pieces.iter().map(|&piece| PIECES[piece]).collect();
        with(raw.as_bytes(), |r| {
            for attachment in r.attachments() {
                prop_assert_eq!(r.attachment_bytes(attachment).len(), attachment.size_bytes);
                prop_assert!(!attachment.filename.is_empty() && !attachment.filename.contains('/'));
            }
            let _ = (r.text(), r.html(&DisplayOptions { remote: RemoteContent::Loaded, dark: true, pictures: "" }, &StepLimit::default()), links(r));
            Ok(())
        })?;
    }

    #[test]
    fn no_mixture_of_tricks_survives(picks in proptest::collection::vec((any::<prop::sample::Index>(), 0usize..60), 1..8)) {
        // Truncated pieces of hostile HTML, joined in ways that could surprise a filter.
        let tricks = tricks();
        let mut source = String::new();
        for (trick, keep) in picks {
            let trick = trick.get(&tricks);
            source.push_str(cut(trick, trick.len().min(keep)));
        }
        assert_harmless(&clean(&source, RemoteContent::Blocked).html, &source);
    }
}
