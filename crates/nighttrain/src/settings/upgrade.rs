//! Remarks of `check` on a valid configuration: each line whose meaning changed with this version.
//!
//! A remark is about a line of the file; changed defaults are in the change log. Each server has a function
//! that derives its remarks from the file's values and the resulting settings.

use std::net::SocketAddr;

use cache::config::CookieRule;

use crate::{
    failure::Fault,
    settings::{SETTINGS, Section, Settings, file::FileValue},
};

/// Returns the remarks on a file from top to bottom; `values` are the file's, and `settings` the resulting
/// settings.
pub(crate) fn remarks(values: &[FileValue], settings: &Settings) -> Vec<Fault> {
    values
        .iter()
        .filter_map(|value| {
            let setting = &SETTINGS[value.setting];
            let message = match setting.section {
                Section::Mail => of_mail(setting.key, settings)?,
                Section::Cache => of_cache(setting.key, settings)?,
                Section::Feed => of_feed(setting.key)?,
                Section::Common => return None,
            };
            Some(Fault { place: value.place.clone(), message: format!("{}: {message}", setting.key) })
        })
        .collect()
}

/// Returns the remark on a line about the sharing of stored answers, or about the reach of a purge.
fn of_cache(key: &str, settings: &Settings) -> Option<&'static str> {
    match key {
        "cookies" if settings.cache.cookies == CookieRule::Rfc => Some(
            "rfc still stores answers that set a cookie, and sends it to every client; since this version safe and \
             strict store none of them, whatever they say; remove-set-cookie stores them without the cookie",
        ),
        "cookies" => Some(
            "an answer that sets a cookie is no longer stored, even if it says public; remove-set-cookie stores it \
             without the cookie",
        ),
        "sticky-cookie" => {
            Some("since this version the cookie is set for passed requests only, and not for stored fetches")
        }
        "https-only" if settings.cache.rules.https_only => {
            Some("since this version a PURGE or BAN by http is carried out, and not redirected")
        }
        _ => None,
    }
}

/// Returns the remark on a line about who may see the mail of all inboxes.
fn of_mail(key: &str, settings: &Settings) -> Option<&'static str> {
    let mail = &settings.mail;
    let is_beyond = |address: SocketAddr| !address.ip().to_canonical().is_loopback();
    let has_token = mail.asks_for_token();
    match key {
        "http" if is_beyond(mail.http) && !has_token => Some(
            "since this version pages here show all mail to this machine; a proxy in front of them needs token-file, \
             or mail-readers with trusted-proxies",
        ),
        "http-hosts" if !has_token => Some(
            "pages with a host name of their own are often behind a proxy: since this version a proxy that does not \
             name its clients closes the view of all mail to this machine; set token-file, or mail-readers with \
             trusted-proxies",
        ),
        "mail-readers" => Some(
            "since this version a proxy in these networks that sends X-Forwarded-For is no reader on [::] either, nor \
             is one that was noticed to name no clients; list it in trusted-proxies",
        ),
        _ => None,
    }
}

/// Returns the remark on a line about the subjects that cross to a hub, or about where users are configured.
fn of_feed(key: &str) -> Option<&'static str> {
    match key {
        "leaf" => Some(
            "since this version mail announced by `serve` is not sent to a hub, whoever subscribes there; have its \
             clients connect here, or republish what they may have",
        ),
        "nats-config" => Some(
            "since this version its keys, denies and response permissions are read more strictly: `nighttrain check` \
             of that file names the lines",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::file;

    fn said(text: &str) -> Vec<String> {
        let (values, _, faults) = file::values("n.toml", text);
        assert_eq!(faults, []);
        let mut settings = Settings::default();
        for value in &values {
            SETTINGS[value.setting].set(&mut settings, &value.text).expect("right");
        }
        let remarks = remarks(&values, &settings);
        remarks.iter().map(|fault| fault.to_string().chars().take(30).collect()).collect()
    }

    #[test]
    fn each_line_about_cookies_and_purges_is_named() {
        for (line, want) in [
            ("cookies = \"rfc\"", "n.toml:2:11: cookies: rfc stil"),
            ("cookies = \"strict\"", "n.toml:2:11: cookies: an answe"),
            ("sticky-cookie = \"s\"", "n.toml:2:17: sticky-cookie: si"),
            ("https-only = true", "n.toml:2:14: https-only: since"),
        ] {
            assert_eq!(said(&format!("[cache]\n{line}\n")), [want]);
        }
        assert_eq!(said("[cache]\nhttps-only = false\nmemory = \"64MiB\"\n"), [""; 0]);
    }

    #[test]
    fn upgrade_notes_name_the_hub_lines() {
        let text = "[feed]\nlisten = \"127.0.0.1:4222\"\nleaf = [\"nats-leaf://hub.test\"]\nnats-config = \"/n.conf\"\n";
        let said = said(text);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("n.toml:3:8: leaf: since"), "{said:?}");
        assert!(said[1].starts_with("n.toml:4:15: nats-config:"), "{said:?}");
    }

    #[test]
    fn each_line_that_shows_all_mail_is_named() {
        let text =
            "[mail]\nhttp = \"0.0.0.0:8025\"\nmail-readers = [\"10.0.0.0/8\"]\nhttp-hosts = [\"a.test\"]\n";
        assert_eq!(
            said(text),
            [
                "n.toml:2:8: http: since this v",
                "n.toml:3:16: mail-readers: sin",
                "n.toml:4:14: http-hosts: pages"
            ]
        );
        assert_eq!(said("[mail]\nhttp = \"[::1]:8025\"\ndomain = \"a.test\"\n"), [""; 0]);
        assert_eq!(
            said(&text.replace("[mail]\n", "[mail]\ntoken-file = \"/t\"\n")),
            ["n.toml:4:16: mail-readers: sin"]
        );
    }
}
