//! Requests to an origin: takes a connection, sends the request, reads the answer's head, and retries where
//! that is safe.

use std::sync::Arc;

use tokio::time::timeout;
use wire::http1::framing;

use super::{
    OriginError, OriginEvent,
    begin::{Over, begin},
    exchange::{AnswerHead, Exchange, ExchangeResult},
    group::{MemberId, TriedMembers},
    reply::{AnswerEvent, Patience, SendResult},
    shares::Client,
    upstream::Upstreams,
};
use crate::{
    config::Limits,
    log::transaction::{Draft, Trace},
    request::OriginNeed,
};

/// Maximum number of bytes of interim responses' heads that are forwarded for one answer; further ones are
/// dropped.
const INTERIM_BYTES_MAX: usize = 16 << 10;

/// Maximum number of times that a request left unprocessed is sent to the same server again, before another
/// server is tried.
const UNPROCESSED_MAX: u32 = 2;

/// The client's side of an origin request: sends the request's body after its head, and takes interim
/// responses.
pub(crate) trait RequestSender {
    /// Error of the client's side, for which the origin is not to blame.
    type Error;

    /// Returns whether the request has a body; then it cannot be repeated.
    fn has_body(&self) -> bool;

    /// Returns whether some of the body was taken from its source; then it cannot be sent again from its
    /// beginning.
    fn has_begun(&self) -> bool;

    /// Sends the body to its end, or until the origin answers.
    fn send(
        &mut self,
        exchange: &mut Exchange,
    ) -> impl Future<Output = Result<SendResult, SendError<Self::Error>>>;

    /// Returns whether each interim response restarts the time limit for the answer.
    fn is_patient(&self) -> bool {
        false
    }

    /// Waits until no client wants the answer any more, so that the exchange is given up. Returns the reason.
    fn gone(&mut self) -> impl Future<Output = Self::Error> {
        std::future::pending()
    }

    /// Takes the head of an interim response (RFC 9110 §15.2), ready to be forwarded.
    fn interim(&mut self, head: Vec<u8>) -> impl Future<Output = ()>;
}

/// Error that ends the sending of a body.
pub(crate) enum SendError<E> {
    /// The origin's side failed.
    Origin(OriginError),
    /// The client's side failed.
    Ours(E),
}

/// A request to an origin.
pub(crate) struct OriginRequest<'a> {
    /// Bytes of the head to send.
    pub(crate) head: &'a [u8],
    pub(crate) wanted: OriginNeed,
    /// The client that the exchange is charged to.
    pub(crate) client: Client,
    /// Properties of the request that decide whether the answer has a body.
    pub(crate) answered: framing::RequestKind,
    /// The request may be sent again although the origin may have seen it (RFC 9110 §9.2.2).
    pub(crate) is_idempotent: bool,
    /// Reason for the request, as logged; `trace` names the client's request, and is `None` if the log has no
    /// reader.
    pub(crate) why: &'static str,
    pub(crate) trace: Option<&'a Arc<Trace>>,
    /// Name of the server in the log, if that is not its address.
    pub(crate) server: Option<&'a str>,
}

impl OriginRequest<'_> {
    /// Begins the log record of this request to a server.
    fn draft(&self, upstreams: &impl Upstreams, member: MemberId) -> Draft {
        if self.trace.is_none() {
            return Draft::none();
        }
        let address = || upstreams.upstream(member, |upstream| upstream.member.name()).unwrap_or_default();
        let server = self.server.map_or_else(address, str::to_owned);
        Draft::origin(self.trace, self.head, self.why, &server)
    }
}

/// Sends a request and waits for the answer's head. Tries the next member if a member cannot be reached, or
/// if it ends the exchange without an answer and the request may be repeated. Until then nothing has been
/// sent to the client.
pub(crate) async fn ask<S: RequestSender>(
    upstreams: &impl Upstreams,
    limits: &Limits,
    asked: &OriginRequest<'_>,
    body: &mut S,
    connected: impl Fn(),
) -> Result<Box<AnswerHead>, SendError<S::Error>> {
    let patience = Patience::of(limits);
    let Some((_, within)) = patience.whole else {
        return ask_members(upstreams, limits, asked, body, connected, patience).await;
    };
    let answered = ask_members(upstreams, limits, asked, body, connected, patience);
    let answered = Box::pin(timeout(within, answered)).await;
    answered.unwrap_or(Err(SendError::Origin(OriginError::TooSlow(within))))
}

