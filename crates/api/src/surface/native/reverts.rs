//! Takes a session back to before a message, and forward again. The request is held until that is done, because only
//! the worker can restore the files.

use axum::Json;
use axum::extract::{Path, State};
use domain::{Control, Delivery, IdMint, MessageId, Stamp};
use schemars::JsonSchema;
use serde::Deserialize;
use store::{InboxChange, Messages, SessionRow, StoreError};

use crate::ApiState;
use crate::act::{Asked, announce};
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::dialect::Dialect;
use crate::surface::extract::{Body, CanPrompt};
use crate::text::id;
use crate::view::SessionView;

/// The part of the session to take back.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct RevertRequest {
    /// The control's id.
    id: Option<String>,
    #[serde(rename = "messageID")]
    message_id: Option<String>,
    #[serde(rename = "partID")]
    part_id: Option<String>,
    files: Option<bool>,
}

/// A request to bring back everything that was taken back.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct UnrevertRequest {
    /// The control's id.
    id: Option<String>,
}

/// Takes back everything from a message on, and returns the session afterwards.
pub(crate) async fn revert(
    access: CanPrompt,
    dialect: Dialect,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Body(request): Body<RevertRequest>,
) -> Result<Json<SessionView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let text = request.message_id.as_deref();
    let text = text.ok_or_else(|| ApiError::invalid("say `messageID`: the first message to go"))?;
    let message: MessageId = id(text)?;
    if request.part_id.is_some() {
        return Err(ApiError::invalid(
            "a revert goes back to before a whole message: leave `partID` out",
        ));
    }
    let message = match dialect {
        Dialect::Native => message,
        Dialect::Stock => question_of(&state, &row, message).await?,
    };
    let control = Control::Revert { message, files: request.files.unwrap_or(true) };
    let row = act(&state, row, request.id.as_deref(), control).await?;
    dialect.session(&state, row).await
}

/// Returns the message from which a released client wants to go back: of an answer, the question goes too.
async fn question_of(
    state: &ApiState,
    row: &SessionRow,
    message: MessageId,
) -> Result<MessageId, ApiError> {
    let (org, session) = (row.at.org, row.at.session.clone());
    let which = Messages::One(message.clone());
    match state.store().transcript(org, session, which, 1).await {
        Ok(read) => Ok(read.messages.into_iter().find_map(|row| row.parent).unwrap_or(message)),
        // The worker says that there is none, as to everybody.
        Err(StoreError::NotFound) => Ok(message),
        Err(error) => Err(error.into()),
    }
}

/// Brings back everything that was taken back, and returns the session afterwards.
pub(crate) async fn unrevert(
    access: CanPrompt,
    dialect: Dialect,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Body(request): Body<UnrevertRequest>,
) -> Result<Json<SessionView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let row = act(&state, row, request.id.as_deref(), Control::Unrevert).await?;
    dialect.session(&state, row).await
}

async fn act(
    state: &ApiState,
    row: SessionRow,
    asked: Option<&str>,
    control: Control,
) -> Result<SessionRow, ApiError> {
    let now = state.clock().now_ms();
    let message: MessageId = match asked {
        Some(text) => id(text)?,
        None => MessageId::mint(&mut IdMint::after(Stamp::default(), now)),
    };
    let asked = Asked { message, delivery: Delivery::Steer, control, wake: true };
    asked.done(state, &row).await?;
    Ok(state.store().session(row.at.org, row.at.session).await?)
}

/// Makes a staged Revert final. Nothing changes if none is staged.
pub(crate) async fn commit(
    access: CanPrompt,
    dialect: Dialect,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<Json<SessionView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let (store, session, now) = (state.store(), row.at.session.clone(), state.clock().now_ms());
    if let InboxChange::Done { seq, .. } =
        store.commit_revert(access.org, session.clone(), now).await?
    {
        announce(&state, &row.at, seq, false);
    }
    let row = store.session(access.org, session).await?;
    dialect.session(&state, row).await
}
