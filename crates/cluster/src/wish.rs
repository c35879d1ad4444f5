//! Publishing of purges: a request is written to the stream, and the requester may wait until the purge is in
//! force everywhere.
//!
//! Each purge has an identifier that the stream remembers for two minutes, so that a purge whose
//! acknowledgement was lost can be published again without becoming a second one. Bounds: [`WISHES_MAX`]
//! requests at once, and a time limit for each.

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

/// Maximum number of purges that wait for the cluster; further ones are refused.
pub const WISHES_MAX: usize = 1024;
/// Time that one attempt waits for its acknowledgement.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Interval between checks whether our own purge has come back from the stream.
const SOON: Duration = Duration::from_millis(1);
/// Pause after a failed attempt.
const PAUSE: Duration = Duration::from_millis(50);

/// Condition that a purge request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The purge is in the stream: each instance will carry it out.
    Told,
    /// Each instance has carried out the purge, or serves no stored object.
    Everywhere,
}

/// Result of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Sequence number of the purge in the stream.
    pub sequence: u64,
    /// State of each instance, for [`Scope::Everywhere`]; otherwise empty.
    pub instances: Vec<InstanceOutcome>,
}

/// State of one instance with regard to a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceOutcome {
    /// Name of the instance.
    pub name: String,
    /// State of the instance.
    pub standing: InstancePurgeState,
}

/// Reason why a purge has not met its condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PurgeRequestError {
    /// The purge is not in the stream, as far as is known.
    #[error("the cluster did not accept the purge: {0}")]
    NotTold(String),
    /// The purge is in the stream and will be carried out by all instances, but some have not done so yet.
    #[error("the purge was accepted but is not yet applied everywhere: {}", missing(.0))]
    NotYet(Outcome),
    /// Too many purges wait for the cluster.
    #[error("too many purges are waiting for the cluster; try again")]
    TooMany,
    /// The purge's record is too long.
    #[error("the purge is longer than {RECORD_BYTES_MAX} bytes; purge less at once, or everything")]
    TooLong,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
}

fn missing(outcome: &Outcome) -> String {
    let waiting = outcome.instances.iter().filter(|told| told.standing == InstancePurgeState::Waiting);
    let names: Vec<_> = waiting.map(|told| told.name.as_str()).collect();
    match names[..] {
        [] => "this instance has no contact to the cluster".to_owned(),
        [name] => format!("not applied by {name}"),
        _ => format!("not applied by {}", names.join(", ")),
    }
}

/// A purge request on its way to the cluster's thread.
#[derive(Debug)]
pub(crate) struct PurgeRequest {
    pub(crate) purge: Purge,
    /// True if the purge is already in force here.
    pub(crate) is_carried_out: bool,
    pub(crate) scope: Scope,
    pub(crate) at_most: Duration,
    pub(crate) reply: oneshot::Sender<Result<Outcome, PurgeRequestError>>,
}

/// Identifiers of the stream's records that are already in force here.
pub(crate) type AppliedRecords = Rc<RefCell<HashSet<String>>>;

/// Processes one purge request.
pub(crate) async fn publish_and_wait(
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
    let told = publish_record(&common, &record, until).await;
    if told.is_err() {
        // If the record is in the stream after all, it is carried out once more.
        carried_out.borrow_mut().remove(&id);
    }
    if let Ok(StreamPosition { generation, sequence }) = told {
        server.note_begun(generation, sequence);
        if is_carried_out && server.repeats_own_purges() {
            // Waits until the purge is carried out here again, which also removes answers that peers gave in
            // the meantime.
            let is_there = || (common.generation(), common.applied()) >= (generation, sequence);
            while !is_there() && Instant::now() < until {
                sleep(SOON).await;
            }
        }
    }
    let outcome = match (told, scope) {
        (Ok(place), Scope::Told) => Ok(Outcome { sequence: place.sequence, instances: Vec::new() }),
        (Ok(place), Scope::Everywhere) => wait_for_all(&common, place, until).await,
        (Err(refused), _) => Err(refused),
    };
    // The requester may be gone; the purge is in force regardless.
    let _ = reply.send(outcome);
}

/// Publishes a record to the stream. Returns its position.
pub(crate) async fn publish_record(
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
                    // The stream has been replaced by another one, or reset to an older state: its history is
                    // not the one we know, and no heartbeat written earlier refers to this sequence number.
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

/// Describes an error for which the library's text is unclear.
fn words(error: &async_nats::jetstream::context::PublishError) -> String {
    match error.kind() {
        PublishErrorKind::StreamNotFound => "no stream for purges, or no answer from it".to_owned(),
        PublishErrorKind::TimedOut => {
            "no acknowledgement in time: too few of its servers may be up".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Waits until a purge is in force everywhere.
async fn wait_for_all(
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
                    // Writing a heartbeat now makes it possible to tell whether a lease has expired.
                    common.renew.notify_one();
                    // The pause leaves time for the heartbeat to be delivered, so that heartbeats are not
                    // requested in a tight loop.
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
