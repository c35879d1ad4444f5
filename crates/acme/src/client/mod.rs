//! The renewal thread: it checks each certificate, does what is due, and sleeps until the next action is due.

mod entry;
mod start_error;
mod together;

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

use engine::{
    cold_mutex::ColdMutex,
    meter::{Family, Point, Source, Unit, Value},
    tls::{certificates::Certificates, challenges::Challenges},
};
use instant_acme::{Account, CertificateIdentifier, Error, Key};
use rcgen::KeyPair;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use self::together::ASK_OTHERS_AGAIN;
use crate::{
    Challenge, Config, Name,
    files::{Files, FilesError, KeptAccount, RenewalState},
    http::{Http, now_s, unix_s},
    name::grouped,
    order::{Failure, IssuedCertificate, Orders},
    schedule::{ASK_AGAIN_S, ASK_EVERY_S, Kind, OrderRate, RenewalAction, wait_s},
    share::{AuthorityShare, Share, ShareError},
};

use entry::Entry;
pub use entry::RenewalStatus;
pub use start_error::StartError;
use start_error::bounded;

/// Longest sleep of the thread, so that a change of the wall clock is noticed.
const SLEEP_MAX: Duration = Duration::from_secs(60 * 60);

/// Obtains and renews certificates on a separate thread. Dropping it stops the thread after the attempt in
/// progress.
#[derive(Debug)]
pub struct Client {
    shared: Arc<ClientState>,
    wake: SyncSender<()>,
}

/// State shared between the client and its thread.
#[derive(Debug, Default)]
struct ClientState {
    /// Status of each certificate, as an operator sees it.
    said: ColdMutex<Vec<RenewalStatus>>,
    /// New list of names, if it has changed.
    wanted: ColdMutex<Option<Vec<Name>>>,
    /// True if an operator has requested an immediate check.
    is_asked_to_look: AtomicBool,
    /// True once the client is dropped.
    is_over: AtomicBool,
    orders: AtomicU64,
    issued: AtomicU64,
    failures: AtomicU64,
}

impl Client {
    /// Installs the certificates on disk, and starts to obtain the missing ones; with `share`, in
    /// coordination with other instances.
    ///
    /// # Errors
    /// Returns a [`StartError`]. An unreachable CA is not an error: the attempt is repeated.
    pub fn start(
        config: Config,
        certificates: Arc<Certificates>,
        challenges: Arc<Challenges>,
        share: Option<Arc<dyn Share>>,
    ) -> Result<Self, StartError> {
        bounded(&config.names)?;
        let mut files = Files::open(&config.state, &config.directory.url)?;
        let http = Http::new(config.authorities.as_deref(), config.directory.is_here)?;
        let entries = grouped(&config.names)
            .into_iter()
            .map(|names| Entry::read(names, &files))
            .collect::<Result<Vec<_>, _>>()?;
        let shared = Arc::new(ClientState::default());
        let (wake, woken) = sync_channel(1);
        let begin = |share| AuthorityShare::begin(share, &files.authority(), &challenges, wake.clone());
        let sharing = share.map(begin).transpose()?;
        if let Some(sharing) = &sharing {
            files.share(sharing.clone());
        }
        let mut keeper = RenewalTask {
            config,
            files,
            http,
            certificates,
            challenges,
            entries,
            sharing,
            turn: None,
            has_met_account: false,
            waits: None,
            rounds_failed: 0,
            account: None,
            pace: OrderRate::default(),
            shared: Arc::clone(&shared),
        };
        keeper.show();
        keeper.publish_statuses();
        let begun = std::thread::Builder::new().name("acme".to_owned()).spawn(move || keeper.keep(&woken));
        begun.map_err(StartError::Thread)?;
        Ok(Self { shared, wake })
    }

    /// Returns the status of each certificate.
    #[must_use]
    pub fn said(&self) -> Vec<RenewalStatus> {
        self.shared.said.lock().clone()
    }

