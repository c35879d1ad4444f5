//! The configuration file: TOML whose keys are the settings, read into (setting, text, place).
//!
//! All faults are reported at once, each with its line and column, so that one run of `check` suffices.

mod hubs;
mod sites;

use std::{borrow::Cow, io::Read, ops::Range, path::Path};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

pub(crate) use self::{hubs::rows_of_hub, sites::FileSites};
use crate::{
    failure::Fault,
    settings::{SETTINGS, Section, ValueShape, by_key, in_section},
};

/// Maximum size of a configuration file; a larger file is refused, because it is probably not the right file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Maximum edit distance between an unknown key and a suggested one.
const SUGGESTION_EDITS_MAX: usize = 3;

/// A value in the file, with its location.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FileValue {
    /// Position in [`SETTINGS`].
    pub setting: usize,
    /// Text for the setting's `set`.
    pub text: String,
    /// Location of the value: `FILE:LINE:COLUMN`.
    pub place: String,
}

/// Reads the text of a configuration file.
pub(crate) fn read(path: &Path) -> Result<String, Fault> {
    let fault = |message| Fault { place: path.display().to_string(), message };
    let file = std::fs::File::open(path).map_err(|error| fault(format!("cannot be read: {error}")))?;
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(|error| fault(format!("cannot be read: {error}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(fault("larger than 1 MiB: is it the right file?".to_owned()));
    }
    String::from_utf8(text).map_err(|_| fault("invalid UTF-8: is it the right file?".to_owned()))
}

/// Parses the file into values, sites and faults, in the order of the file.
pub(crate) fn values(name: &str, text: &str) -> (Vec<FileValue>, FileSites, Vec<Fault>) {
    let mut reading =
        FileReader { name, text, values: Vec::new(), sites: FileSites::default(), faults: Vec::new() };
    match DeTable::parse(text) {
        Ok(table) => reading.table(table.get_ref(), Section::Common),
        Err(error) => reading.fault(&error.span().unwrap_or(0..0), error.message().replace('\n', ", ")),
    }
    // TOML's tables have no order, but values and faults are reported from top to bottom.
    reading.values.sort_by_key(|(start, _)| *start);
    reading.faults.sort_by_key(|(start, _)| *start);
    (
        reading.values.into_iter().map(|(_, value)| value).collect(),
        reading.sites,
        reading.faults.into_iter().map(|(_, fault)| fault).collect(),
    )
}

struct FileReader<'t> {
    name: &'t str,
    text: &'t str,
    /// Values, each with the byte offset in the file at which it starts.
    values: Vec<(usize, FileValue)>,
    sites: FileSites,
    faults: Vec<(usize, Fault)>,
}

impl FileReader<'_> {
    fn table(&mut self, table: &DeTable<'_>, section: Section) {
        for (key, value) in table {
            self.entry(key, value, section);
        }
    }

    /// Reads a key with its value, which may be a section.
    fn entry(&mut self, key: &Spanned<Cow<'_, str>>, value: &Spanned<DeValue<'_>>, section: Section) {
        let name = key.get_ref().as_ref();
        let named = Section::NAMED.into_iter().find(|inner| inner.name() == Some(name));
        if let (Section::Common, Some(inner_section)) = (section, named) {
            return match value.get_ref() {
                DeValue::Table(inner) => self.table(inner, inner_section),
                _ => self.fault(&value.span(), format!("{name} is a section: [{name}]")),
            };
        }
        if section == Section::Cache && self.has_read_sites(name, value) {
            return;
        }
        if section == Section::Feed && self.has_read_hubs(name, value) {
            return;
        }
        match in_section(section, name).or_else(|| by_key(name)) {
            Some((i, setting)) if setting.section == section => {
                match text_of(value.get_ref(), setting.shape) {
                    Ok(text) => {
                        let start = value.span().start;
                        let place = self.place(start);
                        self.values.push((start, FileValue { setting: i, text, place }));
                    }
                    Err(message) => self.fault(&value.span(), format!("{name}: {message}")),
                }
            }
            Some((_, setting)) => self.fault(
                &key.span(),
                match setting.section.name() {
                    None => format!("`{name}` belongs at the top of the file, before any [section]"),
                    Some(section) => format!("`{name}` belongs under [{section}]"),
                },
            ),
            None => {
                let what = if matches!(value.get_ref(), DeValue::Table(_)) { "section" } else { "key" };
                let meant =
                    nearest(name, section).map_or_else(String::new, |near| format!("; perhaps {near}"));
                self.fault(&key.span(), format!("unknown {what} `{name}`{meant}"));
            }
        }
    }

    fn fault(&mut self, span: &Range<usize>, message: String) {
        let place = self.place(span.start);
        self.faults.push((span.start, Fault { place, message }));
    }

    /// Returns `FILE:LINE:COLUMN` for a byte offset; lines and columns count from 1, columns in characters.
    fn place(&self, byte: usize) -> String {
        let before = self.text.get(..byte).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("{}:{line}:{column}", self.name)
    }
}

/// Converts a TOML value into the text that a setting's `set` takes.
fn text_of(value: &DeValue<'_>, shape: ValueShape) -> Result<String, String> {
    match (value, shape) {
        (DeValue::String(text), ValueShape::Text) => Ok(text.to_string()),
        (DeValue::Integer(count), ValueShape::Count) => Ok(count.to_string()),
        (DeValue::Boolean(yes), ValueShape::Flag) => Ok(yes.to_string()),
        (DeValue::Array(parts), ValueShape::Counts | ValueShape::Texts) => {
            let part_shape = if shape == ValueShape::Counts { ValueShape::Count } else { ValueShape::Text };
            let parts: Result<Vec<_>, _> =
                parts.iter().map(|part| text_of(part.get_ref(), part_shape)).collect();
            Ok(parts?.join(","))
        }
        _ => Err(match shape {
            ValueShape::Text => "expected a string in quotes",
            ValueShape::Count => "expected a whole number without quotes",
            ValueShape::Flag => "expected true or false, without quotes",
            ValueShape::Counts => "expected a list of whole numbers, such as [0, 1]",
            ValueShape::Texts => "expected a list of strings, such as [\"10.0.0.7\"]",
        }
        .to_owned()),
    }
}

