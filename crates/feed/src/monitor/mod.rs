//! Monitoring port with nats-server's paths and fields, so that tools for nats-server (`nats top`, the
//! Prometheus exporter, dashboards) work with the feed.
//!
//! ```text
//!  GET /varz /routez /gatewayz /accountz /healthz ─▶ the loops' counters, without asking any loop
//!  GET /leafz ─▶ the hubs, from the loops that join them; without configured hubs no loop is asked
//!  GET /connz /subsz ─▶ lists, assembled in steps (`inspector`), at most LISTS_MAX at a time ─▶ JSON
//! ```
//! The port is served on a separate thread, never on a loop. A list costs each loop time in proportion to the
//! number of its connections, although each step is short, and it takes memory while it is assembled. So
//! further requests wait while `LISTS_MAX` lists are in progress. Features that the feed does not have
//! (routes, gateways) are present and empty. Requests in the system account are answered with the same pages
//! (`crate::monitor::system`).

pub(crate) mod capture;
pub(crate) mod connz;
pub(crate) mod inspector;
pub(crate) mod leafz;
pub(crate) mod look;
pub(crate) mod page;
pub(crate) mod query;
pub mod snapshot;
pub(crate) mod subsz;
pub(crate) mod system;
pub(crate) mod times;
pub(crate) mod varz;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Json, Router,
    extract::{RawQuery, State},
    http::StatusCode,
    response::{Html, IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::query::Query;
use crate::monitor::{
    inspector::Looker,
    look::NoAnswer,
    page::{PageError, PageRequest, accounts, gateways, routes},
};

/// Maximum number of lists that are assembled at the same time.
const LISTS_MAX: usize = 2;
/// Paths for which requests are counted, as in nats-server.
const PATHS: [&str; 8] =
    ["/varz", "/connz", "/subsz", "/routez", "/leafz", "/gatewayz", "/accountz", "/healthz"];

/// A feed that is monitored.
pub trait MonitoredFeed: Send + Sync + 'static {
    /// Returns the source of monitoring data under the current settings.
    ///
    /// # Errors
    /// [`NoAnswer`] if the feed is stopping.
    fn looker(&self) -> Result<Looker, NoAnswer>;

    /// Returns whether the feed accepts connections.
    fn is_ready(&self) -> bool;
}

struct Monitor<W> {
    watched: Arc<W>,
    turns: Semaphore,
    asked: [AtomicU64; PATHS.len()],
}

/// Builds the router of the monitoring port. `listen` is the port's address, which the system account also
/// reports.
pub fn router<W: MonitoredFeed>(watched: Arc<W>, listen: std::net::SocketAddr) -> Router {
    if let Ok(looker) = watched.looker() {
        // If the pages are served twice, the first address is reported.
        let _ = looker.shared.monitor.set(listen);
    }
    let monitor = Arc::new(Monitor {
        watched,
        turns: Semaphore::new(LISTS_MAX),
        asked: std::array::from_fn(|_| AtomicU64::new(0)),
    });
    Router::new()
        .route("/", get(|| async { Html(index()) }))
        .route("/varz", get(varz_page::<W>))
        .route("/connz", get(connz_page::<W>))
        .route("/subsz", get(subsz_page::<W>))
        .route("/subscriptionsz", get(subsz_page::<W>))
        .route("/routez", get(routez::<W>))
        .route("/leafz", get(leafz_page::<W>))
        .route("/gatewayz", get(gatewayz::<W>))
        .route("/accountz", get(accountz::<W>))
        .route("/healthz", get(healthz::<W>))
        .fallback(|| async { (StatusCode::NOT_FOUND, "404 page not found\n") })
        .with_state(monitor)
}

impl<W: MonitoredFeed> Monitor<W> {
    fn look(&self, path: &str) -> Result<PageRequest, PageError> {
        self.count(path);
        Ok(PageRequest { looker: self.watched.looker()? })
    }

    fn count(&self, path: &str) {
        if let Some(n) = PATHS.iter().position(|known| *known == path) {
            self.asked[n].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn requests(&self) -> BTreeMap<&'static str, u64> {
        let counts =
            PATHS.iter().zip(&self.asked).map(|(path, count)| (*path, count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| *count > 0).collect()
    }
}

type MonitorState<W> = State<Arc<Monitor<W>>>;

type Page = Result<Json<Value>, PageError>;

async fn varz_page<W: MonitoredFeed>(State(monitor): MonitorState<W>) -> Page {
    Ok(Json(varz::page(&monitor.look("/varz")?, &monitor.requests())))
}

async fn connz_page<W: MonitoredFeed>(State(monitor): MonitorState<W>, RawQuery(query): RawQuery) -> Page {
    let asked = monitor.look("/connz")?;
    let _turn = monitor.turns.acquire().await.map_err(|_| NoAnswer)?;
    Ok(Json(connz::page(&asked, &Query::new(query.as_deref().unwrap_or_default())).await?))
}

async fn subsz_page<W: MonitoredFeed>(State(monitor): MonitorState<W>, RawQuery(query): RawQuery) -> Page {
    let asked = monitor.look("/subsz")?;
    let _turn = monitor.turns.acquire().await.map_err(|_| NoAnswer)?;
    Ok(Json(subsz::page(&asked, &Query::new(query.as_deref().unwrap_or_default())).await?))
}

async fn routez<W: MonitoredFeed>(State(monitor): MonitorState<W>) -> Page {
    Ok(Json(routes(&monitor.look("/routez")?)))
}

async fn leafz_page<W: MonitoredFeed>(State(monitor): MonitorState<W>) -> Page {
    Ok(Json(leafz::page(&monitor.look("/leafz")?).await?))
}

async fn gatewayz<W: MonitoredFeed>(State(monitor): MonitorState<W>) -> Page {
    Ok(Json(gateways(&monitor.look("/gatewayz")?)))
}

async fn accountz<W: MonitoredFeed>(State(monitor): MonitorState<W>) -> Page {
    Ok(Json(accounts(&monitor.look("/accountz")?)))
}

/// Answers from counters alone, without asking any loop, because load balancers send many of these requests.
async fn healthz<W: MonitoredFeed>(State(monitor): MonitorState<W>) -> Response {
    monitor.count("/healthz");
    if monitor.watched.is_ready() {
        Json(json!({"status": "ok"})).into_response()
    } else {
        let page = json!({"status": "unavailable", "error": "the server is stopping"});
        (StatusCode::SERVICE_UNAVAILABLE, Json(page)).into_response()
    }
}

fn index() -> String {
    let links: String =
        PATHS.iter().map(|path| format!("<li><a href=\".{path}\">{path}</a></li>\n")).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<title>Feed</title>\n<h1>Feed</h1>\n<ul>\n{links}</ul>\n</html>\n"
    )
}
