//! Configuration of users and accounts, in NATS's terms, and its validation.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    ACCOUNTS_MAX, AccountId, GLOBAL_ACCOUNT, Identities, Identity, KnownKey, KnownUser, Proof,
    SYSTEM_ACCOUNT, certificate,
    exchange::{Exchange, ExchangeFault, Export, Import},
    mapping::{Mapping, Mappings},
    pattern,
    permissions::{Entry, Permissions, Rules},
    reserved::{self, ReservedSubjects},
};

/// A password or token from the configuration. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// Plain text.
    Plain(Arc<str>),
    /// bcrypt hash (`$2a$…`, `$2b$…`, `$2x$…`, `$2y$…`).
    Bcrypt(Arc<str>),
}

impl Secret {
    /// Builds the secret from its text. A bcrypt hash is recognised by its prefix, as in nats-server.
    pub fn new(text: &str) -> Self {
        if ["$2a$", "$2b$", "$2x$", "$2y$"].iter().any(|prefix| text.starts_with(prefix)) {
            Self::Bcrypt(text.into())
        } else {
            Self::Plain(text.into())
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain(…)",
            Self::Bcrypt(_) => "Bcrypt(…)",
        })
    }
}

/// A user who may log in: with a name and a password, or with an nkey.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// Name; `None` for an nkey user.
    pub user: Option<String>,
    /// Password of a user with a name.
    pub password: Option<Secret>,
    /// Public key of an nkey user, `U…`.
    pub nkey: Option<String>,
    /// Permissions of the user; `None`: the default permissions.
    pub permissions: Option<Permissions>,
    /// Connection types that the user may use; `None`: any.
    pub connection_types: Option<ConnectionTypes>,
}

/// Allowed connection types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionTypes {
    /// TCP, with or without TLS.
    pub standard: bool,
    /// WebSocket, with or without TLS.
    pub websocket: bool,
}

/// Limits on an account's clients; `None`: the server-wide limit applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccountLimits {
    /// Largest number of connections to the account.
    pub max_connections: Option<usize>,
    /// Largest number of subscriptions per connection.
    pub max_subscriptions: Option<usize>,
    /// Largest size of a message in bytes, headers included.
    pub max_payload: Option<usize>,
}

/// An account: a separate subject space with its own users.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    /// Name of the account.
    pub name: String,
    /// Users of the account.
    pub users: Vec<User>,
    /// Mappings of the subjects to which its clients publish.
    pub mappings: Vec<Mapping>,
    /// Permissions of the account's users without permissions of their own; `None`: the default for all
    /// accounts.
    pub default_permissions: Option<Permissions>,
    /// Streams and services that other accounts may import.
    pub exports: Vec<Export>,
    /// Streams and services that the account imports.
    pub imports: Vec<Import>,
    /// Limits of the account's clients.
    pub limits: AccountLimits,
}

/// Configured authorization. The default admits every client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Authorization {
    /// Token that admits a client to the global account.
    pub token: Option<Secret>,
    /// Users of the global account. A single configured `user` with `password` is added to this list.
    pub users: Vec<User>,
    /// Mappings of the subjects in the global account.
    pub mappings: Vec<Mapping>,
    /// Permissions of users without permissions of their own; `None`: everything is allowed.
    pub default_permissions: Option<Permissions>,
    /// Accounts besides the global one.
    pub accounts: Vec<Account>,
    /// Account that may subscribe to the server's own subjects; `None`: [`SYSTEM_ACCOUNT`].
    pub system_account: Option<String>,
    /// User whose identity clients without credentials get.
    pub no_auth_user: Option<String>,
    /// Users may be identified by their certificates alone. Such a user needs no password, and without a
    /// password nobody can log in under its name.
    pub by_certificate: bool,
    /// The configuration has an `authorization` block, even if it is empty.
    pub has_block: bool,
    /// Reserved subjects of the global account.
    pub reserved: ReservedSubjects,
}

impl Authorization {
    /// Returns whether every client is admitted.
    pub fn is_open(&self) -> bool {
        self.token.is_none()
            && self.users.is_empty()
            && self.accounts.iter().all(|account| account.users.is_empty())
    }

    /// Returns whether the system account is the only account, and no other authorization is configured.
    /// If so, the system account's users are for the operator, and every other client is admitted to the global
    /// account, as in nats-server.
    fn is_open_beside_system(&self) -> bool {
        let system = self.system_account.as_deref().unwrap_or(SYSTEM_ACCOUNT);
        let is_said = self.has_block || self.token.is_some() || !self.users.is_empty();
        !is_said && matches!(&self.accounts[..], [account] if account.name == system)
    }
}

