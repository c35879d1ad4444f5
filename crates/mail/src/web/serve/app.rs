//! State that all handlers share.

use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use engine::{
    accounts::{Accounts, Category, Charge, Limit, Refusal},
    cores::clock,
};
use tokio::sync::{Semaphore, watch};

use crate::mailbox::mailboxes::{Inbox, Mailboxes, Scope, Summary};
use crate::{
    background::LowPriorityPool,
    search::index::Index,
    web::{
        flags::FlagTable,
        previews::{preview_cache::PreviewCache, rendered_cache::RenderedCache},
        serve::{
            assets,
            budget::Budget,
            client::Client,
            config::Config,
            config::{PARSING_PERMITS, RENDER_THREADS_MAX, SEARCH_THREADS_MAX},
            counters::{Counter, Counters},
            fault::Fault,
            job_queue::JobQueue,
            silent_proxy::SilentProxies,
        },
        undo_delete::UndoTable,
        when,
    },
};

/// Maximum number of large mails that wait to be rendered.
const RENDERS_WAITING_MAX: usize = 256;
/// Category of event listeners in the clients' account.
const LISTENERS: Category = Category(0);
/// Maximum time that a client waits for another client's listeners to be closed, and interval between two
/// attempts.
const GIVE_WAY_MAX: Duration = Duration::from_secs(1);
const GIVE_WAY_LOOK: Duration = Duration::from_millis(5);
/// Maximum number of searches that wait to run.
const SEARCHES_WAITING_MAX: usize = 64;

pub(crate) struct App<M> {
    pub(crate) mailboxes: M,
    pub(crate) config: Config,
    pub(crate) site: Site,
    pub(crate) counters: Arc<Counters>,
    pub(crate) marks: FlagTable,
    pub(crate) gists: PreviewCache,
    pub(crate) renderings: RenderedCache,
    pub(crate) leaving: UndoTable,
    pub(crate) started_ms: u64,
    /// True if the server listens on loopback only.
    pub(crate) on_loopback: bool,
    /// Addresses of detected silent proxies.
    pub(crate) silent_proxies: SilentProxies,
    /// Account of listeners, created by the web's thread for the first listener.
    listeners: OnceLock<Accounts>,
    /// Number of listeners created so far.
    listened: AtomicU64,
    pub(crate) renders: Arc<JobQueue>,
    pub(crate) searches: Arc<JobQueue>,
    /// Permits for the bytes of mails that are parsed at the same time, one set for renders and one for
    /// searches.
    pub(crate) rendering: Arc<Semaphore>,
    pub(crate) searching: Arc<Semaphore>,
    pub(crate) behind: LowPriorityPool,
    pub(crate) index: Option<Arc<Index>>,
    pub(crate) budget: Arc<Budget>,
    requests: AtomicU64,
    stopping: watch::Receiver<bool>,
}

/// Texts and assets used by every page.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) domain: String,
    pub(crate) smtp: Option<String>,
    pub(crate) kept: String,
    /// Style sheet, included in the page itself.
    pub(crate) style: &'static str,
    /// Paths of the scripts, in the order in which they run.
    pub(crate) scripts: Vec<String>,
    /// Script that runs before the first paint, included in the page itself.
    pub(crate) theme: &'static str,
    pub(crate) icon: String,
}

impl<M: Mailboxes> App<M> {
    #[cfg(test)]
    pub(crate) fn new(
        mailboxes: M,
        config: Config,
        address: SocketAddr,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self::counted(mailboxes, config, address, stopping, None, Arc::new(Counters::new()))
    }

    /// Notes that a page of this scope will be handed out which caches may hold.
    pub(crate) fn note_handed_out(&self, scope: &Scope) {
        if let Scope::Inbox(inbox) = scope {
            self.config.handed_out.note(inbox);
        }
    }

    /// Announces that a user has changed these mails on a page.
    pub(crate) fn announce_changes(&self, mails: &[Arc<Summary>], are_deletions: bool) {
        let mut inboxes: Vec<&Inbox> = mails.iter().map(|mail| &mail.inbox).collect();
        inboxes.sort_unstable();
        inboxes.dedup();
        inboxes.into_iter().for_each(|inbox| self.config.handed_out.announce_change(inbox, are_deletions));
    }

    /// Creates the state with a search index and counters.
    pub(crate) fn counted(
        mailboxes: M,
        config: Config,
        address: SocketAddr,
        stopping: watch::Receiver<bool>,
        index: Option<Arc<Index>>,
        counters: Arc<Counters>,
    ) -> Self {
        let site = Site {
            name: config.name.clone(),
            domain: config.domain.clone(),
            smtp: config.smtp.clone(),
            kept: when::span(u64::try_from(config.kept.as_millis()).unwrap_or(u64::MAX)),
            style: assets::STYLE,
            scripts: ["common.js", "frame.js", "list.js", "mail.js"].map(assets::path).to_vec(),
            theme: assets::THEME,
            icon: assets::path("icon.svg"),
        };
        let turns = |running_max, waiting_max, full| {
            Arc::new(JobQueue::new(running_max, waiting_max, Arc::clone(&counters), full))
        };
        let marks = FlagTable::new(Arc::clone(&counters));
        marks.begin(mailboxes.take_recovered_notes());
        Self {
            mailboxes,
            site,
            marks,
            gists: PreviewCache::new(Arc::clone(&counters)),
            renderings: RenderedCache::new(Arc::clone(&counters)),
            leaving: UndoTable::new(Arc::clone(&counters)),
            started_ms: clock::unix_ms(),
            on_loopback: address.ip().to_canonical().is_loopback(),
            silent_proxies: SilentProxies::default(),
            listeners: OnceLock::new(),
            listened: AtomicU64::new(0),
            renders: turns(RENDER_THREADS_MAX, RENDERS_WAITING_MAX, Counter::RenderBusy),
            searches: turns(SEARCH_THREADS_MAX, SEARCHES_WAITING_MAX, Counter::SearchBusy),
            rendering: Arc::new(Semaphore::new(PARSING_PERMITS)),
            searching: Arc::new(Semaphore::new(PARSING_PERMITS)),
            behind: LowPriorityPool::new(SEARCH_THREADS_MAX),
            index,
            budget: Arc::new(Budget::new(
                config.http_bytes_max,
                config.client_budget.as_ref(),
                Arc::clone(&counters),
            )),
            // Starts at the current time, so that request IDs of two runs differ.
            requests: AtomicU64::new(clock::unix_ms() << 20),
            counters,
            config,
            stopping,
        }
    }

