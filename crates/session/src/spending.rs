//! The monthly stop: limits of cost, looked at before each turn and each of its requests, without a query for each.
//!
//! ```text
//! boundary  what is spent has reached a limit: nothing is promoted, the input waits
//! request   what is spent, with the most that the requests of this worker which run may cost, has reached it: wait
//! ```
//!
//! Costs are looked up every two seconds at most, by each worker for each organisation that has a limit. A
//! request of this worker counts with the most that it may cost until the sums of usage have what it did cost. So a worker
//! passes a limit by one request at most; and with W workers all together by what the others begin within two seconds
//! before it is reached, which each of them counts for itself (docs/decisions/0076).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::{ErrorCode, OrgId, SessionError, TimestampMs};
use session_rules::{SpendingStop, TurnPlan};
use store::{Month, Spent, Store};
use tokio::time::Instant;
use tracing::warn;

use crate::drain::{Drain, Stop};
use crate::turn::Turn;

/// How old a look may be.
pub(crate) const FRESH_FOR: Duration = Duration::from_secs(2);
/// The pause of a request before it asks again.
const PAUSE: Duration = Duration::from_millis(500);

/// The knowledge of limits that the drains of a worker share. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Spending {
    organisations: Arc<Mutex<HashMap<OrgId, Arc<Organisation>>>>,
}

#[derive(Debug, Default)]
struct Organisation {
    looked: tokio::sync::Mutex<Option<Looked>>,
    requests: Mutex<Requests>,
}

#[derive(Debug, Clone)]
struct Looked {
    at: Instant,
    spent: Arc<Spent>,
}

/// The requests of this worker that no look has seen the costs of.
#[derive(Debug, Default)]
struct Requests {
    last: u64,
    running: HashMap<u64, Request>,
    /// With the time of their end.
    ended: Vec<(Instant, Request)>,
}

#[derive(Debug, Clone)]
struct Request {
    person: String,
    /// The most that it may cost, in nano-USD.
    most: i64,
}

/// A request that may be sent, and counts until this is dropped, and then until the next look.
#[derive(Debug)]
pub(crate) struct Counted {
    of: Arc<Organisation>,
    id: u64,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut requests = self.of.requests();
        if let Some(request) = requests.running.remove(&self.id) {
            requests.ended.push((Instant::now(), request));
        }
    }
}

/// Whether a request may be sent.
#[derive(Debug)]
pub(crate) enum Allowed {
    /// It may, and counts.
    Go(Option<Counted>),
    /// Running requests may use up the rest: ask again.
    Wait,
    /// A limit is reached, or it is too large.
    Stop(SessionError),
    /// The turn was interrupted while it waited.
    Interrupted,
}

