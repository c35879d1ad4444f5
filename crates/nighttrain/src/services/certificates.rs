//! The certificates of the process: one table for all its servers. Certificates from files are read again on
//! SIGHUP and when their files change; a bad file is refused, and the previous certificate stays in use.
//! Other certificates are obtained from an authority (ACME).

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use acme::{Name, Share};
use cache::{
    Certificate, Pair,
    config::{HostPattern, Tls},
};
use engine::{
    cold_mutex::ColdMutex,
    meter::Source,
    tls::{certificates::Certificates as Table, challenges::Challenges},
};
use serde::Serialize;

use crate::{
    failure::{Failure, Fault},
    settings::{
        SETTINGS, Settings,
        accelerator::{TlsListener, tls},
    },
};

/// The certificate table, the files from which it is filled, and the ACME client that obtains all other
/// certificates.
pub(crate) struct Certificates {
    /// TLS listener and certificate table of the servers.
    pub(crate) tls: Tls,
    /// Answers to the authority's challenges; `None` if no certificate is obtained.
    pub(crate) challenges: Option<Arc<Challenges>>,
    seen: ColdMutex<PairFiles>,
    to_obtain: Option<acme::Config>,
    client: OnceLock<acme::Client>,
}

/// Certificate files, with their size and modification time when they were last read.
struct PairFiles {
    pairs: Vec<Pair>,
    stamps: Vec<FileStamp>,
}

/// Modification time and size of a file, which change with its content.
type FileStamp = Option<(SystemTime, u64)>;

/// Status of a certificate for the operator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct CertificateStatus {
    /// Names that the certificate covers.
    pub(crate) names: Vec<String>,
    /// `file`, or `acme` for a certificate that was or will be obtained.
    pub(crate) from: &'static str,
    /// End of validity in seconds since the UNIX epoch; `None` while there is no certificate yet.
    pub(crate) until_s: Option<i64>,
    /// Time of the next renewal.
    pub(crate) renewal_s: Option<i64>,
    /// Last error.
    pub(crate) error: Option<String>,
    /// Time of the next attempt.
    pub(crate) retry_s: Option<i64>,
}

impl Certificates {
    /// Loads the certificates that the settings name; `None` without TLS.
    ///
    /// # Errors
    /// Returns a `Fault` that describes what is wrong with the settings or the files.
    pub(crate) fn of(settings: &Settings) -> Result<Option<Arc<Self>>, Fault> {
        let Some(TlsListener { listen, pairs }) = tls(settings)? else { return Ok(None) };
        let read: Vec<_> = Self::read(&pairs)?.into_iter().map(Arc::new).collect();
        let hosts = match settings.acme.directory {
            Some(_) => hosts_without(settings, &read),
            None => Vec::new(),
        };
        let to_obtain = settings.acme.config(settings.cache.state.as_ref(), hosts)?;
        Ok(Some(Arc::new(Self {
            tls: Tls { listen, certificates: Arc::new(Table::new(&read)) },
            challenges: to_obtain.as_ref().map(|_| Arc::default()),
            seen: ColdMutex::new(PairFiles { stamps: stamps(&pairs), pairs }),
            to_obtain,
            client: OnceLock::new(),
        })))
    }

    /// Starts to obtain certificates if any are needed; with `share`, together with other accelerators. The
    /// answers to an authority's challenges must be served by now.
    ///
    /// # Errors
    /// Returns `Failure::Failed` if the state directory cannot be used, or the authority's CA is not trusted.
    pub(crate) fn begin(&self, share: Option<Arc<dyn Share>>) -> Result<(), Failure> {
        if let Some((config, challenges)) = self.to_obtain.clone().zip(self.challenges.clone()) {
            let begun = acme::Client::start(config, Arc::clone(&self.tls.certificates), challenges, share);
            let client =
                begun.map_err(|error| Failure::Failed(format!("cannot obtain certificates: {error}")))?;
            // The client is started only once.
            let _ = self.client.set(client);
        }
        Ok(())
    }

    /// Returns whether any certificates are obtained from an authority (ACME).
    pub(crate) fn are_obtained(&self) -> bool {
        self.to_obtain.is_some()
    }

    /// Returns the counters of obtained certificates.
    pub(crate) fn counters(&self) -> Option<Arc<dyn Source>> {
        self.client.get().map(acme::Client::counters)
    }

    /// Returns the startup line that lists the names for which certificates will be obtained.
    pub(crate) fn announcement(&self) -> Option<String> {
        let config = self.to_obtain.as_ref()?;
        let names: Vec<_> = config.names.iter().take(3).map(ToString::to_string).collect();
        let more = match config.names.len() {
            0..=3 => String::new(),
            many => format!(" and {} more", many - 3),
        };
        Some(format!("cache: obtains certificates for {}{more} of {}\n", names.join(", "), config.directory))
    }

