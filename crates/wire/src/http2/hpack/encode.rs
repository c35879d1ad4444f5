//! HPACK encoder: turns fields into a field block (RFC 7541 §6), without the dynamic table. A block that is
//! encoded once may be sent to any client, any number of times, and a connection needs no encoder state.

use super::{huffman, static_table};

/// Encoding of strings: plain or Huffman-coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strings {
    /// Strings without Huffman coding: the cheapest to encode.
    Plain,
    /// Huffman-coded strings where that is shorter (by about a quarter): for blocks that are encoded once and
    /// sent often.
    Shorter,
}

/// Table size update to 0, with which a block must begin after the peer has shrunk the table (RFC 9113
/// §4.3.1): the table is empty, and stays empty.
pub const NO_TABLE: u8 = 0x20;

/// Appends `:status`.
///
/// # Panics
/// Panics if the status does not have three digits.
pub fn status(out: &mut Vec<u8>, status: u16) {
    assert!((100..1000).contains(&status), "a status has three digits");
    let index = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            let digits = [status / 100, status / 10 % 10, status % 10].map(|digit| b'0' + digit as u8);
            let mut start = Start::new();
            start.integer(0, 4, 8);
            return string(out, start, &digits, Strings::Plain);
        }
    };
    out.push(0x80 | index);
}

/// Appends a field, with its name in lower case, as HTTP/2 requires (RFC 9113 §8.2.1).
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8], strings: Strings) {
    literal(out, 0, name, value, strings);
}

/// Appends a field that no recipient or intermediary may add to a dynamic table (RFC 7541 §7.1.3).
pub fn secret_field(out: &mut Vec<u8>, name: &[u8], value: &[u8], strings: Strings) {
    literal(out, 0x10, name, value, strings);
}

/// Appends a field that the peer adds to its table, for senders that repeat it: later blocks
/// [refer](reference()) to it. The sender must keep track of the table's entries.
pub fn entered_field(out: &mut Vec<u8>, name: &[u8], value: &[u8], strings: Strings) {
    literal(out, 0x40, name, value, strings);
}

/// Appends a reference to a field: indices 1 to 61 are entries of the static table, and indices from 62 on
/// are entries that were added, the newest first (RFC 7541 §2.3.3).
pub fn reference(out: &mut Vec<u8>, index: usize) {
    let mut start = Start::new();
    start.integer(0x80, 7, index);
    out.extend_from_slice(start.bytes());
}

fn literal(out: &mut Vec<u8>, representation: u8, name: &[u8], value: &[u8], strings: Strings) {
    let mut start = Start::new();
    if let Some(index) = static_table::index_of_name(name) {
        // A literal that is added to the table has two more bits for the index (RFC 7541 §6.2).
        start.integer(representation, if representation == 0x40 { 6 } else { 4 }, index.into());
    } else {
        start.byte(representation);
        match strings {
            Strings::Plain => {
                start.integer(0, 7, name.len());
                out.extend_from_slice(start.bytes());
                out.extend(name.iter().map(u8::to_ascii_lowercase));
            }
            // Lower case changes the letters, and with them the Huffman code.
            Strings::Shorter => {
                out.extend_from_slice(start.bytes());
                string(out, Start::new(), &name.to_ascii_lowercase(), strings);
            }
        }
        start = Start::new();
    }
    string(out, start, value, strings);
}

/// Appends a string; `start` holds the bytes that precede it.
fn string(out: &mut Vec<u8>, mut start: Start, string: &[u8], strings: Strings) {
    if strings == Strings::Shorter {
        let coded_bytes = huffman::coded_bytes(string);
        if coded_bytes < string.len() {
            start.integer(0x80, 7, coded_bytes);
            out.extend_from_slice(start.bytes());
            return huffman::encode(out, string);
        }
    }
    start.integer(0, 7, string.len());
    out.extend_from_slice(start.bytes());
    out.extend_from_slice(string);
}

/// Length of the longest integer: eight bits, then nine groups of seven.
const INTEGER_BYTES_MAX: usize = 11;

/// Bytes that precede a string's content: the field's representation, the index of its name, the string's
/// length. They are assembled here, so that the block grows only once.
struct Start {
    bytes: [u8; 1 + 2 * INTEGER_BYTES_MAX],
    used: usize,
}

impl Start {
    fn new() -> Self {
        Self { bytes: [0; _], used: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    fn byte(&mut self, byte: u8) {
        self.bytes[self.used] = byte;
        self.used += 1;
    }

    /// Writes an integer whose first `prefix_bits` bits share a byte with `representation` (RFC 7541 §5.1).
    #[inline]
    fn integer(&mut self, representation: u8, prefix_bits: u32, value: usize) {
        let prefix_max = (1 << prefix_bits) - 1;
        if value < prefix_max {
            return self.byte(representation | value as u8);
        }
        self.byte(representation | prefix_max as u8);
        let mut rest = value - prefix_max;
        while rest >= 0x80 {
            self.byte(0x80 | rest as u8);
            rest >>= 7;
        }
        self.byte(rest as u8);
    }
}
