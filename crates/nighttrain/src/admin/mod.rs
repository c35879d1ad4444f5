//! The admin server: what the operator and the monitoring see.
//!
//! ```text
//! nighttrain stat, purge, explain, objects, origins, log · Prometheus · a browser
//!        │  HTTP, loopback unless a token is set
//!        ▼
//! thread "admin": axum on a runtime of its own ──▶ OperatorView::registry (atomics, read in passing)
//!                                              └─▶ Purger::purge, explain, objects (block: on a helper thread)
//! ```
//! The same pages for every server; `/purge` where there is an accelerator.
//! It shares no thread with the loops: a scrape costs a request nothing but the reading of its counters' cache lines.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page for people |
//! | `/metrics` | OpenMetrics text for Prometheus |
//! | `/stat` | JSON whose names stay; the same as a table with `Accept: text/plain` |
//! | `/healthz` | 200 while this process can answer |
//! | `/readyz` | 200 while it takes requests, else 503 |
//! | `POST /purge?url=` | drops one URL from the store |
//! | `POST /purge?tag=&tag=`, `?all` | purges what has one of these tags, or everything |
//! | `POST /purge?ban=` | purges what an expression holds of |
//! | … `&everywhere`, `&local` | … and waits until it holds on each accelerator of the cluster; here alone |
//! | `/cluster` | JSON: how the cluster of accelerators is, and who is in it |
//! | … `&soft` | … softly, of a URL, too: it is stale and stays |
//! | `GET /purge` | the bans that are kept, as JSON |
//! | `/explain?url=&method=&header=` | JSON: what would become of such a request, and which rule says so |
//! | `/objects?match=&limit=` | JSON: what is stored in memory, or what of it an expression holds of |
//! | `/log` | JSON: where the log of transactions is, for a reader on this machine |
//! | `/origins` | JSON: how the origins' servers are |
//! | `POST /origins?server=&set=` | takes a server out (`drain`, `down`), or lets it be asked again (`auto`) |

mod access;
pub(crate) mod client;
pub(crate) mod cluster_table;
mod explain;
pub(crate) mod explained;
mod log;
mod objects;
pub(crate) mod objects_table;
mod origins;
pub(crate) mod origins_table;
mod page;
pub(crate) mod peers_table;
mod port;
pub(crate) mod stat;
pub(crate) mod top;

use std::{sync::Arc, time::Instant};

use ::cluster::{InstanceOutcome, Outcome, PurgeRequestError};
use axum::{
    Json, Router,
    extract::{Query, RawQuery, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use cache::policy::purge::TAGS_ASKED_MAX;
use engine::{
    journal::Journal,
    meter::{Registry, prometheus},
};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    admin::stat::Report,
    services::{
        accelerator::{BanSeen, Invalidate, PurgeError, PurgeResult, Purger},
        certificates::CertificateStatus,
    },
};

pub(crate) use self::{
    access::{Access, Token, read_token, read_tokens},
    port::Port,
};

/// A running server, as its operator sees it.
pub(crate) trait OperatorView: Send + Sync + 'static {
    /// What it counts.
    fn registry(&self) -> Arc<Registry>;

    /// Whether it takes work: every loop listens, and no drain has begun.
    fn is_ready(&self) -> bool;

    /// The certificates that it shows, or is to.
    fn certificates(&self) -> Vec<CertificateStatus> {
        Vec::new()
    }
}

/// Purger and questions under way at once; more are answered 503. Each may wait for a core, on a thread of its own.
const PURGES_MAX: usize = 8;

struct Admin {
    operated: Arc<dyn OperatorView>,
    accelerator: Option<Arc<dyn Purger>>,
    journal: Option<Arc<Journal>>,
    started: Instant,
    purges: Arc<Semaphore>,
}

/// The pages of a server; with an accelerator, its purges.
pub(crate) fn pages(
    access: Access,
    operated: Arc<dyn OperatorView>,
    accelerator: Option<Arc<dyn Purger>>,
    journal: Option<Arc<Journal>>,
) -> Router {
    let mut guarded = Router::new()
        .route("/", get(status))
        .route("/metrics", get(metrics))
        .route("/stat", get(stat))
        .route("/log", get(log::log));
    let mut known = "/, /metrics, /stat, /log, /healthz, /readyz";
    if accelerator.is_some() {
        guarded = guarded
            .route("/purge", post(purge).get(bans))
            .route("/cluster", get(cluster))
            .route("/explain", get(explain::explain))
            .route("/objects", get(objects::objects))
            .route("/origins", get(origins::origins).post(origins::set));
        known = "/, /metrics, /stat, /log, /purge, /cluster, /explain, /objects, /origins, /healthz, /readyz";
    }
    let guarded = guarded.layer(middleware::from_fn_with_state(access, access::check));
    let purges = Arc::new(Semaphore::new(PURGES_MAX));
    let admin = Arc::new(Admin { operated, accelerator, journal, started: Instant::now(), purges });
    // Health is no secret, and who asks for it seldom has a token.
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .merge(guarded)
        .fallback(
            move || async move { (StatusCode::NOT_FOUND, format!("no such page; there are {known}\n")) },
        )
        .layer(middleware::from_fn(never_stored))
        .with_state(admin)
}

