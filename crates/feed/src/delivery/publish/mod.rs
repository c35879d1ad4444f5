//! Publishing: from a producer's bytes to the consumers' outputs.
//!
//! ```text
//!   PUB a.b 100␍␊…␍␊PUB a.b 100␍␊…␍␊PUB a.b 100␍␊…␍␊      a run: the same control line again and again
//!      └─subject─┘└──── tail ────┘
//!   for each subscriber of a.b:    MSG a.b 7 + tail, MSG a.b 7 + tail, …   into its chunk: two copies per message
//! ```
//!
//! The bytes after the subject in a PUB are exactly those after the sid in the MSG. So a delivery consists of
//! a prefix, built once for each run and subscriber, and a tail, copied from the read buffer. A run is
//! delivered subscriber by subscriber, which keeps one prefix, one source and one destination in the nearest
//! cache. A chunk that fills up is written at once and reused, so a hundred subscribers to a large read share
//! a few chunks instead of filling a hundred.
//!
//! A run contains complete messages only.
//!
//! *End of a turn.* A run for many subscribers is delivered in several turns ([`SuspendedDelivery`] holds the
//! progress). Later operations of its producer wait, so that each consumer receives a producer's messages in
//! order. A client that subscribes during such a delivery may or may not get the run; a client that
//! unsubscribes gets nothing more.

mod checks;
mod groups;

use crate::{
    accounts::{identity::AccountId, mapping::By},
    client::{
        connection::{CloseReason, ConnId, FOREIGN},
        protocol_log,
    },
    counters::Counter,
    delivery::{
        origin::Origin,
        outputs::{PutOutcome, send_across},
        producer::Producer,
        publish::groups::GroupDelivery,
        run::Run,
        suspended::{DeliveryProgress, GroupRefusals, SuspendedDelivery},
        work::{self, Work},
    },
    mesh::{
        core::{Core, Routing, Turn},
        links::{Destination, RelayedRun, To},
    },
    routing::{
        matching::{self, Match},
        trie::SubId,
    },
};

impl Core {
    /// Returns whether the turn's budget is used up, including the cost of the writes at its end.
    #[inline]
    pub(crate) fn is_turn_over(&self) -> bool {
        self.turn.work.is_over(self.outputs.dirty() as u64 * work::WRITE)
    }

    /// Delivers a run (consecutive messages to one subject) to all its subscribers, or resumes a suspended
    /// delivery. Returns whether a subscriber was reached.
    ///
    /// # Errors
    /// [`SuspendedDelivery`] if the turn's budget is used up; it holds the remaining work for a later turn.
    #[inline]
    pub(crate) fn hand_out(
        &mut self,
        of: &Origin,
        run: &Run<'_>,
        begun: Option<Box<SuspendedDelivery>>,
    ) -> Result<bool, Box<SuspendedDelivery>> {
        if of.deals || begun.as_ref().is_some_and(|begun| begun.crossing.is_some()) {
            return self.hand_out_and_cross(of, run, begun);
        }
        self.hand_out_here(of, run, begun)
    }

    /// Delivers a run as [`Core::hand_out`] does, but in its own account only.
    pub(crate) fn hand_out_here(
        &mut self,
        of: &Origin,
        run: &Run<'_>,
        begun: Option<Box<SuspendedDelivery>>,
    ) -> Result<bool, Box<SuspendedDelivery>> {
        if let Some(begun) = begun {
            return self.go_on(of, run, begun);
        }
        let (slot, matched) = self.routing.subjects.matches.take(
            &self.routing.subjects.trie,
            of.root,
            run.subject,
            &mut self.turn.work,
        );
        let mut way = DeliveryProgress::default();
        if self.routing.subjects.matches.is_whole()
            && (matched.is_empty() || self.spread(of, run, &matched, &mut way))
        {
            self.routing.subjects.matches.put_back(slot, matched);
            return Ok(way.reached);
        }
        Err(self.begun(run, slot, matched, way, false))
    }

    #[cold]
    fn begun(
        &mut self,
        run: &Run<'_>,
        slot: usize,
        matched: Match,
        way: DeliveryProgress,
        is_for_reply: bool,
    ) -> Box<SuspendedDelivery> {
        self.count(Counter::TurnsEnded);
        let (open, mark) =
            (self.routing.subjects.matches.take_open(), self.routing.subjects.trie.marks.begin());
        Box::new(SuspendedDelivery {
            run_bytes: run.bytes.len(),
            slot,
            matched,
            open,
            way,
            is_for_reply,
            mapped: None,
            crossing: None,
            mark,
        })
    }

