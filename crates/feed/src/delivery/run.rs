//! A run: messages of one producer to one subject that lie behind each other in its input.

use wire::nats::client::Publish;

/// Messages of one producer with one control line, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    /// All of them; a multiple of `stride`.
    pub(crate) bytes: &'a [u8],
    /// Bytes of one, control line and line ends included.
    pub(crate) stride: usize,
    /// Where in each the part begins that is passed on as it is.
    pub(crate) tail_at: usize,
    /// Bytes of header and payload.
    pub(crate) body_bytes: usize,
    /// Bytes of the header of HPUB.
    pub(crate) header_bytes: Option<usize>,
    pub(crate) subject: &'a [u8],
    /// Subscribers are told another subject than the one by which they are found: that of a stored message.
    pub(crate) shown: Option<&'a [u8]>,
    /// Empty: no answer is wanted.
    pub(crate) reply: &'a [u8],
}

impl<'a> Run<'a> {
    /// A run of a message and those behind it that are alike: `bytes` are all of them.
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

    /// One message of it.
    pub(crate) fn one(&self, at: usize) -> Self {
        Self { bytes: &self.bytes[at * self.stride..(at + 1) * self.stride], ..*self }
    }
}
