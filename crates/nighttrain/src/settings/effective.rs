//! `config --print` and `check`: the configuration as text, and its faults.

use std::{fmt::Write, path::Path};

use crate::settings::{
    SETTINGS, Section, Setting, Settings, SiteSettings, ValueShape,
    file::rows_of_hub,
    precedence::{ActiveSettings, Source},
    site_settings::rows_of_path,
};

/// Formats the active configuration as a configuration file, with the source of each value.
pub(crate) fn as_file(in_force: &ActiveSettings, file: Option<&Path>) -> String {
    let mut lines: Vec<(String, Option<&Source>)> = Vec::new();
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
            match section {
                Section::Cache => append_sites(&mut lines, &in_force.settings),
                Section::Feed => append_hubs(&mut lines, &in_force.settings),
                Section::Common | Section::Mail => {}
            }
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

/// Appends a section whose settings have no flags or environment variables.
fn append(lines: &mut Vec<(String, Option<&Source>)>, heading: &str, rows: Vec<(&str, String, ValueShape)>) {
    lines.extend([(String::new(), None), (heading.to_owned(), None)]);
    lines
        .extend(rows.into_iter().map(|(key, text, shape)| {
            (format!("{key} = {}", toml_value(&text, shape)), Some(&Source::File))
        }));
}

/// Appends the feed's hubs. Passwords are not shown.
fn append_hubs(lines: &mut Vec<(String, Option<&Source>)>, settings: &Settings) {
    for hub in &settings.feed.leaf_remotes {
        append(lines, "[[feed.leaf-remote]]", rows_of_hub(hub));
    }
}

/// Appends the rules for paths and the sites, which exist only in the file.
fn append_sites(lines: &mut Vec<(String, Option<&Source>)>, settings: &Settings) {
    let mut section = |heading: &str, rows| append(lines, heading, rows);
    for rule in &settings.cache.rules.paths {
        section("[[cache.path]]", rows_of_path(rule));
    }
    for site in &settings.sites {
        section("[[cache.site]]", site.rows());
        for rule in site.paths.iter().flatten() {
            section("[[cache.site.path]]", rows_of_path(rule));
        }
    }
}

/// Returns whether the sites, or the rules for paths, differ.
pub(crate) fn has_other_sites(before: &ActiveSettings, after: &ActiveSettings) -> bool {
    let said = |settings: &Settings| {
        let of_site = |site: &SiteSettings| (site.rows(), site.paths.clone());
        (settings.sites.iter().map(of_site).collect::<Vec<_>>(), settings.cache.rules.paths.clone())
    };
    said(&before.settings) != said(&after.settings)
}

fn toml_value(text: &str, shape: ValueShape) -> String {
    let string = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let list = |parts: Vec<String>| format!("[{}]", parts.join(", "));
    match shape {
        ValueShape::Text => string(text),
        ValueShape::Count | ValueShape::Flag => text.to_owned(),
        ValueShape::Counts | ValueShape::Texts if text.is_empty() => list(Vec::new()),
        ValueShape::Counts => list(text.split(',').map(str::to_owned).collect()),
        ValueShape::Texts => list(text.split(',').map(string).collect()),
    }
}

/// Returns the settings that differ between two configurations, in the table's order.
pub(crate) fn changed(before: &ActiveSettings, after: &ActiveSettings) -> Vec<&'static Setting> {
    SETTINGS
        .iter()
        .filter(|setting| setting.text(&before.settings) != setting.text(&after.settings))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{by_key, precedence};

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
        assert!(changed(&before, &after).is_empty() && !has_other_sites(&before, &after));
        let defaults = precedence::in_force(None, |_| None, &Vec::new()).expect("right");
        let keys: Vec<_> = changed(&before, &defaults).iter().map(|setting| setting.key).collect();
        assert_eq!(keys, ["cores", "state", "origin", "memory", "purge-from", "connections-max"]);
    }

    #[test]
    fn a34_sites_that_are_printed_read_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let paths = ["one.toml", "two.toml"].map(|name| directory.path().join(name));
        let text = "[cache]\nbypass-cookies = []\n[[cache.path]]\npath = \"/a*\"\npass = true\njoin = false\n\
                    [[cache.site]]\nhosts = [\"*.a\", \"b\"]\norigin = \"http://c:1\"\nhost = \"d\"\nmethods = [\"GET\"]\n\
                    bypass-cookies = [\"s*\"]\n[[cache.site.path]]\npath = \"/x\"\nttl = \"1500ms\"\nmethods = [\"PUT\"]\n\
                    [[cache.site]]\nhosts = [\"e\"]\nbypass-cookies = []\n[feed]\nmax-payload = \"5KiB\"\n";
        let in_force = |path| precedence::in_force(Some(path), |_| None, &Vec::new()).expect("right");
        std::fs::write(&paths[0], text).expect("a file");
        let before = in_force(&paths[0]);
        std::fs::write(&paths[1], as_file(&before, None)).expect("a file");
        let after = in_force(&paths[1]);
        assert_eq!(before.settings.sites.len(), 2);
        assert!(!has_other_sites(&before, &after));
        assert!(changed(&before, &after).is_empty());
        let unsaid = precedence::in_force(None, |_| None, &Vec::new()).expect("right");
        assert!(has_other_sites(&before, &unsaid));
        // A site inherits from [cache] every setting that it does not have.
        let config = after.settings.accelerator(Some(cache::Origin::http("z", 9))).expect("sites");
        let [first, second] = &config.sites[..] else { panic!("two sites") };
        assert_eq!(
            (first.origin.to_string(), second.origin.to_string()),
            ("http://c:1".to_owned(), "http://z:9".to_owned())
        );
        assert_eq!((first.rules.paths.len(), second.rules.paths.len()), (1, 1));
        assert!(!first.rules.paths[0].pass && second.rules.paths[0].pass);
        assert_eq!(second.rules.bypass_cookies, Some(Vec::new()));
        assert!(
            after
                .settings
                .accelerator(None)
                .is_err_and(|wrong| wrong.to_string().contains("set neither for this site"))
        );
    }
}
