//! The demonstration site's pages: those of a small railway company, in plain HTML.

use std::fmt::Write;

use axum::body::Bytes;

use super::pictures;

/// The content type of a page.
pub(super) const HTML: &str = "text/html; charset=utf-8";
/// Path of the page that changes at every request.
pub(super) const BOARD: &str = "/board";
/// Path of the page that is streamed in pieces.
pub(super) const LOG: &str = "/guards-log";
/// Path of the page that differs for each visitor.
pub(super) const BERTH: &str = "/my-berth";

/// A page or picture that does not change while the program runs.
pub(super) struct Page {
    /// Path of the URL.
    pub path: &'static str,
    /// Value of `Content-Type`.
    pub content_type: &'static str,
    /// Value of `Cache-Control`.
    pub cache_control: &'static str,
    /// Bytes of the content.
    pub body: Bytes,
}

/// Stops of the train: name, arrival, departure, and coordinates on the map.
pub(super) const STOPS: [(&str, &str, &str, (u32, u32)); 8] = [
    ("København H", "", "18:53", (592, 64)),
    ("Odense", "20:21", "20:23", (488, 92)),
    ("Kolding", "21:05", "21:07", (424, 84)),
    ("Padborg", "21:58", "22:13", (412, 132)),
    ("Osnabrück", "03:41", "03:44", (322, 282)),
    ("Emmerich", "06:12", "06:14", (206, 318)),
    ("Utrecht", "07:21", "07:24", (112, 302)),
    ("Amsterdam Centraal", "07:52", "", (78, 268)),
];

/// Returns the pages and pictures that do not change.
pub(super) fn all() -> Vec<Page> {
    let page = |path, title, main: &str| Page {
        path,
        content_type: HTML,
        cache_control: "public, max-age=300",
        body: html(title, main).into(),
    };
    let picture =
        |path, content_type, body| Page { path, content_type, cache_control: "public, max-age=3600", body };
    vec![
        page("/", "The night train to Amsterdam", HOME),
        page("/timetable", "Timetable", &timetable()),
        page("/cars", "The cars", CARS),
        page("/how-it-works", "What you are looking at", HOW),
        picture("/style.css", "text/css; charset=utf-8", Bytes::from_static(STYLE.as_bytes())),
        picture("/pictures/train.svg", "image/svg+xml", pictures::train().into()),
        picture("/pictures/map.svg", "image/svg+xml", pictures::map().into()),
        picture("/pictures/night.bmp", "image/bmp", pictures::night().into()),
    ]
}

/// Returns the page for an unknown path.
pub(super) fn not_found() -> String {
    html("No such platform", "<p>This site has no such page. <a href=\"/\">Back to the station</a>.</p>")
}

/// Returns the departure board at this moment.
pub(super) fn board(now: &str) -> String {
    html(
        "Departures",
        &format!(
            "<p>Made by the site at <time>{now}</time>. It may be shared for ten seconds: reload within that time \
             and the accelerator answers, with the same time on the board.</p>{}",
            timetable()
        ),
    )
}

/// Returns a visitor's own page.
pub(super) fn berth(berth: u32) -> String {
    html(
        "Your berth",
        &format!(
            "<p class=\"figure\">Car {car}, berth {berth}</p><p>This page is yours alone: it came with a cookie, and \
             the accelerator passes it through without storing it. Open it in a private window and you get another \
             berth, never this one.</p>",
            car = 21 + berth / 36,
        ),
    )
}

/// Returns the pieces of the streamed page.
pub(super) fn guards_log() -> Vec<String> {
    let (head, foot) = frame("The guard's log");
    let entries = STOPS.iter().map(|(name, arrival, departure, _)| {
        let time = if departure.is_empty() { arrival } else { departure };
        format!(
            "<p><strong>{time}</strong> {name}. Doors closed, lamps green, all berths accounted for.</p>\n"
        )
    });
    let opening = "<p>The site sends this page a piece at a time and does not say how long it will be. The first \
                   visitor sees it arrive; everyone after gets it whole, from memory.</p>\n";
    [head, opening.to_owned()].into_iter().chain(entries).chain([foot]).collect()
}

fn timetable() -> String {
    let mut rows = String::new();
    for (name, arrival, departure, _) in STOPS {
        _ = writeln!(rows, "<tr><th scope=\"row\">{name}</th><td>{arrival}</td><td>{departure}</td></tr>");
    }
    format!(
        "<table><caption>Train 483, every night</caption>\
         <thead><tr><th scope=\"col\">Stop</th><th scope=\"col\">Arrives</th><th scope=\"col\">Departs</th></tr></thead>\
         <tbody>{rows}</tbody></table>\n<img src=\"/pictures/map.svg\" width=\"640\" height=\"360\" \
         alt=\"The line from København over Padborg and Osnabrück to Amsterdam\">"
    )
}

