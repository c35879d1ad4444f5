//! `nighttrain check`: finds everything that would make a start fail or log a warning.
//!
//! Files that a configuration names are read as at startup; nothing is written or bound, and no server is
//! queried.

use std::{
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use cache::{Certificate, Origin, memory_limit};
use engine::tls::CertificateSource;
use mail::config::Store;

use crate::{
    admin::{Access, read_token},
    failure::{Failure, Fault},
    machine::{MemorySum, ServerSet},
    services::{accelerator::check_authorities, certificates::Certificates},
    settings::{
        Settings, file,
        nats_file::{self, join_nats_config},
        precedence::{self, ActiveSettings},
        upgrade,
    },
};

/// Checks a configuration file of Nighttrain and returns a report.
///
/// # Errors
/// Returns every fault in the file, and in the files that it names.
pub(crate) fn check(path: &Path) -> Result<String, Failure> {
    let mut in_force =
        precedence::in_force(Some(path), |_| None, &Vec::new()).map_err(Failure::Configuration)?;
    join_nats_config(&mut in_force).map_err(Failure::Configuration)?;
    let text = file::read(path).map_err(|fault| Failure::Configuration(vec![fault]))?;
    let (values, ..) = file::values(&path.display().to_string(), &text);
    let remarks = upgrade::remarks(&values, &in_force.settings);
    let lines = std::iter::once(format!("{} is right.", path.display()))
        .chain(remarks.iter().map(ToString::to_string))
        .collect();
    append_memory_sum(lines, in_force, ServerSet::ALL)
}

/// Checks a configuration file of nats-server (`*.conf`) and returns a report.
///
/// # Errors
/// Returns every fault in the file, and in the files that it names.
pub(crate) fn check_nats(path: &Path) -> Result<String, Failure> {
    let (lines, in_force) = nats_file::check(path).map_err(Failure::Configuration)?;
    append_memory_sum(lines, in_force, ServerSet::FEED)
}

/// Checks everything that these servers read at startup. Adds the warnings and the memory sum to the lines.
fn append_memory_sum(
    mut lines: Vec<String>,
    ActiveSettings { settings, .. }: ActiveSettings,
    servers: ServerSet,
) -> Result<String, Failure> {
    let mut warnings = Vec::new();
    let faults = faults_of(&settings, servers, &mut warnings);
    if !faults.is_empty() {
        return Err(Failure::Configuration(faults));
    }
    let sum = MemorySum::of(&settings, servers);
    if let Some(limit_bytes) = settings.cache.memory_limit_bytes.or_else(memory_limit) {
        match sum.within(limit_bytes) {
            Ok(warning) => warnings.extend(warning),
            // Only a warning: the file may be meant for one server alone, or for another machine.
            Err(error) => warnings.push(format!("with all three servers: {error}")),
        }
    }
    lines.extend(warnings.into_iter().map(|warning| format!("warning: {warning}")));
    let command = if servers.mail { "nighttrain serve" } else { "nighttrain feed" };
    lines.push(format!("`{command}` with it: {}", sum.text()));
    Ok(lines.join("\n"))
}

fn faults_of(settings: &Settings, servers: ServerSet, warnings: &mut Vec<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    check_admin(settings, &mut faults);
    check_places(settings, servers, &mut faults);
    let certificates = match Certificates::of(settings) {
        Ok(certificates) => certificates,
        Err(fault) => {
            faults.push(fault);
            None
        }
    };
    for said in certificates.iter().flat_map(|certificates| certificates.statuses()) {
        warnings.extend(said.until_s.and_then(|until_s| expired(&said.names.join(", "), until_s)));
    }
    let shared = certificates.as_ref().map(|certificates| &certificates.tls.certificates);
    if settings.admin_tls && shared.is_none() {
        faults.push(fault("admin-tls", "needs certificates: set tls-cert and tls-key, or acme-directory"));
    }
    if servers.cache {
        // `serve` has a default origin if none is configured.
        let origin = settings.origin.clone().unwrap_or_else(|| Origin::http("localhost", 80));
        match settings.accelerator(Some(origin)) {
            Ok(config) => faults.extend(check_authorities(&config).err()),
            Err(Failure::Configuration(more)) => faults.extend(more),
            Err(other) => faults.push(other.into_fault()),
        }
    }
    match settings.feed.config(shared) {
        Ok(config) => check_shown("[feed] tls-cert", config.tls.map(|tls| tls.shown), &mut faults, warnings),
        Err(fault) => faults.push(fault),
    }
    if servers.mail {
        let mut mail = settings.mail.clone();
        // The default store is in the state directory, which a start creates.
        mail.store.get_or_insert(Store::Anonymous);
        match mail.config(None, shared) {
            Ok(config) => check_shown("[mail] tls-cert", config.tls, &mut faults, warnings),
            Err(fault) => faults.push(fault),
        }
    }
    // Several servers may report the same fault; duplicates are removed.
    let mut told: Vec<Fault> = Vec::new();
    for fault in faults {
        if !told.contains(&fault) {
            told.push(fault);
        }
    }
    told
}

fn check_admin(settings: &Settings, faults: &mut Vec<Fault>) {
    const KEY: &str = "admin-token-file";
    match &settings.admin_token_file {
        Some(path) => faults.extend(read_token(KEY, path).err().map(|message| fault(KEY, &message))),
        None => faults
            .extend(Access::for_address(settings.admin, None).err().map(|message| fault("admin", &message))),
    }
}

/// Checks that the directories exist in which a start would create files.
fn check_places(settings: &Settings, servers: ServerSet, faults: &mut Vec<Fault>) {
    let of_mail = match &settings.mail.store {
        Some(Store::File(path)) if servers.mail => Some(path),
        _ => None,
    };
    for (key, path) in [
        ("log-file", settings.log_file.as_ref()),
        ("pid-file", settings.pid_file.as_ref()),
        ("access-log", settings.log_rules.access_log.as_ref()),
        ("store", settings.cache.store.as_ref().filter(|_| servers.cache)),
        ("store", of_mail),
    ] {
        let Some(path) = path else { continue };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if path.is_dir() {
            faults.push(fault(key, &format!("{} is a directory; a file is needed", path.display())));
        } else if let Some(directory) = directory
            && !directory.is_dir()
        {
            let message = format!("{}: the directory {} does not exist", path.display(), directory.display());
            faults.push(fault(key, &message));
        }
    }
}

/// Reads the certificate that a server would present over TLS.
fn check_shown(
    place: &str,
    shown: Option<CertificateSource>,
    faults: &mut Vec<Fault>,
    warnings: &mut Vec<String>,
) {
    let Some(CertificateSource::Pair(pair)) = shown else { return };
    match Certificate::read(&pair) {
        Ok(certificate) => {
            warnings.extend(expired(&pair.certificates.display().to_string(), certificate.until_s));
        }
        Err(error) => faults.push(fault(place, &error.to_string())),
    }
}

/// Returns a warning if the certificate has expired; clients would refuse it.
fn expired(what: &str, until_s: i64) -> Option<String> {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
    (until_s < now_s).then(|| {
        let until = UNIX_EPOCH + std::time::Duration::from_secs(until_s.max(0).cast_unsigned());
        format!("the certificate {what} expired at {}; clients refuse it", httpdate::fmt_http_date(until))
    })
}

fn fault(place: &str, message: &str) -> Fault {
    Fault { place: place.to_owned(), message: message.to_owned() }
}