/// Numbers of this moment are not for any cache's store, and no page may frame or sniff them.
async fn never_stored(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

impl Admin {
    fn report(&self) -> Report {
        let report = Report::new(
            &self.operated.registry().snapshot(),
            self.operated.is_ready(),
            self.started.elapsed().as_secs(),
        );
        let cluster = self.accelerator.as_ref().and_then(|accelerator| accelerator.cluster());
        let cluster = cluster.map(|(look, left_ms)| cluster_table::said(&look, left_ms));
        let peers = self.accelerator.as_ref().map(|accelerator| accelerator.peers()).unwrap_or_default();
        let peers = (!peers.is_empty()).then(|| peers_table::said(&peers));
        Report { certificates: self.operated.certificates(), cluster, peers, ..report }
    }
}

async fn status(State(admin): State<Arc<Admin>>) -> Html<String> {
    Html(page::status(&admin.report()))
}

async fn metrics(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], prometheus::encode(&admin.operated.registry()))
}

async fn stat(State(admin): State<Arc<Admin>>, request: HeaderMap) -> Response {
    let report = admin.report();
    if request.get(header::ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"text/plain")) {
        report.table().into_response()
    } else {
        Json(report).into_response()
    }
}

async fn ready(State(admin): State<Arc<Admin>>) -> (StatusCode, &'static str) {
    if admin.operated.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready: it is starting or stopping\n")
    }
}

/// What a query asks to have purged.
struct PurgeQuery {
    what: Invalidate,
    is_soft: bool,
    reach: PurgeReach,
}

/// Where a purge is to hold when it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PurgeReach {
    /// Here, and nobody else is told.
    Local,
    /// Here; and in the cluster's stream, where there is one.
    Told,
    /// On each accelerator of the cluster.
    Everywhere,
}

impl PurgeQuery {
    /// `None`: it is not clear what.
    fn of(query: Vec<(String, String)>) -> Option<Self> {
        let (mut urls, mut tags, mut bans) = (Vec::new(), Vec::new(), Vec::new());
        let (mut is_all, mut is_soft) = (false, false);
        let mut reach = PurgeReach::Told;
        for (name, value) in query {
            match &*name {
                "url" => urls.push(value),
                "tag" if !value.is_empty() => tags.push(value),
                "ban" => bans.push(value),
                "all" => is_all = true,
                "soft" => is_soft = true,
                "everywhere" if reach != PurgeReach::Local => reach = PurgeReach::Everywhere,
                "local" if reach != PurgeReach::Everywhere => reach = PurgeReach::Local,
                _ => return None,
            }
        }
        let sorts = [!urls.is_empty(), !tags.is_empty(), !bans.is_empty(), is_all];
        if sorts.into_iter().filter(|is_asked| *is_asked).count() != 1 || urls.len() > 1 || bans.len() > 1 {
            return None;
        }
        let what = match (urls.pop(), bans.pop()) {
            (Some(url), _) => Invalidate::Url(url),
            (None, Some(ban)) => Invalidate::Ban(ban),
            (None, None) if is_all => Invalidate::All,
            (None, None) if tags.len() <= TAGS_ASKED_MAX => Invalidate::Tags(tags),
            _ => return None,
        };
        Some(Self { what, is_soft, reach })
    }
}

fn error(status: StatusCode, message: &str) -> Response {
    (status, Json(serde_json::json!({ "error": message }))).into_response()
}

impl Admin {
    /// Has a thread that may wait ask the accelerator something. No more of them at once than [`PURGES_MAX`].
    ///
    /// # Errors
    /// The answer to who asked.
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Purger) -> T + Send + 'static,
    ) -> Result<T, Response> {
        let Ok(permit) = Arc::clone(&self.purges).try_acquire_owned() else {
            let message = "too many purges and questions at once; try again";
            return Err(error(StatusCode::SERVICE_UNAVAILABLE, message));
        };
        let Some(accelerator) = self.accelerator.clone() else {
            return Err(error(StatusCode::NOT_FOUND, "there is no accelerator here"));
        };
        let asked = tokio::task::spawn_blocking(move || {
            let answer = ask(&*accelerator);
            drop(permit);
            answer
        });
        asked.await.map_err(|_| error(StatusCode::INTERNAL_SERVER_ERROR, "it broke off; see the log"))
    }
}

