//! Mails with realistic text: for searches, and for pages that parse HTML.
//!
//! The text is drawn word by word from this project's own guides, with the frequency that each word has
//! there. So words are as common or as rare as in ordinary text. Each mail also has the machine-made parts
//! that are unique to a mail: an address, a number, a link with a token.

use lab::paired::spread::Draws;

/// Texts that the words are drawn from.
const GUIDES: [&str; 6] = [
    include_str!("../../../docs/guide/mail.md"),
    include_str!("../../../docs/guide/caching.md"),
    include_str!("../../../docs/guide/feed.md"),
    include_str!("../../../docs/guide/operating.md"),
    include_str!("../../../docs/guide/security.md"),
    include_str!("../../../docs/guide/store.md"),
];
/// Words that no guide contains, of the kind that people search for: a name, a product, a street.
pub(crate) const RARE: [&str; 8] = [
    "quarzbruch",
    "Wolfenstieg",
    "hyazinthe",
    "xylograph",
    "Jablonski",
    "marzipankugel",
    "zwiebelturm",
    "okapi7741",
];
/// Number of mails that contain each word of [`RARE`].
pub(crate) const RARE_MAILS: u64 = 3;
/// Maximum number of characters in a line of text.
const LINE_CHARACTERS: usize = 72;

/// Generator of mails with realistic text.
#[derive(Debug)]
pub(crate) struct SampleMails {
    words: Vec<&'static str>,
    mail_bytes: usize,
    mails: u64,
    inboxes: u64,
}

impl SampleMails {
    /// Creates a generator of `mails` mails of about `mail_bytes` bytes each, to `inboxes` inboxes.
    #[must_use]
    pub(crate) fn new(mails: u64, mail_bytes: usize, inboxes: u64) -> Self {
        let words = GUIDES.iter().flat_map(|guide| guide.split_whitespace());
        let words = words.filter(|word| word.is_ascii() && word.len() < 20).collect();
        Self { words, mail_bytes, mails, inboxes }
    }

    /// Appends the mail of a number; returns the number of its inbox.
    pub(crate) fn write(&self, number: u64, mail: &mut Vec<u8>) -> u64 {
        let mut draws = Draws::new(number);
        let (token, order) = (draws.bits(), draws.bits() >> 40);
        let begin = mail.len();
        let mut text = |text: &str| mail.extend_from_slice(text.as_bytes());
        text(&format!(
            "From: {} <{}{}@{}.test>\r\nTo: i{}@bench.test\r\nSubject:",
            self.word(&mut draws),
            self.letters(&mut draws),
            order % 1000,
            self.letters(&mut draws),
            number % self.inboxes,
        ));
        for _ in 0..6 {
            text(" ");
            text(self.word(&mut draws));
        }
        text(&format!(
            "\r\nDate: Thu, 26 Nov 2026 03:14:15 +0000\r\nMessage-ID: <{token:016x}@bench.test>\r\nMIME-Version: 1.0\r\n\
             Content-Type: text/plain; charset=utf-8\r\n\r\nOrder {order}: https://shop.test/orders?token={token:x}\r\n"
        ));
        if let Some(rare) = self.rare(number) {
            text(rare);
        }
        let mut line = 0;
        while mail.len() - begin + 2 < self.mail_bytes {
            let word = self.word(&mut draws);
            let left = self.mail_bytes - 2 - (mail.len() - begin);
            let is_full = line + word.len() > LINE_CHARACTERS;
            mail.extend_from_slice(if is_full { b"\r\n" } else { b" " });
            line = if is_full { word.len() } else { line + 1 + word.len() };
            mail.extend_from_slice(&word.as_bytes()[..word.len().min(left)]);
        }
        mail.extend_from_slice(b"\r\n");
        number % self.inboxes
    }