async fn ask_members<S: RequestSender>(
    upstreams: &impl Upstreams,
    limits: &Limits,
    asked: &OriginRequest<'_>,
    body: &mut S,
    connected: impl Fn(),
    patience: Patience,
) -> Result<Box<AnswerHead>, SendError<S::Error>> {
    let mut tried = TriedMembers::default();
    let mut failed = None;
    while let Some(member) = next(upstreams, &mut tried, failed.is_some()) {
        let attempt = Attempt { upstreams, limits, asked, member, patience };
        match attempt.run(body, &connected).await {
            Ok(arrived) => return Ok(arrived),
            Err(MemberFailure { error: SendError::Origin(error), may_go_on: true }) => failed = Some(error),
            Err(MemberFailure { error, .. }) => return Err(error),
        }
    }
    Err(SendError::Origin(failed.unwrap_or(OriginError::NobodyUp)))
}

/// Chooses the next member to ask.
fn next(upstreams: &impl Upstreams, tried: &mut TriedMembers, is_again: bool) -> Option<MemberId> {
    let member = upstreams.choose(tried)?;
    if is_again {
        upstreams.note_retry();
    }
    Some(member)
}

/// Failure of one member.
struct MemberFailure<E> {
    error: SendError<E>,
    /// The request may be sent to another member.
    may_go_on: bool,
}

/// Attempt to get an answer from one member.
struct Attempt<'a, U> {
    upstreams: &'a U,
    limits: &'a Limits,
    asked: &'a OriginRequest<'a>,
    member: MemberId,
    patience: Patience,
}

impl<U: Upstreams> Attempt<'_, U> {
    /// Sends the request to the member and waits for the answer's head.
    ///
    /// The origin may have closed a kept connection in the meantime. A request that may be repeated is then
    /// sent once more over a fresh connection; one that may not be repeated uses a fresh connection from the
    /// start. (A shared HTTP/2 connection is not idle: its end is noticed when it happens.) A request that
    /// the origin declares unprocessed is sent again in any case.
    async fn run<S: RequestSender>(
        &self,
        body: &mut S,
        connected: &impl Fn(),
    ) -> Result<Box<AnswerHead>, MemberFailure<S::Error>> {
        let Self { upstreams, limits, asked, member, patience } = self;
        let is_repeatable = !body.has_body() && asked.is_idempotent;
        let mut over = if is_repeatable { Over::Any } else { Over::Fresh };
        let (mut is_again, mut unprocessed) = (false, 0);
        loop {
            let mut draft = asked.draft(*upstreams, *member);
            let begun = tokio::select! {
                biased;
                begun = begin(*upstreams, *member, limits, asked.wanted, asked.client, over, *patience) => begun,
                gone = body.gone() => return Err(MemberFailure { error: SendError::Ours(gone), may_go_on: false }),
            };
            let mut exchange = begun.map_err(|error| {
                draft.failed(&error);
                MemberFailure::before(error)
            })?;
            let reused = exchange.reused;
            draft.note_connection(reused);
            if !reused {
                connected();
            }
            let mut sent = exchange.send(asked.head, limits.origin_first_byte_time_max).await;
            if sent.is_ok() && body.has_body() {
                // The origin may answer and close the connection before it has read the whole body: its
                // answer counts.
                match body.send(&mut exchange).await {
                    Ok(SendResult::Over | SendResult::Answered) => {}
                    Err(SendError::Origin(error)) => sent = Err(error),
                    Err(ours @ SendError::Ours(_)) => {
                        return Err(MemberFailure { error: ours, may_go_on: false });
                    }
                }
            }
            let mut is_told = false;
            let waited = match sent {
                Err(error) if !error.is_end() => Err(SendError::Origin(error)),
                Ok(()) | Err(_) => {
                    wait_for_head(&mut exchange, asked.answered, limits, body, &mut is_told).await
                }
            };
            let answered = match waited {
                Ok(()) => exchange.ordinary_answer(asked.answered, limits),
                Err(SendError::Origin(error)) => Err(error),
                Err(error @ SendError::Ours(_)) => return Err(MemberFailure { error, may_go_on: false }),
            };
            match answered {
                Ok(mut arrived) => {
                    upstreams.note_outcome(*member, true);
                    arrived.attach_log(draft);
                    return Ok(arrived);
                }
                Err(error) if reused && is_repeatable && !is_again && !is_told && error.is_cut() => {
                    draft.failed(&error);
                    (is_again, over) = (true, Over::Fresh);
                }
                Err(error @ OriginError::Http1Required)
                    if over != Over::Http1 && !body.has_begun() && !is_told =>
                {
                    draft.failed(&error);
                    over = Over::Http1;
                }
                Err(error @ OriginError::Unprocessed) => {
                    draft.failed(&error);
                    let may_go_on = !body.has_begun() && !is_told;
                    if !may_go_on || unprocessed == UNPROCESSED_MAX {
                        return Err(MemberFailure { error: SendError::Origin(error), may_go_on });
                    }
                    unprocessed += 1;
                    upstreams.upstream(*member, |upstream| (upstream.tell)(OriginEvent::Unprocessed));
                }
                Err(error) => {
                    draft.failed(&error);
                    let is_cut = error.is_cut() || error == OriginError::HeadShort;
                    if is_cut || error.is_silence() {
                        upstreams.note_outcome(*member, false);
                    }
                    let may_go_on = is_repeatable && is_cut && !is_told;
                    return Err(MemberFailure { error: SendError::Origin(error), may_go_on });
                }
            }
        }
    }
}

