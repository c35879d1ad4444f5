//! `config --print` and `check`: the configuration as text, and what is wrong with it.

use std::{fmt::Write, path::Path};

use crate::{
    precedence::InForce,
    settings::{SETTINGS, Section, Setting, Shape},
};

/// The configuration in force as a file that says the same, each value with its source.
pub(crate) fn as_file(in_force: &InForce, file: Option<&Path>) -> String {
    let mut lines = Vec::new();
    let mut section = Section::Common;
    lines.push((
        match file {
            Some(path) => format!("# The configuration in force; the file is {}.", path.display()),
            None => "# The configuration in force; there is no file.".to_owned(),
        },
        None,
    ));
    for (setting, source) in SETTINGS.iter().zip(&in_force.sources) {
        if setting.section != section {
            section = setting.section;
            lines.push((String::new(), None));
            lines.push((format!("[{}]", section.name().unwrap_or_default()), None));
        }
        lines.push(match setting.text(&in_force.settings) {
            Some(text) => (format!("{} = {}", setting.key, toml_value(&text, setting.shape)), Some(source)),
            None => (format!("# {} is not set", setting.key), None),
        });
    }
    let width =
        lines.iter().filter(|(_, source)| source.is_some()).map(|(text, _)| text.len()).max().unwrap_or(0);
    let mut printed = String::new();
    for (text, source) in lines {
        match source {
            Some(source) => _ = writeln!(printed, "{text:width$}  # {source}"),
            None => _ = writeln!(printed, "{text}"),
        }
    }
    printed
}

fn toml_value(text: &str, shape: Shape) -> String {
    let string = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let list = |parts: Vec<String>| format!("[{}]", parts.join(", "));
    match shape {
        Shape::Text => string(text),
        Shape::Count | Shape::Flag => text.to_owned(),
        Shape::Counts => list(text.split(',').map(str::to_owned).collect()),
        Shape::Texts => list(text.split(',').map(string).collect()),
    }
}

/// What differs between two configurations, in the table's order.
pub(crate) fn changed(before: &InForce, after: &InForce) -> Vec<&'static Setting> {
    SETTINGS
        .iter()
        .filter(|setting| setting.text(&before.settings) != setting.text(&after.settings))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{precedence, settings::by_key};

    /// The printed configuration, read back as a file, gives the same configuration.
    #[test]
    fn what_is_printed_reads_back() {
        let flag = |key, text: &str| (by_key(key).expect("a setting").0, text.to_owned());
        let flags = vec![
            flag("cores", "1,0"),
            flag("purge-from", "10.0.0.1,::1"),
            flag("origin", "http://a:1"),
            flag("state", "/a \"quoted\"\\dir"),
            flag("memory", "1025B"),
            flag("connections-max", "5"),
        ];
        let before = precedence::in_force(None, |_| None, &flags).expect("right");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("n.toml");
        std::fs::write(&path, as_file(&before, None)).expect("a file");
        let after = precedence::in_force(Some(&path), |_| None, &Vec::new()).expect("right");
        assert_eq!(before.settings, after.settings);
        assert!(changed(&before, &after).is_empty());
        let defaults = precedence::in_force(None, |_| None, &Vec::new()).expect("right");
        let keys: Vec<_> = changed(&before, &defaults).iter().map(|setting| setting.key).collect();
        assert_eq!(keys, ["cores", "state", "origin", "memory", "purge-from", "connections-max"]);
    }
}
