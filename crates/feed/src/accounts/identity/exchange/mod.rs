//! Exports and imports of accounts: streams of messages, and services that answer requests.
//!
//! ```text
//!   account A: exports  ─┐                          streams:  a message in A ─path─▶ B's subscribers
//!   account B: imports  ─┴─build: allowed, known, ─▶ services: a request in B ─path─▶ A, and its answer back
//!                          no cycle, no duplicate
//! ```
//! A stream's message crosses only one import, as in nats-server: an account that imports from B does not get
//! A's messages through B. A service request may cross any number of imports. An error names the export or
//! import, so that the reader of a configuration file can report the line. The code is pure: no I/O, no
//! clock.

mod path;

use std::{collections::HashMap, sync::Arc};

pub use path::{Path, common};

use super::{
    Account,
    exports::{ExchangeFault, Export, Import, Part, Response, ServiceExport},
    pattern,
};

/// Maximum number of exports per account, and of imports per account.
pub const AN_ACCOUNT_MAX: usize = 1024;
/// Maximum number of imports in all accounts together.
pub const IMPORTS_MAX: usize = 16 * 1024;
/// Largest number of imports examined in the search for import cycles.
const STEPS_MAX: usize = 1 << 20;

/// All stream and service imports, keyed by the number of the importing account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exchange {
    accounts: HashMap<u16, Imports>,
    /// For each account number: whether the account exports or imports a service.
    deals: Vec<bool>,
}

/// Streams and services that one account imports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imports {
    /// Imported streams.
    pub streams: Vec<Arc<Stream>>,
    /// Imported services.
    pub services: Vec<Arc<Service>>,
}

/// An imported stream.
#[derive(Debug, PartialEq, Eq)]
pub struct Stream {
    /// Number of the exporting account.
    pub exporter: u16,
    /// Translates the exporter's subjects into the importer's.
    pub path: Path,
    /// Translates the importer's subjects into the exporter's.
    pub back: Path,
}

/// An imported service.
#[derive(Debug, PartialEq, Eq)]
pub struct Service {
    /// Number of the importing account.
    pub importer: u16,
    /// Number of the exporting account.
    pub exporter: u16,
    /// Index of the export among all exports; prevents a message from passing through one export twice.
    pub export: usize,
    /// Pattern of the subjects in the importing account.
    pub local: String,
    /// Subject of the request in the exporting account.
    pub to: Target,
    /// Settings for the service's answers.
    pub service: ServiceExport,
    /// The service receives details about the requesting client (`Nats-Request-Info`).
    pub share: bool,
}

impl Service {
    /// Returns whether both services are equal apart from `export`, an index that changes when an earlier
    /// export is added or removed.
    pub fn is_like(&self, other: &Self) -> bool {
        let Self { importer, exporter, export: _, local, to, service, share } = self;
        (*importer, *exporter, local, to, *service, *share)
            == (other.importer, other.exporter, &other.local, &other.to, other.service, other.share)
    }
}

/// Subject under which the exporting account receives a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Target {
    /// All requests have the same subject.
    Subject(String),
    /// Each request's subject is translated.
    Path(Path),
}

impl Exchange {
    /// Returns the imports of an account; `None` if it imports nothing.
    pub fn of(&self, account: u16) -> Option<&Imports> {
        self.accounts.get(&account)
    }

    /// Returns the imports of all accounts, each with the importing account's number.
    pub fn all(&self) -> impl Iterator<Item = (u16, &Imports)> {
        self.accounts.iter().map(|(account, imports)| (*account, imports))
    }

    /// Returns for each account, by its number, whether it exports or imports a service.
    pub fn deals(&self) -> &[bool] {
        &self.deals
    }