/// Purger and answers 200. A URL that was stored is answered `{"dropped": true, "found": ["https://…"]}`, with the URLs
/// that it was stored under; one that was not `{"dropped": false}`. Both leave nothing behind. Tags, bans and soft
/// purges are answered `{"invalidated": true}`: nobody counts what they reach.
async fn purge(State(admin): State<Arc<Admin>>, Query(query): Query<Vec<(String, String)>>) -> Response {
    let Some(wanted) = PurgeQuery::of(query) else {
        return error(
            StatusCode::BAD_REQUEST,
            "which one: POST /purge?url=http://www.example.org/path, ?tag=product-7&tag=list, \
             ?ban=req.url+~+%5E/news or ?all, each with &soft or without",
        );
    };
    if wanted.reach == PurgeReach::Everywhere
        && admin.accelerator.as_ref().is_none_or(|one| one.cluster().is_none())
    {
        let message = "there is no cluster here, so everywhere is here: leave that out, or name the cluster (cluster in \
                       [cache])";
        return error(StatusCode::BAD_REQUEST, message);
    }
    match admin.ask(move |accelerator| carry_out(accelerator, &wanted)).await {
        Ok(Ok((done, None))) => Json(done).into_response(),
        Ok(Ok((mut done, Some(why)))) => {
            done["error"] = why.into();
            (StatusCode::SERVICE_UNAVAILABLE, Json(done)).into_response()
        }
        Ok(Err(wrong @ (PurgeError::NotAUrl(_) | PurgeError::NotABan(_)))) => {
            error(StatusCode::BAD_REQUEST, &wrong.to_string())
        }
        Ok(Err(late @ (PurgeError::NoAnswer | PurgeError::NotWritten))) => {
            error(StatusCode::SERVICE_UNAVAILABLE, &late.to_string())
        }
        Err(answer) => answer,
    }
}

/// Purger here, then tells the others; what is answered, and what of it has not been done.
fn carry_out(accelerator: &dyn Purger, wanted: &PurgeQuery) -> Result<(Value, Option<String>), PurgeError> {
    let PurgeQuery { what, is_soft, reach } = wanted;
    let mut done = match what {
        Invalidate::Url(url) if !is_soft => accelerator.purge(url).map(|purged| match purged {
            PurgeResult::Dropped(found) => serde_json::json!({ "dropped": true, "found": found }),
            PurgeResult::Absent => serde_json::json!({ "dropped": false }),
        })?,
        what => {
            accelerator.invalidate(what, *is_soft).map(|()| serde_json::json!({ "invalidated": true }))?
        }
    };
    if *reach == PurgeReach::Local {
        return Ok((done, None));
    }
    let is_everywhere = *reach == PurgeReach::Everywhere;
    let (outcome, why) = match accelerator.tell(what, *is_soft, is_everywhere) {
        None => return Ok((done, None)),
        Some(Ok(outcome)) => (Some(outcome), None),
        Some(Err(refused)) => {
            let why = format!("purged here; {refused}");
            let outcome = if let PurgeRequestError::NotYet(outcome) = refused { Some(outcome) } else { None };
            (outcome, Some(why))
        }
    };
    if let Some(Outcome { sequence, instances }) = outcome {
        done["sequence"] = sequence.into();
        if is_everywhere {
            let one = |told: InstanceOutcome| serde_json::json!({ "name": told.name, "standing": told.standing.name() });
            done["instances"] = instances.into_iter().map(one).collect();
        }
    }
    Ok((done, why))
}

/// How the cluster of accelerators is.
async fn cluster(State(admin): State<Arc<Admin>>) -> Response {
    let peers = admin.accelerator.as_ref().map(|accelerator| accelerator.peers()).unwrap_or_default();
    match admin.accelerator.as_ref().and_then(|accelerator| accelerator.cluster()) {
        Some((look, left_ms)) => {
            let mut said = cluster_table::said(&look, left_ms);
            said["peers"] = peers_table::said(&peers);
            Json(said).into_response()
        }
        None if !peers.is_empty() => {
            Json(serde_json::json!({ "peers": peers_table::said(&peers) })).into_response()
        }
        None => error(StatusCode::NOT_FOUND, "there is no cluster here (cluster in [cache])"),
    }
}

/// The bans that are kept, the oldest first: `[{"number": 178000000000, "ban": "req.url ~ \"^/news\"", "soft": false,
/// "cores_done": 1}]`; `null`: what lies in memory is not looked through for it.
async fn bans(State(admin): State<Arc<Admin>>, RawQuery(query): RawQuery) -> Response {
    // Who means to purge is not to take a list for a yes.
    if query.is_some_and(|query| !query.is_empty()) {
        let message = "what is to be purged is said by POST; GET /purge, without more, lists the bans";
        let mut refused = error(StatusCode::METHOD_NOT_ALLOWED, message);
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
        return refused;
    }
    match admin.ask(|accelerator| accelerator.bans()).await {
        Ok(Ok(seen)) => {
            let one = |ban: &BanSeen| {
                serde_json::json!({
                    "number": ban.number,
                    "ban": ban.text,
                    "soft": ban.is_soft,
                    "cores_done": ban.cores_done,
                })
            };
            Json(seen.iter().map(one).collect::<Vec<_>>()).into_response()
        }
        Ok(Err(late)) => error(StatusCode::SERVICE_UNAVAILABLE, &late.to_string()),
        Err(answer) => answer,
    }
}

#[cfg(test)]
mod tests;
