//! The request for which a fetch begins, as the origin's side sees it: it has no body, and takes interim
//! answers.

use crate::{
    core::with_core,
    fetch::{
        fetch_entry::Entry,
        in_flight::{Reply, tell_interim},
    },
    origin::{Exchange, RequestSender, SendError, SendResult},
};

/// The client for which a fetch began has gone, and no other request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoClientLeft;

/// The request for which a fetch begins, possibly on another core. Without `reply`, interim answers of the
/// origin are dropped.
pub(crate) struct Leader<'a> {
    pub(crate) reply: Option<&'a mut Reply>,
    /// True if the request is sent to a peer: its 102 answers only mean that it is still waiting, and are not
    /// forwarded.
    pub(crate) is_to_peer: bool,
    /// The fetch's entry in the table, for an exchange that ends at its client's FIN
    /// ([`fin`](crate::client::fin)): that exchange is given up once the client has gone and no other request
    /// waits.
    pub(crate) entry: Option<&'a Entry>,
}

impl RequestSender for Leader<'_> {
    type Error = NoClientLeft;

    fn has_body(&self) -> bool {
        false
    }

    fn has_begun(&self) -> bool {
        false
    }

    fn is_patient(&self) -> bool {
        self.is_to_peer
    }

    async fn send(&mut self, _: &mut Exchange) -> Result<SendResult, SendError<Self::Error>> {
        Ok(SendResult::Over)
    }

    async fn gone(&mut self) -> NoClientLeft {
        let (Some(reply), Some(entry)) = (self.reply.as_deref_mut(), self.entry) else {
            return std::future::pending().await;
        };
        reply.closed().await;
        if with_core(|core| entry.is_waited_for(core)) {
            return std::future::pending().await;
        }
        NoClientLeft
    }

    async fn interim(&mut self, head: Vec<u8>) {
        let is_for_us = self.is_to_peer && head.starts_with(b"HTTP/1.1 102 ");
        if let Some(reply) = self.reply.as_deref_mut().filter(|_| !is_for_us) {
            tell_interim(reply, head);
        }
    }
}
