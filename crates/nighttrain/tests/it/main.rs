//! The program from outside: its command line, its configuration, its servers.
//!
//! One program, because each is linked by itself; a file is one subject.

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