    /// Builds the imports of all accounts; `None` if there are none. `number_of` returns an account's number.
    ///
    /// # Errors
    /// [`ExchangeFault`] if an export or import is invalid; it names the export or import.
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

/// An export; exports of one account with the same subject are merged.
struct Ready {
    account: usize,
    subject: String,
    service: Option<ServiceExport>,
    approved: Vec<String>,
    position: Option<usize>,
}

/// An import that has passed the checks.
struct AllowedImport {
    by: usize,
    from: usize,
    is_service: bool,
    /// Patterns of the subjects in the exporting account (`there`) and in the importing account (`here`).
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
                    return Err(fault(format!("too many exports: at most {AN_ACCOUNT_MAX}")));
                }
                self.export(account, export).map_err(fault)?;
            }
        }
        Ok(())
    }

    fn export(&mut self, account: usize, export: &Export) -> Result<(), String> {
        let subject = &export.subject;
        if !pattern::is_valid(subject) {
            return Err(format!(
                "invalid subject pattern `{subject}`; expected a pattern such as orders.* or orders.>"
            ));
        }
        if let Some(name) = export.accounts.iter().find(|name| self.number(name).is_none()) {
            return Err(format!(
                "`{subject}` is exported to `{name}`, which is not an account under `accounts`"
            ));
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
        // A subject that is exported twice, as in nats-server: accounts that either entry approves may import
        // it, and a response other than the default wins.
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
                        "too many imports: at most {AN_ACCOUNT_MAX}, and {IMPORTS_MAX} of all accounts"
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
            (Some(_), Some(_)) => {
                return Err(format!("the stream `{subject}` may have `prefix` or `to`, not both"));
            }
            (Some(prefix), None) => {
                let prefix = prefix.strip_suffix('.').unwrap_or(prefix);
                if !pattern::is_valid(prefix) || prefix.split('.').any(|token| token == "*" || token == ">") {
                    return Err(format!("invalid prefix `{prefix}`: a subject without wildcards is needed"));
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
                "the service `{subject}` may not have a `prefix`: `to` sets its local subject"
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
            return Err(format!(
                "invalid subject in `{subject}` or `{to}`; expected a subject such as orders.get"
            ));
        };
        let twice = |taken: &&AllowedImport| {
            taken.is_service && taken.by == by && taken.from == from && taken.here == here
        };
        if let Some(before) = self.taken.iter().find(twice) {
            return Err(format!(
                "`{here}` is already the service `{}` of `{}`: give this one another `to`",
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

    /// Returns the index of the exporting account, if it exports the subject to the importing account.
    fn exporter(&self, by: usize, import: &Import) -> Result<usize, String> {
        let Import { account, subject, is_service, .. } = import;
        let kind = if *is_service { "service" } else { "stream" };
        let from = self.number(account).ok_or_else(|| {
            format!(
                "the {kind} `{subject}` is imported from `{account}`, which is not an account under `accounts`"
            )
        })?;
        if !pattern::is_valid(subject) {
            return Err(format!(
                "invalid subject pattern `{subject}`; expected a pattern such as orders.* or orders.>"
            ));
        }
        let of_kind = |export: &&Ready| export.account == from && export.service.is_some() == *is_service;
        let exports = || self.exports.iter().filter(of_kind);
        let name = &self.accounts[by].name;
        let is_allowed = match exports().find(|export| export.subject == *subject) {
            // The import names the export's own pattern. If the export reserves a separate subject for each
            // account, no account may import the whole pattern.
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

    /// Follows the streams that account `at` imports under subjects that overlap `wanted`, and fails if one
    /// comes from an account that is already on the path. As in nats-server, the search continues only if
    /// `at` exports `wanted` as a stream.
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

    /// Follows the services that a request on `subject` in account `at` reaches, and fails if the request
    /// returns to the first account on the way under a subject that overlaps `here`.
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
            return Err("the imports are too many to be checked for cycles".to_owned());
        }
        Ok(())
    }

    fn circle(&self, way: &[usize]) -> String {
        let names: Vec<&str> = way.iter().map(|account| self.accounts[*account].name.as_str()).collect();
        format!("import forms a cycle: {}", names.join(" from "))
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
