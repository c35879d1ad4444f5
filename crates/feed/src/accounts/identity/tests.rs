//! Tests of each kind of credentials, valid and invalid.

use super::*;

fn user(name: &str, password: &str) -> User {
    User { user: Some(name.to_owned()), password: Some(Secret::new(password)), ..User::default() }
}

fn build(spec: &Authorization) -> Identities {
    Identities::build(spec, None).unwrap()
}

fn password<'a>(user: &'a str, pass: &'a str) -> Credentials<'a> {
    Credentials { user: Some(user), pass: Some(pass), ..Credentials::default() }
}

/// Returns the result of a check; a slow check is run immediately.
fn who(identities: &Identities, credentials: &Credentials<'_>) -> Result<String, LoginError> {
    let identity = match identities.check(credentials, b"nonce") {
        Check::Done(done) => done,
        Check::Slow(slow) => slow.run(),
    }?;
    let name = identity.name.as_deref().unwrap_or("-");
    Ok(format!("{name} in {}", identities.account_name(identity.account)))
}

#[test]
fn every_client_is_accepted_without_users() {
    for identities in [Identities::open(), build(&Authorization::default())] {
        assert!(!identities.is_required() && !identities.wants_nonce());
        assert_eq!(who(&identities, &Credentials::default()), Ok("- in $G".into()));
        assert_eq!(who(&identities, &password("any", "thing")), Ok("- in $G".into()));
    }
}

#[test]
fn a_user_with_a_plain_password() {
    let identities = build(&Authorization { users: vec![user("ann", "s3cret")], ..Authorization::default() });
    assert!(identities.is_required());
    assert_eq!(who(&identities, &password("ann", "s3cret")), Ok("ann in $G".into()));
    for (name, pass) in [("ann", "s3cre"), ("ann", "s3cret "), ("ann", ""), ("bob", "s3cret")] {
        assert_eq!(who(&identities, &password(name, pass)), Err(LoginError::Wrong), "{name} {pass}");
    }
    assert_eq!(who(&identities, &Credentials::default()), Err(LoginError::Missing));
    assert_eq!(who(&identities, &password("", "")), Err(LoginError::Missing));
}

#[test]
fn a_bcrypt_hash_is_compared_off_the_loop() {
    let hash = bcrypt::hash("s3cret", 4).unwrap();
    let identities = build(&Authorization { users: vec![user("ann", &hash)], ..Authorization::default() });
    assert!(matches!(identities.check(&password("ann", "s3cret"), b""), Check::Slow(_)));
    assert_eq!(who(&identities, &password("ann", "s3cret")), Ok("ann in $G".into()));
    assert_eq!(who(&identities, &password("ann", "secret")), Err(LoginError::Wrong));
    assert_eq!(who(&identities, &password("ann", &hash)), Err(LoginError::Wrong), "the hash is no password");
    let long = "s".repeat(BCRYPT_PASSWORD_BYTES_MAX + 1);
    assert!(matches!(identities.check(&password("ann", &long), b""), Check::Done(Err(LoginError::Wrong))));
}

#[test]
fn a_token_plain_or_hashed() {
    for token in ["t0ken".to_owned(), bcrypt::hash("t0ken", 4).unwrap()] {
        let identities =
            build(&Authorization { token: Some(Secret::new(&token)), ..Authorization::default() });
        let token = |text| Credentials { auth_token: Some(text), ..Credentials::default() };
        assert_eq!(who(&identities, &token("t0ken")), Ok("- in $G".into()));
        assert_eq!(who(&identities, &token("token")), Err(LoginError::Wrong));
        assert_eq!(who(&identities, &Credentials::default()), Err(LoginError::Missing));
    }
}

