//! A realistic set of sample mails, so that a newcomer sees immediately what an inbox looks like.
//!
//! Each sample shows something that mail programs get wrong: a newsletter with remote and inline images, a
//! one-time code, an attachment, Japanese in its old charset, right-to-left text, an invitation, and a mail
//! that breaks the rules.

use mail_builder::{
    MessageBuilder,
    headers::{date::Date, message_id::MessageId},
    mime::{BodyPart, MimePart},
};

/// One sample mail.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Kind of the sample: `newsletter`, `code`, `attachment`, `japanese`, `rtl`, `invitation`, `broken`.
    pub name: &'static str,
    /// Sender for MAIL FROM.
    pub envelope_from: &'static str,
    /// Bytes of the whole mail.
    pub raw: Vec<u8>,
}

/// Returns the samples, addressed to `to` and dated up to `now_s` seconds after 1970, oldest first.
#[must_use]
pub fn set(to: &str, now_s: i64) -> Vec<Sample> {
    vec![
        newsletter(to, now_s - 6 * 3600),
        attachment(to, now_s - 3 * 3600),
        japanese(to, now_s - 90 * 60),
        right_to_left(to, now_s - 40 * 60),
        invitation(to, now_s - 15 * 60),
        broken(to, now_s - 5 * 60),
        code(to, now_s),
    ]
}

fn letter<'x>(to: &'x str, now_s: i64, name: &'static str) -> MessageBuilder<'x> {
    MessageBuilder::new()
        .to(to)
        .date(Date::new(now_s))
        .message_id(MessageId::new(format!("{name}.{now_s}@samples.nighttrain.test")))
}

fn built(name: &'static str, envelope_from: &'static str, builder: MessageBuilder<'_>) -> Sample {
    // Writing into memory cannot fail.
    Sample { name, envelope_from, raw: builder.write_to_vec().unwrap_or_default() }
}

/// Draws a sleeping car at night, as an uncompressed BMP with 24 bits per pixel, a format that every browser
/// shows.
fn picture() -> Vec<u8> {
    const WIDTH: u32 = 240;
    const HEIGHT: u32 = 60;
    let pixel_bytes = WIDTH * HEIGHT * 3;
    let mut bmp = b"BM".to_vec();
    for field in [54 + pixel_bytes, 0, 54, 40, WIDTH, HEIGHT] {
        bmp.extend_from_slice(&field.to_le_bytes());
    }
    bmp.extend_from_slice(&1u16.to_le_bytes());
    bmp.extend_from_slice(&24u16.to_le_bytes());
    for field in [0, pixel_bytes, 2835, 2835, 0, 0] {
        bmp.extend_from_slice(&field.to_le_bytes());
    }
    // BMP rows are stored from the bottom up.
    for y in (0..HEIGHT).rev() {
        for x in 0..WIDTH {
            let in_car = (12..48).contains(&y) && (8..WIDTH - 8).contains(&x);
            let in_window = (20..34).contains(&y) && x % 32 >= 10 && in_car && x < WIDTH - 16;
            let (r, g, b) = match (in_window, in_car, y >= 50) {
                (true, ..) => (0xff, 0xc8, 0x57),
                (_, true, _) => (0x2a, 0x31, 0x45),
                (.., true) => (0x6e, 0x76, 0x88),
                _ => (0x10, 0x13, 0x1c),
            };
            bmp.extend_from_slice(&[b, g, r]);
        }
    }
    bmp
}

fn newsletter(to: &str, now_s: i64) -> Sample {
    let html = r##"<!doctype html><html><head><style>.x{color:red}</style></head>
<body style="margin:0;background-color:#f4f1ea">
<center><table width="600" cellpadding="0" cellspacing="0" bgcolor="#ffffff" style="max-width:100%;border-collapse:collapse">
<tr><td bgcolor="#10131c" style="padding:0"><img src="cid:train@samples.nighttrain.test" width="240" height="60" alt="A sleeping car at night"></td></tr>
<tr><td style="padding:24px;font-family:Georgia,serif;color:#1c2030">
<h1 style="margin:0 0 12px;font-size:26px">The winter timetable is here</h1>
<p style="line-height:1.5">From 13 December the night train to Amsterdam leaves at <b>21:46</b>, and there is a
sleeping car to Venice again, after eleven years.</p>
<img src="https://images.timetable.test/winter/amsterdam.jpg" width="552" height="180" alt="Canals in the snow">
<p style="line-height:1.5">Book before the end of the month and breakfast is on us.</p>
<p><a href="https://click.timetable.test/?to=https%3A%2F%2Fnighttrain.test%2Fbook&amp;who=4711"
 style="display:inline-block;padding:12px 20px;background-color:#9a6700;color:#ffffff;text-decoration:none;border-radius:4px">Book a berth</a></p>
</td></tr>
<tr><td style="padding:16px 24px;font-family:Arial,sans-serif;font-size:12px;color:#596079">You get this because you asked for it.
<a href="https://timetable.test/unsubscribe/4711">Unsubscribe</a></td></tr>
</table><img src="https://track.timetable.test/open.gif?who=4711" width="1" height="1" alt=""></center></body></html>"##;
    let text = "The winter timetable is here\n\nFrom 13 December the night train to Amsterdam leaves at 21:46, and there is a\n\
        sleeping car to Venice again, after eleven years.\n\nBook a berth: https://nighttrain.test/book\n\n\
        Unsubscribe: https://timetable.test/unsubscribe/4711\n";
    let builder = letter(to, now_s, "newsletter")
        .from(("Night Train Timetable", "news@timetable.test"))
        .subject("The winter timetable is here: Amsterdam at 21:46")
        .text_body(text)
        .html_body(html)
        .inline("image/bmp", "train@samples.nighttrain.test", picture());
    built("newsletter", "bounces@timetable.test", builder)
}

