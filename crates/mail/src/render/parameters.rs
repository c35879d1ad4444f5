//! Parser of field values with parameters: Content-Type and Content-Disposition (RFC 2045, 5.1; RFC 2183),
//! including continued and encoded parameters (RFC 2231), and the invalid forms that senders really write.

use super::fields;

/// Maximum number of parameter pieces that are read from one field.
pub(super) const PIECES_MAX: usize = 1000;
/// Maximum number of bytes of a field that are read.
const FIELD_BYTES_MAX: usize = 64 << 10;

/// A field's value and its parameters.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    /// The value before the parameters.
    pub(super) value: String,
    pieces: Vec<Piece>,
    /// True if there were more pieces than [`PIECES_MAX`].
    pub(super) is_cut: bool,
}

/// A parameter `name`, `name*`, `name*7` or `name*7*`, with its value.
#[derive(Debug)]
struct Piece {
    /// Name of the parameter in lower case.
    name: String,
    /// Index of the piece in a parameter that is split into several; `None` if the parameter is not split.
    number: Option<u32>,
    /// True if the value is percent-encoded; the value of a first piece then begins with the charset.
    is_encoded: bool,
    value: Vec<u8>,
}

/// Returns the first word of a value, without a comment after it.
pub(super) fn token(value: &[u8]) -> &[u8] {
    let end = value.iter().position(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b';' | b'('));
    &value[..end.unwrap_or(value.len())]
}

impl Parameters {
    pub(super) fn of(field: &[u8]) -> Self {
        let decoded;
        let mut field = &field[..field.len().min(FIELD_BYTES_MAX)];
        let mut is_cut = field.len() == FIELD_BYTES_MAX;
        if field.starts_with(b"=?") {
            // Some senders write the whole field as encoded words, which RFC 2047, 5 forbids.
            decoded = fields::decode_words(field).replace("\" \"", "").into_bytes();
            field = &decoded;
        }
        let mut split = Split { rest: field };
        let value = split.next_piece();
        let value = strip_comment(&String::from_utf8_lossy(&value.concat())).to_owned();
        let mut pieces = Vec::new();
        while !split.rest.is_empty() {
            if pieces.len() == PIECES_MAX {
                is_cut = true;
                break;
            }
            let [name, value] = split.next_piece();
            pieces.extend(piece(&name, value));
        }
        Self { value, pieces, is_cut }
    }

    /// Returns a parameter's value as text. If a parameter has both forms, the one with a charset is used
    /// (RFC 6266, 4.3).
    pub(super) fn text(&self, name: &str) -> Option<String> {
        if let Some(text) = self.extended(name) {
            return Some(text);
        }
        let plain = self.pieces.iter().find(|piece| piece.name == name && piece.number.is_none())?;
        Some(fields::decode_words(&plain.value))
    }

    /// Returns the bytes of a parameter's value.
    pub(super) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let plain = self.pieces.iter().find(|piece| piece.name == name && piece.number.is_none());
        match plain {
            Some(plain) if !plain.is_encoded => Some(plain.value.clone()),
            _ => self.extended(name).map(String::into_bytes),
        }
    }

    /// Returns the value of `name*`, or of the pieces `name*0`, `name*1` and so on. The pieces are joined
    /// before they are decoded, as a character may be split between two.
    fn extended(&self, name: &str) -> Option<String> {
        let named = || self.pieces.iter().filter(|piece| piece.name == name);
        let mut pieces: Vec<&Piece> = match named().find(|piece| piece.number.is_none() && piece.is_encoded) {
            Some(whole) => vec![whole],
            None => named().filter(|piece| piece.number.is_some()).collect(),
        };
        // The first of two pieces with the same number is used.
        pieces.sort_by_key(|piece| piece.number);
        pieces.dedup_by_key(|piece| piece.number);
        let first = pieces.first()?;
        let mut charset = None;
        let mut bytes = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            let mut value = &*piece.value;
            if at == 0 && first.is_encoded {
                let mut parts = value.splitn(3, |byte| *byte == b'\'');
                if let (Some(named), Some(_), Some(rest)) = (parts.next(), parts.next(), parts.next()) {
                    (charset, value) = (Some(String::from_utf8_lossy(named).into_owned()), rest);
                }
            }
            match piece.is_encoded {
                true => bytes.extend(percent_encoding::percent_decode(value)),
                false => bytes.extend_from_slice(value),
            }
        }
        if charset.is_none() && !pieces.iter().any(|piece| piece.is_encoded) {
            return Some(fields::decode_words(&bytes));
        }
        Some(super::charset::decoded(charset.as_deref(), &bytes).into_owned())
    }
}

fn strip_comment(value: &str) -> &str {
    value.split('(').next().unwrap_or_default().trim()
}

