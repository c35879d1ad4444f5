//! Asking an origin: a connection, the request out, the head of the answer in; and once more where that is safe.

use std::sync::Arc;

use tokio::time::timeout;
use wire::http1::framing;

use super::{
    OriginError, OriginEvent,
    begin::{Over, begin},
    exchange::{AnswerHead, Exchange, ExchangeResult, Patience, SendResult, UpgradedConnection},
    group::{MemberId, TriedMembers},
    shares::Client,
    upstream::Upstreams,
};
use crate::{
    config::Limits,
    log::transaction::{Draft, Trace},
    request::OriginNeed,
};

/// Bytes of the heads of interim responses that are told on, for one answer; what comes beyond is not.
const INTERIM_BYTES_MAX: usize = 16 << 10;

/// A server that does not take a request that often, one time after the other, is left for another one.
const UNPROCESSED_MAX: u32 = 2;

/// Who asks: sends the body of the request behind its head, and is told what comes before the answer.
pub(crate) trait RequestSender: Send {
    /// Why it did not reach the origin for another reason than the origin.
    type Error: Send;

    /// Whether there is one: then the request cannot be repeated.
    fn has_body(&self) -> bool;

    /// Whether some of it was taken from where it comes from: then it cannot be sent again from its beginning.
    fn has_begun(&self) -> bool;

    /// Sends it, until its end or until the origin answers.
    fn send(
        &mut self,
        exchange: &mut Exchange,
    ) -> impl Future<Output = Result<SendResult, SendError<Self::Error>>> + Send;

    /// Whether each interim response says that another as long wait is worth it.
    fn is_patient(&self) -> bool {
        false
    }

    /// Waits until no client wants the answer any more, which is then given up. Returns the reason.
    fn gone(&mut self) -> impl Future<Output = Self::Error> + Send {
        std::future::pending()
    }

    /// Takes the head of an interim response (RFC 9110 §15.2), as it is told on.
    fn interim(&mut self, head: Vec<u8>) -> impl Future<Output = ()> + Send;
}

/// Why a body was not sent to its end.
pub(crate) enum SendError<E> {
    /// The origin's side.
    Origin(OriginError),
    /// The other.
    Ours(E),
}

/// What is asked.
pub(crate) struct OriginRequest<'a> {
    /// The head as it is sent.
    pub(crate) head: &'a [u8],
    pub(crate) wanted: OriginNeed,
    /// The client that the exchange counts for.
    pub(crate) client: Client,
    /// What decides whether the answer has a body.
    pub(crate) answered: framing::RequestKind,
    /// It may be sent again although the origin may have seen it (RFC 9110 §9.2.2).
    pub(crate) is_idempotent: bool,
    /// What the log says of it, and for whom it is: nothing where nobody reads.
    pub(crate) why: &'static str,
    pub(crate) trace: Option<&'a Arc<Trace>>,
    /// What the log calls the server, where that is not its address.
    pub(crate) server: Option<&'a str>,
}

impl OriginRequest<'_> {
    /// The kind of answer and the client for which a permit is acquired.
    fn by(&self) -> (OriginNeed, Client) {
        (self.wanted, self.client)
    }

    /// What the log will say of asking a server.
    fn draft(&self, upstreams: &impl Upstreams, member: MemberId) -> Draft {
        if self.trace.is_none() {
            return Draft::none();
        }
        let address = || upstreams.upstream(member, |upstream| upstream.member.name()).unwrap_or_default();
        let server = self.server.map_or_else(address, str::to_owned);
        Draft::origin(self.trace, self.head, self.why, &server)
    }
}

/// Sends a request and waits for the head of the answer: of one member after another, where the one before could not be
/// reached, or has ended the exchange without an answer and the request may be repeated. Nobody has been told anything by then.
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

/// The member that is asked next.
fn next(upstreams: &impl Upstreams, tried: &mut TriedMembers, is_again: bool) -> Option<MemberId> {
    let member = upstreams.choose(tried)?;
    if is_again {
        upstreams.asks_again();
    }
    Some(member)
}

/// Why a member did not answer.
struct MemberFailure<E> {
    error: SendError<E>,
    /// Another one can be asked.
    may_go_on: bool,
}

/// Asking one member.
struct Attempt<'a, U> {
    upstreams: &'a U,
    limits: &'a Limits,
    asked: &'a OriginRequest<'a>,
    member: MemberId,
    patience: Patience,
}

