//! Helpers that give way: searches take apart thousands of mails, and other pages must not wait for that.
//!
//! The kernel gives a thread that computes some milliseconds before it looks at who else wants the processor, unless that
//! one comes before it. So searches have threads of their own, of low priority: a page that is asked for beside a search
//! is answered as soon as if there were none, and a search on a machine that has nothing else to do takes no longer.

use engine::cores::give_way;
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};

/// Threads of low priority, started when they are needed.
#[derive(Debug)]
pub(crate) struct LowPriorityPool(Option<Runtime>);

impl LowPriorityPool {
    /// At most so many of them.
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

    /// Does work on one of them.
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
    /// A search that is still under way is not waited for.
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
