//! Messages to subjects that stand for others ([`crate::identity::Mappings`]).
//!
//! What follows the subject in a message is passed on as it is, so another subject costs no copy of the message. As in
//! nats-server the permission to publish is asked for the subject that it becomes.

use std::hash::{BuildHasher as _, RandomState};

use crate::{connection::ConnId, core::Core, identity::Mapped, publish::Run};

/// Numbers that no client can foresee: xorshift (Marsaglia 2003), seeded by the system.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Self {
        Self(RandomState::new().hash_one(0) | 1)
    }

    /// A number below 100.
    fn throw(&mut self) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) % 100) as u8
    }
}

impl Core {
    /// Takes messages of a client, in whose account or in another subjects are mapped.
    pub(crate) fn publish_mapped(&mut self, id: ConnId, run: &Run<'_>) {
        let all = self.mappings.clone();
        let account = self.outputs.connections[id].account;
        let Some(mappings) = all.as_ref().and_then(|all| all.get(&account)) else {
            return self.publish_as_it_is(id, run);
        };
        let mut subject = std::mem::take(&mut self.buffers.mapped);
        let is_certain = mappings.is_certain(run.subject);
        for at in 0..if is_certain { 1 } else { run.count() } {
            let part = if is_certain { *run } else { run.one(at) };
            match mappings.apply(run.subject, || self.dice.throw(), &mut subject) {
                Mapped::Same => self.publish_as_it_is(id, &part),
                Mapped::Other if subject.is_empty() => self.publish_to_nobody(id, &part),
                Mapped::Other => self.publish_as_it_is(id, &Run { subject: &subject, ..part }),
            }
        }
        self.buffers.mapped = subject;
    }
}
