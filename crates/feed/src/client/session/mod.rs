//! Execution of a client's operations, one after the other.

mod subscriptions;

use std::rc::Rc;

use wire::nats::{
    Progress,
    client::{self, ClientOp, Publish},
    rejection::Rejection,
    write,
};

use crate::{
    accounts::identity::{AccountId, Check, Credentials, Identity, LoginError, Replies, SlowCheck},
    client::{
        connection::{ClientInfo, ConnId, ConnectOptions, Stage},
        protocol_log,
    },
    delivery::{
        run::Run,
        work::{self, SUBSCRIBE, WALKS},
    },
    mesh::{core::Core, shared::InfoOccasion},
    routing::trie::tokens_of,
};

/// Result of executing the operations in the bytes of a read.
#[derive(Debug)]
pub(crate) enum ReadOutcome {
    /// All complete operations are executed. The next has at least `need` bytes.
    More { need: usize },
    /// The connection is closing.
    Closing,
    /// A password must be checked before any later operation.
    Check(SlowCheck),
    /// Reads are paused: a consumer holds this producer back, or the client does not read its answers.
    Held,
    /// The turn's budget is used up.
    Over,
    /// Messages that other cores sent earlier must be delivered first.
    Behind,
}

/// Queue group of nats-server's own subscriptions, which no client may join.
const SYSTEM_QUEUE: &[u8] = b"_sys_";

/// Bytes of messages that are delivered before the server checks whether the producer must pause.
pub(crate) const RUN_BYTES_MAX: usize = 128 * 1024;
/// Bytes of requests that are delivered at once. The bound is lower than for other messages, because without
/// responders the server answers each request, and its answers are much longer.
const REQUESTS_BYTES_MAX: usize = 8 * 1024;

impl Core {
    /// Executes the operations at the start of `bytes`. Returns how many bytes were processed, and why it
    /// stopped.
    pub(crate) fn process(&mut self, id: ConnId, bytes: &[u8]) -> (usize, ReadOutcome) {
        let mut at = 0;
        loop {
            let connection = &self.outputs.connections[id];
            if connection.closing.is_some() {
                return (at, ReadOutcome::Closing);
            }
            if (connection.under_way.is_some() || self.routing.subjects.a_finished().is_some())
                && !self.finish_under_way(id)
            {
                return (at, ReadOutcome::Over);
            }
            let connection = &self.outputs.connections[id];
            let rest = &bytes[at..];
            if connection.stage == Stage::CredentialsNeeded
                && !matches!(rest.first(), None | Some(b'C' | b'c'))
            {
                self.outputs.reject(id, Rejection::AuthorizationViolation);
                return (at, ReadOutcome::Closing);
            }
            let limits = &self.settings.config.limits;
            let limits = client::Limits {
                control_line_bytes_max: limits.max_control_line,
                payload_bytes_max: limits.max_payload.min(connection.payload_max),
                headers: connection.headers,
            };
            match client::parse(rest, &limits) {
                Ok(Progress::Complete(ClientOp::Publish(publish), taken)) => {
                    if let Some(waits) = self.must_wait_to_publish(id) {
                        return (at, waits);
                    }
                    self.turn.work.add(1);
                    match self.take_messages(id, &publish, &bytes[at..]) {
                        Some(more) => at += taken + more,
                        None => return (at, ReadOutcome::Over),
                    }
                    if self.outputs.connections[id].is_held() {
                        return (at, ReadOutcome::Held);
                    }
                }
                Ok(Progress::Complete(op, taken)) => {
                    // An operation such as PING is answered only after everything that arrived before it is
                    // delivered.
                    if self.turn.backlog.done < self.outputs.connections[id].behind {
                        self.wait_for_inbox(id);
                        return (at, ReadOutcome::Behind);
                    }
                    if self.turn.work.lacks(steps_at_most(&op)) {
                        return (at, ReadOutcome::Over);
                    }
                    // A second CONNECT removes the earlier subscriptions, as in nats-server.
                    if let ClientOp::Connect { .. } = op
                        && self.outputs.connections[id].stage == Stage::Connected
                        && !self.end_some(id)
                    {
                        return (at, ReadOutcome::Over);
                    }
                    at += taken;
                    self.turn.work.add(price(&op));
                    if let Some(check) = self.carry_out(id, op) {
                        return (at, ReadOutcome::Check(check));
                    }
                    if self.outputs.connections[id].is_held() {
                        return (at, ReadOutcome::Held);
                    }
                }
                Ok(Progress::NeedMore(need)) => return (at, ReadOutcome::More { need }),
                Err(rejection) => {
                    self.outputs.reject(id, rejection);
                    return (at, ReadOutcome::Closing);
                }
            }
            if self.is_turn_over() {
                return (at, ReadOutcome::Over);
            }
        }
    }

