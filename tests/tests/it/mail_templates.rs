//! Mails look as their sender meant: public templates in a real browser, in our frame and in a bare page.

use std::process::Command;

use tests::{
    mail_service::MailService,
    node::{artifacts, mail_templates, node_modules, source_tree, succeeds},
};

/// At least 40 templates (MJML's, Foundation's and others, built from their packages), at the widths of a
/// phone, a tablet and a desktop: at most 1% of the pixels differ from the same HTML in a bare page, with no
/// network on either side. Pictures of the differences: target/mail-templates.
#[test]
fn m15_templates_look_as_they_were_sent() {
    let service = MailService::start(&[]);
    let libraries = std::env::join_paths([node_modules(), mail_templates()]).expect("paths");
    let said = succeeds(
        Command::new("node")
            .arg(source_tree().join("tests/browser/templates.cjs"))
            .env("NODE_PATH", libraries)
            .env("MAIL_URL", &service.url)
            .env("MAIL_SMTP", &service.smtp)
            .env("CHROMIUM", "/usr/bin/chromium")
            .env("SHOTS", artifacts("mail-templates")),
    );
    assert!(said.contains("templates at three widths"), "{said}");
}
