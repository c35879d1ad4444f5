//! Forwarding of requests to services of other accounts, and of the answers back.
//!
//! ```text
//!   account B      PUB q _INBOX.1    ─ a service of A's? ─┐                               ┌▶ _INBOX.1 in B
//!   account A                                             └▶ x _R_.c.t ─ answer: _R_.c.t ─┘
//! ```
//! A forwarded message is published in the other account like any other, and may match an imported service
//! again. Each step is a [`Level`] on a stack, and the deepest level is processed first. If the turn's budget
//! runs out before all levels are processed, [`SuspendedDelivery`] holds the remaining work. The messages of
//! a run (consecutive messages to one subject) are forwarded one by one, because each request gets its own
//! answer.
//!
//! A header of the request describes the requesting client, a message that arrived through a service import is
//! not delivered through a stream import, and no message passes through an export twice, as in nats-server.
//! *Bound:* a message passes through at most [`LEVELS_MAX`] levels.

use std::rc::Rc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use wire::nats::write;

use crate::{
    accounts::{
        identity::{AccountId, MappingResult, Target},
        imports::ServiceImport,
        info_header::{WHO_ASKS, has_who_asks, with_line, without_who_asks},
        pending_calls::{AnswerRoute, OpenOutcome, Request},
        service_chain::{Level, Message, RequestInfo, ServiceImportChain, Way},
    },
    client::connection::Connection,
    counters::Counter,
    delivery::{origin::Origin, run::Run, suspended::SuspendedDelivery, work},
    mesh::core::Core,
};

/// Largest number of accounts that a message may pass through via service imports.
const LEVELS_MAX: usize = 64;

/// Description of the requesting client, in nats-server's format.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct WhoAsks {
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    acc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    svc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lang: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ver: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_type: Option<String>,
}

impl Core {
    /// Publishes a run (consecutive messages to one subject) in its account and forwards it to imported
    /// services, or resumes an interrupted call. Returns whether a subscriber was reached.
    ///
    /// # Errors
    /// [`SuspendedDelivery`] if the turn's budget is used up; it holds the remaining work for a later turn.
    #[cold]
    pub(crate) fn hand_out_and_cross(
        &mut self,
        of: &Origin,
        run: &Run<'_>,
        mut begun: Option<Box<SuspendedDelivery>>,
    ) -> Result<bool, Box<SuspendedDelivery>> {
        let crossing = begun.as_mut().and_then(|begun| begun.crossing.take());
        let mut crossing = if let Some(crossing) = crossing {
            *crossing
        } else {
            let reached = self.hand_out_here(of, run, begun.take())?;
            let ways = self.next_services(of, run.subject);
            if ways.is_empty() {
                return Ok(reached);
            }
            let level = Level { ways, reached, is_new: false, ..Level::new(of, Message::Published) };
            ServiceImportChain { levels: vec![level] }
        };
        if let Some(reached) = self.continue_chain(run, &mut crossing) {
            if let Some(begun) = begun {
                self.let_go(*begun);
            }
            return Ok(reached);
        }
        let mut begun = begun.unwrap_or_else(|| self.begun_crossing(run));
        begun.crossing = Some(Box::new(crossing));
        self.count(Counter::TurnsEnded);
        Err(begun)
    }

