//! A NATS client's operation: parsed as by the slow twin, whole and at every prefix, under limits that the
//! fuzzer chooses.

use super::cut::Cut;
use super::naive_nats;
use wire::nats::{client::Limits, server};

pub(crate) fn check(bytes: &[u8]) {
    let mut cut = Cut(bytes);
    let (line, payload, headers, bytes) = (cut.u8(), cut.u8(), cut.bool(), cut.0);
    let mut limits = Limits { headers, ..Limits::default() };
    // 255 stands for a limit that is never reached.
    if line < 255 {
        limits.control_line_bytes_max = line.into();
    }
    if payload < 255 {
        limits.payload_bytes_max = payload.into();
    }
    naive_nats::check(&bytes[..bytes.len().min(600)], &limits);
    let _ = server::parse(bytes);
}
