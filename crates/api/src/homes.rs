use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::{OrgId, ProjectId, SessionId};

/// Sessions remembered; beyond it, all are forgotten and learnt anew.
const MAX_HOMES: usize = 100_000;

/// Which project a session belongs to: it never changes, and saves admission a query. A deleted session
/// is found out by the admission itself.
#[derive(Default)]
pub(crate) struct Homes {
    known: Mutex<HashMap<(OrgId, SessionId), ProjectId>>,
}

impl Homes {
    pub(crate) fn is_home(&self, org: OrgId, session: &SessionId, project: &ProjectId) -> bool {
        self.lock().get(&(org, session.clone())) == Some(project)
    }

    pub(crate) fn remember(&self, org: OrgId, session: SessionId, project: ProjectId) {
        let mut known = self.lock();
        if known.len() >= MAX_HOMES {
            known.clear();
        }
        known.insert((org, session), project);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(OrgId, SessionId), ProjectId>> {
        // No code of others runs under this lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
