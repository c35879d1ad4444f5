//! From a producer's bytes to the consumers' outputs.
//!
//! ```text
//!   PUB a.b 100␍␊…␍␊PUB a.b 100␍␊…␍␊PUB a.b 100␍␊…␍␊      a run: the same control line again and again
//!      └─subject─┘└──── tail ────┘
//!   for each subscriber of a.b:    MSG a.b 7 + tail, MSG a.b 7 + tail, …   into its chunk: two copies a message
//! ```
//!
//! What follows the subject in a PUB is byte for byte what follows the sid in the MSG, so a delivery is a prefix, made
//! once a run and subscriber, and a tail, copied from the read buffer. Going subscriber by subscriber through a run
//! keeps one prefix, one source and one destination in the nearest cache; a chunk that fills up is written at once and
//! goes round, so that a hundred subscribers of a large read share a few chunks instead of filling a hundred.
//!
//! A run never holds a message that is not whole.
//!
//! *A turn's end.* A run for many is handed out in several turns ([`SuspendedDelivery`] says how far it has come); what its producer
//! sent behind it waits, so that each consumer gets a producer's messages in their order. Who subscribes meanwhile may
//! get it or not; who leaves gets nothing more.

mod checks;

use smallvec::SmallVec;

use crate::{
    accounts::{identity::AccountId, mapping::By, service_calls::ServiceImportChain},
    client::{
        connection::{CloseReason, ConnId, FOREIGN},
        protocol_log,
    },
    counters::Counter,
    delivery::{
        backpressure::Producer,
        outputs::{Outputs, PutOutcome},
        run::Run,
        work::{self, Work},
    },
    mesh::{
        core::Core,
        links::{Destination, GroupOfCore, Links, To},
    },
    routing::{
        matching::{self, Match},
        number_reuse::Mark,
        queue_groups::{GroupDelivery, GroupRefusals},
        trie::{HubId, NodeId, OpenLookup, Part, SubId},
    },
};

/// Whose messages are handed out, and to whom.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// Who made this happen: it waits if too much is under way to another core.
    pub(crate) from: ConnId,
    pub(crate) producer: Producer,
    pub(crate) account: u16,
    pub(crate) root: NodeId,
    /// Another core has sent them, for subscribers of this one that are in no group: the others are that core's to serve.
    pub(crate) is_from_core: bool,
    /// A hub has sent them: no hub gets them.
    pub(crate) is_from_hub: bool,
    /// It has named the queue groups that get them: they are served by name.
    pub(crate) are_groups_named: bool,
    /// The account has or takes a service of another.
    pub(crate) deals: bool,
    /// They came by a service from another account: into no stream of this one.
    pub(crate) is_imported: bool,
}

impl Origin {
    /// Of what no client has sent, in an account that has nothing for others and takes nothing.
    pub(crate) fn of_nobody(producer: Producer, account: u16, root: NodeId) -> Self {
        Self {
            from: producer.conn,
            producer,
            account,
            root,
            is_from_core: false,
            is_from_hub: false,
            are_groups_named: false,
            deals: false,
            is_imported: false,
        }
    }
}

/// Groups of which the members at a hub get a message.
pub(crate) type AtHubs = SmallVec<[(HubId, Part); 2]>;

/// How far a run has come through its [`Match`].
#[derive(Debug, Default)]
struct Way {
    /// The next of the subscribers, or behind them of the groups.
    next: usize,
    reached: bool,
    /// The next message of the run for the next group.
    message: usize,
    /// Who of that group has refused that message.
    refused: GroupRefusals,
    /// Somebody of that group has taken a message before that.
    has_taken: bool,
    /// Groups that nobody of ours took it for, and the hub whose members get it.
    at_hubs: AtHubs,
}

/// A run that was not handed out to all before its turn's work was done.
#[derive(Debug)]
pub(crate) struct SuspendedDelivery {
    /// How many bytes the run has: behind them more may have come that is like it.
    pub(crate) run_bytes: usize,
    slot: usize,
    matched: Match,
    /// Where it is still to be looked for subscribers, before any is given something.
    open: OpenLookup,
    way: Way,
    /// Nobody was reached: the subscribers looked for are those of the answer.
    is_for_reply: bool,
    /// Where the run's subject is another's.
    pub(crate) mapped: Option<BegunMapped>,
    /// It was handed out in its account, and goes on into others.
    pub(crate) crossing: Option<Box<ServiceImportChain>>,
    mark: Mark,
}

/// Of a run whose subject is another's, or may be another one's for each message.
#[derive(Debug)]
pub(crate) struct BegunMapped {
    /// The subject that was chosen.
    pub(crate) subject: Box<[u8]>,
    /// The message of the run, where each has a subject of its own.
    pub(crate) message: Option<usize>,
}

impl Core {
    /// Whether this turn's work is done, with the writes that will end it.
    #[inline]
    pub(crate) fn is_turn_over(&self) -> bool {
        self.work.is_over(self.outputs.dirty() as u64 * work::WRITE)
    }

    /// Hands a run to whoever matches its subject, or goes on with it. Whether anybody was reached; or what is to go on
    /// in another turn.
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