    /// Builds the suspended state of a run that is delivered in its own account and continues through service
    /// imports.
    pub(crate) fn begun_crossing(&mut self, run: &Run<'_>) -> Box<SuspendedDelivery> {
        // Slot 0 of the cache of matches is used for no particular subject; its entry is dropped at the end.
        self.begun(run, 0, Match::default(), DeliveryProgress::default(), false)
    }

    #[cold]
    fn go_on(
        &mut self,
        of: &Origin,
        run: &Run<'_>,
        mut begun: Box<SuspendedDelivery>,
    ) -> Result<bool, Box<SuspendedDelivery>> {
        if self.continue_lookup(run.subject, &mut begun)
            || !self.spread(of, run, &begun.matched, &mut begun.way)
        {
            self.count(Counter::TurnsEnded);
            return Err(begun);
        }
        let reached = begun.way.reached;
        self.let_go(*begun);
        Ok(reached)
    }

    /// Continues the search for subscribers. Returns whether it is still incomplete.
    fn continue_lookup(&mut self, subject: &[u8], begun: &mut SuspendedDelivery) -> bool {
        let SuspendedDelivery { matched, open, .. } = begun;
        if !open.is_empty() {
            matching::go_on(matched, open, &self.routing.subjects.trie, subject, &mut self.turn.work);
        }
        !open.is_empty()
    }

    /// Ends a suspended delivery that is complete, or whose producer has left.
    pub(crate) fn let_go(&mut self, begun: SuspendedDelivery) {
        if let Some(crossing) = begun.crossing {
            self.abandon_chain(*crossing);
        }
        self.routing.subjects.came_to_end(begun.mark);
        self.routing.subjects.matches.put_back(begun.slot, begun.matched);
    }

    /// Publishes messages of a client, or continues a suspended delivery. Returns whether everything is done;
    /// otherwise it continues in another turn, and the client's later operations wait.
    #[inline]
    pub(crate) fn publish(
        &mut self,
        id: ConnId,
        run: &Run<'_>,
        begun: Option<Box<SuspendedDelivery>>,
    ) -> bool {
        if self.routing.mappings.is_some() || begun.as_ref().is_some_and(|begun| begun.mapped.is_some()) {
            self.publish_mapped(id, run, begun, By::Client)
        } else {
            self.publish_as_it_is(id, run, begun)
        }
    }

    /// Publishes messages under their original subject, without mappings.
    pub(crate) fn publish_as_it_is(
        &mut self,
        id: ConnId,
        run: &Run<'_>,
        begun: Option<Box<SuspendedDelivery>>,
    ) -> bool {
        if begun.is_none() && !self.accept(id, run) {
            return true;
        }
        let connection = &self.outputs.connections[id];
        #[expect(clippy::cast_possible_truncation, reason = "there are at most 64 cores")]
        let of = Origin {
            from: id,
            producer: Producer { core: self.index as u16, conn: id, cid: connection.cid },
            account: connection.account,
            root: connection.root,
            is_from_core: false,
            is_from_hub: false,
            are_groups_named: false,
            deals: connection.deals,
            is_imported: false,
        };
        let outcome = match begun {
            Some(begun) if begun.is_for_reply => self.tell_no_responders(id, run, Some(begun)),
            begun => match self.hand_out(&of, run, begun) {
                Ok(_) if run.reply.is_empty() => Ok(()),
                Ok(reached) => {
                    // The server answers requests in the system account even if they have other responders.
                    let is_asked = of.account == AccountId::SYSTEM.0
                        && (self.ask_system(run) || self.answer_user_info(id, run));
                    if reached || is_asked || self.answer_user_info(id, run) {
                        Ok(())
                    } else {
                        self.tell_no_responders(id, run, None)
                    }
                }
                Err(begun) => Err(begun),
            },
        };
        self.end_finished();
        self.is_done(id, outcome)
    }

    /// Stores a suspended delivery with its connection. Returns whether the delivery is complete.
    fn is_done(&mut self, id: ConnId, outcome: Result<(), Box<SuspendedDelivery>>) -> bool {
        let begun = outcome.err();
        let is_done = begun.is_none();
        if !is_done {
            self.outputs.connections[id].begun = begun;
        }
        is_done
    }

    /// Counts and drops a client's messages whose mapping has no destination; a requester is told that there
    /// are no responders. Returns whether everything is done.
    pub(crate) fn publish_to_nobody(&mut self, id: ConnId, run: &Run<'_>) -> bool {
        self.count_in(id, run);
        self.say_ok(id);
        if run.reply.is_empty() {
            return true;
        }
        let outcome = self.tell_no_responders(id, run, None);
        self.is_done(id, outcome)
    }

