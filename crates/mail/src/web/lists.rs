//! Lists of whole mails as JSON, made and sent a mail at a time.
//!
//! ```text
//!  head ─▶ [ mail ─▶ , mail ─▶ , … ] ─▶ tail        each only once its client has taken the one before
//! ```
//! 99 mails of 4 MiB, put together first, were 400 MB for whoever asked. Now an answer holds what its next mail needs.
//! The first mail is made before the answer begins, so that whoever finds no room is told so in words; later there is
//! no other way to say it than to break off, which a client of chunked answers (RFC 9112, 7.1) notices.

use std::{io, sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;

use super::{answer::Fault, app::App, budget::Held, client::Client, counters::Counter};
use crate::{
    mailboxes::{Mail, Mailboxes, Summary},
    render::Until,
};

/// How long an answer that has begun waits for room for its next mail.
const ROOM_TIME_MAX: Duration = Duration::from_secs(10);

/// What stands around the mails.
pub(crate) struct Around {
    /// Up to and with the bracket that opens the list.
    pub(crate) head: String,
    /// From the bracket that closes it.
    pub(crate) tail: String,
}

struct List<M, F> {
    app: Arc<App<M>>,
    client: Client,
    mails: std::vec::IntoIter<Arc<Summary>>,
    shape: F,
    /// What is on its way to the client.
    held: Held,
    /// A mail was told before.
    begun: bool,
    tail: Option<String>,
}

/// The answer; `shape` writes each mail as JSON. One that went since it was listed is left out.
pub(crate) async fn of_mails<M, F>(
    app: &Arc<App<M>>,
    client: Client,
    summaries: Vec<Arc<Summary>>,
    Around { head, tail }: Around,
    shape: F,
) -> Result<Response, Fault>
where
    M: Mailboxes,
    F: Fn(&Mail, &Until, &mut Vec<u8>) -> serde_json::Result<()> + Clone + Send + 'static,
{
    let held = app.budget.of(client);
    let mails = summaries.into_iter();
    let tail = Some(tail);
    let mut list = List { app: Arc::clone(app), client, mails, shape, held, begun: false, tail };
    let mut first = head.into_bytes();
    first.extend(list.next().await?.unwrap_or_default());
    let rest = stream::unfold(Some(list), |list| async move {
        let mut list = list?;
        match list.next().await {
            Ok(Some(piece)) => Some((Ok(Bytes::from(piece)), Some(list))),
            Ok(None) => None,
            Err(fault) => {
                list.app.counters.add(Counter::ListsBroken, 1);
                tracing::warn!("a list of mails broke off: {fault}");
                Some((Err(io::Error::other(fault)), None))
            }
        }
    });
    let pieces = futures_util::StreamExt::chain(stream::iter([Ok(Bytes::from(first))]), rest);
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::from_stream(pieces)).into_response())
}

impl<M, F> List<M, F>
where
    M: Mailboxes,
    F: Fn(&Mail, &Until, &mut Vec<u8>) -> serde_json::Result<()> + Clone + Send + 'static,
{
    /// The next mail, or the end; nothing behind that.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        // The client has taken what came before.
        self.held.release();
        for summary in self.mails.by_ref() {
            if self.begun {
                // What the mail needs is asked for again below; here it is waited for.
                self.held.wait_for(summary.size_bytes, ROOM_TIME_MAX).await?;
                self.held.release();
            }
            let Some(mail) = self.app.mail(self.client, summary.id).await? else { continue };
            let shape = self.shape.clone();
            let mut json = if self.begun { vec![b','] } else { Vec::new() };
            let made = self.app.render(self.client, mail, move |mail, until| {
                shape(mail, until, &mut json)?;
                serde_json::Result::Ok(json)
            });
            let json = made.await?.map_err(|error| {
                tracing::error!("a mail cannot be written as JSON: {error}");
                Fault::Broken
            })?;
            if self.begun {
                self.held.wait_for(json.len() as u64, ROOM_TIME_MAX).await?;
            } else {
                self.held.grow(json.len() as u64)?;
            }
            self.begun = true;
            return Ok(Some(json));
        }
        Ok(self.tail.take().map(String::into_bytes))
    }
}
