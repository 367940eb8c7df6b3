use domain::{OrgId, ProjectId, SessionId};
use serde::Deserialize;
use store::SessionRow;

use crate::ApiState;
use crate::error::ApiError;
use crate::text::id;

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

/// The session, if it belongs to the project that the path names.
pub(crate) async fn in_project(
    state: &ApiState,
    org: OrgId,
    project: &str,
    session: &str,
) -> Result<SessionRow, ApiError> {
    let (project, session): (ProjectId, SessionId) = (id(project)?, id(session)?);
    let row = state.store().session(org, session).await?;
    if row.project == project { Ok(row) } else { Err(ApiError::NotFound("session was")) }
}
