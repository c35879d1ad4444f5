//! The admin server: the pages for the operator and for monitoring.
//!
//! ```text
//! nighttrain stat, purge, explain, objects, origins, log · Prometheus · a browser
//!        │  HTTP, loopback unless a token is set
//!        ▼
//! thread "admin": axum on a runtime of its own ──▶ OperatorView::registry (atomics, read in passing)
//!                                              └─▶ Purger::purge, explain, objects (block: on a helper thread)
//! ```
//! Every server has the same pages; `/purge` exists where there is an accelerator. The admin server shares no
//! thread with the event loops: a scrape affects requests only by reading the cache lines of their counters.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page for people |
//! | `/metrics` | OpenMetrics text for Prometheus |
//! | `/stat` | JSON with stable names; the same as a table with `Accept: text/plain` |
//! | `/healthz` | 200 while this process can answer |
//! | `/readyz` | 200 while it accepts requests, else 503 |
//! | `POST /purge?url=` | drops one URL from the store |
//! | `POST /purge?tag=&tag=`, `?all` | purges the objects that have one of these tags, or everything |
//! | `POST /purge?ban=` | purges the objects that match an expression |
//! | … `&everywhere`, `&local` | … and waits until every accelerator of the cluster has purged; or purges this one only |
//! | `/cluster` | JSON: the state of the cluster of accelerators, and its instances |
//! | … `&soft` | … softly: the objects, or the URL's object, become stale but stay stored |
//! | `GET /purge` | the active bans, as JSON |
//! | `/explain?url=&method=&header=` | JSON: how such a request would be handled, and which rule decides |
//! | `/objects?match=&limit=` | JSON: the objects in memory, or those that match an expression |
//! | `/log` | JSON: the location of the transaction log, for a reader on this machine |
//! | `/origins` | JSON: the state of the origins' servers |
//! | `POST /origins?server=&set=` | takes a server out of rotation (`drain`, `down`), or puts it back (`auto`) |

mod access;
pub(crate) mod client;
pub(crate) mod cluster_table;
mod explain;
pub(crate) mod explained;
mod log;
mod numbers;
mod objects;
pub(crate) mod objects_table;
mod origins;
pub(crate) mod origins_table;
mod page;
pub(crate) mod peers_table;
mod port;
pub(crate) mod stat;
mod state;
pub(crate) mod top;
mod views;

use std::{sync::Arc, time::Instant};

use ::cluster::{InstanceOutcome, Outcome, PurgeRequestError, Scope};
use axum::{
    Json, Router,
    extract::{Query, RawQuery, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use cache::{BanSeen, Invalidate, PurgeError, PurgeResult, policy::purge::TAGS_ASKED_MAX};
use engine::{journal::Journal, meter::prometheus};
use serde_json::Value;
use tokio::sync::Semaphore;

pub(crate) use self::{
    access::{Access, Token, read_token, read_tokens},
    port::Port,
    views::{OperatorView, Purger},
};
use self::{
    stat::Report,
    state::{Admin, PURGES_MAX, error},
};

/// Builds the router of a server's pages; with an accelerator it includes the purge pages.
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
    // Health pages need no token: they are not secret, and load balancers seldom have one.
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

/// Forbids caches to store the pages, and browsers to frame or sniff them.
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
        (StatusCode::SERVICE_UNAVAILABLE, "not ready: starting or stopping\n")
    }
}

/// A parsed purge request.
struct PurgeQuery {
    what: Invalidate,
    is_soft: bool,
    reach: PurgeReach,
}

/// Accelerators on which a purge must be complete before the request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PurgeReach {
    /// This accelerator only; the purge is not broadcast.
    Local,
    /// This accelerator. The purge is also published to the cluster's stream if there is one.
    Told,
    /// Every accelerator of the cluster.
    Everywhere,
}

impl PurgeQuery {
    /// Parses a query; `None` if it does not name exactly one kind of purge or has unknown parameters.
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

/// Purges and answers 200. For a stored URL the answer is `{"dropped": true, "found": ["https://…"]}`, with
/// the URLs under which it was stored; for any other URL it is `{"dropped": false}`. Afterwards the URL is
/// not in the store in either case. Tags, bans and soft purges are answered `{"invalidated": true}`: nothing
/// counts the objects they reach.
async fn purge(State(admin): State<Arc<Admin>>, Query(query): Query<Vec<(String, String)>>) -> Response {
    let Some(wanted) = PurgeQuery::of(query) else {
        return error(
            StatusCode::BAD_REQUEST,
            "missing target: POST /purge?url=http://www.example.org/path, ?tag=product-7&tag=list, \
             ?ban=req.url+~+%5E/news or ?all, each optionally with &soft",
        );
    };
    if wanted.reach == PurgeReach::Everywhere
        && admin.accelerator.as_ref().is_none_or(|one| one.cluster().is_none())
    {
        let message = "no cluster is configured, so there are no other instances: leave the option out, or set cluster \
                       in [cache]";
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

/// Purges on this accelerator, then broadcasts the purge. Returns the answer, and a note if the broadcast
/// failed or is incomplete.
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
    let scope = match reach {
        PurgeReach::Local => return Ok((done, None)),
        PurgeReach::Told => Scope::Told,
        PurgeReach::Everywhere => Scope::Everywhere,
    };
    let (outcome, why) = match accelerator.broadcast_purge(what, *is_soft, scope) {
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
        if scope == Scope::Everywhere {
            let one = |told: InstanceOutcome| serde_json::json!({ "name": told.name, "standing": told.standing.name() });
            done["instances"] = instances.into_iter().map(one).collect();
        }
    }
    Ok((done, why))
}

/// Answers with the state of the cluster of accelerators.
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
        None => error(StatusCode::NOT_FOUND, "no cluster is configured (cluster in [cache])"),
    }
}

/// Lists the active bans, oldest first: `[{"number": 178000000000, "ban": "req.url ~ \"^/news\"", "soft":
/// false, "cores_done": 1}]`. `cores_done` is `null` if the lurker does not search memory for this ban.
async fn bans(State(admin): State<Arc<Admin>>, RawQuery(query): RawQuery) -> Response {
    // A GET with purge parameters is refused, so that a client does not take the list for a successful purge.
    if query.is_some_and(|query| !query.is_empty()) {
        let message = "purges use POST; GET /purge, without parameters, lists the bans";
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
