//! What accounts let others have of their subjects, and what these take: streams of messages, and services that answer.
//!
//! ```text
//!   account A: exports  ─┐                          streams:  a message in A ─path─▶ B's subscribers
//!   account B: imports  ─┴─build: allowed, known, ─▶ services: a request in B ─path─▶ A, and its answer back
//!                          no circle, no duplicate
//! ```
//! As in nats-server a stream goes one step (who imports from B has nothing of A's by that), a service any number.
//! What is wrong has a place, so that the reader of a file can say on which line. Pure.

mod path;

use std::{collections::HashMap, sync::Arc, time::Duration};

pub use path::{Path, common};

use super::{Account, pattern};

/// Exports, or imports, that an account may have.
pub const AN_ACCOUNT_MAX: usize = 1024;
/// Imports of all accounts.
pub const IMPORTS_MAX: usize = 16 * 1024;
/// How long a service may take to answer, unless its export says otherwise (nats-server's
/// `DEFAULT_SERVICE_EXPORT_RESPONSE_THRESHOLD`).
pub const ANSWER_TIME: Duration = Duration::from_secs(120);
/// Imports that may be looked at to find a circle.
const STEPS_MAX: usize = 1 << 20;

/// What may be had of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// The pattern of its subjects.
    pub subject: String,
    /// None: a stream.
    pub service: Option<ServiceExport>,
    /// Who may have it; empty: everybody.
    pub accounts: Vec<String>,
    /// Who imports it has its own name for the wildcard that is this token, counted from 1.
    pub account_token_position: Option<usize>,
}

/// How a service answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceExport {
    /// How often.
    pub response: Response,
    /// How long after the request, or after its last answer.
    pub threshold: Duration,
}

impl Default for ServiceExport {
    fn default() -> Self {
        Self { response: Response::Singleton, threshold: ANSWER_TIME }
    }
}

/// How many answers a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response {
    /// One.
    Singleton,
    /// Many, until an empty one.
    Stream,
    /// One, in parts, until an empty one.
    Chunked,
}

/// What an account takes of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// Whose.
    pub account: String,
    /// The pattern of its subjects there.
    pub subject: String,
    /// What they are called here; none: the same.
    pub to: Option<String>,
    /// What is put in front of them here.
    pub prefix: Option<String>,
    /// A service, not a stream.
    pub is_service: bool,
    /// The service is told who asks.
    pub share: bool,
}

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("account `{name}`: {why}")]
pub struct ExchangeFault {
    /// The account's name.
    pub name: String,
    /// Its place among the accounts.
    pub account: usize,
    /// The place among its exports, or its imports.
    pub part: Part,
    /// What is wrong, and what would be right.
    pub why: String,
}

/// One of an account's exports or imports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// An export.
    Export(usize),
    /// An import.
    Import(usize),
}

/// All that goes from account to account, by the number of the account that takes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    accounts: HashMap<u16, Imports>,
    /// Accounts that have or take a service.
    deals: Vec<bool>,
}

/// What an account takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imports {
    /// Streams.
    pub streams: Vec<Arc<Stream>>,
    /// Services.
    pub services: Vec<Arc<Service>>,
}

/// A stream of another account.
#[derive(Debug, PartialEq, Eq)]
pub struct Stream {
    /// Whose.
    pub exporter: u16,
    /// From the subjects there to those here.
    pub path: Path,
    /// From those here to those there.
    pub back: Path,
}

/// A service of another account.
#[derive(Debug, PartialEq, Eq)]
pub struct Service {
    /// Who takes it.
    pub importer: u16,
    /// Who has it.
    pub exporter: u16,
    /// The number of what is exported.
    pub export: usize,
    /// The pattern here.
    pub local: String,
    /// Where it leads there.
    pub to: Target,
    /// How it answers.
    pub service: ServiceExport,
    /// It is told who asks.
    pub share: bool,
}

impl Service {
    /// Whether it is the same but for the number of its export, which changes with those before it.
    pub fn is_like(&self, other: &Self) -> bool {
        let Self { importer, exporter, export: _, local, to, service, share } = self;
        (*importer, *exporter, local, to, *service, *share)
            == (other.importer, other.exporter, &other.local, &other.to, other.service, other.share)
    }
}

/// Where requests go.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    /// All to one subject.
    Subject(String),
    /// Each to its own.
    Path(Path),
}

impl Exchange {
    /// What an account takes, if it takes anything.
    pub fn of(&self, account: u16) -> Option<&Imports> {
        self.accounts.get(&account)
    }

