//! Configuration of users and accounts, in NATS's terms.

use std::sync::Arc;

use super::{
    ACCOUNTS_MAX, SYSTEM_ACCOUNT,
    exports::{ExchangeFault, Export, Import},
    mapping::Mapping,
    permissions::Permissions,
    reserved::ReservedSubjects,
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
    pub(super) fn is_open_beside_system(&self) -> bool {
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
