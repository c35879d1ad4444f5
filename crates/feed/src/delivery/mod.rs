//! Delivery of messages: publishing, backlogs of clients, backpressure.

pub(crate) mod backlog;
pub(crate) mod backpressure;
#[cfg(test)]
pub(crate) mod backpressure_tests;
pub(crate) mod batch;
pub(crate) mod buffers;
pub(crate) mod contributions;
pub(crate) mod free_holds;
#[cfg(test)]
pub(crate) mod hot_path_tests;
pub(crate) mod origin;
pub(crate) mod outbox;
pub(crate) mod outputs;
pub(crate) mod producer;
pub(crate) mod publish;
pub(crate) mod publisher;
pub(crate) mod run;
pub(crate) mod suspended;
pub(crate) mod victims;
pub(crate) mod work;