fn code(to: &str, now_s: i64) -> Sample {
    let builder = letter(to, now_s, "code")
        .from(("Example Sign-in", "no-reply@accounts.example"))
        .subject("493021 is your sign-in code")
        .text_body(
            "Hello,\n\nyour sign-in code is 493021. It is valid for 10 minutes.\n\n\
             Or follow this link: https://accounts.example/confirm?token=7f3c9a\n\n\
             If you did not ask for it, you need do nothing.\n",
        );
    built("code", "no-reply@accounts.example", builder)
}

fn attachment(to: &str, now_s: i64) -> Sample {
    let csv = "date,route,berth,eur\n2026-11-02,Zürich–Amsterdam,61,119.00\n2026-11-20,Amsterdam–Zürich,62,119.00\n";
    let pdf = "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n\
        2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n\
        3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 120]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj\n\
        4 0 obj<</Length 52>>stream\nBT /F 18 Tf 20 60 Td (Invoice 2026-0117) Tj ET\nendstream endobj\n\
        5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n";
    let builder = letter(to, now_s, "attachment")
        .from(("Sleeping Cars Ltd", "billing@sleepingcars.test"))
        .subject("Invoice 2026-0117 for November")
        .text_body("Good evening,\n\nthe invoice for your two journeys is attached, and the list as a table.\n\nSleeping Cars Ltd\n")
        .attachment("application/pdf", "invoice-2026-0117.pdf", pdf.as_bytes())
        .attachment("text/csv; charset=utf-8", "Fahrten Zürich.csv", csv.as_bytes());
    built("attachment", "billing@sleepingcars.test", builder)
}

/// A mail as some Japanese programs still send it: ISO-2022-JP with seven-bit escape sequences, in the body
/// and in the subject.
fn japanese(to: &str, now_s: i64) -> Sample {
    let head = format!(
        "From: =?ISO-2022-JP?B?GyRCTGs5VE5zPFYbKEI=?= <info@yakou.test>\r\nTo: {to}\r\n\
         Subject: =?ISO-2022-JP?B?GyRCJDRNPUxzJE4zTkcnGyhC?=\r\nDate: {}\r\n\
         Message-ID: <japanese.{now_s}@samples.nighttrain.test>\r\nMIME-Version: 1.0\r\n\
         Content-Type: text/plain; charset=ISO-2022-JP\r\nContent-Transfer-Encoding: 7bit\r\n\r\n",
        Date::new(now_s).to_rfc822()
    );
    let mut raw = head.into_bytes();
    // こんばんは。ご予約を確認しました。 / 寝台特急 出発 21:46
    raw.extend_from_slice(
        b"\x1b$B$3$s$P$s$O!#$4M=Ls$r3NG'$7$^$7$?!#\x1b(B\r\n\r\n\x1b$B?2BfFC5^\x1b(B 21:46 \x1b$B=PH/\x1b(B\r\n",
    );
    Sample { name: "japanese", envelope_from: "info@yakou.test", raw }
}

fn right_to_left(to: &str, now_s: i64) -> Sample {
    let html = r#"<div dir="rtl" style="font-family:Arial,sans-serif;font-size:16px;line-height:1.6">
<h2>رحلتك الليلية مؤكدة</h2><p>القطار <b>NJ 402</b> يغادر الساعة 21:46 من الرصيف 7.</p>
<p><a href="https://tickets.example/ar/402">عرض التذكرة</a></p></div>"#;
    let builder = letter(to, now_s, "rtl")
        .from(("قطار الليل", "tickets@example.test"))
        .subject("تأكيد الحجز: القطار 402")
        .text_body("رحلتك الليلية مؤكدة\n\nالقطار NJ 402 يغادر الساعة 21:46 من الرصيف 7.\n\nhttps://tickets.example/ar/402\n")
        .html_body(html);
    built("rtl", "tickets@example.test", builder)
}