    /// Forwards messages through all levels of service imports. Returns whether a subscriber was reached;
    /// `None` if the turn's budget is used up first.
    fn continue_chain(&mut self, run: &Run<'_>, crossing: &mut ServiceImportChain) -> Option<bool> {
        loop {
            let depth = crossing.levels.len() - 1;
            if crossing.levels[depth].is_new {
                let begun = crossing.levels[depth].begun.take();
                let of = crossing.levels[depth].of;
                let here = crossing.run(depth, run);
                match self.hand_out_here(&of, &here, begun) {
                    Err(begun) => {
                        crossing.levels[depth].begun = Some(begun);
                        return None;
                    }
                    Ok(reached) => {
                        let is_asked = of.account == AccountId::SYSTEM.0
                            && !here.reply.is_empty()
                            && self.ask_system(&here);
                        let ways = self.next_services(&of, here.subject);
                        let level = &mut crossing.levels[depth];
                        level.reached |= reached || is_asked;
                        level.ways = ways;
                        level.is_new = false;
                    }
                }
            }
            let here = crossing.run(depth, run);
            let level = &crossing.levels[depth];
            if let Some(way) = level.ways.get(level.way).cloned() {
                if self.is_turn_over() {
                    return None;
                }
                let next = self.next_level(crossing, &here.one(level.at), &way);
                let count = here.count();
                let level = &mut crossing.levels[depth];
                level.at += 1;
                if level.at == count {
                    level.at = 0;
                    level.way += 1;
                }
                crossing.levels.extend(next);
                continue;
            }
            let level = crossing.levels.pop()?;
            self.close_level(&level);
            match crossing.levels.last_mut() {
                Some(before) => before.reached |= level.reached,
                None => return Some(level.reached),
            }
        }
    }

    /// Returns the destinations of a message outside its own account: services that the account imports, and
    /// the request that the message answers.
    fn next_services(&mut self, of: &Origin, subject: &[u8]) -> SmallVec<[Way; 2]> {
        let mut ways = SmallVec::new();
        if !of.deals {
            return ways;
        }
        if let Some(token) = self.routing.requests.token_of(subject) {
            ways.push(Way::Answer(token));
        }
        // The core that sent the message has looked up the services already.
        if !of.is_from_core {
            ways.extend(self.routing.subjects.services_of(of.account, subject).into_iter().map(Way::Service));
        }
        ways
    }

    /// Builds the next level for a message of the deepest level that is forwarded to this destination.
    fn next_level(&mut self, crossing: &ServiceImportChain, one: &Run<'_>, way: &Way) -> Option<Level> {
        self.turn.work.add(work::SUBSCRIBE + (one.bytes.len() / 1024) as u64);
        if crossing.levels.len() >= LEVELS_MAX {
            return None;
        }
        let (published, from) = (crossing.levels.first()?, crossing.levels.last()?);
        match way {
            Way::Service(taken) => self.ask(from, published.of.account, one, taken),
            Way::Answer(token) => self.answer(from, one, *token),
        }
    }

    fn ask(
        &mut self,
        from: &Level,
        published_in: u16,
        one: &Run<'_>,
        taken: &Rc<ServiceImport>,
    ) -> Option<Level> {
        let service = &taken.service;
        let export = taken.export.get();
        if taken.is_gone.get() || from.passed.contains(&export) {
            return None;
        }
        let mut subject = Vec::new();
        match &service.to {
            Target::Subject(to) => subject.extend_from_slice(to.as_bytes()),
            Target::Path(path) => path.apply(one.subject, &mut subject),
        }
        if let Some(mappings) = self.routing.mappings.as_ref().and_then(|all| all.get(&service.exporter)) {
            let mut mapped = Vec::new();
            if let MappingResult::Other =
                mappings.apply(&subject, |below| self.routing.dice.throw(below), &mut mapped)
            {
                if mapped.is_empty() {
                    return None;
                }
                subject = mapped;
            }
        }
        let route = AnswerRoute { at: service.exporter, to: service.importer };
        let asks = self.ask_for_answer(from, one, taken, route)?;
        let who = self.who_asks(from, published_in, one, taken);
        let of = self.origin_in(service.exporter, &from.of);
        let message = match who {
            None if one.reply.is_empty() && !has_who_asks(header_of(one)) => {
                Message::Renamed { subject: subject.into(), at: from.at }
            }
            who => Message::Written(self.written(one, subject, asks, who.as_deref())),
        };
        let mut passed = from.passed.clone();
        passed.push(export);
        Some(Level { asks, passed, ..Level::new(&of, message) })
    }

