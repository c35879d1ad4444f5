//! Processing of an order, from its creation to the certificate (RFC 8555 §7.1.6), resumable after a restart.
//!
//! ```text
//!  no order ─▶ new order, its URL and a key kept ─▶ pending: challenges answered ─▶ ready: the key's request (CSR)
//!                                                   ▲                                 ─▶ processing ─▶ valid: fetched,
//!  a saved order continues from its state at the CA ┘                                    checked, saved
//! ```

use std::{sync::Arc, time::Duration};

use engine::tls::{
    certificates::Certificate,
    challenges::{ChallengeGuard, Challenges},
};
use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeHandle, ChallengeStatus, ChallengeType,
    Error, Identifier, NewOrder, Order, OrderStatus, Problem, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};

use crate::{
    Challenge,
    files::KeptOrder,
    http::{LastAnswer, TransportError, now_s},
    name::{Name, reverse},
    schedule::Kind,
    share::{AuthorityShare, ShareError, SharedChallenge, SharedChallengeGuard},
};

/// Polling policy while the CA validates the challenges, and then while it signs. After the timeout the order
/// is kept, and polled again later.
const DECIDE: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(200))
    .backoff(1.6)
    .timeout(Duration::from_secs(60));
/// Maximum time until a new certificate becomes valid. A certificate whose validity begins later is refused,
/// because no client would accept it.
const BEGINS_WITHIN_S: i64 = 24 * 60 * 60;

/// Reason why an attempt failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    /// Human-readable text, without secrets.
    pub(crate) message: String,
    /// Time at which the CA allows the next attempt.
    pub(crate) retry_at_s: Option<i64>,
    /// True if the order is over: the next attempt makes a new one.
    pub(crate) is_final: bool,
    /// True if the CA does not know the account.
    pub(crate) is_account_gone: bool,
}

impl Failure {
    pub(crate) fn new(kind: Kind, message: String) -> Self {
        Self { kind, message, retry_at_s: None, is_final: kind == Kind::Refused, is_account_gone: false }
    }

    /// Classifies an error, with the status and retry time of the last response.
    pub(crate) fn of(error: &Error, heard: &LastAnswer) -> Self {
        let (status, retry_at_s) = (heard.status(), heard.retry_at_s());
        let failure = match error {
            Error::Api(problem) => Self::of_problem(problem, status),
            Error::Timeout(_) => {
                Self::new(Kind::Unreachable, "the CA has not decided yet; the order stays open".to_owned())
            }
            Error::Other(why) if why.is::<TransportError>() => {
                Self::new(Kind::Unreachable, format!("no answer from the CA: {why}"))
            }
            _ if status >= 400 => {
                let kind = if status == 429 { Kind::Limited } else { Kind::Unreachable };
                Self::new(kind, format!("the CA answered {status}, not in ACME's format ({error})"))
            }
            _ => Self::new(Kind::Unreachable, format!("the CA's answer is not valid ACME: {error}")),
        };
        Self { retry_at_s, ..failure }
    }

    /// Creates a failure for a cluster error. The order is kept.
    pub(crate) fn of_sharing(why: &ShareError) -> Self {
        Self::new(Kind::Unreachable, why.to_string())
    }

    fn of_problem(problem: &Problem, status: u16) -> Self {
        const PREFIX: &str = "urn:ietf:params:acme:error:";
        let full = problem.r#type.as_deref().unwrap_or_default();
        let kind_of_problem = full.strip_prefix(PREFIX).unwrap_or(full);
        let kind = match kind_of_problem {
            "rateLimited" => Kind::Limited,
            "serverInternal" | "badNonce" | "orderNotReady" => Kind::Unreachable,
            _ if status == 429 => Kind::Limited,
            _ if status >= 500 => Kind::Unreachable,
            _ => Kind::Refused,
        };
        let mut message = format!("refused by the CA ({kind_of_problem})");
        for part in [&problem.detail].into_iter().flatten() {
            message.push_str(": ");
            message.push_str(part);
        }
        for sub in &problem.subproblems {
            message.push_str(&format!("; {}", sub.detail.as_deref().unwrap_or_default()));
        }
        let is_account_gone = kind_of_problem == "accountDoesNotExist";
        Self { is_account_gone, ..Self::new(kind, plain(&message)) }
    }
}

