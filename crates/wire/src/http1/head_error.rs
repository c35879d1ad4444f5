//! Errors of a head: the broken rule and the offset of the byte.

use std::fmt;

/// Error for a head that was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{rule} (byte {at}; {})", rule.section())]
pub struct HeadError {
    /// The rule that the head breaks.
    pub rule: HeadRule,
    /// Offset of the byte that breaks the rule, or of the byte at which the violation became certain.
    pub at: u32,
}

macro_rules! rules {
    ($($variant:ident $section:literal $text:literal,)*) => {
        /// The rules that a head can break.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum HeadRule {
            $(#[doc = concat!($text, " (", $section, ").")] $variant,)*
        }

        impl HeadRule {
            /// Every rule.
            pub const ALL: &[HeadRule] = &[$(HeadRule::$variant,)*];

            /// Returns the RFC section that states the rule.
            pub const fn section(self) -> &'static str {
                match self { $(HeadRule::$variant => $section,)* }
            }
        }

        impl fmt::Display for HeadRule {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(HeadRule::$variant => $text,)* })
            }
        }
    };
}

rules! {
    LineTooLong "RFC 9112 §3" "the first line is longer than the limit",
    HeadersTooLarge "RFC 9110 §5.4" "the head is larger than the limit",
    TooManyHeaders "RFC 9110 §5.4" "there are more headers than the limit",
    EmptyLines "RFC 9112 §2.2" "more than one empty line precedes the request",
    BareLf "RFC 9112 §2.2" "a line ends in LF without CR",
    BareCr "RFC 9112 §2.2" "a CR is not followed by LF",
    Method "RFC 9112 §3.1" "the method is not a token",
    TargetByte "RFC 9112 §3.2" "the target holds a byte that no target may hold",
    TargetForm "RFC 9112 §3.2" "the target does not have the form that the method requires",
    RequestLine "RFC 9112 §3" "the request line is not: method, one space, target, one space, version",
    Version "RFC 9112 §2.3" "the version is not HTTP/digit.digit",
    UnsupportedVersion "RFC 9110 §15.6.6" "the version is neither HTTP/1.0 nor HTTP/1.1",
    StatusCode "RFC 9112 §4" "the status is not three digits from 100",
    Reason "RFC 9112 §4" "the reason holds a control character",
    ObsFold "RFC 9112 §5.2" "a header continues on a second line",
    SpaceBeforeColon "RFC 9112 §5.1" "white space stands between a header's name and its colon",
    HeaderName "RFC 9110 §5.1" "a header's name is not a token",
    HeaderValue "RFC 9110 §5.5" "a header's value holds a control character",
    HostMissing "RFC 9112 §3.2" "an HTTP/1.1 request has no Host",
    HostRepeated "RFC 9112 §3.2" "a request has more than one Host",
    HostInvalid "RFC 9112 §3.2" "Host is not a host and an optional port",
    HostDiffers "RFC 9112 §3.2.2" "Host names another host than the target does",
    Unclassified "RFC 9112 §2.2" "the head does not follow the grammar",
}
