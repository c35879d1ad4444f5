//! The mail service from a sender's side: postfix's smtp-source, swaks, signals, and invalid files.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
};

use tests::{
    mail::{MailService, Smtp},
    program,
};

const ANON: [&str; 4] = ["--store", "anon", "--store-size", "128MiB"];

fn anon(arguments: &[&str]) -> MailService {
    MailService::start(&[&ANON, arguments].concat())
}

/// Runs a program of the system; returns its output.
fn ran(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error} (tests/install-packages.sh)"));
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text}");
    text
}

#[test]
fn smtp_source_delivers_by_smtp_and_lmtp() {
    let service = anon(&["--lmtp", "127.0.0.1:0"]);
    let smtp = format!("inet:{}", service.smtp);
    let lmtp = format!("inet:{}", service.lmtp.unwrap());
    let common = ["-s", "5", "-m", "100", "-l", "4096", "-f", "a@b.test"];
    ran("smtp-source", &[&common[..], &["-d", "-t", "kept@localhost", &smtp]].concat());
    ran("smtp-source", &[&common[..], &["-t", "fresh@localhost", &smtp]].concat());
    ran("smtp-source", &[&common[..], &["-L", "-t", "lmtp@localhost", &lmtp]].concat());
    assert_eq!(service.counted("mail_received_total"), 300.0);
    for inbox in ["kept", "fresh", "lmtp"] {
        assert_eq!(service.subjects(inbox).len(), 99, "{inbox}: a page of a hundred");
    }
    service.stop();
}

#[test]
fn swaks_sends_with_authentication_attachment_and_by_starttls() {
    let directory = tempfile::tempdir().unwrap();
    let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    certificate(&cert, &key);
    let service = anon(&[
        "--tls-cert",
        cert.to_str().unwrap(),
        "--tls-key",
        key.to_str().unwrap(),
        "--host-name",
        "mx.test",
    ]);
    let server = service.smtp.to_string();
    let say = |more: &[&str]| {
        ran(
            "swaks",
            &[&["--server", &server, "--from", "a@b.test", "--to", "Swaks+tag@localhost"], more].concat(),
        )
    };
    let plain = say(&["--header", "Subject: plain"]);
    assert!(plain.contains("<-  220 mx.test ESMTP"), "{plain}");
    let attached = directory.path().join("data.bin");
    std::fs::write(&attached, [0, 1, 2, b'\r', b'\n', b'.', b'\n']).unwrap();
    say(&[
        "--auth",
        "PLAIN",
        "--auth-user",
        "u",
        "--auth-password",
        "p",
        "--header",
        "Subject: attached",
        "--attach",
        &format!("@{}", attached.display()),
    ]);
    say(&["--auth", "LOGIN", "--auth-user", "u", "--auth-password", "p", "--header", "Subject: login"]);
    let tls = say(&["--tls", "--header", "Subject: tls"]);
    assert!(tls.contains("=== TLS started"), "{tls}");
    assert_eq!(service.subjects("swaks"), ["tls", "login", "attached", "plain"]);
    service.stop();
}

/// Makes a self-signed certificate with openssl(1).
fn certificate(cert: &Path, key: &Path) {
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let made =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    ran("openssl", &[&made[..], &["-subj", "/CN=mx.test", "-keyout", key, "-out", cert]].concat());
}

#[test]
fn a_mail_under_way_survives_a_stop() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("mail.store");
    let service = MailService::with_store(&store, &[]);
    let mut client = Smtp::greeted(service.smtp).unwrap();
    client.say("MAIL FROM:<a@b.test>\r\n").unwrap();
    client.say("RCPT TO:<late@localhost>\r\n").unwrap();
    assert!(client.say("DATA\r\n").unwrap().starts_with("354"));
    service.signal("TERM");
    let end = std::thread::spawn(move || client.say("Subject: late\r\n\r\nx\r\n.\r\n").unwrap());
    assert!(end.join().unwrap().starts_with("250"));
    // A second signal would stop the service at once, so the test only waits.
    service.ends();
    let service = MailService::with_store(&store, &[]);
    assert_eq!(service.subjects("late"), ["late"]);
    service.stop();
}

