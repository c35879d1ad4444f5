//! Error codes (RFC 9113 §7), and faults of a peer: the rule that was broken, and whether it ends a stream or
//! the connection (RFC 9113 §5.4).

/// Error code with which a stream or a connection ends (RFC 9113 §7). Unknown codes have no special meaning,
/// so codes are kept as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// The end is not due to an error.
    pub const NO_ERROR: Self = Self(0x0);
    /// A protocol rule is broken, and no other code is more specific.
    pub const PROTOCOL_ERROR: Self = Self(0x1);
    /// An internal error on our side.
    pub const INTERNAL_ERROR: Self = Self(0x2);
    /// The peer sent more than the window allowed, or a window exceeds the maximum.
    pub const FLOW_CONTROL_ERROR: Self = Self(0x3);
    /// SETTINGS were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: Self = Self(0x4);
    /// A frame arrived after the stream's end.
    pub const STREAM_CLOSED: Self = Self(0x5);
    /// The size of a frame is invalid for its type.
    pub const FRAME_SIZE_ERROR: Self = Self(0x6);
    /// The stream was not processed: the request may be sent again (RFC 9113 §8.7).
    pub const REFUSED_STREAM: Self = Self(0x7);
    /// The stream is no longer needed.
    pub const CANCEL: Self = Self(0x8);
    /// A field block cannot be decoded.
    pub const COMPRESSION_ERROR: Self = Self(0x9);
    /// The connection that CONNECT opened was reset.
    pub const CONNECT_ERROR: Self = Self(0xa);
    /// The peer causes excessive load.
    pub const ENHANCE_YOUR_CALM: Self = Self(0xb);
    /// The underlying TLS does not meet the requirements.
    pub const INADEQUATE_SECURITY: Self = Self(0xc);
    /// The request must be made over HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: Self = Self(0xd);
}

/// A rule that a peer broke, and whether the stream or the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{rule} ({})", rule.section())]
pub struct Fault {
    /// The rule that was broken.
    pub rule: Rule,
    /// The error code to send to the peer.
    pub code: ErrorCode,
    /// The stream that ends because of the fault; `None` if the connection ends.
    pub stream: Option<u32>,
}

impl Fault {
    /// Creates a fault that ends the connection.
    pub const fn of_connection(rule: Rule, code: ErrorCode) -> Self {
        Self { rule, code, stream: None }
    }

    /// Creates a fault that ends a stream.
    pub const fn of_stream(stream: u32, rule: Rule, code: ErrorCode) -> Self {
        Self { rule, code, stream: Some(stream) }
    }
}

rules! {
    /// The rules of frames, streams and connections that a peer can break.
    Rule
    FrameTooLarge "RFC 9113 §4.2" "a frame is larger than SETTINGS_MAX_FRAME_SIZE",
    FrameSize "RFC 9113 §4.2" "a frame does not have the size of its type",
    StreamZero "RFC 9113 §6" "a frame that belongs to a stream is on the connection",
    StreamNotZero "RFC 9113 §6" "a frame that belongs to the connection is on a stream",
    Padding "RFC 9113 §6.1" "the padding is not shorter than the payload",
    PromisedStream "RFC 9113 §6.6" "a promised stream has an id that a server cannot use",
    EnablePush "RFC 9113 §6.5.2" "SETTINGS_ENABLE_PUSH is neither 0 nor 1",
    InitialWindow "RFC 9113 §6.5.2" "SETTINGS_INITIAL_WINDOW_SIZE is beyond 2^31-1",
    MaxFrameSize "RFC 9113 §6.5.2" "SETTINGS_MAX_FRAME_SIZE is not between 2^14 and 2^24-1",
    EnableConnectProtocol "RFC 8441 §3" "SETTINGS_ENABLE_CONNECT_PROTOCOL is neither 0 nor 1",
    NoRfc7540Priorities "RFC 9218 §2.1" "SETTINGS_NO_RFC7540_PRIORITIES is neither 0 nor 1",
    ZeroIncrement "RFC 9113 §6.9" "WINDOW_UPDATE adds nothing",
    PriorityUpdateStream "RFC 9218 §7.1" "PRIORITY_UPDATE names a stream that a client cannot open",
    Preface "RFC 9113 §3.4" "the connection does not begin with the client's preface",
    FirstFrame "RFC 9113 §3.4" "the first frame is not SETTINGS",
    ContinuationMissing "RFC 9113 §6.10" "another frame comes before the field block has ended",
    ContinuationAlone "RFC 9113 §6.10" "CONTINUATION comes where no field block is open",
    StreamParity "RFC 9113 §5.1.1" "a client opens a stream of an even number",
    StreamBackwards "RFC 9113 §5.1.1" "a stream id is lower than that of an earlier stream",
    IdleStream "RFC 9113 §5.1" "a frame is on a stream that was never opened",
    StreamClosed "RFC 9113 §5.1" "a frame comes after the end of its stream",
    PushByClient "RFC 9113 §8.4" "a client sends PUSH_PROMISE",
    TrailersWithoutEnd "RFC 9113 §8.1" "fields come after content, and the stream does not end",
    TrailersTooLarge "RFC 9113 §10.5.1" "trailers exceed the limit",
    ContentLength "RFC 9113 §8.1.1" "the content is not as long as Content-Length says",
    WindowExceeded "RFC 9113 §6.9.1" "more content comes than the window allows",
    WindowOverflow "RFC 9113 §6.9.1" "a window grows beyond 2^31-1",
    SettingsTimeout "RFC 9113 §6.5.3" "SETTINGS are not acknowledged in time",
}
