//! Disposable mail: SMTP in, a page and an API out.

pub mod address;
pub mod mailboxes;
pub mod render;
pub mod samples;
pub mod search;
pub mod sendmail;
pub mod twin;
