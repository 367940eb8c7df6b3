use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::{LocationId, OrgId, ProjectId, SessionId};
use store::SessionRow;

/// The most sessions to remember. Beyond that, all are forgotten and learnt again.
const MAX_HOMES: usize = 100_000;

/// The Location of a session, until it moves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) project: ProjectId,
    pub(crate) location: LocationId,
    /// The Location's directory.
    pub(crate) directory: String,
}

/// A cache of sessions' homes, which saves admission a query. An entry may be stale, since a session can move, or be
/// deleted and created again elsewhere. Only use it where the next statement notices that, as admission does.
#[derive(Default)]
pub(crate) struct Homes {
    known: Mutex<HashMap<(OrgId, SessionId), Arc<Home>>>,
}

impl Homes {
    pub(crate) fn of(&self, org: OrgId, session: &SessionId) -> Option<Arc<Home>> {
        self.lock().get(&(org, session.clone())).cloned()
    }

    pub(crate) fn remember(&self, row: SessionRow) -> Arc<Home> {
        let SessionRow { at, project, directory, .. } = row;
        let home = Arc::new(Home { project, location: at.location, directory });
        let mut known = self.lock();
        if known.len() >= MAX_HOMES {
            known.clear();
        }
        known.insert((at.org, at.session), home.clone());
        home
    }

    pub(crate) fn forget(&self, org: OrgId, session: &SessionId) {
        self.lock().remove(&(org, session.clone()));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(OrgId, SessionId), Arc<Home>>> {
        // No foreign code runs under this lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
