//! Advisories about connecting and disconnecting clients, published in the system account as nats-server
//! does. There are none for clients of the global account, which on a server without accounts would be every
//! client.

use std::time::{Duration, SystemTime};

use engine::cores::clock;
use serde_json::{Value, json};

use super::{server_info, to_bytes, user_of};
use crate::{
    accounts::identity::AccountId,
    client::connection::{CloseReason, ConnId, Connection, Stage},
    mesh::core::Core,
    monitor::times::moment,
};

impl Core {
    /// Publishes an advisory that a client of an account was admitted.
    pub(crate) fn tell_connected(&mut self, id: ConnId) {
        let connection = &self.outputs.connections[id];
        if connection.account == AccountId::GLOBAL.0 || connection.closing.is_some() {
            return;
        }
        let subject = format!("$SYS.ACCOUNT.{}.CONNECT", self.account_of(connection));
        if !self.is_heard_in_system(subject.as_bytes()) {
            return;
        }
        let client = self.client_info(&self.outputs.connections[id]);
        let advisory = self.advisory("client_connect", client);
        self.say_in_system(subject.as_bytes(), &to_bytes(&advisory));
    }

    /// Publishes an advisory that a client has left. A client that was never admitted has no account, and its
    /// advisory has a different subject.
    pub(crate) fn tell_disconnected(&mut self, connection: &Connection, why: CloseReason) {
        let subject = match (&connection.identity, why) {
            (None, CloseReason::AuthorizationViolation) => {
                format!("$SYS.SERVER.{}.CLIENT.AUTH.ERR", self.shared.server_id)
            }
            _ if connection.stage == Stage::Connected && connection.account != AccountId::GLOBAL.0 => {
                format!("$SYS.ACCOUNT.{}.DISCONNECT", self.account_of(connection))
            }
            _ => return,
        };
        if !self.is_heard_in_system(subject.as_bytes()) {
            return;
        }
        let mut client = self.client_info(connection);
        client["stop"] = moment(clock::now_system()).into();
        if let Some(rtt_ms) = connection.rtt_ms {
            client["rtt"] = (u64::from(rtt_ms) * 1_000_000).into();
        }
        let mut advisory = self.advisory("client_disconnect", client);
        advisory["sent"] = json!({"msgs": connection.messages_in, "bytes": connection.payload_in_bytes});
        advisory["received"] =
            json!({"msgs": connection.messages_out, "bytes": connection.payload_out_bytes});
        advisory["reason"] = why.reason().into();
        self.say_in_system(subject.as_bytes(), &to_bytes(&advisory));
    }

    fn account_of(&self, connection: &Connection) -> String {
        self.settings.identities.account_name(AccountId(connection.account)).to_owned()
    }

    fn advisory(&self, kind: &str, client: Value) -> Value {
        json!({
            "type": format!("io.nats.server.advisory.v1.{kind}"),
            "id": crate::mesh::shared::nonce(),
            "timestamp": moment(clock::now_system()),
            "server": server_info(&self.totals_of_server(), 0),
            "client": client,
        })
    }

    fn client_info(&self, connection: &Connection) -> Value {
        let started = SystemTime::UNIX_EPOCH + Duration::from_millis(connection.started_unix_ms);
        let mut client = json!({
            "start": moment(started),
            "host": connection.address.ip().to_string(),
            "id": connection.cid,
            "acc": self.account_of(connection),
            "kind": "Client",
            "client_type": if connection.transport.websocket { "websocket" } else { "nats" },
        });
        if let Some(user) = user_of(connection) {
            client["user"] = (*user).into();
        }
        if let Some(told) = &connection.told {
            for (key, text) in [("name", &told.name), ("lang", &told.lang), ("ver", &told.version)] {
                if !text.is_empty() {
                    client[key] = (**text).into();
                }
            }
        }
        client
    }
}
