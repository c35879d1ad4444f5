//! Handling of the purge stream: finding the start position, detecting missing purges, and carrying purges
//! out.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use async_nats::jetstream::{
    Context,
    consumer::{DeliverPolicy, push},
};
use futures_util::FutureExt as _;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use super::{ClusterTask, Fault};
use crate::{
    ExecuteError,
    client::Common,
    counts::count,
    open,
    position::Position,
    record::{Purge, PurgeSelection, Record, RecordContent},
    wish,
};

/// Pause before a failed purge is retried.
const AGAIN: Duration = Duration::from_millis(200);

impl ClusterTask {
    /// Publishes a record that this instance has joined. Returns its sequence number.
    pub(super) async fn write_here(&mut self, common: &Common) -> Result<u64, Fault> {
        let id = format!("{}-{}", common.instance, common.next_number());
        let record =
            Record { id, by: common.config.name.to_string(), to: String::new(), says: RecordContent::Here };
        let until = Instant::now() + self.patience();
        let told = wish::publish_record(common, &record, until).await;
        told.map(|place| place.sequence).map_err(|refused| Fault::Cannot(refused.to_string()))
    }

    /// Checks that the stream still holds every purge since our position. If not, all stored objects are
    /// marked for revalidation, and the position is set to `here`, the sequence number of our record in the
    /// stream.
    pub(super) async fn find_position(&mut self, context: &Context, here: u64) -> Result<(), Fault> {
        let stream = open::stream(context, &self.common.config).await?;
        let seen = self.common.view.borrow().generation();
        let generation = match self.position {
            Some(position) if position.generation < seen => Err((seen, "other instances use another stream")),
            Some(position) if position.made_ns != stream.made_ns => {
                Err((position.generation + 1, "the stream was created anew"))
            }
            Some(position) if here <= position.applied || self.is_another => {
                Err((position.generation + 1, "the stream is older than the position reached here"))
            }
            Some(position) if self.has_gap => {
                Err((position.generation, "purges are missing from the middle of the stream"))
            }
            Some(position) if stream.first > position.applied + 1 => {
                Err((position.generation, "purges that were missed are no longer in the stream"))
            }
            Some(_) => Ok(()),
            None => Err((seen, "")),
        };
        // This instance's own `here` record may have triggered the signal as well, so the signal is cleared.
        let _ = self.common.doubt.notified().now_or_never();
        let Err((generation, why)) = generation else { return Ok(()) };
        if !why.is_empty() {
            tracing::warn!(why, "purges were missed: all stored objects are revalidated before use");
            count(&self.common.counts.doubts);
        }
        let server = Arc::clone(&self.server);
        loop {
            let of_helper = Arc::clone(&server);
            match spawn_blocking(move || of_helper.mark_all_unverified()).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot mark stored objects for revalidation; trying again");
                    count(&self.common.counts.not_carried);
                    sleep(AGAIN).await;
                }
                Err(error) => return Err(Fault::Cannot(error.to_string())),
            }
        }
        (self.is_another, self.has_gap) = (false, false);
        let position = Position { generation, made_ns: stream.made_ns, applied: here };
        self.set_position(position);
        self.keep_position(position);
        Ok(())
    }

    pub(super) fn set_position(&mut self, position: Position) {
        self.position = Some(position);
        self.common.set_position(position);
        self.server.note_applied(position.generation, position.applied);
    }

    pub(super) fn keep_position(&self, position: Position) {
        if let Some(file) = &self.file
            && let Err(error) = file.write(position)
        {
            tracing::warn!(%error, "cannot save the purge position: after a restart all stored objects are revalidated");
        }
    }

    /// Starts a helper that carries out a record, with retries until it succeeds.
    pub(super) fn carry_out(
        &mut self,
        record: Record,
        sequence: u64,
    ) -> Pin<Box<dyn Future<Output = Position>>> {
        let position = Position {
            applied: sequence,
            ..self.position.unwrap_or(Position { generation: 0, made_ns: 0, applied: 0 })
        };
        let is_done = self.carried_out.borrow_mut().remove(&record.id);
        let purge = match record.says {
            RecordContent::Here => None,
            RecordContent::Purge(_) if is_done && !self.server.repeats_own_purges() => None,
            RecordContent::Purge(purge) => Some(purge),
            RecordContent::Unknown { is_soft, why } => {
                tracing::warn!(by = record.by, why, "unknown purge record: all objects are purged");
                count(&self.common.counts.unknown);
                Some(Purge { what: PurgeSelection::All, is_soft })
            }
        };
        let (server, file, common) = (Arc::clone(&self.server), self.file.clone(), Arc::clone(&self.common));
        server.note_begun(position.generation, sequence);
        Box::pin(async move {
            let mut purge = purge;
            let is_purge = purge.is_some();
            loop {
                let (server, file, asked) = (Arc::clone(&server), file.clone(), purge.clone());
                let done = spawn_blocking(move || {
                    asked.map_or(Ok(()), |purge| server.carry_out(&purge))?;
                    if let Some(file) = file
                        && let Err(error) = file.write(position)
                    {
                        tracing::warn!(%error, "cannot save the purge position");
                    }
                    Ok::<_, ExecuteError>(())
                });
                match done.await {
                    Ok(Ok(())) => break,
                    Ok(Err(ExecuteError::NotUnderstood(why))) => {
                        tracing::warn!(why, "unknown purge record: all objects are purged");
                        count(&common.counts.unknown);
                        purge = purge.map(|purge| Purge { what: PurgeSelection::All, ..purge });
                    }
                    Ok(Err(ExecuteError::NotNow(why))) => {
                        tracing::warn!(why, "cannot apply a purge; trying again");
                        count(&common.counts.not_carried);
                        sleep(AGAIN).await;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "purge interrupted; trying again");
                        sleep(AGAIN).await;
                    }
                }
            }
            if is_purge {
                count(&common.counts.applied);
            }
            position
        })
    }
}

/// Reads the purges of the stream, starting at a sequence number.
pub(super) async fn consume(context: &Context, common: &Common, from: u64) -> Result<push::Ordered, Fault> {
    let config = push::OrderedConfig {
        deliver_subject: context.client().new_inbox(),
        name: None,
        description: Some(format!("nighttrain {}", common.config.name)),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from },
        ..push::OrderedConfig::default()
    };
    let consumer = context.create_consumer_on_stream(config, common.config.stream.as_str()).await;
    let consumer = consumer.map_err(|error| Fault::of("cannot read the stream", &error))?;
    consumer.messages().await.map_err(|error| Fault::of("cannot read the stream", &error))
}