fn html(title: &str, main: &str) -> String {
    let (head, foot) = frame(title);
    format!("{head}{main}{foot}")
}

fn frame(title: &str) -> (String, String) {
    let head = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <link rel=\"icon\" href=\"/pictures/train.svg\"><link rel=\"stylesheet\" href=\"/style.css\"></head><body>\n\
         <nav><a href=\"/\">Night train</a> <a href=\"/timetable\">Timetable</a> <a href=\"/board\">Departures</a> \
         <a href=\"/cars\">Cars</a> <a href=\"/guards-log\">Guard’s log</a> <a href=\"/my-berth\">Your berth</a> \
         <a href=\"/how-it-works\">How it works</a></nav>\n<main><h1>{title}</h1>\n"
    );
    let foot = "</main>\n<footer>A demonstration site. It takes 200 ms for every answer that it makes; pages that you \
                get at once came from the accelerator’s memory.</footer></body></html>\n";
    (head, foot.to_owned())
}

const HOME: &str = "<img src=\"/pictures/night.bmp\" width=\"480\" height=\"270\" \
alt=\"Night sky over a dark horizon\">\n<p>You board in the evening, the lamps go down somewhere after the border, and \
in the morning there are canals. Long enough to think one thought through to its end.</p>\n\
<img src=\"/pictures/train.svg\" width=\"640\" height=\"96\" alt=\"A night train, its windows lit\">\n\
<p><a href=\"/timetable\">See when it runs</a>, or <a href=\"/my-berth\">find your berth</a>.</p>\n";

const CARS: &str = "<img src=\"/pictures/train.svg\" width=\"640\" height=\"96\" alt=\"A night train, its windows lit\">\n\
<h2>Sleeping car</h2><p>Twelve compartments of three. Sheets are on the berth, water is by the window.</p>\n\
<h2>Couchette</h2><p>Ten compartments of six. The blanket is yours, the silence is shared.</p>\n\
<h2>Dining car</h2><p>Open until the border. Coffee from five.</p>\n";

const HOW: &str = "<p>Your browser talks to the accelerator. What it has in memory it answers at once; what it has not \
it fetches here, from a site that takes 200 ms for each answer, and keeps as long as the answer allows.</p>\n\
<ul><li>Pages may be kept for five minutes, pictures for an hour, the departure board for ten seconds.</li>\
<li>Your berth is yours: it is never kept.</li>\
<li>Look at the answer’s <code>Cache-Status</code> and <code>Age</code> in your browser’s network panel.</li>\
<li><code>nighttrain stat</code> shows what was answered from where.</li></ul>\n";

const STYLE: &str = "\
:root { color-scheme: light dark; --ground: #fbfaf7; --raised: #ffffff; --line: #dcd8cd; --text: #1c2030; \
--quiet: #596079; --accent: #9a6700; }\n\
@media (prefers-color-scheme: dark) { :root { --ground: #10131c; --raised: #181d2a; --line: #2a3145; \
--text: #e8eaf2; --quiet: #a3abc2; --accent: #ffc857; } }\n\
body { margin: 0; background: var(--ground); color: var(--text); font: 15px/1.6 system-ui, sans-serif; }\n\
nav { display: flex; flex-wrap: wrap; gap: 0 16px; padding: 0 24px; background: var(--raised); \
border-bottom: 1px solid var(--line); }\n\
nav a { line-height: 44px; }\n\
main { max-width: 72ch; padding: 24px; }\n\
h1 { font-size: 32px; line-height: 1.25; }\nh2 { font-size: 18px; }\n\
a { color: var(--accent); }\n\
img { max-width: 100%; height: auto; display: block; border: 1px solid var(--line); }\n\
table { border-collapse: collapse; margin: 16px 0; font-variant-numeric: tabular-nums; }\n\
caption { text-align: left; color: var(--quiet); }\n\
th, td { text-align: left; font-weight: normal; padding: 4px 24px 4px 0; border-bottom: 1px solid var(--line); }\n\
thead th { color: var(--quiet); }\n\
.figure { font-size: 24px; font-variant-numeric: tabular-nums; }\n\
footer { padding: 24px; color: var(--quiet); font-size: 13px; }\n";
