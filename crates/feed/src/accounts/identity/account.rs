//! Numbers and names of accounts.

/// Largest number of accounts of one server; a configuration with more does not load.
pub const ACCOUNTS_MAX: usize = 4096;
/// Account for clients that belong to no other account (the name is nats-server's).
pub const GLOBAL_ACCOUNT: &str = "$G";
/// Account that may subscribe to the server's own subjects (the name is nats-server's).
pub const SYSTEM_ACCOUNT: &str = "$SYS";

/// Number of an account: an index into [`super::Identities::accounts`] that stays the same across reloads.
/// Each account has its own subject space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountId(pub u16);

impl AccountId {
    /// Id of [`GLOBAL_ACCOUNT`].
    pub const GLOBAL: Self = Self(0);
    /// Id of the system account, under any name.
    pub const SYSTEM: Self = Self(1);
}
