//! Third-party clients of Mailinator and Mailpit, and programs that call sendmail, against the whole program.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use tests::{
    mail_service::MailService,
    node::{node_modules, python, source_tree, succeeds},
    program,
};

const TOKEN: &str = "a-token-of-twenty-letters";

/// Starts a service that shows all mails to clients with the token.
fn with_token() -> (MailService, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    std::fs::write(&file, TOKEN).expect("written");
    (MailService::start(&["--token-file", file.to_str().expect("text")]), directory)
}

fn client(runtime: &std::path::Path, script: &str) -> String {
    let (service, _directory) = with_token();
    succeeds(
        Command::new(runtime)
            .arg(source_tree().join("tests/clients").join(script))
            .env("NODE_PATH", node_modules())
            .env("MAIL_URL", &service.url)
            .env("MAIL_SMTP", &service.smtp)
            .env("MAIL_TOKEN", TOKEN),
    )
}

#[test]
fn mailinators_client_for_javascript_works() {
    assert!(client("node".as_ref(), "mailinator.cjs").contains("ok mailinator-client"));
}

#[test]
fn mailpits_client_for_javascript_works() {
    assert!(client("node".as_ref(), "mailpit.cjs").contains("ok mailpit-api"));
}

#[test]
fn mailinators_client_for_python_works() {
    assert!(client(&python(), "mailinator_client.py").contains("ok mailinator"));
}

#[test]
fn samples_and_sendmail_fill_an_inbox() {
    let service = MailService::start(&[]);
    let sent =
        succeeds(program::command().args(["mail", "send-sample", "ann@night.test", "--smtp", &service.smtp]));
    assert_eq!(sent, "7 mails sent to ann@night.test\n");
    let sendmail = |arguments: &[&str], mail: &str| {
        let mut child = program::command()
            .args(["mail", "sendmail"])
            .args(arguments)
            .env("NIGHTTRAIN_MAIL_SMTP", &service.smtp)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        child.stdin.take().expect("piped").write_all(mail.as_bytes()).expect("written");
        child.wait_with_output().expect("it ends")
    };
    let done =
        sendmail(&["-t", "-i", "-f", "cron@host.test"], "To: ann@night.test\nSubject: from cron\n\n.\nend\n");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    // sysexits.h: 64 is wrong usage, 75 a temporary failure.
    assert_eq!(sendmail(&["-t"], "Subject: for nobody\n\n").status.code(), Some(64));
    assert_eq!(sendmail(&["-bp"], "").status.code(), Some(64));
    let list = succeeds(
        Command::new("curl").args(["-sS", &format!("{}/api/v2/domains/public/inboxes/ann", service.url)]),
    );
    let list: serde_json::Value = serde_json::from_str(&list).expect("JSON");
    let subjects: Vec<&str> =
        list["msgs"].as_array().expect("mails").iter().filter_map(|m| m["subject"].as_str()).collect();
    assert_eq!(subjects.len(), 8, "{subjects:?}");
    assert_eq!(subjects[0], "from cron");
    drop(service);
    let gone = program::command()
        .args(["mail", "sendmail", "ann@night.test"])
        .env("NIGHTTRAIN_MAIL_SMTP", "127.0.0.1:9")
        .output()
        .expect("the program starts");
    assert_eq!(gone.status.code(), Some(75));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("cannot connect to 127.0.0.1:9"));
}