    fn answer(&mut self, from: &Level, one: &Run<'_>, token: u64) -> Option<Level> {
        let request = self.routing.requests.find(token, from.of.account, self.turn.now_ms)?.clone();
        if from.of.is_from_core && self.links.is_any_full() {
            // The answering client is on another core and cannot be paused from here.
            self.count(Counter::AnswersLost);
            return None;
        }
        let Request { route: AnswerRoute { at: exporter, to: importer }, reply, taken, .. } = request;
        // An answer may have a reply subject itself.
        let asks = self.ask_for_answer(from, one, &taken, AnswerRoute { at: importer, to: exporter })?;
        let of = self.origin_in(importer, &from.of);
        let message = match asks {
            None if !has_who_asks(header_of(one)) => {
                Message::Renamed { subject: reply.to_vec().into(), at: from.at }
            }
            asks => Message::Written(self.written(one, reply.to_vec(), asks, None)),
        };
        let is_last = one.body_bytes == 0;
        let mut passed = from.passed.clone();
        passed.push(taken.export.get());
        Some(Level { asks, answers: Some((token, is_last)), passed, ..Level::new(&of, message) })
    }

    /// Opens a pending request for a message if it has a reply subject, and returns its token. `None`: the
    /// table is full.
    #[expect(clippy::option_option, reason = "no room, no answer wanted, or where the answer comes to")]
    fn ask_for_answer(
        &mut self,
        from: &Level,
        one: &Run<'_>,
        taken: &Rc<ServiceImport>,
        route: AnswerRoute,
    ) -> Option<Option<u64>> {
        if one.reply.is_empty() {
            return Some(None);
        }
        let was_empty = self.routing.requests.len() == 0;
        let opened =
            self.routing.requests.open(route, one.reply, taken, from.of.producer.cid, self.turn.now_ms);
        self.observers.counters.set(Counter::RequestsOpen, self.routing.requests.len() as u64);
        if was_empty {
            // Wakes the housekeeping, which closes the request when it expires.
            self.outputs.rounds.stir();
        }
        match opened {
            OpenOutcome::Open { token, forgot } => {
                if forgot {
                    self.count(Counter::RequestsForgotten);
                }
                Some(Some(token))
            }
            OpenOutcome::Refused => {
                self.count(Counter::RequestsRefused);
                None
            }
        }
    }

    /// Ends a level: closes the request that its message opened, unless a subscriber was reached and may
    /// answer.
    fn close_level(&mut self, level: &Level) {
        if let Some(token) = level.asks.filter(|_| !level.reached) {
            self.routing.requests.close(token);
        }
        if let Some((token, is_last)) = level.answers {
            self.routing.requests.answered(token, is_last || !level.reached, self.turn.now_ms);
        }
        self.observers.counters.set(Counter::RequestsOpen, self.routing.requests.len() as u64);
    }

    /// Ends all levels of a message whose producer has left.
    pub(crate) fn abandon_chain(&mut self, crossing: ServiceImportChain) {
        for mut level in crossing.levels {
            if let Some(begun) = level.begun.take() {
                self.let_go(*begun);
            }
            self.close_level(&level);
        }
    }

    /// Closes expired requests. Returns the time at which the next one expires.
    pub(crate) fn close_overdue_requests(&mut self) -> Option<u64> {
        const AT_ONCE: usize = 4096;
        if self.routing.requests.len() == 0 {
            return None;
        }
        let (closed, due_ms) = self.routing.requests.close_overdue(self.turn.now_ms, AT_ONCE);
        self.observers.counters.add(Counter::RequestsUnanswered, closed as u64);
        self.observers.counters.set(Counter::RequestsOpen, self.routing.requests.len() as u64);
        due_ms
    }

    fn origin_in(&mut self, account: u16, from: &Origin) -> Origin {
        Origin {
            account,
            root: self.routing.subjects.root_of(account),
            is_from_core: false,
            is_from_hub: false,
            are_groups_named: false,
            deals: true,
            is_imported: true,
            ..*from
        }
    }

