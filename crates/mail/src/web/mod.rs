//! Web pages of the stored mail. The APIs for programs are in `crate::api`, on the same port.
//!
//! ```text
//!  browsers, the accelerator, test suites
//!        │ HTTP/1.1, at most `connections_max`; an idle connection is closed in favour of a new one
//!        ▼
//!  thread "mail-web": axum on a runtime of its own ──▶ Mailboxes (questions to the loops, answers by message)
//!        │  small mails are rendered here                └──▶ events ──▶ server-sent events, WebSockets, waits
//!        ▼ queue: one client after the other
//!  threads "mail-help": up to 4 render large mails, at least 4 are left for the disk; "mail-search": up to 2, of low priority
//! ```
//! No receiving loop ever waits for a page. Pages of one inbox are public and cacheable: fresh for a second,
//! and tagged with their inbox and mail, so that an accelerator in front serves a crowd and is purged on
//! changes ([`inbox_tag`], [`mail_tag`]). Pages of more than one inbox are reserved for the operator
//! (`access`).

mod board;
mod change;
pub(crate) mod flags;
mod inbox;
pub(crate) mod lists;
pub(crate) mod live;
pub(crate) mod message;
mod pages;
pub(crate) mod previews;
pub(crate) mod serve;
pub(crate) mod source;
mod undo_delete;
pub(crate) mod when;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread::JoinHandle,
    time::Duration,
};

use axum::{Router, middleware};
use engine::{
    bounded,
    cores::clock,
    meter::Source,
    tls::{self, TlsAcceptor},
};
use tokio::sync::watch;

use crate::{
    api::{
        self,
        routes::{GET, POST, Routes},
    },
    mailbox::mailboxes::Mailboxes,
};
use crate::{
    search::index::Index,
    web::serve::{app::App, config::RENDER_THREADS_MAX, counters::Counters},
};
pub use crate::{
    search::index::IndexLocation,
    web::serve::{
        answer::{inbox_tag, list_tag, mail_tag},
        config::Config,
        handed_out::{HandedOutPages, PageChange},
        token::{Token, TokenTooShort},
    },
};

/// Number of threads reserved for disk reads, independent of rendering and searches.
const READ_THREADS: usize = 4;
/// Stack of a rendering thread. Our own code does not recurse; libraries may.
const RENDER_STACK_BYTES: usize = 16 * 1024 * 1024;
/// Time that running responses get to finish when the server stops.
const DRAIN: Duration = Duration::from_secs(5);
/// Time that a stop waits for the server's threads: for running responses, and for deletions that can still
/// be undone. A thread that hangs, as in a write to a disk that does not respond, ends with the process.
const THREADS_TIME_MAX: Duration = Duration::from_secs(10);
/// Interval at which a stop checks whether the threads have ended.
const THREADS_LOOK_EVERY: Duration = Duration::from_millis(2);

/// The running web server; dropping it stops it.
pub struct Web {
    address: SocketAddr,
    counters: Arc<dyn Source>,
    stop: watch::Sender<bool>,
    /// The threads of the web server, the indexer and the preview worker.
    threads: Vec<JoinHandle<()>>,
}

impl Web {
    /// Returns the listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters, for the registry of `/metrics`.
    #[must_use]
    pub fn counters(&self) -> Arc<dyn Source> {
        Arc::clone(&self.counters)
    }

