//! Tests of the TLS session against rustls' own client, over byte vectors.

use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use proptest::prelude::*;
use rustls::{
    ClientConfig, ClientConnection, NamedGroup, ProtocolVersion, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
};

use super::{
    CertificateSource, ClientHello, acceptor,
    certificates::{Certificate, Certificates, Pair},
    config, provider,
    session::{Offer, RECORD_BYTES_MAX, Session, SessionError, Terms, read_bytes_max},
    ticketer,
};

struct One(Arc<ServerConfig>);

impl Terms for One {
    fn offer(&self, _: &ClientHello<'_>) -> Offer {
        Offer { config: Arc::clone(&self.0), authorities: None }
    }
}

fn made(names: &[&str]) -> (Arc<Certificate>, CertificateDer<'static>) {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let der = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    (Arc::new(Certificate::new(vec![der.clone()], &key, None).expect("fit")), der)
}

fn terms(certificate: Arc<Certificate>) -> Arc<dyn Terms> {
    let certificates = Arc::new(Certificates::new(&[certificate]));
    let made = config(certificates, &[b"h2", b"http/1.1"], None, ticketer().expect("tickets"));
    Arc::new(One(Arc::new(made.expect("a configuration"))))
}

fn client(
    trusted: CertificateDer<'static>,
    version: &'static rustls::SupportedProtocolVersion,
) -> ClientConnection {
    client_of(provider(), trusted, version)
}

fn client_of(
    provider: Arc<rustls::crypto::CryptoProvider>,
    trusted: CertificateDer<'static>,
    version: &'static rustls::SupportedProtocolVersion,
) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).expect("trusted");
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]);
    let mut made = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
    made.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from("www.example.org").expect("a name");
    ClientConnection::new(Arc::new(made), name).expect("a client")
}

/// Server side of a connection that receives its bytes in pieces of a given length.
struct Ours {
    session: Session,
    incoming: Vec<u8>,
    plain: Vec<u8>,
}

impl Ours {
    fn new(terms: Arc<dyn Terms>) -> Self {
        Self { session: Session::new(terms), incoming: Vec::new(), plain: Vec::new() }
    }

    fn take(&mut self, bytes: &[u8], piece: usize) -> Result<(Vec<u8>, bool), SessionError> {
        let (mut out, mut is_closed) = (Vec::new(), false);
        for piece in bytes.chunks(piece) {
            self.incoming.extend_from_slice(piece);
            let plain = &mut self.plain;
            let received = self
                .session
                .receive(&mut self.incoming, &mut out, |content| plain.extend_from_slice(content))?;
            is_closed |= received.is_closed;
            self.incoming.drain(..received.consumed);
        }
        Ok((out, is_closed))
    }

    fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.session.seal(&mut self.incoming, plain, &mut out).expect("sealed");
        out
    }
}

fn sent_by(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).expect("a vector takes all");
    }
    bytes
}

fn taken_by(client: &mut ClientConnection, mut bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).expect("room");
        client.process_new_packets().expect("sound");
        let mut buffer = [0; 20_000];
        while let Ok(read @ 1..) = client.reader().read(&mut buffer) {
            plain.extend_from_slice(&buffer[..read]);
        }
    }
    plain
}

fn shake_hands(client: &mut ClientConnection, ours: &mut Ours, piece: usize) {
    for _ in 0..4 {
        let sent = sent_by(client);
        let (answer, _) = ours.take(&sent, piece).expect("sound");
        assert!(taken_by(client, &answer).is_empty());
    }
    assert!(!client.is_handshaking() && !ours.session.is_handshaking());
}

#[test]
fn a12_content_survives_any_fragmentation_both_ways() {
    let (certificate, der) = made(&["www.example.org"]);
    let terms = terms(certificate);
    for (version, named) in [
        (&rustls::version::TLS13, ProtocolVersion::TLSv1_3),
        (&rustls::version::TLS12, ProtocolVersion::TLSv1_2),
    ] {
        for piece in [1, 2, 3, 5, 17, 1000, 100_000] {
            let mut client = client(der.clone(), version);
            let mut ours = Ours::new(Arc::clone(&terms));
            shake_hands(&mut client, &mut ours, piece);
            assert_eq!(ours.session.server_name(), Some("www.example.org"));
            assert_eq!(ours.session.protocol(), Some(&b"http/1.1"[..]));
            assert_eq!(ours.session.common().and_then(|common| common.protocol_version()), Some(named));

            let long: Vec<u8> = (0..50_000_u32).map(|at| at as u8).collect();
            client.writer().write_all(&long).expect("taken");
            let sent = sent_by(&mut client);
            ours.take(&sent, piece).expect("sound");
            assert!(ours.plain == long, "{piece}");
            assert!(ours.incoming.is_empty());
            let sealed = ours.seal(&long);
            assert!(taken_by(&mut client, &sealed) == long, "{piece}");

            client.send_close_notify();
            let sent = sent_by(&mut client);
            assert!(ours.take(&sent, piece).expect("sound").1, "the end is told");
            // Data requested before the close is still sent, and then the server closes too.
            let sealed = ours.seal(b"the last");
            assert_eq!(taken_by(&mut client, &sealed), b"the last");
            let mut bye = Vec::new();
            ours.session.close(&mut ours.incoming, &mut bye);
            client.read_tls(&mut &bye[..]).expect("room");
            assert!(client.process_new_packets().expect("sound").peer_has_closed());
        }
    }
}

