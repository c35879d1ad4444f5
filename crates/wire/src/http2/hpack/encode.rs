//! Fields to a field block (RFC 7541 §6), without the dynamic table: what is encoded once may then be sent to everyone,
//! any number of times, and a connection's encoder has no state.

use super::{huffman, static_table};

/// How strings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strings {
    /// As they are: the least work.
    Plain,
    /// By the Huffman code where that is shorter (a quarter or so): for what is encoded once and sent often.
    Shorter,
}

/// The instruction with which a block must begin after the peer made the table smaller (RFC 9113 §4.3.1): the table is
/// empty, and stays so.
pub const NO_TABLE: u8 = 0x20;

/// Appends `:status`.
///
/// # Panics
/// If it is not of three digits.
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

/// Appends a field; its name in lower case, as HTTP/2 wants it (RFC 9113 §8.2.1).
pub fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8], strings: Strings) {
    literal(out, 0, name, value, strings);
}

/// Appends a field that no intermediary may enter in a table, either (RFC 7541 §7.1.3).
pub fn secret_field(out: &mut Vec<u8>, name: &[u8], value: &[u8], strings: Strings) {
    literal(out, 0x10, name, value, strings);
}

/// Appends a field that the peer enters in its table, for whoever sends it again: its later blocks [refer](reference()) to it.
/// The sender keeps count of what is in there.
pub fn entered_field(out: &mut Vec<u8>, name: &[u8], value: &[u8], strings: Strings) {
    literal(out, 0x40, name, value, strings);
}

/// Appends a reference to a field: 1 to 61 are the static table's, from 62 on those entered, the youngest first (RFC 7541
/// §2.3.3).
pub fn reference(out: &mut Vec<u8>, index: usize) {
    let mut start = Start::new();
    start.integer(0x80, 7, index);
    out.extend_from_slice(start.bytes());
}

fn literal(out: &mut Vec<u8>, representation: u8, name: &[u8], value: &[u8], strings: Strings) {
    let mut start = Start::new();
    if let Some(index) = static_table::index_of_name(name) {
        // One that is entered has two bits more for the number (RFC 7541 §6.2).
        start.integer(representation, if representation == 0x40 { 6 } else { 4 }, index.into());
    } else {
        start.byte(representation);
        match strings {
            Strings::Plain => {
                start.integer(0, 7, name.len());
                out.extend_from_slice(start.bytes());
                out.extend(name.iter().map(u8::to_ascii_lowercase));
            }
            // The letters change, and with them the code.
            Strings::Shorter => {
                out.extend_from_slice(start.bytes());
                string(out, Start::new(), &name.to_ascii_lowercase(), strings);
            }
        }
        start = Start::new();
    }
    string(out, start, value, strings);
}

/// Appends a string behind its start.
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

/// Bytes of the longest integer: eight bits and nine times seven.
const INTEGER_BYTES_MAX: usize = 11;

/// What comes before a string's letters: how the field is represented, the number of its name, the string's length. Put
/// together here, so that the block grows once by it.
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

    /// An integer whose first byte has so many bits of it, below those of `representation` (RFC 7541 §5.1).
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
