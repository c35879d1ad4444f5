//! Lists of whole mails as JSON, built and sent one mail at a time.
//!
//! ```text
//!  head ─▶ [ mail ─▶ , mail ─▶ , … ] ─▶ tail        each only once its client has taken the one before
//! ```
//! Built at once, 99 mails of 4 MiB took 400 MB for each client. A response therefore holds only its next
//! mail. The first mail is built before the response begins, so that a lack of room is reported as an error;
//! later the only way to report an error is to abort the response, which a client notices by the chunked
//! encoding (RFC 9112, 7.1).
//!
//! Lists of rows ([`of_lines`]) are built from the cached preview of each mail
//! ([`crate::web::previews::preview_cache`]): most lists fit into one piece.

use std::{
    io::{self, Write as _},
    sync::Arc,
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::header,
    response::{IntoResponse, Response},
};
use futures_util::stream;

use crate::web::{
    previews::preview_cache::Preview,
    serve::{
        app::App, budget::BudgetGuard, charged_buffer::ChargedBuffer, client::Client, counters::Counter,
        fault::Fault, jobs::ChargedMail,
    },
};
use crate::{
    mailbox::mailboxes::{Mail, Mailboxes, Scope, Summary},
    render::{PARSED_BYTES_MAX, StepLimit},
};

/// Bytes of a list of rows that are written at a time: enough for a hundred rows.
const PIECE_BYTES: usize = 256 * 1024;
/// Maximum time that a started response waits for room for its next mail.
const ROOM_TIME_MAX: Duration = Duration::from_secs(10);

/// JSON before and after the mails of a list.
pub(crate) struct ListFrame {
    /// Text up to and including the bracket that opens the list.
    pub(crate) head: String,
    /// Text from the bracket that closes the list.
    pub(crate) tail: String,
}

struct MailStream<M, F> {
    app: Arc<App<M>>,
    client: Client,
    scope: Scope,
    mails: std::vec::IntoIter<Arc<Summary>>,
    shape: F,
    /// Memory charge for the bytes being sent to the client.
    held: BudgetGuard,
    /// True once a mail was sent.
    begun: bool,
    tail: Option<String>,
}

/// The extent to which a mail is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The whole mail.
    Whole,
    /// The mail without its bodies, because there is no room for them.
    Heads,
}

/// Writes a mail as JSON on a helper thread, within its client's memory budget: whole, or without its bodies
/// if these do not fit.
pub(crate) async fn printed<M, F>(
    app: &Arc<App<M>>,
    client: Client,
    mail: ChargedMail,
    before: &'static [u8],
    shape: F,
) -> Result<(Vec<u8>, BudgetGuard), Fault>
where
    M: Mailboxes,
    F: Fn(&Mail, &StepLimit, Extent, &mut ChargedBuffer) -> serde_json::Result<()> + Send + 'static,
{
    let mut printer = ChargedBuffer::new(app.budget.of(client));
    let made = app.render(client, mail, move |mail, until| {
        let write = |extent, printer: &mut ChargedBuffer| {
            printer.write_all(before).map_err(serde_json::Error::io)?;
            shape(mail, until, extent, printer)
        };
        let mut written = write(Extent::Whole, &mut printer);
        if printer.is_refused() {
            printer.clear();
            written = write(Extent::Heads, &mut printer);
        }
        (written, printer)
    });
    match made.await? {
        (Ok(()), printer) => Ok(printer.finish()),
        (Err(_), printer) if printer.is_refused() => Err(Fault::NoRoom),
        (Err(error), _) => {
            tracing::error!("cannot write a mail as JSON: {error}");
            Err(Fault::Broken)
        }
    }
}

/// Builds the response; `shape` writes each mail as JSON. A mail deleted since it was listed is left out.
pub(crate) async fn of_mails<M, F>(
    app: &Arc<App<M>>,
    client: Client,
    scope: &Scope,
    summaries: Vec<Arc<Summary>>,
    ListFrame { head, tail }: ListFrame,
    shape: F,
) -> Result<Response, Fault>
where
    M: Mailboxes,
    F: Fn(&Mail, &StepLimit, Extent, &mut ChargedBuffer) -> serde_json::Result<()> + Clone + Send + 'static,
{
    let held = app.budget.of(client);
    let mails = summaries.into_iter();
    let tail = Some(tail);
    let mut list = MailStream {
        app: Arc::clone(app),
        client,
        scope: scope.clone(),
        mails,
        shape,
        held,
        begun: false,
        tail,
    };
    let mut first = head.into_bytes();
    first.extend(list.next().await?.unwrap_or_default());
    let rest = stream::unfold(Some(list), |list| async move {
        let mut list = list?;
        match list.next().await {
            Ok(Some(piece)) => Some((Ok(Bytes::from(piece)), Some(list))),
            Ok(None) => None,
            Err(fault) => {
                list.app.counters.add(Counter::ListsBroken, 1);
                tracing::warn!("sending a list of mails was interrupted: {fault}");
                Some((Err(io::Error::other(fault)), None))
            }
        }
    });
    let pieces = futures_util::StreamExt::chain(stream::iter([Ok(Bytes::from(first))]), rest);
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::from_stream(pieces)).into_response())
}