    /// Returns the rare word of a mail, if it has one: each word is in [`RARE_MAILS`] mails, which are far
    /// apart.
    fn rare(&self, number: u64) -> Option<&'static str> {
        let apart = (self.mails / (RARE.len() as u64 * RARE_MAILS)).max(1);
        let at = number / apart;
        let is_one = number % apart == apart / 2 && at < RARE.len() as u64 * RARE_MAILS;
        is_one.then(|| RARE[(at % RARE.len() as u64) as usize])
    }

    fn word(&self, draws: &mut Draws) -> &'static str {
        self.words[draws.below(self.words.len())]
    }

    /// Draws a word that consists of letters only.
    fn letters(&self, draws: &mut Draws) -> &'static str {
        let is_plain = |word: &&str| word.bytes().all(|byte| byte.is_ascii_alphabetic());
        (0..50).map(|_| self.word(draws)).find(is_plain).unwrap_or("shop")
    }
}

/// Returns a newsletter as HTML of about `bytes` bytes, a third of it style sheets.
#[must_use]
pub(crate) fn newsletter(bytes: usize) -> String {
    let mut html = String::from("<!doctype html><html><head><style>");
    let mut n = 0;
    while html.len() < bytes / 3 {
        n += 1;
        html.push_str(&format!(
            "@media only screen and (min-width:{n}px){{.column-{n}{{width:50% !important;max-width:50%}}\
             .a-{n}>td:hover,#b-{n} a[href^=\"http\"]{{color:#2457c5;background:linear-gradient(90deg,rgba(0,0,0,.5),#fff)}}}}\r\n"
        ));
    }
    html.push_str("</style></head><body style=\"margin:0;background-color:#f0efe9\">\r\n");
    while html.len() < bytes {
        n += 1;
        html.push_str(&format!(
            "<table class=\"column-{n}\" width=\"600\" cellpadding=\"0\" style=\"border-collapse:collapse;width:600px\"><tr>\
             <td align=\"center\" style=\"padding:20px;font-family:'Open Sans', Arial, sans-serif;font-size:15px\">\
             <a href=\"https://shop.test/?n={n}&amp;u=2\" style=\"display:inline-block;color:#9a6700\">Berth {n}</a>\
             <img src=\"https://cdn.shop.test/{n}.png\" width=\"64\" alt=\"\"> Platform 7, at nine, as ever.</td></tr></table>\r\n"
        ));
    }
    html.push_str("</body></html>\r\n");
    html
}

/// Returns HTML that is slow to parse, each below the size limit, with a description.
#[must_use]
pub(crate) fn slow() -> [(&'static str, String); 4] {
    // The parser reopens the unclosed elements in each following paragraph, which makes forty thousand
    // elements.
    let open: String = (0..100).map(|n| format!("<b a={n}>\r\n")).collect();
    let left_open = format!("<p>{open}</p>\r\n{}", "<p>x</p>\r\n".repeat(400));
    // Content that is not allowed in a table is moved in front of it (foster parenting).
    let tables = "<table>\r\n".to_owned() + &"<b>x</b><tr>\r\n".repeat(1_800);
    let rules: String = (0..4_900)
        .map(|n| {
            format!(".a{n} .b>.c:not(.d):hover,#e{n}{{color:rgb(1,2,{n});margin:calc(1px + {n}px)}}\r\n")
        })
        .take_while({
            let mut bytes = 0;
            move |rule| {
                bytes += rule.len();
                bytes < 250 << 10
            }
        })
        .collect();
    let styled = (0..19_000)
        .map(|n| format!("<i style=\"color:rgb(1,2,{n});background:url(x);width:calc(1px*{n})\">\r\n</i>"))
        .collect();
    [
        ("elements left open", left_open),
        ("tables in tables", tables),
        ("a style sheet", format!("<style>{rules}</style><p>x</p>\r\n")),
        ("styles of elements", styled),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_words_are_in_their_mails_only() {
        let letters = SampleMails::new(1_000, 4096, 10);
        let mut found = [0; RARE.len()];
        for number in 0..1_000 {
            let mut mail = Vec::new();
            assert_eq!(letters.write(number, &mut mail), number % 10);
            assert!((4096..4099).contains(&mail.len()), "{}", mail.len());
            let text = String::from_utf8(mail).expect("ASCII");
            for (count, rare) in found.iter_mut().zip(RARE) {
                *count += u64::from(text.contains(rare));
            }
        }
        assert_eq!(found, [RARE_MAILS; RARE.len()]);
        assert!((60 << 10..62 << 10).contains(&newsletter(60 << 10).len()));
    }
}
