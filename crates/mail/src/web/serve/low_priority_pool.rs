//! Low-priority helper threads for searches, which parse thousands of mails and must not delay other pages.
//!
//! The kernel lets a computing thread run for some milliseconds before another thread gets the processor,
//! unless the other has a higher priority. With low priority a search does not delay pages, and on an idle
//! machine it takes no longer.

use engine::cores::give_way;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

/// Pool of low-priority threads, started on demand.
#[derive(Debug)]
pub(crate) struct LowPriorityPool(Option<Runtime>);

impl LowPriorityPool {
    /// Creates a pool of at most `threads_max` threads.
    pub(crate) fn new(threads_max: usize) -> Self {
        let built = Builder::new_current_thread()
            .max_blocking_threads(threads_max)
            .thread_name("mail-search")
            .on_thread_start(|| {
                if let Err(error) = give_way() {
                    tracing::warn!(%error, "cannot lower the priority of searches");
                }
            })
            .build();
        if let Err(error) = &built {
            tracing::warn!(%error, "cannot lower the priority of searches");
        }
        Self(built.ok())
    }

    /// Runs work on a thread of the pool.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        match &self.0 {
            Some(runtime) => runtime.spawn_blocking(work),
            None => tokio::task::spawn_blocking(work),
        }
    }
}

impl Drop for LowPriorityPool {
    /// A drop does not wait for a running search.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_done_on_threads_that_give_way() {
        let behind = LowPriorityPool::new(1);
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let here = nice();
        assert!(behind.spawn(nice).await.unwrap() > here.min(18));
        assert_eq!(nice(), here);
    }
}
