//! Blocking HTTP client for requests to the CA. Nothing else runs on the thread that uses it.

use std::{
    fmt,
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU16, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use engine::tls::{TlsError, client::trusted, provider};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use ureq::{
    Agent,
    http::{Request, Response},
    tls::{Certificate, RootCerts, TlsConfig, TlsProvider},
};

/// Time limit for a request and its response.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Size limit of a response; certificate chains need about 1 % of this size.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of redirects that are followed, since a CA may have moved its directory.
const REDIRECTS_MAX: u32 = 3;

/// HTTP client for one CA.
#[derive(Clone)]
pub(crate) struct Http {
    agent: Agent,
    heard: Arc<LastAnswer>,
}

/// Status and retry time of the last response.
#[derive(Debug, Default)]
pub(crate) struct LastAnswer {
    status: AtomicU16,
    /// Seconds since the UNIX epoch; 0 if the response names no time.
    retry_at_s: AtomicI64,
}

/// Error for a request that received no response.
#[derive(Debug)]
pub(crate) struct TransportError(ureq::Error);

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for TransportError {}

impl LastAnswer {
    /// Returns the status of the last response.
    pub(crate) fn status(&self) -> u16 {
        self.status.load(Ordering::Relaxed)
    }

    /// Returns the time given in the last response's Retry-After, if any.
    pub(crate) fn retry_at_s(&self) -> Option<i64> {
        Some(self.retry_at_s.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }

    fn note(&self, answer: &Response<ureq::Body>) {
        let said = answer.headers().get("retry-after").and_then(|said| said.to_str().ok()).map(str::trim);
        let at = said.and_then(|said| match said.parse::<i64>() {
            Ok(seconds) => now_s().checked_add(seconds),
            Err(_) => httpdate::parse_http_date(said).ok().map(unix_s),
        });
        self.status.store(answer.status().as_u16(), Ordering::Relaxed);
        self.retry_at_s.store(at.unwrap_or(0), Ordering::Relaxed);
    }

    fn forget(&self) {
        self.status.store(0, Ordering::Relaxed);
        self.retry_at_s.store(0, Ordering::Relaxed);
    }
}

/// Converts a time to seconds since the UNIX epoch.
pub(crate) fn unix_s(at: SystemTime) -> i64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

/// Returns the current time by the wall clock, against which the validity of certificates is checked.
pub(crate) fn now_s() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "the thread is not an event loop")]
    unix_s(SystemTime::now())
}

impl Http {
    /// Creates a client that trusts the given CA certificates (PEM), or the system's, for connections to the
    /// ACME server.
    ///
    /// # Errors
    /// Returns a [`TlsError`] if the file cannot be used, or the system has no trusted certificates.
    pub(crate) fn new(authorities: Option<&Path>, is_here: bool) -> Result<Self, TlsError> {
        let roots: Vec<_> =
            trusted(authorities)?.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(provider())
            .root_certs(RootCerts::new_with_certs(&roots))
            .build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(REDIRECTS_MAX)
            .timeout_global(Some(ANSWER_TIME_MAX))
            .tls_config(tls);
        // A server on this machine is reached without a web proxy.
        let config = if is_here { config.proxy(None) } else { config };
        Ok(Self { agent: config.build().into(), heard: Arc::default() })
    }

    /// Returns the status and retry time of the last response.
    pub(crate) fn heard(&self) -> &LastAnswer {
        &self.heard
    }

    fn ask(&self, request: Request<Vec<u8>>) -> Result<BytesResponse, Error> {
        self.heard.forget();
        let answer =
            self.agent.run(request).map_err(|error| Error::Other(Box::new(TransportError(error))))?;
        self.heard.note(&answer);
        let (parts, mut body) = answer.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let body = body.map_err(|error| Error::Other(Box::new(TransportError(error))))?;
        Ok(BytesResponse { parts, body: Box::new(Bytes::from(body)) })
    }
}

type AnswerFuture = Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>>;

impl HttpClient for Http {
    fn request(&self, request: Request<BodyWrapper<Bytes>>) -> AnswerFuture {
        let http = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            // The ACME library gives access to the bytes of a body only in this way.
            let body =
                BytesResponse::from(Response::new(body)).body.into_bytes().await.map_err(Error::Other)?;
            http.ask(Request::from_parts(parts, body.to_vec()))
        })
    }
}
