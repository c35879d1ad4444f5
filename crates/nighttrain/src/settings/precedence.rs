//! Precedence of values: flag, environment, file, default, in that order.
//!
//! ```text
//! SETTINGS ──default──▶ file ──▶ environment ──▶ flags ──▶ Settings + where each value came from
//! ```
//! Every source is read in full and every fault in it is reported, even if another source overrides the
//! value: an invalid line in a file is reported although a flag currently hides it.

use std::{ffi::OsString, fmt, path::Path};

use crate::{
    failure::Fault,
    settings::{
        SETTINGS, Settings,
        file::{self, FileValue},
    },
};

/// Source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// The default; no source sets the value.
    Default,
    /// The configuration file.
    File,
    /// An environment variable.
    Environment,
    /// A flag.
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Flag => "flag",
        })
    }
}

/// Active settings with their sources.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ActiveSettings {
    /// Values of the settings.
    pub settings: Settings,
    /// Sources of the values, in the order of [`SETTINGS`].
    pub sources: Vec<Source>,
}

/// Values from flags: the position in [`SETTINGS`] and the text, which clap has already validated.
pub(crate) type Flags = Vec<(usize, String)>;

/// Merges the sources.
///
/// `variable` returns the value of an environment variable; tests pass their own function.
///
/// # Errors
/// Returns all faults in the file and in the environment.
pub(crate) fn in_force(
    file: Option<&Path>,
    variable: impl Fn(&str) -> Option<OsString>,
    flags: &Flags,
) -> Result<ActiveSettings, Vec<Fault>> {
    let mut merge = Merge::new();
    if let Some(path) = file {
        merge.take_file(path);
    }
    for (i, setting) in SETTINGS.iter().enumerate() {
        let name = setting.variable();
        let Some(text) = variable(&name) else { continue };
        let text = text.to_str().ok_or_else(|| "invalid UTF-8".to_owned());
        if let Err(message) = text.and_then(|text| merge.set(i, text, Source::Environment)) {
            merge.faults.push(Fault { place: name, message });
        }
    }
    for (i, text) in flags {
        if let Err(message) = merge.set(*i, text, Source::Flag) {
            merge.faults.push(Fault { place: format!("--{}", SETTINGS[*i].key), message });
        }
    }
    if merge.faults.is_empty() { Ok(merge.active) } else { Err(merge.faults) }
}

/// Settings being merged, and the faults found so far.
struct Merge {
    active: ActiveSettings,
    faults: Vec<Fault>,
}

impl Merge {
    fn new() -> Self {
        let sources = vec![Source::Default; SETTINGS.len()];
        Self { active: ActiveSettings { settings: Settings::default(), sources }, faults: Vec::new() }
    }

    fn take_file(&mut self, path: &Path) {
        let text = match file::read(path) {
            Ok(text) => text,
            Err(fault) => return self.faults.push(fault),
        };
        let (values, said, wrong) = file::values(&path.display().to_string(), &text);
        self.faults.extend(wrong);
        let settings = &mut self.active.settings;
        settings.sites = said.sites;
        settings.cache.rules.paths = said.paths;
        settings.feed.leaf_remotes = said.hubs;
        for FileValue { setting, text, place } in values {
            if let Err(message) = self.set(setting, &text, Source::File) {
                let message = format!("{}: {message}", SETTINGS[setting].key);
                self.faults.push(Fault { place, message });
            }
        }
    }

    /// Sets the setting at a position in [`SETTINGS`], unless the text is invalid.
    fn set(&mut self, setting: usize, text: &str, source: Source) -> Result<(), String> {
        SETTINGS[setting].set(&mut self.active.settings, text)?;
        self.active.sources[setting] = source;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stronger_source_wins_whatever_the_setting() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("n.toml");
        std::fs::write(
            &path,
            "log = \"warn\"\n[cache]\nlisten = \"127.0.0.1:1\"\nname = \"f\"\nconnections-max = 1\n",
        )
        .expect("a file");
        let environment = |name: &str| match name {
            "NIGHTTRAIN_CACHE_LISTEN" => Some("127.0.0.1:2".into()),
            "NIGHTTRAIN_CACHE_NAME" => Some("e".into()),
            _ => None,
        };
        let place = |key| crate::settings::by_key(key).expect("a setting").0;
        let flags = vec![(place("listen"), "127.0.0.1:3".to_owned())];
        let found = in_force(Some(&path), environment, &flags).expect("right");
        assert_eq!(found.settings.cache.listen.port(), 3);
        assert_eq!(found.settings.cache.name, "e");
        assert_eq!(found.settings.cache.limits.connections_max, 1);
        assert_eq!(found.settings.log, "warn");
        assert_eq!(found.sources[place("listen")], Source::Flag);
        assert_eq!(found.sources[place("name")], Source::Environment);
        assert_eq!(found.sources[place("connections-max")], Source::File);
        assert_eq!(found.sources[place("memory")], Source::Default);
    }

    #[test]
    fn an_overruled_mistake_is_still_a_mistake() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("n.toml");
        std::fs::write(&path, "[cache]\nmemory = \"much\"\n").expect("a file");
        let environment = |name: &str| (name == "NIGHTTRAIN_CACHE_MEMORY").then(|| "more".into());
        let place = crate::settings::by_key("memory").expect("a setting").0;
        let faults =
            in_force(Some(&path), environment, &vec![(place, "1MiB".to_owned())]).expect_err("wrong");
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].place.ends_with("n.toml:2:10"), "{faults:?}");
        assert_eq!(faults[1].place, "NIGHTTRAIN_CACHE_MEMORY");
    }
}
