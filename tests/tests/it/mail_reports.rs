//! Publicly reported bugs of mail servers and readers, each with its smallest input: how the whole program
//! handles it by SMTP, on its pages and on the interfaces of Mailpit, Mailinator and MailHog.

use serde_json::Value;
use tests::{
    client::{Response, fetch},
    mail::{MailService, Smtp},
    message::Request,
};

fn start() -> MailService {
    MailService::start(&["--store", "anon", "--store-size", "128MiB", "--domain", "night.test"])
}

/// Percent-encodes a text for a path or a query: all but ASCII letters and digits.
fn coded(text: &str) -> String {
    let byte = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(byte).collect()
}

fn get(service: &MailService, path: &str) -> Response {
    fetch(service.http, &Request::get(path).header("Host", "localhost")).whole()
}

fn json(service: &MailService, path: &str) -> Value {
    let answer = get(service, path).expect_status(200);
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{path}: {error}: {}", answer.text()))
}

fn smtp(service: &MailService) -> Smtp {
    Smtp::greeted(service.smtp).unwrap()
}

/// Id of the mail, from the reply to its DATA.
fn id_of(reply: &str) -> String {
    assert!(reply.starts_with("250"), "{reply}");
    reply.split_whitespace().nth(2).expect("a name").to_owned()
}

/// Sends a mail unchanged to one address; returns the mail's id.
fn send(client: &mut Smtp, to: &str, mail: &[u8]) -> String {
    for line in ["MAIL FROM:<sender@x.test> BODY=8BITMIME", &format!("RCPT TO:<{to}>"), "DATA"] {
        let reply = client.say(&format!("{line}\r\n")).unwrap();
        assert!(reply.starts_with(['2', '3']), "{line}: {reply}");
    }
    client.send(mail).unwrap();
    id_of(&client.say("\r\n.\r\n").unwrap())
}

/// A mail in JSON, from Mailpit's interface.
fn told(service: &MailService, id: &str) -> Value {
    json(service, &format!("/api/v1/message/{id}"))
}

/// File names and bytes of a mail's attachments, attached and inline.
fn attachments(service: &MailService, id: &str) -> Vec<(String, Vec<u8>)> {
    let mail = told(service, id);
    let all = ["Attachments", "Inline"].map(|kind| mail[kind].as_array().expect(kind).clone()).concat();
    all.iter()
        .map(|part| {
            let path = format!("/api/v1/message/{id}/part/{}", part["PartID"].as_str().unwrap());
            let bytes = get(service, &path).expect_status(200).body;
            assert_eq!(part["Size"], bytes.len());
            (part["FileName"].as_str().unwrap().to_owned(), bytes)
        })
        .collect()
}

/// Counts the mails that a search finds.
fn found(service: &MailService, query: &str) -> usize {
    let answer = json(service, &format!("/api/v1/search?query={}", coded(query)));
    answer["messages"].as_array().unwrap().len()
}

