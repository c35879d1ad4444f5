//! The HTTP accelerator.
pub mod config;
pub mod error_page;
pub mod policy;
pub mod response_head;
