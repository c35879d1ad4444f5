//! The static table (RFC 7541 Appendix A).

/// Number of entries: the first entry of the dynamic table has the next index.
pub(super) const ENTRIES: usize = 61;

/// Names and values; the first has index 1.
pub(super) static ENTRIES_BY_INDEX: [(&[u8], &[u8]); ENTRIES] = STATIC;

#[rustfmt::skip]
const STATIC: [(&[u8], &[u8]); ENTRIES] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

/// Length of the longest name in the table.
const NAME_BYTES_MAX: usize = 27;

/// The indices sorted by the lengths of their names, with only the first entry of each name.
struct ByLength {
    indices: [u8; ENTRIES],
    /// Start in `indices` of the names of each length; the start of the next length is the end.
    start: [u8; NAME_BYTES_MAX + 2],
}

static BY_LENGTH: ByLength = {
    let mut by_length = ByLength { indices: [0; ENTRIES], start: [0; NAME_BYTES_MAX + 2] };
    let (mut place, mut len) = (0, 0);
    while len <= NAME_BYTES_MAX {
        by_length.start[len] = place;
        let mut at = 0;
        while at < ENTRIES {
            // Entries of one name are adjacent.
            let is_first = at == 0 || !same(STATIC[at].0, STATIC[at - 1].0);
            if STATIC[at].0.len() == len && is_first {
                by_length.indices[place as usize] = at as u8 + 1;
                place += 1;
            }
            at += 1;
        }
        len += 1;
    }
    by_length.start[len] = place;
    by_length
};

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Returns the first index of a name, ignoring case.
pub(super) fn index_of_name(name: &[u8]) -> Option<u8> {
    let start = *BY_LENGTH.start.get(name.len())? as usize;
    let end = *BY_LENGTH.start.get(name.len() + 1)? as usize;
    let same_length = &BY_LENGTH.indices[start..end];
    let (first, last) = (*name.first()?, *name.last()?);
    same_length.iter().copied().find(|&index| {
        let candidate = ENTRIES_BY_INDEX[index as usize - 1].0;
        // The first and last letters distinguish nearly all names of one length. This bit makes letters lower
        // case and leaves a hyphen unchanged.
        candidate.first() == Some(&(first | 0x20))
            && candidate.last() == Some(&(last | 0x20))
            && candidate.eq_ignore_ascii_case(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_found_at_its_first_entry() {
        for (name, _) in ENTRIES_BY_INDEX {
            let first = ENTRIES_BY_INDEX.iter().position(|(other, _)| other == &name).unwrap() + 1;
            assert_eq!(index_of_name(name), Some(first as u8));
            assert_eq!(index_of_name(&name.to_ascii_uppercase()), Some(first as u8));
        }
        for name in [b"".as_slice(), b"x", b"content-lengti", &[b'a'; 27], &[b'a'; 28], &[b'a'; 300]] {
            assert_eq!(index_of_name(name), None);
        }
    }
}