/// axllent/mailpit#731, #622, #620, #407, maildev/maildev#488, greenmail#170: valid addresses are accepted,
/// and their inboxes open (RFC 5321, 4.1.2, 4.1.3, 4.5.1; RFC 6531, 3.3).
#[test]
fn odd_addresses_have_inboxes() {
    let service = start();
    let mut client = smtp(&service);
    let bounces = "bounces+1234567-abcd-user=example.test-0123456789abcdef0123456789@em.sender.test";
    for (from, to, inbox) in [
        ("<a@b.test>", "\"odd user\"@example.test", "\"odd user\"@example.test"),
        ("<a@b.test>", "\" \"@example.test", "\" \"@example.test"),
        // The source route is dropped.
        ("<a@b.test>", "@route.test:routed@example.test", "routed@example.test"),
        (&*format!("<{bounces}>"), "long@example.test", "long@example.test"),
        ("<SRS0=I7TD=ft=sender.test=mailer@x.test> BODY=8BITMIME", "srs@example.test", "srs@example.test"),
        ("<>", "user@[192.0.2.1]", "user@[192.0.2.1]"),
        ("<>", "user@[IPv6:2001:db8::1]", "user@[ipv6:2001:db8::1]"),
        ("<> SMTPUTF8", "用户@例子.test", "用户@xn--fsqu00a.test"),
        ("<>", "Postmaster", "postmaster@night.test"),
    ] {
        for line in [format!("MAIL FROM:{from}"), format!("RCPT TO:<{to}>")] {
            let reply = client.say(&format!("{line}\r\n")).unwrap();
            assert!(reply.starts_with("250"), "{line}: {reply}");
        }
        assert!(client.say("DATA\r\n").unwrap().starts_with("354"));
        let id = id_of(&client.say("Subject: hello\r\n\r\nx\r\n.\r\n").unwrap());
        // The inbox's page lists the mail, and the mail's page opens.
        let page = get(&service, &format!("/inbox/{}", coded(inbox))).expect_status(200).text();
        assert!(page.contains(&id), "{to}: {page}");
        let at = format!("/inbox/{}/{id}", coded(inbox));
        get(&service, &at).expect_status(200);
        // Mailinator's path opens the same inbox.
        let (local, domain) = inbox.rsplit_once('@').unwrap();
        let path = format!("/api/v2/domains/{}/inboxes/{}", coded(domain), coded(local));
        assert_eq!(json(&service, &path)["msgs"][0]["id"], id, "{to}");
        // Mailpit's search finds the mail.
        let words = to.trim_start_matches("@route.test:").replace('"', "");
        let query = if words.contains(' ') { format!("to:\"{words}\"") } else { format!("to:{words}") };
        assert_eq!(found(&service, &query), 1, "{query}");
    }
    // An internationalized domain has one inbox, in its Unicode form and in its ASCII form.
    let moved = get(&service, &format!("/inbox/{}", coded("用户@例子.test"))).expect_status(303);
    let page = get(&service, moved.header("location").unwrap()).expect_status(200).text();
    assert!(page.contains("hello"), "{page}");
    client.say("MAIL FROM:<>\r\n").unwrap();
    for wrong in ["@route.test user@example.test", "odd user@example.test", "a@b@c.test"] {
        let reply = client.say(&format!("RCPT TO:<{wrong}>\r\n")).unwrap();
        assert!(reply.starts_with("501"), "{wrong}: {reply}");
    }
    // Unnecessary quotes do not make another inbox.
    send(&mut client_after_reset(client), "\"simple\"@example.test", b"Subject: quoted\r\n\r\nx");
    assert_eq!(found(&service, "to:simple@example.test"), 1);
    let page = get(&service, "/inbox/simple@example.test").expect_status(200).text();
    assert!(page.contains("quoted"), "{page}");
}

fn client_after_reset(mut client: Smtp) -> Smtp {
    assert!(client.say("RSET\r\n").unwrap().starts_with("250"));
    client
}

/// rnwood/smtp4dev#2108: Hebrew in ISO-8859-8-I (WHATWG Encoding, labels) is decoded in lists, on pages and
/// in searches.
#[test]
fn hebrew_is_read_everywhere() {
    let service = start();
    let id = send(
        &mut smtp(&service),
        "heb@night.test",
        b"Subject: =?ISO-8859-8-i?B?8vjhIOjl4S4g7Ons5CDo5eEu4eX3+CDo5eE=?=\r\n\
          Content-Type: text/plain; charset=iso-8859-8-i\r\nContent-Transfer-Encoding: 8bit\r\n\r\n\
          \xf2\xf8\xe1 \xe8\xe5\xe1. \xec\xe9\xec\xe4 \xe8\xe5\xe1.\xe1\xe5\xf7\xf8 \xe8\xe5\xe1",
    );
    let right = "ערב טוב. לילה טוב.בוקר טוב";
    let list = get(&service, "/inbox/heb@night.test").expect_status(200).text();
    assert!(list.contains(&format!("<bdi>{right}</bdi>")), "{list}");
    let page = get(&service, &format!("/inbox/heb@night.test/{id}")).expect_status(200).text();
    assert!(page.contains(&format!("<h1><bdi>{right}</bdi></h1>")), "{page}");
    assert!(page.contains(&format!("dir=\"auto\">{right}")), "{page}");
    let search = get(&service, &format!("/inbox/heb@night.test/search?q={}", coded("טוב"))).text();
    assert!(search.contains("1 mail found"), "{search}");
    assert_eq!(found(&service, "טוב"), 1);
    let mailpit = told(&service, &id);
    assert_eq!(
        (mailpit["Subject"].as_str(), mailpit["Text"].as_str().map(str::trim)),
        (Some(right), Some(right))
    );
    let path = "/api/v2/domains/public/inboxes/heb";
    assert_eq!(json(&service, &format!("{path}?decode_subject=true"))["msgs"][0]["subject"], right);
    let mail = json(&service, &format!("{path}/messages/{id}"));
    assert_eq!(mail["subject"], right);
    assert_eq!(mail["parts"][0]["body"].as_str().map(str::trim), Some(right), "{mail}");
}

