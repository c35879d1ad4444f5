//! The demonstration site: a small, slow, well-behaved web server for `nighttrain cache --demo`.
//!
//! ```text
//! visitor ──▶ accelerator (pinned loops) ──miss──▶ this site: one thread, 200 ms per answer
//! ```
//! The site runs on a thread and a runtime of its own, so that it shares nothing with the accelerator but the
//! loopback interface: an accelerator speeds it up as much as any other slow server. The program creates all
//! content at the start ([`pages`], [`pictures`]).

mod pages;
mod pictures;

use std::{
    convert::Infallible,
    io,
    net::{SocketAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use futures_util::{StreamExt, stream};

use self::pages::Page;

/// Delay of each answer, like that of a page that queries a database a few times.
pub(crate) const ANSWER_TIME: Duration = Duration::from_millis(200);

/// Pause between two pieces of the streamed page.
const PIECE_PAUSE: Duration = Duration::from_millis(40);

/// Starts the site on a free port of loopback. It ends with the process.
pub(crate) fn start() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("demo-site".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let served = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => axum::serve(listener, router()).await,
                Err(error) => Err(error),
            };
            if let Err(error) = served {
                tracing::error!("demonstration site stopped: {error}");
            }
        });
    })?;
    Ok(address)
}

fn router() -> Router {
    let started = SystemTime::now();
    let mut router = Router::new();
    for page in pages::all() {
        let page = Arc::new(PreparedPage::new(page, started));
        router = router.route(
            page.page.path,
            get(move |headers: HeaderMap| {
                let page = Arc::clone(&page);
                async move { page.answer(&headers) }
            }),
        );
    }
    router
        .route(pages::BOARD, get(board))
        .route(pages::LOG, get(guards_log))
        .route(pages::BERTH, get(berth))
        .with_state(Arc::new(AtomicU32::new(1)))
        .fallback(|| async { (StatusCode::NOT_FOUND, axum::response::Html(pages::not_found())) })
        .layer(middleware::from_fn(slowly))
}

/// Delays every answer, even the short ones: many servers must do work before they can answer "not modified".
async fn slowly(request: Request, next: Next) -> Response {
    tokio::time::sleep(ANSWER_TIME).await;
    next.run(request).await
}

/// A page with its validators.
struct PreparedPage {
    page: Page,
    etag: HeaderValue,
    modified: SystemTime,
    last_modified: HeaderValue,
}

impl PreparedPage {
    fn new(page: Page, modified: SystemTime) -> Self {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        page.body.hash(&mut hasher);
        Self {
            etag: ascii(&format!("\"{:016x}\"", hasher.finish())),
            last_modified: ascii(&httpdate::fmt_http_date(modified)),
            modified,
            page,
        }
    }

    /// Answers 200 or 304; axum leaves the body off for HEAD.
    fn answer(&self, request: &HeaderMap) -> Response {
        // RFC 9110 §15.4.5: a 304 carries the fields that a 200 would have for caching.
        let fields = [
            (header::ETAG, self.etag.clone()),
            (header::LAST_MODIFIED, self.last_modified.clone()),
            (header::CACHE_CONTROL, HeaderValue::from_static(self.page.cache_control)),
        ];
        if self.is_held_by(request) {
            return (StatusCode::NOT_MODIFIED, fields).into_response();
        }
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static(self.page.content_type))];
        (fields, kind, self.page.body.clone()).into_response()
    }

    /// Returns whether the client's copy is current. If If-None-Match is present, it alone decides (RFC 9110
    /// §13.2.2).
    fn is_held_by(&self, request: &HeaderMap) -> bool {
        let text = |name| request.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        if let Some(tags) = text(header::IF_NONE_MATCH) {
            let ours = self.etag.to_str().unwrap_or_default();
            return tags
                .split(',')
                .map(str::trim)
                .any(|tag| tag == "*" || tag.trim_start_matches("W/") == ours);
        }
        text(header::IF_MODIFIED_SINCE).and_then(|date| httpdate::parse_http_date(date).ok()).is_some_and(
            |held| {
                // An HTTP date has no fraction of a second; `modified` does.
                self.modified.duration_since(held).is_ok_and(|later| later < Duration::from_secs(1))
                    || held > self.modified
            },
        )
    }
}

