//! How urgent a request is, and whether its answer is of use in parts (RFC 9218 §4): a hint, never more.

use crate::http1::fields::list;

/// The urgency of a request that says nothing (RFC 9218 §4.1).
pub const URGENCY_DEFAULT: u8 = 3;

/// The least urgent (RFC 9218 §4.1).
pub const URGENCY_MAX: u8 = 7;

/// A request's priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// 0, the most urgent, to 7.
    pub urgency: u8,
    /// Whether the answer is of use before all of it is there: then answers of one urgency share the connection.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: URGENCY_DEFAULT, incremental: false }
    }
}

impl Priority {
    /// Reads a Priority field's value, or that of a PRIORITY_UPDATE. What cannot be read, or is out of range, is as if it
    /// were not there (RFC 9218 §4): nothing is worth refusing a hint for.
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in list(value) {
            // Parameters mean nothing here.
            let member = member.split(|&b| b == b';').next().unwrap_or_default();
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => priority.urgency = digit - b'0',
                b"i" | b"i=?1" => priority.incremental = true,
                b"i=?0" => priority.incremental = false,
                _ => {}
            }
        }
        priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9218 §4, RFC 9651 §3.2: the last member of a name counts.
    #[test]
    fn what_can_be_read_counts() {
        for (value, urgency, incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=5, i", 5, true),
            ("i,u=7", 7, true),
            ("i=?1", 3, true),
            ("i, i=?0", 3, false),
            ("u=1;a=b, i;c", 1, true),
            ("u=1, u=2", 2, false),
            ("u=8", 3, false),
            ("u=-1", 3, false),
            ("u=12", 3, false),
            ("U=1, I", 3, false),
            ("x=1, u=6", 6, false),
            ("u", 3, false),
        ] {
            assert_eq!(Priority::parse(value.as_bytes()), Priority { urgency, incremental }, "{value}");
        }
    }
}
