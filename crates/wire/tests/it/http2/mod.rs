//! HTTP/2: tables of what the RFCs say, properties, and twins.

#![allow(clippy::expect_used, reason = "a test may fail")]

mod attacks;
mod client;
mod client_of_others;
mod connection;
mod frames;
mod hpack;
mod requests;
