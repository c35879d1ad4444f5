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
            integer(out, 0, 4, 8);
            return string(out, &digits, Strings::Plain);
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

fn literal(out: &mut Vec<u8>, representation: u8, name: &[u8], value: &[u8], strings: Strings) {
    if let Some(index) = static_table::index_of_name(name) {
        integer(out, representation, 4, index.into());
    } else {
        out.push(representation);
        match strings {
            Strings::Plain => {
                integer(out, 0, 7, name.len());
                out.extend(name.iter().map(u8::to_ascii_lowercase));
            }
            // The letters change, and with them the code.
            Strings::Shorter => string(out, &name.to_ascii_lowercase(), strings),
        }
    }
    string(out, value, strings);
}

fn string(out: &mut Vec<u8>, string: &[u8], strings: Strings) {
    if strings == Strings::Shorter {
        let coded_bytes = huffman::coded_bytes(string);
        if coded_bytes < string.len() {
            integer(out, 0x80, 7, coded_bytes);
            return huffman::encode(out, string);
        }
    }
    integer(out, 0, 7, string.len());
    out.extend_from_slice(string);
}

/// Appends an integer whose first byte has so many bits of it, below those of `representation` (RFC 7541 §5.1).
fn integer(out: &mut Vec<u8>, representation: u8, prefix_bits: u32, value: usize) {
    let prefix_max = (1 << prefix_bits) - 1;
    if value < prefix_max {
        return out.push(representation | value as u8);
    }
    out.push(representation | prefix_max as u8);
    let mut rest = value - prefix_max;
    while rest >= 0x80 {
        out.push(0x80 | rest as u8);
        rest >>= 7;
    }
    out.push(rest as u8);
}
