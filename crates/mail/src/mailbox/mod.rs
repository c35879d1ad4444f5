//! The seam between the stored mail and whoever reads it: questions, and what they are answered.

pub mod mailboxes;
pub(crate) mod mailstore;
pub(crate) mod questions;
pub mod twin;
