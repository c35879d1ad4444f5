//! Interface between the stored mail and its readers: questions and answers.

pub mod mailboxes;
pub(crate) mod mailstore;
pub(crate) mod questions;
pub mod twin;
