//! The page at `/`: the numbers of `nighttrain stat` for a browser. It has no script; a reload shows the
//! current numbers.

use std::fmt::Write;

use crate::admin::{numbers::uptime_text, stat::Report};

/// Renders the page.
pub(super) fn status(report: &Report) -> String {
    let received = report.count("requests", "received");
    let hits = report.count("requests", "hits");
    let messages = report.count("messages", "received");
    let state = match (report.ready, received) {
        (false, _) => "Starting or stopping; not accepting new requests.".to_owned(),
        (true, 0) if messages > 0 => format!("Ready. {messages} messages received."),
        (true, 0) => "Ready. No requests yet.".to_owned(),
        #[allow(clippy::cast_precision_loss, reason = "shown to a tenth of a percent")]
        (true, _) => format!(
            "Ready. {hits} of {received} requests were answered from memory ({:.1} %).",
            hits as f64 * 100.0 / received as f64
        ),
    };
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Nighttrain</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><style>{STYLE}</style></head>\n\
         <body><header><h1>Nighttrain</h1><p class=\"{}\">{state}</p>\
         <p class=\"quiet\">Version {}, up {}. Reload for the present numbers; also as <a href=\"/stat\">JSON</a> and \
         <a href=\"/metrics\">metrics</a>.</p></header>\n<main>\n",
        if report.ready { "well" } else { "unwell" },
        env!("CARGO_PKG_VERSION"),
        uptime_text(report.uptime_s),
    );
    for group in report.groups.iter().filter(|group| !group.entries.is_empty()) {
        _ = write!(page, "<table><caption>{}</caption>", group.title);
        for entry in &group.entries {
            _ = write!(
                page,
                "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
                escaped(&entry.name.replace('_', " ")),
                entry.number.for_people()
            );
        }
        page.push_str("</table>\n");
    }
    page.push_str("</main></body></html>\n");
    page
}

/// Escapes HTML. All names are constants of this program today, but the values of labels may one day come
/// from outside.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const STYLE: &str = "\
:root { color-scheme: light dark; --ground: #fbfaf7; --raised: #ffffff; --line: #dcd8cd; --text: #1c2030; \
--quiet: #596079; --accent: #9a6700; --green: #1a7f4b; --amber: #9a5b00; }\
@media (prefers-color-scheme: dark) { :root { --ground: #10131c; --raised: #181d2a; --line: #2a3145; \
--text: #e8eaf2; --quiet: #a3abc2; --accent: #ffc857; --green: #58c48d; --amber: #ffb454; } }\
body { margin: 0; padding: 24px; background: var(--ground); color: var(--text); font: 15px/1.6 system-ui, sans-serif; }\
h1 { font-size: 24px; margin: 0; } p { margin: 4px 0; } a { color: var(--accent); }\
.well { font-size: 18px; border-left: 4px solid var(--green); padding-left: 12px; }\
.unwell { font-size: 18px; border-left: 4px solid var(--amber); padding-left: 12px; }\
.quiet { color: var(--quiet); font-size: 13px; }\
main { display: grid; grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); gap: 16px; margin-top: 24px; \
align-items: start; }\
table { background: var(--raised); border: 1px solid var(--line); padding: 16px; \
font-variant-numeric: tabular-nums; }\
caption { text-align: left; font-size: 18px; }\
th { text-align: left; font-weight: normal; color: var(--quiet); } td { text-align: right; }";
