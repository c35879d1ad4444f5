//! What the operator says about the pages.

use std::{sync::Arc, time::Duration};

use engine::{network::Network, share::ClientBudget, tls::CertificateSource};

use crate::{search::index::IndexLocation, web::serve::access::Token};

/// What a page says where the operator says nothing else.
pub(crate) const WARNING: &str =
    "Anyone can read this inbox. Do not use it for anything that must stay private.";

/// Settings of the pages and APIs.
#[derive(Debug, Clone)]
pub struct Config {
    /// What the service calls itself.
    pub name: String,
    /// The domain of names without one, and of the API's domain `public`; in lower case.
    pub domain: String,
    /// Where mail is taken, as people are told (`127.0.0.1:1025`).
    pub smtp: Option<String>,
    /// How long mail is kept, as people are told.
    pub kept: Duration,
    /// Who has it may see more than one inbox at a time. Without one, only this machine may.
    pub token: Option<Token>,
    /// Said on every page that shows mail.
    pub warning: String,
    /// The terms of use, a paragraph an entry.
    pub terms: Vec<String>,
    /// Whom to write to about abuse: an address or a URL.
    pub abuse: Option<String>,
    /// Open connections; when there are more, those that idle go first, and who finds none idle waits in the kernel's
    /// queue. One address has a sixteenth of them at most.
    pub connections_max: usize,
    /// The memory budget for clients of all servers of the process; `None`: each limit stands by itself.
    pub client_budget: Option<Arc<ClientBudget>>,
    /// Names that the pages have besides addresses and `localhost`; `*`: any.
    pub http_hosts: Vec<String>,
    /// Networks whose askers may see more than one inbox at a time, as this machine may where there is no token.
    pub readers: Vec<Network>,
    /// Where an index for searches lies; none: searches look into the mails themselves.
    pub index: Option<IndexLocation>,
    /// Bytes held for requests in all: bodies, mails read for an answer, answers until they are taken. One address has
    /// half of them at most; more is told to come back.
    pub http_bytes_max: u64,
    /// Proxies that are believed when they say who asks (`X-Forwarded-For`, `Forwarded`); of others, and of strangers,
    /// it is the address that counts.
    pub proxies: Vec<Network>,
    /// Networks in which each live page counts as a client of its own: a large NAT, or a proxy that names no clients.
    pub shared_networks: Vec<Network>,
    /// What is shown to who comes, by https then; `None`: by http.
    pub tls: Option<CertificateSource>,
    /// Live pages, streams and waiting requests; more are told to come back.
    pub listeners_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "Nighttrain mail".to_owned(),
            domain: "localhost".to_owned(),
            smtp: None,
            kept: Duration::from_secs(24 * 60 * 60),
            token: None,
            warning: WARNING.to_owned(),
            terms: [
                "This service receives mail for test purposes and shows it to anyone who asks for the address.",
                "Do not use it for what belongs to you alone: accounts that matter, personal data, anything secret.",
                "Mail is deleted by itself after its time, and may be deleted by anyone before. Nothing is guaranteed.",
            ]
            .map(str::to_owned)
            .to_vec(),
            abuse: None,
            connections_max: 4096,
            client_budget: None,
            http_hosts: Vec::new(),
            readers: Vec::new(),
            index: None,
            http_bytes_max: 64 << 20,
            proxies: Vec::new(),
            shared_networks: Vec::new(),
            tls: None,
            listeners_max: 2048,
        }
    }
}
