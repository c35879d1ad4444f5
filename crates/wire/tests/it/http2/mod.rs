//! HTTP/2 tests: tables from the RFCs, properties, and comparisons with twins.

mod attacks;
mod client;
mod client_of_others;
mod connection;
mod frames;
mod hpack;
mod requests;
