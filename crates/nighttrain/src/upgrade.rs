//! What `check` says of a configuration that is right: each line whose meaning changed with this version.
//!
//! A remark is about a line that somebody wrote; what defaults changed is in the change log. Each server's remarks are a
//! function of the values and the settings that they come to.

use std::net::SocketAddr;

use crate::{
    failure::Fault,
    file::FileValue,
    settings::{SETTINGS, Section, Settings},
};

/// The remarks on a file, from the top down: its values, and the settings that they come to.
pub(crate) fn remarks(values: &[FileValue], settings: &Settings) -> Vec<Fault> {
    values
        .iter()
        .filter_map(|value| {
            let setting = &SETTINGS[value.setting];
            let message = match setting.section {
                Section::Mail => of_mail(setting.key, settings)?,
                Section::Common | Section::Cache | Section::Feed => return None,
            };
            Some(Fault { place: value.place.clone(), message: format!("{}: {message}", setting.key) })
        })
        .collect()
}

/// Who sees all mail together.
fn of_mail(key: &str, settings: &Settings) -> Option<&'static str> {
    let mail = &settings.mail;
    let is_beyond = |address: SocketAddr| !address.ip().to_canonical().is_loopback();
    let has_token = mail.asks_for_token();
    match key {
        "http" if is_beyond(mail.http) && !has_token => Some(
            "pages here show all mail together to this machine itself since this version; a proxy in front of them needs \
             token-file, or mail-readers with trusted-proxies",
        ),
        "http-hosts" if !has_token => Some(
            "pages with a name of their own are often behind a proxy: one that does not say for whom it asks closes all mail \
             together to this machine since this version; set token-file, or mail-readers with trusted-proxies",
        ),
        "mail-readers" => Some(
            "a proxy in these networks that names its visitors in X-Forwarded-For is no reader since this version on [::] \
             either, nor is one that was noticed to name nobody; list it in trusted-proxies",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;

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
    fn each_line_that_shows_all_mail_is_named() {
        let text =
            "[mail]\nhttp = \"0.0.0.0:8025\"\nmail-readers = [\"10.0.0.0/8\"]\nhttp-hosts = [\"a.test\"]\n";
        assert_eq!(
            said(text),
            [
                "n.toml:2:8: http: pages here s",
                "n.toml:3:16: mail-readers: a p",
                "n.toml:4:14: http-hosts: pages"
            ]
        );
        assert_eq!(said("[mail]\nhttp = \"[::1]:8025\"\ndomain = \"a.test\"\n"), [""; 0]);
        assert_eq!(
            said(&text.replace("[mail]\n", "[mail]\ntoken-file = \"/t\"\n")),
            ["n.toml:4:16: mail-readers: a p"]
        );
    }
}
