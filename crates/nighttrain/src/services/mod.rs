//! The servers as services of the program, alone and together.

pub(crate) mod accelerator;
pub(crate) mod cache_command;
pub(crate) mod certificates;
pub(crate) mod cluster_cert_store;
pub(crate) mod cluster_service;
pub(crate) mod feed;
pub(crate) mod mail;
pub(crate) mod operated;
pub(crate) mod operation;
pub(crate) mod savings;
pub(crate) mod serve;
pub(crate) mod shell;
