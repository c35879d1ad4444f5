//! Who a client is, which account it lives in, and what it may do.
//!
//! ```text
//!  [feed], nats.conf ─▶ Authorization ─Identities::build─▶ Identities (one Arc, read by every core, never written)
//!                                                              │ check(CONNECT's credentials, INFO's nonce)
//!                          ┌───────────────────────────────────┴──────────────┐
//!                   Check::Done(Identity or Refused)          Check::Slow(SlowCheck): bcrypt, tens of ms:
//!                                                             run it on a helper thread, never on a loop
//! ```
//! Pure: no socket, no clock, no randomness (the caller makes the nonce). A reload builds new [`Identities`] after the
//! old ones, so that an account keeps its [`AccountId`]; clients that are no longer who they were are the caller's to
//! close.
//!
//! JWTs (operators, resolvers) are not supported. A client that sends one is told so ([`LoginError::Jwt`]), and a
//! configuration that needs them does not load.

pub mod certificate;
mod exchange;
mod mapping;
mod pattern;
mod permissions;
mod replies;
mod reserved;
mod spec;

use std::{collections::HashMap, rc::Rc, sync::Arc};

use base64::Engine as _;
use subtle::ConstantTimeEq as _;

pub use exchange::{
    AN_ACCOUNT_MAX, ANSWER_TIME, Exchange, ExchangeFault, Export, IMPORTS_MAX, Import, Imports, Part, Path,
    Response, Service, ServiceExport, Stream, Target, common,
};
pub use mapping::{Mapping, MappingResult, Mappings, WeightedDestination};
pub use pattern::{covers, is_valid as is_valid_pattern, overlaps};
pub use permissions::{Entry, Permissions, Responses, Rules, SharedPermissions, SubscribeVerdict};
pub use replies::{OPEN_REQUESTS_MAX, Replies};
pub use reserved::ReservedSubjects;
pub use spec::{Account, AccountLimits, Authorization, ConnectionTypes, Secret, SpecError, User};

/// Accounts that one server may have; a configuration with more does not load.
pub const ACCOUNTS_MAX: usize = 4096;
/// The account of whoever is in none (nats-server's name).
pub const GLOBAL_ACCOUNT: &str = "$G";
/// The account that sees the server's own subjects (nats-server's name).
pub const SYSTEM_ACCOUNT: &str = "$SYS";
/// bcrypt looks at so many bytes of a password; a longer one is refused rather than cut.
const BCRYPT_PASSWORD_BYTES_MAX: usize = 72;

/// A world of subjects of its own: an index into [`Identities::accounts`], stable over reloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountId(pub u16);

impl AccountId {
    /// [`GLOBAL_ACCOUNT`].
    pub const GLOBAL: Self = Self(0);
    /// The system account, whatever its name.
    pub const SYSTEM: Self = Self(1);
}

/// What CONNECT said about who it is. Empty strings are as good as absent, as in nats-server.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// `user`.
    pub user: Option<&'a str>,
    /// `pass`.
    pub pass: Option<&'a str>,
    /// `auth_token`.
    pub auth_token: Option<&'a str>,
    /// `nkey`: the public key.
    pub nkey: Option<&'a str>,
    /// `sig`: the signature of the nonce, base64.
    pub sig: Option<&'a str>,
    /// `jwt`.
    pub jwt: Option<&'a str>,
    /// The client came by WebSocket. (Not said in CONNECT, but seen.)
    pub websocket: bool,
    /// What its certificate calls it, where certificates say who somebody is ([`crate::config::Tls::map`]).
    pub certificate: Option<&'a certificate::Names>,
}

impl Credentials<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        let empty = |text: Option<&str>| text.is_none_or(str::is_empty);
        empty(self.user) && empty(self.pass) && empty(self.auth_token) && empty(self.nkey) && empty(self.jwt)
    }
}

/// What let a client in. After a reload it is held against what then would ([`Identities::again`]).
#[derive(Debug, Clone, PartialEq, Eq)]
enum Proof {
    /// Nothing was asked for, or `no_auth_user` stands for whoever says nothing.
    Nothing,
    /// The user's password was this, if it has one; else its certificate names it.
    Password(Option<Secret>),
    /// The key signed the nonce.
    Key,
    /// The token was this.
    Token(Secret),
}

/// Who a client is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The world that its subjects are in.
    pub account: AccountId,
    /// User name or public key as `/connz` shows it; none without authentication. A token is never shown.
    pub name: Option<Arc<str>>,
    /// What it may do; none: everything.
    pub permissions: SharedPermissions,
    proof: Proof,
}

impl Identity {
    fn anonymous() -> Self {
        Self { account: AccountId::GLOBAL, name: None, permissions: None, proof: Proof::Nothing }
    }
}

/// Why a client is not let in. To the client it is always `Authorization Violation`; this is for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// Nothing was said where something must be.
    #[error("no credentials were sent")]
    Missing,
    /// No such user, or the wrong password, token or key.
    #[error("the credentials are wrong")]
    Wrong,
    /// The signature does not fit the nonce of this connection.
    #[error("the signature of the nonce is wrong")]
    Signature,
    /// The user may not connect in this way.
    #[error("the user may not connect in this way (allowed_connection_types)")]
    ConnectionType,
    /// None of the certificate's names is a user.
    #[error("no user is named as the certificate is")]
    Certificate,
    /// A JWT.
    #[error("JWTs are not supported; use a user with a password, a token or an nkey")]
    Jwt,
}

