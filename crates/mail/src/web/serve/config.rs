//! The operator's settings of the pages and APIs.

use std::{sync::Arc, time::Duration};

use engine::{network::Network, share::ClientBudget, tls::CertificateSource};

use crate::{
    search::index::IndexLocation,
    web::serve::{handed_out::HandedOutPages, token::Token},
};

/// Maximum number of mails rendered at the same time outside of the web's own thread.
pub(crate) const RENDER_THREADS_MAX: usize = 4;
/// Maximum number of searches that read and parse mails at the same time.
pub(crate) const SEARCH_THREADS_MAX: usize = 2;
/// Total size of the mails that are parsed at the same time, for renders and for searches each. The parser's
/// copies take up to three times as much; four of the largest mails at once took 450 MB.
pub(crate) const PARSING_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Number of bytes that one permit covers.
pub(crate) const PERMIT_BYTES: usize = 1024;
/// Number of permits for [`PARSING_BYTES_MAX`].
pub(crate) const PARSING_PERMITS: usize = PARSING_BYTES_MAX / PERMIT_BYTES;
/// Largest form or JSON document; mails submitted through the API have their own limit.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

/// Default warning on pages that show mail.
pub(crate) const WARNING: &str =
    "Anyone can read this inbox. Do not use it for anything that must stay private.";

/// Settings of the pages and APIs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Display name of the service.
    pub name: String,
    /// Domain assumed for names without one, and domain that the API calls `public`; in lower case.
    pub domain: String,
    /// Address of the SMTP server as shown to people (`127.0.0.1:1025`).
    pub smtp: Option<String>,
    /// Inboxes whose pages caches may hold, for who announces changes to a cache.
    pub handed_out: Arc<HandedOutPages>,
    /// Time for which mail is kept, as shown to people.
    pub kept: Duration,
    /// Token that gives access to more than one inbox at a time. Without a token only this machine has
    /// access.
    pub token: Option<Token>,
    /// Warning on every page that shows mail.
    pub warning: String,
    /// Terms of use, one entry per paragraph.
    pub terms: Vec<String>,
    /// Contact for reports of abuse: an address or a URL.
    pub abuse: Option<String>,
    /// Maximum number of open connections. When it is reached, idle ones are closed first, and if none is
    /// idle, a new one waits in the kernel's queue. One address may open at most a sixteenth of them.
    pub connections_max: usize,
    /// Memory budget for clients, shared by all servers of the process; `None`: each limit applies by itself.
    pub client_budget: Option<Arc<ClientBudget>>,
    /// Host names of the pages in addition to addresses and `localhost`; `*`: any.
    pub http_hosts: Vec<String>,
    /// Networks whose clients may see more than one inbox at a time, like this machine without a token.
    pub readers: Vec<Network>,
    /// Location of the search index; `None`: searches open the mails themselves.
    pub index: Option<IndexLocation>,
    /// Total memory for requests: bodies, mails read for a response, and responses until their clients have
    /// received them. One address may use half of it; requests beyond that get 503.
    pub http_bytes_max: u64,
    /// Proxies that are trusted to name the client (`X-Forwarded-For`, `Forwarded`). Any other peer is the
    /// client itself.
    pub proxies: Vec<Network>,
    /// Networks in which each live page counts as a separate client, such as a large NAT, or a proxy that
    /// names no clients.
    pub shared_networks: Vec<Network>,
    /// Certificate for https; `None`: http.
    pub tls: Option<CertificateSource>,
    /// Maximum number of live pages, streams and waiting requests; further ones get 503.
    pub listeners_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            name: "Nighttrain mail".to_owned(),
            domain: "localhost".to_owned(),
            smtp: None,
            handed_out: Arc::default(),
            kept: Duration::from_secs(24 * 60 * 60),
            token: None,
            warning: WARNING.to_owned(),
            terms: [
                "This service receives mail for test purposes and shows it to anyone who asks for the address.",
                "Do not use it for anything of your own: accounts that matter, personal data, secrets.",
                "Mail is deleted automatically after a time, and anyone may delete it earlier. Nothing is guaranteed.",
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
