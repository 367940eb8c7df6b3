//! Calls that wait at the same time share a statement.
//!
//! A call that comes while nothing of its organisation is under way goes at once, alone. Those that come while statements
//! are under way wait for one of them to end, and then go together: the busier it is, the more calls a commit carries.
//! There is no timer: nobody waits for company, or for another organisation. See `docs/decisions/0028` and `0111`.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::OrgId;
use futures::FutureExt;
use sqlx::{Error, PgConnection};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::Span;

use crate::StoreError;
use crate::connections::Limit;
use crate::error::copied;
use crate::lane::{self, Lane, Taken, note};

/// Calls in one statement.
const MOST: usize = 64;
/// Bytes that the calls of one statement bring, so that Postgres answers in time. The first has any number.
const MOST_BYTES: usize = 4 << 20;
/// Calls that wait; what comes beyond goes alone, and waits for a connection.
const WAITING: usize = 4_096;

/// The answers of a statement for several calls: one each, or none for one that has to go alone.
pub(crate) type Answers<'c, T> =
    Pin<Box<dyn Future<Output = Result<Vec<Option<T>>, StoreError>> + Send + 'c>>;

/// A call that can share a statement.
pub(crate) trait Call: Sized + Send + Sync + 'static {
    /// The answer to its caller.
    type Answer: Send + 'static;

    /// Whether a call that may have been made can be made again, and its caller is told the same. Where it cannot,
    /// the caller is told that nobody knows, and has to look.
    const MAY_REPEAT: bool;

    /// Statements of one kind of call and one organisation under way at a time: more would carry fewer calls each.
    const FLIGHTS: usize = 2;

    /// Whose it is. Only calls of the same organisation go together.
    fn organisation(&self) -> Option<OrgId>;

    /// About how many bytes it brings to the database.
    fn bytes(&self) -> usize {
        0
    }

    /// Whether both can be in one statement: calls of one organisation for different sessions.
    fn goes_with(&self, other: &Self) -> bool;

    /// Runs them as one statement. An error means that none of them has changed anything, or, when it is not
    /// Postgres's answer, that nobody knows.
    fn run<'c>(calls: &'c [Self], connection: &'c mut PgConnection) -> Answers<'c, Self::Answer>;
}

/// Calls of one kind. Cheap to clone.
pub(crate) struct Batches<C: Call> {
    shared: Arc<Shared<C>>,
}

struct Shared<C: Call> {
    lane: Lane,
    /// How long a call waits to be begun.
    patience: Duration,
    state: Mutex<State<C>>,
}

struct State<C: Call> {
    waiting: VecDeque<Waiting<C>>,
    next_id: u64,
    /// The statements under way, of those that have any.
    flights: HashMap<Option<OrgId>, usize>,
}

struct Waiting<C: Call> {
    id: u64,
    call: C,
    caller: oneshot::Sender<Asked<C>>,
}

/// A call given back, and what came of it: no answer if it has to go alone.
type Asked<C> = (C, Result<Option<<C as Call>::Answer>, StoreError>);

impl<C: Call> Batches<C> {
    pub(crate) fn new(lane: Lane, patience: Duration) -> Self {
        Self { shared: Arc::new(Shared { lane, patience, state: Mutex::new(State::new()) }) }
    }

    /// Runs a call with others; one that has begun goes on to its end, whoever waits for it. The call comes
    /// back without an answer when it has changed nothing and must be made alone.
    ///
    /// # Errors
    /// [`StoreError::Database`] when there was no connection in time, or nobody knows what came of it.
    pub(crate) async fn ask(&self, call: C) -> Result<(C, Option<C::Answer>), StoreError> {
        let (caller, mut answer) = oneshot::channel();
        let org = call.organisation();
        let (id, begins) = {
            let mut state = self.shared.lock();
            if state.waiting.len() >= WAITING {
                return Ok((call, None));
            }
            state.add_call(call, caller)
        };
        if begins {
            // Of no caller's span: it carries the calls of others too.
            let flight = Flight { shared: self.shared.clone(), org, landed: false };
            // It goes on in a task of its own after the first look at it.
            let _ = Span::none().in_scope(|| tasks::detached(flight.fly()).now_or_never());
        }
        let asked = match tokio::time::timeout(self.shared.patience, &mut answer).await {
            Ok(asked) => asked,
            Err(_) if self.shared.withdraw(id) => return Err(Error::PoolTimedOut.into()),
            Err(_) => answer.await, // under way: it ends
        };
        // Only a panic of the statement's own code drops a call.
        let (call, answered) = asked
            .map_err(|_| Error::Protocol("the task of a shared statement broke off".into()))?;
        Ok((call, answered?))
    }
}

