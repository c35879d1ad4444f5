//! Runs the seeds of the fuzz targets through the targets' own checks.

use crate::{naive, naive_hpack, naive_leaf, naive_nats, smtp_twin};

#[path = "../../../../fuzz/checks/cut.rs"]
mod cut;
#[path = "../../../../fuzz/checks/filter.rs"]
pub(crate) mod filter;
#[path = "../../../../fuzz/checks/http1_body.rs"]
mod http1_body;
#[path = "../../../../fuzz/checks/http1_fields.rs"]
mod http1_fields;
#[path = "../../../../fuzz/checks/http1_request.rs"]
mod http1_request;
#[path = "../../../../fuzz/checks/http1_response.rs"]
mod http1_response;
#[path = "../../../../fuzz/checks/http2_connection.rs"]
pub(crate) mod http2_connection;
#[path = "../../../../fuzz/checks/http2_frames.rs"]
pub(crate) mod http2_frames;
#[path = "../../../../fuzz/checks/http2_head.rs"]
pub(crate) mod http2_head;
#[path = "../../../../fuzz/checks/http2_hpack.rs"]
pub(crate) mod http2_hpack;
#[path = "../../../../fuzz/checks/nats_client.rs"]
mod nats_client;
#[path = "../../../../fuzz/checks/nats_leaf.rs"]
mod nats_leaf;
#[path = "../../../../fuzz/checks/seeds.rs"]
mod seeds;
#[path = "../../../../fuzz/checks/smtp.rs"]
mod smtp;

#[test]
fn filter() {
    seeds::replay("filter", filter::check);
}

#[test]
fn http1_body() {
    seeds::replay("http1_body", http1_body::check);
}

#[test]
fn http1_fields() {
    seeds::replay("http1_fields", http1_fields::check);
}

#[test]
fn http1_request() {
    seeds::replay("http1_request", http1_request::check);
}

#[test]
fn http1_response() {
    seeds::replay("http1_response", http1_response::check);
}

#[test]
fn http2_connection() {
    seeds::replay("http2_connection", http2_connection::check);
}

#[test]
fn http2_frames() {
    seeds::replay("http2_frames", http2_frames::check);
}

#[test]
fn http2_hpack() {
    seeds::replay("http2_hpack", http2_hpack::check);
}

#[test]
fn nats_client() {
    seeds::replay("nats_client", nats_client::check);
}

#[test]
fn nats_leaf() {
    seeds::replay("nats_leaf", nats_leaf::check);
}

#[test]
fn smtp() {
    seeds::replay("smtp", smtp::check);
}