/// Returns a hint with the known name that was probably meant.
fn nearest(name: &str, section: Section) -> Option<String> {
    let names = Section::NAMED.into_iter().filter_map(Section::name);
    let section_names = names.filter(|_| section == Section::Common).map(|name| (name, format!("[{name}]")));
    let of_cache = ["site", "path"].into_iter().filter(|_| section == Section::Cache);
    let of_feed = ["leaf-remote"].into_iter().filter(|_| section == Section::Feed);
    let all = SETTINGS
        .iter()
        .map(|setting| {
            let hint = match setting.section.name() {
                _ if setting.section == section => format!("`{}`", setting.key),
                None => format!("`{}` at the top of the file", setting.key),
                Some(name) => format!("`{}` under [{name}]", setting.key),
            };
            (setting.key, hint)
        })
        .chain(section_names)
        .chain(of_cache.map(|name| (name, format!("[[cache.{name}]]"))))
        .chain(of_feed.map(|name| (name, format!("[[feed.{name}]]"))));
    closest(name, all)
}

/// Returns the hint of the known name that is closest to `name`, if one is close enough.
fn closest<'k>(name: &str, known: impl Iterator<Item = (&'k str, String)>) -> Option<String> {
    let folded = name.to_ascii_lowercase().replace('_', "-");
    known
        .map(|(key, hint)| (strsim::damerau_levenshtein(&folded, key), key, hint))
        .filter(|(edits, key, _)| *edits <= SUGGESTION_EDITS_MAX && *edits < key.len())
        .min_by_key(|(edits, _, _)| *edits)
        .map(|(_, _, hint)| hint)
}

fn unknown<'k>(name: &str, keys: impl Iterator<Item = &'k str>) -> String {
    let meant = closest(name, keys.map(|key| (key, format!("`{key}`"))));
    format!("unknown key `{name}`{}", meant.map_or_else(String::new, |near| format!("; perhaps {near}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        values("n.toml", text).2.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn values_come_with_their_place() {
        let (values, _, faults) = values(
            "n.toml",
            "cores = [0, 1]\n\n[cache]\norigin = \"http://a\" # why\nconnections-max = 1_000\n",
        );
        assert_eq!(faults, []);
        let seen: Vec<_> =
            values.iter().map(|v| (SETTINGS[v.setting].key, v.text.as_str(), v.place.as_str())).collect();
        assert_eq!(
            seen,
            [
                ("cores", "0,1", "n.toml:1:9"),
                ("origin", "http://a", "n.toml:4:10"),
                ("connections-max", "1000", "n.toml:5:19"),
            ]
        );
    }

    #[test]
    fn faults_name_their_line_and_a_suggestion() {
        let text = "admn = \"x\"\nlisten = \"x\"\n[cache]\nadmin = \"x\"\ndefault_ttl = \"1s\"\nmemory = 5\n\
                    connections-max = \"5\"\npurge-from = \"::1\"\nzzzzzzzzzzzz = 1\n[cahce]\n[fed]\n[feed]\nmax-payload = \"1QiB\"\nname = \"x\"\n";
        assert_eq!(
            faults(text),
            [
                "n.toml:1:1: unknown key `admn`; perhaps `admin`",
                "n.toml:2:1: `listen` belongs under [cache]",
                "n.toml:4:1: `admin` belongs at the top of the file, before any [section]",
                "n.toml:5:1: unknown key `default_ttl`; perhaps `default-ttl`",
                "n.toml:6:10: memory: expected a string in quotes",
                "n.toml:7:19: connections-max: expected a whole number without quotes",
                "n.toml:8:14: purge-from: expected a list of strings, such as [\"10.0.0.7\"]",
                "n.toml:9:1: unknown key `zzzzzzzzzzzz`",
                "n.toml:10:2: unknown section `cahce`; perhaps [cache]",
                "n.toml:11:2: unknown section `fed`; perhaps [feed]",
                "n.toml:14:1: `name` belongs under [cache]",
            ]
        );
    }

    #[test]
    fn a_torn_file_gives_a_single_fault() {
        let torn = faults("[cache]\nlisten = \"127.0.0.1:1\nmemory = \"1MiB\"\n");
        assert_eq!(torn.len(), 1, "{torn:?}");
        assert!(torn[0].starts_with("n.toml:2:"), "{torn:?}");
        assert!(!torn[0].contains('\n'));
        assert_eq!(faults("cache = 1\n"), ["n.toml:1:9: cache is a section: [cache]"]);
        assert_eq!(faults("log = \"info\"\nlog = \"warn\"\n").len(), 1);
    }

    #[test]
    fn files_that_are_no_configuration() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("n.toml");
        assert!(read(&path).expect_err("absent").message.contains("cannot be read"));
        assert!(read(directory.path()).expect_err("a directory").message.contains("cannot be read"));
        std::fs::write(&path, [0xff, 0xfe]).expect("a file");
        assert!(read(&path).expect_err("binary").message.contains("UTF-8"));
        std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).expect("a file");
        assert!(read(&path).expect_err("large").message.contains("1 MiB"));
    }
}
