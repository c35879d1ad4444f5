//! The work of a fetch, run by the request for which it began or as a task of its own.

use std::{future::poll_fn, pin::Pin, task::Poll};

use tokio::sync::oneshot::{
    self,
    error::{RecvError, TryRecvError},
};

use crate::fetch::in_flight::{FetchOutcome, FetchReply, Reply, answer};

/// A fetch that has begun. Its first request's task runs it until it knows the answer, so that most misses
/// need no task of their own; what is left then goes on alone, and so does all of it if that request ends
/// earlier, because others may wait for the answer.
pub(crate) struct FetchTask(Option<Pin<Box<dyn Future<Output = ()>>>>);

impl FetchTask {
    /// Wraps a fetch. Boxed, because a task's start moves its future several times.
    pub(super) fn of(fetch: impl Future<Output = ()> + 'static) -> Self {
        Self(Some(Box::pin(fetch)))
    }

    /// Answers the request, which begins no fetch.
    pub(super) fn answered(reply: Reply, outcome: FetchOutcome) -> Self {
        answer(reply, outcome);
        Self::none()
    }

    /// No fetch, because the request joined another or another core has it.
    pub(super) fn none() -> Self {
        Self(None)
    }

    /// Waits for the next reply of the fetch, and runs the fetch meanwhile if it has begun here. The future may
    /// be dropped without loss.
    pub(super) async fn reply(
        &mut self,
        said: &mut oneshot::Receiver<FetchReply>,
    ) -> Result<FetchReply, RecvError> {
        poll_fn(|cx| {
            if let Some(fetch) = &mut self.0
                && fetch.as_mut().poll(cx).is_ready()
            {
                self.0 = None;
            }
            if self.0.is_none() {
                return Pin::new(&mut *said).poll(cx);
            }
            // The fetch itself replies, so no waker is needed: it would wake this task for what it knows.
            match said.try_recv() {
                Err(TryRecvError::Empty) => Poll::Pending,
                Err(TryRecvError::Closed) => Pin::new(&mut *said).poll(cx),
                Ok(reply) => Poll::Ready(Ok(reply)),
            }
        })
        .await
    }

    /// Lets the fetch run as a task of its own; nothing is left to run here.
    pub(crate) fn go_on_alone(&mut self) {
        // At the end of the program there is no loop any more, and a fetch that panicked is over.
        if let Some(fetch) = self.0.take().filter(|_| !std::thread::panicking())
            && tokio::runtime::Handle::try_current().is_ok()
        {
            tokio::task::spawn_local(fetch);
        }
    }
}

impl Drop for FetchTask {
    fn drop(&mut self) {
        self.go_on_alone();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use tokio::sync::Notify;

    use super::*;

    /// Returns a fetch that counts its steps: it waits, replies, waits again, and ends.
    fn fetch(go: &Arc<Notify>, steps: &Arc<AtomicUsize>) -> (FetchTask, oneshot::Receiver<FetchReply>) {
        let (reply, said) = oneshot::channel();
        let (go, steps) = (Arc::clone(go), Arc::clone(steps));
        let task = FetchTask::of(async move {
            go.notified().await;
            steps.fetch_add(1, Relaxed);
            answer(reply, FetchOutcome::Again);
            go.notified().await;
            steps.fetch_add(1, Relaxed);
        });
        (task, said)
    }

    async fn reach(steps: &AtomicUsize, wanted: usize) {
        while steps.load(Relaxed) < wanted {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(flavor = "local")]
    async fn the_rest_goes_on_alone() {
        let (go, steps) = <(Arc<Notify>, Arc<AtomicUsize>)>::default();
        let (mut task, mut said) = fetch(&go, &steps);
        go.notify_one();
        assert!(matches!(task.reply(&mut said).await, Ok(FetchReply::Outcome(FetchOutcome::Again))));
        assert_eq!(steps.load(Relaxed), 1, "the rest waits");
        drop(task);
        go.notify_one();
        reach(&steps, 2).await;
    }

    #[tokio::test(flavor = "local")]
    async fn a_fetch_outlives_its_request() {
        let (go, steps) = <(Arc<Notify>, Arc<AtomicUsize>)>::default();
        let (mut task, mut said) = fetch(&go, &steps);
        let begun = tokio::time::timeout(std::time::Duration::ZERO, task.reply(&mut said)).await;
        assert!(begun.is_err(), "the origin is silent");
        drop((task, said));
        for wanted in 1..=2 {
            go.notify_one();
            reach(&steps, wanted).await;
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_fetch_elsewhere_is_waited_for() {
        let (go, steps) = <(Arc<Notify>, Arc<AtomicUsize>)>::default();
        let (mut task, mut said) = fetch(&go, &steps);
        task.go_on_alone();
        go.notify_one();
        assert!(matches!(task.reply(&mut said).await, Ok(FetchReply::Outcome(FetchOutcome::Again))));
    }
}
