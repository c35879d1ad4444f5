//! Authentication and authorization: a client's identity, its account and its permissions.
//!
//! ```text
//!  [feed], nats.conf ─▶ Authorization ─Identities::build─▶ Identities (one Arc, read by every core, never written)
//!                                                              │ check(CONNECT's credentials, INFO's nonce)
//!                          ┌───────────────────────────────────┴──────────────┐
//!                   Check::Done(Identity or Refused)          Check::Slow(SlowCheck): bcrypt, tens of ms:
//!                                                             run it on a helper thread, never on a loop
//! ```
//! Pure: no socket, no clock, no randomness (the caller makes the nonce). A reload builds new [`Identities`]
//! from the old ones, so that an account keeps its [`AccountId`]. The caller closes clients whose identity is
//! no longer valid.
//!
//! JWTs (operators, resolvers) are not supported. A client that sends one gets [`LoginError::Jwt`], and a
//! configuration that needs them does not load.

mod account;
mod build;
pub mod certificate;
mod exchange;
mod exports;
mod mapping;
mod pattern;
mod permissions;
mod replies;
mod reserved;
mod spec;

use std::{collections::HashMap, rc::Rc, sync::Arc};

use base64::Engine as _;
use subtle::ConstantTimeEq as _;

pub use account::{ACCOUNTS_MAX, AccountId, GLOBAL_ACCOUNT, SYSTEM_ACCOUNT};
pub use exchange::{AN_ACCOUNT_MAX, Exchange, IMPORTS_MAX, Imports, Path, Service, Stream, Target, common};
pub use exports::{ANSWER_TIME, ExchangeFault, Export, Import, Part, Response, ServiceExport};
pub use mapping::{Mapping, MappingResult, Mappings, WeightedDestination};
pub use pattern::{covers, is_valid as is_valid_pattern, overlaps};
pub use permissions::{Entry, Permissions, Responses, Rules, SharedPermissions, SubscribeVerdict};
pub use replies::{OPEN_REQUESTS_MAX, Replies};
pub use reserved::ReservedSubjects;
pub use spec::{Account, AccountLimits, Authorization, ConnectionTypes, Secret, SpecError, User};

/// Bytes of a password that bcrypt uses; a longer password is refused rather than cut.
const BCRYPT_PASSWORD_BYTES_MAX: usize = 72;

/// Credentials from CONNECT. An empty string counts as absent, as in nats-server.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// User name, CONNECT's `user`.
    pub user: Option<&'a str>,
    /// Password, CONNECT's `pass`.
    pub pass: Option<&'a str>,
    /// Token, CONNECT's `auth_token`.
    pub auth_token: Option<&'a str>,
    /// Public key, CONNECT's `nkey`.
    pub nkey: Option<&'a str>,
    /// Signature of the nonce in base64, CONNECT's `sig`.
    pub sig: Option<&'a str>,
    /// JWT, CONNECT's `jwt`.
    pub jwt: Option<&'a str>,
    /// The client is connected over WebSocket. (This is known from the connection, not from CONNECT.)
    pub websocket: bool,
    /// Names in the client's certificate, if certificates identify users ([`crate::config::Tls::map`]).
    pub certificate: Option<&'a certificate::Names>,
}

impl Credentials<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        let empty = |text: Option<&str>| text.is_none_or(str::is_empty);
        empty(self.user) && empty(self.pass) && empty(self.auth_token) && empty(self.nkey) && empty(self.jwt)
    }
}

/// Credentials with which a client was admitted. After a reload they are compared with the new configuration
/// ([`Identities::again`]).
#[derive(Debug, Clone, PartialEq, Eq)]
enum Proof {
    /// No credentials: none were required, or `no_auth_user` applied.
    Nothing,
    /// The client sent the password for this secret, or presented the user's certificate. `None` if the user
    /// has no password.
    Password(Option<Secret>),
    /// The nkey signed the nonce.
    Key,
    /// The client sent this token.
    Token(Secret),
}

/// Identity of an admitted client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Account of the client.
    pub account: AccountId,
    /// User name or public key, as `/connz` shows it; `None` without authentication. A token is never shown.
    pub name: Option<Arc<str>>,
    /// Permissions of the client; `None`: everything is allowed.
    pub permissions: SharedPermissions,
    proof: Proof,
}

impl Identity {
    fn anonymous() -> Self {
        Self { account: AccountId::GLOBAL, name: None, permissions: None, proof: Proof::Nothing }
    }
}

/// Reason why a client is refused. The client always gets `Authorization Violation`; the reason is for the
/// log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The client sent no credentials, and they are required.
    #[error("no credentials were sent")]
    Missing,
    /// The user does not exist, or the password, token or key is wrong.
    #[error("invalid credentials")]
    Wrong,
    /// The signature does not match this connection's nonce.
    #[error("invalid signature of the nonce")]
    Signature,
    /// The user may not use this connection type.
    #[error("connection type not allowed for this user (allowed_connection_types)")]
    ConnectionType,
    /// The certificate names no user.
    #[error("no user matches the certificate")]
    Certificate,
    /// The client sent a JWT.
    #[error("JWTs are not supported; use a user with a password, a token or an nkey")]
    Jwt,
}

