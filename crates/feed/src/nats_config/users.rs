//! Users and their permissions: `authorization`, `accounts`, `users`, `permissions`.

use super::{
    exchange::Lines,
    mappings::mappings,
    options::Reading,
    text::{Fault, LocatedValue, Value},
    values::{Outcome, block, boolean, count, list, some_duration, string, strings, unknown},
};
use crate::accounts::identity::{
    Account, AccountLimits, ConnectionTypes, Entry as Pattern, Permissions, Responses, Rules, Secret, User,
};

impl Reading<'_> {
    pub(super) fn authorization(&mut self, value: &LocatedValue) -> Outcome {
        let (mut name, mut password) = (None, None);
        let entries = block(value)?;
        self.options.authorization.has_block = true;
        for entry in self.once(entries) {
            let value = &entry.value;
            let authorization = &mut self.options.authorization;
            match entry.key.to_ascii_lowercase().as_str() {
                "user" | "username" => name = Some(string(value)?),
                "pass" | "password" => password = Some(Secret::new(&string(value)?)),
                "token" => authorization.token = Some(Secret::new(&string(value)?)),
                "timeout" => self.options.auth_timeout = some_duration(value)?,
                "users" => authorization.users.extend(users(value)?),
                "default_permissions" | "default_permission" | "permissions" => {
                    authorization.default_permissions = Some(permissions(value)?);
                }
                other => unknown(entry, other, "authorization")?,
            }
        }
        if name.is_some() || password.is_some() {
            let user = User { user: name, password, ..User::default() };
            self.options.authorization.users.push(user);
        }
        Ok(())
    }

    pub(super) fn accounts(&mut self, value: &LocatedValue) -> Outcome {
        let mut lines = Lines::default();
        for entry in self.once_by_name(block(value)?) {
            if entry.is_variable && !matches!(entry.value.value, Value::Block(_)) {
                continue;
            }
            let mut account = Account { name: entry.key.clone(), ..Account::default() };
            for inner in self.once(block(&entry.value)?) {
                match inner.key.to_ascii_lowercase().as_str() {
                    "users" => account.users.extend(users(&inner.value)?),
                    "default_permissions" => account.default_permissions = Some(permissions(&inner.value)?),
                    "mappings" | "maps" => account.mappings = mappings(&inner.value)?,
                    "exports" => self.exports(&inner.value, &mut account, &mut lines)?,
                    "imports" => self.imports(&inner.value, &mut account, &mut lines)?,
                    "limits" => account.limits = limits(&inner.value)?,
                    "jetstream" | "msg_trace" | "trace_dest" => {
                        // Ignoring these options can only reduce what is delivered, never increase it.
                        let key = format!("accounts.{}.{}", entry.key, inner.key);
                        self.pass_over(inner.line, key);
                    }
                    other => unknown(inner, other, "an account")?,
                }
            }
            self.options.authorization.accounts.push(account);
        }
        lines.check(&self.options.authorization.accounts)
    }
}

/// Reads the limits of an account, for each client and for all of its clients together. `-1` means no limit
/// (nats-server's `limits`).
fn limits(value: &LocatedValue) -> Outcome<AccountLimits> {
    let some = |value: &LocatedValue| -> Outcome<Option<usize>> {
        let is_none = string(value)?.starts_with('-');
        if is_none { Ok(None) } else { Ok(usize::try_from(count(value)?).ok()) }
    };
    let mut limits = AccountLimits::default();
    for entry in block(value)? {
        let value = &entry.value;
        match entry.key.to_ascii_lowercase().as_str() {
            "max_connections" | "max_conn" => limits.max_connections = some(value)?,
            "max_subscriptions" | "max_subs" => limits.max_subscriptions = some(value)?,
            "max_payload" | "max_pay" => limits.max_payload = some(value)?,
            // The feed does not accept leaf nodes, so this limit is only checked for syntax.
            "max_leafnodes" | "max_leafs" => _ = some(value)?,
            other => unknown(entry, other, "limits")?,
        }
    }
    Ok(limits)
}

fn users(value: &LocatedValue) -> Outcome<Vec<User>> {
    list(value)?.iter().map(user).collect()
}

