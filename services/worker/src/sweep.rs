use std::time::Duration;

use domain::{LocationRef, OrgId, SessionId, SessionRef};
use store::{HeadState, Store, StoreError};

/// Ready sessions that one sweep takes up at the most; the next one finds the rest.
const READY: i64 = 1_000;

/// What a look at the store found.
pub(crate) struct Found {
    /// Sessions of held Locations that wait for a drain, or that a drain has.
    pub(crate) ready: Vec<SessionRef>,
    /// The heads of sessions that are drained here.
    pub(crate) heads: Vec<HeadState>,
}

/// Looks at what hints may have failed to tell, in two queries.
pub(crate) async fn look(
    store: &Store,
    held: Vec<LocationRef>,
    draining: Vec<(OrgId, SessionId)>,
) -> Result<Found, StoreError> {
    let ready = if held.is_empty() {
        Vec::new()
    } else {
        store.ready_sessions_at(&held, READY).await?.into_iter().map(|row| row.session).collect()
    };
    let heads = if draining.is_empty() { Vec::new() } else { store.heads(&draining).await? };
    Ok(Found { ready, heads })
}

/// How long a store that failed is left alone.
pub(crate) const BACK_OFF: Duration = Duration::from_secs(1);