/// The server accepts the key exchange that browsers offer first, and also serves a client that supports only
/// older ones.
#[test]
fn a12_keys_are_exchanged_as_the_client_can() {
    let (certificate, der) = made(&["www.example.org"]);
    let terms = terms(certificate);
    for group in [NamedGroup::X25519MLKEM768, NamedGroup::X25519, NamedGroup::secp256r1] {
        let mut limited = (*provider()).clone();
        limited.kx_groups.retain(|offered| offered.name() == group);
        let mut client = client_of(Arc::new(limited), der.clone(), &rustls::version::TLS13);
        let mut ours = Ours::new(Arc::clone(&terms));
        shake_hands(&mut client, &mut ours, 1000);
        let agreed = client.negotiated_key_exchange_group().expect("a group");
        assert_eq!(agreed.name(), group);
    }
    let (mut client, mut ours) = (client(der, &rustls::version::TLS13), Ours::new(terms));
    shake_hands(&mut client, &mut ours, 1000);
    assert_eq!(
        client.negotiated_key_exchange_group().map(|agreed| agreed.name()),
        Some(NamedGroup::X25519MLKEM768)
    );
}

#[test]
fn a12_new_keys_are_taken_and_answered() {
    let (certificate, der) = made(&["www.example.org"]);
    let mut client = client(der, &rustls::version::TLS13);
    let mut ours = Ours::new(terms(certificate));
    shake_hands(&mut client, &mut ours, 7);
    client.refresh_traffic_keys().expect("asked for");
    client.writer().write_all(b"by new keys").expect("taken");
    let sent = sent_by(&mut client);
    let (answer, _) = ours.take(&sent, 1).expect("sound");
    assert_eq!(ours.plain, b"by new keys");
    taken_by(&mut client, &answer);
    let sealed = ours.seal(b"by ours");
    assert_eq!(taken_by(&mut client, &sealed), b"by ours");
}

#[test]
fn a12_a_session_is_resumed_by_a_ticket() {
    let (certificate, der) = made(&["www.example.org"]);
    let terms = terms(certificate);
    let mut roots = RootCertStore::empty();
    roots.add(der).expect("trusted");
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let made = Arc::new(builder.expect("versions").with_root_certificates(roots).with_no_client_auth());
    let kinds: Vec<_> = (0..2)
        .map(|_| {
            let name = ServerName::try_from("www.example.org").expect("a name");
            let mut client = ClientConnection::new(Arc::clone(&made), name).expect("a client");
            // A new server side each time, as if on another core.
            let mut ours = Ours::new(Arc::clone(&terms));
            shake_hands(&mut client, &mut ours, 100_000);
            client.handshake_kind()
        })
        .collect();
    assert_eq!(kinds, [Some(rustls::HandshakeKind::Full), Some(rustls::HandshakeKind::Resumed)]);
}

