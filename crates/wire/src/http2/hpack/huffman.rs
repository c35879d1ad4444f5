//! The Huffman code of strings (RFC 7541 §5.2 and Appendix B).
//!
//! The code is canonical: codes of one length follow each other in the order of their symbols, and the first
//! code of a length follows the last of the length before. The lengths therefore determine the code, and
//! every table here is built from them at compile time.
//!
//! Decoding looks up twelve bits at a time, which hold two of the common symbols (five and six bits): a table
//! of 16 KiB. Codes of more than twelve bits, which are rare in text, are found by their length.

/// Code length in bits of each byte, and of the end-of-string symbol (256), which must not occur.
#[rustfmt::skip]
const BITS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// Number of symbols: the bytes and the end of a string.
const SYMBOLS: usize = 257;

/// The symbol that ends a string.
const END: u16 = 256;

/// Length of the longest code, in bits.
const BITS_MAX: usize = 30;

/// Number of bits looked up at once.
const LOOKUP_BITS: usize = 12;

/// The codes in order: by length, then by symbol.
struct Canonical {
    /// The symbols in the order of their codes.
    symbols: [u16; SYMBOLS],
    /// The first code of each length.
    first: [u32; BITS_MAX + 1],
    /// Position in `symbols` of the first symbol of each length.
    start: [u16; BITS_MAX + 1],
    /// Number of codes of each length.
    count: [u16; BITS_MAX + 1],
    /// The code of each symbol.
    code: [u32; SYMBOLS],
}

static CANONICAL: Canonical = CANONICAL_CODE;

const CANONICAL_CODE: Canonical = {
    let mut canonical = Canonical {
        symbols: [0; SYMBOLS],
        first: [0; BITS_MAX + 1],
        start: [0; BITS_MAX + 1],
        count: [0; BITS_MAX + 1],
        code: [0; SYMBOLS],
    };
    let (mut code, mut place, mut bits) = (0, 0, 1);
    while bits <= BITS_MAX {
        code <<= 1;
        canonical.first[bits] = code;
        canonical.start[bits] = place as u16;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if BITS[symbol] as usize == bits {
                canonical.symbols[place] = symbol as u16;
                canonical.code[symbol] = code;
                canonical.count[bits] += 1;
                code += 1;
                place += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    assert!(code == 1 << BITS_MAX, "the code is complete");
    canonical
};

/// Table entry for a group of twelve bits: the one or two symbols whose codes come first in it.
#[derive(Clone, Copy)]
struct Pair {
    /// The first symbol, and the second if there is one.
    symbols: [u8; 2],
    /// Code length of the first symbol; 0 if it is longer than the bits looked up.
    first_bits: u8,
    /// Total code length of the symbols.
    bits: u8,
}

static PAIRS: [Pair; 1 << LOOKUP_BITS] = {
    let mut pairs = [Pair { symbols: [0; 2], first_bits: 0, bits: 0 }; 1 << LOOKUP_BITS];
    let mut symbol = 0;
    while symbol < SYMBOLS - 1 {
        let bits = BITS[symbol] as usize;
        if bits <= LOOKUP_BITS {
            let first = (CANONICAL_CODE.code[symbol] as usize) << (LOOKUP_BITS - bits);
            let mut at = first;
            while at < first + (1 << (LOOKUP_BITS - bits)) {
                pairs[at] = Pair { symbols: [symbol as u8, 0], first_bits: bits as u8, bits: bits as u8 };
                at += 1;
            }
        }
        symbol += 1;
    }
    let mut at = 0;
    while at < pairs.len() {
        let pair = pairs[at];
        if pair.first_bits > 0 {
            let second = pairs[(at << pair.first_bits) & ((1 << LOOKUP_BITS) - 1)];
            // The zeros that the shift appends are not part of a code.
            if second.first_bits > 0 && pair.first_bits + second.first_bits <= LOOKUP_BITS as u8 {
                pairs[at].symbols[1] = second.symbols[0];
                pairs[at].bits = pair.first_bits + second.first_bits;
            }
        }
        at += 1;
    }
    pairs
};

/// Returns the code of a byte, or of the end (256), and its length in bits.
pub fn code(symbol: u16) -> (u32, u8) {
    (CANONICAL.code[symbol as usize], BITS[symbol as usize])
}

/// Reason why a string was not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The string contains the end symbol, or its padding is not up to seven bits of that symbol's code (RFC
    /// 7541 §5.2).
    Invalid,
    /// The string is longer than the room for it.
    NoRoom,
}

/// Bits that are still to be decoded, the next one first.
struct Bits<'b> {
    source: &'b [u8],
    at: usize,
    window: u64,
    /// Number of valid bits in `window`; the bits after them are the source's or 0.
    count: usize,
}

