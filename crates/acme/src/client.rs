//! The thread that obtains and renews: it looks at each certificate in turn, does what is due, and sleeps until something
//! is.

mod together;

use std::{
    any::Any,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::Duration,
};

use engine::{
    meter::{Family, Point, Source, Unit, Value},
    tls::{
        TlsError,
        certificates::{Certificate, Certificates},
        challenges::Challenges,
    },
};
use instant_acme::{Account, CertificateIdentifier, Error, Key};
use rcgen::KeyPair;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use xxhash_rust::xxh3::xxh3_64;

use self::together::ASK_OTHERS_AGAIN;
use crate::{
    ADDRESSES_MAX, Challenge, Config, NAMES_MAX, Name,
    files::{Files, FilesError, KeptAccount, RenewalState},
    http::{Http, now_s, unix_s},
    name::{file_name, grouped},
    order::{Failure, IssuedCertificate, OpenChallenge, Orders, looked_at},
    schedule::{ASK_AGAIN_S, ASK_EVERY_S, Kind, OrderRate, RenewalAction, RenewalSchedule, wait_s},
    share::{AuthorityShare, Share, ShareError},
};

#[expect(
    clippy::disallowed_types,
    reason = "for what an operator is told; taken for as long as a copy takes"
)]
type Lock<T> = std::sync::Mutex<T>;

/// It looks at least so often, so that a clock that was set does no harm.
const SLEEP_MAX: Duration = Duration::from_secs(60 * 60);

/// Why nothing can be obtained.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state directory cannot be used.
    #[error("{0}")]
    Files(#[from] FilesError),
    /// Nobody vouches for the CA's server.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// More than [`NAMES_MAX`] names, or [`ADDRESSES_MAX`] addresses.
    #[error(
        "certificates for {names} names, {addresses} of which are addresses: at most {NAMES_MAX} and {ADDRESSES_MAX} are obtained"
    )]
    TooMany {
        /// How many names.
        names: usize,
        /// How many of them are addresses.
        addresses: usize,
    },
    /// What other instances have cannot be followed.
    #[error("{0}")]
    NotShared(#[from] ShareError),
    /// There is no thread to be had.
    #[error("no thread can be started: {0}")]
    Thread(std::io::Error),
}

fn bounded(names: &[Name]) -> Result<(), StartError> {
    let addresses = names.iter().filter(|name| matches!(name, Name::Address(_))).count();
    if names.len() > NAMES_MAX || addresses > ADDRESSES_MAX {
        return Err(StartError::TooMany { names: names.len(), addresses });
    }
    Ok(())
}

/// What is known of a certificate, for an operator. No secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewalStatus {
    /// What it is for.
    pub names: Vec<String>,
    /// From when until when it is valid, seconds since the UNIX epoch; `None`: there is none yet.
    pub validity: Option<(i64, i64)>,
    /// When it is renewed.
    pub renew_at_s: Option<i64>,
    /// What went wrong at last, if nothing has gone right since.
    pub error: Option<String>,
    /// When the next attempt is, after a failure.
    pub retry_at_s: Option<i64>,
}

/// Obtains certificates and renews them, on a thread of its own. Dropping it ends what is not under way.
#[derive(Debug)]
pub struct Client {
    shared: Arc<ClientState>,
    wake: SyncSender<()>,
}

/// What others may ask of the thread.
#[derive(Debug, Default)]
struct ClientState {
    said: Lock<Vec<RenewalStatus>>,
    /// What is to be obtained from now on, if that is something else.
    wanted: Lock<Option<Vec<Name>>>,
    /// An operator would like to see what comes of it now.
    is_asked_to_look: AtomicBool,
    /// Nobody wants anything any more.
    is_over: AtomicBool,
    orders: AtomicU64,
    issued: AtomicU64,
    failures: AtomicU64,
}