    /// Delivers a run to the matching subscribers, starting where `way` left off. Returns whether all were
    /// served within the turn's budget.
    fn spread(&mut self, of: &Origin, run: &Run<'_>, matched: &Match, way: &mut DeliveryProgress) -> bool {
        let price = work::delivery(run.count(), run.bytes.len());
        let mut delivered = 0;
        let mut is_over = false;
        while let Some(&sub) = matched.subscribers.get(way.next) {
            is_over = self.is_turn_over();
            if is_over {
                break;
            }
            self.turn.work.add(price);
            delivered += self.deliver(sub, of, run);
            way.next += 1;
        }
        self.count_out(delivered, run);
        way.reached |= delivered > 0;
        if is_over {
            return false;
        }
        if of.is_from_core {
            return true;
        }
        while let Some(group) = matched.group(way.next - matched.subscribers.len()) {
            if of.are_groups_named {
                break;
            }
            if self.is_turn_over() {
                return false;
            }
            if way.message == 0 && !way.refused.has_begun() {
                self.turn.work.add(price + run.count() as u64);
            }
            while way.message < run.count() {
                match self.deliver_to_group(group, of, &run.one(way.message), &mut way.refused) {
                    GroupDelivery::Over => return false,
                    given => way.has_taken |= given == GroupDelivery::Taken,
                }
                way.message += 1;
                way.refused = GroupRefusals::default();
            }
            let has_taken = std::mem::take(&mut way.has_taken);
            if !has_taken && matched.has_groups_at_hubs {
                let hub = self.routing.subjects.hub_of_group(group, self.hubs.up);
                way.at_hubs.extend(hub);
            }
            way.reached |= has_taken;
            way.message = 0;
            way.next += 1;
        }
        let mut cores = matched.cores;
        while cores != 0 {
            let to = cores.trailing_zeros() as usize;
            cores &= cores - 1;
            way.reached = true;
            self.turn.work.add(price);
            let to = Destination { core: to, account: of.account, is_imported: of.is_imported, to: To::All };
            send_across(&mut self.outputs, &mut self.links, of.from, to, of.producer, run);
        }
        let hubs = matched.hubs & self.hubs.up;
        if !of.is_from_hub && (hubs != 0 || !way.at_hubs.is_empty()) {
            way.reached |= self.send_to_hubs(of, run, hubs, &way.at_hubs);
        }
        true
    }

    /// Delivers messages from another core's producer to this core's subscribers. Returns the suspended
    /// delivery if the turn's budget is used up.
    pub(crate) fn deliver_from_core(
        &mut self,
        relayed: &RelayedRun<'_>,
        begun: Option<Box<SuspendedDelivery>>,
    ) -> Option<Box<SuspendedDelivery>> {
        let &RelayedRun { account, is_imported, producer, group, ref run } = relayed;
        let root = self.routing.subjects.root_of(account);
        let deals = self.routing.subjects.abroad.has_imports(account);
        let of =
            Origin { is_from_core: true, deals, is_imported, ..Origin::of_nobody(producer, account, root) };
        let mut rest = None;
        if let Some(group) = group {
            let of = Origin { is_from_hub: group.is_from_hub, ..of };
            let (mut way, mark) = match begun {
                Some(begun) => (begun.way, Some(begun.mark)),
                None => {
                    self.turn.work.add(work::delivery(run.count(), run.bytes.len()));
                    (DeliveryProgress::default(), None)
                }
            };
            while way.message < run.count() {
                if !self.deliver_to_group_of_core(group, &of, &run.one(way.message), &mut way.refused) {
                    rest = Some(self.begun(run, 0, Match::default(), way, false));
                    break;
                }
                way.message += 1;
                way.refused = GroupRefusals::default();
            }
            if let Some(mark) = mark {
                self.routing.subjects.came_to_end(mark);
            }
        } else {
            rest = self.hand_out(&of, run, begun).err();
        }
        self.end_finished();
        rest
    }