fn ascii(text: &str) -> HeaderValue {
    // The text consists of digits, letters and fixed punctuation, which are always a valid header value.
    HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Answers with a page that changes at every request and may be shared for ten seconds.
async fn board() -> Response {
    let now = SystemTime::now();
    let fields = [
        (header::CONTENT_TYPE, HeaderValue::from_static(pages::HTML)),
        (header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=10")),
        (header::LAST_MODIFIED, ascii(&httpdate::fmt_http_date(now))),
    ];
    (fields, pages::board(&httpdate::fmt_http_date(now))).into_response()
}

/// Streams a page in pieces without a length, so that it is chunked on the wire.
async fn guards_log() -> Response {
    let pieces = stream::iter(pages::guards_log()).then(|piece| async {
        tokio::time::sleep(PIECE_PAUSE).await;
        Ok::<_, Infallible>(Bytes::from(piece))
    });
    let fields = [(header::CONTENT_TYPE, pages::HTML), (header::CACHE_CONTROL, "public, max-age=60")];
    (fields, Body::from_stream(pieces)).into_response()
}

/// Answers with a visitor's own page: the first visit assigns a berth and sets a cookie that identifies it
/// later.
async fn berth(State(berths): State<Arc<AtomicU32>>, request: HeaderMap) -> Response {
    let held = request
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .find_map(|cookie| cookie.trim().strip_prefix("berth=")?.parse::<u32>().ok());
    let fields = [(header::CONTENT_TYPE, pages::HTML), (header::CACHE_CONTROL, "private, no-store")];
    match held {
        Some(berth) => (fields, pages::berth(berth)).into_response(),
        None => {
            let berth = berths.fetch_add(1, Ordering::Relaxed);
            let cookie = ascii(&format!("berth={berth}; Path=/; HttpOnly; SameSite=Lax"));
            (fields, [(header::SET_COOKIE, cookie)], pages::berth(berth)).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn ask(address: SocketAddr, path: &str, fields: &[(&str, &str)]) -> axum::http::Response<ureq::Body> {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).max_redirects(0).build().into();
        let mut request = agent.get(format!("http://{address}{path}"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.call().expect("an answer")
    }

    fn field(answer: &axum::http::Response<ureq::Body>, name: &str) -> String {
        answer.headers().get(name).map(|value| value.to_str().expect("text").to_owned()).unwrap_or_default()
    }

    /// Every link and picture of the site exists, and every answer that may be stored has a validator.
    #[test]
    fn the_site_is_whole() {
        let address = start().expect("a free port");
        let mut seen = BTreeSet::new();
        let mut ahead = vec!["/".to_owned()];
        while let Some(path) = ahead.pop() {
            if !seen.insert(path.clone()) {
                continue;
            }
            let mut answer = ask(address, &path, &[]);
            assert_eq!(answer.status(), 200, "{path}");
            let kind = field(&answer, "content-type");
            assert!(!kind.is_empty() && !field(&answer, "cache-control").is_empty(), "{path}");
            let body = answer.body_mut().read_to_vec().expect("a body");
            assert!(!body.is_empty(), "{path}");
            if kind.starts_with("text/html") {
                let text = String::from_utf8(body).expect("text");
                for attribute in ["href=\"/", "src=\"/"] {
                    for rest in text.split(attribute).skip(1) {
                        ahead.push(format!("/{}", rest.split('"').next().expect("a closing quote")));
                    }
                }
            }
        }
        assert!(seen.len() >= 10, "{seen:?}");
        for path in [pages::BOARD, pages::LOG, pages::BERTH] {
            assert!(seen.contains(path), "{path} is linked from nowhere");
        }
        assert_eq!(ask(address, "/nowhere", &[]).status(), 404);
    }

    #[test]
    fn validators_work() {
        let address = start().expect("a free port");
        let whole = ask(address, "/", &[]);
        let (etag, modified) = (field(&whole, "etag"), field(&whole, "last-modified"));
        for (name, value, status) in [
            ("if-none-match", etag.as_str(), 304),
            ("if-none-match", "\"other\", *", 304),
            ("if-none-match", "\"other\"", 200),
            ("if-modified-since", modified.as_str(), 304),
            ("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT", 200),
            ("if-modified-since", "yesterday", 200),
        ] {
            let answer = ask(address, "/", &[(name, value)]);
            assert_eq!(answer.status(), status, "{name}: {value}");
            assert_eq!(field(&answer, "etag"), etag);
        }
        let both = ask(address, "/", &[("if-none-match", "\"other\""), ("if-modified-since", &modified)]);
        assert_eq!(both.status(), 200);
    }

    #[test]
    fn one_page_is_chunked() {
        let address = start().expect("a free port");
        let answer = ask(address, pages::LOG, &[]);
        assert_eq!(field(&answer, "transfer-encoding"), "chunked");
        assert_eq!(field(&answer, "content-length"), "");
    }

    #[test]
    fn each_visitor_has_a_berth_and_keeps_it() {
        let address = start().expect("a free port");
        let cookie =
            |answer: &_| field(answer, "set-cookie").split(';').next().unwrap_or_default().to_owned();
        let first = ask(address, pages::BERTH, &[]);
        let second = ask(address, pages::BERTH, &[]);
        assert!(field(&first, "cache-control").contains("private"));
        assert_ne!(cookie(&first), cookie(&second));
        let mut again = ask(address, pages::BERTH, &[("cookie", &format!("a=b; {}", cookie(&second)))]);
        assert_eq!(cookie(&again), "");
        let berth = cookie(&second).trim_start_matches("berth=").to_owned();
        assert!(again.body_mut().read_to_string().expect("text").contains(&format!("berth {berth}<")));
    }
}
