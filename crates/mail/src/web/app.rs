//! What every handler shares.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use engine::cores::clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{
    RENDER_THREADS_MAX,
    answer::Fault,
    assets,
    config::Config,
    counters::{Counter, Counters},
    marks::Marks,
    when,
};
use crate::{
    mailboxes::{Mail, Mailboxes},
    render::Until,
};

/// A mail up to this size is rendered where the request is: a thread's wake-up costs more. What is built to be slow
/// (HTML in deep levels) takes milliseconds at this size.
const RENDER_HERE_BYTES_MAX: usize = 16 * 1024;
/// Processor time that the HTML of one mail may take; what the bounds on its cost let through takes a tenth of it.
const RENDER_TIME_MAX: Duration = Duration::from_secs(2);
/// Large mails that wait for a render thread; more are turned away.
const RENDER_WAITING_MAX: usize = 32;

pub(crate) struct App<M> {
    pub(crate) mailboxes: M,
    pub(crate) config: Config,
    pub(crate) site: Site,
    pub(crate) counters: Arc<Counters>,
    pub(crate) marks: Marks,
    pub(crate) started_ms: u64,
    /// It listens where only this machine can reach it.
    pub(crate) on_loopback: bool,
    listeners: Arc<Semaphore>,
    rendering: Semaphore,
    waiting_to_render: Semaphore,
    requests: AtomicU64,
    stopping: watch::Receiver<bool>,
}

/// What every page says.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) name: String,
    pub(crate) domain: String,
    pub(crate) smtp: Option<String>,
    pub(crate) kept: String,
    pub(crate) warning: String,
    pub(crate) style: String,
    pub(crate) script: String,
    pub(crate) theme: String,
    pub(crate) icon: String,
}

impl<M: Mailboxes> App<M> {
    pub(crate) fn new(
        mailboxes: M,
        config: Config,
        address: SocketAddr,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let site = Site {
            name: config.name.clone(),
            domain: config.domain.clone(),
            smtp: config.smtp.clone(),
            kept: when::span(u64::try_from(config.kept.as_millis()).unwrap_or(u64::MAX)),
            warning: config.warning.clone(),
            style: assets::path("style.css"),
            script: assets::path("mail.js"),
            theme: assets::path("theme.js"),
            icon: assets::path("icon.svg"),
        };
        let counters = Arc::new(Counters::new());
        Self {
            mailboxes,
            site,
            marks: Marks::new(Arc::clone(&counters)),
            started_ms: clock::unix_ms(),
            on_loopback: address.ip().is_loopback(),
            listeners: Arc::new(Semaphore::new(config.listeners_max)),
            rendering: Semaphore::new(RENDER_THREADS_MAX),
            waiting_to_render: Semaphore::new(RENDER_WAITING_MAX),
            // Names of requests of two runs should not be mistaken for each other.
            requests: AtomicU64::new(clock::unix_ms() << 20),
            counters,
            config,
            stopping,
        }
    }

    /// The name of a request, as an error page and the log say it.
    pub(crate) fn request_name(&self) -> String {
        format!("{:x}", self.requests.fetch_add(1, Ordering::Relaxed))
    }

    /// Takes a mail apart: here if it is small, else on a thread for it.
    pub(crate) async fn render<T: Send + 'static>(
        self: &Arc<Self>,
        mail: Mail,
        work: impl FnOnce(&Mail, &Until) -> T + Send + 'static,
    ) -> Result<T, Fault> {
        self.counters.add(Counter::Rendered, 1);
        if mail.raw.len() <= RENDER_HERE_BYTES_MAX {
            return Ok(work(&mail, &self.until(&Asking::default())));
        }
        let asking = Asking::default();
        let until = self.until(&asking);
        let Ok(_waiting) = self.waiting_to_render.try_acquire() else {
            self.counters.add(Counter::RenderBusy, 1);
            return Err(Fault::Busy("too many large mails are being read at once"));
        };
        // Never closed.
        let _turn = self.rendering.acquire().await;
        tokio::task::spawn_blocking(move || work(&mail, &until)).await.map_err(|_| Fault::Broken)
    }

    /// Until who asks has gone, or the work has taken [`RENDER_TIME_MAX`].
    fn until(self: &Arc<Self>, asking: &Asking) -> Until {
        let (gone, counters) = (Arc::clone(&asking.gone), Arc::clone(&self.counters));
        let begun_ns = std::cell::Cell::new(None);
        Until::new(move || {
            let now_ns = clock::thread_cpu_ns();
            // The thread that works asks first.
            let begun_ns = begun_ns.get().unwrap_or_else(|| {
                begun_ns.set(Some(now_ns));
                now_ns
            });
            let ended = if gone.load(Ordering::Relaxed) {
                Counter::RenderLeft
            } else if now_ns.saturating_sub(begun_ns) > RENDER_TIME_MAX.as_nanos() as u64 {
                Counter::RenderTimeOver
            } else {
                return false;
            };
            counters.add(ended, 1);
            true
        })
    }

    /// A place among those who listen to events.
    pub(crate) fn listener(&self) -> Result<Listener, Fault> {
        match Arc::clone(&self.listeners).try_acquire_owned() {
            Ok(place) => {
                self.counters.add(Counter::Listeners, 1);
                Ok(Listener {
                    _place: place,
                    counters: Arc::clone(&self.counters),
                    stopping: self.stopping.clone(),
                })
            }
            Err(_) => {
                self.counters.add(Counter::ListenersFull, 1);
                Err(Fault::Busy("too many live pages are open at once"))
            }
        }
    }
}

/// Somebody asks for as long as this lives: the handler of a client that goes is dropped.
#[derive(Default)]
struct Asking {
    gone: Arc<AtomicBool>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

/// A place among the listeners, given back when dropped.
pub(crate) struct Listener {
    _place: OwnedSemaphorePermit,
    counters: Arc<Counters>,
    stopping: watch::Receiver<bool>,
}

impl Listener {
    /// Comes back when the server stops.
    pub(crate) async fn stopped(&mut self) {
        // An error means that the server's handle is gone.
        let _ = self.stopping.wait_for(|stop| *stop).await;
    }

    pub(crate) fn lagged(&self) {
        self.counters.add(Counter::ListenersLagged, 1);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.counters.sub(Counter::Listeners, 1);
    }
}