#[test]
fn an_nkey_signs_the_nonce_of_its_connection() {
    let pair = nkeys::KeyPair::new_user();
    let public = pair.public_key();
    let spec = User { nkey: Some(public.clone()), ..User::default() };
    let identities = build(&Authorization { users: vec![spec], ..Authorization::default() });
    assert!(identities.wants_nonce());
    let bytes = pair.sign(b"nonce").unwrap();
    let engines =
        [base64::engine::general_purpose::URL_SAFE_NO_PAD, base64::engine::general_purpose::URL_SAFE];
    let mut signatures: Vec<String> = engines.iter().map(|engine| engine.encode(&bytes)).collect();
    signatures.push(base64::engine::general_purpose::STANDARD.encode(&bytes));
    for sig in &signatures {
        let credentials = Credentials { nkey: Some(&public), sig: Some(sig), ..Credentials::default() };
        assert_eq!(who(&identities, &credentials), Ok(format!("{public} in $G")));
        let Check::Done(other) = identities.check(&credentials, b"another") else { panic!("slow") };
        assert_eq!(other, Err(LoginError::Signature));
    }
    for sig in [None, Some(""), Some("!"), Some("AAAA")] {
        let credentials = Credentials { nkey: Some(&public), sig, ..Credentials::default() };
        assert_eq!(who(&identities, &credentials), Err(LoginError::Signature));
    }
    let stranger = nkeys::KeyPair::new_user().public_key();
    let credentials =
        Credentials { nkey: Some(&stranger), sig: Some(&signatures[0]), ..Credentials::default() };
    assert_eq!(who(&identities, &credentials), Err(LoginError::Wrong));
}

#[test]
fn a_jwt_is_refused_by_its_name() {
    let identities = build(&Authorization { users: vec![user("ann", "x")], ..Authorization::default() });
    let credentials = Credentials { jwt: Some("eyJ0"), ..Credentials::default() };
    assert_eq!(who(&identities, &credentials), Err(LoginError::Jwt));
    assert!(LoginError::Jwt.to_string().contains("not supported"));
}

#[test]
fn accounts_are_separate_and_survive_a_reload() {
    let account = |name: &str, users| Account { name: name.to_owned(), users, ..Account::default() };
    let spec = Authorization {
        accounts: vec![account("A", vec![user("a", "1")]), account("B", vec![user("b", "2")])],
        no_auth_user: Some("b".into()),
        ..Authorization::default()
    };
    let first = build(&spec);
    assert_eq!(who(&first, &password("a", "1")), Ok("a in A".into()));
    assert_eq!(who(&first, &Credentials::default()), Ok("b in B".into()), "no_auth_user");
    assert_eq!(who(&first, &password("a", "2")), Err(LoginError::Wrong), "no_auth_user is for the silent");

    let spec = Authorization {
        accounts: vec![account("C", vec![user("c", "3")]), account("B", vec![user("b", "2")])],
        ..Authorization::default()
    };
    let second = Identities::build(&spec, Some(&first)).unwrap();
    let names: Vec<&str> = second.accounts().iter().map(|name| &**name).collect();
    assert_eq!(names, ["$G", "$SYS", "A", "B", "C"]);
    assert_eq!(who(&second, &password("b", "2")), Ok("b in B".into()));
    assert_eq!(who(&second, &password("a", "1")), Err(LoginError::Wrong));
}

#[test]
fn the_system_account_may_have_another_name() {
    let account = Account { name: "SYS".into(), users: vec![user("admin", "1")], ..Account::default() };
    let spec = Authorization {
        accounts: vec![account],
        system_account: Some("SYS".into()),
        ..Authorization::default()
    };
    let identities = build(&spec);
    let Check::Done(Ok(identity)) = identities.check(&password("admin", "1"), b"") else { panic!("refused") };
    assert_eq!(identity.account, AccountId::SYSTEM);
    assert_eq!(identities.account_name(AccountId::SYSTEM), "SYS");
}