/// Error in an [`Authorization`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A user has neither a name nor a key, or has both.
    #[error("a user needs either `user` and `password`, or `nkey`")]
    NeitherNorBoth,
    /// A user has a name but no password.
    #[error("user `{0}` has no password")]
    NoPassword(String),
    /// A user, key or account is configured twice.
    #[error("duplicate `{0}`: users, keys and accounts may be configured once")]
    Twice(String),
    /// The text is not a public user key.
    #[error("invalid public user nkey `{0}`: it begins with U and has 56 letters and digits")]
    NotAKey(String),
    /// The text is not a hash that bcrypt can verify.
    #[error("invalid bcrypt hash in the password of `{0}`: a hash has 60 characters, as $2a$11$…")]
    NotAHash(String),
    /// The text is not a valid subject pattern.
    #[error("invalid subject pattern `{0}`; expected a pattern such as orders.* or orders.>")]
    NotAPattern(String),
    /// `no_auth_user` does not exist.
    #[error("no_auth_user `{0}` is not a configured user")]
    NobodyKnown(String),
    /// The name of an account is invalid.
    #[error("invalid account name `{0}`: it is empty, reserved, or has spaces or control characters")]
    AccountName(String),
    /// `system_account` does not exist.
    #[error("system_account `{0}` is not a configured account")]
    NoSuchSystemAccount(String),
    /// A mapping is invalid.
    #[error("mappings: {0}")]
    Mapping(String),
    /// An export or import is invalid.
    #[error(transparent)]
    Exchange(#[from] ExchangeFault),
    /// There are more accounts than [`ACCOUNTS_MAX`].
    #[error("too many accounts: at most {ACCOUNTS_MAX}")]
    TooManyAccounts,
    /// `no_auth_user` and a token are both configured.
    #[error(
        "no_auth_user and a token exclude each other: a client without credentials would not need the token"
    )]
    TokenAndNobody,
}

pub(super) fn build(spec: &Authorization, before: Option<&Identities>) -> Result<Identities, SpecError> {
    let accounts = accounts(spec, before)?;
    let mut identities = Identities {
        accounts: accounts.names,
        users: HashMap::new(),
        subjects: HashMap::new(),
        keys: HashMap::new(),
        mappings: HashMap::new(),
        exchange: None,
        limits: HashMap::new(),
        token: None,
        no_auth: None,
        no_auth_types: None,
        is_asked_for: !spec.is_open() && spec.no_auth_user.is_none(),
        required: !spec.is_open(),
    };
    map(&mut identities, AccountId::GLOBAL, &spec.mappings)?;
    let default = shared(spec.default_permissions.as_ref())?;
    for user in &spec.users {
        add(&mut identities, user, AccountId::GLOBAL, &default, spec)?;
    }
    for account in &spec.accounts {
        let id = accounts.ids.get(account.name.as_str()).copied().unwrap_or(AccountId::GLOBAL);
        map(&mut identities, id, &account.mappings)?;
        if account.limits != AccountLimits::default() {
            identities.limits.insert(id.0, account.limits);
        }
        let own = shared(account.default_permissions.as_ref())?;
        let default = if account.default_permissions.is_some() { &own } else { &default };
        for user in &account.users {
            add(&mut identities, user, id, default, spec)?;
        }
    }
    let number_of = |place: usize| accounts.ids.get(&spec.accounts[place].name).map_or(0, |id| id.0);
    identities.exchange = Exchange::build(&spec.accounts, number_of)?.map(Arc::new);
    if let Some(token) = &spec.token {
        check_hash("the token", token)?;
        let proof = Proof::Token(token.clone());
        let identity = Identity { permissions: default, proof, ..Identity::anonymous() };
        identities.token = Some((token.clone(), identity));
    }
    identities.no_auth = match &spec.no_auth_user {
        Some(_) if spec.token.is_some() => return Err(SpecError::TokenAndNobody),
        Some(name) => {
            let known = identities.users.get(name).map(|user| (&user.identity, user.types));
            let known = known.or_else(|| identities.keys.get(name).map(|key| (&key.identity, key.types)));
            let (identity, types) = known.ok_or_else(|| SpecError::NobodyKnown(name.clone()))?;
            identities.no_auth_types = types;
            Some(Identity { proof: Proof::Nothing, ..identity.clone() })
        }
        None => (!identities.required || spec.is_open_beside_system()).then(Identity::anonymous),
    };
    for entry in spec.reserved.publish.iter().chain(&spec.reserved.subscribe) {
        check_entry(entry)?;
    }
    reserved::keep(&mut identities, &spec.reserved);
    Ok(identities)
}

fn map(identities: &mut Identities, account: AccountId, mappings: &[Mapping]) -> Result<(), SpecError> {
    let mappings = Mappings::build(mappings).map_err(SpecError::Mapping)?;
    if !mappings.is_empty() {
        identities.mappings.insert(account.0, mappings);
    }
    Ok(())
}

struct Accounts {
    names: Vec<Arc<str>>,
    ids: HashMap<String, AccountId>,
}