impl<C: Call> Clone for Batches<C> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<C: Call> fmt::Debug for Batches<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches").field("waiting", &self.shared.lock().waiting.len()).finish()
    }
}

/// One statement of an organisation after the other, as long as anybody there waits.
struct Flight<C: Call> {
    shared: Arc<Shared<C>>,
    org: Option<OrgId>,
    landed: bool,
}

impl<C: Call> Flight<C> {
    async fn fly(mut self) {
        loop {
            // Who is ready to ask does so first: on a busy machine that is most of a batch.
            tokio::task::yield_now().await;
            let Some(batch) = self.next() else { break };
            let (calls, callers): (Vec<C>, Vec<_>) =
                batch.into_iter().map(|waiting| (waiting.call, waiting.caller)).unzip();
            let answers = self.shared.run(&calls).await;
            for ((call, caller), answer) in calls.into_iter().zip(callers).zip(answers) {
                let _ = caller.send((call, answer)); // its caller may have gone: the work is done
            }
        }
    }

    /// The next calls. Without one, this ends: under the same lock, so that a call that comes now begins another.
    fn next(&mut self) -> Option<Vec<Waiting<C>>> {
        let mut state = self.shared.lock();
        let batch = state.take_batch(self.org);
        if batch.is_empty() {
            state.land(self.org);
            self.landed = true;
            return None;
        }
        Some(batch)
    }
}

impl<C: Call> State<C> {
    fn new() -> Self {
        Self { waiting: VecDeque::new(), next_id: 0, flights: HashMap::new() }
    }

    /// Has a call wait. Returns its id, and whether a flight begins with it, which is counted.
    fn add_call(&mut self, call: C, caller: oneshot::Sender<Asked<C>>) -> (u64, bool) {
        let (id, org) = (self.next_id, call.organisation());
        self.next_id += 1;
        self.waiting.push_back(Waiting { id, call, caller });
        let flights = self.flights.entry(org).or_default();
        let begins = *flights < C::FLIGHTS;
        *flights += usize::from(begins);
        (id, begins)
    }

    /// Takes the oldest call of an organisation that somebody still waits for, and those that go with it.
    fn take_batch(&mut self, org: Option<OrgId>) -> Vec<Waiting<C>> {
        let mut batch: Vec<Waiting<C>> = Vec::new();
        let mut others = VecDeque::new();
        let mut bytes = 0;
        for waiting in std::mem::take(&mut self.waiting) {
            if waiting.call.organisation() != org {
                others.push_back(waiting);
                continue;
            }
            if waiting.caller.is_closed() {
                continue;
            }
            let total = waiting.call.bytes().saturating_add(bytes);
            let fits = batch.len() < MOST
                && (batch.is_empty() || total <= MOST_BYTES)
                && batch.iter().all(|taken| waiting.call.goes_with(&taken.call));
            if fits {
                bytes = total;
                batch.push(waiting);
            } else {
                others.push_back(waiting);
            }
        }
        self.waiting = others;
        batch
    }

    /// Ends a flight.
    fn land(&mut self, org: Option<OrgId>) {
        if let Some(flights) = self.flights.get_mut(&org) {
            *flights -= 1;
            if *flights == 0 {
                self.flights.remove(&org);
            }
        }
    }
}

impl<C: Call> Drop for Flight<C> {
    fn drop(&mut self) {
        if !self.landed {
            self.shared.lock().land(self.org); // a panic, or a runtime that goes away
        }
    }
}

