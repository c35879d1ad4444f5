//! What can be said about users and accounts, in NATS's words, and what of it is wrong.

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

/// A password or token as the configuration has it. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// As it is.
    Plain(Arc<str>),
    /// Its bcrypt hash (`$2a$…`, `$2b$…`, `$2x$…`, `$2y$…`).
    Bcrypt(Arc<str>),
}

impl Secret {
    /// From its text: a bcrypt hash is known by its beginning, as in nats-server.
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

/// Somebody who may come in: with a name and a password, or with an nkey.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// The name; none for an nkey user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The public key, `U…`.
    pub nkey: Option<String>,
    /// What the user may do; none: the default permissions.
    pub permissions: Option<Permissions>,
    /// What the user may connect by; none: anything.
    pub connection_types: Option<ConnectionTypes>,
}

/// What somebody may connect by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConnectionTypes {
    /// TCP, with TLS or without.
    pub standard: bool,
    /// WebSocket.
    pub websocket: bool,
}

/// What an account's clients may have; none: what all clients may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccountLimits {
    /// Connections, all together.
    pub max_connections: Option<usize>,
    /// Subscriptions of one connection.
    pub max_subscriptions: Option<usize>,
    /// Bytes of one message, headers included.
    pub max_payload: Option<usize>,
}

/// A world of subjects with its users.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Who lives in it.
    pub users: Vec<User>,
    /// Subjects that its clients' messages get instead of their own.
    pub mappings: Vec<Mapping>,
    /// What those of its users may do that have no permissions of their own; none: what the users of all accounts may.
    pub default_permissions: Option<Permissions>,
    /// What others may have of its subjects.
    pub exports: Vec<Export>,
    /// What it takes of others'.
    pub imports: Vec<Import>,
    /// What its clients may have.
    pub limits: AccountLimits,
}

/// Everything about who may come in, as it was configured. The default: everybody.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Authorization {
    /// The token that lets into the global account.
    pub token: Option<Secret>,
    /// Users of the global account. A single `user` and `password` is one of these.
    pub users: Vec<User>,
    /// Subjects that messages in the global account get instead of their own.
    pub mappings: Vec<Mapping>,
    /// What users without permissions of their own may do; none: everything.
    pub default_permissions: Option<Permissions>,
    /// Accounts beside the global one.
    pub accounts: Vec<Account>,
    /// The account that sees the server's own subjects; none: [`SYSTEM_ACCOUNT`].
    pub system_account: Option<String>,
    /// Who a client is that says nothing about itself.
    pub no_auth_user: Option<String>,
    /// Users may be known by their certificates alone: they need no password, and without one nobody is let in by
    /// their name.
    pub by_certificate: bool,
    /// The configuration has an `authorization` block, whatever is in it.
    pub has_block: bool,
    /// What the program keeps for itself of the global account's subjects.
    pub reserved: ReservedSubjects,
}

impl Authorization {
    /// Whether it lets everybody in.
    pub fn is_open(&self) -> bool {
        self.token.is_none()
            && self.users.is_empty()
            && self.accounts.iter().all(|account| account.users.is_empty())
    }

    /// Whether the only account is the system's, and nothing else is said of who may come in: then its users are there for
    /// the operator, and everybody else is let into the global account, as in nats-server.
    fn is_open_beside_system(&self) -> bool {
        let system = self.system_account.as_deref().unwrap_or(SYSTEM_ACCOUNT);
        let is_said = self.has_block || self.token.is_some() || !self.users.is_empty();
        !is_said && matches!(&self.accounts[..], [account] if account.name == system)
    }
}

/// What is wrong with an [`Authorization`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Neither a name nor a key, or both.
    #[error("a user has either `user` with `password`, or `nkey`")]
    NeitherNorBoth,
    /// A name without a password.
    #[error("the user `{0}` has no password")]
    NoPassword(String),
    /// Twice the same.
    #[error("`{0}` is there twice: a user, a key and an account have one place each")]
    Twice(String),
    /// Not a public user key.
    #[error("`{0}` is no public user nkey: it begins with U and has 56 letters and digits")]
    NotAKey(String),
    /// Not a hash that bcrypt can compare with.
    #[error(
        "the password of `{0}` begins like a bcrypt hash and is none: a hash has 60 characters, as $2a$11$…"
    )]
    NotAHash(String),
    /// Not a pattern.
    #[error("`{0}` is no pattern of subjects, such as orders.* or orders.>")]
    NotAPattern(String),
    /// `no_auth_user` is nobody.
    #[error("no_auth_user `{0}` is no user of this configuration")]
    NobodyKnown(String),
    /// An account's name cannot be used.
    #[error("`{0}` cannot be an account's name: it is empty, reserved, or has spaces or control characters")]
    AccountName(String),
    /// `system_account` is none of the accounts.
    #[error("system_account `{0}` is no account of this configuration")]
    NoSuchSystemAccount(String),
    /// A subject cannot be mapped as it is said.
    #[error("mappings: {0}")]
    Mapping(String),
    /// An account cannot have or take what it says.
    #[error(transparent)]
    Exchange(#[from] ExchangeFault),
    /// Too many.
    #[error("there are more than {ACCOUNTS_MAX} accounts")]
    TooManyAccounts,
    /// `no_auth_user` beside a token.
    #[error("no_auth_user and a token exclude each other: a client that says nothing would need no token")]
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

/// Numbers the accounts: the global and the system one first, then those of before, then the new ones. A name that is
/// gone keeps its number: what was published in it must not reach whoever comes next.
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
    // The first of a name counts: after a reload the system account may have the name of an account of before.
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

/// Checks the patterns, and completes what one rule implies of another.
fn shared(permissions: Option<&Permissions>) -> Result<Option<Arc<Permissions>>, SpecError> {
    let Some(permissions) = permissions else { return Ok(None) };
    let all = [&permissions.publish, &permissions.subscribe].into_iter();
    for entry in all.flat_map(|rules| rules.allow.iter().flatten().chain(&rules.deny)) {
        check_entry(entry)?;
    }
    let mut permissions = permissions.clone();
    // As in nats-server: who may answer and is told nothing about publishing may only answer.
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
