//! Disposable mail: SMTP in, a page and an API out.

pub mod address;
pub mod mailboxes;
pub mod twin;