impl<C: Call> Shared<C> {
    async fn run(&self, calls: &[C]) -> Vec<Result<Option<C::Answer>, StoreError>> {
        let taken = match self.lane.take().await {
            Ok(taken) => taken,
            Err(error) => return calls.iter().map(|_| Err(copied(&error))).collect(),
        };
        let is_reused = taken.is_reused();
        let mut ran = Self::run_on(taken, calls).await;
        if C::MAY_REPEAT
            && is_reused
            && matches!(&ran, Err(StoreError::Database(error)) if !lane::is_refusal(error))
        {
            // Postgres went away between two calls: who asks now has nothing to do with that.
            ran = match self.lane.take_fresh().await {
                Ok(taken) => Self::run_on(taken, calls).await,
                Err(_) => ran,
            };
        }
        match ran {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            // Nothing was changed. Each goes alone, and finds out whether it was to blame.
            Err(StoreError::Database(error)) if lane::is_refusal(&error) => {
                calls.iter().map(|_| Ok(None)).collect()
            }
            Err(StoreError::Database(error)) => calls.iter().map(|_| Err(copied(&error))).collect(),
            Err(other) => {
                let what = other.to_string();
                calls.iter().map(|_| Err(StoreError::Unreadable(what.clone()))).collect()
            }
        }
    }

    async fn run_on(mut taken: Taken, calls: &[C]) -> Result<Vec<Option<C::Answer>>, StoreError> {
        let begun = Instant::now();
        let using = async {
            taken.enter().await?;
            let done = C::run(calls, &mut taken).await;
            taken.leave(done).await
        };
        let done = Limit::Short.hold(using).await;
        note(begun, std::any::type_name::<C>(), done.as_ref().err());
        taken.back_after(done)
    }

    /// Takes a call back that has not begun; whether it could be.
    fn withdraw(&self, id: u64) -> bool {
        let mut state = self.lock();
        let before = state.waiting.len();
        state.waiting.retain(|waiting| waiting.id != id);
        state.waiting.len() < before
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        // No code of others runs under this lock but `goes_with`, which only compares.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers at the places, from 1 on, of the calls that they are for.
///
/// # Errors
/// Those of `answers`, and of a place that is no call's.
pub(crate) fn in_place<T>(
    calls: usize,
    answers: impl Iterator<Item = Result<(i64, T), StoreError>>,
) -> Result<Vec<Option<T>>, StoreError> {
    let mut placed: Vec<Option<T>> = std::iter::repeat_with(|| None).take(calls).collect();
    for answer in answers {
        let (place, answer) = answer?;
        let slot = usize::try_from(place - 1).ok().and_then(|place| placed.get_mut(place));
        *slot.ok_or_else(|| StoreError::Unreadable(format!("an answer to call {place}")))? =
            Some(answer);
    }
    Ok(placed)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Small(OrgId);

    impl Call for Small {
        type Answer = ();

        const MAY_REPEAT: bool = true;

        fn organisation(&self) -> Option<OrgId> {
            Some(self.0)
        }

        fn goes_with(&self, _: &Self) -> bool {
            true
        }

        fn run<'c>(calls: &'c [Self], _: &'c mut PgConnection) -> Answers<'c, ()> {
            Box::pin(async { Ok(calls.iter().map(|_| Some(())).collect()) })
        }
    }

    // Two statements of one organisation kept those of all others waiting.
    #[test]
    fn no_organisation_waits_for_statements_of_another() {
        let (ours, theirs) = (OrgId::random(), OrgId::random());
        let (mut state, mut callers) = (State::<Small>::new(), Vec::new());
        let mut add = |state: &mut State<Small>, org| {
            let (caller, answer) = oneshot::channel();
            callers.push(answer);
            state.add_call(Small(org), caller).1
        };
        let begun: Vec<bool> = (0..4).map(|_| add(&mut state, ours)).collect();
        assert_eq!(begun, [true, true, false, false], "more would carry fewer calls each");
        assert_eq!(state.take_batch(Some(ours)).len(), 4);
        assert!(add(&mut state, theirs));
        assert!(!add(&mut state, ours));
        assert_eq!(state.take_batch(Some(theirs)).len(), 1, "and nobody takes theirs along");
        state.land(Some(theirs));
        assert_eq!(state.flights, HashMap::from([(Some(ours), 2)]), "who has none is forgotten");
        assert_eq!(state.take_batch(Some(ours)).len(), 1);
    }
}
