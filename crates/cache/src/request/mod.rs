//! A request that could not be answered at once, kept while the origin is asked, and the head that is sent to
//! the origin.
//!
//! *Memory:* the client's head with the positions of its fields, parsed once. The origin's head is an edited
//! copy of it (RFC 9110 §7.6): target and authority in the form of the key, no hop-by-hop fields, our fields
//! appended. A site's rules change a fetch for the store in the same way as the key; a passed request keeps
//! the target and the cookies of its client.

pub(crate) mod active_config;
pub(crate) mod client_auth;
pub(crate) mod client_ip;
pub(crate) mod dependent;
pub(crate) mod key;
pub(crate) mod lookup_key;
pub(crate) mod ports;
pub(crate) mod query;
#[cfg(test)]
pub(crate) mod test_requests;

use std::sync::Arc;

use engine::{accounts::ClientKey, store::Hash};
use wire::http1::{
    framing::Framing,
    head::{KeptRequest, RequestHead, Version},
    known::KnownHeader,
};

use crate::{
    body::slice::Block,
    config::SiteRules,
    head::sent_fields::{Manner, SentFields},
    log::transaction::Trace,
    origin::Client,
    request::{
        active_config::ActiveConfig, client_auth::ClientAuth, client_ip::Visitor, lookup_key::LookupKey,
    },
    site::SiteId,
};

/// A request during a miss or a pass.
pub(crate) struct Request {
    head: Arc<KeptRequest>,
    /// Key under which a stored answer is looked up first.
    pub(crate) key: Vec<u8>,
    /// Hash of `key`.
    pub(crate) hash: Hash,
    /// Length of the part of `key` that all variants share.
    primary_bytes: usize,
    /// Framing of the request's body.
    pub(crate) framing: Framing,
    /// Client of the request, as reported to the origin in the forwarding fields.
    pub(crate) visitor: Visitor,
    /// TLS authentication of the client.
    pub(crate) came: ClientAuth,
    /// The origin is told about the client's certificate.
    is_known: bool,
    /// Configuration by which the request was judged and is answered.
    pub(crate) in_force: Arc<ActiveConfig>,
    /// Site of the request in that configuration.
    pub(crate) site: SiteId,
    /// The slice of an object that is wanted; `None` for the whole object.
    pub(crate) block: Option<Box<Block>>,
    /// Link between the log's records of this request.
    pub(crate) trace: Option<Arc<Trace>>,
    /// The request comes from a peer, for a client of its own.
    pub(crate) is_of_peer: bool,
}

/// Client that sent a request.
pub(crate) struct Sender {
    pub(crate) visitor: Visitor,
    /// TLS authentication of the client.
    pub(crate) auth: ClientAuth,
}

/// Kind of answer that is wanted from the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OriginNeed {
    /// A complete answer that can be stored: the request is a GET, without conditions, ranges and anything
    /// that is not in the key.
    Storing,
    /// The answer to exactly this request, for this client only.
    Passing,
    /// The answer to exactly this request, or a switch to WebSocket.
    Switching,
}

impl Request {
    /// Creates the request from the parser's `head` and its length.
    pub(crate) fn new(
        head: &RequestHead<'_, '_>,
        head_bytes: usize,
        key: &[u8],
        keyed: LookupKey,
        framing: Framing,
        sender: Sender,
        in_force: &Arc<ActiveConfig>,
    ) -> Self {
        let head = Arc::new(KeptRequest::new(head, head_bytes));
        let LookupKey { hash, primary_bytes, site, is_known } = keyed;
        let Sender { visitor, auth: came } = sender;
        Self {
            head,
            key: key.to_vec(),
            primary_bytes,
            hash,
            framing,
            visitor,
            came,
            is_known,
            in_force: Arc::clone(in_force),
            site,
            block: None,
            trace: None,
            is_of_peer: false,
        }
    }

    /// Returns the same request under the key of another variant.
    pub(crate) fn under(&self, key: &[u8], hash: Hash) -> Self {
        let Self {
            head,
            primary_bytes,
            framing,
            visitor,
            came,
            is_known,
            in_force,
            site,
            trace,
            is_of_peer,
            ..
        } = self;
        Self {
            head: Arc::clone(head),
            key: key.to_vec(),
            hash,
            primary_bytes: *primary_bytes,
            framing: *framing,
            visitor: *visitor,
            came: came.clone(),
            is_known: *is_known,
            in_force: Arc::clone(in_force),
            site: *site,
            block: None,
            trace: trace.clone(),
            is_of_peer: *is_of_peer,
        }
    }