#[test]
fn a12_invalid_tls_input_ends_the_session() {
    let (certificate, _) = made(&["www.example.org"]);
    let terms = terms(certificate);
    for garbage in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0x16, 3, 1, 0xff, 0xff, 1, 0, 0, 0],
        &[0x15, 3, 3, 0, 2, 2, 40],
        &[0x16, 3, 3, 0, 4, 2, 0, 0, 0],
        &[0; 64],
    ] {
        for piece in [1, 1000] {
            let mut ours = Ours::new(Arc::clone(&terms));
            assert!(ours.take(garbage, piece).is_err(), "{garbage:?}");
            assert!(ours.take(b"more", 1).is_err(), "nothing follows");
            assert!(ours.session.is_handshaking());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a12_an_altered_byte_yields_no_content(
        at in 0_usize..600, by in 1_u8..=255, piece in 1_usize..200,
    ) {
        let (certificate, der) = made(&["www.example.org"]);
        let mut client = client(der, &rustls::version::TLS13);
        let mut ours = Ours::new(terms(certificate));
        let mut hello = sent_by(&mut client);
        let at = at % hello.len();
        hello[at] ^= by;
        // Any result is allowed, but no panic and no content.
        let _ = ours.take(&hello, piece);
        prop_assert!(ours.plain.is_empty());
    }

    #[test]
    fn a12_a_record_that_was_changed_is_not_content(
        at in 0_usize..2000, by in 1_u8..=255, piece in 1_usize..3000,
    ) {
        let (certificate, der) = made(&["www.example.org"]);
        let mut client = client(der, &rustls::version::TLS13);
        let mut ours = Ours::new(terms(certificate));
        shake_hands(&mut client, &mut ours, 100_000);
        client.writer().write_all(&[7; 1500]).expect("taken");
        let mut sent = sent_by(&mut client);
        let at = at % sent.len();
        sent[at] ^= by;
        let _ = ours.take(&sent, piece);
        // A changed version in a record's header is ignored (RFC 8446 §5.1); a changed length may make the
        // session wait for more bytes.
        prop_assert!(ours.plain.is_empty() || ours.plain == [7; 1500]);
    }
}

/// Creates a client whose records have at most `fragment` bytes of content.
fn client_with_records(
    trusted: CertificateDer<'static>,
    version: &'static rustls::SupportedProtocolVersion,
    fragment: usize,
) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).expect("trusted");
    let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[version]);
    let mut made = builder.expect("versions").with_root_certificates(roots).with_no_client_auth();
    // rustls counts the record's overhead as part of the fragment size.
    made.max_fragment_size = Some(fragment.max(32));
    let name = ServerName::try_from("www.example.org").expect("a name");
    ClientConnection::new(Arc::new(made), name).expect("a client")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Records of any length, split anywhere and read with any limit, are all decrypted, and one read takes
    /// at most the limit or one record.
    #[test]
    fn records_are_read_whole_whatever_the_limit(
        is_13: bool,
        fragment in 32_usize..=16_389,
        contents in prop::collection::vec(1_usize..40_000, 1..4),
        segments in prop::collection::vec(1_usize..20_000, 1..12),
        limit in prop_oneof![Just(1_usize), Just(5), Just(2048), Just(4096), Just(16 << 10), 1_usize..70_000],
        renews: bool,
    ) {
        let version = if is_13 { &rustls::version::TLS13 } else { &rustls::version::TLS12 };
        let (certificate, der) = made(&["www.example.org"]);
        let mut client = client_with_records(der, version, fragment);
        let mut ours = Ours::new(terms(certificate));
        shake_hands(&mut client, &mut ours, 100_000);
        let (mut sent, mut all) = (Vec::new(), Vec::new());
        for (number, bytes) in contents.into_iter().enumerate() {
            let content: Vec<u8> = (0..bytes).map(|at| (at / 7 + number) as u8).collect();
            if renews && is_13 {
                client.refresh_traffic_keys().expect("asked for");
            }
            for piece in content.chunks(10_000) {
                client.writer().write_all(piece).expect("taken");
                sent.extend(sent_by(&mut client));
            }
            all.extend(content);
        }
        // Bytes that have arrived are in the socket; each read takes some of them.
        let (mut come, mut read) = (0, 0);
        for segment in segments.iter().cycle() {
            come = (come + segment).min(sent.len());
            while read < come {
                let kept = ours.incoming.len();
                let most = read_bytes_max(&ours.incoming, limit);
                prop_assert!(most > kept, "there is room for a read");
                let bytes = (most - kept).min(come - read);
                prop_assert!(kept + bytes <= limit.max(RECORD_BYTES_MAX));
                let before = ours.plain.len();
                let (_, is_closed) = ours.take(&sent[read..read + bytes], bytes).expect("sound");
                prop_assert!(!is_closed);
                prop_assert!(ours.plain.len() - before <= limit.max(16 << 10));
                read += bytes;
            }
            if come == sent.len() {
                break;
            }
        }
        prop_assert!(ours.plain == all && ours.incoming.is_empty());
    }
}

