//! The stop: every service drains, one after the other, each within a time limit of its own even if it hangs.
//!
//! ```text
//!  SIGTERM ─▶ mail ─▶ cache ─▶ feed ─▶ the rest of the process
//!             │       │        └ each on a thread: its drain time, and DRAIN_GRACE for the work after its loops are cut off
//!             │       └ a service that hangs is left behind, and the next one drains
//!             └───────── Limit: the sum of these and END_TIME_MAX, then the process exits at once
//! ```

use std::{
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

use super::service::Service;
use crate::failure::{Failure, failed};

/// Time that a service may take beyond its drain time: its loops are then cut off and have three seconds to
/// end, and mail's pages have ten.
const DRAIN_GRACE: Duration = Duration::from_secs(15);
/// Time that the process may take after all services have drained, to write out logs and close files.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// Drains the services in order, each for at most its time in `times`. Returns whether everything in progress
/// has ended. A service that fails or hangs does not prevent the others from draining.
///
/// # Errors
/// Returns the first failure: a loop had ended before the drain, or a service hangs.
pub(super) fn drain(services: &[Arc<dyn Service>], times: &[Duration]) -> Result<bool, Failure> {
    drain_within(services, times, DRAIN_GRACE)
}

fn drain_within(services: &[Arc<dyn Service>], times: &[Duration], grace: Duration) -> Result<bool, Failure> {
    let (mut whole, mut failure) = (true, None);
    for (service, at_most) in services.iter().zip(times) {
        match drain_one(service, *at_most, grace) {
            Ok(is_whole) => whole &= is_whole,
            Err(why) => failure = failure.or(Some(why)),
        }
    }
    failure.map_or(Ok(whole), Err)
}

fn drain_one(service: &Arc<dyn Service>, at_most: Duration, grace: Duration) -> Result<bool, Failure> {
    let (say, said) = channel();
    let draining = Arc::clone(service);
    let thread = thread::Builder::new().name("drain".to_owned()).spawn(move || {
        // An error is ignored: after a hang the receiver is gone.
        _ = say.send(draining.drain(at_most));
    });
    thread.map_err(failed("cannot drain"))?;
    let limit = at_most.saturating_add(grace);
    said.recv_timeout(limit).unwrap_or_else(|why| {
        let name = format!("{:?}", service.section()).to_lowercase();
        Err(Failure::Failed(match why {
            RecvTimeoutError::Timeout => {
                format!("{name} did not end within {limit:?}: abandoned")
            }
            RecvTimeoutError::Disconnected => format!("the drain of {name} panicked"),
        }))
    })
}

/// Ends the process if a stop takes longer than drains of `times` and [`END_TIME_MAX`] together.
pub(super) fn end_in_time(times: &[Duration]) {
    let drains = times.iter().fold(Duration::ZERO, |sum, time| sum.saturating_add(*time + DRAIN_GRACE));
    let limit = drains.saturating_add(END_TIME_MAX);
    let thread = thread::Builder::new().name("stop-limit".to_owned()).spawn(move || {
        // If the process ends earlier, this thread ends with it.
        thread::park_timeout(limit);
        tracing::error!("stopped at once: the graceful stop took longer than {limit:?}");
        std::process::exit(1);
    });
    if let Err(error) = thread {
        tracing::warn!("cannot start the stop timer: {error}; this stop has no time limit");
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::{Future, pending},
        pin::Pin,
        sync::{
            atomic::{AtomicBool, Ordering},
            mpsc::{Receiver, Sender},
        },
    };

    use engine::{cold_mutex::ColdMutex, meter::Registry};

    use super::*;
    use crate::{
        admin::OperatorView,
        failure::Fault,
        services::shell::{ConfigApply, StopMessages},
        settings::{Section, Setting, Settings},
    };

    /// A service that drains at once, or when its sender is dropped.
    struct Fake {
        hangs: Option<ColdMutex<Receiver<()>>>,
        fails: bool,
        drained: AtomicBool,
    }

    impl Fake {
        fn new(hangs: Option<Receiver<()>>, fails: bool) -> Arc<Self> {
            Arc::new(Self { hangs: hangs.map(ColdMutex::new), fails, drained: false.into() })
        }
    }

    impl OperatorView for Fake {
        fn registry(&self) -> Arc<Registry> {
            Arc::new(Registry::new())
        }

        fn is_ready(&self) -> bool {
            true
        }
    }

    impl Service for Fake {
        fn announcement(&self) -> String {
            String::new()
        }

        fn section(&self) -> Section {
            Section::Mail
        }

        fn follows(&self, _: &Setting) -> bool {
            false
        }

        fn check(&self, _: &Settings) -> Result<ConfigApply<'_>, Fault> {
            Ok(Box::new(|| Ok(None)))
        }

        fn until_loop_fails(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(pending())
        }

        fn begin_drain(&self) {}

        fn drain(&self, _: Duration) -> Result<bool, Failure> {
            if let Some(hangs) = &self.hangs {
                assert!(hangs.lock().recv().is_err(), "the test lets it go");
            }
            self.drained.store(true, Ordering::Release);
            if self.fails { Err(Failure::Failed("a loop failed".to_owned())) } else { Ok(true) }
        }

        fn stage(&self) -> u8 {
            0
        }

        fn words(&self, _: Duration) -> StopMessages {
            StopMessages { stopping: String::new(), whole: "", cut: "" }
        }
    }

    fn drain_all(fakes: &[&Arc<Fake>]) -> Result<bool, Failure> {
        let services: Vec<_> = fakes.iter().map(|fake| Arc::clone(fake) as Arc<dyn Service>).collect();
        drain_within(&services, &vec![Duration::ZERO; services.len()], Duration::from_millis(50))
    }

    #[test]
    fn a_service_that_hangs_is_left_behind() {
        let (let_go, hangs): (Sender<()>, _) = channel();
        let (first, second) = (Fake::new(Some(hangs), false), Fake::new(None, false));
        let Err(Failure::Failed(why)) = drain_all(&[&first, &second]) else { panic!("it hangs") };
        assert!(why.contains("mail did not end within"), "{why}");
        assert!(!first.drained.load(Ordering::Acquire) && second.drained.load(Ordering::Acquire));
        drop(let_go);
    }

    #[test]
    fn a_failing_service_does_not_stop_other_drains() {
        let (first, second) = (Fake::new(None, true), Fake::new(None, false));
        let Err(Failure::Failed(why)) = drain_all(&[&first, &second]) else { panic!("it fails") };
        assert_eq!(why, "a loop failed");
        assert!(second.drained.load(Ordering::Acquire));
        assert!(matches!(drain_all(&[&second]), Ok(true)));
    }
}