impl Bits<'_> {
    #[inline]
    fn drop(&mut self, bits: usize) {
        self.window <<= bits;
        self.count -= bits;
    }

    fn refill(&mut self) {
        while self.count <= 56 && self.at < self.source.len() {
            self.window |= u64::from(self.source[self.at]) << (56 - self.count);
            self.at += 1;
            self.count += 8;
        }
    }

    /// Checks that the remaining bits are padding, a prefix of the end symbol's code (all ones). Returns
    /// `len` if they are.
    fn end(&self, len: usize) -> Result<usize, Failure> {
        let is_padding = self.count < 8 && self.window.leading_ones() as usize >= self.count;
        if is_padding { Ok(len) } else { Err(Failure::Invalid) }
    }

    #[inline]
    fn pair(&self) -> Pair {
        PAIRS[(self.window >> (64 - LOOKUP_BITS)) as usize]
    }

    /// Returns a symbol whose code is longer than the bits looked up, and its code length; `None` if the
    /// available bits do not contain a whole code.
    #[cold]
    fn long(&self) -> Option<(u16, usize)> {
        (LOOKUP_BITS + 1..=BITS_MAX.min(self.count)).find_map(|bits| {
            let after_first = ((self.window >> (64 - bits)) as u32).wrapping_sub(CANONICAL.first[bits]);
            (after_first < CANONICAL.count[bits].into())
                .then(|| (CANONICAL.symbols[CANONICAL.start[bits] as usize + after_first as usize], bits))
        })
    }
}

/// Decodes `source` into the beginning of `out`, and returns the decoded length.
#[inline]
pub(super) fn decode(source: &[u8], out: &mut [u8]) -> Result<usize, Failure> {
    let mut bits = Bits { source, at: 0, window: 0, count: 0 };
    let mut len = 0;
    // Eight bytes are read at a time, and twelve bits are looked up four times: this yields at most eight
    // symbols.
    while let (Some(word), Some(room)) =
        (source.get(bits.at..).and_then(<[u8]>::first_chunk::<8>), out[len..].first_chunk_mut::<8>())
    {
        bits.window |= u64::from_be_bytes(*word) >> bits.count;
        let taken = (63 - bits.count) / 8;
        bits.at += taken;
        bits.count += taken * 8;
        let mut written = 0;
        for _ in 0..4 {
            let pair = bits.pair();
            if pair.first_bits == 0 {
                if bits.count < BITS_MAX {
                    break;
                }
                let Some((symbol @ ..END, width)) = bits.long() else { return Err(Failure::Invalid) };
                room[written] = symbol as u8;
                written += 1;
                bits.drop(width);
                break;
            }
            room[written] = pair.symbols[0];
            room[written + 1] = pair.symbols[1];
            written += 1 + usize::from(pair.bits > pair.first_bits);
            bits.drop(pair.bits.into());
        }
        len += written;
    }
    last(bits, out, len)
}

/// Decodes the last few bytes, or all remaining bytes if `out` has little room left.
fn last(mut bits: Bits<'_>, out: &mut [u8], mut len: usize) -> Result<usize, Failure> {
    loop {
        bits.refill();
        let pair = bits.pair();
        if pair.first_bits == 0 {
            let Some((symbol, width)) = bits.long() else { break };
            if symbol == END {
                return Err(Failure::Invalid);
            }
            *out.get_mut(len).ok_or(Failure::NoRoom)? = symbol as u8;
            len += 1;
            bits.drop(width);
        } else if usize::from(pair.bits) <= bits.count
            && let Some(room) = out[len..].first_chunk_mut()
        {
            *room = pair.symbols;
            len += 1 + usize::from(pair.bits > pair.first_bits);
            bits.drop(pair.bits.into());
        } else if usize::from(pair.first_bits) <= bits.count {
            *out.get_mut(len).ok_or(Failure::NoRoom)? = pair.symbols[0];
            len += 1;
            bits.drop(pair.first_bits.into());
        } else {
            break;
        }
    }
    bits.end(len)
}

/// Returns the decoded length of `source`, without storing the string.
pub(super) fn decoded_bytes(source: &[u8]) -> Result<usize, Failure> {
    let mut bits = Bits { source, at: 0, window: 0, count: 0 };
    let mut len = 0;
    loop {
        bits.refill();
        let pair = bits.pair();
        let width = if pair.first_bits > 0 {
            pair.first_bits.into()
        } else {
            match bits.long() {
                Some((END, _)) => return Err(Failure::Invalid),
                Some((_, width)) => width,
                None => break,
            }
        };
        if width > bits.count {
            break;
        }
        len += 1;
        bits.drop(width);
    }
    bits.end(len)
}

/// Returns the Huffman-coded length of a string in bytes.
pub(super) fn coded_bytes(string: &[u8]) -> usize {
    string.iter().map(|&b| usize::from(BITS[b as usize])).sum::<usize>().div_ceil(8)
}

/// Appends a string, Huffman-coded.
pub(super) fn encode(out: &mut Vec<u8>, string: &[u8]) {
    let (mut window, mut count) = (0u64, 0);
    for &b in string {
        let bits = BITS[b as usize];
        window = window << bits | u64::from(CANONICAL.code[b as usize]);
        count += u32::from(bits);
        while count >= 8 {
            count -= 8;
            out.push((window >> count) as u8);
        }
    }
    if count > 0 {
        out.push((window << (8 - count)) as u8 | 0xff >> count);
    }
}