/// inbucket/inbucket#188, zammad/zammad#2458, #928, j-lawyer-org#1838: file names are decoded as mail
/// programs really write them (RFC 2231, RFC 6266).
#[test]
fn file_names_come_as_they_were_meant() {
    let service = start();
    let mut client = smtp(&service);
    let long =
        format!("application/x-log\r\nContent-Disposition: attachment; filename=\"{}.txt\"", "l".repeat(300));
    let attached = "application/x-log\r\nContent-Disposition: attachment; filename";
    for (n, (kind, name, ascii)) in [
        (&*format!("{attached}=\"Historie jízd 28-10-2020.zip\""), "Historie jízd 28-10-2020.zip", "Historie_j_zd_28-10-2020.zip"),
        (&format!("{attached}*=utf-8''Erkl%C3%A4rung.txt"), "Erklärung.txt", "Erkl_rung.txt"),
        (
            &format!("{attached}=\"=?utf-8?B?xIx0?= =?utf-8?Q?5_an_Voda-28.03.2017.jpg?=\""),
            "Čt5 an Voda-28.03.2017.jpg",
            "_t5_an_Voda-28.03.2017.jpg",
        ),
        (
            "=?unknown-8bit?q?application/octet-stream=3B_?=\r\n =?unknown-8bit?q?_name=3D=222022-10-11=5FProze=C3=9F.pdf=22?=",
            "2022-10-11_Prozeß.pdf",
            "2022-10-11_Proze_.pdf",
        ),
        (
            &format!("{attached}*0*=utf-8''%e2%82; filename*1*=%ac%20rates; filename*2=\".txt\""),
            "€ rates.txt",
            "__rates.txt",
        ),
        (&format!("{attached}=\"plain.txt\"; filename*=utf-8''b%C3%A4r.txt"), "bär.txt", "b_r.txt"),
        (&format!("{attached}=\"a/../../b.txt\""), "b.txt", "b.txt"),
        (&format!("{attached}=\"con.txt\""), "con.txt", "con.txt"),
        (&format!("{attached}*=utf-8''x%0d%0aSet-Cookie:%20a=b"), "x Set-Cookie a=b", "x_Set-Cookie_a=b"),
        (&long, &format!("{}.txt", "l".repeat(116)), &format!("{}.txt", "l".repeat(116))),
        ("text/plain\r\nContent-Disposition: attachment", "part-2.txt", "part-2.txt"),
    ]
    .into_iter()
    .enumerate()
    {
        let mail = format!(
            "Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\ntext\r\n--b\r\n\
             Content-Type: {kind}\r\n\r\nDATA\r\n--b--\r\n"
        );
        let id = send(&mut client, &format!("n{n}@night.test"), mail.as_bytes());
        assert_eq!(attachments(&service, &id), [(name.to_owned(), b"DATA".to_vec())], "{kind}");
        let path = format!("/inbox/n{n}@night.test/{id}/attachments/2/x");
        let download = get(&service, &path).expect_status(200);
        let expected = format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{}", coded(name));
        assert_eq!(download.header("content-disposition"), Some(&*expected));
        assert_eq!((download.header("set-cookie"), &*download.body), (None, &b"DATA"[..]));
        let page = get(&service, &format!("/inbox/n{n}@night.test/{id}")).text();
        assert!(page.contains(&format!("<bdi>{name}</bdi>")), "{page}");
    }
}

