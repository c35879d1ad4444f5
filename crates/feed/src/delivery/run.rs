//! A run: messages of one producer to one subject that lie behind each other in its input.

use wire::nats::client::Publish;

/// Consecutive messages of one producer with the same control line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    /// Bytes of all messages; a multiple of `stride`.
    pub(crate) bytes: &'a [u8],
    /// Bytes of one message, including the control line and line ends.
    pub(crate) stride: usize,
    /// Offset in each message of the part that is delivered unchanged.
    pub(crate) tail_at: usize,
    /// Bytes of header and payload of one message.
    pub(crate) body_bytes: usize,
    /// Bytes of the header; `None` for PUB, which has none.
    pub(crate) header_bytes: Option<usize>,
    pub(crate) subject: &'a [u8],
    /// Subject shown to subscribers, if it differs from the one that selects them: that of a stored message.
    pub(crate) shown: Option<&'a [u8]>,
    /// Reply subject; empty if no answer is wanted.
    pub(crate) reply: &'a [u8],
}

impl<'a> Run<'a> {
    /// Builds a run of a message and the similar ones after it; `bytes` are those of all.
    pub(crate) fn new(first: &Publish<'a>, bytes: &'a [u8]) -> Self {
        let verb = if first.header_bytes.is_some() { "HPUB ".len() } else { "PUB ".len() };
        Self {
            bytes,
            stride: first.whole.len(),
            tail_at: verb + first.subject.len(),
            body_bytes: first.body.len(),
            header_bytes: first.header_bytes,
            subject: first.subject,
            shown: None,
            reply: first.reply,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.bytes.len() / self.stride
    }

    /// Returns a single message of the run.
    pub(crate) fn one(&self, at: usize) -> Self {
        Self { bytes: &self.bytes[at * self.stride..(at + 1) * self.stride], ..*self }
    }
}
