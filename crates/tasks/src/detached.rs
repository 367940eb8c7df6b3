//! Runs work to its end even if nobody waits for it.

use std::future::Future;
use std::panic::resume_unwind;

use tracing::Instrument;

/// Runs `future` to its end in its own task and returns its output.
///
/// Cancel safety: once polled, `future` runs to its end even if the returned future is dropped, as an HTTP
/// handler is when its client leaves. Store calls need this: a dropped `Pool::begin` leaves a pooled
/// connection inside a transaction (sqlx issues 4385 and 4393). Shutdown does not wait for the work, so it
/// must be short and safe to lose with the process.
///
/// # Panics
/// Panics with the panic of `future`, if the caller still waits.
pub fn detached<F>(future: F) -> impl Future<Output = F::Output> + Send
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // Boxed before the first await, so that a caller's future does not contain it.
    let future = Box::pin(future);
    async move {
        #[expect(clippy::disallowed_methods, reason = "the tasks crate is where tasks are spawned")]
        let task = tokio::spawn(future.in_current_span());
        match task.await {
            Ok(output) => output,
            Err(error) => match error.try_into_panic() {
                Ok(payload) => resume_unwind(payload),
                // Only a runtime that shuts down aborts this task, and that drops the caller too.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn the_work_ends_although_its_waiter_is_dropped() {
        let (go, gate) = oneshot::channel::<()>();
        let (done, ended) = oneshot::channel();
        let waiter = detached(async move {
            gate.await.expect("the test opens the gate");
            done.send(7).expect("the test listens");
        });
        assert!(tokio::time::timeout(Duration::from_millis(20), waiter).await.is_err());
        go.send(()).expect("the work still waits at the gate");
        assert_eq!(ended.await, Ok(7));
    }

    #[tokio::test]
    async fn its_output_and_its_panic_reach_the_waiter() {
        assert_eq!(detached(async { 3 }).await, 3);
        let panic = std::panic::AssertUnwindSafe(detached(async { panic!("broken {}", 1) }));
        let payload = panic.catch_unwind().await.expect_err("the panic is passed on");
        assert_eq!(crate::outcome::panic_message(payload.as_ref()), "broken 1");
    }
}
