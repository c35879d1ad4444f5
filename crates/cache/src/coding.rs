//! Content codings that the cache applies or removes (RFC 9110 §8.4.1), and their configuration.

/// Coding that the cache applied to a response's content, or the origin's coding where the cache may remove
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coding {
    /// No coding: the content is stored as the origin sent it.
    #[default]
    AsSent = 0,
    /// gzip (RFC 1952).
    Gzip = 1,
    /// Brotli (RFC 7932).
    Brotli = 2,
    /// Zstandard (RFC 8878).
    Zstd = 3,
    /// Coding removed: the origin sent the content encoded, and it was decoded for clients that do not accept
    /// that coding.
    Decoded = 4,
}

impl Coding {
    /// All codings, ordered by their numbers.
    pub const ALL: [Self; 5] = [Self::AsSent, Self::Gzip, Self::Brotli, Self::Zstd, Self::Decoded];
    /// HTTP content codings that the cache can encode and decode.
    pub const MADE: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// Returns the coding with this number in a stored record.
    pub(crate) fn of(bits: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u64 == bits)
    }

    /// Returns the coding with this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        // RFC 9110 §8.4.1.3: x-gzip is an alias of gzip.
        let name = if name.eq_ignore_ascii_case(b"x-gzip") { b"gzip" } else { name };
        Self::ALL.into_iter().find(|known| known.token().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Name of the coding in `Content-Encoding` and `Accept-Encoding`.
    pub const fn token(self) -> &'static str {
        match self {
            Self::AsSent | Self::Decoded => "identity",
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }

    /// Suffix of the entity tag when the same content is sent in this coding.
    ///
    /// The suffix also identifies the exact bytes. A change of the encoder (its level or version) that
    /// produces other bytes needs a new suffix; otherwise a client appends a part of the new bytes to a part
    /// of the old ones (RFC 9110 §13.1.5).
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

/// Settings for compression: which content is encoded, and in which codings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compress {
    /// Codings to encode in, in our order of preference for clients that accept several equally; empty turns
    /// compression off.
    pub codings: Vec<Coding>,
    /// Media types whose content is encoded, in lower case: `text/html`, `text/*`, `*+json`.
    pub types: Vec<Box<str>>,
    /// Length of the shortest content that is encoded, in bytes.
    pub bytes_min: u64,
    /// Length of the longest content that is encoded, in bytes.
    pub bytes_max: u64,
}

/// Media types of text, and of other content that compresses as well as text.
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
            // Content of less than 1 KiB fits into one packet with its head.
            bytes_min: 1 << 10,
            bytes_max: 8 << 20,
        }
    }
}

impl Compress {
    /// Returns whether content of this length is encoded.
    #[inline]
    pub fn takes(&self, bytes: u64) -> bool {
        (self.bytes_min..=self.bytes_max).contains(&bytes)
    }

    /// Returns whether content with this `Content-Type` is encoded.
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
