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
    settings::{SETTINGS, Settings, file},
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
    let mut settings = Settings::default();
    let mut sources = vec![Source::Default; SETTINGS.len()];
    let mut faults = Vec::new();

    if let Some(path) = file {
        match file::read(path) {
            Ok(text) => {
                let (values, said, wrong) = file::values(&path.display().to_string(), &text);
                faults.extend(wrong);
                settings.sites = said.sites;
                settings.cache.rules.paths = said.paths;
                settings.feed.leaf_remotes = said.hubs;
                for value in values {
                    match SETTINGS[value.setting].set(&mut settings, &value.text) {
                        Ok(()) => sources[value.setting] = Source::File,
                        Err(message) => faults.push(Fault {
                            place: value.place,
                            message: format!("{}: {message}", SETTINGS[value.setting].key),
                        }),
                    }
                }
            }
            Err(fault) => faults.push(fault),
        }
    }

    for (i, setting) in SETTINGS.iter().enumerate() {
        let name = setting.variable();
        let Some(text) = variable(&name) else { continue };
        let result = match text.to_str() {
            Some(text) => setting.set(&mut settings, text),
            None => Err("invalid UTF-8".to_owned()),
        };
        match result {
            Ok(()) => sources[i] = Source::Environment,
            Err(message) => faults.push(Fault { place: name, message }),
        }
    }

    for (i, text) in flags {
        match SETTINGS[*i].set(&mut settings, text) {
            Ok(()) => sources[*i] = Source::Flag,
            Err(message) => faults.push(Fault { place: format!("--{}", SETTINGS[*i].key), message }),
        }
    }

    if faults.is_empty() { Ok(ActiveSettings { settings, sources }) } else { Err(faults) }
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
