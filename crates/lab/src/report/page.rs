//! A report as one self-contained HTML page: it needs no other files and fetches nothing.
//!
//! The page reads as an article: claim, source, figures, tables, verdicts, notes, the machine, and how to
//! repeat the measurement. Its dark or light theme follows the system until the reader chooses one; the
//! choice is remembered.

use std::fmt::Write as _;

use super::drawing::escaped;
use super::{Figure, PlayKind, Report, Table};
use crate::experiment::{Options, Outcome};
use crate::paired::machine::{Machine, date};

const STYLE: &str = include_str!("page.css");
const PLAY_HEAPS: &str = include_str!("play_heaps.js");
const PLAY_LADDER: &str = include_str!("play_ladder.js");

/// Script for the choice of theme. Without scripts or storage, the page follows the system.
const SCRIPT: &str = r"
const root = document.documentElement, button = document.getElementById('theme');
const dark = matchMedia('(prefers-color-scheme: dark)');
const kept = () => { try { return localStorage.getItem('theme'); } catch { return null; } };
const night = () => root.dataset.theme ? root.dataset.theme === 'night' : dark.matches;
const say = () => { button.textContent = night() ? 'By day' : 'By night'; };
if (kept() === 'day' || kept() === 'night') root.dataset.theme = kept();
button.hidden = false;
button.addEventListener('click', () => {
  root.dataset.theme = night() ? 'day' : 'night';
  try { localStorage.setItem('theme', root.dataset.theme); } catch {}
  say();
});
dark.addEventListener('change', say);
say();
";

/// Date and machine of a page's figures.
#[derive(Debug, Clone)]
pub struct FigureOrigin {
    /// Date in UTC.
    pub date: String,
    /// Machine on which the figures were measured.
    pub machine: Machine,
}

impl FigureOrigin {
    /// Returns the current date and this machine.
    #[must_use]
    pub fn here() -> Self {
        Self { date: date(), machine: Machine::here() }
    }
}

/// Renders the page for these outcomes, of a run that ended now.
#[must_use]
pub fn render(outcomes: &[Outcome], options: &Options) -> String {
    render_as_of(outcomes, options, &FigureOrigin::here())
}

/// Renders the page for the outcomes of a record.
#[must_use]
pub fn render_as_of(outcomes: &[Outcome], options: &Options, taken: &FigureOrigin) -> String {
    let title = match outcomes {
        [one] => sentence(one.experiment.title),
        _ => "Claims put to the test".to_owned(),
    };
    let mut out = String::new();
    head(&mut out, &title, if options.quick { ", quick run" } else { "" }, taken);
    if outcomes.len() > 1 {
        contents(&mut out, outcomes);
    }
    for outcome in outcomes {
        article(&mut out, outcome, options, outcomes.len() > 1);
    }
    foot(&mut out, outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok()), taken);
    out
}

/// Renders a report that belongs to no experiment as a page; `repeat` is the command that measures it again.
#[must_use]
pub fn alone(title: &str, report: &Report, repeat: &str) -> String {
    alone_as_of(title, report, repeat, &FigureOrigin::here())
}

/// Renders a recorded report that belongs to no experiment as a page.
#[must_use]
pub fn alone_as_of(title: &str, report: &Report, repeat: &str, taken: &FigureOrigin) -> String {
    let mut out = String::new();
    head(&mut out, title, "", taken);
    out.push_str("<article>\n");
    body(&mut out, report, 2);
    put(
        &mut out,
        format_args!(
            "<h2 class=\"part\">How to repeat</h2>\n<pre tabindex=\"0\">{}</pre>\n</article>\n",
            escaped(repeat)
        ),
    );
    foot(&mut out, std::iter::once(report), taken);
    out
}

fn head(out: &mut String, title: &str, remark: &str, taken: &FigureOrigin) {
    put(
        out,
        format_args!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{} · Nighttrain lab</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n\
             <button id=\"theme\" type=\"button\" hidden></button>\n<h1>{}</h1>\n\
             <p class=\"quiet\">Nighttrain lab, <time>{}</time>{}</p>\n</header>\n<main>\n",
            escaped(title),
            escaped(title),
            escaped(&taken.date),
            remark,
        ),
    );
}

fn foot<'r>(out: &mut String, reports: impl Iterator<Item = &'r Report>, taken: &FigureOrigin) {
    machine(out, &taken.machine);
    put(out, format_args!("</main>\n<script>{{{SCRIPT}}}</script>\n"));
    let played: Vec<PlayKind> = reports
        .flat_map(|report| &report.figures)
        .filter_map(|figure| Some(figure.play.as_ref()?.kind))
        .collect();
    // Each script is in a block and an element of its own: their names do not collide, and an error in one
    // does not affect the others.
    for (kind, script) in [(PlayKind::Heap, PLAY_HEAPS), (PlayKind::Ladder, PLAY_LADDER)] {
        if played.contains(&kind) {
            put(out, format_args!("<script>{{\n{script}}}</script>\n"));
        }
    }
    out.push_str("</body>\n</html>\n");
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    _ = out.write_fmt(text);
}