/// Result of [`Identities::check`].
#[derive(Debug)]
pub enum Check {
    /// The check is complete.
    Done(Result<Identity, LoginError>),
    /// A bcrypt hash must be computed on a helper thread; this takes tens of milliseconds.
    Slow(SlowCheck),
}

/// A password that is still to be compared with its bcrypt hash. The caller limits how many comparisons run
/// at once.
pub struct SlowCheck {
    hash: Arc<str>,
    given: Vec<u8>,
    identity: Identity,
}

impl std::fmt::Debug for SlowCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlowCheck").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl SlowCheck {
    /// Compares the password with its hash. Blocks for as long as the hash's cost factor demands.
    ///
    /// # Errors
    /// [`LoginError::Wrong`] if the password does not match.
    pub fn run(self) -> Result<Identity, LoginError> {
        match bcrypt::verify(&self.given, &self.hash) {
            Ok(true) => Ok(self.identity),
            _ => Err(LoginError::Wrong),
        }
    }
}

#[derive(Debug)]
struct KnownUser {
    /// Password of the user; `None` if the user is identified by its certificate alone.
    secret: Option<Secret>,
    identity: Identity,
    types: Option<ConnectionTypes>,
}

#[derive(Debug)]
struct KnownKey {
    key: nkeys::KeyPair,
    identity: Identity,
    types: Option<ConnectionTypes>,
}

/// Users, keys, tokens and accounts of a configuration.
#[derive(Debug)]
pub struct Identities {
    accounts: Vec<Arc<str>>,
    users: HashMap<String, KnownUser>,
    /// User names by certificate subject, for users that are configured with a subject as their name.
    subjects: HashMap<Vec<(String, String)>, String>,
    keys: HashMap<String, KnownKey>,
    /// Mappings by [`AccountId`]; only accounts with mappings have an entry.
    mappings: HashMap<u16, Mappings>,
    /// Imports between the accounts.
    exchange: Option<Arc<Exchange>>,
    /// Limits by [`AccountId`]; only accounts with limits have an entry.
    limits: HashMap<u16, AccountLimits>,
    token: Option<(Secret, Identity)>,
    no_auth: Option<Identity>,
    no_auth_types: Option<ConnectionTypes>,
    /// INFO announces that credentials are required.
    is_asked_for: bool,
    required: bool,
}

impl Identities {
    /// Builds identities that admit every client to the global account.
    pub fn open() -> Self {
        Self {
            accounts: vec![GLOBAL_ACCOUNT.into(), SYSTEM_ACCOUNT.into()],
            users: HashMap::new(),
            subjects: HashMap::new(),
            keys: HashMap::new(),
            mappings: HashMap::new(),
            exchange: None,
            limits: HashMap::new(),
            token: None,
            no_auth: Some(Identity::anonymous()),
            no_auth_types: None,
            is_asked_for: false,
            required: false,
        }
    }

    /// Returns the names of all accounts, by [`AccountId`].
    pub fn accounts(&self) -> &[Arc<str>] {
        &self.accounts
    }

    /// Returns the name of an account.
    pub fn account_name(&self, account: AccountId) -> &str {
        self.accounts.get(usize::from(account.0)).map_or("", |name| name)
    }

    /// Returns a copy of all mappings by [`AccountId`], for one core; `None` if no account has any.
    pub(crate) fn all_mappings(&self) -> Option<Rc<HashMap<u16, Mappings>>> {
        (!self.mappings.is_empty()).then(|| Rc::new(self.mappings.clone()))
    }

    /// Returns the imports between the accounts; `None` if there are none.
    pub(crate) fn exchange(&self) -> Option<&Arc<Exchange>> {
        self.exchange.as_ref()
    }

    /// Returns whether credentials are checked. If not, every client is admitted, whatever it sends.
    pub fn is_required(&self) -> bool {
        self.required
    }

    /// Returns whether INFO announces that credentials are required. With `no_auth_user` it does not, because
    /// a client without credentials is that user (nats-server's rule).
    pub fn is_asked_for(&self) -> bool {
        self.is_asked_for
    }

    /// Returns whether a client may start without CONNECT, because clients without credentials are admitted
    /// over this transport.
    pub fn may_begin_without(&self, websocket: bool) -> bool {
        self.no_auth.is_some() && (!self.required || allows(self.no_auth_types, websocket))
    }

    /// Returns the limits of an account's clients.
    pub fn limits(&self, account: AccountId) -> AccountLimits {
        self.limits.get(&account.0).copied().unwrap_or_default()
    }

