//! HPACK as described in RFC 7541, with vectors, and the Huffman code bit by bit: the slow twin of
//! `wire::http2::hpack`.

use wire::http2::hpack::{FIELD_OVERHEAD, TABLE_BYTES_MAX, TABLE_SIZE_UPDATES_MAX, huffman_code};

pub(crate) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) struct NaiveDecoder {
    /// Entries of the dynamic table, the newest first.
    pub(crate) dynamic: Fields,
    bytes_max: usize,
}

/// Error of a field block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl NaiveDecoder {
    pub(crate) fn new() -> Self {
        Self { dynamic: Vec::new(), bytes_max: TABLE_BYTES_MAX }
    }

    pub(crate) fn table_bytes(&self) -> usize {
        list_bytes(&self.dynamic)
    }

    fn shrink(&mut self) {
        while self.table_bytes() > self.bytes_max {
            self.dynamic.pop();
        }
    }

    fn entry(&self, index: u64) -> Result<(Vec<u8>, Vec<u8>), Broken> {
        let index = index.checked_sub(1).ok_or(Broken)? as usize;
        if let Some((name, value)) = STATIC.get(index) {
            return Ok((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
        self.dynamic.get(index - STATIC.len()).cloned().ok_or(Broken)
    }

    pub(crate) fn decode(&mut self, mut block: &[u8]) -> Result<Fields, Broken> {
        let mut fields = Fields::new();
        let mut resizes = 0;
        while let Some(&first) = block.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut block, 7)?;
                fields.push(self.entry(index)?);
            } else if first & 0xe0 == 0x20 {
                let bytes_max = integer(&mut block, 5)?;
                resizes += 1;
                if !fields.is_empty()
                    || resizes > TABLE_SIZE_UPDATES_MAX
                    || bytes_max > TABLE_BYTES_MAX as u64
                {
                    return Err(Broken);
                }
                self.bytes_max = bytes_max as usize;
                self.shrink();
            } else {
                let is_entered = first & 0x40 != 0;
                let name = match integer(&mut block, if is_entered { 6 } else { 4 })? {
                    0 => string(&mut block)?,
                    index => self.entry(index)?.0,
                };
                let field = (name, string(&mut block)?);
                fields.push(field.clone());
                if is_entered {
                    self.dynamic.insert(0, field);
                    self.shrink();
                }
            }
        }
        Ok(fields)
    }
}

pub(crate) fn list_bytes(fields: &Fields) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.len() + FIELD_OVERHEAD).sum()
}

fn integer(block: &mut &[u8], prefix_bits: u32) -> Result<u64, Broken> {
    let (&first, mut rest) = block.split_first().ok_or(Broken)?;
    let mask = (1u64 << prefix_bits) - 1;
    let mut value = u64::from(first) & mask;
    if value == mask {
        for number in 0.. {
            let (&byte, after) = rest.split_first().ok_or(Broken)?;
            rest = after;
            value += u64::from(byte & 0x7f) << (7 * number);
            if byte & 0x80 == 0 {
                break;
            }
            if number == 3 {
                return Err(Broken);
            }
        }
    }
    *block = rest;
    Ok(value)
}

fn string(block: &mut &[u8]) -> Result<Vec<u8>, Broken> {
    let is_coded = block.first().ok_or(Broken)? & 0x80 != 0;
    let len = integer(block, 7)? as usize;
    let (string, rest) = block.split_at_checked(len).ok_or(Broken)?;
    *block = rest;
    if is_coded { decoded(string) } else { Ok(string.to_vec()) }
}

pub(crate) fn decoded(string: &[u8]) -> Result<Vec<u8>, Broken> {
    let codes: std::collections::HashMap<(u32, u8), u16> =
        (0..=256).map(|symbol| (huffman_code(symbol), symbol)).collect();
    let (mut out, mut code, mut bits) = (Vec::new(), 0, 0);
    for byte in string {
        for bit in (0..8).rev() {
            code = code << 1 | u32::from(byte >> bit & 1);
            bits += 1;
            match codes.get(&(code, bits)) {
                Some(256) => return Err(Broken),
                Some(&symbol) => {
                    out.push(symbol as u8);
                    (code, bits) = (0, 0);
                }
                None => {}
            }
        }
    }
    let is_padding = bits < 8 && code == (1 << bits) - 1;
    if is_padding { Ok(out) } else { Err(Broken) }
}

#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"),
    (":path", "/index.html"), (":scheme", "http"), (":scheme", "https"), (":status", "200"),
    (":status", "204"), (":status", "206"), (":status", "304"), (":status", "400"), (":status", "404"),
    (":status", "500"), ("accept-charset", ""), ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""), ("accept-ranges", ""), ("accept", ""), ("access-control-allow-origin", ""),
    ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""),
    ("content-length", ""), ("content-location", ""), ("content-range", ""), ("content-type", ""),
    ("cookie", ""), ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""),
    ("host", ""), ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""),
    ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""),
    ("via", ""), ("www-authenticate", ""),
];