    /// Changes the names for which certificates are obtained. Certificates for other names are no longer
    /// served, but their files are kept. The change takes effect when the returned closure is called.
    ///
    /// # Errors
    /// [`StartError::TooMany`] if there are too many names; the previous names then stay in force.
    pub fn obtain_for(&self, names: Vec<Name>) -> Result<impl FnOnce() + use<'_>, StartError> {
        bounded(&names)?;
        Ok(|| {
            *self.shared.wanted.lock() = Some(names);
            // A full channel is no error: a single pending wake-up is enough.
            let _ = self.wake.try_send(());
        })
    }

    /// Asks the CA again when to renew, and retries failed orders at once, unless the CA itself has set a
    /// time.
    pub fn look_again(&self) {
        self.shared.is_asked_to_look.store(true, Ordering::Release);
        // A full channel is no error: a single pending wake-up is enough.
        let _ = self.wake.try_send(());
    }

    /// Returns the source of the counters.
    #[must_use]
    pub fn counters(&self) -> Arc<dyn Source> {
        Arc::clone(&self.shared) as Arc<dyn Source>
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // A full channel is no error: a single pending wake-up is enough.
        let _ = self.wake.try_send(());
    }
}

impl Source for ClientState {
    fn collect(&self, families: &mut Vec<Family>) {
        for (name, help, number) in [
            ("acme_orders", "Certificates ordered from the CA.", &self.orders),
            ("acme_certificates_issued", "Certificates issued by the CA.", &self.issued),
            ("acme_failures", "Attempts to obtain a certificate that failed.", &self.failures),
        ] {
            let value = Value::Counter(number.load(Ordering::Relaxed));
            let points = vec![Point { labels: Vec::new(), value }];
            families.push(Family { name, help, unit: Unit::None, points });
        }
    }
}

/// State of the renewal thread.
struct RenewalTask {
    config: Config,
    files: Files,
    http: Http,
    certificates: Arc<Certificates>,
    challenges: Arc<Challenges>,
    entries: Vec<Entry>,
    /// Coordination with other instances, if there are any.
    sharing: Option<AuthorityShare>,
    /// The lease for ordering certificates, while this instance holds it.
    turn: Option<Box<dyn Any + Send>>,
    /// True if the account's files have been merged with the cluster's since they last changed and since this
    /// instance took its present lease.
    has_met_account: bool,
    /// Reason why a due order was not made in this round.
    waits: Option<ShareError>,
    /// Number of rounds in a row that failed for a reason other than another instance's lease.
    rounds_failed: u32,
    account: Option<Account>,
    pace: OrderRate,
    shared: Arc<ClientState>,
}