    /// Returns the reason why a message cannot be published now. Either subscriptions of other cores that
    /// were announced before its bytes arrived are not applied yet, so that some subscribers would miss it;
    /// or too many bytes are on their way to another core. A delivery that has begun is finished. The message
    /// does not wait for later announcements; otherwise clients that subscribe endlessly would keep all other
    /// clients from publishing.
    #[inline]
    fn must_wait_to_publish(&mut self, id: ConnId) -> Option<ReadOutcome> {
        if self.turn.backlog.unheard == 0 && !self.links.is_overfull() {
            return None;
        }
        self.must_wait_for_cores(id)
    }

    #[cold]
    fn must_wait_for_cores(&mut self, id: ConnId) -> Option<ReadOutcome> {
        if self.outputs.connections[id].begun.is_some() {
            return None;
        }
        if self.turn.backlog.heard() < self.outputs.connections[id].behind {
            self.wait_for_inbox(id);
            return Some(ReadOutcome::Behind);
        }
        if !self.links.is_overfull() {
            return None;
        }
        if self.outputs.wait_for_core(id) {
            self.links.pause(id);
        }
        Some(ReadOutcome::Held)
    }

    fn wait_for_inbox(&mut self, id: ConnId) {
        self.outputs.connections[id].waits_for_inbox = true;
        self.turn.backlog.waiting.push(id);
    }

    /// Publishes a message and the similar messages that follow it. Returns the length in bytes of those that
    /// follow; `None` if the delivery continues in another turn.
    fn take_messages(&mut self, id: ConnId, first: &Publish<'_>, bytes: &[u8]) -> Option<usize> {
        let begun = self.outputs.connections[id].begun.take();
        if begun.is_none() {
            self.connect_implied(id);
        }
        if first.tail().is_none() {
            let mut rewritten = std::mem::take(&mut self.turn.buffers.rewritten);
            let usual = rewrite(first, &mut rewritten);
            let is_done = self.publish(id, &Run { bytes: &rewritten, ..usual }, begun);
            self.turn.buffers.rewritten = rewritten;
            return is_done.then_some(0);
        }
        let stride = first.whole.len();
        let mut end = stride;
        if let Some(begun) = &begun {
            end = begun.run_bytes;
        } else if !self.outputs.connections[id].verbose {
            let connection = &self.outputs.connections[id];
            let bytes_max = match first.reply.is_empty() {
                // Each answer is counted, so messages are published one by one.
                _ if connection.answers(first.subject, self.routing.mappings.is_some()) => 0,
                true => RUN_BYTES_MAX,
                // Each request may get an answer of its own, even if it is only an error, so requests are
                // published one by one.
                false if connection.deals => 0,
                false => REQUESTS_BYTES_MAX,
            };
            while end < bytes_max && client::repeats(&bytes[end..], first.line, first.body.len()).is_some() {
                end += stride;
            }
        }
        let is_done = self.publish(id, &Run::new(first, &bytes[..end]), begun);
        is_done.then_some(end - stride)
    }

    fn carry_out(&mut self, id: ConnId, op: ClientOp<'_>) -> Option<SlowCheck> {
        if protocol_log::is_wanted() {
            protocol_log::operation(self.outputs.connections[id].cid, &op);
        }
        if !matches!(op, ClientOp::Connect { .. }) {
            self.connect_implied(id);
        }
        match op {
            ClientOp::Ping => self.pong(id),
            ClientOp::Pong => self.take_pong(id),
            ClientOp::Subscribe { subject, queue, sid } => self.subscribe(id, subject, queue, sid),
            ClientOp::Unsubscribe { sid, max } => {
                self.say_ok(id);
                self.unsubscribe(id, sid, max.unwrap_or(0));
            }
            ClientOp::Connect { options } => return self.connect(id, options),
            ClientOp::Ignored | ClientOp::Publish(_) => {}
        }
        None
    }

    /// Notes a PONG from the client, which shows that it is alive.
    pub(crate) fn take_pong(&mut self, id: ConnId) {
        let now_ms = self.turn.now_ms;
        let connection = &mut self.outputs.connections[id];
        connection.pings_out = 0;
        if connection.ping_sent_ms > 0 {
            connection.rtt_ms = u32::try_from(now_ms.saturating_sub(connection.ping_sent_ms)).ok();
        }
    }

    pub(crate) fn say_ok(&mut self, id: ConnId) {
        if self.outputs.connections[id].verbose {
            self.outputs.say(id, b"+OK\r\n");
        }
    }

    fn pong(&mut self, id: ConnId) {
        self.outputs.say(id, b"PONG\r\n");
        let connection = &mut *self.outputs.connections[id];
        if std::mem::take(&mut connection.wants_second_info) {
            self.say_info(id, InfoOccasion::Change);
        }
    }