impl Organisation {
    fn requests(&self) -> MutexGuard<'_, Requests> {
        // No foreign code runs under this lock.
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spending {
    fn of(&self, org: OrgId) -> Arc<Organisation> {
        let mut all = self.organisations.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(org).or_default().clone()
    }

    /// Looks what is spent in the month of `now`, unless that is known. While the database fails, what was known last
    /// counts: without it nothing can be committed either.
    async fn look(
        &self,
        store: &Store,
        org: OrgId,
        now: TimestampMs,
    ) -> (Arc<Organisation>, Arc<Spent>) {
        let own = self.of(org);
        let mut looked = own.looked.lock().await;
        if let Some(known) = &*looked
            && known.at.elapsed() < FRESH_FOR
            && known.spent.month.has(now)
        {
            return (own.clone(), known.spent.clone());
        }
        let at = Instant::now();
        let (at, spent) = match store.spent(org, now).await {
            Ok(spent) => {
                // The costs of a request that ended before the sums were made are in them.
                let covered = spent.age.and_then(|age| at.checked_sub(age));
                own.requests().ended.retain(|(ended, _)| Some(*ended) >= covered);
                (at, Arc::new(spent))
            }
            Err(error) => {
                warn!(%error, "what an organisation has spent cannot be read; what was known last counts");
                let known = looked.as_ref().map(|known| known.spent.clone());
                let none = || Arc::new(Spent { month: Month::of(now), ..Spent::default() });
                // Counted from now: the others do not wait for the same answer one after the other.
                (Instant::now(), known.filter(|spent| spent.month.has(now)).unwrap_or_else(none))
            }
        };
        *looked = Some(Looked { at, spent: spent.clone() });
        drop(looked);
        (own, spent)
    }

    /// Returns who may begin no turn.
    pub(crate) async fn stop(
        &self,
        store: &Store,
        org: OrgId,
        now: TimestampMs,
    ) -> Arc<SpendingStop> {
        let (_, spent) = self.look(store, org, now).await;
        if spent.limits.is_empty() {
            return Arc::default();
        }
        let people = spent.people.keys().chain(spent.limits.keys());
        let people = people.filter_map(|person| {
            let reached = reached(&spent, Whose::Person(person))?;
            Some((person.clone(), reached))
        });
        Arc::new(SpendingStop {
            organisation: reached(&spent, Whose::Organisation),
            people: people.collect(),
        })
    }

    /// Counts a request that may cost `most`, if it may be sent.
    pub(crate) async fn ask(
        &self,
        store: &Store,
        org: OrgId,
        now: TimestampMs,
        person: &str,
        most: i64,
    ) -> Allowed {
        let (own, spent) = self.look(store, org, now).await;
        if spent.limits.is_empty() {
            return Allowed::Go(None);
        }
        let mut requests = own.requests();
        for whose in [Whose::Organisation, Whose::Person(person)] {
            let Some(limit) = spent.limit(whose.key()) else { continue };
            if let Some(reached) = reached(&spent, whose) {
                return Allowed::Stop(reached);
            }
            let ended = requests.ended.iter().map(|(_, request)| request);
            let uncounted = requests.running.values().chain(ended);
            let uncounted: i64 = uncounted
                .filter(|request| whose.has(&request.person))
                .fold(0, |sum, request| sum.saturating_add(request.most));
            if uncounted.saturating_add(spent.of(whose.key())) >= limit {
                return Allowed::Wait;
            }
        }
        requests.last += 1;
        let id = requests.last;
        requests.running.insert(id, Request { person: person.to_owned(), most });
        drop(requests);
        Allowed::Go(Some(Counted { of: own, id }))
    }
}

/// Whose limit it is.
#[derive(Clone, Copy)]
enum Whose<'a> {
    Organisation,
    Person(&'a str),
}

impl Whose<'_> {
    fn key(&self) -> &str {
        match self {
            Self::Organisation => store::ORGANISATION,
            Self::Person(person) => person,
        }
    }

    fn has(&self, person: &str) -> bool {
        match self {
            Self::Organisation => true,
            Self::Person(own) => *own == person,
        }
    }
}

/// The error of a limit that is reached.
fn reached(spent: &Spent, whose: Whose<'_>) -> Option<SessionError> {
    let limit = spent.limit(whose.key())?;
    let used = spent.of(whose.key());
    if used < limit {
        return None;
    }
    let whose = match whose {
        Whose::Organisation => "the organisation's limit",
        Whose::Person(_) => "the limit of whoever wrote the prompt",
    };
    let message = format!(
        "{whose} of {} a month is reached: {} is spent. A new month begins on {} (UTC). An administrator can raise \
         the limit with `opencode-cloud limit set`; send another prompt then",
        usd(limit),
        usd(used),
        spent.month.next_day(),
    );
    Some(SessionError { code: ErrorCode::LimitSpending.into(), message })
}

/// Formats billionths of a dollar, in cents, rounded up.
fn usd(nanos: i64) -> String {
    let cents = nanos.max(0).unsigned_abs().div_ceil(10_000_000);
    format!("{}.{:02} USD", cents / 100, cents % 100)
}

impl<'r> Drain<'r> {
    /// Waits until the next request of `plan` may be sent, while the rest of the turn continues. A body that is too large
    /// is never sent.
    pub(crate) async fn allowed(
        &mut self,
        plan: &TurnPlan,
        turn: &mut Turn<'r>,
    ) -> Result<Allowed, Stop> {
        if let Err(too_large) = plan.check_body() {
            return Ok(Allowed::Stop(too_large));
        }
        let runtime = self.stage.runtime;
        let org = self.stage.session.org;
        let most = plan.started.pricing.as_ref().map_or(0, |pricing| pricing.estimate.cost);
        loop {
            let author = self.log.history().author().cloned();
            let person = author.as_ref().map_or("", |author| author.person());
            let now = runtime.clock.now_ms();
            match runtime.spending.ask(&runtime.store, org, now, person, most).await {
                Allowed::Wait => {
                    if self.finish_bodies(turn, PAUSE).await? {
                        return Ok(Allowed::Interrupted);
                    }
                }
                decided @ (Allowed::Go(_) | Allowed::Stop(_) | Allowed::Interrupted) => {
                    return Ok(decided);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
