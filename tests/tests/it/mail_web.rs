//! The mail pages in a real browser, on the whole program.

use std::{
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};

use tempfile::TempDir;
use tests::{
    eventually,
    mail_service::MailService,
    node::{artifacts, node_modules, source_tree, succeeds},
};

/// Desktop and phone, light and dark: a browser opens an inbox, sees a mail arrive live, opens it, blocks and
/// loads remote content, searches and deletes; a hostile mail runs nothing and fetches nothing; no
/// accessibility violation. Screenshots: target/mail-pages.
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

/// Checks one rule of `tests/browser/geometry.cjs`: boxes are measured at five widths, from a desktop's to a
/// small phone's.
fn holds_in_a_browser(rule: &str) {
    let service = MailService::start(&[]);
    let said = succeeds(
        Command::new("node")
            .arg(source_tree().join("tests/browser/geometry.cjs"))
            .arg(rule)
            .env("NODE_PATH", node_modules())
            .env("MAIL_URL", &service.url)
            .env("MAIL_SMTP", &service.smtp)
            .env("CHROMIUM", "/usr/bin/chromium")
            .env("SHOTS", artifacts("mail-geometry")),
    );
    assert!(said.contains(&format!("ok {rule}")), "{said}");
}

/// A toast has equal padding on its four sides, with a button and without.
#[test]
fn toasts_have_even_padding() {
    holds_in_a_browser("toast-padding");
}

/// An arriving row slides out from below the bar of actions on the selection, and never covers it.
#[test]
fn arriving_rows_cover_no_control() {
    holds_in_a_browser("arriving-row");
}

/// Rows of *All mail* were 101.5 px high, so every second divider fell between pixels. No element with a
/// border does so, on any page.
#[test]
fn dividers_lie_on_whole_pixels() {
    holds_in_a_browser("whole-pixels");
}

/// The list's bar and the mail's bar stay whole below the header at any scroll position.
#[test]
fn headers_cut_no_bar() {
    holds_in_a_browser("whole-bars");
}

/// Long addresses, codes and links keep their copy button on the same line.
#[test]
fn copy_buttons_stay_beside_their_text() {
    holds_in_a_browser("copy-buttons");
}

/// Dark mode, remote pictures and another tab keep the chosen width of the preview.
#[test]
fn a_chosen_width_is_kept() {
    holds_in_a_browser("kept-width");
}

/// Eight common tasks take no more clicks and keys than in Mailpit. Mailpit itself is measured if
/// bench/install-mailpit.sh has built it; otherwise the numbers from when this test was written count.
#[test]
fn m15_common_tasks_take_no_more_actions_than_mailpit() {
    let service = MailService::start(&[]);
    let mailpit = Mailpit::start();
    let mut command = Command::new("node");
    command
        .arg(source_tree().join("tests/browser/tasks.cjs"))
        .env("NODE_PATH", node_modules())
        .env("MAIL_URL", &service.url)
        .env("MAIL_SMTP", &service.smtp)
        .env("CHROMIUM", "/usr/bin/chromium")
        .env("SHOTS", artifacts("mail-tasks"));
    if let Some(mailpit) = &mailpit {
        command.env("MAILPIT_URL", &mailpit.url).env("MAILPIT_SMTP", &mailpit.smtp);
    }
    let said = succeeds(&mut command);
    assert!(said.contains("ok eight tasks"), "{said}");
}

/// A running Mailpit, if it is built.
struct Mailpit {
    child: Child,
    url: String,
    smtp: String,
    _directory: TempDir,
}

impl Mailpit {
    fn start() -> Option<Self> {
        let program = source_tree().join("target/bench/mail-peers/mailpit");
        if !program.is_file() {
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let [http, smtp] = [(); 2].map(|()| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("an address").to_string()
        });
        let child = Command::new(program)
            .args([
                "--listen",
                &http,
                "--smtp",
                &smtp,
                "--disable-version-check",
                "--smtp-disable-rdns",
                "--quiet",
            ])
            .arg("--database")
            .arg(directory.path().join("mailpit.db"))
            .spawn()
            .expect("it starts");
        let mailpit = Self { child, url: format!("http://{http}"), smtp, _directory: directory };
        for address in [&http, &mailpit.smtp] {
            eventually("Mailpit listens", || TcpStream::connect(address).is_ok());
        }
        Some(mailpit)
    }
}

impl Drop for Mailpit {
    fn drop(&mut self) {
        // Mailpit may have ended by itself, which the test has noticed by then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