#[test]
fn a12_a_name_is_shown_its_certificate() {
    let (first, _) = made(&["a.example", "10.0.0.1"]);
    let (second, _) = made(&["*.b.example", "b.example", "A.example"]);
    let (third, _) = made(&["c.example"]);
    let all = Certificates::new(&[Arc::clone(&first), Arc::clone(&second)]);
    let is_of =
        |name: Option<&str>, of: &Arc<Certificate>| all.of(name).is_some_and(|shown| Arc::ptr_eq(&shown, of));
    for name in [None, Some("a.example"), Some("A.EXAMPLE"), Some("nobody.example"), Some("x.y.b.example")] {
        assert!(is_of(name, &first), "{name:?}");
    }
    for name in [Some("b.example"), Some("x.b.example"), Some("X.B.example")] {
        assert!(is_of(name, &second), "{name:?}");
    }
    all.replace(&[Arc::clone(&third)]);
    assert!(is_of(Some("b.example"), &third));
    // Obtained certificates come after those from files; a client that connects to an address sends no name.
    all.replace_obtained(&[Arc::clone(&second), Arc::clone(&first)]);
    assert!(
        is_of(Some("b.example"), &second) && is_of(Some("nobody.example"), &third) && is_of(None, &first)
    );
    all.replace(&[]);
    assert!(is_of(Some("c.example"), &second) && all.of_files().is_empty() && all.all().len() == 2);

    assert!(first.covers("a.example") && first.covers("A.example") && first.covers("10.0.0.1"));
    assert!(!first.covers("x.a.example") && !first.covers("10.0.0.2"));
    assert!(second.covers("x.b.example") && second.covers("b.example"));
    assert!(!second.covers("x.y.b.example") && !second.covers(".b.example") && !second.covers(""));
}

#[test]
fn a12_a_mismatched_pair_error_names_its_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let written = |name: &str, text: &[u8]| -> PathBuf {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (one, other) = (made(), made());
    let certificates = written("cert.pem", one.cert.pem().as_bytes());
    let key = written("key.pem", one.signing_key.serialize_pem().as_bytes());
    let foreign = written("foreign.pem", other.signing_key.serialize_pem().as_bytes());
    let ocsp = written("staple.der", &[0x30, 3, 10, 1, 0]);
    let text = written("staple.pem", b"-----BEGIN OCSP RESPONSE-----");
    let said = |key: &PathBuf, ocsp: Option<&PathBuf>| {
        let pair = Pair { certificates: certificates.clone(), key: key.clone(), ocsp: ocsp.cloned() };
        Certificate::read(&pair).map_or_else(|error| error.to_string(), |_| "right".to_owned())
    };
    assert_eq!(said(&key, None), "right");
    assert_eq!(said(&key, Some(&ocsp)), "right");
    let mismatch = said(&foreign, None);
    assert!(mismatch.contains("cert.pem with ") && mismatch.contains("foreign.pem: "), "{mismatch}");
    let no_ocsp = said(&key, Some(&text));
    assert!(no_ocsp.contains("staple.pem: not an OCSP response in DER"), "{no_ocsp}");
    let read = Certificate::read(&Pair { certificates, key, ocsp: None }).expect("right");
    assert_eq!(read.names().collect::<Vec<_>>(), ["localhost"]);
    assert!(read.from_s < read.until_s);
}

struct TestFolder(tempfile::TempDir);

impl TestFolder {
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }
}

fn said(certificates: &Path, key: &Path, clients: Option<&Path>) -> String {
    let pair = Pair { certificates: certificates.to_owned(), key: key.to_owned(), ocsp: None };
    match acceptor(&CertificateSource::Pair(pair), &[], clients) {
        Ok(_) => "right".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_mistake_has_its_words_and_its_file() {
    let directory = TestFolder(tempfile::tempdir().expect("a directory"));
    let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (one, other) = (made(), made());
    let certificate = directory.file("cert.pem", &one.cert.pem());
    let key = directory.file("key.pem", &one.signing_key.serialize_pem());
    let foreign = directory.file("foreign.pem", &other.signing_key.serialize_pem());
    let empty = directory.file("empty.pem", "");
    let torn = directory.file("torn.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    let nowhere = directory.0.path().join("nowhere.pem");

    assert_eq!(said(&certificate, &key, None), "right");
    assert_eq!(said(&certificate, &key, Some(&certificate)), "right");
    for (certificates, key, clients, file, says) in [
        (&nowhere, &key, None, "nowhere.pem", "nowhere.pem: No such file"),
        (&empty, &key, None, "empty.pem", "no certificate in it (PEM)"),
        (&key, &key, None, "key.pem", "no certificate in it (PEM)"),
        (&torn, &key, None, "torn.pem", "not in PEM"),
        (&certificate, &nowhere, None, "nowhere.pem", "nowhere.pem: No such file"),
        (&certificate, &empty, None, "empty.pem", "no private key in it (PEM)"),
        (&certificate, &certificate, None, "cert.pem", "no private key in it (PEM)"),
        (&certificate, &foreign, None, "cert.pem with ", "foreign.pem: "),
        (&certificate, &key, Some(&nowhere), "nowhere.pem", "nowhere.pem: No such file"),
        (&certificate, &key, Some(&empty), "empty.pem", "no certificate in it (PEM)"),
    ] {
        let said = said(certificates, key, clients.map(PathBuf::as_path));
        assert!(said.contains(file) && said.contains(says), "{file}, {says}: {said}");
    }
}