impl Client {
    /// Shows what certificates there are, and starts to obtain the others; with `share`, together with other instances.
    ///
    /// # Errors
    /// [`StartError`]. That the CA cannot be reached is none: it is tried again.
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
        keeper.say();
        let begun = std::thread::Builder::new().name("acme".to_owned()).spawn(move || keeper.keep(&woken));
        begun.map_err(StartError::Thread)?;
        Ok(Self { shared, wake })
    }

    /// What is known of each certificate.
    #[must_use]
    pub fn said(&self) -> Vec<RenewalStatus> {
        self.shared.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Obtains certificates for these names from now on. What there is of others is shown no more, and kept.
    ///
    /// # Errors
    /// They are too many; the names before go on. What follows then has it done.
    pub fn obtain_for(&self, names: Vec<Name>) -> Result<impl FnOnce() + use<'_>, StartError> {
        bounded(&names)?;
        Ok(|| {
            *self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(names);
            // One that waits is enough.
            let _ = self.wake.try_send(());
        })
    }

    /// Asks the CA again when to renew, and tries at once what waits after a failure, unless the CA has said until when.
    pub fn look_again(&self) {
        self.shared.is_asked_to_look.store(true, Ordering::Release);
        // One that waits is enough.
        let _ = self.wake.try_send(());
    }

    /// What is counted.
    #[must_use]
    pub fn counters(&self) -> Arc<dyn Source> {
        Arc::clone(&self.shared) as Arc<dyn Source>
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        // One that waits is enough.
        let _ = self.wake.try_send(());
    }
}

impl Source for ClientState {
    fn collect(&self, families: &mut Vec<Family>) {
        for (name, help, number) in [
            ("acme_orders", "Certificates that were ordered of the CA.", &self.orders),
            ("acme_certificates_issued", "Certificates that the CA gave.", &self.issued),
            ("acme_failures", "Attempts to obtain a certificate that came to nothing.", &self.failures),
        ] {
            let value = Value::Counter(number.load(Ordering::Relaxed));
            let points = vec![Point { labels: Vec::new(), value }];
            families.push(Family { name, help, unit: Unit::None, points });
        }
    }
}

/// A certificate, or one that is to be.
struct Entry {
    names: Vec<Name>,
    file: String,
    certificate: Option<Arc<Certificate>>,
    kept: RenewalState,
    standing: RenewalSchedule,
    /// What the others have of it has to be looked at.
    is_to_meet: bool,
    /// Challenges of the pending order. They are answered until the order is over, because a CA may validate later than
    /// we wait for it.
    open: Vec<OpenChallenge>,
}

impl Entry {
    fn read(names: Vec<Name>, files: &Files) -> Result<Self, FilesError> {
        let file = file_name(&names);
        let (kept, standing) = Default::default();
        let mut entry =
            Self { names, file, certificate: None, kept, standing, is_to_meet: true, open: Vec::new() };
        entry.read_again(files)?;
        Ok(entry)
    }

    /// Takes in what its files have.
    fn read_again(&mut self, files: &Files) -> Result<(), FilesError> {
        self.kept = files.kept(&self.file)?;
        // One for other addresses than those that are wanted now is of no use.
        let names: Vec<String> = self.names.iter().map(ToString::to_string).collect();
        self.kept.order = self.kept.order.take().filter(|order| order.names == names);
        if let Some(pem) = files.certificate(&self.file)? {
            // One that has expired is shown on: whoever refuses it would refuse nothing better.
            let pem = String::from_utf8_lossy(&pem).into_owned();
            match Certificate::from_pem(pem.as_bytes()).map_err(|why| why.to_string()).and_then(|read| {
                let within = read.until_s - 1;
                looked_at(pem, &self.names, within.min(now_s())).map_err(|failure| failure.message)
            }) {
                Ok(issued) => self.certificate = Some(issued.certificate),
                Err(why) => {
                    let path = files.certificate_path(&self.file);
                    tracing::warn!("{}: {why}; another is ordered", path.display());
                }
            }
        }
        self.stand();
        Ok(())
    }

    /// Forgets a wait that was written down while the clock was ahead.
    fn forget_impossible(&mut self) {
        if self.standing.forget_impossible(now_s()) {
            tracing::warn!(
                "the clock was ahead when an attempt for a certificate for {} failed: it is tried now",
                self.text()
            );
            self.kept.not_before_s = 0;
        }
    }

    /// Takes in what has changed of the certificate and of what is kept.
    fn stand(&mut self) {
        let of_old = (self.standing.validity, self.standing.lot);
        self.standing.validity =
            self.certificate.as_ref().map(|certificate| (certificate.from_s, certificate.until_s));
        self.standing.lot = self.certificate.as_ref().map_or(0.0, |certificate| lot(certificate));
        // Two that were given within a second are valid for the same time.
        if (self.standing.validity, self.standing.lot) != of_old {
            (self.standing.window, self.standing.ask_at_s) = (None, 0);
        }
        self.standing.not_before_s = self.kept.not_before_s;
        self.standing.is_ordered = self.kept.order.is_some();
        self.standing.is_hastened = self.kept.is_hastened;
    }

