//! Asking a server, again and again, whether it is well.
//!
//! A probe is a request of its own over a connection of its own, as a visitor's first one would be. *Bounds:* one at a time
//! for each server, [`ANSWER_BYTES_MAX`] of its answer, and the time that is set.

use std::sync::Arc;

use engine::cores::clock;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{sleep, timeout},
};
use wire::http1::{
    framing::{Answered, BodyDecoder, response_framing},
    head::{HeadLimits, HeaderSlots, Progress, parse_response},
};

use super::{line::Line, member::Member};
use crate::config::Probe;

/// What is read of an answer, head and content; what is looked for has to be in it.
const ANSWER_BYTES_MAX: usize = 64 << 10;
const LIMITS: HeadLimits = HeadLimits { line_bytes_max: ANSWER_BYTES_MAX, head_bytes_max: ANSWER_BYTES_MAX };

/// Probes a server for as long as its core runs.
pub(crate) async fn probe(member: Arc<Member>, count: impl Fn(bool)) {
    let Probe { every, time_max, .. } = member.probe;
    loop {
        let asked = timeout(time_max, ask(&member)).await;
        let found = asked.unwrap_or_else(|_| Err(format!("it did not answer a probe within {time_max:?}")));
        count(found.is_ok());
        member.probed(found, clock::monotonic_ms());
        sleep(every).await;
    }
}

/// Asks once; or says why the answer is not good.
async fn ask(member: &Member) -> Result<(), String> {
    let connected = member.connect(member.probe.time_max).await;
    let mut line = connected.map_err(|error| error.to_string())?;
    let sent = line.write_all(&member.probe_head).await;
    sent.and(line.flush().await).map_err(|error| format!("it did not take a probe: {error}"))?;
    let mut received = Vec::new();
    loop {
        if let Some(head_bytes) = head_of(&received, &member.probe)? {
            return content(&mut line, &received, head_bytes, &member.probe).await;
        }
        if read(&mut line, &mut received).await? == 0 {
            return Err("it ended its answer to a probe too early".to_owned());
        }
    }
}

async fn read(line: &mut Line, received: &mut Vec<u8>) -> Result<usize, String> {
    if received.len() >= ANSWER_BYTES_MAX {
        return Ok(0);
    }
    received.reserve(4096);
    line.read_buf(received).await.map_err(|error| format!("its answer to a probe broke off: {error}"))
}

/// Bytes of the head of the final answer, if it is there and its status is good; interim ones are before it.
fn head_of(received: &[u8], probe: &Probe) -> Result<Option<usize>, String> {
    let (from, to) = probe.status;
    let mut at = 0;
    while at < received.len() {
        match parse_response(&received[at..], &mut HeaderSlots::new(), &LIMITS) {
            Ok(Progress::NeedMore) => return Ok(None),
            Ok(Progress::Complete((head, bytes))) if head.is_interim() => at += bytes,
            Ok(Progress::Complete((head, bytes))) if (from..=to).contains(&head.status) => {
                return Ok(Some(at + bytes));
            }
            Ok(Progress::Complete((head, _))) => {
                return Err(format!("it answered a probe with status {}", head.status));
            }
            Err(error) => return Err(format!("its answer to a probe is not valid HTTP: {}", error.rule)),
        }
    }
    Ok(None)
}

/// Reads content until what is looked for was found.
async fn content(line: &mut Line, received: &[u8], head_bytes: usize, probe: &Probe) -> Result<(), String> {
    let Some(wanted) = probe.body.as_deref() else { return Ok(()) };
    let mut slots = HeaderSlots::new();
    let framing = match parse_response(received, &mut slots, &LIMITS) {
        Ok(Progress::Complete((head, _))) => response_framing(&head, Answered::Other).ok(),
        _ => None,
    };
    let framing = framing.ok_or("its answer to a probe has no clear end")?;
    let (mut decoder, mut text) = (BodyDecoder::new(framing), Vec::new());
    let mut waiting = received[head_bytes..].to_vec();
    let mut taken = 0;
    loop {
        let mut at = 0;
        while at < waiting.len() && !decoder.is_done() {
            let step = decoder.decode(&waiting[at..]).map_err(|error| error.rule.to_string())?;
            text.extend_from_slice(&waiting[at..][step.data.clone()]);
            at += step.consumed;
            if step.consumed == 0 {
                break;
            }
        }
        waiting.drain(..at);
        taken += at;
        if memchr::memmem::find(&text, wanted.as_bytes()).is_some() {
            return Ok(());
        }
        let is_over = decoder.is_done() || taken >= ANSWER_BYTES_MAX;
        if is_over || read(line, &mut waiting).await? == 0 {
            return Err(format!("its answer to a probe has no `{wanted}` in it"));
        }
    }
}
