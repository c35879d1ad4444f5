//! One certificate that this process obtains and renews: its names, the contents of its files, and the time
//! of its renewal.

use std::sync::Arc;

use engine::tls::certificates::Certificate;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    Name,
    files::{Files, FilesError, RenewalState},
    http::now_s,
    name::file_name,
    order::{OpenChallenge, check_issued},
    schedule::RenewalSchedule,
};

/// Status of a certificate for operators, without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewalStatus {
    /// Names that the certificate is for.
    pub names: Vec<String>,
    /// Start and end of the validity, in seconds since the UNIX epoch; `None` if there is no certificate yet.
    pub validity: Option<(i64, i64)>,
    /// Time of the planned renewal.
    pub renew_at_s: Option<i64>,
    /// The last error, if no attempt has succeeded since.
    pub error: Option<String>,
    /// Time of the next attempt after a failure.
    pub retry_at_s: Option<i64>,
}

/// A certificate that exists or is still to be obtained.
pub(super) struct Entry {
    pub(super) names: Vec<Name>,
    pub(super) file: String,
    pub(super) certificate: Option<Arc<Certificate>>,
    pub(super) kept: RenewalState,
    pub(super) standing: RenewalSchedule,
    /// True if the files must be merged with the cluster's.
    pub(super) is_to_meet: bool,
    /// Challenges of the pending order. They are answered until the order is over, because a CA may validate
    /// later than we wait for it.
    pub(super) open: Vec<OpenChallenge>,
}

impl Entry {
    pub(super) fn read(names: Vec<Name>, files: &Files) -> Result<Self, FilesError> {
        let file = file_name(&names);
        let (kept, standing) = Default::default();
        let mut entry =
            Self { names, file, certificate: None, kept, standing, is_to_meet: true, open: Vec::new() };
        entry.read_again(files)?;
        Ok(entry)
    }

    /// Loads the entry's files.
    pub(super) fn read_again(&mut self, files: &Files) -> Result<(), FilesError> {
        self.kept = files.kept(&self.file)?;
        // A pending order for names other than the configured ones is dropped.
        let names: Vec<String> = self.names.iter().map(ToString::to_string).collect();
        self.kept.order = self.kept.order.take().filter(|order| order.names == names);
        if let Some(pem) = files.certificate(&self.file)? {
            // An expired certificate is still served: a client that rejects it would not get a better one.
            let pem = String::from_utf8_lossy(&pem).into_owned();
            match Certificate::from_pem(pem.as_bytes()).map_err(|why| why.to_string()).and_then(|read| {
                let within = read.until_s - 1;
                check_issued(pem, &self.names, within.min(now_s())).map_err(|failure| failure.message)
            }) {
                Ok(issued) => self.certificate = Some(issued.certificate),
                Err(why) => {
                    let path = files.certificate_path(&self.file);
                    tracing::warn!("{}: {why}; a new certificate will be ordered", path.display());
                }
            }
        }
        self.refresh_schedule();
        Ok(())
    }

    /// Drops a retry time that was set while the clock was ahead.
    pub(super) fn forget_impossible(&mut self) {
        if self.standing.forget_impossible(now_s()) {
            tracing::warn!(
                "clock was ahead when an attempt for a certificate for {} failed: trying again now",
                self.text()
            );
            self.kept.not_before_s = 0;
        }
    }

    /// Updates the schedule from the certificate and the saved state.
    pub(super) fn refresh_schedule(&mut self) {
        let of_old = (self.standing.validity, self.standing.lot);
        self.standing.validity =
            self.certificate.as_ref().map(|certificate| (certificate.from_s, certificate.until_s));
        self.standing.lot = self.certificate.as_ref().map_or(0.0, |certificate| lot(certificate));
        // Two certificates issued within a second have the same validity, so `lot`, which depends on the
        // certificate's bytes, is compared too.
        if (self.standing.validity, self.standing.lot) != of_old {
            (self.standing.window, self.standing.ask_at_s) = (None, 0);
        }
        self.standing.not_before_s = self.kept.not_before_s;
        self.standing.is_ordered = self.kept.order.is_some();
        self.standing.is_hastened = self.kept.is_hastened;
    }

    pub(super) fn text(&self) -> String {
        self.names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    pub(super) fn said(&self) -> RenewalStatus {
        RenewalStatus {
            names: self.names.iter().map(ToString::to_string).collect(),
            validity: self.standing.validity,
            renew_at_s: self.standing.renew_at_s(),
            error: self.kept.error.clone(),
            retry_at_s: self.kept.error.as_ref().map(|_| self.kept.not_before_s),
        }
    }
}

/// Returns the position within the renewal window, derived from the certificate so that it survives a
/// restart.
pub(super) fn lot(certificate: &Certificate) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a lot")]
    let drawn = (xxh3_64(certificate.own()) >> 32) as f64;
    drawn / f64::from(u32::MAX)
}
