//! A purge that somebody wants told: into the stream, and if that is asked, until it holds everywhere.
//!
//! Each has an identity that the stream knows for two minutes, so that one whose acknowledgement was lost is tried again
//! and is no second purge. Bounds: [`WISHES_MAX`] at once, and a time that each has.

use std::{cell::RefCell, collections::HashSet, rc::Rc, sync::Arc, time::Duration};

use async_nats::jetstream::{context::PublishErrorKind, message::PublishMessage};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};

use crate::{
    PurgeExecutor,
    client::Common,
    counts::count,
    record::{Purge, RECORD_BYTES_MAX, Record, RecordContent},
    view::{InstancePurgeState, PurgeProgress, StreamPosition},
};

/// Purges that wait for the cluster at once; more are refused.
pub const WISHES_MAX: usize = 1024;
/// How long one attempt waits for its acknowledgement.
const ATTEMPT: Duration = Duration::from_secs(1);
/// How often it is looked whether a purge of ours has come back.
const SOON: Duration = Duration::from_millis(1);
/// The pause after one that failed.
const PAUSE: Duration = Duration::from_millis(50);

/// Until when a purge is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// It is in the stream: each instance will carry it out.
    Told,
    /// Each instance has, or serves nothing that it stored.
    Everywhere,
}

/// What became of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// Each instance, where it was to hold everywhere.
    pub instances: Vec<InstanceOutcome>,
}

/// An instance, as a purge found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceOutcome {
    /// Its name.
    pub name: String,
    /// How it is to the purge.
    pub standing: InstancePurgeState,
}

/// Why a purge did not come to that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PurgeRequestError {
    /// It is not in the stream, as far as we know.
    #[error("the cluster has not taken it: {0}")]
    NotTold(String),
    /// It is, and will be carried out by all; not everybody has yet.
    #[error("it will hold everywhere, but does not yet: {}", missing(.0))]
    NotYet(Outcome),
    /// Too many wait.
    #[error("too many purges wait for the cluster; try again")]
    TooMany,
    /// It names too much.
    #[error("it is longer than {RECORD_BYTES_MAX} bytes; purge less at once, or everything")]
    TooLong,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
}

fn missing(outcome: &Outcome) -> String {
    let waiting = outcome.instances.iter().filter(|told| told.standing == InstancePurgeState::Waiting);
    let names: Vec<_> = waiting.map(|told| told.name.as_str()).collect();
    match names[..] {
        [] => "this instance has not heard from the cluster since".to_owned(),
        [name] => format!("{name} has not carried it out"),
        _ => format!("{} have not carried it out", names.join(", ")),
    }
}

/// A purge on its way to the thread.
#[derive(Debug)]
pub(crate) struct PurgeRequest {
    pub(crate) purge: Purge,
    /// It holds here already.
    pub(crate) is_carried_out: bool,
    pub(crate) scope: Scope,
    pub(crate) at_most: Duration,
    pub(crate) reply: oneshot::Sender<Result<Outcome, PurgeRequestError>>,
}

/// Which of the stream's records hold here already.
pub(crate) type AppliedRecords = Rc<RefCell<HashSet<String>>>;

/// Sees to one.
pub(crate) async fn fulfil(
    common: Arc<Common>,
    server: Arc<dyn PurgeExecutor>,
    carried_out: AppliedRecords,
    wish: PurgeRequest,
) {
    let PurgeRequest { purge, is_carried_out, scope, at_most, reply } = wish;
    let until = Instant::now() + at_most;
    let id = format!("{}-{}", common.instance, common.next_number());
    let to = if scope == Scope::Everywhere { common.inbox.borrow().clone() } else { String::new() };
    let record =
        Record { id: id.clone(), by: common.config.name.to_string(), to, says: RecordContent::Purge(purge) };
    if is_carried_out {
        carried_out.borrow_mut().insert(id.clone());
    }
    let told = tell(&common, &record, until).await;
    if told.is_err() {
        // Should it come all the same, it is carried out once more.
        carried_out.borrow_mut().remove(&id);
    }
    if let Ok(StreamPosition { generation, sequence }) = told {
        server.begins(generation, sequence);
        if is_carried_out && server.carries_own_again() {
            // Then it holds here whatever others have answered us.
            let is_there = || (common.generation(), common.applied()) >= (generation, sequence);
            while !is_there() && Instant::now() < until {
                sleep(SOON).await;
            }
        }
    }
    let outcome = match (told, scope) {
        (Ok(place), Scope::Told) => Ok(Outcome { sequence: place.sequence, instances: Vec::new() }),
        (Ok(place), Scope::Everywhere) => everywhere(&common, place, until).await,
        (Err(refused), _) => Err(refused),
    };
    // Who asked may be gone: it holds all the same.
    let _ = reply.send(outcome);
}

