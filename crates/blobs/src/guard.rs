//! What every request to a store goes through: a bound on requests at once, and the circuit.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use object_store::Error as StoreError;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::circuit::Circuit;
use crate::error::{Cause, CauseKind};

/// The most requests of a process at once, and the most of them that read: writes always find a place.
const REQUESTS: usize = 64;
const READS: usize = 48;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
    Delete,
    List,
}

impl Op {
    const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::List => "list",
        }
    }
}

/// The reason why a request failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The circuit is open, and nothing was sent.
    Unsent(Cause),
    /// The store's error.
    Store(StoreError),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The guard of one store. A folder of this machine has bounds too, but no circuit: it does not go away for a while.
#[derive(Debug)]
pub(crate) struct Guard {
    requests: Semaphore,
    reads: Semaphore,
    circuit: Option<Mutex<Circuit>>,
    place: String,
}

impl Guard {
    pub(crate) fn new(place: String, is_remote: bool) -> Self {
        Self {
            requests: Semaphore::new(REQUESTS),
            reads: Semaphore::new(READS),
            circuit: is_remote.then(Mutex::default),
            place,
        }
    }

    /// Returns the folder, or the bucket's URL.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Makes a request once there is a place for it.
    pub(crate) async fn ask<T>(
        &self,
        op: Op,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Failure> {
        // Refused before it waits: behind a store that hangs, requests would queue up for nothing.
        self.may_ask()?;
        let begun = Instant::now();
        let _places = self.places(op).await;
        let result = request.await;
        let is_answered = self.note(result.as_ref().err());
        telemetry::metrics().blob(op.word(), is_answered, begun.elapsed());
        result.map_err(Failure::Store)
    }

    async fn places(&self, op: Op) -> (Option<SemaphorePermit<'_>>, Option<SemaphorePermit<'_>>) {
        let read = match op {
            Op::Read => self.reads.acquire().await.ok(),
            Op::Write | Op::Delete | Op::List => None,
        };
        (read, self.requests.acquire().await.ok())
    }

    pub(crate) fn may_ask(&self) -> Result<(), Failure> {
        let Some(mut circuit) = self.circuit() else { return Ok(()) };
        circuit.ask(Instant::now()).map_err(|open| {
            let text = format!(
                "it has not answered for {} s and is tried once a second; check that it is up and can be reached",
                open.as_secs()
            );
            Failure::Unsent(Cause::new(CauseKind::Away, text))
        })
    }

    /// Notes how a request ended. Returns whether the store answered, whatever it said.
    pub(crate) fn note(&self, error: Option<&StoreError>) -> bool {
        let cause = error.map(Cause::of);
        let is_answered = !cause.as_ref().is_some_and(Cause::is_away);
        let Some(mut circuit) = self.circuit() else { return is_answered };
        match cause {
            Some(cause) if cause.is_away() => {
                if circuit.failed(Instant::now()) {
                    tracing::warn!(place = %self.place, %cause, "object storage does not answer; it is tried once a second");
                }
            }
            Some(_) | None => {
                if circuit.is_open() {
                    tracing::info!(place = %self.place, "object storage answers again");
                }
                circuit.answered();
            }
        }
        telemetry::metrics().blob_circuit.set(usize::from(circuit.is_open()));
        is_answered
    }

    fn circuit(&self) -> Option<MutexGuard<'_, Circuit>> {
        Some(self.circuit.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
