//! The accelerator's certificates while it runs: read again when they are told to be, and when their files change; a bad
//! one is refused, and the one before it goes on.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::PoisonError,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use cache::{Certificate, Pair, Server};

use crate::{failure::Fault, shell::Running};

#[expect(clippy::disallowed_types, reason = "taken once in ten seconds")]
type Lock<T> = std::sync::Mutex<T>;

/// The files, and what they were when they were read.
pub(crate) struct Certificates {
    seen: Lock<Seen>,
}

struct Seen {
    pairs: Vec<Pair>,
    stamps: Vec<Stamp>,
}

/// What of a file changes with its content.
type Stamp = Option<(SystemTime, u64)>;

impl Certificates {
    /// Those that the server was started with.
    pub(crate) fn new(pairs: Vec<Pair>) -> Self {
        let stamps = stamps(&pairs);
        Self { seen: Lock::new(Seen { pairs, stamps }) }
    }

    /// Reads all of them.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub(crate) fn read(pairs: &[Pair]) -> Result<Vec<Certificate>, Fault> {
        let read = pairs.iter().map(|pair| {
            let certificate = Certificate::read(pair)
                .map_err(|error| Fault { place: "tls-cert".to_owned(), message: error.to_string() })?;
            warn_of_dates(&pair.certificates, &certificate);
            Ok(certificate)
        });
        read.collect()
    }

    /// Has the server show what was read of these files.
    pub(crate) fn show(&self, pairs: Vec<Pair>, read: Vec<Certificate>, running: &Running<Server>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = Seen { stamps: stamps(&pairs), pairs };
        running.ask(|server| server.show_certificates(read));
    }

    /// Reads them again if one has changed; what a person is told of that.
    pub(crate) fn follow(&self, running: &Running<Server>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&seen.pairs);
        if stamps == seen.stamps {
            return;
        }
        // A bad file is told once, until it changes again.
        seen.stamps = stamps;
        match Self::read(&seen.pairs) {
            Ok(read) => {
                tracing::info!(
                    certificates = read.len(),
                    "the certificates have changed, and were read again"
                );
                running.ask(|server| server.show_certificates(read));
            }
            Err(fault) => {
                tracing::error!(
                    "a certificate has changed and cannot be used; those before go on: {}",
                    fault.message
                );
            }
        }
    }
}

fn stamps(pairs: &[Pair]) -> Vec<Stamp> {
    let files = |pair: &Pair| -> Vec<PathBuf> {
        [Some(&pair.certificates), Some(&pair.key), pair.ocsp.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    };
    pairs
        .iter()
        .flat_map(files)
        .map(|file| fs::metadata(file).and_then(|of| Ok((of.modified()?, of.len()))).ok())
        .collect()
}

/// Clients refuse what is not valid now; whoever runs the server should hear of it before they do.
fn warn_of_dates(file: &Path, certificate: &Certificate) {
    const SOON: Duration = Duration::from_secs(7 * 24 * 60 * 60);
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
    let date = |unix_s: i64| {
        let at = UNIX_EPOCH + Duration::from_secs(u64::try_from(unix_s).unwrap_or(0));
        httpdate::fmt_http_date(at)
    };
    let (from_s, until_s) = (certificate.from_s, certificate.until_s);
    let file = file.display();
    if until_s < now_s {
        tracing::error!("{file}: the certificate has expired at {}; clients refuse it", date(until_s));
    } else if from_s > now_s {
        tracing::error!("{file}: the certificate is not valid before {}; clients refuse it", date(from_s));
    } else if until_s - now_s < SOON.as_secs().cast_signed() {
        tracing::warn!("{file}: the certificate expires at {}", date(until_s));
    }
}