    /// Connects a client that publishes without CONNECT, where no credentials are required. It gets the
    /// default options and the identity of clients without credentials.
    fn connect_implied(&mut self, id: ConnId) {
        if self.outputs.connections[id].stage == Stage::Fresh {
            self.outputs.connections[id].stage = Stage::Connected;
            if let Check::Done(checked) = self.settings.identities.check(&Credentials::default(), b"") {
                self.checked(id, checked);
                self.tell_connected(id);
            }
        }
    }

    fn connect(&mut self, id: ConnId, json: &[u8]) -> Option<SlowCheck> {
        let Ok(Some(options)) = read_options(json) else {
            self.outputs.reject(id, Rejection::Malformed("CONNECT needs a JSON object"));
            return None;
        };
        let was_in = self.outputs.connections[id].stage == Stage::Connected;
        let connection = &mut self.outputs.connections[id];
        // Before the first CONNECT these fields have nats-server's defaults.
        connection.verbose = options.verbose.unwrap_or(connection.verbose);
        connection.pedantic = options.pedantic.unwrap_or(connection.pedantic);
        connection.echo = options.echo.unwrap_or(connection.echo);
        connection.headers = options.headers.unwrap_or(connection.headers) && self.settings.config.headers;
        connection.no_responders = options.no_responders.unwrap_or(connection.no_responders);
        if let Some(protocol) = options.protocol {
            connection.takes_info = protocol == 1;
            connection.wants_second_info = protocol == 1;
        }
        let before = connection.told.take().unwrap_or_default();
        let text = |text: &Option<String>, before: Box<str>| text.as_deref().map_or(before, Into::into);
        connection.told = Some(Box::new(ClientInfo {
            name: text(&options.name, before.name),
            lang: text(&options.lang, before.lang),
            version: text(&options.version, before.version),
        }));
        let credentials = Credentials {
            user: options.user.as_deref(),
            pass: options.pass.as_deref(),
            auth_token: options.auth_token.as_deref(),
            nkey: options.nkey.as_deref(),
            sig: options.sig.as_deref(),
            jwt: options.jwt.as_deref(),
            websocket: connection.transport.websocket,
            certificate: connection.certificate.as_deref(),
        };
        // A later CONNECT without credentials keeps the identity of the first.
        if !was_in || !credentials.is_empty() {
            let nonce = connection.nonce.clone().unwrap_or_default();
            match self.settings.identities.check(&credentials, nonce.as_bytes()) {
                Check::Done(checked) => self.checked(id, checked),
                Check::Slow(check) => {
                    self.outputs.connections[id].stage = Stage::Checking;
                    self.refuse_versions(id, &options);
                    return Some(check);
                }
            }
        }
        if self.outputs.connections[id].closing.is_none() && !self.refuse_versions(id, &options) {
            if !was_in {
                self.tell_connected(id);
            }
            self.say_ok(id);
        }
        None
    }

    fn refuse_versions(&mut self, id: ConnId, options: &ConnectOptions) -> bool {
        if !(0..=1).contains(&options.protocol.unwrap_or(0)) {
            self.outputs.reject(id, Rejection::ProtocolVersion);
        } else if self.outputs.connections[id].no_responders && !self.outputs.connections[id].headers {
            self.outputs.reject(id, Rejection::NoRespondersNeedHeaders);
        } else {
            return false;
        }
        true
    }

    /// Continues the login after a password check on a helper thread.
    pub(crate) fn slowly_checked(&mut self, id: ConnId, checked: Result<Identity, LoginError>) {
        // The configuration may have been reloaded during the check.
        let identities = &self.settings.identities;
        let checked = checked.and_then(|identity| identities.again(&identity).ok_or(LoginError::Wrong));
        self.checked(id, checked);
        if self.outputs.connections[id].closing.is_none() {
            self.tell_connected(id);
            self.say_ok(id);
        }
    }

    /// Applies the result of a credentials check.
    pub(crate) fn checked(&mut self, id: ConnId, checked: Result<Identity, LoginError>) {
        match checked {
            Ok(identity) => {
                let root = self.routing.subjects.root_of(identity.account.0);
                let replies_bytes = Rc::clone(&self.outputs.replies_bytes);
                if !self.enter_account(id, identity.account) {
                    self.outputs.reject(id, Rejection::AccountConnectionsExceeded);
                    return;
                }
                let connection = &mut self.outputs.connections[id];
                connection.stage = Stage::Connected;
                connection.root = root;
                connection.account = identity.account.0;
                connection.deals = self.routing.subjects.abroad.has_imports(identity.account.0);
                connection.permissions.clone_from(&identity.permissions);
                connection.replies = identity
                    .permissions
                    .as_ref()
                    .and_then(|permissions| permissions.responses)
                    .map(|responses| Box::new(Replies::counted(responses, Rc::clone(&replies_bytes))));
                connection.identity = Some(Box::new(identity));
            }
            Err(refused) => {
                let connection = &self.outputs.connections[id];
                tracing::info!(cid = connection.cid, address = %connection.address, %refused, "client refused: authorization violation");
                self.outputs.reject(id, Rejection::AuthorizationViolation);
            }
        }
    }

