//! Phases of an HTTP/2 connection, and their deadlines.
//!
//! ```text
//!   no stream, nothing arriving      Idle     idle-time-max
//!   no stream, a frame arriving      Head     request-head-time-max, from the frame's or field block's first byte;
//!                                             content of a stream that is over: the time of the slowest body
//!   streams, or unread output        Streams  each has deadlines of its own, checked every second
//! ```
//! Connections that are idle or in a head may be closed to make room for others.

use std::time::Duration;

use engine::cores::watch::{Phase, Watch};
use wire::http2::{
    connection::WindowOwner,
    error::ErrorCode,
    frame::{FrameHeader, kind},
};

use super::{
    super::multiplex::{Multiplex, reset},
    End, give_up,
};
use crate::{client::limits::body_rate, config, core::Core, counters::Counter};

/// Interval at which a connection with open streams is checked for stalled streams.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Sets the watch to the connection's phase, with its deadline. A deadline belongs to the frame or field block
/// that is arriving; a body of many frames has its own minimum rate.
pub(super) fn set(core: &Core, multiplex: &mut Multiplex, watch: &Watch, now_ms: u64) {
    let limits = &core.config.limits;
    let is_arriving = !multiplex.pending.is_empty() || multiplex.wire.is_in_field_block();
    let is_flushed = multiplex.is_flushed();
    let has_begun = is_arriving && is_flushed;
    multiplex.frame_since_ms = has_begun.then(|| multiplex.frame_since_ms.unwrap_or(now_ms));
    if multiplex.wire.streams() > 0 || !is_flushed {
        if watch.phase() != Phase::Streams {
            watch.wait(Phase::Streams, now_ms, CHECK_EVERY);
        }
    } else if let Some(since_ms) = multiplex.frame_since_ms {
        watch.wait(Phase::Head, since_ms, frame_time_max(limits, multiplex));
    } else {
        // An idle connection keeps no memory that it does not need.
        multiplex.rest();
        watch.wait(Phase::Idle, now_ms, limits.idle_time_max);
    }
}

/// Returns the time that the frame or field block that is arriving may take. A DATA frame may take as long as
/// the slowest body that is accepted.
fn frame_time_max(limits: &config::Limits, multiplex: &Multiplex) -> Duration {
    match FrameHeader::parse(&multiplex.pending) {
        Some(FrameHeader { kind: kind::DATA, length, .. }) => body_rate::frame_time_max(
            limits.request_head_time_max,
            limits.request_body_rate_min,
            length as usize,
        ),
        _ => limits.request_head_time_max,
    }
}

/// Returns whether the frame or field block that is arriving takes too long.
fn is_late(limits: &config::Limits, multiplex: &Multiplex, now_ms: u64) -> bool {
    let taken_ms = multiplex.frame_since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
    u128::from(taken_ms) > frame_time_max(limits, multiplex).as_millis()
}

/// Handles a passed deadline: ends the connection if it is idle or makes room for others, or if its client is at
/// fault, which is counted.
pub(super) fn check(core: &Core, multiplex: &mut Multiplex, watch: &Watch, now_ms: u64) -> Result<(), End> {
    let phase = watch.phase();
    watch.renew();
    if is_late(&core.config.limits, multiplex, now_ms) {
        core.count(Counter::SlowHeads);
        return Err(End::Done);
    }
    if matches!(phase, Phase::Idle | Phase::Head) && multiplex.wire.streams() == 0 {
        return Err(End::Done);
    }
    let stall_ms_max = core.config.limits.send_stall_max.as_millis();
    if multiplex.stuck_since_ms.is_some_and(|since| u128::from(now_ms.saturating_sub(since)) > stall_ms_max) {
        core.count(Counter::ClientsStalled);
        return Err(End::Gone);
    }
    if multiplex.taking.is_over(now_ms) {
        core.count(Counter::SlowReaders);
        return Err(End::Gone);
    }
    if let Some(overdue) = multiplex.wire.overdue(now_ms) {
        return Err(End::Fault(overdue));
    }
    while let Some(stalled) = multiplex.wire.stalled(now_ms) {
        core.count(Counter::ClientsStalled);
        match stalled {
            WindowOwner::Connection => return Err(End::Gone),
            WindowOwner::Stream(stream) => {
                reset(multiplex, stream, ErrorCode::ENHANCE_YOUR_CALM);
                give_up(multiplex, stream);
            }
        }
    }
    if core.is_draining.get() && !multiplex.is_draining {
        multiplex.wire.drain(&mut multiplex.out);
        multiplex.is_draining = true;
    }
    Ok(())
}
