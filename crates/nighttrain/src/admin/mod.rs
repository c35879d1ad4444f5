//! The admin server: what the operator and the monitoring see.
//!
//! ```text
//! nighttrain stat, purge · Prometheus · a browser
//!        │  HTTP, loopback unless a token is set
//!        ▼
//! thread "admin": axum on a runtime of its own ──▶ Accelerator::registry (atomics, read in passing)
//!                                              └─▶ Accelerator::purge (blocks: on a helper thread)
//! ```
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

mod access;
mod connections;
mod page;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Instant,
};

use axum::{
    Json, Router,
    extract::{Query, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use engine::{cores::listener::bind_all, meter::prometheus};
use serde::Deserialize;
use tokio::sync::Semaphore;

pub(crate) use self::access::{Access, Token, read_token};
use crate::{
    accelerator::{Accelerator, PurgeError, Purged},
    stat::Report,
};

/// Purges under way at once; more are answered 503. Each may wait for a core, on a thread of its own.
const PURGES_MAX: usize = 8;

/// Takes the address, so that a port in use is known before anything else starts.
///
/// # Errors
/// What the system says, with the address and what it means.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let mut listeners = bind_all(address, 1)?;
    listeners.pop().ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
}

/// Serves on `listener` until the process ends.
pub(crate) fn start(
    listener: TcpListener,
    access: Access,
    accelerator: Arc<dyn Accelerator>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(PURGES_MAX)
        .build()?;
    std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let served = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => {
                    axum::serve(connections::Bounded::new(listener), router(access, accelerator)).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                tracing::error!("the admin server ended: {error}");
            }
        });
    })?;
    Ok(())
}

struct Admin {
    accelerator: Arc<dyn Accelerator>,
    started: Instant,
    purges: Arc<Semaphore>,
}

fn router(access: Access, accelerator: Arc<dyn Accelerator>) -> Router {
    let admin = Arc::new(Admin {
        accelerator,
        started: Instant::now(),
        purges: Arc::new(Semaphore::new(PURGES_MAX)),
    });
    let guarded = Router::new()
        .route("/", get(status))
        .route("/metrics", get(metrics))
        .route("/stat", get(stat))
        .route("/purge", post(purge))
        .layer(middleware::from_fn_with_state(access, access::check));
    // Health is no secret, and who asks for it seldom has a token.
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .merge(guarded)
        .fallback(|| async {
            (StatusCode::NOT_FOUND, "no such page; there are /, /metrics, /stat, /healthz, /readyz\n")
        })
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
        Report::new(
            &self.accelerator.registry().snapshot(),
            self.accelerator.is_ready(),
            self.started.elapsed().as_secs(),
        )
    }
}

async fn status(State(admin): State<Arc<Admin>>) -> Html<String> {
    Html(page::status(&admin.report()))
}

async fn metrics(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], prometheus::encode(&admin.accelerator.registry()))
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
    if admin.accelerator.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready: it is starting or stopping\n")
    }
}

#[derive(Deserialize)]
struct PurgeQuery {
    url: Option<String>,
}

/// 200 and `{"dropped": true}` if something was there, `false` if nothing was: both leave nothing behind.
async fn purge(State(admin): State<Arc<Admin>>, Query(query): Query<PurgeQuery>) -> Response {
    let answer = |status, body: serde_json::Value| (status, Json(body)).into_response();
    let error = |status, message: &str| answer(status, serde_json::json!({ "error": message }));
    let Some(url) = query.url else {
        return error(StatusCode::BAD_REQUEST, "which one: POST /purge?url=http://www.example.org/path");
    };
    let Ok(permit) = Arc::clone(&admin.purges).try_acquire_owned() else {
        return error(StatusCode::SERVICE_UNAVAILABLE, "too many purges at once; try again");
    };
    let accelerator = Arc::clone(&admin.accelerator);
    let outcome = tokio::task::spawn_blocking(move || {
        let outcome = accelerator.purge(&url);
        drop(permit);
        outcome
    })
    .await;
    match outcome {
        Ok(Ok(purged)) => answer(StatusCode::OK, serde_json::json!({ "dropped": purged == Purged::Dropped })),
        Ok(Err(wrong @ PurgeError::NotAUrl(_))) => error(StatusCode::BAD_REQUEST, &wrong.to_string()),
        Ok(Err(late @ (PurgeError::NoAnswer | PurgeError::NotWritten))) => {
            error(StatusCode::SERVICE_UNAVAILABLE, &late.to_string())
        }
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "the purge broke off; see the log"),
    }
}

#[cfg(test)]
mod tests;
