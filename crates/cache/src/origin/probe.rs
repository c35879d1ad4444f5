//! Health probes: periodic requests to a server.
//!
//! A probe is a request on a connection of its own, as a visitor's first request would be. *Bounds:* one
//! probe at a time per server, [`ANSWER_BYTES_MAX`] bytes of its answer, and the configured time limit.

use std::sync::Arc;

use engine::{cores::clock, sys::span::WordBuffer};
use tokio::time::{Instant, sleep, timeout};
use wire::http1::framing::RequestKind;

use super::{
    OriginError, Tell,
    exchange::{Body, Talk},
    http1, http2,
    member::{Member, MemberProtocol},
    reply::{AnswerEvent, BodyRead, OriginReply, Patience},
    upstream::Streams,
};
use crate::{
    config::{Limits, Probe},
    request::OriginNeed,
};

/// Maximum number of bytes read of an answer's head, and of its content; the expected text must be among
/// them.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Number of bytes of content per read.
const READ_BYTES: usize = 4 << 10;

/// Probes a server for as long as its core runs.
pub(crate) async fn probe(member: Arc<Member>, tell: Tell, count: impl Fn(bool)) {
    let Probe { every, time_max, .. } = member.probe;
    loop {
        let asked = timeout(time_max, ask(&member, tell)).await;
        let found = asked.unwrap_or_else(|_| Err(format!("no answer to a probe within {time_max:?}")));
        count(found.is_ok());
        member.probed(found, clock::monotonic_ms());
        sleep(every).await;
    }
}

/// Sends one probe, and returns the reason if the answer is not good.
async fn ask(member: &Member, tell: Tell) -> Result<(), String> {
    let connected = member.connect(MemberProtocol::Any, member.probe.time_max).await;
    let (line, is_http2) = connected.map_err(|error| error.to_string())?;
    let limits = limits(&member.probe);
    let mut talk = if is_http2 {
        let connection = http2::open(line, &limits, tell).await.map_err(|error| error.to_string())?;
        let leave = Streams::new(&limits).acquire(OriginNeed::Passing, member.probe.time_max).await;
        let leave = leave.map_err(|error| error.to_string())?;
        Talk::Http2(Box::new(http2::Talk::over(connection.place(leave))))
    } else {
        Talk::Http1(http1::Talk::over(line))
    };
    let sent = talk.send(&member.probe_head, member.probe.time_max).await;
    sent.map_err(|error| format!("a probe could not be sent: {error}"))?;
    let deadline = Instant::now() + member.probe.time_max;
    let invalid = |error: OriginError| format!("a probe got an invalid answer: {error}");
    loop {
        match talk.next_event(RequestKind::Other, &limits, deadline).await {
            Ok(AnswerEvent::Interim(_)) => {}
            Ok(AnswerEvent::Head) => break,
            Err(error) => return Err(invalid(error)),
        }
    }
    match talk.answer(RequestKind::Other, &limits).map_err(invalid)? {
        OriginReply::Final { head, body, .. } => judge(head.head().status, body, &member.probe).await,
        OriginReply::Switched { .. } => Err("a probe was answered with status 101".to_owned()),
    }
}

/// Limits of a probe's exchange; the probe's whole duration has a limit of its own.
fn limits(probe: &Probe) -> Limits {
    Limits {
        response_head_bytes_max: ANSWER_BYTES_MAX,
        origin_between_bytes_time_max: probe.time_max,
        ..Limits::default()
    }
}

/// Checks the status, and reads content until the expected text is found.
async fn judge(status: u16, mut body: Body, probe: &Probe) -> Result<(), String> {
    if !probe.status.contains(&status) {
        return Err(format!("a probe was answered with status {status}"));
    }
    let Some(wanted) = probe.body.as_deref() else { return Ok(()) };
    let patience = Patience { between_bytes: probe.time_max, whole: None };
    let room = WordBuffer::new(READ_BYTES);
    let room = room.span();
    let mut text = Vec::new();
    while text.len() < ANSWER_BYTES_MAX {
        match body.read(room, &patience).await {
            Ok(BodyRead::Bytes(bytes)) => room.slice(0..bytes).copy_to(&mut text),
            Ok(BodyRead::End) => break,
            Err(error) => return Err(format!("the answer to a probe broke off: {error}")),
        }
        if memchr::memmem::find(&text, wanted.as_bytes()).is_some() {
            return Ok(());
        }
    }
    Err(format!("the answer to a probe does not contain `{wanted}`"))
}