    /// Returns the status of each certificate.
    pub(crate) fn statuses(&self) -> Vec<CertificateStatus> {
        let of_file = |certificate: Arc<Certificate>| CertificateStatus {
            names: names_of(&certificate),
            from: "file",
            until_s: Some(certificate.until_s),
            renewal_s: None,
            error: None,
            retry_s: None,
        };
        let obtained = |said: acme::RenewalStatus| CertificateStatus {
            names: said.names,
            from: "acme",
            until_s: said.validity.map(|(_, until)| until),
            renewal_s: said.renew_at_s,
            error: said.error,
            retry_s: said.retry_at_s,
        };
        let of_files = self.tls.certificates.of_files().into_iter().map(of_file);
        of_files
            .chain(self.client.get().map(acme::Client::said).unwrap_or_default().into_iter().map(obtained))
            .collect()
    }

    /// Reads all certificate files.
    ///
    /// # Errors
    /// Returns a `Fault` that names the unusable file and the reason.
    fn read(pairs: &[Pair]) -> Result<Vec<Certificate>, Fault> {
        let read = pairs.iter().map(|pair| {
            let certificate = Certificate::read(pair)
                .map_err(|error| Fault { place: "tls-cert".to_owned(), message: error.to_string() })?;
            warn_of_dates(&pair.certificates, &certificate);
            Ok(certificate)
        });
        read.collect()
    }

    /// Reads the files that a configuration names. The returned closure puts them into the table.
    ///
    /// # Errors
    /// Returns a `Fault` that names the unusable file and the reason.
    pub(crate) fn check(&self, settings: &Settings) -> Result<impl FnOnce() -> String + use<'_>, Fault> {
        let pairs = tls(settings)?.map(|found| found.pairs).unwrap_or_default();
        let read: Vec<_> = Self::read(&pairs)?.into_iter().map(Arc::new).collect();
        let obtain = self.client.get().map(|client| {
            let names = settings.acme.domains.iter().cloned().chain(hosts_without(settings, &read));
            let fault = |error: acme::StartError| Fault {
                place: "acme-domain".to_owned(),
                message: error.to_string(),
            };
            client.obtain_for(names.collect()).map_err(fault)
        });
        let obtain = obtain.transpose()?;
        Ok(move || {
            let mut seen = self.seen.lock();
            *seen = PairFiles { stamps: stamps(&pairs), pairs };
            self.tls.certificates.replace(&read);
            if let Some(obtain) = obtain {
                obtain();
            }
            if let Some(client) = self.client.get() {
                client.look_again();
            }
            match self.tls.certificates.all().len() {
                1 => "1 certificate".to_owned(),
                many => format!("{many} certificates"),
            }
        })
    }

    /// Reads the files again if one has changed, and logs the outcome.
    pub(crate) fn follow(&self) {
        let mut seen = self.seen.lock();
        let stamps = stamps(&seen.pairs);
        if stamps == seen.stamps {
            return;
        }
        // A bad file is reported once, until it changes again.
        seen.stamps = stamps;
        match Self::read(&seen.pairs) {
            Ok(read) => {
                tracing::info!(certificates = read.len(), "certificates reloaded");
                let read: Vec<_> = read.into_iter().map(Arc::new).collect();
                self.tls.certificates.replace(&read);
            }
            Err(fault) => {
                tracing::error!(
                    "cannot load the changed certificates, so the previous ones stay in use: {}",
                    fault.message
                );
            }
        }
    }
}

fn names_of(certificate: &Certificate) -> Vec<String> {
    let addresses = certificate.addresses().map(|address| address.to_string());
    certificate.names().map(str::to_owned).chain(addresses).collect()
}

/// Returns the hosts of sites that have no `tls-cert` of their own and that no certificate file covers.
fn hosts_without(settings: &Settings, of_files: &[Arc<Certificate>]) -> Vec<Name> {
    let mut names = Vec::new();
    for site in &settings.sites {
        if site.own.iter().any(|(setting, _)| SETTINGS[*setting].key == "tls-cert") {
            continue;
        }
        for host in &site.hosts {
            let text = host.to_string();
            let is_covered = match host {
                HostPattern::Exactly(host) => of_files.iter().any(|certificate| certificate.covers(host)),
                HostPattern::Below(_) => {
                    of_files.iter().any(|certificate| certificate.names().any(|name| name == text))
                }
            };
            match text.parse() {
                _ if is_covered => {}
                Ok(name) => names.push(name),
                // Only a warning: perhaps no client connects to this host over TLS.
                Err(wrong) => {
                    tracing::warn!("cannot obtain a certificate for the site at {}: {wrong}", site.place)
                }
            }
        }
    }
    names
}

fn stamps(pairs: &[Pair]) -> Vec<FileStamp> {
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

/// Warns of a certificate that is expired, not yet valid, or about to expire, before clients refuse it.
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
