//! Handling of the purge stream: finding the start position, detecting missing purges, and carrying purges
//! out.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use async_nats::jetstream::{
    Context, Message,
    consumer::{DeliverPolicy, push},
};
use futures_util::FutureExt as _;
use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep},
};

use super::{ClusterTask, Fault, OptionalFuture};
use crate::{
    ExecuteError,
    client::Common,
    connect::Connection,
    counts::count,
    open,
    position::Position,
    record::{AppliedNotice, Purge, PurgeSelection, Record, RecordContent},
    wish,
};

/// Pause before a failed purge is retried.
const AGAIN: Duration = Duration::from_millis(200);

/// Relation of a sequence number in the stream to the last one carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SequenceOrder {
    /// The sequence is the next to carry out.
    Next,
    /// The sequence has been carried out already.
    Known,
    /// The sequence is a later one: those in between were removed by the stream's limits or by an operator.
    Gap,
}

fn follows(applied: u64, sequence: u64) -> SequenceOrder {
    match sequence.checked_sub(applied) {
        None | Some(0) => SequenceOrder::Known,
        Some(1) => SequenceOrder::Next,
        Some(_) => SequenceOrder::Gap,
    }
}

/// A record of the stream that has been carried out.
pub(super) struct CarriedRecord {
    /// Position in the stream after the record.
    pub(super) position: Position,
    /// Subject on which another instance waits for the notice that its record was carried out.
    pub(super) notice_to: Option<String>,
}

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

    /// Starts to carry out the stream's next record; returns `None` if that was done already.
    pub(super) fn carry_out_next(
        &mut self,
        message: &Message,
    ) -> Result<OptionalFuture<CarriedRecord>, Fault> {
        let sequence = message.info().map_err(|error| Fault::Cannot(error.to_string()))?.stream_sequence;
        let applied = self.position.map_or(0, |position| position.applied);
        match follows(applied, sequence) {
            SequenceOrder::Next => Ok(Some(self.carry_out(Record::of_bytes(&message.payload), sequence))),
            SequenceOrder::Known => Ok(None),
            SequenceOrder::Gap => {
                self.has_gap = true;
                Err(Fault::OtherStream)
            }
        }
    }

    /// Starts a helper that carries out a record, with retries until it succeeds.
    fn carry_out(&mut self, record: Record, sequence: u64) -> Pin<Box<dyn Future<Output = CarriedRecord>>> {
        let is_own = record.id.starts_with(&self.common.instance);
        let notice_to = (!is_own && !record.to.is_empty()).then(|| record.to.clone());
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
            CarriedRecord { position, notice_to }
        })
    }

    /// Sends the publisher of a purge the notice that it was carried out.
    pub(super) async fn send_notice(&self, connection: &Connection, to: String, position: Position) {
        let notice = AppliedNotice {
            name: self.common.config.name.to_string(),
            instance: self.common.instance.clone(),
            generation: position.generation,
            applied: position.applied,
        };
        // If the notice is lost or refused, the next heartbeat reports the same progress.
        let bytes = serde_json::to_vec(&notice).unwrap_or_default();
        let _ = connection.client.publish(to, bytes.into()).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_in_the_stream_is_noticed() {
        for (applied, sequence, want) in [
            (0, 1, SequenceOrder::Next),
            (7, 8, SequenceOrder::Next),
            (7, 7, SequenceOrder::Known),
            (7, 3, SequenceOrder::Known),
            (7, 9, SequenceOrder::Gap),
            (0, u64::MAX, SequenceOrder::Gap),
        ] {
            assert_eq!(follows(applied, sequence), want, "{applied} {sequence}");
        }
    }
}
