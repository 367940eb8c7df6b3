//! A database that does not answer, is another one, or came back without some commits: what this worker holds is given
//! back to whoever can write, and what it knows is forgotten.

use std::collections::HashSet;

use domain::{LocationRef, SessionRef};
use tracing::warn;

use super::Executor;

impl Executor {
    /// Forgets what was read of a database that is another one now. Running drains go on: each of their writes proves the
    /// log that it was decided on.
    pub(super) fn forget_database(&mut self) {
        self.cache.clear();
        self.parts.runtime.stored.forget_all();
        self.held.values_mut().for_each(|held| held.outlived = true);
        self.give_back_outlived();
    }

    /// Gives those Locations back at which nothing runs and whose database has become another one. Whoever gets them next
    /// reads what there is of their files.
    pub(super) fn give_back_outlived(&mut self) {
        if !self.held.values().any(|held| held.outlived) {
            return;
        }
        let busy: HashSet<LocationRef> =
            self.running.keys().map(SessionRef::location_ref).collect();
        let outlived = self
            .held
            .iter()
            .filter(|(at, held)| held.outlived && held.workspace.is_some() && !busy.contains(*at));
        let outlived: Vec<LocationRef> = outlived.map(|(at, _)| at.clone()).collect();
        outlived.iter().for_each(|at| self.give_back(at));
    }

    /// Gives the Location of a session back whose log is not the one that its drain knew: of its files, too, more may be
    /// known than the database has rows for. Whoever gets it next begins with what is there.
    pub(super) fn went_back(&mut self, session: &SessionRef) {
        warn!(
            session.id = %session.session,
            "the log lacks events that were read before; its work begins again with what the database has"
        );
        self.give_back(&session.location_ref());
    }

    /// Gives all Locations back, because this worker can write nothing for them and another one can. Drains continue
    /// until the store answers, which fences those whose sessions another worker has taken over.
    pub(super) fn hand_over(&mut self) {
        if self.pulse.is_stranded() && !self.held.is_empty() {
            warn!(
                locations = self.held.len(),
                "the database does not answer here: other workers go on"
            );
            let held: Vec<LocationRef> = self.held.keys().cloned().collect();
            held.iter().for_each(|at| self.give_back(at));
        }
    }
}
