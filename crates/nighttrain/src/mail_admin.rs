//! The admin server of mail: what it counts, for `nighttrain stat`, Prometheus and a browser.

use std::{sync::Arc, time::Instant};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    middleware,
    response::{Html, IntoResponse, Response},
    routing::get,
};
use engine::meter::{Registry, prometheus};

use crate::{
    admin::{self, Access},
    mail::Started,
    stat::Report,
};

struct Admin {
    mail: Arc<Started>,
    /// The pages' counters too.
    registry: Arc<Registry>,
    started: Instant,
}

/// The pages.
pub(crate) fn pages(access: Access, mail: Arc<Started>, registry: Arc<Registry>) -> Router {
    let admin = Arc::new(Admin { mail, registry, started: Instant::now() });
    let guarded = Router::new()
        .route("/", get(status))
        .route("/metrics", get(metrics))
        .route("/stat", get(stat))
        .layer(middleware::from_fn_with_state(access, admin::check));
    // Health is no secret, and who asks for it seldom has a token.
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .merge(guarded)
        .fallback(|| async {
            (StatusCode::NOT_FOUND, "no such page; there are /, /metrics, /stat, /healthz, /readyz\n")
        })
        .layer(middleware::from_fn(admin::never_stored))
        .with_state(admin)
}

impl Admin {
    fn report(&self) -> Report {
        let uptime_s = self.started.elapsed().as_secs();
        Report::new(&self.registry.snapshot(), self.mail.is_ready(), uptime_s)
    }
}

async fn status(State(admin): State<Arc<Admin>>) -> Html<String> {
    Html(admin::status_page(&admin.report()))
}

async fn metrics(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], prometheus::encode(&admin.registry))
}

async fn stat(State(admin): State<Arc<Admin>>, request: HeaderMap) -> Response {
    let report = admin.report();
    if request.get(header::ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"text/plain")) {
        report.table().into_response()
    } else {
        Json(report).into_response()
    }
}

async fn ready(State(admin): State<Arc<Admin>>) -> Response {
    if admin.mail.is_ready() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n").into_response()
    }
}