#[test]
fn permissions_are_the_users_own_or_the_default() {
    let limited = |subject: &str| Permissions {
        publish: Rules { allow: Some(vec![Entry::of(subject)]), deny: Vec::new() },
        ..Permissions::default()
    };
    let own = User { permissions: Some(limited("own")), ..user("own", "1") };
    let service = Permissions { responses: Some(Responses::default()), ..Permissions::default() };
    let service = User { permissions: Some(service), ..user("service", "3") };
    let spec = Authorization {
        users: vec![own, user("other", "2"), service],
        default_permissions: Some(limited("default")),
        ..Authorization::default()
    };
    let identities = build(&spec);
    let permissions = |name, pass| match identities.check(&password(name, pass), b"") {
        Check::Done(Ok(identity)) => identity.permissions.unwrap(),
        other => panic!("{other:?}"),
    };
    assert!(permissions("own", "1").may_publish(b"own") && !permissions("own", "1").may_publish(b"default"));
    assert!(
        permissions("other", "2").may_publish(b"default") && !permissions("other", "2").may_publish(b"own")
    );
    assert!(!permissions("service", "3").may_publish(b"any"), "who may answer may only answer");
}

#[test]
fn what_is_wrong_is_said_in_words() {
    let users = |users| Authorization { users, ..Authorization::default() };
    let denying = |subject: &str| {
        let rules = Rules { allow: None, deny: vec![Entry::of(subject)] };
        let permissions = Permissions { publish: rules, ..Permissions::default() };
        users(vec![User { permissions: Some(permissions), ..user("a", "1") }])
    };
    let named =
        |name: &str| Account { name: name.to_owned(), users: vec![user("a", "1")], ..Account::default() };
    let key = nkeys::KeyPair::new_account().public_key();
    let cases = [
        (users(vec![User::default()]), "either"),
        (users(vec![User { user: Some("a".into()), ..User::default() }]), "no password"),
        (users(vec![user("a", "1"), user("a", "2")]), "duplicate `a`"),
        (users(vec![User { nkey: Some("UABC".into()), ..User::default() }]), "invalid public user nkey"),
        (users(vec![User { nkey: Some(key), ..User::default() }]), "invalid public user nkey"),
        (users(vec![user("a", "$2a$11$short")]), "invalid bcrypt hash"),
        (denying("a..b"), "invalid subject pattern"),
        (Authorization { no_auth_user: Some("x".into()), ..users(vec![user("a", "1")]) }, "no_auth_user `x`"),
        (Authorization { accounts: vec![named("A B")], ..Authorization::default() }, "invalid account name"),
        (
            Authorization { accounts: vec![named("A"), named("A")], ..Authorization::default() },
            "duplicate `A`",
        ),
        (Authorization { system_account: Some("S".into()), ..users(vec![user("a", "1")]) }, "system_account"),
        (
            Authorization {
                token: Some(Secret::new("t")),
                no_auth_user: Some("a".into()),
                ..users(vec![user("a", "1")])
            },
            "exclude each other",
        ),
    ];
    for (spec, expected) in cases {
        let error = Identities::build(&spec, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} should say {expected:?}");
    }
}

#[test]
fn secrets_are_never_printed() {
    let spec = Authorization {
        token: Some(Secret::new("t0ken")),
        users: vec![user("ann", "s3cret")],
        ..Authorization::default()
    };
    let printed = format!("{spec:?} {:?}", build(&spec));
    assert!(!printed.contains("t0ken") && !printed.contains("s3cret"), "{printed}");
    let hash = bcrypt::hash("pass-word", 4).unwrap();
    let identities = build(&Authorization { users: vec![user("ann", &hash)], ..Authorization::default() });
    let Check::Slow(slow) = identities.check(&password("ann", "pass-word"), b"") else { panic!("fast") };
    assert!(!format!("{slow:?}").contains("pass-word"));
}