    /// Appends a run to a subscriber's output. Returns how many of its messages were appended.
    pub(crate) fn deliver(&mut self, sub: SubId, of: &Origin, run: &Run<'_>) -> u64 {
        let Self { outputs, links, routing: Routing { subjects, .. }, turn: Turn { now_ms, .. }, .. } = self;
        let producer = of.producer;
        let subscription = subjects.subscription(sub);
        // Numbers from `FOREIGN` upwards belong to no connection: the subscription has ended, or is in
        // another account.
        if subscription.conn >= FOREIGN {
            return self.deliver_abroad(sub, of, run);
        }
        if subscription.is_filtered
            && let Some(permissions) = &outputs.connections[subscription.conn].permissions
            && !permissions.may_receive(run.subject, subjects.queue_of(sub))
        {
            return 0;
        }
        let (subscription, count) = subjects.still_gets(sub, run.count());
        let (id, ends) = (subscription.conn, subscription.ends);
        let put = outputs.put(subscription, count, producer, run, *now_ms);
        let delivered = match put {
            PutOutcome::Appended(count) => count,
            PutOutcome::Backlogged(count) => {
                outputs.note_backlog(id, producer, count * run.stride, *now_ms, links);
                count
            }
            PutOutcome::Nothing => 0,
            PutOutcome::NoRoom => {
                let subject = subjects.a_subject_of(&outputs.connections[id]);
                outputs.cut_slow(id, CloseReason::SlowConsumerPending, &subject);
                0
            }
        };
        if delivered > 0 && protocol_log::is_wanted() {
            protocol_log::messages(outputs.connections[id].cid, "MSG", run, delivered);
        }
        if ends && delivered > 0 {
            subjects.note_delivered(sub);
        }
        delivered as u64
    }

    #[inline]
    fn count_in(&mut self, id: ConnId, run: &Run<'_>) {
        let connection = &mut self.outputs.connections[id];
        let count = run.count() as u64;
        connection.messages_in += count;
        connection.payload_in_bytes += count * run.body_bytes as u64;
        self.observers.counters.add(Counter::MessagesIn, count);
        self.observers.counters.add(Counter::PayloadIn, count * run.body_bytes as u64);
    }

    pub(crate) fn count_out(&self, delivered: u64, run: &Run<'_>) {
        if delivered > 0 {
            self.observers.counters.add(Counter::MessagesOut, delivered);
            self.observers.counters.add(Counter::PayloadOut, delivered * run.body_bytes as u64);
        }
    }

    /// Delivers a run of the server's own messages to all subscribers in one turn, without a budget.
    pub(crate) fn hand_out_at_once(&mut self, of: &Origin, run: &Run<'_>) {
        let work = std::mem::replace(&mut self.turn.work, Work::of(u64::MAX));
        let rest = self.hand_out(of, run, None);
        assert!(rest.is_ok(), "a turn without an end does all");
        self.turn.work = work;
    }

    /// Tells a requester that there are no responders, if it asked for that in CONNECT and subscribes to the
    /// reply subject.
    ///
    /// # Errors
    /// [`SuspendedDelivery`] if the turn's budget is used up.
    #[cold]
    fn tell_no_responders(
        &mut self,
        id: ConnId,
        run: &Run<'_>,
        begun: Option<Box<SuspendedDelivery>>,
    ) -> Result<(), Box<SuspendedDelivery>> {
        let connection = &self.outputs.connections[id];
        if !connection.no_responders {
            return Ok(());
        }
        let root = connection.root;
        let (slot, matched, mark) = match begun {
            None => {
                let (slot, matched) = self.routing.subjects.matches.take(
                    &self.routing.subjects.trie,
                    root,
                    run.reply,
                    &mut self.turn.work,
                );
                if !self.routing.subjects.matches.is_whole() {
                    return Err(self.begun(run, slot, matched, DeliveryProgress::default(), true));
                }
                (slot, matched, None)
            }
            Some(mut begun) => {
                if self.continue_lookup(run.reply, &mut begun) {
                    return Err(begun);
                }
                let SuspendedDelivery { slot, matched, mark, .. } = *begun;
                (slot, matched, Some(mark))
            }
        };
        self.turn
            .work
            .add(run.count() as u64 * work::ANSWER + (matched.subscribers.len() / work::LISTED) as u64);
        let Self { outputs, routing: Routing { subjects, .. }, .. } = self;
        let mut all = matched.subscribers.iter().map(|&sub| subjects.subscription(sub));
        if let Some(subscription) = all.find(|subscription| subscription.conn == id) {
            for _ in 0..run.count() {
                outputs.say_no_responders(id, run.reply, &subscription.sid, run.subject);
                self.observers.counters.add(Counter::NoResponders, 1);
            }
        }
        subjects.matches.put_back(slot, matched);
        if let Some(mark) = mark {
            subjects.came_to_end(mark);
        }
        Ok(())
    }

    /// Removes subscriptions that have received their last message, within the turn's budget. The rest is
    /// removed before any other operation of a client.
    #[inline]
    pub(crate) fn end_finished(&mut self) {
        if self.routing.subjects.a_finished().is_some() {
            self.end_finished_ones();
        }
    }

    #[cold]
    fn end_finished_ones(&mut self) {
        while let Some((sub, id)) = self.routing.subjects.a_finished() {
            if !self.end_subscription(id, sub) {
                return;
            }
        }
    }
}
