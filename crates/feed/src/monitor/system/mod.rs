//! The system account: answers and events that the server itself publishes, in the form that nats-server's
//! tools expect.
//!
//! ```text
//!   request, on a loop ─try_send─▶ QUESTIONS_MAX wait ─▶ thread "feed-system": pages (`answers`) ─▶ ring ─▶ that loop
//!   a client of an account connects or leaves, on its loop ─▶ an advisory, if it has subscribers (`advisories`)
//!   every ten seconds, while the system account has a subscription: STATSZ
//! ```
//! A loop only checks whether a subject is one that the server answers. The answer is built on the thread, in
//! the same steps as the monitoring pages ([`crate::monitor::inspector`]). If there is no room for a request,
//! an error is sent at once, and counted (`feed_system_refused`).

mod advisories;
mod answers;
pub(crate) mod question;

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use wire::nats::{
    Progress,
    client::{self, ClientOp},
    write,
};

pub(crate) use answers::answer_all;

use crate::{
    accounts::identity::AccountId,
    client::connection::{ConnId, Connection},
    counters::Counter,
    delivery::{origin::Origin, producer::Producer, run::Run, work::Work},
    mesh::core::Core,
    monitor::{
        snapshot::Totals,
        system::question::{Question, SystemEvent, question_of},
    },
};

/// Maximum number of requests, from all loops, that wait for the answering thread.
pub(crate) const QUESTIONS_MAX: usize = 64;
/// Maximum length of a request's options in bytes; longer ones are answered with an error, and counted
/// (`feed_system_too_long`).
const OPTIONS_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of bytes of one answer.
pub(crate) const ANSWER_BYTES_MAX: usize = 32 << 20;

impl Core {
    /// Forwards a request to the answering thread. Returns false if the subject is not one that the server
    /// answers.
    #[cold]
    pub(crate) fn ask_system(&mut self, run: &Run<'_>) -> bool {
        let Some((about, account)) = question_of(run.subject, &self.shared.server_id) else { return false };
        let account = String::from_utf8_lossy(account).into_owned();
        for at in 0..run.count() {
            let one = run.one(at);
            let body = &one.bytes[one.stride - 2 - one.body_bytes..one.stride - 2];
            let options = &body[one.header_bytes.unwrap_or(0).min(body.len())..];
            if options.len() > OPTIONS_BYTES_MAX {
                self.count(Counter::SystemTooLong);
            }
            let question = Question {
                about,
                account: account.clone(),
                // One byte above the bound is kept, so that the answering thread can see that the options are
                // too long.
                options: options[..options.len().min(OPTIONS_BYTES_MAX + 1)].to_vec(),
                reply: run.reply.to_vec(),
                core: self.index,
            };
            if let Err(mpsc::error::TrySendError::Full(_)) =
                self.observers.system.try_send(SystemEvent::Asked(question))
            {
                self.count(Counter::SystemRefused);
                let refused = json!({
                    "server": server_info(&self.totals_of_server(), 0),
                    "error": {"code": 503, "description": "too many requests are waiting for an answer"},
                });
                self.say_in_system(run.reply, &to_bytes(&refused));
            }
        }
        true
    }

    /// Answers `$SYS.REQ.USER.INFO` with the client's user and account, in any account.
    #[cold]
    pub(crate) fn answer_user_info(&mut self, id: ConnId, run: &Run<'_>) -> bool {
        if run.subject != b"$SYS.REQ.USER.INFO" {
            return false;
        }
        let connection = &self.outputs.connections[id];
        let account = connection.account;
        let answer = json!({
            "server": server_info(&self.totals_of_server(), 0),
            "data": {
                "user": user_of(connection).as_deref().unwrap_or_default(),
                "account": self.settings.identities.account_name(AccountId(account)),
            },
        });
        let answer = to_bytes(&answer);
        for _ in 0..run.count() {
            self.say_as_server(account, run.reply, &answer);
        }
        true
    }

    /// Publishes a message of the server itself in the system account.
    pub(crate) fn say_in_system(&mut self, subject: &[u8], body: &[u8]) {
        self.say_as_server(AccountId::SYSTEM.0, subject, body);
    }

    /// Publishes a message of the server itself, which no consumer can hold back. If another core has fallen
    /// behind, its subscribers lose the message, and the loss is counted.
    fn say_as_server(&mut self, account: u16, subject: &[u8], body: &[u8]) {
        let mut bytes = Vec::with_capacity(body.len() + subject.len() + 32);
        write::publish(&mut bytes, subject, b"", body);
        self.publish_as_server(account, &bytes);
    }

    /// Publishes messages of the server itself, given as complete PUB operations.
    pub(crate) fn publish_as_server(&mut self, account: u16, operations: &[u8]) {
        const OWN: client::Limits = client::Limits {
            control_line_bytes_max: 64 << 10,
            payload_bytes_max: ANSWER_BYTES_MAX,
            headers: false,
        };
        let root = self.routing.subjects.root_of(account);
        let nobody = Producer::nobody(self.index);
        let deals = self.routing.subjects.abroad.has_imports(account);
        let of = Origin { deals, ..Origin::of_nobody(nobody, account, root) };
        let mut rest = operations;
        while let Ok(Progress::Complete(ClientOp::Publish(publish), taken)) = client::parse(rest, &OWN) {
            let run = Run::new(&publish, &rest[..taken]);
            rest = &rest[taken..];
            if self.links.is_any_full() {
                self.count(Counter::OwnLost);
                continue;
            }
            self.hand_out_at_once(&of, &run);
            self.end_finished();
        }
    }

    /// Returns whether a subject in the system account has subscribers on any core.
    fn is_heard_in_system(&mut self, subject: &[u8]) -> bool {
        let root = self.routing.subjects.root_of(AccountId::SYSTEM.0);
        let mut work = Work::of(u64::MAX);
        let (slot, matched) =
            self.routing.subjects.matches.take(&self.routing.subjects.trie, root, subject, &mut work);
        let is_heard = !matched.is_empty();
        self.routing.subjects.matches.put_back(slot, matched);
        is_heard
    }

    fn totals_of_server(&self) -> Server {
        Server {
            name: self.settings.config.server_name.clone(),
            host: self.shared.address.ip().to_string(),
            id: self.shared.server_id.clone(),
            tags: self.settings.config.server_tags.clone(),
        }
    }
}

/// Description of the server, which is part of each message from the system account.
pub(crate) struct Server {
    name: String,
    host: String,
    id: String,
    tags: Vec<String>,
}

impl From<&Totals> for Server {
    fn from(of: &Totals) -> Self {
        Self {
            name: of.server_name.clone(),
            host: of.address.ip().to_string(),
            id: of.server_id.clone(),
            tags: of.server_tags.clone(),
        }
    }
}

fn server_info(server: &Server, seq: u64) -> Value {
    let mut info = json!({
        "name": server.name,
        "host": server.host,
        "id": server.id,
        "ver": crate::mesh::shared::PROTOCOL_VERSION,
        "jetstream": false,
        "flags": 0,
        "seq": seq,
        "time": crate::monitor::times::moment(engine::cores::clock::now_system()),
    });
    if !server.tags.is_empty() {
        info["tags"] = server.tags.clone().into();
    }
    info
}

fn user_of(connection: &Connection) -> Option<Arc<str>> {
    connection.identity.as_ref().and_then(|identity| identity.name.clone())
}

fn to_bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|error| panic!("cannot write an answer: {error}"))
}
