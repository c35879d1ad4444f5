//! HPACK (RFC 7541): field blocks to fields and back.
//!
//! ```text
//!   block ──> Decoder::decode ──> FieldSection     fields as slices; one for each loop, reused
//!              DynamicTable                        5 KiB for each connection
//!   field, status ──> block                        no state
//! ```
//! Decoding does not allocate: the table is a ring of fixed size, and strings are decoded into the section's
//! own memory. The reason for not using a library: `docs/decisions/036-http2.md`.

mod decode;
mod encode;
mod huffman;
mod section;
mod static_table;
mod table;

pub use decode::{DecodeError, Decoder, TABLE_SIZE_UPDATES_MAX};
pub use encode::{NO_TABLE, Strings, entered_field, field, reference, secret_field, status};
pub use huffman::code as huffman_code;
pub(super) use section::Serial;
pub use section::{FieldSection, OVERRUN_MAX, Overflow};
pub use table::{FIELD_OVERHEAD, TABLE_BYTES_MAX};
