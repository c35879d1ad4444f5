//! Building of the identities from the configured users and accounts, with its validation.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    ACCOUNTS_MAX, AccountId, GLOBAL_ACCOUNT, Identities, Identity, KnownKey, KnownUser, Proof,
    SYSTEM_ACCOUNT, certificate,
    exchange::Exchange,
    mapping::{Mapping, Mappings},
    pattern,
    permissions::{Entry, Permissions, Rules},
    reserved::{ReservedSubjects, deny},
    spec::{AccountLimits, Authorization, Secret, SpecError, User},
};

impl Identities {
    /// Builds the identities of a configuration. On a reload, `before` holds the previous identities:
    /// accounts in both keep their number, and new accounts get the numbers that follow.
    ///
    /// # Errors
    /// [`SpecError`] if the configuration is invalid; its text says what would be valid.
    pub fn build(spec: &Authorization, before: Option<&Self>) -> Result<Self, SpecError> {
        let accounts = accounts(spec, before)?;
        let mut identities = Self {
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
        keep(&mut identities, &spec.reserved);
        Ok(identities)
    }
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

/// Denies the reserved subjects to all identities of the global account.
fn keep(identities: &mut Identities, reserved: &ReservedSubjects) {
    if *reserved == ReservedSubjects::default() {
        return;
    }
    let users = identities.users.values_mut().map(|user| &mut user.identity);
    let keys = identities.keys.values_mut().map(|key| &mut key.identity);
    let token = identities.token.as_mut().map(|(_, identity)| identity);
    let all = users.chain(keys).chain(token).chain(&mut identities.no_auth);
    all.filter(|identity| identity.account == AccountId::GLOBAL)
        .for_each(|identity| deny(&mut identity.permissions, reserved));
}
