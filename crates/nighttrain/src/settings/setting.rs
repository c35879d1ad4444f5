//! A setting: a row of the table, which defines flag, key and environment variable.

use crate::settings::Settings;

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

/// Rows of the table that have section and heading in common.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    /// Section of the file.
    pub section: Section,
    /// Heading in `--help`.
    pub heading: &'static str,
}

impl Group {
    /// Returns the row of a setting that is a string in the file.
    pub(crate) const fn text(
        self,
        key: &'static str,
        value_name: &'static str,
        help: &'static str,
        access: ValueAccess,
    ) -> Setting {
        let Self { section, heading } = self;
        Setting { key, section, shape: ValueShape::Text, heading, value_name, help, access }
    }

    /// Returns the row of a setting that is an array of strings.
    pub(crate) const fn texts(
        self,
        key: &'static str,
        value_name: &'static str,
        help: &'static str,
        access: ValueAccess,
    ) -> Setting {
        Setting { shape: ValueShape::Texts, ..self.text(key, value_name, help, access) }
    }

    /// Returns the row of a setting that is an integer.
    pub(crate) const fn count(
        self,
        key: &'static str,
        value_name: &'static str,
        help: &'static str,
        access: ValueAccess,
    ) -> Setting {
        Setting { shape: ValueShape::Count, ..self.text(key, value_name, help, access) }
    }

    /// Returns the row of a setting that is an array of integers.
    pub(crate) const fn counts(
        self,
        key: &'static str,
        value_name: &'static str,
        help: &'static str,
        access: ValueAccess,
    ) -> Setting {
        Setting { shape: ValueShape::Counts, ..self.text(key, value_name, help, access) }
    }

    /// Returns the row of a setting that is a boolean.
    pub(crate) const fn flag(self, key: &'static str, help: &'static str, access: ValueAccess) -> Setting {
        Setting { shape: ValueShape::Flag, ..self.text(key, "true|false", help, access) }
    }

    /// Returns whether a setting is of this group.
    pub(crate) fn has(self, setting: &Setting) -> bool {
        setting.section == self.section && setting.heading == self.heading
    }
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

/// Builds the `ValueAccess` of a setting whose formatter returns `None` if the value is not set.
macro_rules! access {
    ($($place:ident).+, parse = $parse:expr, show = $show:expr) => {
        $crate::settings::setting::ValueAccess {
            set: |settings, text| {
                settings.$($place).+ = $parse(text)?;
                Ok(())
            },
            text: |settings| $show(&settings.$($place).+),
        }
    };
}

/// Builds the `ValueAccess` of a setting that is a list, which may be empty, from the parser of a member.
macro_rules! texts {
    ($($place:ident).+, each = $each:expr) => {
        $crate::settings::setting::access!(
            $($place).+,
            parse = |text| $crate::settings::list_of(text, $each),
            show = $crate::settings::list_text
        )
    };
}

/// Builds the `ValueAccess` of a setting that has one of several named values.
macro_rules! named {
    ($($place:ident).+, $names:expr) => {
        $crate::settings::setting::access!(
            $($place).+,
            parse = |text| $crate::settings::value_of(&$names, text),
            show = |value| $crate::settings::name_of(&$names, value)
        )
    };
}

/// Builds the `ValueAccess` of a boolean setting.
macro_rules! flag {
    ($($place:ident).+) => {
        $crate::settings::setting::value!(
            $($place).+,
            parse = $crate::settings::truth,
            show = $crate::settings::plain
        )
    };
}

/// Builds the `ValueAccess` of a setting that is a path, or is not set.
macro_rules! optional_path {
    ($($place:ident).+) => {
        $crate::settings::setting::optional!(
            $($place).+,
            parse = $crate::settings::parse_path,
            show = $crate::settings::path_text
        )
    };
}
pub(crate) use {access, flag, named, optional, optional_path, texts, value};

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