/// mailslurper/mailslurper#187, mailhog/MailHog#50: a dot after a soft line break is removed once by DATA
/// (RFC 5321, 4.5.2) and never by BDAT, at whatever point the bytes are cut; `_` in a body stays itself (RFC
/// 2045, 6.7).
#[test]
fn dots_behind_soft_breaks_are_kept() {
    let service = start();
    let mut client = smtp(&service);
    let head =
        "Subject: go\r\nContent-Type: text/html\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n";
    let body = "<a href=3D\"https://x.test/confirm?user=3Dann@example=\r\n..com&_t=3D1\">go</a>\r\n";
    let source = [head, body].concat();
    let is_right = |id: &str, host: &str, dots: &str| {
        let link = format!("https://x.test/confirm?user=ann@example{host}&_t=1");
        let mail = told(&service, id);
        let html = mail["HTML"].as_str().unwrap();
        assert!(html.contains(&format!("\"{link}\"")), "{html}");
        let links = json(&service, &format!("/api/v2/domains/public/inboxes/dots/messages/{id}/links"));
        assert_eq!(links["links"][0], *link, "{links}");
        let raw = get(&service, &format!("/inbox/dots@night.test/{id}/raw")).text();
        assert!(raw.contains(&format!("example=\r\n{dots}com&_t")), "{raw}");
    };
    let begin = |client: &mut Smtp| {
        for line in ["MAIL FROM:<s@x.test>\r\n", "RCPT TO:<dots@night.test>\r\n"] {
            assert!(client.say(line).unwrap().starts_with("250"));
        }
    };
    let whole = format!("{source}.\r\n");
    for cut in 0..=whole.len() {
        begin(&mut client);
        assert!(client.say("DATA\r\n").unwrap().starts_with("354"));
        client.send(&whole.as_bytes()[..cut]).unwrap();
        client.send(&whole.as_bytes()[cut..]).unwrap();
        let id = id_of(&client.reply().unwrap());
        is_right(&id, ".com", ".");
    }
    for cut in 1..source.len() {
        begin(&mut client);
        let (first, last) = source.split_at(cut);
        assert!(client.say(&format!("BDAT {}\r\n{first}", first.len())).unwrap().starts_with("250"));
        let id = id_of(&client.say(&format!("BDAT {} LAST\r\n{last}", last.len())).unwrap());
        is_right(&id, "..com", "..");
    }
}

/// suitenumerique/messages#418, chatmail/core#7237, apache/james-project#4396, stalwartlabs/mail-parser#78,
/// email-to-pdf-converter#70: the right part is chosen as the body, and the right parts are attachments (RFC
/// 2046, 5.1.4; RFC 2183, 2.1; RFC 6047).
#[test]
fn the_body_is_the_part_meant() {
    const CALENDAR: &str = "BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nEND:VCALENDAR";
    let service = start();
    let mut client = smtp(&service);
    let inner = "Subject: inner\r\nContent-Type: multipart/mixed; boundary=i\r\n\r\n--i\r\n\r\ninner text\r\n--i\r\n\
                 Content-Type: application/pdf\r\nContent-Disposition: attachment; filename=in.pdf\r\n\r\nPDF\r\n--i--\r\n";
    let middle = format!(
        "Subject: middle\r\nContent-Type: multipart/mixed; boundary=m\r\n\r\n--m\r\n\r\nmiddle text\r\n--m\r\n\
         Content-Type: message/rfc822; name=postacert.eml\r\n\r\n{inner}\r\n--m--\r\n"
    );
    let of = |kind: &str, parts: &[&str]| {
        let parts: String = parts.iter().map(|part| format!("--b\r\n{part}\r\n")).collect();
        format!("Content-Type: multipart/{kind}; boundary=b\r\n\r\n{parts}--b--\r\n")
    };
    let html = "Content-Type: text/html\r\nContent-Disposition: inline\r\n\r\n<b>html</b>";
    let request = format!("Content-Type: text/calendar; method=REQUEST\r\n\r\n{CALENDAR}");
    let nested = |mail: &str| format!("Content-Type: message/rfc822\r\n\r\n{mail}");
    let apple = "Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\nContent-Type: text/html\r\n\r\n<p>one</p>\r\n--a\r\n\
                 Content-Type: application/pdf\r\nContent-Disposition: inline; filename=x.pdf\r\n\r\nPDF\r\n--a\r\n\
                 Content-Type: text/html\r\n\r\n<p>two</p>\r\n--a--";
    let plain = "\r\nplain";
    for (n, (mail, text, shown, files)) in [
        (format!("{html}\r\n"), "html", &["<b>html</b>"][..], &[][..]),
        (of("mixed", &[html]), "html", &["<b>html</b>"], &[]),
        (of("alternative", &[plain, html, &request]), "plain", &["<b>html</b>"], &[("part-3.ics", CALENDAR)]),
        (of("alternative", &[plain, &request]), "plain", &[], &[("part-2.ics", CALENDAR)]),
        (of("alternative", &[plain, apple]), "plain", &["<p>one</p>", "<p>two</p>"], &[("x.pdf", "PDF")]),
        (of("mixed", &[plain, &nested(inner)]), "plain", &[], &[("part-2.eml", inner)]),
        (of("mixed", &[plain, &nested(&middle)]), "plain", &[], &[("part-2.eml", &*middle)]),
        (
            of("alternative", &[plain, "Content-Type: text/x-amp-html\r\n\r\n<html amp4email>", html]),
            "plain",
            &["<b>html</b>"],
            &[("part-2.bin", "<html amp4email>")],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let id = send(&mut client, &format!("b{n}@night.test"), format!("Subject: x\r\n{mail}").as_bytes());
        let told = told(&service, &id);
        assert_eq!(told["Text"].as_str().map(str::trim), Some(text), "{mail}");
        let frame = get(&service, &format!("/inbox/b{n}@night.test/{id}/frame"));
        assert_eq!(frame.status(), if shown.is_empty() { 404 } else { 200 }, "{mail}");
        for piece in shown {
            assert!(frame.text().contains(piece) && told["HTML"].as_str().unwrap().contains(piece), "{mail}");
        }
        let expected: Vec<_> =
            files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.as_bytes().to_vec())).collect();
        assert_eq!(attachments(&service, &id), expected, "{mail}");
        let page = get(&service, &format!("/inbox/b{n}@night.test/{id}")).text();
        for (name, _) in files {
            assert!(page.contains(&format!("<bdi>{name}</bdi>")), "{page}");
        }
    }
}

