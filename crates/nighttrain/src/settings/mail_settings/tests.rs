use super::*;

#[test]
fn what_does_not_go_together_is_told() {
    let of = |changes: fn(&mut MailSettings)| {
        let mut settings = MailSettings { store: Some(Store::Anonymous), ..MailSettings::default() };
        changes(&mut settings);
        settings.config(None, None)
    };
    assert!(of(|_| ()).is_ok());
    let place = |result: Result<Config, Fault>| result.expect_err("a fault").place;
    assert_eq!(place(of(|mail| mail.tls_cert = Some("/a".into()))), "tls-key");
    assert_eq!(place(of(|mail| mail.tls_key = Some("/a".into()))), "tls-cert");
    assert_eq!(place(of(|mail| mail.config.smtps = Some(mail.http))), "tls-cert");
    assert_eq!(place(of(|mail| mail.banned = Some("/no/such/list".into()))), "/no/such/list");
}

#[test]
fn the_mail_store_defaults_to_the_state_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().join("made");
    let config = MailSettings::default().config(Some(&state), None).expect("right");
    assert_eq!(config.store, Store::File(state.join("mail.store")));
    assert!(state.is_dir());
}

#[test]
fn a_wrong_list_names_its_line() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "word a\nfoo bar\n").expect("written");
    let settings = MailSettings { banned: Some(file.path().to_owned()), ..MailSettings::default() };
    let fault = settings.lists().expect_err("wrong");
    assert!(fault.message.starts_with("line 2: unknown kind of ban \"foo\""), "{fault}");
}