/// Cleans a CA's text for the log, since the text may contain anything: control characters become blanks, and
/// long text is cut.
fn plain(text: &str) -> String {
    const CHARS_MAX: usize = 600;
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(CHARS_MAX).collect()
}

/// Context for creating and processing orders.
pub(crate) struct Orders<'a> {
    pub(crate) account: &'a Account,
    pub(crate) heard: &'a LastAnswer,
    pub(crate) challenges: &'a Arc<Challenges>,
    /// Coordination with other instances; `None` if only this process answers challenges.
    pub(crate) sharing: Option<&'a AuthorityShare>,
    pub(crate) profile: Option<&'a str>,
}

/// Guard of a challenge, which is answered until the guard is dropped.
#[expect(dead_code, reason = "they are held")]
pub(crate) enum OpenChallenge {
    Here(ChallengeGuard),
    Everywhere(SharedChallengeGuard),
}

/// A certificate that was issued and checked.
pub(crate) struct IssuedCertificate {
    pub(crate) certificate: Arc<Certificate>,
    /// Key and chain (PEM), as saved in the certificate's file.
    pub(crate) pem: String,
}

impl Orders<'_> {
    fn failed(&self, error: &Error) -> Failure {
        Failure::of(error, self.heard)
    }

    /// Makes an order for these names, as a replacement for an existing certificate if there is one.
    pub(crate) async fn begin(
        &self,
        names: &[Name],
        replaced: Option<&Certificate>,
    ) -> Result<KeptOrder, Failure> {
        let identifiers: Vec<Identifier> = names
            .iter()
            .map(|name| match name {
                Name::Host(host) => Identifier::Dns(host.to_string()),
                Name::Address(address) => Identifier::Ip(*address),
            })
            .collect();
        let plain_order = || {
            let order = NewOrder::new(&identifiers);
            match self.profile {
                Some(profile) => order.profile(profile),
                None => order,
            }
        };
        // Without a certificate to replace, or with a CA that does not support `replaces`, the order is an
        // ordinary one.
        let replaced = replaced.and_then(|replaced| CertificateIdentifier::try_from(replaced.own()).ok());
        let order = match replaced {
            Some(replaced) => match self.account.new_order(&plain_order().replaces(replaced)).await {
                Err(error) if is_about_replacing(&error, &self.failed(&error)) => {
                    self.account.new_order(&plain_order()).await
                }
                order => order,
            },
            None => self.account.new_order(&plain_order()).await,
        };
        let order = order.map_err(|error| {
            let failure = self.failed(&error);
            match self.profile {
                Some(profile) if failure.message.contains("rofile") => {
                    let there_are: Vec<&str> = self.account.profiles().map(|profile| profile.name).collect();
                    let message = format!(
                        "{}; acme-profile is {profile:?}, and the CA offers {}",
                        failure.message,
                        there_are.join(", ")
                    );
                    Failure { message: plain(&message), ..failure }
                }
                _ => failure,
            }
        })?;
        let key = KeyPair::generate().map_err(|error| of_crypto(&error))?;
        let names = names.iter().map(ToString::to_string).collect();
        Ok(KeptOrder { names, url: order.url().to_owned(), key: key.serialize_pem() })
    }

    /// Processes an order to completion. The challenges in `open` stay open while the order is pending,
    /// because the CA may validate after we have stopped waiting for it.
    pub(crate) async fn finish(
        &self,
        kept: &KeptOrder,
        names: &[Name],
        challenge: Challenge,
        open: &mut Vec<OpenChallenge>,
    ) -> Result<IssuedCertificate, Failure> {
        let failed = |error: Error| self.failed(&error);
        let mut order = self.account.order(kept.url.clone()).await.map_err(|error| {
            // The CA may have forgotten the order: a new one is then made, and nothing is lost.
            let failure = self.failed(&error);
            Failure { is_final: failure.is_final || self.heard.status() == 404, ..failure }
        })?;
        let key = KeyPair::from_pem(&kept.key).map_err(|error| of_crypto(&error))?;
        if order.state().status == OrderStatus::Pending {
            // The previous challenges are closed first: each name has one open challenge, and their number is bounded.
            open.clear();
            self.answer_challenges(&mut order, challenge, open).await?;
            match order.poll_ready(&DECIDE).await {
                Ok(_) => {}
                // The order is invalid; the reason is read from the order afterwards.
                Err(Error::Api(_)) if order.state().status == OrderStatus::Invalid => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        if order.state().status == OrderStatus::Invalid {
            return Err(self.why_invalid(&mut order).await);
        }
        if order.state().status == OrderStatus::Ready {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let mut params = CertificateParams::new(names).map_err(|error| of_crypto(&error))?;
            params.distinguished_name = DistinguishedName::new();
            let request = params.serialize_request(&key).map_err(|error| of_crypto(&error))?;
            order.finalize_csr(request.der()).await.map_err(failed)?;
        }
        let chain = order.poll_certificate(&DECIDE).await.map_err(|error| {
            let failure = self.failed(&error);
            let is_over = matches!(error, Error::Api(_)) || order.state().status == OrderStatus::Invalid;
            Failure { is_final: failure.is_final || is_over, ..failure }
        })?;
        check_issued(format!("{}{chain}", kept.key), names, now_s())
    }

    /// Opens a challenge for each pending authorization of the order. The CA is answered until the entries of
    /// `opened` are dropped.
    async fn answer_challenges(
        &self,
        order: &mut Order,
        by: Challenge,
        opened: &mut Vec<OpenChallenge>,
    ) -> Result<(), Failure> {
        let failed = |error: Error| self.failed(&error);
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(failed)?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let kind = match by {
                Challenge::Http01 => ChallengeType::Http01,
                Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
            };
            let name = authorization.identifier().to_string();
            let Some(mut asked) = authorization.challenge(kind) else {
                let message = format!("the CA does not offer {by} for {name}");
                return Err(Failure::new(Kind::Refused, plain(&message)));
            };
            opened.push(self.open(&asked, by)?);
            if asked.status == ChallengeStatus::Pending {
                asked.set_ready().await.map_err(failed)?;
            }
        }
        Ok(())
    }

    fn open(&self, asked: &ChallengeHandle<'_>, by: Challenge) -> Result<OpenChallenge, Failure> {
        let answer = asked.key_authorization();
        let identifier = asked.identifier().to_string();
        let name = match asked.identifier().identifier {
            Identifier::Ip(address) => reverse(*address),
            _ => identifier.clone(),
        };
        let told = match by {
            Challenge::Http01 => {
                SharedChallenge::Path { name, token: asked.token.clone(), answer: answer.as_str().to_owned() }
            }
            Challenge::TlsAlpn01 => {
                let (certificate, key) = made_for_challenge(&identifier, answer.digest().as_ref())
                    .map_err(|error| of_crypto(&error))?;
                SharedChallenge::Name { name, certificate, key }
            }
        };
        if let Some(sharing) = self.sharing {
            // This instance receives the challenge through the cluster, as the others do.
            return sharing
                .open(&told)
                .map(OpenChallenge::Everywhere)
                .map_err(|why| Failure::of_sharing(&why));
        }
        let opened = told.open(self.challenges).map(OpenChallenge::Here);
        // Each name has one challenge: a CA that demands more than the table holds is refused.
        opened.map_err(|why| Failure::new(Kind::Refused, why.to_string()))
    }

    /// Returns the error that the CA reports for an invalid order.
    async fn why_invalid(&self, order: &mut Order) -> Failure {
        let mut found = Vec::new();
        if let Some(problem) = &order.state().error {
            found.push(Failure::of_problem(problem, 0));
        }
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            let name = authorization.identifier().to_string();
            let Ok(state) = authorization.refresh().await else { break };
            let problems = state.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
            found.extend(problems.map(|problem| {
                let failure = Failure::of_problem(problem, 0);
                Failure { message: plain(&format!("{name}: {}", failure.message)), ..failure }
            }));
        }
        // The error of a single name is more specific than the order's.
        let found = found.pop();
        let found = found
            .unwrap_or_else(|| Failure::new(Kind::Refused, "the CA marked the order invalid".to_owned()));
        // An invalid order is over, whatever its error was.
        Failure { is_final: true, ..found }
    }
}

