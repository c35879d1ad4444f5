//! The content codings that we make or undo (RFC 9110 §8.4.1), and what can be set of them.

/// What we made of a response's content; or which coding its origin sent it in, where we may undo that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coding {
    /// Nothing: it is as it came.
    #[default]
    AsSent = 0,
    /// gzip (RFC 1952).
    Gzip = 1,
    /// Brotli (RFC 7932).
    Brotli = 2,
    /// Zstandard (RFC 8878).
    Zstd = 3,
    /// None any more: its origin sent it in one of these, for a client that cannot read that.
    Decoded = 4,
}

impl Coding {
    /// All of them, by their numbers.
    pub const ALL: [Self; 5] = [Self::AsSent, Self::Gzip, Self::Brotli, Self::Zstd, Self::Decoded];
    /// Codings in the sense of HTTP that we make, and undo.
    pub const MADE: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// By its number in a stored record.
    pub(crate) fn of(bits: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u64 == bits)
    }

    /// By its name.
    pub fn named(name: &[u8]) -> Option<Self> {
        // RFC 9110 §8.4.1.3: x-gzip is the same.
        let name = if name.eq_ignore_ascii_case(b"x-gzip") { b"gzip" } else { name };
        Self::ALL.into_iter().find(|known| known.token().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Its name in `Content-Encoding` and `Accept-Encoding`.
    pub const fn token(self) -> &'static str {
        match self {
            Self::AsSent | Self::Decoded => "identity",
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    /// What is put behind an entity tag for the same content in this coding. It names the bytes, too: whoever lets an
    /// encoder make others (another level, another version) gives it another one, or a client puts a part of the old
    /// behind a part of the new (RFC 9110 §13.1.5).
    pub const fn tag_suffix(self) -> &'static str {
        match self {
            Self::AsSent => "",
            Self::Gzip => "-gz",
            Self::Brotli => "-br",
            Self::Zstd => "-zst",
            Self::Decoded => "-id",
        }
    }
}

/// What is coded, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compress {
    /// Codings that are made, those first that we prefer where a client likes several as well; none: nothing is coded.
    pub codings: Vec<Coding>,
    /// Media types whose content is coded, in lower case: `text/html`, `text/*`, `*+json`.
    pub types: Vec<Box<str>>,
    /// Bytes of the shortest content that is coded.
    pub bytes_min: u64,
    /// Bytes of the longest.
    pub bytes_max: u64,
}

/// Those whose content is text, or shrinks as if it were.
const TYPES: [&str; 12] = [
    "text/*",
    "*+json",
    "*+xml",
    "application/json",
    "application/javascript",
    "application/x-javascript",
    "application/xml",
    "application/wasm",
    "font/ttf",
    "font/otf",
    "application/vnd.ms-fontobject",
    "image/x-icon",
];

impl Default for Compress {
    fn default() -> Self {
        Self {
            codings: Coding::MADE.to_vec(),
            types: TYPES.map(Into::into).to_vec(),
            // A packet has room for that beside a head.
            bytes_min: 1 << 10,
            bytes_max: 8 << 20,
        }
    }
}

impl Compress {
    /// Whether content of this length is coded.
    #[inline]
    pub fn takes(&self, bytes: u64) -> bool {
        (self.bytes_min..=self.bytes_max).contains(&bytes)
    }

    /// Whether content of this type is, as `Content-Type` says it.
    pub fn takes_type(&self, content_type: &[u8]) -> bool {
        let essence = content_type.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
        let starts = |with: &str| {
            essence.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
        };
        let ends = |with: &str| {
            let from = essence.len().checked_sub(with.len());
            from.is_some_and(|from| essence[from..].eq_ignore_ascii_case(with.as_bytes()))
        };
        self.types.iter().any(|pattern| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
            (Some(end), _) => ends(end),
            (None, Some(start)) => starts(start),
            (None, None) => starts(pattern) && essence.len() == pattern.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_are_known_by_number_and_by_name() {
        for coding in Coding::ALL {
            assert_eq!(Coding::of(coding as u64), Some(coding));
            let named = if coding == Coding::Decoded { Coding::AsSent } else { coding };
            assert_eq!(Coding::named(coding.token().to_uppercase().as_bytes()), Some(named));
        }
        assert_eq!((Coding::of(5), Coding::named(b"deflate")), (None, None));
        assert_eq!(Coding::named(b"X-gzip"), Some(Coding::Gzip));
    }

    #[test]
    fn types_are_matched_without_their_parameters() {
        let compress = Compress::default();
        for (content_type, takes) in [
            ("text/html", true),
            ("TEXT/HTML; charset=utf-8", true),
            ("text/", true),
            ("text", false),
            ("application/json", true),
            ("application/jsonp", false),
            ("application/ld+json ;x", true),
            ("image/svg+xml", true),
            ("+json", true),
            ("json", false),
            ("image/png", false),
            ("font/woff2", false),
            ("", false),
        ] {
            assert_eq!(compress.takes_type(content_type.as_bytes()), takes, "{content_type}");
        }
        let all = Compress { types: vec!["*".into()], ..Compress::default() };
        assert!(all.takes_type(b"image/png") && all.takes_type(b""));
    }
}
