use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Generation, LocationRef, SessionRef};

use super::Host;
use super::job::{Job, Waiter};
use super::leader::Leading;
use crate::rules::choose;

/// The most Locations with ready sessions in one page of a sweep.
pub const SWEEP_LIMIT: u32 = 1_000;

/// The timeout of one look at the store.
const LOOK_TIME: Duration = Duration::from_secs(2);
/// The shortest time between two sweeps, however often one is requested.
const BREATH: Duration = Duration::from_millis(100);

/// A failure of the store. It is logged, and the next sweep tries again.
pub type ReadyWorkError = Box<dyn Error + Send + Sync>;

/// The store, as placement sees it: ready sessions, and the generation. (The store uses the role `oc_sched`,
/// which can read only ids.)
#[async_trait]
pub trait ReadyWork: Send + Sync + 'static {
    /// Returns one *ready* session of each Location that has any, up to `limit`, in a fixed order of
    /// Locations, beginning after `after`. The store does not know who holds a Location. Placement does, and
    /// reads page by page, so that held Locations do not hide the others.
    ///
    /// # Errors
    /// Any: the sweep continues at its next tick.
    async fn unplaced(
        &self,
        after: Option<&LocationRef>,
        limit: u32,
    ) -> Result<Vec<SessionRef>, ReadyWorkError>;

    /// Returns the current generation for new tokens. A new leader asks for it, because it may have been
    /// raised after the member started (`placement init`, a restore). `None`: not known here.
    ///
    /// # Errors
    /// Any: the leader of a group with tokens continues with its own generation.
    async fn generation(&self) -> Result<Option<Generation>, ReadyWorkError> {
        Ok(None)
    }

    /// Returns the generation for the first tokens of a new group: one whose tokens outrank every fence in
    /// the store. Raises it if an earlier group, whose folder was lost, has used the current one.
    ///
    /// # Errors
    /// Any: the new group waits, and leases nothing meanwhile.
    async fn first_generation(&self) -> Result<Option<Generation>, ReadyWorkError> {
        self.generation().await
    }
}

/// Returns the generation for the group's new tokens.
async fn generation(host: &Host) -> Result<Option<Generation>, ReadyWorkError> {
    if host.is_new() {
        host.ready_work.first_generation().await
    } else {
        host.ready_work.generation().await
    }
}

/// Raises the leader's generation to the store's. A group with tokens continues if the store does not answer.
/// A new group waits, because its first tokens must outrank all earlier ones.
pub(crate) async fn read_generation(host: &Host) {
    let mut told = false;
    loop {
        let asked = tokio::time::timeout(LOOK_TIME, generation(host)).await;
        let error: ReadyWorkError = match asked {
            Ok(Ok(known)) => {
                host.raise_generation(known.unwrap_or_default());
                return;
            }
            Ok(Err(error)) => error,
            Err(_) => "no answer in time".into(),
        };
        if !host.is_new() {
            tracing::warn!(%error, "the generation cannot be read; the group goes on with its own");
            return;
        }
        if !told {
            tracing::warn!(%error, "the generation cannot be read; a new group waits for it");
            told = true;
        }
        tokio::time::sleep(BREATH).await;
    }
}

/// Places ready sessions whose Location no live worker holds. This is why a lost hint costs only latency. The
/// holders sweep held Locations themselves.
pub(crate) async fn sweep(host: &Host, leading: &Leading) {
    let mut after: Option<LocationRef> = None;
    let mut failures = 0_u32;
    loop {
        let mut hurry = false;
        if host.has_majority() && someone_takes_work(host, leading) {
            let look = host.ready_work.unplaced(after.as_ref(), SWEEP_LIMIT);
            let looked = match tokio::time::timeout(LOOK_TIME, look).await {
                Ok(looked) => looked,
                Err(_) => Err(format!("no answer in {LOOK_TIME:?}").into()),
            };
            match looked {
                Ok(page) => {
                    failures = 0;
                    (after, hurry) = place(host, leading, page);
                }
                Err(error) => {
                    if failures.is_multiple_of(60) {
                        tracing::warn!(%error, "ready sessions could not be read; only hints place them");
                    }
                    failures = failures.wrapping_add(1);
                }
            }
        }
        tokio::time::sleep(BREATH.min(host.timing.sweep)).await;
        // After a full page there are more, even if all of it was held. A lost wake among 64,000 running
        // sessions is found within seconds.
        if !hurry {
            let rest = host.timing.sweep.saturating_sub(BREATH);
            let _ = tokio::time::timeout(rest, leading.sweep_asked()).await;
        }
    }
}

fn someone_takes_work(host: &Host, leading: &Leading) -> bool {
    let load = leading.load(host);
    let anywhere = LocationRef {
        org: domain::OrgId::FIRST,
        location: "loc_any".parse().expect("the form of an id"),
    };
    host.state.read(|state| choose(state, &load, &anywhere, None)).is_some()
}

/// Submits a job for each session without a holder. Returns the start of the next page (`None`: the
/// beginning), and whether this page was full.
fn place(host: &Host, leading: &Leading, page: Vec<SessionRef>) -> (Option<LocationRef>, bool) {
    let full = page.len() >= SWEEP_LIMIT as usize;
    let mut last = None;
    for session in page {
        let location = session.location_ref();
        let next = Some(location.clone());
        if host.state.read(|state| state.holder(&location).is_none()) {
            let waiter = Waiter { session: Some(session.session.clone()), tries: 0, reply: None };
            if leading.submit(Job::Place { location, waiter }).is_err() {
                return (last, false); // the writer is busy, so the next sweep begins here
            }
        }
        last = next;
    }
    (last.filter(|_| full), full)
}
