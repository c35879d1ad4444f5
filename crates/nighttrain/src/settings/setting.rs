//! A setting: a row of the table, which defines flag, key and environment variable.

use cache::{InvalidNetwork, Network};

use crate::settings::{Settings, list};

/// Section of the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    /// The top of the file, before any `[section]`: settings that all servers share.
    Common,
    /// `[cache]`.
    Cache,
    /// `[feed]`.
    Feed,
    /// `[mail]`.
    Mail,
}

impl Section {
    /// Sections that have a name.
    pub(crate) const NAMED: [Self; 3] = [Self::Cache, Self::Feed, Self::Mail];

    /// Returns the name in brackets; `None` for the top of the file.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Common => None,
            Self::Cache => Some("cache"),
            Self::Feed => Some("feed"),
            Self::Mail => Some("mail"),
        }
    }
}

/// TOML type of a value in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueShape {
    /// A string.
    Text,
    /// An integer.
    Count,
    /// An array of integers.
    Counts,
    /// An array of strings.
    Texts,
    /// A boolean; as a command line flag it takes no value.
    Flag,
}

/// A setting.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// Key in the file, and flag without the dashes.
    pub key: &'static str,
    /// Section of the file.
    pub section: Section,
    /// TOML type in the file.
    pub shape: ValueShape,
    /// Heading in `--help`.
    pub heading: &'static str,
    /// Placeholder of the value in `--help`.
    pub value_name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// Functions that parse and format the value.
    pub access: ValueAccess,
}

/// Functions that parse and format a value.
#[derive(Clone, Copy)]
pub(crate) struct ValueAccess {
    /// Parses a value and stores it, or returns a message with a correct example.
    pub set: fn(&mut Settings, &str) -> Result<(), String>,
    /// Formats the active value so that `set` accepts it; `None` if it is not set.
    pub text: fn(&Settings) -> Option<String>,
}

/// Builds the `ValueAccess` of a setting that always has a value, from its field in [`Settings`], its parser
/// and its formatter.
macro_rules! value {
    ($($place:ident).+, parse = $parse:expr, show = $show:expr) => {
        $crate::settings::setting::ValueAccess {
            set: |settings, text| {
                settings.$($place).+ = $parse(text)?;
                Ok(())
            },
            text: |settings| Some($show(settings.$($place).+.clone())),
        }
    };
}

/// Builds the `ValueAccess` of a setting that may have no value.
macro_rules! optional {
    ($($place:ident).+, parse = $parse:expr, show = $show:expr) => {
        $crate::settings::setting::ValueAccess {
            set: |settings, text| {
                settings.$($place).+ = Some($parse(text)?);
                Ok(())
            },
            text: |settings| settings.$($place).+.as_ref().map($show),
        }
    };
}

/// Builds the `ValueAccess` of a setting that is a list of networks, which may be empty.
macro_rules! networks {
    ($($place:ident).+) => {
        $crate::settings::setting::ValueAccess {
            set: |settings, text| {
                settings.$($place).+ = $crate::settings::setting::parse_networks(text)?;
                Ok(())
            },
            text: |settings| $crate::settings::setting::networks_text(&settings.$($place).+),
        }
    };
}
pub(crate) use {networks, optional, value};

/// Parses networks separated by commas.
pub(crate) fn parse_networks(text: &str) -> Result<Vec<Network>, String> {
    list(text).map(|network| network.parse().map_err(|error: InvalidNetwork| error.to_string())).collect()
}

/// Formats networks separated by commas; `None` for an empty list.
pub(crate) fn networks_text(networks: &[Network]) -> Option<String> {
    let texts: Vec<_> = networks.iter().map(Network::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

impl Setting {
    /// Parses a value and stores it.
    ///
    /// # Errors
    /// Returns a message with a correct example.
    pub(crate) fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        (self.access.set)(settings, text)
    }

    /// Formats the active value so that [`Setting::set`] accepts it; `None` if it is not set.
    pub(crate) fn text(&self, settings: &Settings) -> Option<String> {
        (self.access.text)(settings)
    }

    /// Returns the environment variable, such as `NIGHTTRAIN_CACHE_LISTEN` or `NIGHTTRAIN_ADMIN`.
    pub(crate) fn variable(&self) -> String {
        let section =
            self.section.name().map_or_else(String::new, |name| format!("{}_", name.to_ascii_uppercase()));
        format!("NIGHTTRAIN_{section}{}", self.key.to_ascii_uppercase().replace('-', "_"))
    }
}