    /// Accepts no more requests, lets running ones finish for at most five seconds, and ends live streams
    /// immediately. Returns after ten seconds at the latest.
    pub fn stop(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        // The send fails if the server has already ended.
        let _ = self.stop.send(true);
        for hanging in join_within(THREADS_TIME_MAX, std::mem::take(&mut self.threads)) {
            let name = hanging.thread().name().unwrap_or_default();
            tracing::error!("thread {name} did not end within {THREADS_TIME_MAX:?}: abandoned");
        }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Waits for threads to end, for at most `time` in total. Returns those that have not ended.
#[expect(clippy::disallowed_methods, reason = "the thread that stops the server, on no loop")]
fn join_within(time: Duration, mut threads: Vec<JoinHandle<()>>) -> Vec<JoinHandle<()>> {
    let begun = clock::now();
    loop {
        let ended: Vec<_> = threads.extract_if(.., |thread| thread.is_finished()).collect();
        // A panic of the thread has already been printed.
        ended.into_iter().for_each(|thread| _ = thread.join());
        if threads.is_empty() || begun.elapsed() >= time {
            return threads;
        }
        std::thread::sleep(THREADS_LOOK_EVERY);
    }
}

/// Serves pages and APIs on `listener`, on a thread of its own.
///
/// # Errors
/// Returns the system's error about the socket or the thread.
pub fn serve<M: Mailboxes>(listener: TcpListener, mailboxes: M, config: Config) -> io::Result<Web> {
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(RENDER_THREADS_MAX + READ_THREADS)
        .thread_name("mail-help")
        .thread_stack_size(RENDER_STACK_BYTES)
        .build()?;
    let bounds =
        crate::web::serve::connections::bounds(config.connections_max, config.client_budget.as_ref());
    let secured = config.tls.as_ref().map(|shown| tls::acceptor(shown, &[b"http/1.1"], None));
    let secured = secured.transpose().map_err(io::Error::other)?;
    let bounds = if secured.is_some() { httpd::bounds_under_tls(bounds) } else { bounds };
    let listener = {
        let _inside = runtime.enter();
        bounded::Listener::new("mail-web", listener, bounds)?
    };
    let (stop, stopping) = watch::channel(false);
    let counters = Arc::new(Counters::new());
    let index = config.index.clone().and_then(|at| index_at(at, &counters));
    let mut threads = Vec::new();
    if let Some(index) = &index {
        threads.push(crate::search::index::start(Arc::clone(index), mailboxes.clone(), stopping.clone())?);
    }
    let app = Arc::new(App::counted(mailboxes, config, address, stopping.clone(), index, counters));
    threads.push(crate::web::previews::preview_worker::start(Arc::clone(&app), stopping.clone())?);
    app.counters.listening(listener.counters());
    let counters: Arc<dyn Source> = Arc::clone(&app.counters) as Arc<dyn Source>;
    threads.push(std::thread::Builder::new().name("mail-web".to_owned()).spawn(move || {
        runtime.block_on(run(listener, secured, app, stopping));
        // The shutdown does not wait for a render that is still running.
        runtime.shutdown_background();
    })?);
    Ok(Web { address, counters, stop, threads })
}

/// Opens the index; if that fails, searches read all mails.
fn index_at(at: IndexLocation, counters: &Arc<Counters>) -> Option<Arc<Index>> {
    let directory = at.directory.display().to_string();
    match Index::open(at, Arc::clone(counters)) {
        Ok(index) => Some(Arc::new(index)),
        Err(error) => {
            counters.add(crate::web::serve::counters::Counter::IndexNotWritten, 1);
            tracing::warn!(%directory, %error, "no search index: searches scan the mails instead");
            None
        }
    }
}

async fn run<M: Mailboxes>(
    listener: bounded::Listener,
    secured: Option<TlsAcceptor>,
    app: Arc<App<M>>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut drained = stopping.clone();
    let forget_marks = tokio::spawn(crate::web::flags::forget_deleted(Arc::clone(&app)));
    let proxies = app.config.proxies.as_slice().into();
    let served = httpd::serve_behind(proxies, listener, secured, router(Arc::clone(&app)), async move {
        // An error means that the handle was dropped, which also stops the server.
        let _ = stopping.wait_for(|stop| *stop).await;
    });
    let give_up = async {
        let _ = drained.wait_for(|stop| *stop).await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        served = served => if let Err(error) = served { tracing::error!("mail web server stopped: {error}") },
        () = give_up => {}
    }
    forget_marks.abort();
    if tokio::time::timeout(DRAIN, app.end_all()).await.is_err() {
        tracing::warn!("deletions not finished before the stop: recently deleted mails may still be on disk");
    }
}

/// Returns all routes.
fn routes<M: Mailboxes>() -> Routes<M> {
    let pages = Routes::at("")
        .unlisted(GET, "/", pages::home::<M>)
        .unlisted(GET, "/inbox", pages::open::<M>)
        .unlisted(GET, "/inbox/{address}", inbox::page::<M>)
        .unlisted(GET, "/inbox/{address}/events", live::events::<M>)
        .unlisted(GET, "/inbox/{address}/search", inbox::search_page::<M>)
        .unlisted(POST, "/inbox/{address}/change", change::change::<M>)
        .unlisted(POST, "/inbox/{address}/delete", inbox::delete_all::<M>)
        .unlisted(GET, "/inbox/{address}/{id}", message::page::<M>)
        .unlisted(POST, "/inbox/{address}/{id}/delete", message::delete::<M>)
        .unlisted(GET, "/inbox/{address}/{id}/frame", message::frame::<M>)
        .unlisted(GET, "/inbox/{address}/{id}/raw", message::raw::<M>)
        .unlisted(GET, "/inbox/{address}/{id}/{view}", message::view::<M>)
        .unlisted(GET, "/inbox/{address}/{id}/attachments/{part}/{name}", message::attachment::<M>)
        .unlisted(GET, "/about", pages::about::<M>)
        .unlisted(GET, "/terms", pages::terms::<M>)
        .unlisted(GET, "/counters", pages::counters::<M>)
        .unlisted(GET, "/static/{version}/{name}", crate::web::serve::assets::asset)
        .unlisted(GET, "/robots.txt", || async { "User-agent: *\nDisallow: /inbox/\nDisallow: /api/\n" })
        .unlisted(GET, "/healthz", || async { "ok\n" });
    api::routes(pages)
}

fn router<M: Mailboxes>(app: Arc<App<M>>) -> Router {
    let (router, _) = routes::<M>().finish();
    router
        .fallback(pages::no_such_page)
        .method_not_allowed_fallback(pages::no_such_method)
        .layer(middleware::from_fn_with_state(
            Arc::clone(&app),
            crate::web::serve::answer::request_middleware::<M>,
        ))
        .with_state(app)
}

#[cfg(test)]
mod api_tests;
#[cfg(test)]
mod bounds_tests;
#[cfg(test)]
mod door_tests;
#[cfg(test)]
mod missed_tests;
#[cfg(test)]
mod stop_tests;
#[cfg(test)]
mod tests;