    fn text(&self) -> String {
        self.names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    fn said(&self) -> RenewalStatus {
        RenewalStatus {
            names: self.names.iter().map(ToString::to_string).collect(),
            validity: self.standing.validity,
            renew_at_s: self.standing.renew_at_s(),
            error: self.kept.error.clone(),
            retry_at_s: self.kept.error.as_ref().map(|_| self.kept.not_before_s),
        }
    }
}

/// Where in a window a certificate is renewed: drawn from itself, so that it is the same after a restart.
fn lot(certificate: &Certificate) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a lot")]
    let drawn = (xxh3_64(certificate.own()) >> 32) as f64;
    drawn / f64::from(u32::MAX)
}

/// What the thread has.
struct RenewalTask {
    config: Config,
    files: Files,
    http: Http,
    certificates: Arc<Certificates>,
    challenges: Arc<Challenges>,
    entries: Vec<Entry>,
    /// With other instances, if there are any.
    sharing: Option<AuthorityShare>,
    /// It is our turn, among them, to order.
    turn: Option<Box<dyn Any + Send>>,
    /// What the others have of the account has been looked at, since it changed and since it is our turn.
    has_met_account: bool,
    /// Why nothing was ordered in this round that is to be.
    waits: Option<ShareError>,
    /// Rounds in a row in which that was no other instance's turn.
    rounds_failed: u32,
    account: Option<Account>,
    pace: OrderRate,
    shared: Arc<ClientState>,
}

