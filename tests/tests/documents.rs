//! What the documents promise: links lead somewhere, the commands that they name exist, and the README's two commands print
//! what stands there.

#![allow(clippy::expect_used, reason = "a test may fail")]

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tests::{PATIENCE, node::source_tree, program};

/// Every Markdown file that people read, but for records, which are as they were written.
fn documents() -> Vec<PathBuf> {
    let root = source_tree();
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

/// Text outside of code blocks, and outside of code within a line.
fn prose(text: &str) -> String {
    let outside: Vec<&str> = text.split("```").step_by(2).collect();
    outside.join("\n").split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// Where `[…](…)` and `![…](…)` lead.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let ends = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    ends.map(|(link, _)| link.split_whitespace().next().unwrap_or_default().to_owned()).collect()
}

/// The anchors of a document's headings, as forges make them.
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
fn every_link_leads_to_a_file_and_to_a_heading_in_it() {
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
    let root = source_tree();
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
            // In code, not in a sentence: `make it so`.
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

/// What stands in the README's blocks of commands: each command with what it prints.
fn console() -> Vec<(String, Vec<String>)> {
    let readme = fs::read_to_string(source_tree().join("README.md")).expect("the README");
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    for block in readme.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        for line in block.lines() {
            match line.strip_prefix("$ ") {
                Some(command) => found.push((command.to_owned(), Vec::new())),
                None => found.last_mut().expect("a command first").1.push(line.to_owned()),
            }
        }
    }
    found
}

/// `make run` ends in `nighttrain serve --demo`; here it has a network of its own, so that its ports are free.
#[test]
fn make_run_prints_what_the_readme_says() {
    let console = console();
    let (_, printed) = console.iter().find(|(command, _)| command == "make run").expect("in the README");
    let makefile = fs::read_to_string(source_tree().join("Makefile")).expect("text");
    assert!(makefile.contains("/nighttrain serve --demo $(ARGS)"), "make run does something else now");
    let kinds = [&["--net"][..], &["--user", "--map-root-user", "--net"]];
    let Some(kind) = kinds.into_iter().find(|kind| {
        let probe =
            Command::new("unshare").args(*kind).args(["--", "ip", "link", "set", "lo", "up"]).output();
        probe.is_ok_and(|probe| probe.status.success())
    }) else {
        eprintln!("this user may not make a network, so `make run` is not tried");
        return;
    };
    let state = tempfile::tempdir().expect("a directory");
    let mut running = Command::new("unshare")
        .args(kind)
        .args(["--", "sh", "-ec", "ip link set lo up; exec \"$@\"", "sh"])
        .arg(program::program())
        .args(["serve", "--demo", "--state"])
        .arg(state.path())
        .env_remove("NIGHTTRAIN_CONFIG")
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .expect("unshare starts");
    let mut said = Vec::new();
    for line in BufReader::new(running.stdout.take().expect("piped")).lines() {
        said.push(line.expect("text"));
        if said.last() == printed.last() {
            break;
        }
    }
    // It may have ended by itself; then a line is missing.
    let _ = running.kill();
    let _ = running.wait();
    for line in printed {
        assert!(said.contains(line), "{line} is in the README, and not among\n{}", said.join("\n"));
    }
}

#[test]
fn a_cache_in_front_of_the_slow_site_answers_as_the_readme_says() {
    let console = console();
    let promised: Vec<&str> = console
        .iter()
        .flat_map(|(_, printed)| printed)
        .filter(|line| line.starts_with("Cache-Status"))
        .map(String::as_str)
        .collect();
    assert_eq!(promised.len(), 2, "a miss and a hit");
    assert!(console.iter().any(|(command, _)| command.contains("nighttrain cache --demo ")), "the command");
    let mut running = program::command()
        .args(["cache", "--demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let said = BufReader::new(running.stdout.take().expect("piped"));
    let address = said
        .lines()
        .map(|line| line.expect("text"))
        .find_map(|line| Some(line.strip_prefix("cache: listening on http://")?.to_owned()))
        .expect("it says where it listens");
    for line in promised {
        let mut stream = TcpStream::connect(&address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        write!(stream, "HEAD / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut head = String::new();
        stream.read_to_string(&mut head).expect("it answers");
        // How many seconds are left depends on when a second ends.
        let promised = line.split("ttl=").next().expect("text");
        assert!(head.contains(promised), "{promised}: {head}");
    }
    // Nothing is under way.
    let _ = running.kill();
    let _ = running.wait();
}

/// The charts stand alone, and can be told apart from their ground by day and by night (WCAG 2: 4.5 to 1 for text).
#[test]
fn the_pictures_of_the_readme_are_legible_by_day_and_by_night() {
    let readme = fs::read_to_string(source_tree().join("README.md")).expect("the README");
    let pictures: Vec<String> = links(&readme).into_iter().filter(|link| link.ends_with(".svg")).collect();
    assert_eq!(pictures.len(), 4, "one picture and a chart a server: {pictures:?}");
    for picture in pictures {
        let svg = fs::read_to_string(source_tree().join(Path::new(&picture))).expect("text");
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

/// The `fill` of the rule whose selectors have this name.
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
