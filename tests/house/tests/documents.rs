//! Checks the documents without running anything: links resolve, the make targets that are named exist,
//! pictures are legible in light and dark mode, and lines are no longer than an editor shows.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use house::root;

/// Returns every Markdown file that people read, except records, which stay as they were written.
fn documents() -> Vec<PathBuf> {
    let root = root();
    let mut found: Vec<PathBuf> = Vec::new();
    let mut directories =
        vec![root.clone(), root.join("docs"), root.join("bench"), root.join("crates/bheap")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory").flatten() {
            let path = entry.path();
            if path.is_dir() {
                if path.starts_with(root.join("docs")) {
                    directories.push(path);
                }
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// Returns the text outside of code fences and inline code.
fn prose(text: &str) -> String {
    let outside: Vec<&str> = text.split("```").step_by(2).collect();
    outside.join("\n").split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Returns the targets of `[…](…)` and `![…](…)`.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let ends = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    ends.map(|(link, _)| link.split_whitespace().next().unwrap_or_default().to_owned()).collect()
}

/// Returns the anchors of a document's headings, as code forges make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings =
        text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            heading
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

#[test]
fn every_link_has_a_target() {
    let documents = documents();
    assert!(documents.len() > 20, "{documents:?}");
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for document in &documents {
        let text = fs::read_to_string(document).expect("text");
        for link in links(&text).iter().filter(|link| !link.contains("://") && !link.is_empty()) {
            let (path, anchor) =
                link.split_once('#').map_or((link.as_str(), None), |(path, anchor)| (path, Some(anchor)));
            let directory = document.parent().expect("a directory");
            let target =
                if path.is_empty() { document.clone() } else { directory.join(path.replace("%20", " ")) };
            let is_there = match anchor {
                None => target.exists(),
                Some(anchor) => fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor)),
            };
            checked += 1;
            if !is_there {
                wrong.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 100, "only {checked} links were found");
}

#[test]
fn every_make_target_that_is_named_exists() {
    let root = root();
    let makefiles =
        ["Makefile", "bench/bench.mk"].map(|name| fs::read_to_string(root.join(name)).expect("text"));
    let targets: BTreeSet<&str> = makefiles
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.split_once(':'))
        .filter(|(name, _)| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-'))
        .map(|(name, _)| name)
        .collect();
    for name in
        ["README.md", "CONTRIBUTING.md", "docs/benchmarks.md", "docs/guide/install.md", "bench/README.md"]
    {
        let text = fs::read_to_string(root.join(name)).expect("text");
        let named = text.split("make ").skip(1).filter_map(|rest| {
            let name: &str = rest.split(|c: char| !c.is_ascii_lowercase() && c != '-').next()?;
            // Only in code, because a sentence may say "make it so".
            let is_code = text.contains(&format!("`make {name}")) || text.contains(&format!("\nmake {name}"));
            (is_code && !name.is_empty()).then_some(name)
        });
        for target in named {
            assert!(
                targets.contains(target),
                "{name} names `make {target}`, which the Makefile does not have"
            );
        }
    }
}

/// The charts need no other file, and their text contrasts with the ground in light and dark mode (WCAG 2:
/// 4.5 to 1).
#[test]
fn readme_pictures_are_legible_in_both_color_modes() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    let pictures: Vec<String> = links(&readme).into_iter().filter(|link| link.ends_with(".svg")).collect();
    assert_eq!(pictures.len(), 4, "one picture and a chart a server: {pictures:?}");
    for picture in pictures {
        let svg = fs::read_to_string(root().join(Path::new(&picture))).expect("text");
        assert!(svg.contains("xmlns=\"http://www.w3.org/2000/svg\""), "{picture} does not stand alone");
        let style =
            svg.split("<style>").nth(1).and_then(|rest| rest.split("</style>").next()).expect("a style");
        let (day, night) = style.split_once("@media (prefers-color-scheme: dark)").expect("a night");
        for (time, rules) in [("day", day), ("night", night)] {
            let ground = fill(rules, ".ground").expect("a ground");
            for name in ["text", ".quiet", ".ours", ".say-text"] {
                let Some(colour) = fill(rules, name) else { continue };
                let ratio = contrast(&colour, &ground);
                assert!(ratio >= 4.5, "{picture}, {time}: {name} {colour} on {ground}: {ratio:.1}");
            }
        }
    }
}

/// Returns the `fill` of the CSS rule that has this selector.
fn fill(rules: &str, name: &str) -> Option<String> {
    let rule = rules.split('}').find(|rule| {
        let selectors = rule.rsplit_once('{').map_or("", |(selectors, _)| selectors);
        selectors.rsplit('{').next().unwrap_or_default().split(',').any(|selector| selector.trim() == name)
    })?;
    rule.split("fill: ").nth(1).map(|rest| rest.chars().take(7).collect())
}

fn contrast(a: &str, b: &str) -> f64 {
    let luminance = |colour: &str| {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("a colour")) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    };
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// Every source file that a document names exists.
#[test]
fn every_source_that_a_document_names_is_there() {
    let root = root();
    let mut missing = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).expect("text");
        // The changelog and the lab's records describe the past, so they may name files that are gone.
        if document.ends_with("CHANGELOG.md") || document.starts_with(root.join("docs/lab")) {
            continue;
        }
        for named in text.split('`').skip(1).step_by(2) {
            let is_source = ["crates/", "tests/", "fuzz/"].iter().any(|part| named.starts_with(part))
                && named.ends_with(".rs")
                && !named.contains(['*', '{', ' ', '…']);
            if is_source && !root.join(named).is_file() {
                missing.push(format!("{}: {named}", document.strip_prefix(&root).expect("below").display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
