//! The program from outside: its command line, its configuration, its servers.
//!
//! All tests are one program, because each test program is linked separately; each file covers one subject.
#![allow(clippy::expect_used, clippy::disallowed_methods, reason = "a test may fail and wait")]

mod configuration;
mod feed;
mod lab;
mod nats_flags;
mod places;
mod reload;
mod running;
mod signals;
mod support;
mod usage;
