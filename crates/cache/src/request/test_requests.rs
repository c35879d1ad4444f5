//! Requests for tests, made from the text of a head.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use engine::store::Hash;
use wire::http1::{
    framing::request_framing,
    head::{HeadLimits, HeaderSlots, Progress, parse_request},
};

use super::{
    Request, Sender, active_config::ActiveConfig, client_auth::ClientAuth, client_ip::Visitor, key,
    lookup_key::LookupKey,
};

/// Returns a request of this machine; `hash` hashes its key.
pub(crate) fn request(text: &str, hash: impl Fn(&[u8]) -> Hash, in_force: &Arc<ActiveConfig>) -> Request {
    let mut slots = HeaderSlots::new();
    let Ok(Progress::Complete((head, head_bytes))) =
        parse_request(text.as_bytes(), &mut slots, &HeadLimits::default())
    else {
        panic!("a valid head: {text}");
    };
    let mut key = Vec::new();
    let site = key::of_request(&head, &in_force.sites.table, &mut key);
    let keyed = LookupKey { hash: hash(&key), primary_bytes: key.len(), site, is_known: false };
    let visitor = Visitor::alone(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let sender = Sender { visitor, auth: ClientAuth::Plain };
    let framing = request_framing(&head).expect("sound framing");
    Request::new(&head, head_bytes, &key, keyed, framing, sender, in_force)
}
