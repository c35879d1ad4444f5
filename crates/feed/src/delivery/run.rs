//! A run: consecutive messages of one producer to one subject, adjacent in its input.

use wire::nats::client::Publish;

/// Consecutive messages of one producer with the same control line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    /// Bytes of all messages of the run; the length is a multiple of `stride`.
    pub(crate) bytes: &'a [u8],
    /// Length of one message in bytes, including the control line and line ends.
    pub(crate) stride: usize,
    /// Offset in each message of the part that is delivered unchanged.
    pub(crate) tail_at: usize,
    /// Length of the header and payload of one message, in bytes.
    pub(crate) body_bytes: usize,
    /// Length of the header in bytes; `None` for PUB, which has no header.
    pub(crate) header_bytes: Option<usize>,
    pub(crate) subject: &'a [u8],
    /// Subject shown to subscribers, if it differs from the subject that selects them, as for a message
    /// stored by JetStream.
    pub(crate) shown: Option<&'a [u8]>,
    /// Reply subject; empty if no answer is wanted.
    pub(crate) reply: &'a [u8],
}

impl<'a> Run<'a> {
    /// Builds a run from a message and the similar ones after it; `bytes` contains all of them.
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

    /// Returns the message at this index as a run of one.
    pub(crate) fn one(&self, at: usize) -> Self {
        Self { bytes: &self.bytes[at * self.stride..(at + 1) * self.stride], ..*self }
    }
}
