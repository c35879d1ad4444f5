//! Disposable mail: SMTP in, a page and an API out.

pub mod address;
pub mod head;
mod index;
pub mod mailboxes;
mod record;
pub mod twin;