    /// Returns a new request ID, as shown on error pages and in the log.
    pub(crate) fn request_name(&self) -> String {
        format!("{:x}", self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes a listener slot. If all slots are taken, one is taken from the client that holds the most.
    pub(crate) async fn listener(&self, client: Client) -> Result<ListenerSlot, Fault> {
        let accounts =
            self.listeners.get_or_init(|| Accounts::new(vec![Limit::of_core(self.config.listeners_max)]));
        let number = self.listened.fetch_add(1, Ordering::Relaxed);
        let key = client.key(number, &self.config.shared_networks);
        let begun_ms = clock::monotonic_ms();
        loop {
            match accounts.charge(key, LISTENERS, 1) {
                Ok(place) => {
                    self.counters.add(Counter::Listeners, 1);
                    return Ok(ListenerSlot {
                        place,
                        counters: Arc::clone(&self.counters),
                        stopping: self.stopping.clone(),
                    });
                }
                // Other clients hold more slots; some of their listeners are cut, and end when they next run.
                Err(Refusal::Full)
                    if u128::from(clock::monotonic_ms() - begun_ms) < GIVE_WAY_MAX.as_millis() =>
                {
                    tokio::time::sleep(GIVE_WAY_LOOK).await;
                }
                Err(_) => {
                    self.counters.add(Counter::ListenersFull, 1);
                    return Err(Fault::Busy("too many live pages are open"));
                }
            }
        }
    }
}

/// A listener slot, freed on drop.
pub(crate) struct ListenerSlot {
    place: Charge,
    counters: Arc<Counters>,
    stopping: watch::Receiver<bool>,
}

impl ListenerSlot {
    /// Waits until the server stops, or until the slot is given to another client.
    pub(crate) async fn stopped(&mut self) {
        tokio::select! {
            // An error means that the server's handle is gone.
            _ = self.stopping.wait_for(|stop| *stop) => {}
            () = self.place.cut() => self.counters.add(Counter::ListenersCut, 1),
        }
    }

    /// Returns whether the slot was given to another client.
    pub(crate) fn is_cut(&self) -> bool {
        self.place.is_cut()
    }

    pub(crate) fn lagged(&self) {
        self.counters.add(Counter::ListenersLagged, 1);
    }
}

impl Drop for ListenerSlot {
    fn drop(&mut self) {
        self.counters.sub(Counter::Listeners, 1);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::mailbox::twin::{Retention, Twin};

    fn client(last: u8) -> Client {
        Client::of(httpd::Client(Ipv4Addr::new(192, 0, 2, last).into()))
    }

    /// The client with the most live pages loses some of them to other clients. Eight addresses once took all
    /// 2,048 slots.
    #[tokio::test]
    async fn who_has_most_live_pages_gives_way() {
        let (_stop, stopping) = watch::channel(false);
        let config = Config { listeners_max: 64, ..Config::default() };
        let twin = Twin::new(Retention::default(), "night.test");
        let app = Arc::new(App::new(twin, config, (Ipv4Addr::LOCALHOST, 0).into(), stopping));
        let mut greedy = Vec::new();
        while let Ok(listener) = app.listener(client(1)).await {
            greedy.push(listener);
        }
        assert!((48..64).contains(&greedy.len()), "alone it has nearly all: {}", greedy.len());
        // Cut listeners end, as their streams would.
        let leaving = async {
            loop {
                greedy.retain(|listener| !listener.is_cut());
                tokio::task::yield_now().await;
            }
        };
        let coming = async {
            let mut others = Vec::new();
            for last in 2..22 {
                others.push(app.listener(client(last)).await.map_err(|fault| fault.to_string())?);
            }
            Ok::<_, String>(others)
        };
        let others = tokio::select! {
            () = leaving => unreachable!("it goes on"),
            others = coming => others.unwrap(),
        };
        assert_eq!(others.len(), 20, "each of the others has a place");
    }

    /// Each live page from a shared network counts as a separate client, so none of them holds the most
    /// slots.
    #[tokio::test]
    async fn live_pages_of_shared_networks_are_clients_each() {
        for (shared, is_one_client) in [("203.0.113.0/24", true), ("192.0.2.0/24", false)] {
            let (_stop, stopping) = watch::channel(false);
            let shared_networks = vec![shared.parse().unwrap()];
            let config = Config { listeners_max: 64, shared_networks, ..Config::default() };
            let twin = Twin::new(Retention::default(), "night.test");
            let app = Arc::new(App::new(twin, config, (Ipv4Addr::LOCALHOST, 0).into(), stopping));
            let mut pages = Vec::new();
            while let Ok(listener) = app.listener(client(1)).await {
                pages.push(listener);
            }
            assert_eq!(pages.len() == 64, !is_one_client, "{} pages", pages.len());
        }
    }
}
