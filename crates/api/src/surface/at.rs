use domain::{OrgId, ProjectId, SessionId};
use serde::Deserialize;
use store::SessionRow;

use crate::ApiState;
use crate::error::ApiError;
use crate::text::id;

/// The session in a path: below its project, or alone (`/platform/session/…` and the stock dialect).
#[derive(Debug, Deserialize)]
pub(crate) struct At {
    project: Option<String>,
    session: String,
}

impl At {
    /// Returns the session if it belongs to the organisation, and to the project in the path if there is one.
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

/// Returns the session if it belongs to the organisation and the project.
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