impl<U: Upstreams> Attempt<'_, U> {
    /// A connection that was kept may have been closed by the other side in the meantime; what may be repeated is then asked
    /// once more over a fresh one, and what may not goes over a fresh one from the start. (A shared one of HTTP/2 is not
    /// idle: its end is known when it comes.) What the origin says that it has not looked at is sent again whatever it is.
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
                begun = begin(*upstreams, *member, limits, asked.by(), over, *patience) => begun,
                gone = body.gone() => return Err(MemberFailure { error: SendError::Ours(gone), may_go_on: false }),
            };
            let mut exchange = begun.map_err(|error| {
                draft.failed(&error);
                MemberFailure::before(error)
            })?;
            let reused = exchange.reused;
            draft.over(reused);
            if !reused {
                connected();
            }
            let mut sent = exchange.send(asked.head, limits.origin_first_byte_time_max).await;
            if sent.is_ok() && body.has_body() {
                // The origin may answer before it has read all, and close: its answer counts.
                match body.send(&mut exchange).await {
                    Ok(SendResult::Over | SendResult::Answered) => {}
                    Err(SendError::Origin(error)) => sent = Err(error),
                    Err(ours @ SendError::Ours(_)) => {
                        return Err(MemberFailure { error: ours, may_go_on: false });
                    }
                }
            }
            let mut is_told = false;
            let answered = match sent {
                Err(error) if !error.is_end() => Err(error),
                Ok(()) | Err(_) => match answer(exchange, asked.answered, limits, body, &mut is_told).await {
                    Ok(UpgradeOutcome::Here(arrived)) => Ok(arrived),
                    // Nobody asked for that.
                    Ok(UpgradeOutcome::Switched(_)) => Err(OriginError::Switched),
                    Err(SendError::Origin(error)) => Err(error),
                    Err(error @ SendError::Ours(_)) => return Err(MemberFailure { error, may_go_on: false }),
                },
            };
            match answered {
                Ok(mut arrived) => {
                    upstreams.fared(*member, true);
                    arrived.is_logged_by(draft);
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
                        upstreams.fared(*member, false);
                    }
                    let may_go_on = is_repeatable && is_cut && !is_told;
                    return Err(MemberFailure { error: SendError::Origin(error), may_go_on });
                }
            }
        }
    }
}

impl<E> MemberFailure<E> {
    /// Nothing was sent.
    fn before(error: OriginError) -> Self {
        Self { error: SendError::Origin(error), may_go_on: true }
    }
}

/// What came of asking for another protocol.
pub(crate) enum UpgradeOutcome {
    /// An answer as to any request.
    Here(Box<AnswerHead>),
    /// The connection, on which that protocol is spoken now.
    Switched(Box<UpgradedConnection>),
}

/// Sends a request that asks for another protocol, over a connection of its own, and once: what was said there is not
/// repeated.
pub(crate) async fn switch<S: RequestSender>(
    upstreams: &impl Upstreams,
    limits: &Limits,
    asked: &OriginRequest<'_>,
    asker: &mut S,
    connected: impl Fn(),
) -> Result<UpgradeOutcome, SendError<S::Error>> {
    let mut tried = TriedMembers::default();
    let mut failed = None;
    while let Some(member) = next(upstreams, &mut tried, failed.is_some()) {
        let mut draft = asked.draft(upstreams, member);
        // Over HTTP/2 it would be asked for otherwise (RFC 8441), and few origins have that.
        let patience = Patience::of(limits);
        let begun = begin(upstreams, member, limits, asked.by(), Over::Http1, patience).await;
        let mut exchange = match begun {
            Ok(exchange) => exchange,
            Err(error) => {
                draft.failed(&error);
                failed = Some(error);
                continue;
            }
        };
        connected();
        draft.over(false);
        exchange.send(asked.head, limits.origin_first_byte_time_max).await.map_err(SendError::Origin)?;
        let mut answered = answer(exchange, asked.answered, limits, asker, &mut false).await;
        match &mut answered {
            Ok(UpgradeOutcome::Here(arrived)) => arrived.is_logged_by(draft),
            Ok(UpgradeOutcome::Switched(_)) => {
                draft.heard(101);
                draft.came(0, true);
            }
            Err(SendError::Origin(error)) => draft.failed(error),
            Err(SendError::Ours(_)) => {}
        }
        if let Ok(_) | Err(SendError::Origin(OriginError::Closed | OriginError::Reset)) = &answered {
            upstreams.fared(member, answered.is_ok());
        }
        return answered;
    }
    Err(SendError::Origin(failed.unwrap_or(OriginError::NobodyUp)))
}

/// Waits for the final answer; who asks is told of interim ones.
async fn answer<S: RequestSender>(
    mut exchange: Exchange,
    answered: framing::RequestKind,
    limits: &Limits,
    asker: &mut S,
    is_told: &mut bool,
) -> Result<UpgradeOutcome, SendError<S::Error>> {
    let mut deadline = tokio::time::Instant::now() + limits.origin_first_byte_time_max;
    let mut told_bytes = 0;
    loop {
        let heard = tokio::select! {
            biased;
            heard = exchange.answer(answered, limits, deadline) => heard.map_err(SendError::Origin)?,
            gone = asker.gone() => return Err(SendError::Ours(gone)),
        };
        match heard {
            ExchangeResult::Final(arrived) => return Ok(UpgradeOutcome::Here(arrived)),
            ExchangeResult::Switched(switched) => return Ok(UpgradeOutcome::Switched(switched)),
            ExchangeResult::Interim(waiting, head) => {
                exchange = *waiting;
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
    }
}