    /// Returns whether INFO must carry a nonce, because some users sign with an nkey.
    pub fn wants_nonce(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Checks a client's credentials. `nonce` is the text that this connection's INFO carried.
    ///
    /// The order is nats-server's (`processClientOrLeafAuthentication`): key, user, no credentials, token.
    pub fn check(&self, credentials: &Credentials<'_>, nonce: &[u8]) -> Check {
        let said = |text: Option<&'_ str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        if !self.required {
            return Check::Done(Ok(self.no_auth.clone().unwrap_or_else(Identity::anonymous)));
        }
        if said(credentials.jwt).is_some() {
            return Check::Done(Err(LoginError::Jwt));
        }
        if let Some(nkey) = said(credentials.nkey) {
            return Check::Done(self.check_key(&nkey, credentials, nonce));
        }
        if let Some(names) = credentials.certificate {
            return Check::Done(self.named_by(names, credentials.websocket));
        }
        if let Some(user) = said(credentials.user) {
            let Some(known) = self.users.get(&user) else { return Check::Done(Err(LoginError::Wrong)) };
            if !allows(known.types, credentials.websocket) {
                return Check::Done(Err(LoginError::ConnectionType));
            }
            return match &known.secret {
                Some(secret) => compare(secret, credentials.pass.unwrap_or_default(), &known.identity),
                None => Check::Done(Err(LoginError::Wrong)),
            };
        }
        if let (Some(given), Some((token, identity))) = (said(credentials.auth_token), &self.token) {
            return compare(token, &given, identity);
        }
        if credentials.is_empty() {
            if !allows(self.no_auth_types, credentials.websocket) {
                return Check::Done(Err(LoginError::ConnectionType));
            }
            return Check::Done(self.no_auth.clone().ok_or(LoginError::Missing));
        }
        Check::Done(Err(LoginError::Wrong))
    }

    /// Returns the new identity of a client that had the identity `before` under the old configuration, with
    /// the current permissions. `None` if its user, key or token is gone or has another secret. (nats-server
    /// checks the CONNECT options again; this server does not keep the client's secret, so a new hash of the
    /// same password counts as another secret.)
    pub fn again(&self, before: &Identity) -> Option<Identity> {
        if !self.required {
            return self.no_auth.clone();
        }
        let name = before.name.as_deref().unwrap_or_default();
        match &before.proof {
            Proof::Nothing => self.no_auth.clone(),
            Proof::Password(_) => self.users.get(name).map(|known| known.identity.clone()),
            Proof::Key => self.keys.get(name).map(|known| known.identity.clone()),
            Proof::Token(_) => self.token.as_ref().map(|(_, identity)| identity.clone()),
        }
        .filter(|now| now.proof == before.proof)
    }

    /// Finds the user that a certificate names. As in nats-server, the user name and password in CONNECT are
    /// then ignored.
    fn named_by(&self, names: &certificate::Names, websocket: bool) -> Result<Identity, LoginError> {
        let by_name = names.alternatives.iter().filter_map(|name| self.users.get(name));
        let by_subject = self.subjects.get(&names.subject).and_then(|name| self.users.get(name));
        let mut all = by_name.chain(by_subject);
        let allowed = all.find(|known| allows(known.types, websocket));
        allowed.map(|known| known.identity.clone()).ok_or(LoginError::Certificate)
    }

    fn check_key(
        &self,
        nkey: &str,
        credentials: &Credentials<'_>,
        nonce: &[u8],
    ) -> Result<Identity, LoginError> {
        let known = self.keys.get(nkey).ok_or(LoginError::Wrong)?;
        if !allows(known.types, credentials.websocket) {
            return Err(LoginError::ConnectionType);
        }
        let sig = credentials.sig.unwrap_or_default();
        // Clients send the signature with or without padding, in either base64 alphabet; nats-server accepts
        // all of these.
        let sig = base64::engine::general_purpose::URL_SAFE_NO_PAD
            .decode(sig.trim_end_matches('='))
            .or_else(|_| base64::engine::general_purpose::STANDARD_NO_PAD.decode(sig.trim_end_matches('=')))
            .map_err(|_| LoginError::Signature)?;
        known.key.verify(nonce, &sig).map_err(|_| LoginError::Signature)?;
        Ok(known.identity.clone())
    }
}

/// Returns whether a user may connect over this transport: WebSocket, or TCP.
fn allows(types: Option<ConnectionTypes>, websocket: bool) -> bool {
    types.is_none_or(|types| if websocket { types.websocket } else { types.standard })
}

/// Compares a configured secret with the client's: a plain one at once, a bcrypt hash later by a
/// [`SlowCheck`].
fn compare(secret: &Secret, given: &str, identity: &Identity) -> Check {
    match secret {
        Secret::Plain(plain) => {
            let same = bool::from(plain.as_bytes().ct_eq(given.as_bytes()));
            Check::Done(if same { Ok(identity.clone()) } else { Err(LoginError::Wrong) })
        }
        Secret::Bcrypt(_) if given.len() > BCRYPT_PASSWORD_BYTES_MAX => Check::Done(Err(LoginError::Wrong)),
        Secret::Bcrypt(hash) => Check::Slow(SlowCheck {
            hash: Arc::clone(hash),
            given: given.as_bytes().to_vec(),
            identity: identity.clone(),
        }),
    }
}

#[cfg(test)]
mod tests;
