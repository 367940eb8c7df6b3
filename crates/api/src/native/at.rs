use domain::{OrgId, ProjectId, SessionId, SessionRef};
use serde::Deserialize;
use store::SessionRow;

use crate::ApiState;
use crate::error::ApiError;
use crate::extract::id;

/// The session that a path names: below its project, or alone (`/platform/session/…`, the stock dialect).
#[derive(Debug, Deserialize)]
pub(crate) struct At {
    project: Option<String>,
    session: String,
}

impl At {
    /// The session, if it is the organisation's and of the project that the path names.
    pub(crate) async fn find(&self, state: &ApiState, org: OrgId) -> Result<SessionRow, ApiError> {
        let session: SessionId = id(&self.session)?;
        let project = self.project.as_deref().map(id::<ProjectId>).transpose()?;
        let row = state.store().session(org, session).await?;
        match project {
            Some(project) if project != row.project => Err(ApiError::NotFound("session was")),
            _ => Ok(row),
        }
    }
}

/// Tells of a change of a session's log: its followers here and elsewhere, and its worker if it is to run.
pub(crate) fn announce(state: &ApiState, at: &SessionRef, seq: domain::Seq, wake: bool) {
    if wake {
        state.waker().wake(at.clone());
    }
    state.waker().committed(at, seq);
    state.feeds().touch(at);
}
