//! Buffers of a thread for TLS, and their sizes.

use engine::tls::session::{HANDSHAKE_BYTES_MAX, RECORD_BYTES_MAX, RECORD_CONTENT_BYTES_MAX};

/// Maximum number of bytes per read from a client: room for many pipelined requests, but small enough to keep
/// one buffer per core.
pub(crate) const READ_BYTES: usize = 64 * 1024;

/// Maximum number of records sealed before a write, which saves system calls without exceeding what a socket
/// accepts. A page of 64 KiB with its head takes five records.
pub(super) const RECORDS_AT_ONCE: usize = 5;

/// Buffers of the thread for TLS.
pub(crate) struct Scratch {
    /// Received bytes; during a handshake at most [`HANDSHAKE_BYTES_MAX`].
    pub(super) incoming: Vec<u8>,
    /// Gathered content of one record.
    pub(super) plain: Vec<u8>,
    /// Sealed records.
    pub(super) sealed: Vec<u8>,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self {
            incoming: vec![0; HANDSHAKE_BYTES_MAX],
            plain: Vec::with_capacity(RECORD_CONTENT_BYTES_MAX),
            sealed: Vec::with_capacity(RECORDS_AT_ONCE * RECORD_BYTES_MAX),
        }
    }
}