/// Numbers the accounts: the global and the system account first, then those of the old configuration, then
/// new ones. The number of a removed account is not reused, so that messages published in it never reach
/// clients of another account.
fn accounts(spec: &Authorization, before: Option<&Identities>) -> Result<Accounts, SpecError> {
    let system = spec.system_account.as_deref().unwrap_or(SYSTEM_ACCOUNT);
    let mut names: Vec<Arc<str>> = match before {
        Some(before) => before.accounts.clone(),
        None => vec![GLOBAL_ACCOUNT.into(), system.into()],
    };
    if let Some(name) = names.get_mut(usize::from(AccountId::SYSTEM.0)) {
        *name = system.into();
    }
    let mut seen = HashSet::new();
    for account in &spec.accounts {
        let unfit = |c: char| c.is_whitespace() || c.is_control();
        if account.name.is_empty() || account.name.contains(unfit) {
            return Err(SpecError::AccountName(account.name.clone()));
        }
        if !seen.insert(account.name.as_str()) {
            return Err(SpecError::Twice(account.name.clone()));
        }
        if !names.iter().any(|name| **name == *account.name) {
            names.push(account.name.as_str().into());
        }
    }
    if spec.system_account.is_some() && system != SYSTEM_ACCOUNT && !seen.contains(system) {
        return Err(SpecError::NoSuchSystemAccount(system.to_owned()));
    }
    if names.len() > ACCOUNTS_MAX {
        return Err(SpecError::TooManyAccounts);
    }
    // If a name occurs twice, the first number wins: a reload may give the system account the name of an
    // older account.
    let numbered: Vec<_> = (0..).zip(&names).map(|(id, name)| (name.to_string(), AccountId(id))).collect();
    let ids = numbered.into_iter().rev().collect();
    Ok(Accounts { names, ids })
}

fn add(
    identities: &mut Identities,
    user: &User,
    account: AccountId,
    default: &Option<Arc<Permissions>>,
    spec: &Authorization,
) -> Result<(), SpecError> {
    let permissions = match &user.permissions {
        Some(_) => shared(user.permissions.as_ref())?,
        None => default.clone(),
    };
    let identity = |name: &str, proof| Identity { account, name: Some(name.into()), permissions, proof };
    let types = user.connection_types;
    match (&user.user, &user.nkey) {
        (Some(name), None) if !name.is_empty() => {
            match &user.password {
                Some(secret) => check_hash(name, secret)?,
                None if spec.by_certificate => {}
                None => return Err(SpecError::NoPassword(name.clone())),
            }
            if let Some(subject) = certificate::subject_of(name).filter(|_| spec.by_certificate) {
                identities.subjects.insert(subject, name.clone());
            }
            let identity = identity(name, Proof::Password(user.password.clone()));
            let known = KnownUser { secret: user.password.clone(), identity, types };
            match identities.users.insert(name.clone(), known) {
                Some(_) => Err(SpecError::Twice(name.clone())),
                None => Ok(()),
            }
        }
        (None, Some(nkey)) => {
            let key = nkeys::KeyPair::from_public_key(nkey).ok().filter(|_| nkey.starts_with('U'));
            let key = key.ok_or_else(|| SpecError::NotAKey(nkey.clone()))?;
            match identities
                .keys
                .insert(nkey.clone(), KnownKey { key, identity: identity(nkey, Proof::Key), types })
            {
                Some(_) => Err(SpecError::Twice(nkey.clone())),
                None => Ok(()),
            }
        }
        _ => Err(SpecError::NeitherNorBoth),
    }
}

fn check_hash(name: &str, secret: &Secret) -> Result<(), SpecError> {
    match secret {
        Secret::Bcrypt(hash) if hash.parse::<bcrypt::HashParts>().is_err() => {
            Err(SpecError::NotAHash(name.to_owned()))
        }
        _ => Ok(()),
    }
}

/// Checks the patterns and adds the rules that other rules imply.
fn shared(permissions: Option<&Permissions>) -> Result<Option<Arc<Permissions>>, SpecError> {
    let Some(permissions) = permissions else { return Ok(None) };
    let all = [&permissions.publish, &permissions.subscribe].into_iter();
    for entry in all.flat_map(|rules| rules.allow.iter().flatten().chain(&rules.deny)) {
        check_entry(entry)?;
    }
    let mut permissions = permissions.clone();
    // A user with `allow_responses` but no rules for publishing may publish answers only, as in nats-server.
    if permissions.responses.is_some() && permissions.publish == Rules::default() {
        permissions.publish.allow = Some(Vec::new());
    }
    Ok((!permissions.is_everything() || permissions.responses.is_some()).then(|| Arc::new(permissions)))
}

fn check_entry(entry: &Entry) -> Result<(), SpecError> {
    let texts = [Some(&entry.subject), entry.queue.as_ref()];
    match texts.into_iter().flatten().find(|text| !pattern::is_valid(text)) {
        Some(wrong) => Err(SpecError::NotAPattern(wrong.clone())),
        None => Ok(()),
    }
}