    /// Builds a copy of a message with a new subject, reply subject and header.
    fn written(&self, one: &Run<'_>, subject: Vec<u8>, asks: Option<u64>, who: Option<&str>) -> RequestInfo {
        let body = &one.bytes[one.stride - 2 - one.body_bytes..one.stride - 2];
        let (header, payload) = body.split_at(one.header_bytes.unwrap_or(0).min(body.len()));
        let header = match who {
            Some(who) => with_line(header, who),
            None => without_who_asks(header),
        };
        let reply = asks.map_or_else(Vec::new, |token| self.routing.requests.subject_of(token));
        let mut bytes = Vec::with_capacity(header.len() + payload.len() + subject.len() + reply.len() + 64);
        let has_header = !header.is_empty();
        if has_header {
            write::hpublish(&mut bytes, &subject, &reply, &header, payload);
        } else {
            write::publish(&mut bytes, &subject, &reply, payload);
        }
        let verb = if has_header { "HPUB ".len() } else { "PUB ".len() };
        RequestInfo {
            tail_at: verb + subject.len(),
            body_bytes: header.len() + payload.len(),
            header_bytes: has_header.then_some(header.len()),
            subject: subject.into(),
            reply,
            bytes,
        }
    }

    /// Returns the description of the requesting client in JSON; `None` if there is none.
    fn who_asks(
        &self,
        from: &Level,
        published_in: u16,
        one: &Run<'_>,
        taken: &ServiceImport,
    ) -> Option<String> {
        let importer = self.settings.identities.account_name(AccountId(taken.service.importer));
        let before = (!from.passed.is_empty()).then(|| said_before(one)).flatten();
        let who = if let Some(mut before) = before {
            before.svc = Some(importer.to_owned());
            before
        } else {
            let producer = from.of.producer;
            let is_here = usize::from(producer.core) == self.index;
            if let Some(connection) = is_here.then(|| self.outputs.connections.find(producer.conn)).flatten()
            {
                self.who_is(connection, taken.service.share)
            } else {
                // For a client on another core or behind a hub, only the account is known. The description
                // from a hub is not trusted.
                let account = self.settings.identities.account_name(AccountId(published_in));
                WhoAsks { acc: Some(account.to_owned()), ..WhoAsks::default() }
            }
        };
        serde_json::to_string(&who).ok()
    }

    fn who_is(&self, connection: &Connection, share: bool) -> WhoAsks {
        let account = self.settings.identities.account_name(AccountId(connection.account));
        let rtt = connection.rtt_ms.filter(|rtt_ms| *rtt_ms > 0).map(|rtt_ms| u64::from(rtt_ms) * 1_000_000);
        let who = WhoAsks { acc: Some(account.to_owned()), rtt, ..WhoAsks::default() };
        if !share {
            return who;
        }
        let told = connection.told.as_deref();
        let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        let started = std::time::UNIX_EPOCH + std::time::Duration::from_millis(connection.started_unix_ms);
        WhoAsks {
            start: Some(crate::monitor::times::moment(started)),
            host: Some(connection.address.ip().to_string()),
            id: Some(connection.cid),
            user: text(connection.identity.as_ref().and_then(|identity| identity.name.as_deref())),
            name: text(told.map(|told| &*told.name)),
            lang: text(told.map(|told| &*told.lang)),
            ver: text(told.map(|told| &*told.version)),
            server: Some(self.settings.config.server_name.clone()),
            kind: Some("Client".to_owned()),
            client_type: Some(if connection.transport.websocket { "websocket" } else { "nats" }.to_owned()),
            ..who
        }
    }
}

/// Reads the description of the requesting client from the header of a message that arrived through a service
/// import.
fn said_before(one: &Run<'_>) -> Option<WhoAsks> {
    let mut lines = header_of(one).split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let value = lines.find_map(|line| line.strip_prefix(WHO_ASKS.as_bytes())?.strip_prefix(b":"))?;
    serde_json::from_slice(value).ok()
}

/// Returns the header of a message; empty if it has none.
fn header_of<'a>(one: &Run<'a>) -> &'a [u8] {
    let body = &one.bytes[one.stride - 2 - one.body_bytes..one.stride - 2];
    &body[..one.header_bytes.unwrap_or(0).min(body.len())]
}
