//! `exports` and `imports` of accounts.
//!
//! ```text
//!   exports: [ {stream: "a.>"}, {service: "q.*", accounts: [B], response_type: stream, response_threshold: "10s"} ]
//!   imports: [ {stream: {account: A, subject: "a.>"}, prefix: p}, {service: {account: A, subject: "q.x"}, to: q} ]
//! ```

use std::collections::HashMap;

use super::{
    options::Reading,
    text::{Entry, Fault, Line, LocatedValue},
    values::{Outcome, block, boolean, duration, list, string, strings, unknown},
};
use crate::accounts::identity::{Account, Exchange, Export, Import, Part, Response, ServiceExport};

/// Line numbers of the exports and imports, by account name and index.
#[derive(Debug, Default)]
pub(super) struct Lines {
    exports: HashMap<String, Vec<Line>>,
    imports: HashMap<String, Vec<Line>>,
}

impl Lines {
    /// Checks the exports and imports of all accounts against each other.
    pub(super) fn check(&self, accounts: &[Account]) -> Outcome {
        let Err(fault) = Exchange::build(accounts, |_| 0) else { return Ok(()) };
        let (lines, at) = match fault.part {
            Part::Export(at) => (&self.exports, at),
            Part::Import(at) => (&self.imports, at),
        };
        let line = lines.get(&fault.name).and_then(|lines| lines.get(at)).copied();
        Err(Fault::new(line.unwrap_or(Line { file: 0, number: 1 }), fault.to_string()))
    }
}

impl Reading<'_> {
    pub(super) fn exports(
        &mut self,
        value: &LocatedValue,
        account: &mut Account,
        lines: &mut Lines,
    ) -> Outcome {
        for one in list(value)? {
            account.exports.push(self.export(one, &account.name)?);
            lines.exports.entry(account.name.clone()).or_default().push(one.line);
        }
        Ok(())
    }

    pub(super) fn imports(
        &mut self,
        value: &LocatedValue,
        account: &mut Account,
        lines: &mut Lines,
    ) -> Outcome {
        for one in list(value)? {
            let import = self.import(one, &account.name)?;
            // nats-server accepts an import of the account's own service. The account can use the service
            // without it, and with it a request would loop, so it is ignored.
            let name = import.to.as_ref().unwrap_or(&import.subject);
            if import.is_service && import.account == account.name && *name == import.subject {
                self.pass_over(one.line, format!("accounts.{}.imports: its own {name}", account.name));
                continue;
            }
            account.imports.push(import);
            lines.imports.entry(account.name.clone()).or_default().push(one.line);
        }
        Ok(())
    }

    fn export(&mut self, value: &LocatedValue, account: &str) -> Outcome<Export> {
        let (mut subject, mut is_service, mut of_service) = (None, false, None);
        let mut export = Export {
            subject: String::new(),
            service: None,
            accounts: Vec::new(),
            account_token_position: None,
        };
        let mut service = ServiceExport::default();
        for entry in block(value)? {
            let value = &entry.value;
            match entry.key.to_ascii_lowercase().as_str() {
                word @ ("stream" | "service") => {
                    is_service = word == "service";
                    only_one(entry, subject.replace(string(value)?).is_some())?;
                }
                "accounts" => export.accounts = strings(value)?,
                "account_token_position" => {
                    let text = string(value)?;
                    let position = text.parse().ok().filter(|position| *position > 0);
                    export.account_token_position = Some(position.ok_or_else(|| {
                        Fault::new(
                            value.line,
                            format!("invalid token position `{text}`: expected a number from 1"),
                        )
                    })?);
                }
                "response" | "response_type" => {
                    service.response = response(value)?;
                    of_service = Some(entry);
                }
                "threshold" | "response_threshold" | "response_max_time" | "response_time" => {
                    service.threshold = duration(value)?;
                    of_service = Some(entry);
                }
                "latency" | "allow_trace" => {
                    self.pass_over(entry.line, format!("accounts.{account}.exports.{}", entry.key));
                }
                other => unknown(entry, other, "an export")?,
            }
        }
        export.subject = subject.ok_or_else(|| {
            Fault::new(value.line, "an export needs a `stream` or a `service`: its subject")
        })?;
        if is_service {
            export.service = Some(service);
        } else if let Some(entry) = of_service {
            return Err(Fault::new(
                entry.line,
                format!("`{}` applies to services, and this is a stream", entry.key),
            ));
        }
        Ok(export)
    }

    fn import(&mut self, value: &LocatedValue, account: &str) -> Outcome<Import> {
        let mut found = None;
        let mut import = Import {
            account: String::new(),
            subject: String::new(),
            to: None,
            prefix: None,
            is_service: false,
            share: false,
        };
        for entry in block(value)? {
            let value = &entry.value;
            match entry.key.to_ascii_lowercase().as_str() {
                word @ ("stream" | "service") => {
                    import.is_service = word == "service";
                    only_one(entry, found.replace(whose(value)?).is_some())?;
                }
                "to" => import.to = Some(string(value)?).filter(|to| !to.is_empty()),
                "prefix" => import.prefix = Some(string(value)?).filter(|prefix| !prefix.is_empty()),
                "share" => import.share = boolean(value)?,
                "allow_trace" => {
                    self.pass_over(entry.line, format!("accounts.{account}.imports.{}", entry.key));
                }
                other => unknown(entry, other, "an import")?,
            }
        }
        let wanted = "an import needs a `stream` or a `service`, such as {account: A, subject: orders.new}";
        (import.account, import.subject) = found.ok_or_else(|| Fault::new(value.line, wanted))?;
        Ok(import)
    }
}

fn only_one(entry: &Entry, was_there: bool) -> Outcome {
    match was_there {
        true => Err(Fault::new(
            entry.line,
            "an entry has one `stream` or one `service`: put the other into an entry of its own",
        )),
        false => Ok(()),
    }
}

fn whose(value: &LocatedValue) -> Outcome<(String, String)> {
    let (mut account, mut subject) = (None, None);
    for entry in block(value)? {
        match entry.key.to_ascii_lowercase().as_str() {
            "account" => account = Some(string(&entry.value)?),
            "subject" => subject = Some(string(&entry.value)?),
            other => unknown(entry, other, "an import")?,
        }
    }
    match (account, subject) {
        (Some(account), Some(subject)) => Ok((account, subject)),
        _ => Err(Fault::new(value.line, "an import needs an `account` and a `subject`")),
    }
}

fn response(value: &LocatedValue) -> Outcome<Response> {
    let text = string(value)?;
    Ok(match text.to_ascii_lowercase().as_str() {
        "single" | "singleton" => Response::Singleton,
        "stream" => Response::Stream,
        "chunk" | "chunked" => Response::Chunked,
        _ => {
            let message = format!("invalid response type `{text}`: expected singleton, stream or chunked");
            return Err(Fault::new(value.line, message));
        }
    })
}
