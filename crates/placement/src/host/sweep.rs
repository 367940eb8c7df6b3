use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use domain::{Generation, LocationRef, SessionRef};

use super::Host;
use super::job::{Job, Waiter};
use super::leader::Leading;
use crate::rules::choose;

/// Locations with ready sessions that one page of a sweep has.
pub const SWEEP_LIMIT: u32 = 1_000;

/// How long one look at the store may take.
const LOOK_TIME: Duration = Duration::from_secs(2);
/// The least time between two sweeps, however often one is asked for.
const BREATH: Duration = Duration::from_millis(100);

/// What the store could not answer; logged, and asked again at the next sweep.
pub type ReadyWorkError = Box<dyn Error + Send + Sync>;

/// The store, as placement sees it: which sessions are ready, and the generation. (The store asks as role
/// `oc_sched`, which reads ids and nothing else.)
#[async_trait]
pub trait ReadyWork: Send + Sync + 'static {
    /// One *ready* session of each Location that has any, up to `limit`, in one fixed order of Locations and
    /// beginning after `after`. The store does not know who holds a Location; placement does, and walks on page by
    /// page so that held ones do not hide the others.
    ///
    /// # Errors
    /// Anything: the sweep goes on at its next tick.
    async fn unplaced(
        &self,
        after: Option<&LocationRef>,
        limit: u32,
    ) -> Result<Vec<SessionRef>, ReadyWorkError>;

    /// What new tokens must begin with, as it stands now; a member that becomes leader asks, since it may
    /// have been raised after the member started (`placement init`, a restore). `None`: not known here.
    ///
    /// # Errors
    /// Anything: a leader of a group that has tokens goes on with its own.
    async fn generation(&self) -> Result<Option<Generation>, ReadyWorkError> {
        Ok(None)
    }

    /// What the first tokens of a group that was just founded must begin with: a generation whose tokens outrank every
    /// fence in the store. Raises it where an earlier group, whose folder was lost, has used the one that there is.
    ///
    /// # Errors
    /// Anything: the new group waits, and leases nothing meanwhile.
    async fn first_generation(&self) -> Result<Option<Generation>, ReadyWorkError> {
        self.generation().await
    }
}

/// What new tokens of the group must begin with.
async fn generation(host: &Host) -> Result<Option<Generation>, ReadyWorkError> {
    if host.is_new() {
        host.ready_work.first_generation().await
    } else {
        host.ready_work.generation().await
    }
}

/// Brings the leader's generation up to the store's. A group that has minted tokens goes on without the
/// store's word; one that has not waits for it, for its first tokens must outrank all earlier ones.
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

/// Places ready sessions whose Location nobody alive holds: what makes a lost hint cost latency only.
/// Held Locations are left to their holders, who sweep themselves.
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
        // Where a page was full there is more, also when all of it was held: a wake that was lost among 64,000
        // running sessions is found within seconds.
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
    host.state.read(|state| choose(state, &load, &anywhere)).is_some()
}

/// Asks for a holder for each that has none. Returns where the next page begins (`None`: at the beginning), and
/// whether this one was full.
fn place(host: &Host, leading: &Leading, page: Vec<SessionRef>) -> (Option<LocationRef>, bool) {
    let full = page.len() >= SWEEP_LIMIT as usize;
    let mut last = None;
    for session in page {
        let location = session.location_ref();
        let next = Some(location.clone());
        if host.state.read(|state| state.holder(&location).is_none()) {
            let waiter = Waiter { session: Some(session.session.clone()), tries: 0, reply: None };
            if leading.submit(Job::Place { location, waiter }).is_err() {
                return (last, false); // the writer is busy: the next sweep begins here
            }
        }
        last = next;
    }
    (last.filter(|_| full), full)
}