/// axllent/mailpit#704: a time in a search is understood in each of its spellings, or refused with an error,
/// but never ignored.
#[test]
fn times_in_searches_are_understood() {
    let service = start();
    send(&mut smtp(&service), "a@night.test", b"Subject: x\r\n\r\nx");
    for (query, finds) in [
        ("after:2026-06-11T12:00:00", 1),
        ("after:2026-06-11t12:00:00", 1),
        ("after:\"2026-06-11 12:00:00\"", 1),
        ("after:2026-06-11T12:00:00+02:00", 1),
        ("before:2026-06-11T12:00:00", 0),
        ("before:2026-06-11T12:00:00+02:00", 0),
        ("after:2999-06-11T12:00:00", 0),
    ] {
        assert_eq!(found(&service, query), finds, "{query}");
    }
    for query in ["after:yesterday-ish", "after:2026-13-40", "before:2026-06-11Q12"] {
        get(&service, &format!("/api/v1/search?query={}", coded(query))).expect_status(400);
    }
}

/// Papercut-SMTP#8, himalaya#617: an empty mail to three recipients, a group without members, and a recipient
/// that no header field names.
#[test]
fn empty_mails_groups_and_hidden_recipients() {
    let service = start();
    let mut client = smtp(&service);
    for line in [
        "MAIL FROM:<>",
        "RCPT TO:<e1@night.test>",
        "RCPT TO:<e2@night.test>",
        "RCPT TO:<e3@night.test>",
        "DATA",
    ] {
        assert!(client.say(&format!("{line}\r\n")).unwrap().starts_with(['2', '3']));
    }
    id_of(&client.say(".\r\n").unwrap());
    for inbox in ["e1", "e2", "e3"] {
        assert_eq!(service.subjects(inbox), [""], "{inbox}");
    }
    for (to, shown) in [
        ("undisclosed-recipients:;", "undisclosed-recipients:;"),
        ("Friends: Ann <ann@x.test>, b@x.test;", "Ann &#60;ann@x.test&#62;, b@x.test"),
        ("ann@x.test", "ann@x.test"),
    ] {
        let mail = format!("To: {to}\r\nSubject: hidden\r\n\r\nx");
        let id = send(&mut client, "hidden@night.test", mail.as_bytes());
        let page = get(&service, &format!("/inbox/hidden@night.test/{id}")).expect_status(200).text();
        assert!(page.contains(&format!("<dt>To</dt><dd><bdi>{shown}</bdi>")), "{page}");
    }
    assert_eq!(service.subjects("hidden").len(), 3);
}