    /// Counts a client in its account. Returns whether the account's limit allows it.
    fn enter_account(&mut self, id: ConnId, account: AccountId) -> bool {
        let connection = &mut self.outputs.connections[id];
        let was_in = std::mem::take(&mut connection.is_in_account).then_some(connection.account);
        if let Some(before) = was_in {
            self.shared.leave_account(before);
        }
        let limits = self.settings.identities.limits(account);
        connection.is_in_account = self.shared.enter_account(account.0, limits.max_connections);
        connection.take_limits(limits);
        connection.is_in_account
    }
}

/// Divisor of `max_subscription_memory` that gives the share of one connection.
const CONNECTION_PART: usize = 2;

/// Returns the largest number of budget units that an operation may take. The operation begins only if the
/// turn has that many left.
fn steps_at_most(op: &ClientOp<'_>) -> u64 {
    match op {
        ClientOp::Subscribe { subject, .. } => (3 * tokens_of(subject) as u64).min(WALKS) + 2,
        ClientOp::Unsubscribe { .. } => WALKS + 2 * SUBSCRIBE,
        _ => 0,
    }
}

/// Returns the cost of an operation in budget units; messages are charged separately.
fn price(op: &ClientOp<'_>) -> u64 {
    match op {
        ClientOp::Connect { .. } => work::CONNECT,
        ClientOp::Subscribe { .. } | ClientOp::Unsubscribe { .. } => work::SUBSCRIBE,
        ClientOp::Ping | ClientOp::Pong | ClientOp::Ignored | ClientOp::Publish(_) => 1,
    }
}

/// Parses CONNECT's JSON. `null` means all defaults, as in nats-server; `Ok(None)`: the JSON is not an
/// object.
pub(crate) fn read_options(json: &[u8]) -> serde_json::Result<Option<ConnectOptions>> {
    if json.trim_ascii().starts_with(b"[") {
        // serde would accept an array and assign its elements to the fields in order, so arrays are rejected
        // here.
        return Ok(None);
    }
    let Some(FoldedObject(fields)) = serde_json::from_slice::<Option<FoldedObject>>(json)? else {
        return Ok(Some(ConnectOptions::default()));
    };
    serde_json::from_value(serde_json::Value::Object(fields)).map(Some)
}

/// A JSON object, parsed as Go's encoding/json parses one into a struct: names are case-insensitive, the last
/// value of a name counts, and `null` leaves the field unset.
struct FoldedObject(serde_json::Map<String, serde_json::Value>);

impl<'de> serde::Deserialize<'de> for FoldedObject {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> serde::de::Visitor<'de> for Fields {
            type Value = FoldedObject;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut from: A) -> Result<FoldedObject, A::Error> {
                let mut fields = serde_json::Map::new();
                while let Some((name, value)) = from.next_entry::<String, serde_json::Value>()? {
                    if !value.is_null() {
                        fields.insert(name.to_lowercase(), value);
                    }
                }
                Ok(FoldedObject(fields))
            }
        }
        from.deserialize_map(Fields)
    }
}

/// Rewrites a message's control line into the usual form: single spaces, CR LF.
fn rewrite<'a>(publish: &Publish<'a>, into: &mut Vec<u8>) -> Run<'a> {
    into.clear();
    let verb: &[u8] = if publish.header_bytes.is_some() { b"HPUB " } else { b"PUB " };
    into.extend_from_slice(verb);
    into.extend_from_slice(publish.subject);
    if !publish.reply.is_empty() {
        into.push(b' ');
        into.extend_from_slice(publish.reply);
    }
    into.push(b' ');
    if let Some(header_bytes) = publish.header_bytes {
        write::number(into, header_bytes);
        into.push(b' ');
        write::number(into, publish.body.len());
    } else {
        into.extend_from_slice(publish.sizes);
    }
    into.extend_from_slice(b"\r\n");
    into.extend_from_slice(publish.body);
    into.extend_from_slice(b"\r\n");
    Run {
        bytes: &[],
        stride: into.len(),
        tail_at: verb.len() + publish.subject.len(),
        body_bytes: publish.body.len(),
        header_bytes: publish.header_bytes,
        subject: publish.subject,
        shown: None,
        reply: publish.reply,
    }
}
