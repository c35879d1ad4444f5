//! How much of a request's body may come, and how slowly.
//!
//! Bounds: `request_body_bytes_max` in size, by site; a pause of `request_head_time_max` between two bytes; and in all no slower
//! than `request_body_rate_min` bytes a second once `request_body_time_grace` has passed: a byte now and then holds a connection to the
//! origin for ever.

use std::time::{Duration, Instant};

use engine::cores::clock;

use crate::{
    core::{with_core, with_core_of},
    counters::Counter,
    deliver::downstream::BodyError,
    error_page::Fault,
    request::Request,
};

/// Bytes a second at which a frame must come at least, where bodies may be slower: a frame is looked at when it is
/// whole.
const FRAME_RATE_MIN: u64 = 128;

/// The pace of one body.
pub(crate) struct BodyRate {
    bytes: u64,
    bytes_max: u64,
    pause_max: Duration,
    grace: Duration,
    rate_min: u64,
    since: Instant,
}

impl BodyRate {
    pub(crate) fn new(request: &Request) -> Self {
        with_core_of(request, |core| {
            let limits = &core.config.limits;
            Self {
                bytes: 0,
                bytes_max: core.body_bytes_max(request.site),
                pause_max: limits.request_head_time_max,
                grace: limits.request_body_time_grace,
                rate_min: limits.request_body_rate_min,
                since: clock::now(),
            }
        })
    }

    /// How long the next byte may take.
    pub(crate) fn pause_max(&self) -> Duration {
        self.pause_max
    }

    /// How long the next frame of `bytes` bytes may take, which is looked at when it is whole.
    pub(crate) fn frame_pause_max(&self, bytes: usize) -> Duration {
        frame_time_max(self.pause_max, self.rate_min, bytes)
    }

    /// Counts bytes of the body that have come.
    pub(crate) fn count(&mut self, bytes: usize) -> Result<(), BodyError> {
        self.bytes += bytes as u64;
        if self.bytes > self.bytes_max {
            return Err(refused(Fault::BodyTooLarge));
        }
        Ok(())
    }

    /// Whether it has come fast enough so far.
    pub(crate) fn check(&self) -> Result<(), BodyError> {
        let time = clock::now().duration_since(self.since);
        if time > self.grace && self.bytes < self.rate_min * time.as_secs() {
            return Err(refused(Fault::RequestTimeout));
        }
        Ok(())
    }
}

/// How long a frame with `bytes` bytes of a body may take: the time of the slowest body that is accepted, and a pause.
pub(crate) fn frame_time_max(pause_max: Duration, rate_min: u64, bytes: usize) -> Duration {
    pause_max + Duration::from_secs(bytes as u64 / rate_min.max(FRAME_RATE_MIN))
}

/// Counts a body that is refused.
pub(crate) fn refused(fault: Fault) -> BodyError {
    with_core(|core| {
        core.count(match fault {
            Fault::BodyTooLarge => Counter::BodiesTooLarge,
            Fault::RequestTimeout => Counter::SlowBodies,
            _ => Counter::BadRequests,
        });
    });
    BodyError::Refused(fault)
}
