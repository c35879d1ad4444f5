//! Cost of sanitizing a mail's HTML: processor time of this thread, with the same mail many times.
//!
//! `cargo run --release -p mail --example render_cost -- newsletter.html` takes HTML from a file; without a
//! file it makes a newsletter of about 60 KiB, half of it style.

use std::{
    env, fs,
    io::{self, Write},
};

use engine::cores::clock;
use mail::render::{
    ParsedMail, StepLimit,
    html::{DisplayOptions, SanitizedHtml},
};

const ROUNDS: usize = 501;
const NEWSLETTER_BYTES: usize = 60 * 1024;

fn newsletter() -> String {
    let mut html = String::from("<!doctype html><html><head><style>");
    let mut n = 0;
    while html.len() < NEWSLETTER_BYTES / 3 {
        n += 1;
        html.push_str(&format!(
            "@media only screen and (min-width:{n}px){{.column-{n}{{width:50% !important;max-width:50%}}\
             .a-{n}>td:hover,#b-{n} a[href^=\"http\"]{{color:#2457c5;background:linear-gradient(90deg,rgba(0,0,0,.5),#fff)}}}}\n"
        ));
    }
    html.push_str("</style></head><body style=\"margin:0;background-color:#f0efe9\">");
    while html.len() < NEWSLETTER_BYTES {
        n += 1;
        html.push_str(&format!(
            "<table class=\"column-{n}\" width=\"600\" cellpadding=\"0\" style=\"border-collapse:collapse;width:600px\"><tr>\
             <td align=\"center\" style=\"padding:20px;font-family:'Open Sans', Arial, sans-serif;font-size:15px\">\
             <a href=\"https://shop.test/?n={n}&amp;u=2\" style=\"display:inline-block;color:#9a6700\">Berth {n}</a>\
             <img src=\"https://cdn.shop.test/{n}.png\" width=\"64\" alt=\"\"> Platform 7, at nine, as ever.</td></tr></table>\n"
        ));
    }
    html.push_str("</body></html>");
    html
}

fn main() -> io::Result<()> {
    let html = env::args().nth(1).map_or_else(|| Ok(newsletter()), fs::read_to_string)?;
    let raw = format!("Content-Type: text/html; charset=utf-8\r\n\r\n{html}");
    let mut took_ns = Vec::with_capacity(ROUNDS);
    let mut last: Option<SanitizedHtml> = None;
    for _ in 0..ROUNDS {
        let begun_ns = clock::thread_cpu_ns();
        let prepared = ParsedMail::new(raw.as_bytes());
        last = prepared.read().html(&DisplayOptions::default(), &StepLimit::default());
        took_ns.push(clock::thread_cpu_ns() - begun_ns);
    }
    took_ns.sort_unstable();
    let at = |part: f64| took_ns[(part * (ROUNDS - 1) as f64) as usize] / 1000;
    let clean = last.unwrap_or_else(|| unreachable!("it has HTML"));
    writeln!(
        io::stdout(),
        "{} bytes, {} of them shown: median {} µs, p95 {} µs, worst {} µs ({})",
        html.len(),
        clean.html.len(),
        at(0.5),
        at(0.95),
        at(1.0),
        clean.over.map_or("shown".to_owned(), |over| over.to_string()),
    )
}
