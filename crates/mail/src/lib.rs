//! Disposable mail: SMTP in, a page and an API out.

pub mod mailboxes;
