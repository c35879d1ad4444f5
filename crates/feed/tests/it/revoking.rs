//! A reload takes away rights that are no longer granted, from connected clients too, on all cores or on
//! none.

use feed::{
    Config, Counter, Server,
    identity::{Account, Authorization, Entry, Permissions, Rules, Secret, User},
};

use crate::common::{Client, Got, start, wait_until};

fn user(name: &str, password: &str) -> User {
    User { user: Some(name.to_owned()), password: Some(Secret::new(password)), ..User::default() }
}

fn allowed(name: &str, publish: &[&str], subscribe: &[&str], deny: &[&str]) -> User {
    let list = |texts: &[&str]| -> Vec<Entry> { texts.iter().map(|text| Entry::of(text)).collect() };
    let permissions = Permissions {
        publish: Rules { allow: Some(list(publish)), ..Rules::default() },
        subscribe: Rules { allow: Some(list(subscribe)), deny: list(deny) },
        responses: None,
    };
    User { permissions: Some(permissions), ..user(name, "p") }
}

fn users(users: Vec<User>) -> Authorization {
    Authorization { users, ..Authorization::default() }
}

/// Connects with `who` in CONNECT.
fn enter(server: &Server, who: &str) -> Client {
    let mut client = Client::silent(server);
    client.send(format!("CONNECT {{\"verbose\":false,\"pedantic\":false,{who}}}\r\n").as_bytes());
    client.ping();
    client
}

fn named(name: &str) -> String {
    format!("\"user\":\"{name}\",\"pass\":\"p\"")
}

fn reload(server: &Server, authorization: Authorization) {
    let listen = server.addresses()[0];
    server.reload(Config { listen, authorization, ..Config::default() }).expect("it is sound");
}

/// Checks that the server closes the connection, with no error but `Authorization Violation`.
fn is_closed(mut client: Client, what: &str) {
    loop {
        match client.next() {
            Got::Closed => return,
            Got::Error(text) => assert_eq!(text, "Authorization Violation", "{what}"),
            Got::Info(_) => {}
            got => panic!("{what}: {got:?}"),
        }
    }
}

#[test]
fn revoked_clients_are_closed_on_every_core() {
    let hash = "$2a$04$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy";
    let account = |name: &str, users| Account { name: name.to_owned(), users, ..Account::default() };
    let server = start(3, |config| {
        config.authorization = Authorization {
            accounts: vec![account("A", vec![user("moves", "p")])],
            no_auth_user: Some("nobody".to_owned()),
            ..users(vec![user("stays", "p"), user("gone", "p"), user("other", "p"), user("nobody", "q")])
        };
    });
    let enter_all = |who: &str| -> Vec<Client> { (0..5).map(|_| enter(&server, &named(who))).collect() };
    let (stays, gone) = (enter_all("stays"), enter_all("gone"));
    let (other, moves) = (enter_all("other"), enter_all("moves"));
    let silent: Vec<Client> = (0..5).map(|_| enter(&server, "\"name\":\"silent\"")).collect();
    reload(
        &server,
        Authorization {
            accounts: vec![account("A", vec![])],
            ..users(vec![user("stays", "p"), user("other", hash), user("moves", "p"), user("nobody", "q")])
        },
    );
    for (what, clients) in [("gone", gone), ("other", other), ("moves", moves), ("silent", silent)] {
        clients.into_iter().for_each(|client| is_closed(client, what));
    }
    for mut client in stays {
        assert_eq!(client.until_pong(), []);
    }
    assert_eq!(server.counted(Counter::Revoked), 20);
}

#[test]
fn tokens_and_open_doors() {
    let token = |text: &str| Authorization { token: Some(Secret::new(text)), ..Authorization::default() };
    let server = start(2, |_| {});
    let nobody = enter(&server, "\"name\":\"x\"");
    let fresh = Client::silent(&server);
    reload(&server, token("t"));
    is_closed(nobody, "a token is asked for");
    is_closed(fresh, "who has said nothing yet");
    let mut holder = enter(&server, "\"auth_token\":\"t\"");
    reload(&server, token("t"));
    assert_eq!(holder.until_pong(), []);
    reload(&server, token("u"));
    is_closed(holder, "another token");
}

#[test]
fn narrowed_permissions_hold_for_who_is_connected() {
    let server = start(2, |config| {
        config.authorization =
            users(vec![allowed("ann", &[">"], &[">"], &[]), allowed("bob", &[">"], &[">"], &[])]);
    });
    let (mut ann, mut bob) = (enter(&server, &named("ann")), enter(&server, &named("bob")));
    ann.send(b"SUB foo.x 1\r\nSUB foo.y q 2\r\nSUB > 4\r\nSUB foo.* 5\r\n");
    ann.ping();
    reload(
        &server,
        users(vec![
            allowed("ann", &["zz"], &["bar", "foo.*"], &["foo.y"]),
            allowed("bob", &[">"], &[">"], &[]),
        ]),
    );
    wait_until("two are ended", || server.counted(Counter::SubscriptionsRevoked) == 2);
    bob.send(b"PUB foo.y 1\r\ny\r\nPUB other 1\r\no\r\nPUB foo.x 1\r\nx\r\n");
    bob.ping();
    ann.send(b"PUB foo.x 0\r\n\r\nPUB zz 0\r\n\r\n");
    let mut got: Vec<String> = ann
        .until_pong()
        .into_iter()
        .map(|got| match got {
            Got::Error(text) => text,
            Got::Message { subject, sid, .. } => format!("{subject} to {sid}"),
            other => panic!("{other:?}"),
        })
        .collect();
    got.sort();
    assert_eq!(
        got,
        [
            "Permissions Violation for Publish to \"foo.x\"",
            "Permissions Violation for Subscription to \">\" (sid \"4\")",
            "Permissions Violation for Subscription to \"foo.y\" (sid \"2\")",
            "foo.x to 1",
            "foo.x to 5",
        ]
    );
    assert_eq!(server.counted(Counter::Revoked), 0);
    // Wider permissions are applied as well.
    reload(&server, users(vec![user("ann", "p"), user("bob", "p")]));
    wait_until("it may now", || {
        ann.send(b"PUB foo.z 0\r\n\r\n");
        !ann.until_pong().iter().any(|got| matches!(got, Got::Error(_)))
    });
}

/// An invalid configuration changes nothing, on no core.
#[test]
fn all_or_none() {
    let server = start(3, |config| config.authorization = users(vec![user("ann", "p")]));
    let mut clients: Vec<Client> = (0..6).map(|_| enter(&server, &named("ann"))).collect();
    let listen = server.addresses()[0];
    let authorization = users(vec![user("bob", "p"), user("bob", "p")]);
    assert!(server.reload(Config { listen, authorization, ..Config::default() }).is_err());
    clients.iter_mut().for_each(|client| assert_eq!(client.until_pong(), []));
    enter(&server, &named("ann"));
    assert_eq!(server.counted(Counter::Revoked), 0);
}