fn user(value: &LocatedValue) -> Outcome<User> {
    let mut user = User::default();
    for entry in block(value)? {
        let value = &entry.value;
        match entry.key.to_ascii_lowercase().as_str() {
            "user" | "username" => user.user = Some(string(value)?),
            "pass" | "password" => user.password = Some(Secret::new(&string(value)?)),
            "nkey" => user.nkey = Some(string(value)?),
            "allowed_connection_types" | "connection_types" | "clients" => {
                user.connection_types = Some(connection_types(value)?);
            }
            "permissions" | "permission" | "authorization" => user.permissions = Some(permissions(value)?),
            other => unknown(entry, other, "a user")?,
        }
    }
    Ok(user)
}

/// Reads nats-server's names of connection types. Types that the feed does not have (leaf nodes, MQTT) allow
/// no connection.
fn connection_types(value: &LocatedValue) -> Outcome<ConnectionTypes> {
    let mut types = ConnectionTypes::default();
    for name in strings(value)? {
        match name.to_ascii_uppercase().as_str() {
            "STANDARD" => types.standard = true,
            "WEBSOCKET" => types.websocket = true,
            "LEAFNODE" | "LEAFNODE_WS" | "MQTT" | "MQTT_WS" | "IN_PROCESS" => {}
            _ => {
                let message =
                    format!("invalid connection type `{name}`; expected one such as STANDARD or WEBSOCKET");
                return Err(Fault::new(value.line, message));
            }
        }
    }
    Ok(types)
}

fn permissions(value: &LocatedValue) -> Outcome<Permissions> {
    let mut permissions = Permissions::default();
    for entry in block(value)? {
        let value = &entry.value;
        match entry.key.to_ascii_lowercase().as_str() {
            "pub" | "publish" | "import" => permissions.publish = rules(value)?,
            "sub" | "subscribe" | "export" => permissions.subscribe = rules(value)?,
            "allow_responses" | "allow_response" | "publish_allow_responses" => {
                permissions.responses = responses(value)?;
            }
            other => unknown(entry, other, "permissions")?,
        }
    }
    Ok(permissions)
}

fn rules(value: &LocatedValue) -> Outcome<Rules> {
    let Value::Block(entries) = &value.value else {
        return Ok(Rules { allow: Some(patterns(value)?), deny: Vec::new() });
    };
    let mut rules = Rules::default();
    for entry in entries {
        match entry.key.to_ascii_lowercase().as_str() {
            "allow" => rules.allow = Some(patterns(&entry.value)?),
            "deny" => rules.deny = patterns(&entry.value)?,
            other => unknown(entry, other, "permissions")?,
        }
    }
    Ok(rules)
}

/// Reads a pattern or a list of patterns; a queue group may follow after a space.
fn patterns(value: &LocatedValue) -> Outcome<Vec<Pattern>> {
    let one = |value: &LocatedValue| {
        let text = string(value)?;
        let mut words = text.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(subject), queue, None) => {
                Ok(Pattern { subject: subject.to_owned(), queue: queue.map(str::to_owned) })
            }
            _ => Err(Fault::new(
                value.line,
                format!("invalid value `{text}`: expected a subject, or a subject and a queue"),
            )),
        }
    };
    match &value.value {
        Value::List(list) => list.iter().map(one).collect(),
        _ => Ok(vec![one(value)?]),
    }
}

fn responses(value: &LocatedValue) -> Outcome<Option<Responses>> {
    if !matches!(value.value, Value::Block(_)) {
        return Ok(boolean(value)?.then(Responses::default));
    }
    let mut responses = Responses::default();
    for entry in block(value)? {
        match entry.key.to_ascii_lowercase().as_str() {
            "max" | "max_msgs" | "max_messages" | "max_responses" => {
                // 0 means the default, and a negative number means no limit, as in nats-server.
                let text = string(&entry.value)?;
                responses.messages_max = match text.parse::<i64>() {
                    Ok(0) => Responses::default().messages_max,
                    Ok(any) if any < 0 => None,
                    Ok(some) => Some(u32::try_from(some).unwrap_or(u32::MAX)),
                    Err(_) => return Err(Fault::new(entry.line, format!("invalid whole number `{text}`"))),
                };
            }
            "expires" | "expiration" | "ttl" => {
                responses.expires = if string(&entry.value)?.starts_with('-') {
                    None
                } else {
                    some_duration(&entry.value)?.or(responses.expires)
                };
            }
            other => unknown(entry, other, "allow_responses")?,
        }
    }
    Ok(Some(responses))
}
