use std::time::Duration;

use domain::{Claim, LocationRef, SessionRef};
use store::{HeadState, Store, StoreError};

/// The most ready sessions that one sweep takes up; the next one finds the rest.
const READY: i64 = 1_000;
/// How long a look may take. A store that takes longer counts as unreachable.
const LOOK_TIME: Duration = Duration::from_secs(3);

/// A drain as it was when a look was asked.
pub(crate) struct Watched {
    pub(crate) session: SessionRef,
    /// The drain's number on this worker. The session may have another drain by the time of the answer.
    pub(crate) drain: u64,
    /// Its claim at that time.
    pub(crate) claim: Option<Claim>,
}

impl Watched {
    /// Returns whether the drain has lost its session: it is deleted, or another drain has claimed it. `head` is the
    /// look's result, and `now` the drain's current claim. If the drain has claimed since the look, the look says
    /// nothing.
    pub(crate) fn is_fenced(&self, head: Option<&HeadState>, now: Option<Claim>) -> bool {
        match head {
            None => true,
            Some(head) => self.claim == now && self.claim.is_some_and(|claim| head.claim != claim),
        }
    }
}

/// The reason why a look failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store did not answer in time.
    #[error("the database did not answer within {} s", LOOK_TIME.as_secs())]
    Late,
}

/// The result of a look at the store.
pub(crate) struct Found {
    /// How often the database was another one, or came back without some commits.
    pub(crate) databases: u64,
    /// Sessions of held Locations that wait for a drain or have one.
    pub(crate) ready: Vec<SessionRef>,
    /// The watched drains, each with its session's head; `None` if the session is deleted.
    pub(crate) watched: Vec<(Watched, Option<HeadState>)>,
}

/// Looks for what lost hints may have missed, with three queries. Asks even if nothing is held and nothing runs: a
/// worker that cannot reach the store must notice before it gets work.
pub(crate) async fn look(
    store: &Store,
    held: Vec<LocationRef>,
    watched: Vec<Watched>,
) -> Result<Found, LookError> {
    let asked = async {
        let databases = store.look_at_database().await?;
        let ready = if held.is_empty() {
            Vec::new()
        } else {
            let rows = store.ready_sessions_at(&held, READY).await?;
            rows.into_iter().map(|row| row.session).collect()
        };
        let names: Vec<_> = watched
            .iter()
            .map(|watched| (watched.session.org, watched.session.session.clone()))
            .collect();
        let mut heads = store.heads(&names).await?;
        let mut head_of = |session: &SessionRef| {
            let is_its =
                |head: &HeadState| head.org == session.org && head.session == session.session;
            heads.iter().position(is_its).map(|at| heads.swap_remove(at))
        };
        let watched = watched.into_iter().map(|watched| {
            let head = head_of(&watched.session);
            (watched, head)
        });
        let watched = watched.collect();
        Ok(Found { databases, ready, watched })
    };
    tokio::time::timeout(LOOK_TIME, asked).await.unwrap_or(Err(LookError::Late))
}

/// How long a store that failed is left alone.
pub(crate) const BACK_OFF: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use domain::{OrgId, Seq, SessionIncarnation};

    use super::*;

    fn watched(claim: Option<i64>) -> Watched {
        let session = SessionRef {
            org: OrgId::FIRST,
            location: "loc_a".parse().expect("an id"),
            session: "ses_a".parse().expect("an id"),
        };
        Watched { session, drain: 1, claim: claim.map(Claim) }
    }

    fn head(claim: i64) -> HeadState {
        HeadState {
            org: OrgId::FIRST,
            session: "ses_a".parse().expect("an id"),
            incarnation: SessionIncarnation(1),
            claim: Claim(claim),
            interrupt_seq: Seq(0),
            seq: Seq(1),
        }
    }

    // Finding store 8: deleting a session did not stop its tools.
    #[test]
    fn a_drain_of_a_deleted_or_remade_session_is_fenced() {
        let five = Some(Claim(5));
        assert!(watched(Some(5)).is_fenced(None, five), "deleted");
        assert!(watched(None).is_fenced(None, five), "deleted before the claim was known");
        assert!(watched(Some(5)).is_fenced(Some(&head(6)), five), "taken over");
        assert!(watched(Some(5)).is_fenced(Some(&head(2)), five), "made anew: claims begin again");
        assert!(!watched(Some(5)).is_fenced(Some(&head(5)), five));
        // The look and the drain's own claim have crossed.
        assert!(!watched(None).is_fenced(Some(&head(4)), five));
        assert!(!watched(Some(4)).is_fenced(Some(&head(4)), five));
    }
}