/// Capitalises the first letter of a title.
fn sentence(title: &str) -> String {
    let mut letters = title.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn contents(out: &mut String, outcomes: &[Outcome]) {
    out.push_str("<nav aria-label=\"Experiments\">\n<ul>\n");
    for outcome in outcomes {
        let name = outcome.experiment.name;
        let title = escaped(&sentence(outcome.experiment.title));
        let marks = match &outcome.result {
            Ok(report) => report
                .verdicts
                .iter()
                .map(|judgement| {
                    let class = class(judgement.verdict.words());
                    let (mark, words) = (judgement.verdict.mark(), judgement.verdict.words());
                    let claim = escaped(&judgement.claim);
                    format!(
                        "<span class=\"{class}\" title=\"{words}\"><span class=\"mark\" role=\"img\" \
                         aria-label=\"{words}\">{mark}</span>{claim}</span> "
                    )
                })
                .collect(),
            Err(_) => "no report".to_owned(),
        };
        put(out, format_args!("<li><a href=\"#{name}\"><span>{title}</span><span>{marks}</span></a></li>\n"));
    }
    out.push_str("</ul>\n</nav>\n");
}

fn class(words: &str) -> String {
    words.replace(' ', "-")
}

fn article(out: &mut String, outcome: &Outcome, options: &Options, titled: bool) {
    let experiment = outcome.experiment;
    put(out, format_args!("<article id=\"{}\">\n", experiment.name));
    if titled {
        put(out, format_args!("<h2>{}</h2>\n", escaped(&sentence(experiment.title))));
    }
    put(
        out,
        format_args!(
            "<p class=\"quiet\">{} · {}</p>\n<blockquote>\n<p>{}</p>\n<p class=\"quiet\">{}</p>\n</blockquote>\n",
            experiment.name,
            experiment.claims.join(", "),
            escaped(experiment.statement),
            escaped(experiment.source)
        ),
    );
    // No heading level is skipped: users of screen readers navigate by headings.
    let level = if titled { 3 } else { 2 };
    match &outcome.result {
        Ok(report) => body(out, report, level),
        Err(refusal) => put(out, format_args!("<p>No report: {}.</p>\n", escaped(&refusal.to_string()))),
    }
    let quick = if options.quick { " --quick" } else { "" };
    let sweep = if options.sweep { " --sweep" } else { "" };
    let items = options.items.map_or_else(String::new, |items| format!(" --items {items}"));
    let part = options.part.as_ref().map_or_else(String::new, |part| format!(" --part {}", escaped(part)));
    put(
        out,
        format_args!(
            "<h{level} class=\"part\">How to repeat</h{level}>\n<pre tabindex=\"0\">nighttrain lab {}{quick}{sweep}{items}{part} --html report.html</pre>\n\
             <p class=\"quiet\">It took {:.1} seconds here.</p>\n</article>\n",
            experiment.name, outcome.seconds
        ),
    );
}

fn body(out: &mut String, report: &Report, level: u8) {
    for figure in &report.figures {
        drawn(out, figure, level);
    }
    for shown in &report.tables {
        table(out, shown);
    }
    if !report.verdicts.is_empty() {
        put(out, format_args!("<h{level} class=\"part\">Verdicts</h{level}>\n<ul class=\"verdicts\">\n"));
        for judgement in &report.verdicts {
            let words = judgement.verdict.words();
            put(
                out,
                format_args!(
                    "<li class=\"{}\"><span class=\"mark\" aria-hidden=\"true\">{}</span> <strong>{} {words}</strong>\n\
                     <dl><dt>Claimed</dt><dd>{}</dd><dt>Here</dt><dd>{}</dd></dl></li>\n",
                    class(words),
                    judgement.verdict.mark(),
                    escaped(&judgement.claim),
                    escaped(&judgement.article),
                    escaped(&judgement.ours)
                ),
            );
        }
        out.push_str("</ul>\n");
    }
    if !report.notes.is_empty() {
        put(out, format_args!("<h{level} class=\"part\">Notes</h{level}>\n<ul>\n"));
        for note in &report.notes {
            put(out, format_args!("<li>{}</li>\n", escaped(note)));
        }
        out.push_str("</ul>\n");
    }
}

fn drawn(out: &mut String, figure: &Figure, level: u8) {
    let play = figure.play.as_ref().map_or_else(String::new, |play| {
        let kind = match play.kind {
            PlayKind::Heap => "heap",
            PlayKind::Ladder => "ladder",
        };
        format!(" data-play=\"{kind}\" data-facts=\"{}\"", escaped(&play.facts.to_string()))
    });
    put(
        out,
        format_args!(
            "<figure{play}>\n<h{level} class=\"finding\">{}</h{level}>\n<div class=\"wide\" tabindex=\"0\">{}</div>\n\
             <figcaption>{}</figcaption>\n</figure>\n",
            escaped(&figure.title),
            figure.svg,
            escaped(&figure.caption)
        ),
    );
}

fn table(out: &mut String, table: &Table) {
    let number = |n: usize| if table.is_numeric(n) { " class=\"number\"" } else { "" };
    put(
        out,
        format_args!(
            "<div class=\"table wide\" tabindex=\"0\"><table>\n<caption><span class=\"caption\">{}</span></caption>\n<thead><tr>",
            escaped(&table.title)
        ),
    );
    for (n, column) in table.columns.iter().enumerate() {
        let heading = escaped(&column.heading);
        let unit = if column.unit.is_empty() {
            String::new()
        } else {
            format!("<small>{}</small>", escaped(&column.unit))
        };
        put(out, format_args!("<th scope=\"col\"{}>{heading}{unit}</th>", number(n)));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (n, cell) in row.iter().enumerate() {
            put(out, format_args!("<td{}>{}</td>", number(n), escaped(cell)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n");
}

fn machine(out: &mut String, machine: &Machine) {
    put(
        out,
        format_args!(
            "<article>\n<h2 class=\"part\">The machine</h2>\n<p class=\"quiet\">{}, {} processors for this process, {} MiB of memory{}; \
             Linux {}; load before {}; nighttrain {}.</p>\n</article>\n",
            escaped(&machine.cpu),
            machine.cores,
            machine.memory_mib,
            if machine.virtualised { ", virtual" } else { "" },
            escaped(&machine.kernel),
            escaped(&machine.load_before),
            env!("CARGO_PKG_VERSION")
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, Refusal, Verdict};

    const TRIED: Experiment = Experiment {
        name: "tried",
        claims: &["C0"],
        title: "A title with <angles>",
        statement: "It is so.",
        source: "Somebody, somewhere",
        run: |_| {
            let mut report = Report::default();
            let mut table = Table::new("Rows", &[("what", ""), ("how much", "ms")]);
            table.row(["this & that", "12"]);
            report.tables.push(table);
            report.figure("It is drawn", "<svg></svg>", "how to read it");
            report.play(PlayKind::Ladder, serde_json::json!({ "names": ["a \"b\" <c>"] }));
            report.judge("C0", "10×", "9×", Verdict::HoldsWithAnotherFigure);
            Ok(report)
        },
    };
    const REFUSED: Experiment =
        Experiment { name: "refused", run: |_| Err(Refusal::Missing("a disk".into())), ..TRIED };

    #[test]
    fn a_page_stands_alone_and_says_all() {
        static BOTH: [Experiment; 2] = [TRIED, REFUSED];
        let options = Options::default();
        let outcomes: Vec<Outcome> =
            BOTH.iter().map(|experiment| Outcome::of(experiment, &options)).collect();
        let page = render(&outcomes, &options);
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside} is fetched from outside");
        }
        for part in [
            "A title with &lt;angles&gt;",
            "this &amp; that",
            "<td class=\"number\">12</td>",
            "C0 holds with another figure",
            "cannot be tested here: a disk",
            "nighttrain lab tried --html",
            "data-play=\"ladder\" data-facts=\"{&quot;names&quot;:[&quot;a \\&quot;b\\&quot; &lt;c&gt;&quot;]}\"",
            PLAY_LADDER,
            "prefers-color-scheme",
            "@media print",
            "href=\"#refused\"",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains(PLAY_HEAPS), "no script without a figure for it");
        assert!(
            ![PLAY_HEAPS, PLAY_LADDER].iter().any(|script| script.contains("</script")),
            "scripts end where they end"
        );
    }

    /// Returns the relative luminance as WCAG 2 defines it.
    fn luminance(colour: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    #[test]
    fn text_contrast_suffices_in_every_palette() {
        let mut palettes = 0;
        for block in STYLE.split('{').filter(|block| block.contains("--ground:")) {
            let colour = |name: &str| {
                let value =
                    block.split(&format!("--{name}: ")).nth(1).unwrap_or_else(|| panic!("no --{name}"));
                value[..7].to_owned()
            };
            for back in ["ground", "raised"].map(colour) {
                for front in ["text", "quiet", "accent", "green", "amber", "red", "second"].map(colour) {
                    let (a, b) = (luminance(&front), luminance(&back));
                    let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                    assert!(contrast >= 4.5, "{front} on {back}: {contrast:.2}");
                }
            }
            palettes += 1;
        }
        assert_eq!(palettes, 4, "day, night by the system, night by choice, paper");
    }
}
