//! Calls that change one session. One that meets a lock of another leaves its connection, and waits here.
//!
//! ```text
//! call ─▶ queue of the session ─▶ lane: 200 ms for the lock ─▶ answer
//!              ▲ 100 ms without a connection ◀─ the lock is taken, for 5 s at most
//! ```
//!
//! So a session that is locked for long, whoever has it, costs a gateway one connection now and then, however many calls
//! want it.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use domain::OrgId;
use sqlx::PgConnection;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connections::Limit;
use crate::error::locked;
use crate::lane::{Lane, OnConnection};
use crate::{Store, StoreError};

/// How long a call of a gateway waits for a session that is locked.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits between two tries, each of which takes a connection for as long as Postgres waits for a lock.
const PAUSE: Duration = Duration::from_millis(100);
/// The number of queues after which those that nobody is in are forgotten.
const EMPTY: usize = 1_000;

type Key = (OrgId, String);

/// A queue for each session that calls want: one of them asks at a time. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queues(Arc<Mutex<HashMap<Key, Weak<tokio::sync::Mutex<()>>>>>);

impl Queues {
    fn queue(&self, key: Key) -> Arc<tokio::sync::Mutex<()>> {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.len() >= EMPTY {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        if let Some(queue) = queues.get(&key).and_then(Weak::upgrade) {
            return queue;
        }
        let queue = Arc::default();
        queues.insert(key, Arc::downgrade(&queue));
        queue
    }
}

impl Store {
    /// Runs `work`, one short statement of a gateway that locks what `of` names: a session, or something of one.
    ///
    /// # Errors
    /// Those of `work`; a refused lock when another has had it for five seconds.
    #[track_caller]
    pub(crate) fn at_head<T, W>(
        &self,
        org: OrgId,
        of: &str,
        work: W,
    ) -> impl Future<Output = Result<T, StoreError>> + Send + use<T, W>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> OnConnection<'c, T> + Clone + Send + 'static,
    {
        let patience = (PATIENCE, Limit::Short);
        wait_in_turn(
            self.queues(),
            (org, of.to_owned()),
            self.lane(org),
            patience,
            Location::caller(),
            work,
        )
    }

    /// The same for a statement that may take long.
    ///
    /// # Errors
    /// As [`Store::at_head`]; the lock may be another's for as long as the statement may take.
    #[track_caller]
    pub(crate) fn long_at_head<T, W>(
        &self,
        org: OrgId,
        of: &str,
        work: W,
    ) -> impl Future<Output = Result<T, StoreError>> + Send + use<T, W>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut PgConnection) -> OnConnection<'c, T> + Clone + Send + 'static,
    {
        let patience = (Limit::Long.length(), Limit::Long);
        wait_in_turn(
            self.queues(),
            (org, of.to_owned()),
            self.long_lane(org),
            patience,
            Location::caller(),
            work,
        )
    }
}

async fn wait_in_turn<T, W>(
    queues: Queues,
    key: Key,
    lane: Lane,
    (patience, limit): (Duration, Limit),
    caller: &'static Location<'static>,
    work: W,
) -> Result<T, StoreError>
where
    T: Send + 'static,
    W: for<'c> FnOnce(&'c mut PgConnection) -> OnConnection<'c, T> + Clone + Send + 'static,
{
    let until = Instant::now() + patience;
    let queue = queues.queue(key);
    let Ok(_turn) = timeout_at(until, queue.lock()).await else { return Err(locked()) };
    loop {
        match lane.run_at(limit, caller, work.clone()).await {
            Err(error) if error.is_locked() && Instant::now() + PAUSE < until => sleep(PAUSE).await,
            answer => return answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_one_while_anybody_is_in_it() {
        let queues = Queues::default();
        let key = |name: &str| (OrgId::FIRST, name.to_owned());
        let held = queues.queue(key("ses_1"));
        assert!(Arc::ptr_eq(&held, &queues.queue(key("ses_1"))));
        for nth in 0..3 * EMPTY {
            drop(queues.queue(key(&nth.to_string())));
        }
        assert!(Arc::ptr_eq(&held, &queues.queue(key("ses_1"))));
        assert!(queues.0.lock().expect("whole").len() <= EMPTY);
    }
}