/// Puts a record into the stream; its place there.
pub(crate) async fn tell(
    common: &Common,
    record: &Record,
    until: Instant,
) -> Result<StreamPosition, PurgeRequestError> {
    let bytes = record.to_bytes();
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(PurgeRequestError::TooLong);
    }
    let bytes = bytes::Bytes::from(bytes);
    let mut open = common.open.subscribe();
    let mut why = None;
    loop {
        let context = match timeout_at(until, open.wait_for(Option::is_some)).await {
            Ok(Ok(context)) => context.clone(),
            Ok(Err(_)) => return Err(PurgeRequestError::Stopping),
            Err(_) => None,
        };
        let Some(context) = context.filter(|_| Instant::now() < until) else {
            return Err(PurgeRequestError::NotTold(
                why.unwrap_or_else(|| common.state.borrow().words.clone()),
            ));
        };
        let before = (common.generation(), common.applied());
        let message = PublishMessage::build().payload(bytes.clone()).message_id(&record.id);
        let published = async {
            let acknowledged =
                context.send_publish(common.config.stream.to_string(), message).await?.into_future().await?;
            Ok::<_, async_nats::jetstream::context::PublishError>(acknowledged)
        };
        match timeout(ATTEMPT, published).await {
            Ok(Ok(acknowledged)) => {
                count(&common.counts.told);
                let (generation, applied) = before;
                let sequence = acknowledged.sequence;
                if sequence <= applied && !acknowledged.duplicate {
                    // The stream is another, or an older state of itself: what came before is not what we know, and
                    // no card that was written before is about this sequence.
                    common.doubt.notify_one();
                    return Ok(StreamPosition { sequence, generation: generation + 1 });
                }
                return Ok(StreamPosition { sequence, generation });
            }
            Ok(Err(error)) => why = Some(words(&error)),
            Err(_) => why = Some("no acknowledgement in time: too few of its servers may be up".to_owned()),
        }
        sleep(PAUSE).await;
    }
}

/// What an error means, where the library's words do not say it.
fn words(error: &async_nats::jetstream::context::PublishError) -> String {
    match error.kind() {
        PublishErrorKind::StreamNotFound => {
            "there is no stream for purges, or nobody answers for it".to_owned()
        }
        PublishErrorKind::TimedOut => {
            "no acknowledgement in time: too few of its servers may be up".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Waits until a purge holds everywhere.
async fn everywhere(
    common: &Common,
    place: StreamPosition,
    until: Instant,
) -> Result<Outcome, PurgeRequestError> {
    let mut view = common.view.subscribe();
    let lease_ms = u64::try_from(common.config.lease.as_millis()).unwrap_or(u64::MAX);
    loop {
        let PurgeProgress { instances, is_settled, again_ms } =
            view.borrow_and_update().judge(common.config.name.as_str(), lease_ms, place);
        let instances =
            instances.into_iter().map(|(name, standing)| InstanceOutcome { name, standing }).collect();
        let outcome = Outcome { sequence: place.sequence, instances };
        if is_settled {
            return Ok(outcome);
        }
        if Instant::now() >= until {
            count(&common.counts.late);
            return Err(PurgeRequestError::NotYet(outcome));
        }
        let again = async {
            match again_ms {
                None => std::future::pending().await,
                Some(again_ms) => {
                    let left_ms = again_ms.saturating_sub(common.now_ms());
                    sleep(Duration::from_millis(left_ms.max(1))).await;
                    // A card written now says what a lease's end is worth.
                    common.renew.notify_one();
                    // It comes back, or not: not to ask for one after the other.
                    sleep(PAUSE).await;
                }
            }
        };
        tokio::select! {
            changed = view.changed() => {
                if changed.is_err() {
                    return Err(PurgeRequestError::Stopping);
                }
            }
            () = again => {}
            () = sleep_until(until) => {}
        }
    }
}
