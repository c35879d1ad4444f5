//! Operations of a hub to its leaf node: parsed as by the slow twin, whole and at every prefix, under limits
//! that the fuzzer chooses.

use super::cut::Cut;
use super::naive_leaf;
use wire::nats::leaf::Limits;

pub(crate) fn check(bytes: &[u8]) {
    let mut cut = Cut(bytes);
    let (line, payload, bytes) = (cut.u8(), cut.u8(), cut.0);
    let mut limits = Limits::default();
    // 255 stands for a limit that is never reached.
    if line < 255 {
        limits.line_bytes_max = line.into();
    }
    if payload < 255 {
        limits.payload_bytes_max = payload.into();
    }
    naive_leaf::check(&bytes[..bytes.len().min(600)], &limits);
}
