//! The mail pages in a real browser, on the whole program.

use std::process::Command;

use tests::{
    mail_service::MailService,
    node::{artifacts, node_modules, source_tree, succeeds},
};

/// Desk and phone, day and night: ask for an inbox, see mail arrive live, open it, block and load remote content,
/// search, delete; hostile mail runs nothing and fetches nothing; no accessibility violation. Screenshots:
/// target/mail-pages.
#[test]
fn a_browser_does_what_a_person_does() {
    let service = MailService::start(&[]);
    let said = succeeds(
        Command::new("node")
            .arg(source_tree().join("tests/browser/pages.cjs"))
            .env("NODE_PATH", node_modules())
            .env("MAIL_URL", &service.url)
            .env("MAIL_SMTP", &service.smtp)
            .env("CHROMIUM", "/usr/bin/chromium")
            .env("SHOTS", artifacts("mail-pages")),
    );
    for visit in ["desktop-dark", "desktop-light", "phone-dark", "phone-light"] {
        assert!(said.contains(&format!("ok {visit}: no script of a mail runs")), "{said}");
    }
    assert!(said.contains("ok without scripts"), "{said}");
}
