//! The HTTP accelerator.
pub mod config;
