//! Prints which lines of each parser the seeds of its fuzz target reach: one table row a target, for
//! `fuzz/coverage.sh`.
//!
//! `coverage ROOT BINARIES PROFILES [--lines]`: `BINARIES` has one program a target, `PROFILES` its counts
//! (`TARGET.profraw`), and `ROOT/fuzz/parsers.txt` the files of each target. With `--lines` each line that no
//! seed reaches is printed, too.

use std::{
    collections::BTreeMap,
    env, fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::ExitCode,
};

use llvm_profparser::{CoverageMapping, instrumentation_profile::types::InstrumentationProfile, parse};

/// Share of its parser's lines that a target's seeds must reach, in percent.
const REACHED_MIN: usize = 90;

/// A source file of a parser.
struct Source {
    /// Path relative to the root.
    path: String,
    /// Functions in the file that do not belong to the target.
    without: Vec<String>,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [root, binaries, profiles, rest @ ..] = &arguments[..] else {
        eprintln!("coverage ROOT BINARIES PROFILES [--lines]");
        return ExitCode::from(2);
    };
    let with_lines = rest.iter().any(|word| word == "--lines");
    match table(Path::new(root), Path::new(binaries), Path::new(profiles), with_lines) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("coverage: {failure}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether each target that was run reaches enough lines.
fn table(root: &Path, binaries: &Path, profiles: &Path, with_lines: bool) -> Result<bool, Failure> {
    let mut is_enough = true;
    for (target, sources) in parsers(&fs::read_to_string(root.join("fuzz/parsers.txt"))?)? {
        let profile = profiles.join(&target).with_extension("profraw");
        if !profile.exists() {
            continue;
        }
        let (mut reached, mut all) = (0, 0);
        let mut missing = Vec::new();
        for (source, lines) in lines_of(root, &binaries.join(&target), &profile, &sources)? {
            all += lines.len();
            reached += lines.values().filter(|is_reached| **is_reached).count();
            let unreached = lines.iter().filter(|(_, is_reached)| !**is_reached).map(|(line, _)| *line);
            missing.extend(unreached.map(|line| (source.clone(), line)));
        }
        if all == 0 {
            return Err(format!("{target} has no lines of its parser").into());
        }
        println!("| `{target}` | {reached} of {all} | {}% |", reached * 100 / all);
        if with_lines {
            for (source, line) in missing {
                let text = fs::read_to_string(root.join(&source))?;
                println!("    {source}:{line}: {}", text.lines().nth(line - 1).unwrap_or_default().trim());
            }
        }
        is_enough &= reached * 100 >= all * REACHED_MIN;
    }
    Ok(is_enough)
}

/// Parses `parsers.txt`: `TARGET PATH [-FUNCTION ...]`, one file a line; `#` begins a comment.
fn parsers(text: &str) -> Result<BTreeMap<String, Vec<Source>>, Failure> {
    let mut parsers: BTreeMap<String, Vec<Source>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let mut words = line.split_whitespace();
        let (Some(target), Some(path)) = (words.next(), words.next()) else {
            return Err(format!("parsers.txt: {line:?} has no path").into());
        };
        let without = words.map(|word| word.trim_start_matches('-').to_owned()).collect();
        parsers.entry(target.to_owned()).or_default().push(Source { path: path.to_owned(), without });
    }
    Ok(parsers)
}

/// Lines with code in each source, and whether they were reached.
fn lines_of(
    root: &Path,
    binary: &Path,
    profile: &Path,
    sources: &[Source],
) -> Result<BTreeMap<String, BTreeMap<usize, bool>>, Failure> {
    // A function inlined in several crates was counted in each: merging adds the counts.
    let mut counted = InstrumentationProfile::default();
    counted.merge(&parse(profile)?);
    let objects = [binary.to_owned()];
    let mapping = CoverageMapping::new(&objects, &counted, false)?;
    let is_ours = |path: &PathBuf| sources.iter().any(|source| path.ends_with(&source.path));
    let report = mapping.generate_subreport(|paths| paths.iter().any(is_ours))?;
    let mut found = BTreeMap::new();
    for source in sources {
        let text = fs::read_to_string(root.join(&source.path))
            .map_err(|error| format!("{}: {error}", source.path))?;
        let without = functions(&text, &source.without)?;
        let mut lines: BTreeMap<usize, Line> = BTreeMap::new();
        for (_, result) in report.files.iter().filter(|(path, _)| path.ends_with(&source.path)) {
            for (place, hits) in &result.hits {
                for line in place.line_start..=place.line_end {
                    let (lines_long, is_hit) = (place.line_end - place.line_start, *hits > 0);
                    lines.entry(line).or_default().add(lines_long, is_hit);
                }
            }
        }
        lines.retain(|line, _| without.iter().all(|function| !function.contains(line)));
        let lines = lines.into_iter().map(|(line, of)| (line, of.is_reached)).collect();
        found.insert(source.path.clone(), lines);
    }
    Ok(found)
}

/// Coverage of a line: that of the smallest region around it, or of any of several equally small ones.
#[derive(Default)]
struct Line {
    smallest: Option<usize>,
    is_reached: bool,
}

impl Line {
    fn add(&mut self, lines_long: usize, is_hit: bool) {
        match self.smallest {
            Some(smallest) if smallest < lines_long => {}
            Some(smallest) if smallest == lines_long => self.is_reached |= is_hit,
            _ => (self.smallest, self.is_reached) = (Some(lines_long), is_hit),
        }
    }
}

/// Line ranges of the named functions, from `fn` to the closing bracket below it in rustfmt's layout.
fn functions(text: &str, names: &[String]) -> Result<Vec<RangeInclusive<usize>>, Failure> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for name in names {
        let begins = |line: &str| {
            let rest = line.split_once("fn ").map(|(_, rest)| rest).unwrap_or_default();
            rest.strip_prefix(&name[..]).is_some_and(|rest| rest.starts_with(['(', '<']))
        };
        let all: Vec<usize> = (0..lines.len()).filter(|&at| begins(lines[at])).collect();
        if all.is_empty() {
            return Err(format!("no fn {name}").into());
        }
        for from in all {
            let blanks = lines[from].len() - lines[from].trim_start().len();
            let end = format!("{}}}", &lines[from][..blanks]);
            let to = lines[from..].iter().position(|line| *line == end).unwrap_or(0);
            found.push(from + 1..=from + to + 1);
        }
    }
    Ok(found)
}