/// The outcome of [`Identities::check`].
#[derive(Debug)]
pub enum Check {
    /// Known at once.
    Done(Result<Identity, LoginError>),
    /// A bcrypt hash must be computed, which takes tens of milliseconds: on a helper thread.
    Slow(SlowCheck),
}

/// A password that waits to be compared with its bcrypt hash. The caller bounds how many run at once.
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
    /// Compares. Blocks for as long as the hash's cost demands.
    ///
    /// # Errors
    /// [`LoginError::Wrong`].
    pub fn run(self) -> Result<Identity, LoginError> {
        match bcrypt::verify(&self.given, &self.hash) {
            Ok(true) => Ok(self.identity),
            _ => Err(LoginError::Wrong),
        }
    }
}

#[derive(Debug)]
struct KnownUser {
    /// None: known by the certificate alone.
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

/// Everybody who may come in.
#[derive(Debug)]
pub struct Identities {
    accounts: Vec<Arc<str>>,
    users: HashMap<String, KnownUser>,
    /// Users whose names are subjects of certificates, by these.
    subjects: HashMap<Vec<(String, String)>, String>,
    keys: HashMap<String, KnownKey>,
    /// By [`AccountId`], of those that have any.
    mappings: HashMap<u16, Mappings>,
    /// What goes from account to account.
    exchange: Option<Arc<Exchange>>,
    /// By [`AccountId`], of those that have any.
    limits: HashMap<u16, AccountLimits>,
    token: Option<(Secret, Identity)>,
    no_auth: Option<Identity>,
    no_auth_types: Option<ConnectionTypes>,
    /// INFO says that credentials are wanted.
    is_asked_for: bool,
    required: bool,
}

impl Identities {
    /// Whoever comes is let in, to the global account.
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

    /// Puts together what was configured. After a reload, `before` are the identities until now: accounts that both
    /// have keep their number, and new ones come behind.
    ///
    /// # Errors
    /// What is wrong, in words that say what would be right.
    pub fn build(authorization: &Authorization, before: Option<&Self>) -> Result<Self, SpecError> {
        spec::build(authorization, before)
    }

    /// The names of all accounts, by [`AccountId`].
    pub fn accounts(&self) -> &[Arc<str>] {
        &self.accounts
    }

    /// The name of an account.
    pub fn account_name(&self, account: AccountId) -> &str {
        self.accounts.get(usize::from(account.0)).map_or("", |name| name)
    }

    /// What accounts have for other subjects, by [`AccountId`], for one core; none if no account has anything.
    pub(crate) fn all_mappings(&self) -> Option<Rc<HashMap<u16, Mappings>>> {
        (!self.mappings.is_empty()).then(|| Rc::new(self.mappings.clone()))
    }

    /// What goes from account to account; none, if that is nothing.
    pub(crate) fn exchange(&self) -> Option<&Arc<Exchange>> {
        self.exchange.as_ref()
    }

    /// Whether not everybody is let in with everything.
    pub fn is_required(&self) -> bool {
        self.required
    }

    /// Whether INFO says that credentials are wanted: not where `no_auth_user` stands for who has none (nats-server's rule).
    pub fn is_asked_for(&self) -> bool {
        self.is_asked_for
    }

    /// Whether a client may begin without CONNECT: somebody stands for who says nothing and comes this way.
    pub fn may_begin_without(&self, websocket: bool) -> bool {
        self.no_auth.is_some() && (!self.required || allows(self.no_auth_types, websocket))
    }

    /// What an account's clients may have.
    pub fn limits(&self, account: AccountId) -> AccountLimits {
        self.limits.get(&account.0).copied().unwrap_or_default()
    }

    /// Whether INFO must carry a nonce: somebody signs with an nkey.
    pub fn wants_nonce(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Who this is. `nonce` is the text that this connection's INFO carried.
    ///
    /// In nats-server's order (`processClientOrLeafAuthentication`): key, user, nobody, token.
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

    /// Who a client is now that was `before` by the identities of before: the same with the permissions of now, or nobody
    /// any more, because its user, key or token is gone or has another secret. (nats-server checks what CONNECT said once
    /// more; no secret of a client's is kept here, so that a new hash of the same password is another secret.)
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

    /// The user whose name is one of a certificate's. As in nats-server, what CONNECT says of it does not count.
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
        // Clients send it with and without padding, in either alphabet; nats-server takes all.
        let sig = base64::engine::general_purpose::URL_SAFE_NO_PAD
            .decode(sig.trim_end_matches('='))
            .or_else(|_| base64::engine::general_purpose::STANDARD_NO_PAD.decode(sig.trim_end_matches('=')))
            .map_err(|_| LoginError::Signature)?;
        known.key.verify(nonce, &sig).map_err(|_| LoginError::Signature)?;
        Ok(known.identity.clone())
    }
}

/// Whether somebody may come by WebSocket, or without.
fn allows(types: Option<ConnectionTypes>, websocket: bool) -> bool {
    types.is_none_or(|types| if websocket { types.websocket } else { types.standard })
}

/// Holds a secret against what was given: at once if it is plain, else as a [`SlowCheck`].
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