#[test]
fn sighup_reads_the_list_of_bans_again() {
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("banned");
    std::fs::write(&list, "# nobody yet\n").unwrap();
    let service = anon(&["--banned", list.to_str().unwrap()]);
    let mut client = Smtp::greeted(service.smtp).unwrap();
    assert!(client.mail("a@localhost", "Subject: x\r\n\r\n").unwrap());
    std::fs::write(&list, "sender @client.test\n").unwrap();
    service.signal("HUP");
    // The reload and the next commands race; after a few commands the reload is done.
    let refused = (0..100_000).find_map(|_| {
        let reply = client.say("MAIL FROM:<x@client.test>\r\n").unwrap();
        client.say("RSET\r\n").unwrap();
        reply.starts_with("550 5.7.1").then_some(reply)
    });
    assert!(refused.is_some());
    // An invalid list changes nothing.
    std::fs::write(&list, "nonsense\n").unwrap();
    service.signal("HUP");
    assert!(client.say("MAIL FROM:<x@client.test>\r\n").unwrap().starts_with("550"));
    service.stop();
}

/// Starts the service with invalid arguments; returns its exit code and its standard error.
fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = program::command();
    command.args(["mail", "--smtp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    let output = command.args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("foreign"), "this is no store".repeat(1000)).unwrap();
    let (code, text) = refused(&["--store", &path("foreign"), "--store-size", "128MiB"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("foreign"), "{text}");
    assert_eq!(std::fs::read(path("foreign")).unwrap().len(), 16_000, "it is not touched");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, text) = refused(&[&ANON[..], &["--smtp", &taken.local_addr().unwrap().to_string()]].concat());
    assert_eq!(code, Some(2), "a flag twice is wrong usage: {text}");
    let (code, text) = refused(&[&ANON[..], &["--tls-cert", "/none"]].concat());
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("tls-key"), "{text}");
    let (code, text) = refused(&[&ANON[..], &["--mail-bytes-max", "1GiB"]].concat());
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("at most 32MiB"), "{text}");
    std::fs::write(path("banned"), "word a\nbogus line\n").unwrap();
    let (code, text) = refused(&[&ANON[..], &["--banned", &path("banned")]].concat());
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("line 2"), "{text}");
}

/// No mail is relayed: the service opens no connection to the host in a recipient's address.
#[test]
fn nothing_is_relayed() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    elsewhere.set_nonblocking(true).unwrap();
    let service = anon(&[]);
    let mut client = Smtp::greeted(service.smtp).unwrap();
    let address = elsewhere.local_addr().unwrap();
    assert!(client.mail(&format!("a@[{}]", address.ip()), "Subject: x\r\n\r\n").unwrap());
    // An address on another host gets an inbox like any other.
    assert_eq!(service.counted("mail_received_total"), 1.0);
    // An open connection would make the service wait for its next command.
    drop(client);
    service.stop();
    assert!(elsewhere.accept().is_err(), "nobody came");
}

/// A line of a hundred megabytes takes no memory, and is answered.
#[test]
fn an_endless_line_is_answered() {
    let service = anon(&[]);
    let stream = std::net::TcpStream::connect(service.smtp).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    let part = vec![b'x'; 1 << 20];
    (0..100).for_each(|_| stream.write_all(&part).unwrap());
    stream.write_all(b"\r\nNOOP\r\n").unwrap();
    let mut lines = (0..3).map(|_| {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line
    });
    assert!(lines.next().unwrap().starts_with("220"));
    assert!(lines.next().unwrap().starts_with("500 5.5.6"));
    assert!(lines.next().unwrap().starts_with("250"));
    service.stop();
}
