//! Moves a session to another Location at its turn in the inbox.

use domain::{Control, Delivery, IdMint, MessageId, Stamp};
use schemars::JsonSchema;
use serde::Deserialize;
use store::{LocationKind, LocationRow, SessionRow};

use super::control::Asked;
use super::resolve::{self, MANAGED, workspace};
use crate::ApiState;
use crate::error::ApiError;
use crate::text::id;

/// The destination of a Move, and its place in the inbox.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct MoveRequest {
    /// The control's id.
    pub(crate) id: Option<String>,
    pub(crate) directory: Option<String>,
    pub(crate) location: Option<String>,
    /// Whether to copy the files to a new workspace.
    #[serde(default)]
    pub(crate) carry: bool,
    pub(crate) delivery: Option<Delivery>,
    pub(crate) resume: Option<bool>,
}

/// Returns the control for a request, with its destination resolved.
pub(crate) async fn asked(
    state: &ApiState,
    row: &SessionRow,
    request: MoveRequest,
) -> Result<Asked, ApiError> {
    let now = state.clock().now_ms();
    let message: MessageId = match request.id.as_deref() {
        Some(text) => id(text)?,
        None => MessageId::mint(&mut IdMint::after(Stamp::default(), now)),
    };
    let (directory, location) = (request.directory.as_deref(), request.location.as_deref());
    let to = destination(state, row, &message, directory, location, request.carry).await?;
    let control = Control::Move {
        project: to.project,
        location: to.id,
        directory: to.directory,
        carry: request.carry,
    };
    let delivery = request.delivery.unwrap_or_default();
    Ok(Asked { message, delivery, control, wake: request.resume.unwrap_or(true) })
}

async fn destination(
    state: &ApiState,
    row: &SessionRow,
    message: &MessageId,
    directory: Option<&str>,
    location: Option<&str>,
    carry: bool,
) -> Result<LocationRow, ApiError> {
    let (store, org, now) = (state.store(), row.at.org, state.clock().now_ms());
    match (directory, location, carry) {
        (Some(directory), None, false) => {
            let workspace = workspace(state.settings(), Some(directory)).await?;
            Ok(resolve::location(store, org, workspace, now).await?.1)
        }
        (None, Some(location), false) => Ok(store.location(org, id(location)?).await?),
        // A retry has the same message id, so it gets the same workspace.
        (None, None, true) => {
            let (project, kind) = (row.project.clone(), LocationKind::Managed);
            let directory = format!("{MANAGED}/{message}");
            Ok(store.ensure_location(org, project, kind, directory, now).await?)
        }
        (_, _, true) => Err(ApiError::invalid(
            "`carry` takes the files to a new workspace: leave `directory` and `location` out",
        )),
        (Some(_), Some(_), false) | (None, None, false) => {
            Err(ApiError::invalid("say where to: `directory` or `location`, or `carry`"))
        }
    }
}