fn invitation(to: &str, now_s: i64) -> Sample {
    let calendar = format!(
        "BEGIN:VCALENDAR\r\nPRODID:-//Nighttrain//Samples//EN\r\nVERSION:2.0\r\nMETHOD:REQUEST\r\nBEGIN:VEVENT\r\n\
         UID:invitation.{now_s}@samples.nighttrain.test\r\nDTSTAMP:20261121T200000Z\r\nDTSTART:20261211T203000Z\r\n\
         DTEND:20261211T210000Z\r\nSUMMARY:Meet on platform 7\r\nLOCATION:Zürich HB\r\n\
         ORGANIZER;CN=Ann Lee:mailto:ann@friends.test\r\nATTENDEE;RSVP=TRUE:mailto:{to}\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    );
    let alternative = MimePart::new(
        "multipart/alternative",
        vec![
            MimePart::new("text/plain", "Shall we meet on platform 7 before the train leaves?\n\nAnn\n"),
            MimePart::new(
                "text/calendar; method=REQUEST; charset=utf-8",
                BodyPart::Text(calendar.clone().into()),
            ),
        ],
    );
    let body = MimePart::new(
        "multipart/mixed",
        vec![
            alternative,
            MimePart::new("application/ics", BodyPart::Binary(calendar.into_bytes().into()))
                .attachment("invite.ics"),
        ],
    );
    let builder = letter(to, now_s, "invitation")
        .from(("Ann Lee", "ann@friends.test"))
        .subject("Invitation: Meet on platform 7, Friday 21:30")
        .body(body);
    built("invitation", "ann@friends.test", builder)
}

/// A malformed mail as seen in practice: a wrong charset label, a boundary that never closes, half an encoded
/// word, bytes above 127 in the body, an unknown transfer encoding.
fn broken(to: &str, now_s: i64) -> Sample {
    let head = format!(
        "From: \"Old Machine\" <old@machine.test>\r\nTo: {to}\r\nSubject: =?utf-8?Q?Broken_=E2=80=93?= =?utf-8?B?bm90IGNsb3NlZA\r\n\
         Date: yesterday evening\r\nMessage-ID: <broken.{now_s}@samples.nighttrain.test>\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"never-closed\"\r\n\r\n\
         --never-closed\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8-bit-ish\r\n\r\n"
    );
    let mut raw = head.into_bytes();
    // Windows-1252 labelled as UTF-8.
    raw.extend_from_slice(b"This mail says that it is UTF-8, and is not: caf\xe9, na\xefve, 5 \x80.\r\n");
    raw.extend_from_slice(b"--never-closed\r\nContent-Type: image/png; name=\"half.png\"\r\nContent-Transfer-Encoding: base64\r\n\r\niVBORw0KGgo@@@@");
    Sample { name: "broken", envelope_from: "old@machine.test", raw }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{ParsedMail, StepLimit, findings, html::DisplayOptions};

    #[test]
    fn each_sample_is_read_as_it_was_meant() {
        let samples = set("ann@night.test", 1_795_298_400);
        let names: Vec<&str> = samples.iter().map(|sample| sample.name).collect();
        assert_eq!(names, ["newsletter", "attachment", "japanese", "rtl", "invitation", "broken", "code"]);
        for sample in &samples {
            let prepared = ParsedMail::new(&sample.raw);
            let reading = prepared.read();
            let (text, _) = reading.text();
            match sample.name {
                "newsletter" => {
                    let html = reading
                        .html(
                            &DisplayOptions { pictures: "attachments", ..DisplayOptions::default() },
                            &StepLimit::default(),
                        )
                        .unwrap();
                    assert_eq!(html.remote_items, 2);
                    assert_eq!(html.remote_hosts, ["images.timetable.test", "track.timetable.test"]);
                    assert!(
                        html.html.contains("src=\"attachments/"),
                        "the picture is in its place: {}",
                        html.html
                    );
                }
                "attachment" => {
                    let names: Vec<&str> = reading.attachments().iter().map(|a| &*a.filename).collect();
                    assert_eq!(names, ["invoice-2026-0117.pdf", "Fahrten Zürich.csv"]);
                }
                "japanese" => {
                    assert_eq!(reading.subject(), "ご予約の確認");
                    assert!(text.starts_with("こんばんは。ご予約を確認しました。"), "{text}");
                    assert!(text.contains("寝台特急 21:46 出発"), "{text}");
                }
                "rtl" => assert_eq!(reading.subject(), "تأكيد الحجز: القطار 402"),
                "invitation" => {
                    assert!(reading.attachments().iter().any(|a| a.content_type == "text/calendar"));
                    assert!(text.starts_with("Shall we meet"));
                }
                "broken" => {
                    assert!(reading.subject().starts_with("Broken –"), "{}", reading.subject());
                    assert!(text.contains("caf\u{fffd}"), "{text}");
                    assert_eq!(reading.date_ms(), None);
                }
                "code" => {
                    assert_eq!(findings::codes(&reading.subject(), &text, &StepLimit::default()), ["493021"])
                }
                other => panic!("{other}"),
            }
            if sample.name != "broken" {
                assert!(reading.date_ms().is_some(), "{}", sample.name);
                assert!(sample.raw.is_ascii(), "{} goes through any relay", sample.name);
            }
        }
    }
}