impl RenewalTask {
    /// Runs until the client is dropped.
    fn keep(&mut self, wake: &Receiver<()>) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!(%error, "cannot obtain certificates"),
        };
        loop {
            let next_s = runtime.block_on(self.round());
            let sleep = u64::try_from(next_s - now_s()).map_or(Duration::ZERO, Duration::from_secs);
            match wake.recv_timeout(sleep.clamp(Duration::from_millis(50), SLEEP_MAX)) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.shared.is_over.load(Ordering::Acquire) {
                return;
            }
            let wanted = self.shared.wanted.lock().take();
            if let Some(names) = wanted {
                self.want(&names);
            }
            if self.shared.is_asked_to_look.swap(false, Ordering::AcqRel) {
                self.look_again();
            }
        }
    }

    /// Replaces the list of names.
    fn want(&mut self, names: &[Name]) {
        let mut before = std::mem::take(&mut self.entries);
        for names in grouped(names) {
            match before.iter().position(|entry| entry.names == names) {
                Some(place) => self.entries.push(before.swap_remove(place)),
                None => match Entry::read(names, &self.files) {
                    Ok(entry) => self.entries.push(entry),
                    Err(error) => tracing::error!("cannot obtain a certificate: {error}"),
                },
            }
        }
        self.show();
        self.publish_statuses();
    }

    /// Resets the waiting times of all certificates at an operator's request.
    fn look_again(&mut self) {
        for entry in &mut self.entries {
            entry.standing.ask_at_s = 0;
            if !entry.kept.is_limited {
                entry.kept.not_before_s = 0;
                entry.refresh_schedule();
            }
        }
    }

    /// Performs the actions due for each certificate. Returns the time at which the next is due.
    async fn round(&mut self) -> i64 {
        let mut next_s = i64::MAX;
        self.note_shared_changes();
        for at in 0..self.entries.len() {
            self.entries[at].forget_impossible();
            if !self.may_do(at) {
                next_s = next_s.min(now_s() + ASK_OTHERS_AGAIN.as_secs().cast_signed());
                continue;
            }
            match self.entries[at].standing.due(now_s()) {
                RenewalAction::Order => self.attempt(at).await,
                RenewalAction::Ask => self.ask(at).await,
                RenewalAction::At(_) => {}
            }
            let due = match self.entries[at].standing.due(now_s()) {
                RenewalAction::At(due) => due,
                RenewalAction::Order | RenewalAction::Ask => now_s(),
            };
            next_s = next_s.min(due);
        }
        self.end_turn();
        next_s
    }

    async fn attempt(&mut self, at: usize) {
        let is_new = self.entries[at].kept.order.is_none();
        if is_new && let Err(then) = self.pace.admit(now_s()) {
            self.entries[at].standing.not_before_s = then;
            return;
        }
        let mut outcome = self.obtain(at).await;
        if outcome.as_ref().is_err_and(|failure| failure.is_account_gone) {
            // A CA that has lost its accounts accepts the same key as a new account.
            tracing::warn!("ACME account unknown to the CA: registering again");
            self.account = None;
            self.entries[at].kept.order = None;
            let forgotten = self.files.keep_account(&KeptAccount::default());
            outcome = match forgotten {
                Ok(()) => self.obtain(at).await,
                Err(error) => Err(of_files(&error)),
            };
        }
        match outcome {
            Ok(issued) => self.take(at, &issued),
            Err(failure) => self.fail(at, failure),
        }
        self.publish_statuses();
    }

    /// Continues the pending order, or makes a new one.
    async fn obtain(&mut self, at: usize) -> Result<IssuedCertificate, Failure> {
        let account = self.account().await?;
        let entry = &mut self.entries[at];
        let orders = Orders {
            account: &account,
            heard: self.http.heard(),
            challenges: &self.challenges,
            sharing: self.sharing.as_ref(),
            profile: self.config.profile.as_deref(),
        };
        let by = Challenge::ALL.into_iter().find(|challenge| challenge.to_string() == entry.kept.challenge);
        let by = by.filter(|by| self.config.challenges.contains(by));
        let by = by.or(self.config.challenges.first().copied()).unwrap_or(Challenge::Http01);
        if let Some(kept) = entry.kept.order.clone() {
            match orders.finish(&kept, &entry.names, by, &mut entry.open).await {
                // A 404 means that the CA has lost the order; that does not count as a failure for the name.
                Err(failure) if failure.is_final && self.http.heard().status() == 404 => {
                    entry.kept.order = None
                }
                outcome => return outcome,
            }
        }
        let begun = orders.begin(&entry.names, entry.certificate.as_deref()).await?;
        self.pace.note(now_s());
        self.shared.orders.fetch_add(1, Ordering::Relaxed);
        entry.kept.order = Some(begun.clone());
        // The order is saved before it is processed.
        self.files.keep(&entry.file, &entry.kept).map_err(|error| of_files(&error))?;
        orders.finish(&begun, &entry.names, by, &mut entry.open).await
    }

    /// Returns the account, after registering it if there is none.
    async fn account(&mut self) -> Result<Account, Failure> {
        if let Some(account) = &self.account {
            return Ok(account.clone());
        }
        let of_files = |error: FilesError| of_files(&error);
        let http = || Box::new(self.http.clone());
        let failed = |error: Error| Failure::of(&error, self.http.heard());
        let no_key =
            |why: &dyn std::fmt::Display| Failure::new(Kind::Refused, format!("invalid account key: {why}"));
        // Only the instance that holds the lease may change the account.
        let may_make = self.sharing.is_none() || self.turn.is_some();
        let not_made =
            || Failure::new(Kind::Unreachable, "the account is created with the next order".to_owned());
        let key = match self.files.account_key().map_err(of_files)? {
            Some(key) => key,
            None if !may_make => return Err(not_made()),
            None => {
                let key = KeyPair::generate().map_err(|error| no_key(&error))?.serialize_pem();
                self.files.keep_account_key(&key).map_err(of_files)?;
                key
            }
        };
        let key = KeyPair::from_pem(&key).map_err(|error| no_key(&error))?;
        let der = || PrivatePkcs8KeyDer::from(key.serialized_der().to_vec());
        let mut kept = self.files.account().map_err(of_files)?;
        let is_complete = kept.id.is_some() && kept.contacts == self.config.contacts;
        if !may_make && !is_complete {
            return Err(not_made());
        }
        let url = self.config.directory.url.clone();
        let account = match &kept.id {
            Some(id) => {
                Account::builder_with_http(http()).from_parts(id.clone(), der(), url).await.map_err(failed)?
            }
            None => {
                let signing = Key::from_pkcs8_der(der()).map_err(|error| no_key(&error))?;
                let made = Account::builder_with_http(http())
                    .create_from_key((signing, PrivateKeyDer::Pkcs8(der())), url)
                    .await;
                let (account, _) = made.map_err(failed)?;
                kept = KeptAccount { id: Some(account.id().to_owned()), contacts: Vec::new() };
                self.files.keep_account(&kept).map_err(of_files)?;
                tracing::info!("ACME account at {}: {}", self.config.directory, account.id());
                account
            }
        };
        if kept.contacts != self.config.contacts {
            let contacts: Vec<&str> = self.config.contacts.iter().map(String::as_str).collect();
            account.update_contacts(&contacts).await.map_err(failed)?;
            kept.contacts.clone_from(&self.config.contacts);
            self.files.keep_account(&kept).map_err(of_files)?;
        }
        self.account = Some(account.clone());
        Ok(account)
    }

    /// Saves and installs a certificate.
    fn take(&mut self, at: usize, issued: &IssuedCertificate) {
        let entry = &mut self.entries[at];
        if let Err(error) = self.files.keep_certificate(&entry.file, &issued.pem) {
            // The certificate is served; after a restart the saved order delivers it once more.
            tracing::error!("{error}; the certificate for {} is used anyway", entry.text());
            entry.is_to_meet = true;
        }
        entry.certificate = Some(Arc::clone(&issued.certificate));
        entry.open.clear();
        // The challenge type that succeeded is tried first the next time.
        let is_hastened = entry.standing.window.is_some_and(|(_, end)| end <= now_s());
        entry.kept =
            RenewalState { challenge: entry.kept.challenge.clone(), is_hastened, ..RenewalState::default() };
        self.keep_order(at);
        let entry = &mut self.entries[at];
        entry.refresh_schedule();
        self.shared.issued.fetch_add(1, Ordering::Relaxed);
        tracing::info!(
            "certificate for {} obtained, valid until {}; renewal {}",
            entry.text(),
            date(issued.certificate.until_s),
            entry.standing.renew_at_s().map_or_else(String::new, date)
        );
        self.show();
    }

    /// Saves the state of an order. A file that cannot be shared now is shared later; if the lease was lost,
    /// nothing else is ordered in this round.
    fn keep_order(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        if let Err(error) = self.files.keep(&entry.file, &entry.kept) {
            tracing::error!("cannot save or share the state of a certificate order: {error}");
            entry.is_to_meet = true;
            if let FilesError::NotShared { why, .. } = error {
                (self.turn, self.waits) = (None, Some(why));
            }
        }
    }

    fn fail(&mut self, at: usize, failure: Failure) {
        let now_s = now_s();
        self.shared.failures.fetch_add(1, Ordering::Relaxed);
        let entry = &mut self.entries[at];
        let kept = &mut entry.kept;
        kept.failures = kept.failures.saturating_add(1);
        let retry_after_s = failure.retry_at_s.map(|at| at - now_s);
        let lot = fastrand::f64();
        kept.not_before_s =
            now_s + wait_s(failure.kind, kept.failures, self.config.retry, retry_after_s, lot);
        kept.is_limited = failure.kind == Kind::Limited || retry_after_s.is_some_and(|after| after > 0);
        if failure.is_final {
            kept.order = None;
            entry.open.clear();
        }
        if failure.kind == Kind::Refused {
            // The next challenge type is tried, since the CA may be able to reach us that way.
            let ways = &self.config.challenges;
            let now = ways.iter().position(|way| way.to_string() == kept.challenge).unwrap_or(0);
            kept.challenge =
                ways.get((now + 1) % ways.len().max(1)).map_or_else(String::new, ToString::to_string);
        }
        kept.error = Some(failure.message);
        let until = entry.certificate.as_ref().map(|certificate| certificate.until_s);
        let meanwhile = match until {
            Some(until) if until <= now_s => "the previous one has expired".to_owned(),
            Some(until) => format!("the previous one is valid until {}", date(until)),
            None => "until one is obtained, TLS for this name fails".to_owned(),
        };
        tracing::warn!(
            "cannot obtain a certificate for {}: {}; next attempt at {}; {meanwhile}",
            entry.text(),
            entry.kept.error.as_deref().unwrap_or_default(),
            date(entry.kept.not_before_s),
        );
        self.keep_order(at);
        let entry = &mut self.entries[at];
        entry.refresh_schedule();
        if failure.kind == Kind::Unreachable && failure.retry_at_s.is_none() && self.account.is_none() {
            // An unreachable CA fails for every certificate, so the others wait as well.
            let then = entry.kept.not_before_s;
            for other in &mut self.entries {
                other.standing.not_before_s = other.standing.not_before_s.max(then);
            }
        }
    }

    /// Asks the CA for the suggested renewal window of a certificate (RFC 9773).
    async fn ask(&mut self, at: usize) {
        let asked = match self.account().await {
            Ok(account) => match self.entries[at]
                .certificate
                .as_ref()
                .map(|of| CertificateIdentifier::try_from(of.own()))
            {
                Some(Ok(identifier)) => {
                    account.renewal_info(&identifier).await.map_err(|error| error.to_string())
                }
                _ => Err("the certificate does not name its issuer".to_owned()),
            },
            Err(failure) => Err(failure.message),
        };
        let entry = &mut self.entries[at];
        let now_s = now_s();
        match asked {
            Ok((info, again)) => {
                let window =
                    (unix_s(info.suggested_window.start.into()), unix_s(info.suggested_window.end.into()));
                if entry.standing.window != Some(window) {
                    entry.standing.window = Some(window);
                    let at = entry.standing.renew_at_s().map_or_else(String::new, date);
                    let why = info.explanation_url.map_or_else(String::new, |url| format!(" ({url})"));
                    tracing::info!(
                        "renewal of the certificate for {} set to {at}, as the CA suggests{why}",
                        entry.text()
                    );
                }
                let again_s = i64::try_from(again.as_secs()).unwrap_or(i64::MAX);
                entry.standing.ask_at_s = now_s + again_s.clamp(ASK_EVERY_S.0, ASK_EVERY_S.1);
            }
            Err(why) => {
                tracing::debug!(
                    "no renewal information from the CA for the certificate for {}: {why}",
                    entry.text()
                );
                entry.standing.ask_at_s = now_s + ASK_AGAIN_S;
            }
        }
        self.publish_statuses();
    }

    /// Installs all certificates that have been obtained.
    fn show(&self) {
        let obtained: Vec<_> = self.entries.iter().filter_map(|entry| entry.certificate.clone()).collect();
        self.certificates.replace_obtained(&obtained);
    }

    fn publish_statuses(&self) {
        let waits = match &self.waits {
            Some(ShareError::Failed(why)) => Some(why),
            Some(ShareError::Busy) | None => None,
        };
        let said = |entry: &Entry| {
            let said = entry.said();
            RenewalStatus { error: said.error.or_else(|| waits.cloned()), ..said }
        };
        let said = self.entries.iter().map(said).collect();
        *self.shared.said.lock() = said;
    }
}

fn of_files(error: &FilesError) -> Failure {
    // A file error does not concern the order, which is kept.
    Failure { is_final: false, ..Failure::new(Kind::Unreachable, error.to_string()) }
}

fn date(unix_s: i64) -> String {
    let since = Duration::from_secs(u64::try_from(unix_s).unwrap_or(0));
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + since)
}