impl<M, F> MailStream<M, F>
where
    M: Mailboxes,
    F: Fn(&Mail, &StepLimit, Extent, &mut ChargedBuffer) -> serde_json::Result<()> + Clone + Send + 'static,
{
    /// Returns the next mail, then the tail, then `None`.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        // The client has taken the previous piece.
        self.held.release();
        for summary in self.mails.by_ref() {
            if self.begun {
                // This call only waits for room; the mail is charged below.
                let bytes = summary.size_bytes.min(PARSED_BYTES_MAX as u64 + 1);
                self.held.wait_for(bytes, ROOM_TIME_MAX).await?;
                self.held.release();
            }
            let Some(mail) = self.app.mail_in(self.client, &self.scope, summary.id).await? else { continue };
            let before = if self.begun { &b","[..] } else { b"" };
            let json;
            (json, self.held) = printed(&self.app, self.client, mail, before, self.shape.clone()).await?;
            self.begun = true;
            return Ok(Some(json));
        }
        Ok(self.tail.take().map(String::into_bytes))
    }
}

/// A list of rows, each written from a mail's summary and preview.
struct RowStream<M, F> {
    app: Arc<App<M>>,
    client: Client,
    mails: std::iter::Zip<std::vec::IntoIter<Arc<Summary>>, std::vec::IntoIter<Option<Arc<Preview>>>>,
    write: F,
    held: BudgetGuard,
    begun: bool,
    tail: Option<String>,
}

/// Builds the response; `write` writes each mail as JSON. A mail deleted since it was listed is left out.
pub(crate) async fn of_lines<M, F>(
    app: &Arc<App<M>>,
    client: Client,
    summaries: Vec<Arc<Summary>>,
    ListFrame { head, tail }: ListFrame,
    write: F,
) -> Result<Response, Fault>
where
    M: Mailboxes,
    F: Fn(&Summary, &Preview, &mut Vec<u8>) -> serde_json::Result<()> + Send + 'static,
{
    let kept = app.gists.find(&summaries);
    let bytes: usize = kept.iter().flatten().map(|gist| gist.mailpit.len() + LINE_BYTES).sum();
    let mut first = Vec::with_capacity((head.len() + bytes + tail.len()).min(2 * PIECE_BYTES));
    first.extend_from_slice(head.as_bytes());
    let mails = summaries.into_iter().zip(kept);
    let held = app.budget.of(client);
    let mut lines =
        RowStream { app: Arc::clone(app), client, mails, write, held, begun: false, tail: Some(tail) };
    lines.fill(&mut first).await?;
    let kind = [(header::CONTENT_TYPE, "application/json")];
    if lines.tail.is_none() {
        // A complete body is charged later, as part of the response.
        return Ok((kind, first).into_response());
    }
    lines.held.grow(first.len() as u64)?;
    let rest = stream::unfold(Some(lines), |lines| async move {
        let mut lines = lines?;
        match lines.next().await {
            Ok(Some(piece)) => Some((Ok(Bytes::from(piece)), Some(lines))),
            Ok(None) => None,
            Err(fault) => {
                lines.app.counters.add(Counter::ListsBroken, 1);
                tracing::warn!("sending a list of mails was interrupted: {fault}");
                Some((Err(io::Error::other(fault)), None))
            }
        }
    });
    let pieces = futures_util::StreamExt::chain(stream::iter([Ok(Bytes::from(first))]), rest);
    Ok((kind, Body::from_stream(pieces)).into_response())
}

/// Approximate size of a row in addition to the cached preview.
const LINE_BYTES: usize = 128;

impl<M, F> RowStream<M, F>
where
    M: Mailboxes,
    F: Fn(&Summary, &Preview, &mut Vec<u8>) -> serde_json::Result<()>,
{
    /// Returns the next piece; `None` after the last.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        if self.tail.is_none() {
            return Ok(None);
        }
        // The client has taken the previous piece.
        self.held.release();
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        self.fill(&mut piece).await?;
        self.held.wait_for(piece.len() as u64, ROOM_TIME_MAX).await?;
        Ok(Some(piece))
    }

    /// Writes rows until the piece is large enough, and the tail after the last row.
    async fn fill(&mut self, piece: &mut Vec<u8>) -> Result<(), Fault> {
        while piece.len() < PIECE_BYTES {
            let Some((summary, kept)) = self.mails.next() else {
                piece.extend_from_slice(self.tail.take().unwrap_or_default().as_bytes());
                return Ok(());
            };
            let gist = match kept {
                Some(gist) => Some(gist),
                None => self.app.gist(self.client, &summary).await?,
            };
            let Some(gist) = gist else { continue };
            if std::mem::replace(&mut self.begun, true) {
                piece.push(b',');
            }
            (self.write)(&summary, &gist, piece).map_err(|error| {
                tracing::error!("cannot write a mail as JSON: {error}");
                Fault::Broken
            })?;
        }
        Ok(())
    }
}