/// Returns whether a CA may accept the order without `replaces`: it does not support the field, has already
/// replaced that certificate, or did not issue it (RFC 9773 §5).
fn is_about_replacing(error: &Error, failure: &Failure) -> bool {
    match error {
        Error::Unsupported(_) => true,
        // Some CAs report a rejected `replaces` as an internal error (serverInternal).
        Error::Api(_) => failure.kind != Kind::Limited && !failure.is_account_gone,
        Error::Other(why) => why.to_string().contains("replaces"),
        _ => false,
    }
}

fn of_crypto(error: &rcgen::Error) -> Failure {
    Failure::new(Kind::Refused, format!("cannot create a key or a request: {error}"))
}

/// Creates the self-signed certificate for a tls-alpn-01 challenge (RFC 8737 §3), for one name, and its key.
fn made_for_challenge(identifier: &str, digest: &[u8]) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new([identifier.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let made = params.self_signed(&key)?;
    Ok((made.pem(), key.serialize_pem()))
}

/// Checks a certificate from the CA: it must be for these names and our key, and valid for clients now.
pub(crate) fn check_issued(pem: String, names: &[Name], now_s: i64) -> Result<IssuedCertificate, Failure> {
    let refused = |message: String| Failure::new(Kind::Refused, plain(&message));
    let certificate = Certificate::from_pem(pem.as_bytes())
        .map_err(|why| refused(format!("unusable certificate from the CA: {why}")))?;
    let others = names.iter().find(|name| !certificate.covers(&name.to_string()));
    if let Some(name) = others {
        let of: Vec<String> = certificate
            .names()
            .map(str::to_owned)
            .chain(certificate.addresses().map(|address| address.to_string()))
            .collect();
        return Err(refused(format!("the CA issued a certificate for {}, not for {name}", of.join(", "))));
    }
    if certificate.until_s <= now_s || certificate.from_s > now_s + BEGINS_WITHIN_S {
        let message = "the CA issued a certificate that is not valid now; check the clock";
        return Err(refused(message.to_owned()));
    }
    Ok(IssuedCertificate { certificate: Arc::new(certificate), pem })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(names: &[&str], key: &KeyPair) -> String {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let made = CertificateParams::new(names).expect("names").self_signed(key).expect("signed");
        made.pem()
    }

    #[test]
    fn a36_a_certificate_must_match_names_and_key() {
        let (key, other) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
        let names = ["a.example", "192.0.2.1"].map(|name| name.parse::<Name>().expect("a name"));
        let looked_at =
            |pem: String, now_s| check_issued(pem, &names, now_s).map_err(|failure| failure.message);
        let good = key.serialize_pem() + &pem(&["a.example", "192.0.2.1"], &key);
        assert!(looked_at(good.clone(), 1_700_000_000).is_ok());
        let wrong = [
            (
                key.serialize_pem() + &pem(&["a.example", "b.example"], &key),
                "for a.example, b.example, not for 192.0.2.1",
            ),
            (key.serialize_pem() + &pem(&["a.example", "192.0.2.1"], &other), "unusable certificate"),
            (key.serialize_pem(), "unusable certificate"),
            (pem(&["a.example"], &key), "no private key"),
            ("nonsense".to_owned(), "unusable certificate"),
        ];
        for (pem, want) in wrong {
            let message = looked_at(pem, 1_700_000_000).err().unwrap_or_default();
            assert!(message.contains(want), "{message}");
        }
        for now_s in [0, 100_000_000_000] {
            assert!(looked_at(good.clone(), now_s).is_err_and(|message| message.contains("clock")));
        }
    }

    #[test]
    fn a36_what_a_ca_says_is_one_line() {
        let problem = |kind: &str, detail: &str| -> Problem {
            let json =
                serde_json::json!({ "type": format!("urn:ietf:params:acme:error:{kind}"), "detail": detail });
            serde_json::from_value(json).expect("a problem")
        };
        let failure = Failure::of_problem(&problem("dns", "no\nsuch\u{1b}[31m host"), 400);
        assert_eq!(failure.message, "refused by the CA (dns): no such [31m host");
        assert_eq!(failure.kind, Kind::Refused);
        assert_eq!(Failure::of_problem(&problem("rateLimited", ""), 429).kind, Kind::Limited);
        assert_eq!(Failure::of_problem(&problem("odd", ""), 503).kind, Kind::Unreachable);
        assert!(Failure::of_problem(&problem("accountDoesNotExist", ""), 400).is_account_gone);
        assert!(Failure::of_problem(&problem("x", &"y".repeat(5000)), 400).message.len() < 700);
    }
}