    /// All that is taken, with who takes it.
    pub fn all(&self) -> impl Iterator<Item = (u16, &Imports)> {
        self.accounts.iter().map(|(account, imports)| (*account, imports))
    }

    /// Whether an account has or takes a service, by its number.
    pub fn deals(&self) -> &[bool] {
        &self.deals
    }

    /// Puts together what accounts have and take; none, if that is nothing. `number_of` gives an account's number.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn build(
        accounts: &[Account],
        number_of: impl Fn(usize) -> u16,
    ) -> Result<Option<Self>, ExchangeFault> {
        let mut building = Building { accounts, exports: Vec::new(), taken: Vec::new(), steps: 0 };
        building.exports()?;
        building.imports(false)?;
        building.imports(true)?;
        Ok(building.finish(number_of))
    }
}

struct Building<'a> {
    accounts: &'a [Account],
    exports: Vec<Ready>,
    taken: Vec<AllowedImport>,
    steps: usize,
}

/// An export that all of one subject have become.
struct Ready {
    account: usize,
    subject: String,
    service: Option<ServiceExport>,
    approved: Vec<String>,
    position: Option<usize>,
}

/// An import that is allowed.
struct AllowedImport {
    by: usize,
    from: usize,
    is_service: bool,
    /// The pattern there and here.
    there: String,
    here: String,
    what: What,
}

enum What {
    Stream(Path),
    Service { export: usize, to: Target, share: bool },
}

