//! Parser of the tables; `tests/corpus/README.md` describes their format.

/// A row of a table.
#[derive(Debug, Clone)]
pub struct Row {
    /// Heading above the row.
    pub section: String,
    /// Name, unique in the table.
    pub name: String,
    /// Text in which the rule is written.
    pub rule: String,
    /// Lines of the row, each with its sign.
    lines: Vec<(char, String)>,
}

/// Signs of the lines that hold wire bytes.
const WIRE: [char; 4] = ['>', '<', '%', '&'];

impl Row {
    /// Parses a table.
    ///
    /// # Errors
    /// The first invalid line, and why it is invalid.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        let mut rows: Vec<Self> = Vec::new();
        let (mut section, mut is_open) = (String::new(), false);
        for (number, line) in text.lines().enumerate() {
            let wrong = |why: &str| format!("line {}: {why}: {line}", number + 1);
            if let Some(title) = line.strip_prefix("## ") {
                title.clone_into(&mut section);
            } else if line.is_empty() {
                is_open = false;
            } else if line.starts_with("# ") || line == "#" {
            } else if is_open {
                let (sign, rest) = line.split_at(1);
                let rest = rest.strip_prefix(' ').unwrap_or(rest);
                let sign = sign.chars().next().filter(|sign| "><%!&=~+-?".contains(*sign));
                let row = rows.last_mut().ok_or_else(|| wrong("no row"))?;
                let rest = rest.replace("ROW", &row.name);
                row.lines.push((sign.ok_or_else(|| wrong("no sign"))?, rest));
            } else {
                let (name, rule) = line.split_once(" | ").ok_or_else(|| wrong("no rule"))?;
                if rows.iter().any(|row| row.name == name) {
                    return Err(wrong("a name that is taken"));
                }
                is_open = true;
                let (section, name, rule) = (section.clone(), name.to_owned(), rule.to_owned());
                rows.push(Self { section, name, rule, lines: Vec::new() });
            }
        }
        for row in &rows {
            for (sign, line) in &row.lines {
                if WIRE.contains(sign) {
                    bytes(line).map_err(|why| format!("{}: {why}: {line}", row.name))?;
                }
            }
        }
        Ok(rows)
    }

    /// Iterates over the lines with a sign.
    pub fn all(&self, sign: char) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(move |(of, _)| *of == sign).map(|(_, line)| line.as_str())
    }

    /// Returns the first line with a sign, or an empty string.
    pub fn one(&self, sign: char) -> &str {
        self.all(sign).next().unwrap_or_default()
    }

    /// Returns the wire bytes of all lines with a sign.
    ///
    /// # Panics
    /// Never: [`Row::parse`] has decoded them once.
    pub fn wire(&self, sign: char) -> Vec<u8> {
        self.all(sign).flat_map(|line| bytes(line).expect("tried before")).collect()
    }
}

/// Decodes a line to bytes, with its line end.
fn bytes(line: &str) -> Result<Vec<u8>, String> {
    let (line, end) = match line.strip_suffix("\\c") {
        Some(line) => (line, &b""[..]),
        None => (line, &b"\r\n"[..]),
    };
    let mut out = unescaped(line)?;
    out.extend_from_slice(end);
    Ok(out)
}

/// Decodes the escapes of a text.
///
/// # Errors
/// An unknown escape.
pub fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = &rest[at + 1..];
        let (value, length) = match escape.as_bytes() {
            [b'r', ..] => (vec![b'\r'], 1),
            [b'n', ..] => (vec![b'\n'], 1),
            [b't', ..] => (vec![b'\t'], 1),
            [b'0', ..] => (vec![0], 1),
            [b's', ..] => (vec![b' '], 1),
            [quote @ (b'\'' | b'"'), ..] => (vec![*quote], 1),
            [b'\\', ..] => (vec![b'\\'], 1),
            [b'x', ..] => {
                let digits = escape.get(1..3).ok_or("a short \\x")?;
                (vec![u8::from_str_radix(digits, 16).map_err(|error| error.to_string())?], 3)
            }
            [b'{', ..] => {
                let (inside, _) = escape[1..].split_once('}').ok_or("no }")?;
                let (count, what) = inside.split_once('*').ok_or("no *")?;
                let count: usize = count.parse().map_err(|_| "no count")?;
                (unescaped(what)?.repeat(count), inside.len() + 2)
            }
            _ => return Err(format!("no escape: \\{escape}")),
        };
        out.extend_from_slice(&value);
        rest = &escape[length..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_rows_of_signed_lines() {
        let rows = Row::parse(
            "# said\n## One\n\na | R 1\n> x\\n\\c\n> \\{2*ab}\\x00\n>\n= 200\n\nb | R 2\n? ROW\n\n## Two\n\nc | R\n",
        )
        .expect("in order");
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[0].wire('>'), b"x\nabab\0\r\n\r\n");
        assert_eq!((rows[0].one('='), rows[1].one('?'), rows[2].section.as_str()), ("200", "b", "Two"));
        for wrong in ["a\n", "a | b\nx y\n", "a | b\n\na | c\n", "a | b\n> \\q\n", "a | b\n> \\{x*y}\n"] {
            assert!(Row::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