#[test]
fn a_user_may_connect_by_some_ways_alone() {
    let web = Some(ConnectionTypes { standard: false, websocket: true });
    let users = vec![User { connection_types: web, ..user("ann", "p") }, user("bob", "p")];
    let spec = Authorization { users, no_auth_user: Some("ann".to_owned()), ..Authorization::default() };
    let identities = build(&spec);
    let by_web = |credentials| Credentials { websocket: true, ..credentials };
    assert_eq!(who(&identities, &password("ann", "p")), Err(LoginError::ConnectionType));
    assert_eq!(who(&identities, &by_web(password("ann", "p"))), Ok("ann in $G".into()));
    assert_eq!(who(&identities, &by_web(password("ann", "x"))), Err(LoginError::Wrong));
    assert_eq!(who(&identities, &password("bob", "p")), Ok("bob in $G".into()));
    assert_eq!(who(&identities, &Credentials::default()), Err(LoginError::ConnectionType));
    assert_eq!(who(&identities, &by_web(Credentials::default())), Ok("ann in $G".into()));
}

#[test]
fn a_certificate_says_who_somebody_is() {
    let named = |name: &str| User { user: Some(name.to_owned()), ..User::default() };
    let users = vec![named("ann@example.org"), named("CN=bob, OU=shop"), user("carol", "p")];
    let spec = Authorization { users: users.clone(), by_certificate: true, ..Authorization::default() };
    let identities = build(&spec);
    let names = |alternatives: &[&str], subject: &str| certificate::Names {
        alternatives: alternatives.iter().map(|name| (*name).to_owned()).collect(),
        subject: certificate::subject_of(subject).unwrap_or_default(),
    };
    for (names, expected) in [
        (names(&["other", "ann@example.org"], "CN=bob,OU=shop"), Ok("ann@example.org in $G".into())),
        (names(&["other"], "OU=shop,CN=bob"), Ok("CN=bob, OU=shop in $G".into())),
        (names(&[], "CN=bob"), Err(LoginError::Certificate)),
        (names(&[], ""), Err(LoginError::Certificate)),
    ] {
        // CONNECT's user and password do not count, even if they are right.
        let credentials = Credentials { certificate: Some(&names), ..password("carol", "p") };
        assert_eq!(who(&identities, &credentials), expected, "{names:?}");
    }
    // On a listener that does not map certificates to users, a user without a password cannot log in.
    assert_eq!(who(&identities, &password("ann@example.org", "")), Err(LoginError::Wrong));
    assert_eq!(who(&identities, &password("carol", "p")), Ok("carol in $G".into()));
    let spec = Authorization { users, ..Authorization::default() };
    assert_eq!(Identities::build(&spec, None).unwrap_err(), SpecError::NoPassword("ann@example.org".into()));
}

#[test]
fn an_account_has_default_permissions_of_its_own() {
    let only = |subject: &str| {
        let publish = Rules { allow: Some(vec![Entry::of(subject)]), ..Rules::default() };
        Some(Permissions { publish, ..Permissions::default() })
    };
    let account = |name: &str, user: User, default_permissions| Account {
        name: name.to_owned(),
        users: vec![user],
        default_permissions,
        ..Account::default()
    };
    let accounts = vec![
        account("A", user("a", "p"), only("a.>")),
        account("B", user("b", "p"), None),
        account("C", User { permissions: only("own.>"), ..user("c", "p") }, only("c.>")),
    ];
    let spec = Authorization { accounts, default_permissions: only("all.>"), ..Authorization::default() };
    let identities = build(&spec);
    for (name, may) in [("a", "a.x"), ("b", "all.x"), ("c", "own.x")] {
        let Check::Done(Ok(identity)) = identities.check(&password(name, "p"), b"") else { panic!("{name}") };
        let permissions = identity.permissions.unwrap();
        for subject in ["a.x", "all.x", "own.x", "c.x"] {
            assert_eq!(permissions.may_publish(subject.as_bytes()), subject == may, "{name} {subject}");
        }
    }
}