    /// Returns the request for a slice of its object, under the slice's key.
    pub(crate) fn of_block(&self, key: &[u8], hash: Hash, block: Block) -> Self {
        Self { block: Some(Box::new(block)), ..self.under(key, hash) }
    }

    /// Returns the part of the key that all variants of the target share, which is itself a key.
    pub(crate) fn primary(&self) -> &[u8] {
        &self.key[..self.primary_bytes]
    }

    /// Returns the key of the first lookup.
    pub(crate) fn keyed(&self) -> LookupKey {
        let Self { hash, primary_bytes, site, is_known, .. } = *self;
        LookupKey { hash, primary_bytes, site, is_known }
    }

    /// Returns the head of the request.
    pub(crate) fn head(&self) -> RequestHead<'_, '_> {
        self.head.head()
    }

    /// Returns the length of the head as the client sent it.
    pub(crate) fn head_bytes(&self) -> usize {
        self.head.head_bytes()
    }

    /// Returns how many more servers may forward the request, if it is OPTIONS with `Max-Forwards` (RFC 9110
    /// §7.6.2). `TRACE`, which may have the same field, is never forwarded.
    pub(crate) fn max_forwards(&self) -> Option<u64> {
        let head = self.head();
        let said = (head.method == "OPTIONS").then(|| head.known(KnownHeader::MaxForwards))??;
        std::str::from_utf8(said).ok().filter(|said| said.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
    }

    /// Returns whether the origin is told about the client's certificate.
    pub(crate) fn is_of_certificate(&self) -> bool {
        self.is_known
    }

    /// Returns the client whose account the request is charged to.
    pub(crate) fn client_key(&self) -> ClientKey {
        self.visitor.client(&self.in_force.config.shared_networks)
    }

    /// Returns the client that this request's exchanges with an origin are charged to.
    pub(crate) fn client(&self) -> Client {
        Client::at(self.visitor.address, self.client_key())
    }

    /// Returns whether the request has a body.
    pub(crate) fn has_body(&self) -> bool {
        !matches!(self.framing, Framing::None | Framing::Length(0))
    }

    /// Returns whether the client waits for `100 Continue` before it sends the body (RFC 9110 §10.1.1).
    pub(crate) fn expects_continue(&self) -> bool {
        let head = self.head();
        head.version == Version::Http11
            && head
                .known(KnownHeader::Expect)
                .is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
    }

    /// Writes the head of a fetch for the store, with lines for our own conditions.
    pub(crate) fn for_store(&self, conditions: &[u8], manner: Manner<'_>) -> Vec<u8> {
        with_lines(self.for_origin(OriginNeed::Storing, manner), conditions)
    }

    /// Writes the head of a request for a WebSocket, with a key if the client sent none.
    pub(crate) fn for_switch(&self, nonce: Option<&str>, manner: Manner<'_>) -> Vec<u8> {
        let head = self.for_origin(OriginNeed::Switching, manner);
        match nonce {
            Some(nonce) => with_lines(head, format!("Sec-WebSocket-Key: {nonce}\r\n").as_bytes()),
            None => head,
        }
    }

    /// Writes the head for the site's origin.
    pub(crate) fn for_origin(&self, wanted: OriginNeed, manner: Manner<'_>) -> Vec<u8> {
        let rules = manner.rules;
        let head = self.head();
        let primary = self.primary();
        let mut out = Vec::with_capacity(self.head.head_bytes() + 192);
        match wanted {
            OriginNeed::Storing => {
                out.extend_from_slice(b"GET ");
                out.extend_from_slice(key::path(primary));
            }
            OriginNeed::Passing | OriginNeed::Switching => {
                out.extend_from_slice(head.method.as_bytes());
                out.push(b' ');
                key::append_target(&head, &SiteRules::default(), &mut out);
            }
        }
        out.extend_from_slice(b" HTTP/1.1\r\n");
        let fields = SentFields { head: &head, visitor: self.visitor, manner };
        let authority = key::authority(primary);
        fields.append_host(authority, &mut out);
        fields.append(authority, &mut out, wanted, self.max_forwards());
        self.append_framing(&mut out, wanted);
        if let (true, Some(identity), Some(asks)) =
            (self.is_known, self.came.identity(), &rules.client_certificates)
        {
            client_auth::append_fields(identity, &asks.field, &mut out);
        }
        out.extend_from_slice(b"\r\n");
        out
    }

    /// Appends the fields that frame the body and control the connection.
    fn append_framing(&self, out: &mut Vec<u8>, wanted: OriginNeed) {
        if wanted == OriginNeed::Switching {
            out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: websocket\r\n");
        }
        if wanted == OriginNeed::Passing {
            match self.framing {
                Framing::Length(bytes) => {
                    out.extend_from_slice(b"Content-Length: ");
                    out.extend_from_slice(itoa::Buffer::new().format(bytes).as_bytes());
                    out.extend_from_slice(b"\r\n");
                }
                Framing::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
                Framing::None | Framing::UntilClose => {}
            }
            if self.has_body() {
                // The connection ends with this exchange: see `is_last` in `origin::http1`.
                out.extend_from_slice(b"Connection: close\r\n");
            }
        }
    }
}

/// Appends field lines to a head.
fn with_lines(mut head: Vec<u8>, lines: &[u8]) -> Vec<u8> {
    head.truncate(head.len() - b"\r\n".len());
    head.extend_from_slice(lines);
    head.extend_from_slice(b"\r\n");
    head
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn sent(head: &str, wanted: OriginNeed) -> String {
        sent_by(head, wanted, SiteRules::default())
    }

    fn sent_by(head: &str, wanted: OriginNeed, rules: SiteRules) -> String {
        sent_for(head, wanted, rules, Visitor::alone(IpAddr::V4(Ipv4Addr::LOCALHOST)))
    }

    fn sent_for(head: &str, wanted: OriginNeed, rules: SiteRules, visitor: Visitor) -> String {
        let bytes = format!("{}\r\n\r\n", head.replace('\n', "\r\n"));
        let origin = crate::config::Origin::http("127.0.0.1", 9);
        let config = crate::config::Config { rules, ..crate::config::Config::new(origin) };
        let in_force = ActiveConfig::of_test(config.clone(), 1);
        let mut request = test_requests::request(&bytes, |key| Hash::seeded(key, 0), &in_force);
        request.visitor = visitor;
        let ours = ["X-Client-Cert".into()];
        let manner = Manner {
            pseudonym: "us",
            rules: &config.rules,
            ours: &ours,
            is_to_peer: false,
            has_range_tag: false,
        };
        String::from_utf8(request.for_origin(wanted, manner)).expect("text")
    }

    const OWN: &str = "Via: 1.1 us\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\n\
                       X-Forwarded-Host: a\r\nForwarded: for=127.0.0.1;host=\"a\";proto=http\r\n\r\n";

    /// Returns the expected head for another host and scheme.
    fn own(host: &str, scheme: &str) -> String {
        OWN.replace("Host: a\r", &format!("Host: {host}\r"))
            .replace("host=\"a\"", &format!("host=\"{host}\""))
            .replace("proto=http", &format!("proto={scheme}"))
            .replace("Proto: http", &format!("Proto: {scheme}"))
    }

    #[test]
    fn what_is_keyed_is_what_is_sent() {
        for (line, host, target, authority) in [
            ("GET /a?b", "A.example:80", "/a?b", "a.example"),
            ("GET http://B.example:080?q", "b.EXAMPLE", "/?q", "b.example"),
            ("GET http://B.example:81/", "b.example:81", "/", "b.example:81"),
            ("OPTIONS *", "A", "*", "a"),
            ("OPTIONS http://A", "a", "*", "a"),
            ("OPTIONS http://A/", "a", "/", "a"),
        ] {
            let method = line.split(' ').next().unwrap_or_default();
            let got = sent(&format!("{line} HTTP/1.1\nHost: {host}"), OriginNeed::Passing);
            let ours = own(authority, "http");
            assert_eq!(got, format!("{method} {target} HTTP/1.1\r\nHost: {authority}\r\n{ours}"), "{line}");
        }
    }

    #[test]
    fn site_rules_normalise_only_stored_requests() {
        let rules = || SiteRules {
            host: Some("app.internal:81".into()),
            ignore_query: vec!["utm_*".parse().expect("a pattern")],
            sort_query: true,
            bypass_cookies: Some(vec!["session".parse().expect("a pattern")]),
            ..SiteRules::default()
        };
        let head = "GET /a?b&utm_x=1&a HTTP/1.1\nHost: A.example\nCookie: theme=dark\nX-Forwarded-Host: evil\n\
                    X_Forwarded_Host: evil";
        let ours = own("a.example", "http");
        let stored = format!("GET /a?a&b HTTP/1.1\r\nHost: app.internal:81\r\n{ours}");
        assert_eq!(sent_by(head, OriginNeed::Storing, rules()), stored);
        let passed =
            format!("GET /a?b&utm_x=1&a HTTP/1.1\r\nHost: app.internal:81\r\nCookie: theme=dark\r\n{ours}");
        assert_eq!(sent_by(head, OriginNeed::Passing, rules()), passed);
    }

    #[test]
    fn conditions_named_in_connection_stay_on_their_hop() {
        for (name, value) in [
            ("Range", "bytes=0-1"),
            ("If-Range", "\"x\""),
            ("If-Match", "\"x\""),
            ("If-None-Match", "\"x\""),
            ("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ] {
            let head = format!("POST / HTTP/1.1\nHost: a\nConnection: {name}\n{name}: {value}");
            assert_eq!(sent(&head, OriginNeed::Passing), format!("POST / HTTP/1.1\r\nHost: a\r\n{OWN}"));
            let head = format!("POST / HTTP/1.1\nHost: a\n{name}: {value}");
            assert!(sent(&head, OriginNeed::Passing).contains(&format!("{name}: {value}\r\n")), "{name}");
        }
    }

    #[test]
    fn forwards_are_counted_down_where_they_count() {
        let got = sent("OPTIONS * HTTP/1.1\nHost: a\nMax-Forwards: 7", OriginNeed::Passing);
        assert_eq!(got, format!("OPTIONS * HTTP/1.1\r\nHost: a\r\nMax-Forwards: 6\r\n{OWN}"));
        for head in
            ["OPTIONS * HTTP/1.1\nHost: a\nMax-Forwards: x", "POST / HTTP/1.1\nHost: a\nMax-Forwards: 7"]
        {
            let line = head.lines().last().expect("it has one");
            assert!(sent(head, OriginNeed::Passing).contains(line), "{head}");
        }
    }

    #[test]
    fn the_scheme_is_keyed_and_said() {
        let got = sent("GET https://a:443/ HTTP/1.1\nHost: a:443", OriginNeed::Storing);
        assert_eq!(got, format!("GET / HTTP/1.1\r\nHost: a\r\n{}", own("a", "https")));
    }

    #[test]
    fn unkeyed_headers_are_dropped_for_stored_answers() {
        let head = "GET / HTTP/1.1\nHost: a\nForwarded: host=evil\nX-Forwarded-Host: evil\nX-Original-URL: /b\n\
                    X_Forwarded_Host: evil\nX-HTTP-Method-Override: DELETE\nX-Forwarded-Ssl: on\nProxy: evil\n\
                    Trailer: evil\nX-Other: y";
        let stored = sent(head, OriginNeed::Storing);
        assert_eq!(stored, format!("GET / HTTP/1.1\r\nHost: a\r\nX-Other: y\r\n{OWN}"));
        let passed = sent(head, OriginNeed::Passing);
        assert!(passed.contains("X-Original-URL: /b") && passed.contains("Proxy: evil"), "{passed}");
    }

    #[test]
    fn what_strangers_say_of_themselves_goes_no_further() {
        let claims = "X-Forwarded-For: 1.2.3.4\nX_Forwarded-For: 1.2.3.4\nX-FORWARDED-PROTO: https\n\
                      X-Forwarded-Port: 443\nx_forwarded_ssl: on\nX-Forwarded-Host: evil\nForwarded: for=1.2.3.4\n\
                      X-Real-IP: 1.2.3.4\nX_Real_IP: 1.2.3.4";
        let head = format!("POST / HTTP/1.1\nHost: a\n{claims}");
        assert_eq!(sent(&head, OriginNeed::Passing), format!("POST / HTTP/1.1\r\nHost: a\r\n{OWN}"));
    }

    #[test]
    fn trusted_forwarding_headers_are_kept_and_extended() {
        let through = Some("2001:db8::1".parse().expect("an address"));
        let proxy = Visitor { through, ..Visitor::alone(IpAddr::from([192, 0, 2, 7])) };
        let head = "POST / HTTP/1.1\nHost: a\nX-Forwarded-For: 8.8.8.8\nX-Forwarded-For: 192.0.2.7\n\
                    X_Forwarded_For: 1.2.3.4\nX-Forwarded-Host: b\nX-Forwarded-Port: 443\nX-Real-IP: 192.0.2.7\n\
                    Forwarded: for=192.0.2.7";
        let want = "POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Port: 443\r\nX-Real-IP: 192.0.2.7\r\nVia: 1.1 us\r\n\
                    X-Forwarded-For: 8.8.8.8, 192.0.2.7, 2001:db8::1\r\nX-Forwarded-Proto: http\r\n\
                    X-Forwarded-Host: a\r\n\
                    Forwarded: for=192.0.2.7, for=\"[2001:db8::1]\";host=\"a\";proto=http\r\n\r\n";
        assert_eq!(sent_for(head, OriginNeed::Passing, SiteRules::default(), proxy), want);
    }

    #[test]
    fn underscore_twins_of_framing_headers_are_dropped() {
        let head = "POST / HTTP/1.1\nHost: a\nContent_Length: 5\nTRANSFER_ENCODING: chunked\nTransfer_encoding: x\n\
                    X_Forwarded-For: 1.2.3.4\nX_Forwarded_Proto: https\nHost_: evil\nX_Other: y";
        let want = "POST / HTTP/1.1\r\nHost: a\r\nHost_: evil\r\nX_Other: y\r\n";
        assert_eq!(sent(head, OriginNeed::Passing), format!("{want}{OWN}"));
    }

    #[test]
    fn a_request_with_body_closes_its_connection() {
        let got = sent("POST / HTTP/1.1\nHost: a\nContent-Length: 5", OriginNeed::Passing);
        assert!(got.ends_with("Content-Length: 5\r\nConnection: close\r\n\r\n"), "{got}");
        let got = sent("POST / HTTP/1.1\nHost: a\nContent-Length: 0", OriginNeed::Passing);
        assert!(got.ends_with("Content-Length: 0\r\n\r\n"), "{got}");
    }

    #[test]
    fn accept_headers_are_sent_as_keyed() {
        let head = "GET / HTTP/1.1\nHost: a\nAccept-Encoding: gzip;q=0.9, deflate\nAccept-Language: en, de\nAccept-Encoding: BR";
        let want = "Accept-Encoding: br, gzip\r\nAccept-Language: de, en\r\n";
        assert_eq!(sent(head, OriginNeed::Storing), format!("GET / HTTP/1.1\r\nHost: a\r\n{want}{OWN}"));
        let passed = sent(head, OriginNeed::Passing);
        assert!(
            passed.contains("Accept-Encoding: gzip;q=0.9, deflate\r\n")
                && passed.contains("Accept-Encoding: BR\r\n")
        );
        for (head, want) in [
            ("GET / HTTP/1.1\nHost: a\nAccept-Encoding: identity;q=0", "Accept-Encoding: identity;q=0\r\n"),
            ("GET / HTTP/1.1\nHost: a\nAccept-Encoding: gzip\nConnection: accept-encoding", ""),
        ] {
            assert_eq!(sent(head, OriginNeed::Storing), format!("GET / HTTP/1.1\r\nHost: a\r\n{want}{OWN}"));
        }
    }

    #[test]
    fn conditions_and_ranges_are_dropped_for_stored_answers() {
        let head =
            "HEAD / HTTP/1.1\nHost: a\nIf-None-Match: \"x\"\nRange: bytes=0-1\nConnection: X-Hop\nX-Hop: 1";
        assert_eq!(sent(head, OriginNeed::Storing), format!("GET / HTTP/1.1\r\nHost: a\r\n{OWN}"));
        let passed =
            format!("HEAD / HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"x\"\r\nRange: bytes=0-1\r\n{OWN}");
        assert_eq!(sent(head, OriginNeed::Passing), passed);
    }
}