impl RenewalTask {
    /// Works until nobody can wake it any more.
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
            let wanted = self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(names) = wanted {
                self.want(&names);
            }
            if self.shared.is_asked_to_look.swap(false, Ordering::AcqRel) {
                self.look_again();
            }
        }
    }

    /// Takes care of these names, and of no others.
    fn want(&mut self, names: &[Name]) {
        let mut before = std::mem::take(&mut self.entries);
        for names in grouped(names) {
            match before.iter().position(|entry| entry.names == names) {
                Some(place) => self.entries.push(before.swap_remove(place)),
                None => match Entry::read(names, &self.files) {
                    Ok(entry) => self.entries.push(entry),
                    Err(error) => tracing::error!("no certificate is obtained: {error}"),
                },
            }
        }
        self.show();
        self.say();
    }

    /// An operator would like to see what comes of it now.
    fn look_again(&mut self) {
        for entry in &mut self.entries {
            entry.standing.ask_at_s = 0;
            if !entry.kept.is_limited {
                entry.kept.not_before_s = 0;
                entry.stand();
            }
        }
    }

    /// Does what is due of each; when something is due next.
    async fn round(&mut self) -> i64 {
        let mut next_s = i64::MAX;
        self.hear();
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
            // A CA that has forgotten its accounts takes a key that it does not know any more as a new one.
            tracing::warn!("the CA does not know our account any more; it is told once more");
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
        self.say();
    }

    /// Goes on with the order that is under way, or with a new one.
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
                // What became of it nobody knows any more; it is no failure of the name's.
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
        // Before anything comes of it.
        self.files.keep(&entry.file, &entry.kept).map_err(|error| of_files(&error))?;
        orders.finish(&begun, &entry.names, by, &mut entry.open).await
    }

    /// The account, made if there is none.
    async fn account(&mut self) -> Result<Account, Failure> {
        if let Some(account) = &self.account {
            return Ok(account.clone());
        }
        let of_files = |error: FilesError| of_files(&error);
        let http = || Box::new(self.http.clone());
        let failed = |error: Error| Failure::of(&error, self.http.heard());
        let no_key = |why: &dyn std::fmt::Display| {
            Failure::new(Kind::Refused, format!("the account's key cannot be used: {why}"))
        };
        // Of several instances, one changes it at a time.
        let may_make = self.sharing.is_none() || self.turn.is_some();
        let not_made =
            || Failure::new(Kind::Unreachable, "the account is made with the next order".to_owned());
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
                tracing::info!("the CA {} has an account for us: {}", self.config.directory, account.id());
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

    /// Keeps and shows a certificate.
    fn take(&mut self, at: usize, issued: &IssuedCertificate) {
        let entry = &mut self.entries[at];
        if let Err(error) = self.files.keep_certificate(&entry.file, &issued.pem) {
            // It serves; the order, which is kept, gives it once more after a restart.
            tracing::error!("{error}; the certificate for {} is shown all the same", entry.text());
            entry.is_to_meet = true;
        }
        entry.certificate = Some(Arc::clone(&issued.certificate));
        entry.open.clear();
        // By what it went this time it is tried the next time.
        let is_hastened = entry.standing.window.is_some_and(|(_, end)| end <= now_s());
        entry.kept =
            RenewalState { challenge: entry.kept.challenge.clone(), is_hastened, ..RenewalState::default() };
        self.keep_order(at);
        let entry = &mut self.entries[at];
        entry.stand();
        self.shared.issued.fetch_add(1, Ordering::Relaxed);
        tracing::info!(
            "a certificate for {} was obtained, until {}; renewal {}",
            entry.text(),
            date(issued.certificate.until_s),
            entry.standing.renew_at_s().map_or_else(String::new, date)
        );
        self.show();
    }

    /// Keeps what there is of an order. What the others do not have is given to them later; if that is because it is not our turn
    /// any more, nothing else is ordered in this round.
    fn keep_order(&mut self, at: usize) {
        let entry = &mut self.entries[at];
        if let Err(error) = self.files.keep(&entry.file, &entry.kept) {
            tracing::error!("{error}");
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
            // Perhaps the CA can see us another way.
            let ways = &self.config.challenges;
            let now = ways.iter().position(|way| way.to_string() == kept.challenge).unwrap_or(0);
            kept.challenge =
                ways.get((now + 1) % ways.len().max(1)).map_or_else(String::new, ToString::to_string);
        }
        kept.error = Some(failure.message);
        let until = entry.certificate.as_ref().map(|certificate| certificate.until_s);
        let meanwhile = match until {
            Some(until) if until <= now_s => "the one before has expired".to_owned(),
            Some(until) => format!("the one before serves until {}", date(until)),
            None => "until there is one, nobody can come by TLS for it".to_owned(),
        };
        tracing::warn!(
            "no certificate for {}: {}; the next attempt is at {}; {meanwhile}",
            entry.text(),
            entry.kept.error.as_deref().unwrap_or_default(),
            date(entry.kept.not_before_s),
        );
        self.keep_order(at);
        let entry = &mut self.entries[at];
        entry.stand();
        if failure.kind == Kind::Unreachable && failure.retry_at_s.is_none() && self.account.is_none() {
            // Whoever does not answer for one answers for none: the others wait with it.
            let then = entry.kept.not_before_s;
            for other in &mut self.entries {
                other.standing.not_before_s = other.standing.not_before_s.max(then);
            }
        }
    }

    /// Asks the CA when it would like a certificate to be renewed (RFC 9773).
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
                _ => Err("the certificate does not say who signed it".to_owned()),
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
                        "the certificate for {} is renewed at {at}, as the CA would like{why}",
                        entry.text()
                    );
                }
                let again_s = i64::try_from(again.as_secs()).unwrap_or(i64::MAX);
                entry.standing.ask_at_s = now_s + again_s.clamp(ASK_EVERY_S.0, ASK_EVERY_S.1);
            }
            Err(why) => {
                tracing::debug!(
                    "the CA does not say when to renew the certificate for {}: {why}",
                    entry.text()
                );
                entry.standing.ask_at_s = now_s + ASK_AGAIN_S;
            }
        }
        self.say();
    }

    /// Has all that there are shown.
    fn show(&self) {
        let obtained: Vec<_> = self.entries.iter().filter_map(|entry| entry.certificate.clone()).collect();
        self.certificates.replace_obtained(&obtained);
    }

    fn say(&self) {
        let waits = match &self.waits {
            Some(ShareError::Failed(why)) => Some(why),
            Some(ShareError::Busy) | None => None,
        };
        let said = |entry: &Entry| {
            let said = entry.said();
            RenewalStatus { error: said.error.or_else(|| waits.cloned()), ..said }
        };
        let said = self.entries.iter().map(said).collect();
        *self.shared.said.lock().unwrap_or_else(PoisonError::into_inner) = said;
    }
}

fn of_files(error: &FilesError) -> Failure {
    // Nothing is wrong with the order.
    Failure { is_final: false, ..Failure::new(Kind::Unreachable, error.to_string()) }
}

fn date(unix_s: i64) -> String {
    let since = Duration::from_secs(u64::try_from(unix_s).unwrap_or(0));
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + since)
}