impl Building<'_> {
    fn exports(&mut self) -> Result<(), ExchangeFault> {
        for (account, one) in self.accounts.iter().enumerate() {
            for (at, export) in one.exports.iter().enumerate() {
                let fault = |why| fault(one, account, Part::Export(at), why);
                if at >= AN_ACCOUNT_MAX {
                    return Err(fault(format!("there are more than {AN_ACCOUNT_MAX} exports")));
                }
                self.export(account, export).map_err(fault)?;
            }
        }
        Ok(())
    }

    fn export(&mut self, account: usize, export: &Export) -> Result<(), String> {
        let subject = &export.subject;
        if !pattern::is_valid(subject) {
            return Err(format!("`{subject}` is no pattern of subjects, such as orders.* or orders.>"));
        }
        if let Some(name) = export.accounts.iter().find(|name| self.number(name).is_none()) {
            return Err(format!("`{subject}` is exported to `{name}`, which is no account under `accounts`"));
        }
        if let Some(position) = export.account_token_position
            && subject.split('.').nth(position.wrapping_sub(1)) != Some("*")
        {
            return Err(format!("account_token_position {position} of `{subject}` is not a `*`"));
        }
        let same = |one: &&mut Ready| {
            one.account == account
                && one.subject == *subject
                && one.service.is_some() == export.service.is_some()
        };
        let place = self.exports.iter_mut().find(same);
        let ready = match place {
            Some(ready) => ready,
            None => {
                let ready = Ready {
                    account,
                    subject: subject.clone(),
                    service: export.service,
                    approved: Vec::new(),
                    position: None,
                };
                self.exports.push(ready);
                self.exports.last_mut().unwrap_or_else(|| unreachable!("one was put there"))
            }
        };
        // Of one subject twice, as in nats-server: who is approved by either, and the response that is not the usual.
        if !export.accounts.is_empty() || export.account_token_position.is_some() {
            ready.approved.extend(export.accounts.iter().cloned());
            ready.position = export.account_token_position;
        }
        if let (Some(ready), Some(now)) = (&mut ready.service, export.service) {
            if now.response != Response::Singleton {
                ready.response = now.response;
            }
            ready.threshold = now.threshold;
        }
        Ok(())
    }

    fn imports(&mut self, services: bool) -> Result<(), ExchangeFault> {
        for (account, one) in self.accounts.iter().enumerate() {
            for (at, import) in one.imports.iter().enumerate() {
                let fault = |why| fault(one, account, Part::Import(at), why);
                if at >= AN_ACCOUNT_MAX || self.taken.len() >= IMPORTS_MAX {
                    return Err(fault(format!(
                        "there are more than {AN_ACCOUNT_MAX} imports, or {IMPORTS_MAX} of all accounts"
                    )));
                }
                if import.is_service == services {
                    let taken =
                        if services { self.service(account, import) } else { self.stream(account, import) };
                    let taken = taken.map_err(fault)?;
                    self.taken.push(taken);
                }
            }
        }
        Ok(())
    }

    fn stream(&mut self, by: usize, import: &Import) -> Result<AllowedImport, String> {
        let from = self.exporter(by, import)?;
        let subject = &import.subject;
        let to = match (&import.prefix, &import.to) {
            (Some(_), Some(_)) => return Err(format!("the stream `{subject}` has either `prefix` or `to`")),
            (Some(prefix), None) => {
                let prefix = prefix.strip_suffix('.').unwrap_or(prefix);
                if !pattern::is_valid(prefix) || prefix.split('.').any(|token| token == "*" || token == ">") {
                    return Err(format!("the prefix `{prefix}` is no subject without wildcards"));
                }
                format!("{prefix}.{subject}")
            }
            (None, to) => to.as_ref().unwrap_or(subject).clone(),
        };
        let path = Path::build(subject, &to)?;
        if self.taken.iter().any(|taken| taken.by == by && taken.from == from && taken.there == *subject) {
            return Err(format!("the stream `{subject}` of `{}` is imported twice", import.account));
        }
        for wanted in [path.destination(), subject.as_str()] {
            self.leads_back(from, wanted, &mut vec![by])?;
        }
        let here = path.destination().to_owned();
        Ok(AllowedImport {
            by,
            from,
            is_service: false,
            there: subject.clone(),
            here,
            what: What::Stream(path),
        })
    }

    fn service(&mut self, by: usize, import: &Import) -> Result<AllowedImport, String> {
        let from = self.exporter(by, import)?;
        let subject = &import.subject;
        if import.prefix.is_some() {
            return Err(format!(
                "the service `{subject}` has no `prefix`: a `to` says what it is called here"
            ));
        }
        let to = import.to.as_ref().unwrap_or(subject);
        let has_wildcard = |text: &str| text.split('.').any(|token| token == "*" || token == ">");
        let (here, target) = if has_wildcard(subject) {
            let path = Path::build(subject, to)?.reverse();
            (path.source().to_owned(), Target::Path(path))
        } else if pattern::is_valid(subject) && pattern::is_valid(to) {
            (to.clone(), Target::Subject(subject.clone()))
        } else {
            return Err(format!("`{subject}` or `{to}` is no subject, such as orders.get"));
        };
        let twice = |taken: &&AllowedImport| {
            taken.is_service && taken.by == by && taken.from == from && taken.here == here
        };
        if let Some(before) = self.taken.iter().find(twice) {
            return Err(format!(
                "`{here}` is the service `{}` of `{}` already: give this one another `to`",
                before.there, import.account
            ));
        }
        self.returns(&here, from, subject.as_bytes(), &mut vec![by], &mut Vec::new())?;
        let export = self.exports.iter().position(|export| {
            export.account == from && export.service.is_some() && export.subject == *subject
        });
        let covering = || {
            self.exports.iter().position(|export| {
                export.account == from && export.service.is_some() && covers(&export.subject, subject)
            })
        };
        let export = export.or_else(covering).unwrap_or_else(|| unreachable!("it is exported"));
        let what = What::Service { export, to: target, share: import.share };
        Ok(AllowedImport { by, from, is_service: true, there: subject.clone(), here, what })
    }

    /// The account that has what is imported, if that one lets it be had.
    fn exporter(&self, by: usize, import: &Import) -> Result<usize, String> {
        let Import { account, subject, is_service, .. } = import;
        let kind = if *is_service { "service" } else { "stream" };
        let from = self.number(account).ok_or_else(|| {
            format!(
                "the {kind} `{subject}` is imported from `{account}`, which is no account under `accounts`"
            )
        })?;
        if !pattern::is_valid(subject) {
            return Err(format!("`{subject}` is no pattern of subjects, such as orders.* or orders.>"));
        }
        let of_kind = |export: &&Ready| export.account == from && export.service.is_some() == *is_service;
        let exports = || self.exports.iter().filter(of_kind);
        let name = &self.accounts[by].name;
        let is_allowed = match exports().find(|export| export.subject == *subject) {
            // The export itself: where each has a subject of its own, that is nobody's.
            Some(exact) => exact.allows(name, None),
            None => {
                exports().any(|export| covers(&export.subject, subject) && export.allows(name, Some(subject)))
            }
        };
        if is_allowed {
            return Ok(from);
        }
        if exports().any(|export| covers(&export.subject, subject)) {
            return Err(format!(
                "`{account}` does not export the {kind} `{subject}` to `{name}`: name it in that export's `accounts`"
            ));
        }
        Err(format!("`{account}` does not export the {kind} `{subject}`: add it to that account's `exports`"))
    }

    /// Whether a stream that is called `wanted` leads from `at` back to an account that is on the way. As in nats-server
    /// it is looked for among the streams that `at` takes and has under this name.
    fn leads_back(&mut self, at: usize, wanted: &str, on_the_way: &mut Vec<usize>) -> Result<(), String> {
        let is_exported = |export: &Ready| {
            export.account == at && export.service.is_none() && covers(&export.subject, wanted)
        };
        if !self.exports.iter().any(is_exported) {
            return Ok(());
        }
        let narrow = |taken: &AllowedImport| {
            if covers(wanted, &taken.here) { taken.here.clone() } else { wanted.to_owned() }
        };
        let overlapping =
            |taken: &&AllowedImport| pattern::overlaps(wanted.as_bytes(), taken.here.as_bytes());
        let own = self.taken.iter().filter(|taken| taken.by == at && !taken.is_service);
        let next: Vec<(usize, String)> =
            own.filter(overlapping).map(|taken| (taken.from, narrow(taken))).collect();
        on_the_way.push(at);
        for (from, wanted) in next {
            self.step()?;
            if on_the_way.contains(&from) {
                on_the_way.push(from);
                return Err(self.circle(on_the_way));
            }
            self.leads_back(from, &wanted, on_the_way)?;
        }
        on_the_way.pop();
        Ok(())
    }

    /// Whether a request that has come to `at` under `subject` is led on to where it came from: into the account that
    /// stands first on the way, as what `here` matches.
    fn returns(
        &mut self,
        here: &str,
        at: usize,
        subject: &[u8],
        on_the_way: &mut Vec<usize>,
        passed: &mut Vec<usize>,
    ) -> Result<(), String> {
        on_the_way.push(at);
        if on_the_way[0] == at && pattern::overlaps(subject, here.as_bytes()) {
            return Err(self.circle(on_the_way));
        }
        let leads = |(number, taken): (usize, &AllowedImport)| {
            let What::Service { to, .. } = &taken.what else { return None };
            if taken.by != at || passed.contains(&number) {
                return None;
            }
            let within = common(subject, taken.here.as_bytes())?;
            let mut there = Vec::new();
            match to {
                Target::Subject(subject) => there.extend_from_slice(subject.as_bytes()),
                Target::Path(path) => path.apply(&within, &mut there),
            }
            Some((number, taken.from, there))
        };
        let next: Vec<(usize, usize, Vec<u8>)> = self.taken.iter().enumerate().filter_map(leads).collect();
        for (number, from, there) in next {
            self.step()?;
            passed.push(number);
            self.returns(here, from, &there, on_the_way, passed)?;
            passed.pop();
        }
        on_the_way.pop();
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err("the imports are too many to be checked for circles".to_owned());
        }
        Ok(())
    }

    fn circle(&self, way: &[usize]) -> String {
        let names: Vec<&str> = way.iter().map(|account| self.accounts[*account].name.as_str()).collect();
        format!("this import makes a circle, in which a message would go round: {}", names.join(" from "))
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.accounts.iter().position(|account| account.name == name)
    }

    fn finish(self, number_of: impl Fn(usize) -> u16) -> Option<Exchange> {
        if self.taken.is_empty() {
            return None;
        }
        let mut exchange = Exchange::default();
        for AllowedImport { by, from, here, what, .. } in self.taken {
            let (importer, exporter) = (number_of(by), number_of(from));
            let imports = exchange.accounts.entry(importer).or_default();
            match what {
                What::Stream(path) => {
                    let back = path.reverse();
                    imports.streams.push(Arc::new(Stream { exporter, path, back }));
                }
                What::Service { export, to, share } => {
                    let service = self.exports[export].service.unwrap_or_default();
                    imports.services.push(Arc::new(Service {
                        importer,
                        exporter,
                        export,
                        local: here,
                        to,
                        service,
                        share,
                    }));
                    let last = usize::from(importer.max(exporter));
                    if exchange.deals.len() <= last {
                        exchange.deals.resize(last + 1, false);
                    }
                    exchange.deals[usize::from(importer)] = true;
                    exchange.deals[usize::from(exporter)] = true;
                }
            }
        }
        Some(exchange)
    }
}

impl Ready {
    fn allows(&self, name: &str, subject: Option<&str>) -> bool {
        match self.position {
            Some(position) => {
                subject.is_some_and(|subject| subject.split('.').nth(position - 1) == Some(name))
            }
            None => self.approved.is_empty() || self.approved.iter().any(|approved| approved == name),
        }
    }
}

fn covers(outer: &str, inner: &str) -> bool {
    pattern::covers(outer.as_bytes(), inner.as_bytes())
}

fn fault(of: &Account, account: usize, part: Part, why: String) -> ExchangeFault {
    ExchangeFault { name: of.name.clone(), account, part, why }
}
