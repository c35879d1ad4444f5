//! Publishing to mapped subjects ([`crate::accounts::identity::Mappings`]).
//!
//! The part of a message after its subject is passed on unchanged, so a mapping does not copy the message. As
//! in nats-server, the permission to publish is checked for the destination subject.

use wire::nats::leaf;

use crate::{
    accounts::identity::MappingResult,
    client::connection::ConnId,
    delivery::{
        run::Run,
        suspended::{BegunMapped, SuspendedDelivery},
    },
    mesh::core::Core,
};

/// Origin of the messages that are mapped.
#[derive(Debug, Clone, Copy)]
pub(crate) enum By<'a> {
    /// Messages of a client.
    Client,
    /// A message from a hub, as received.
    Hub(&'a leaf::Message<'a>),
}

impl Core {
    /// Publishes messages under their mapped subjects, or resumes an interrupted call. Uses the mappings of
    /// the sender's account, if it has any. Returns whether everything is published.
    pub(crate) fn publish_mapped(
        &mut self,
        id: ConnId,
        run: &Run<'_>,
        mut begun: Option<Box<SuspendedDelivery>>,
        by: By<'_>,
    ) -> bool {
        let all = self.routing.mappings.clone();
        let account = self.outputs.connections[id].account;
        let mappings = all.as_ref().and_then(|all| all.get(&account));
        let was = begun.as_mut().and_then(|begun| begun.mapped.take());
        if was.is_none() && mappings.is_none() {
            return self.publish_part(id, run, begun, by, false);
        }
        let mut subject = std::mem::take(&mut self.turn.buffers.mapped);
        let one_by_one = match &was {
            Some(was) => was.message.is_some(),
            None => !mappings.is_none_or(|mappings| mappings.is_certain(run.subject)),
        };
        let (first, mut chosen) = was.map_or((0, None), |was| (was.message.unwrap_or(0), Some(was.subject)));
        let mut is_done = true;
        for at in first..if one_by_one { run.count() } else { 1 } {
            let part = if one_by_one { run.one(at) } else { *run };
            let mapped = match (chosen.take(), mappings) {
                (Some(chosen), _) => {
                    subject.clear();
                    subject.extend_from_slice(&chosen);
                    MappingResult::Other
                }
                (None, Some(mappings)) => {
                    mappings.apply(run.subject, |below| self.routing.dice.throw(below), &mut subject)
                }
                (None, None) => MappingResult::Same,
            };
            if let MappingResult::Same = mapped {
                subject.clear();
                subject.extend_from_slice(run.subject);
            }
            let is_mapped = subject != part.subject;
            let begun = begun.take();
            is_done = match by {
                By::Client if subject.is_empty() && begun.is_none() => self.publish_to_nobody(id, &part),
                _ => self.publish_part(id, &Run { subject: &subject, ..part }, begun, by, is_mapped),
            };
            if !is_done {
                if let Some(begun) = &mut self.outputs.connections[id].begun {
                    begun.run_bytes = run.bytes.len();
                    let message = one_by_one.then_some(at);
                    begun.mapped = Some(BegunMapped { subject: (&*subject).into(), message });
                }
                break;
            }
        }
        self.turn.buffers.mapped = subject;
        is_done
    }

    fn publish_part(
        &mut self,
        id: ConnId,
        run: &Run<'_>,
        begun: Option<Box<SuspendedDelivery>>,
        by: By<'_>,
        is_mapped: bool,
    ) -> bool {
        match by {
            By::Client => self.publish_as_it_is(id, run, begun),
            // The hub chose queue groups for the original subject, so its choice does not apply to a mapped
            // subject.
            By::Hub(message) => self.publish_from_hub(id, run, (!is_mapped).then_some(message), begun),
        }
    }
}
