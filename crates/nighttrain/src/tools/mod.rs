//! Commands other than servers: clients of a feed, sample mails, the lab, the demonstration site.

pub(crate) mod demo;
pub(crate) mod feed_tools;
pub(crate) mod lab;
pub(crate) mod mail_tools;
pub(crate) mod nats;
