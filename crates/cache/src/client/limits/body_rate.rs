//! Limits on the size and rate of a request's body.
//!
//! Bounds: at most `request_body_bytes_max` bytes, configurable per site; a pause of at most
//! `request_head_time_max` between two bytes; and an average of at least `request_body_rate_min` bytes per
//! second once `request_body_time_grace` has passed. Without a minimum rate, a client that sends a byte now
//! and then could hold a connection to the origin for ever.

use std::time::{Duration, Instant};

use engine::cores::clock;

use crate::{
    core::{with_core, with_core_of},
    counters::Counter,
    deliver::downstream::BodyError,
    error_page::Fault,
    request::Request,
};

/// Minimum rate of a frame in bytes per second, even if bodies may be slower, because a frame is processed
/// only when it is complete.
const FRAME_RATE_MIN: u64 = 128;

/// Size and rate of one body.
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

    /// Returns the maximum time until the next byte.
    pub(crate) fn pause_max(&self) -> Duration {
        self.pause_max
    }

    /// Returns the maximum time for the next frame of `bytes` bytes, which is processed when it is complete.
    pub(crate) fn frame_pause_max(&self, bytes: usize) -> Duration {
        frame_time_max(self.pause_max, self.rate_min, bytes)
    }

    /// Counts received bytes of the body.
    pub(crate) fn count(&mut self, bytes: usize) -> Result<(), BodyError> {
        self.bytes += bytes as u64;
        if self.bytes > self.bytes_max {
            return Err(refused(Fault::BodyTooLarge));
        }
        Ok(())
    }

    /// Checks that the body has arrived fast enough so far.
    pub(crate) fn check(&self) -> Result<(), BodyError> {
        let time = clock::now().duration_since(self.since);
        if time > self.grace && self.bytes < self.rate_min * time.as_secs() {
            return Err(refused(Fault::RequestTimeout));
        }
        Ok(())
    }
}

/// Returns the maximum time for a frame with `bytes` bytes of a body: the time that the slowest accepted body
/// takes for them, plus one pause.
pub(crate) fn frame_time_max(pause_max: Duration, rate_min: u64, bytes: usize) -> Duration {
    pause_max + Duration::from_secs(bytes as u64 / rate_min.max(FRAME_RATE_MIN))
}

/// Counts a refused body and returns the error.
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
