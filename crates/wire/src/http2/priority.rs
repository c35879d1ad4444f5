//! Priority of a request: its urgency, and whether its response is useful in parts (RFC 9218 §4). It is only
//! a hint.

use crate::http1::fields::list;

/// Urgency of a request without a priority (RFC 9218 §4.1).
pub const URGENCY_DEFAULT: u8 = 3;

/// The lowest urgency (RFC 9218 §4.1).
pub const URGENCY_MAX: u8 = 7;

/// A request's priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// Urgency, from 0 (most urgent) to 7 (least urgent).
    pub urgency: u8,
    /// True if the response is useful before it is complete: such responses of equal urgency share the
    /// connection.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self { urgency: URGENCY_DEFAULT, incremental: false }
    }
}

impl Priority {
    /// Parses the value of a Priority field or of a PRIORITY_UPDATE. Members that are unreadable or out of
    /// range are ignored (RFC 9218 §4): a hint is never a reason to refuse a request.
    pub fn parse(value: &[u8]) -> Self {
        let mut priority = Self::default();
        for member in list(value) {
            // Parameters are ignored.
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

    /// RFC 9218 §4, RFC 9651 §3.2: the last member with a given name applies, and unreadable members are
    /// ignored.
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