    /// The same in its account alone.
    pub(crate) fn hand_out_here(
        &mut self,
        of: &Origin,
        run: &Run<'_>,
        begun: Option<Box<SuspendedDelivery>>,
    ) -> Result<bool, Box<SuspendedDelivery>> {
        if let Some(begun) = begun {
            return self.go_on(of, run, begun);
        }
        let (slot, matched) =
            self.subjects.matches.take(&self.subjects.trie, of.root, run.subject, &mut self.work);
        let mut way = Way::default();
        if self.subjects.matches.is_whole()
            && (matched.is_empty() || self.spread(of, run, &matched, &mut way))
        {
            self.subjects.matches.put_back(slot, matched);
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
        way: Way,
        is_for_reply: bool,
    ) -> Box<SuspendedDelivery> {
        self.count(Counter::TurnsEnded);
        let (open, mark) = (self.subjects.matches.take_open(), self.subjects.trie.marks.begin());
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

    /// What is noted of a run that goes on into other accounts: nobody is left in its own.
    pub(crate) fn begun_crossing(&mut self, run: &Run<'_>) -> Box<SuspendedDelivery> {
        // The place of no subject in particular, from which something is forgotten when it ends.
        self.begun(run, 0, Match::default(), Way::default(), false)
    }

    #[cold]
    fn go_on(
        &mut self,
        of: &Origin,
        run: &Run<'_>,
        mut begun: Box<SuspendedDelivery>,
    ) -> Result<bool, Box<SuspendedDelivery>> {
        if self.looks_on(run.subject, &mut begun) || !self.spread(of, run, &begun.matched, &mut begun.way) {
            self.count(Counter::TurnsEnded);
            return Err(begun);
        }
        let reached = begun.way.reached;
        self.let_go(*begun);
        Ok(reached)
    }

    /// Goes on to look for subscribers; whether that is not over.
    fn looks_on(&mut self, subject: &[u8], begun: &mut SuspendedDelivery) -> bool {
        let SuspendedDelivery { matched, open, .. } = begun;
        if !open.is_empty() {
            matching::go_on(matched, open, &self.subjects.trie, subject, &mut self.work);
        }
        !open.is_empty()
    }

    /// A run that was put off has come to its end, or its producer is gone.
    pub(crate) fn let_go(&mut self, begun: SuspendedDelivery) {
        if let Some(crossing) = begun.crossing {
            self.let_go_of_crossing(*crossing);
        }
        self.subjects.came_to_end(begun.mark);
        self.subjects.matches.put_back(begun.slot, begun.matched);
    }

    /// Takes messages of a client, or goes on with those that it was put off with. Whether all is done: else it goes on in
    /// another turn, and what the client said behind them waits.
    #[inline]
    pub(crate) fn publish(
        &mut self,
        id: ConnId,
        run: &Run<'_>,
        begun: Option<Box<SuspendedDelivery>>,
    ) -> bool {
        if self.mappings.is_some() || begun.as_ref().is_some_and(|begun| begun.mapped.is_some()) {
            self.publish_mapped(id, run, begun, By::Client)
        } else {
            self.publish_as_it_is(id, run, begun)
        }
    }

    /// The same with messages whose subject is not another's.
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
                    // Whoever else listens there, the server is asked, too.
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

    /// Notes what goes on in another turn; whether nothing does.
    fn is_done(&mut self, id: ConnId, outcome: Result<(), Box<SuspendedDelivery>>) -> bool {
        let begun = outcome.err();
        let is_done = begun.is_none();
        if !is_done {
            self.outputs.connections[id].begun = begun;
        }
        is_done
    }

    /// Takes messages of a client that are to be lost; whether all is done.
    pub(crate) fn publish_to_nobody(&mut self, id: ConnId, run: &Run<'_>) -> bool {
        self.count_in(id, run);
        self.say_ok(id);
        if run.reply.is_empty() {
            return true;
        }
        let outcome = self.tell_no_responders(id, run, None);
        self.is_done(id, outcome)
    }

    /// Delivers to whoever matches, from where it has come to; whether that was all before the turn's work was done.
    fn spread(&mut self, of: &Origin, run: &Run<'_>, matched: &Match, way: &mut Way) -> bool {
        let price = work::delivery(run.count(), run.bytes.len());
        let mut delivered = 0;
        let mut is_over = false;
        while let Some(&sub) = matched.subscribers.get(way.next) {
            is_over = self.is_turn_over();
            if is_over {
                break;
            }
            self.work.add(price);
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
                self.work.add(price + run.count() as u64);
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
                let hub = self.subjects.hub_of_group(group, self.hubs_up);
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
            self.work.add(price);
            let to = Destination { core: to, account: of.account, is_imported: of.is_imported, to: To::All };
            send_across(&mut self.outputs, &mut self.links, of.from, to, of.producer, run);
        }
        let hubs = matched.hubs & self.hubs_up;
        if !of.is_from_hub && (hubs != 0 || !way.at_hubs.is_empty()) {
            way.reached |= self.send_to_hubs(of, run, hubs, &way.at_hubs);
        }
        true
    }

    /// What another core's producer sent, for this core's subscribers; what is not done in this turn.
    pub(crate) fn deliver_from_core(
        &mut self,
        (account, is_imported): (u16, bool),
        producer: Producer,
        group: Option<GroupOfCore<'_>>,
        run: &Run<'_>,
        begun: Option<Box<SuspendedDelivery>>,
    ) -> Option<Box<SuspendedDelivery>> {
        let root = self.subjects.root_of(account);
        let deals = self.subjects.abroad.deals(account);
        let of =
            Origin { is_from_core: true, deals, is_imported, ..Origin::of_nobody(producer, account, root) };
        let mut rest = None;
        if let Some(group) = group {
            let of = Origin { is_from_hub: group.is_from_hub, ..of };
            let (mut way, mark) = match begun {
                Some(begun) => (begun.way, Some(begun.mark)),
                None => {
                    self.work.add(work::delivery(run.count(), run.bytes.len()));
                    (Way::default(), None)
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
                self.subjects.came_to_end(mark);
            }
        } else {
            rest = self.hand_out(&of, run, begun).err();
        }
        self.end_finished();
        rest
    }

    /// Appends a run to a subscriber's output; how many messages of it.
    pub(crate) fn deliver(&mut self, sub: SubId, of: &Origin, run: &Run<'_>) -> u64 {
        let Self { subjects, outputs, links, now_ms, .. } = self;
        let producer = of.producer;
        let subscription = subjects.subscription(sub);
        // Nobody's connection has such a number: it has ended, or is not a client's own.
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
            subjects.had_some(sub);
        }
        delivered as u64
    }

    #[inline]
    fn count_in(&mut self, id: ConnId, run: &Run<'_>) {
        let connection = &mut self.outputs.connections[id];
        let count = run.count() as u64;
        connection.messages_in += count;
        connection.payload_in_bytes += count * run.body_bytes as u64;
        self.counters.add(Counter::MessagesIn, count);
        self.counters.add(Counter::PayloadIn, count * run.body_bytes as u64);
    }

    pub(crate) fn count_out(&self, delivered: u64, run: &Run<'_>) {
        if delivered > 0 {
            self.counters.add(Counter::MessagesOut, delivered);
            self.counters.add(Counter::PayloadOut, delivered * run.body_bytes as u64);
        }
    }

    /// Hands a run of the server's own to whoever matches its subject, whatever that costs: it is bounded by how
    /// often an operator asks.
    pub(crate) fn hand_out_at_once(&mut self, of: &Origin, run: &Run<'_>) {
        let work = std::mem::replace(&mut self.work, Work::of(u64::MAX));
        let rest = self.hand_out(of, run, None);
        assert!(rest.is_ok(), "a turn without an end does all");
        self.work = work;
    }

    /// Nobody was there to answer: the requester is told, if it wants to know and listens for the answer. What is not
    /// done in this turn.
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
                let (slot, matched) =
                    self.subjects.matches.take(&self.subjects.trie, root, run.reply, &mut self.work);
                if !self.subjects.matches.is_whole() {
                    return Err(self.begun(run, slot, matched, Way::default(), true));
                }
                (slot, matched, None)
            }
            Some(mut begun) => {
                if self.looks_on(run.reply, &mut begun) {
                    return Err(begun);
                }
                let SuspendedDelivery { slot, matched, mark, .. } = *begun;
                (slot, matched, Some(mark))
            }
        };
        self.work.add(run.count() as u64 * work::ANSWER + (matched.subscribers.len() / work::LISTED) as u64);
        let Self { subjects, outputs, .. } = self;
        let mut all = matched.subscribers.iter().map(|&sub| subjects.subscription(sub));
        if let Some(subscription) = all.find(|subscription| subscription.conn == id) {
            for _ in 0..run.count() {
                outputs.say_no_responders(id, run.reply, &subscription.sid, run.subject);
                self.counters.add(Counter::NoResponders, 1);
            }
        }
        subjects.matches.put_back(slot, matched);
        if let Some(mark) = mark {
            subjects.came_to_end(mark);
        }
        Ok(())
    }

    /// Ends the subscriptions that have had their last message, as long as the turn's work allows: what is left is ended
    /// before anything else that a client says.
    #[inline]
    pub(crate) fn end_finished(&mut self) {
        if self.subjects.a_finished().is_some() {
            self.end_finished_ones();
        }
    }

    #[cold]
    fn end_finished_ones(&mut self) {
        while let Some((sub, id)) = self.subjects.a_finished() {
            if !self.end_subscription(id, sub) {
                return;
            }
        }
    }
}

/// Sends messages to another core's subscribers. If too much is under way to that one, `from` waits; where the producer
/// is another core's, that one made it wait.
pub(crate) fn send_across(
    outputs: &mut Outputs,
    links: &mut Links,
    from: ConnId,
    to: Destination<'_>,
    producer: Producer,
    run: &Run<'_>,
) {
    outputs.counters.add(Counter::RunsAcross, 1);
    let has_room = links.run(to, producer, run);
    if !has_room && usize::from(producer.core) == outputs.core && outputs.wait_for_core(from) {
        links.pause(from);
    }
}
