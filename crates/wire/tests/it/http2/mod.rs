//! HTTP/2 tests: tables from the RFCs, properties, and comparisons with twins.

#![allow(clippy::expect_used, reason = "a test may fail")]

mod attacks;
mod client;
mod client_of_others;
mod connection;
mod frames;
mod hpack;
mod requests;
