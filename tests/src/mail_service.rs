//! A running `nighttrain mail` on free ports, with its mails in memory.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use crate::program;

/// A running mail service; killed when dropped.
pub struct MailService {
    child: Child,
    /// `127.0.0.1:PORT` of the SMTP server.
    pub smtp: String,
    /// `http://127.0.0.1:PORT` of the web pages and APIs.
    pub url: String,
}

impl MailService {
    /// Starts the service for the domain `night.test`.
    ///
    /// # Panics
    /// If the service does not start.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        let mut child = program::command()
            .args(["mail", "--smtp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--store", "anon", "--store-size", "128MiB", "--domain", "night.test"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let said = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (mut smtp, mut url) = (None, None);
        for line in said.lines().map(|line| line.expect("text")) {
            if let Some(at) = line.find("smtp://") {
                smtp = Some(line[at + "smtp://".len()..].to_owned());
            } else if let Some(at) = line.find("inboxes on ") {
                url = Some(line[at + "inboxes on ".len()..].to_owned());
            } else if line.starts_with("admin: ") {
                break;
            }
        }
        Self {
            child,
            smtp: smtp.expect("it says where mail is taken"),
            url: url.expect("it says where pages are"),
        }
    }
}

impl Drop for MailService {
    fn drop(&mut self) {
        // The process may have ended by itself; its test has noticed that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
