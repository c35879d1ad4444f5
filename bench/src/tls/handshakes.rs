//! TLS connections with a single request each: the cost of a handshake.
//!
//! The load is a client of the bench, because it must know for each handshake whether it was resumed. Several
//! threads connect and wait, so that the server always has work; they share the load's core.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use lab::paired::Work;
use lab::peers::PeerError;
use lab::peers::cache::load::{Filler, Secure};
use lab::peers::cache::origin::Bodies;
use lab::secured::{self, Trust};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind};

use crate::cache::session::Amount;

/// Number of clients that connect repeatedly.
const CLIENTS: usize = 8;

/// Kind of TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A full handshake, without a ticket.
    Full,
    /// A handshake resumed by a ticket of the previous connection.
    Resumed,
}

/// Returns the TLS settings of a client: one cipher, one group, HTTP/1.1. If `resumes` is set, the client
/// resumes with a ticket of its previous connection.
///
/// # Errors
/// `PeerError` if `server_name` is not a valid name.
pub(crate) fn secure(server_name: &str, resumes: bool) -> Result<Secure, PeerError> {
    let failed = |error: &dyn std::fmt::Display| PeerError::failed(error.to_string());
    let mut config: ClientConfig =
        secured::client(secured::pinned(), Trust::Anyone, &["http/1.1"]).map_err(|error| failed(&error))?;
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    let name = ServerName::try_from(server_name.to_owned()).map_err(|error| failed(&error))?;
    Ok(Secure { config: Arc::new(config), name })
}

/// Connects for the time or the number in `amount`, and requests one stored object on each connection.
///
/// # Errors
/// `PeerError` if a connection fails or an answer is wrong.
pub(crate) fn run(
    kind: Kind,
    server_name: &str,
    port: u16,
    bodies: &Bodies,
    body_bytes: u64,
    amount: Amount,
) -> Result<Work, PeerError> {
    let others = AtomicU64::new(0);
    // The first connection of each client, which gets the ticket for a resumption, is not counted.
    let clients: Vec<Filler<'_>> = (0..CLIENTS)
        .map(|_| {
            let mut client = Filler::secured(port, bodies, secure(server_name, kind == Kind::Resumed)?);
            client.fetch_anew(body_bytes, 0)?;
            Ok::<_, PeerError>(client)
        })
        .collect::<Result<_, _>>()?;
    let (begun, others_of) = (Instant::now(), &others);
    let connect = |mut client: Filler<'_>| {
        let mut done = 0;
        while match amount {
            Amount::Time(time) => begun.elapsed() < time,
            Amount::Units(units) => done < u64::from(units).div_ceil(CLIENTS as u64),
        } {
            let found = client.fetch_anew(body_bytes, 0)?;
            let is_as_wanted = matches!(
                (kind, found),
                (Kind::Full, Some(HandshakeKind::Full)) | (Kind::Resumed, Some(HandshakeKind::Resumed))
            );
            others_of.fetch_add(u64::from(!is_as_wanted), Ordering::Relaxed);
            done += 1;
        }
        Ok::<u64, PeerError>(done)
    };
    let units = thread::scope(|scope| {
        let connecting: Vec<_> =
            clients.into_iter().map(|client| scope.spawn(move || connect(client))).collect();
        connecting.into_iter().try_fold(0, |sum, client| {
            let done = client.join().unwrap_or_else(|_| Err(PeerError::failed("a client panicked")));
            done.map(|done| sum + done)
        })
    })?;
    let others = others.into_inner();
    let doubts = (others > 0).then(|| format!("{others} of {units} handshakes were not {kind:?}"));
    Ok(Work {
        units,
        wall_s: Some(begun.elapsed().as_secs_f64()),
        latency: None,
        doubts: doubts.into_iter().collect(),
    })
}