impl<E> MemberFailure<E> {
    /// Creates the failure of an attempt that ended before anything was sent.
    fn before(error: OriginError) -> Self {
        Self { error: SendError::Origin(error), may_go_on: true }
    }
}

/// Sends a request to switch protocols over a connection of its own. The request is not repeated once it has
/// been sent.
pub(crate) async fn switch<S: RequestSender>(
    upstreams: &impl Upstreams,
    limits: &Limits,
    asked: &OriginRequest<'_>,
    asker: &mut S,
    connected: impl Fn(),
) -> Result<ExchangeResult, SendError<S::Error>> {
    let mut tried = TriedMembers::default();
    let mut failed = None;
    while let Some(member) = next(upstreams, &mut tried, failed.is_some()) {
        let mut draft = asked.draft(upstreams, member);
        // Over HTTP/2 the request has another form (RFC 8441), which few origins support.
        let patience = Patience::of(limits);
        let begun = begin(upstreams, member, limits, asked.wanted, asked.client, Over::Http1, patience).await;
        let mut exchange = match begun {
            Ok(exchange) => exchange,
            Err(error) => {
                draft.failed(&error);
                failed = Some(error);
                continue;
            }
        };
        connected();
        draft.note_connection(false);
        exchange.send(asked.head, limits.origin_first_byte_time_max).await.map_err(SendError::Origin)?;
        let waited = wait_for_head(&mut exchange, asked.answered, limits, asker, &mut false).await;
        let mut answered =
            waited.and_then(|()| exchange.answer(asked.answered, limits).map_err(SendError::Origin));
        match &mut answered {
            Ok(ExchangeResult::Final(arrived)) => arrived.attach_log(draft),
            Ok(ExchangeResult::Switched(_)) => {
                draft.note_head(101);
                draft.note_content(0, true);
            }
            Err(SendError::Origin(error)) => draft.failed(error),
            Err(SendError::Ours(_)) => {}
        }
        if let Ok(_) | Err(SendError::Origin(OriginError::Closed | OriginError::Reset)) = &answered {
            upstreams.note_outcome(member, answered.is_ok());
        }
        return answered;
    }
    Err(SendError::Origin(failed.unwrap_or(OriginError::NobodyUp)))
}

/// Waits until the head of the final answer has arrived, and passes interim responses to the client's side.
async fn wait_for_head<S: RequestSender>(
    exchange: &mut Exchange,
    answered: framing::RequestKind,
    limits: &Limits,
    asker: &mut S,
    is_told: &mut bool,
) -> Result<(), SendError<S::Error>> {
    let mut deadline = tokio::time::Instant::now() + limits.origin_first_byte_time_max;
    let mut told_bytes = 0;
    loop {
        let event = tokio::select! {
            biased;
            event = exchange.next_event(answered, limits, deadline) => event.map_err(SendError::Origin)?,
            gone = asker.gone() => return Err(SendError::Ours(gone)),
        };
        let AnswerEvent::Interim(head) = event else { return Ok(()) };
        told_bytes += head.len();
        *is_told = true;
        if asker.is_patient() {
            deadline = tokio::time::Instant::now() + limits.origin_first_byte_time_max;
        }
        if told_bytes <= INTERIM_BYTES_MAX {
            asker.interim(head).await;
        }
    }
}