/// Builds a piece from the texts before and after the first `=`.
fn piece(name: &[u8], value: Vec<u8>) -> Option<Piece> {
    let name = String::from_utf8_lossy(name).trim().to_ascii_lowercase();
    let (name, is_encoded) = name.strip_suffix('*').map_or((&*name, false), |name| (name, true));
    let (name, number) = match name.rsplit_once('*') {
        Some((name, digits)) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            (name, Some(digits.parse().ok()?))
        }
        _ => (name, None),
    };
    (!name.is_empty()).then(|| Piece { name: name.trim().to_owned(), number, is_encoded, value })
}

/// Splits a field at the semicolons outside of quotes.
struct Split<'a> {
    rest: &'a [u8],
}

impl Split<'_> {
    /// Returns name and value of the next piece, without quotes, escapes and line ends.
    fn next_piece(&mut self) -> [Vec<u8>; 2] {
        let mut sides = [Vec::new(), Vec::new()];
        let (mut side, mut in_quotes, mut was_quoted) = (0, false, false);
        let mut at = 0;
        while let Some(&byte) = self.rest.get(at) {
            at += 1;
            match byte {
                b'\r' | b'\n' => {}
                b'"' => {
                    in_quotes = !in_quotes;
                    was_quoted = true;
                }
                // Only an escaped quote or backslash is unescaped, as some programs write paths with plain
                // backslashes.
                b'\\' if in_quotes && matches!(self.rest.get(at), Some(b'"' | b'\\')) => {
                    sides[side].push(self.rest[at]);
                    at += 1;
                }
                b';' if !in_quotes => break,
                b'=' if side == 0 && !in_quotes => side = 1,
                b' ' | b'\t' if !in_quotes && (sides[side].is_empty() || was_quoted) => {}
                byte => sides[side].push(byte),
            }
        }
        self.rest = &self.rest[at..];
        if !was_quoted {
            let end = sides[side].trim_ascii_end().len();
            sides[side].truncate(end);
        }
        sides
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(field: &str) -> Option<String> {
        Parameters::of(field.as_bytes()).text("filename")
    }

    #[test]
    fn file_names_are_read_as_programs_write_them() {
        for (field, expected) in [
            ("attachment; filename=\"Historie jízd 28-10-2020.zip\"", "Historie jízd 28-10-2020.zip"),
            ("attachment; filename*=utf-8''Erkl%C3%A4rung.txt", "Erklärung.txt"),
            (
                "attachment; filename=\"=?utf-8?B?xIx0?= =?utf-8?Q?5_an_Voda-28.03.2017.jpg?=\"",
                "Čt5 an Voda-28.03.2017.jpg",
            ),
            (
                "attachment; filename*0*=utf-8''%e2%82; filename*1*=%ac%20rates; filename*2=\".txt\"",
                "€ rates.txt",
            ),
            ("attachment; filename*1*=%ac.txt;\r\n filename*0*=utf-8''%e2%82", "€.txt"),
            ("attachment; filename=\"plain.txt\"; filename*=utf-8''b%C3%A4r.txt", "bär.txt"),
            ("attachment; filename*=iso-8859-1'de'b%E4r.txt; filename=plain.txt", "bär.txt"),
            ("attachment; filename*0=\"one \"; filename*1=\"two.txt\"", "one two.txt"),
            ("attachment; filename = no quotes.txt ; x=y", "no quotes.txt"),
            ("attachment; filename=\"a;b=c \\\"d\\\".txt\"", "a;b=c \"d\".txt"),
            ("attachment;\r\n\tfilename=\"folded\r\n name.txt\"", "folded name.txt"),
            ("attachment; filename=\"first\"; filename=\"second\"", "first"),
        ] {
            assert_eq!(name(field).as_deref(), Some(expected), "{field}");
        }
        assert_eq!(name("attachment"), None);
        assert_eq!(name("attachment; filename*0x=a"), None);
    }

    #[test]
    fn a_type_is_read_with_its_parameters() {
        let kind = Parameters::of(b"Multipart/Mixed (a comment); Boundary=\"a b\"; charset = utf-8");
        assert_eq!((&*kind.value, kind.bytes("boundary")), ("Multipart/Mixed", Some(b"a b".to_vec())));
        assert_eq!(kind.text("charset").as_deref(), Some("utf-8"));
        let encoded = b"=?unknown-8bit?q?application/octet-stream=3B_?=\r\n =?unknown-8bit?q?_name=3D=222022-10-11=5FProze=C3=9F.pdf=22?=";
        let kind = Parameters::of(encoded);
        assert_eq!(kind.value, "application/octet-stream");
        assert_eq!(kind.text("name").as_deref(), Some("2022-10-11_Prozeß.pdf"));
    }

    #[test]
    fn pieces_are_bounded() {
        let many: String = (0..PIECES_MAX + 5).map(|n| format!("; name*{n}*=a")).collect();
        let read = Parameters::of(format!("text/plain{many}").as_bytes());
        assert!(read.is_cut);
        assert_eq!(read.text("name").map(|name| name.len()), Some(PIECES_MAX));
    }
}
