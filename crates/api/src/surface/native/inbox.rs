//! The inputs that wait in a session's inbox: prompts and controls.

use axum::Json;
use axum::extract::{Path, State};
use domain::{Control, ControlAdmitted, Delivery, MessageId, PromptPart, Seq, SessionRef};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use store::{AdmittedControl, ControlAdmission, InboxChange, InboxItem, InboxRow, StoreError};

use super::messages::{AdmittedView, admit_and_show};
use crate::ApiState;
use crate::act::{AdmitRequest, CompactRequest, admit_compaction, announce};
use crate::error::ApiError;
use crate::surface::at::At;
use crate::surface::extract::{Body, CanPrompt, CanRead, LargeRead, Params};
use crate::surface::paged::Paged;
use crate::text::{id, plain};

/// The most inputs in one answer.
const MAX_INBOX: i64 = 1_000;
const MAX_DESCRIPTION_CHARS: usize = 200;

/// An input that waits.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct InboxView {
    id: String,
    /// `prompt`, `synthetic`, `compaction`, `move`, `revert` or `unrevert`.
    kind: &'static str,
    delivery: &'static str,
    seq: i64,
    time: Created,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    texts: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Created {
    created: i64,
}

impl From<InboxRow> for InboxView {
    fn from(row: InboxRow) -> Self {
        let (kind, description, texts) = match row.item {
            InboxItem::Prompt(prompt) => {
                let text = |part| match part {
                    PromptPart::Text { text, .. } => text,
                };
                let kind = if prompt.synthetic.is_some() { "synthetic" } else { "prompt" };
                (kind, prompt.synthetic, prompt.parts.into_iter().map(text).collect())
            }
            InboxItem::Control(ControlAdmitted { control, .. }) => {
                let kind = match control {
                    Control::Compaction => "compaction",
                    Control::Move { .. } => "move",
                    Control::Revert { .. } => "revert",
                    Control::Unrevert => "unrevert",
                };
                (kind, None, Vec::new())
            }
        };
        Self {
            id: row.id.into(),
            kind,
            delivery: row.delivery.as_str(),
            seq: row.seq.0,
            time: Created { created: row.admitted_ms },
            description,
            texts,
        }
    }
}

pub(crate) async fn list(
    access: CanRead,
    _large: LargeRead,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Params(query): Params<InboxQuery>,
) -> Result<Paged<Vec<InboxView>>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let after = Seq(query.after.unwrap_or(0));
    let inbox = state.store().inbox(access.org, row.at.session, after, MAX_INBOX).await?;
    let next = inbox.items.last().filter(|_| inbox.more).map(|last| last.seq.0.to_string());
    Ok(Paged { items: inbox.items.into_iter().map(InboxView::from).collect(), next })
}

/// Where a page of the inbox begins.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct InboxQuery {
    after: Option<i64>,
}

/// The input in a path, after the session.
#[derive(Debug, Deserialize)]
pub(crate) struct Input {
    message: String,
}

/// Takes an input out of the inbox. It is no error if the input has already left.
pub(crate) async fn cancel(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Path(input): Path<Input>,
) -> Result<StatusCode, ApiError> {
    let row = at.find(&state, access.org).await?;
    let (store, now) = (state.store(), state.clock().now_ms());
    let input: MessageId = id(&input.message)?;
    let done = store.cancel_input(access.org, row.at.session.clone(), input, now).await?;
    changed(&state, row.at, done, false);
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "InputChangeRequest")]
pub(crate) struct ChangeRequest {
    delivery: Option<Delivery>,
}

/// The new delivery of an input.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ChangedView {
    id: String,
    delivery: &'static str,
}

pub(crate) async fn change(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Path(input): Path<Input>,
    Body(request): Body<ChangeRequest>,
) -> Result<Json<ChangedView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let input: MessageId = id(&input.message)?;
    let to = request
        .delivery
        .ok_or_else(|| ApiError::invalid("say `delivery`: \"steer\" or \"queue\""))?;
    let (session, now) = (row.at.session.clone(), state.clock().now_ms());
    match state.store().change_delivery(access.org, session, input.clone(), to, now).await {
        Ok(done) => changed(&state, row.at, done, to == Delivery::Steer),
        Err(StoreError::Conflict { .. }) => {
            return Err(ApiError::Conflict(format!(
                "the input does not wait any more, or its delivery is `{}` already",
                to.as_str()
            )));
        }
        Err(StoreError::NotFound) => return Err(ApiError::NotFound("an input with this id was")),
        Err(error) => return Err(error.into()),
    }
    Ok(Json(ChangedView { id: input.into(), delivery: to.as_str() }))
}

/// Announces a change of the inbox, if there was one.
fn changed(state: &ApiState, at: SessionRef, change: InboxChange, wake: bool) {
    if let InboxChange::Done { seq, location } = change {
        announce(state, &SessionRef { location, ..at }, seq, wake);
    }
}

/// Whether the session had something to resume.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ResumedView {
    resumed: bool,
}

/// Wakes a session for its waiting inputs, and for a prompt without an answer.
pub(crate) async fn resume(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(at): Path<At>,
) -> Result<Json<ResumedView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let (session, now) = (row.at.session.clone(), state.clock().now_ms());
    let done = state.store().wake_session(access.org, session, now).await?;
    let resumed = done != InboxChange::Unchanged;
    changed(&state, row.at, done, true);
    Ok(Json(ResumedView { resumed }))
}

/// A text for the model that no user wrote.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct SyntheticRequest {
    #[serde(flatten)]
    prompt: AdmitRequest,
    description: Option<String>,
}

pub(crate) async fn synthetic(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Body(request): Body<SyntheticRequest>,
) -> Result<Json<AdmittedView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    let description = plain(request.description.as_deref().unwrap_or("Synthetic input"));
    if description.chars().count() > MAX_DESCRIPTION_CHARS {
        return Err(ApiError::Invalid(format!(
            "a description has at most {MAX_DESCRIPTION_CHARS} characters"
        )));
    }
    let mut prompt = request.prompt;
    prompt.synthetic = Some(description);
    admit_and_show(&state, &access, row.at.session, prompt).await
}

/// A control that waits or has waited.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ControlView {
    id: String,
    seq: i64,
    delivery: &'static str,
    /// Whether this request admitted it. Otherwise an identical earlier request did, or a compaction already waits.
    first: bool,
}

impl From<AdmittedControl> for ControlView {
    fn from(admitted: AdmittedControl) -> Self {
        Self {
            id: admitted.control.message.into(),
            seq: admitted.seq.0,
            delivery: admitted.control.delivery.as_str(),
            first: admitted.admission == ControlAdmission::First,
        }
    }
}

pub(crate) async fn compact(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(at): Path<At>,
    Body(request): Body<CompactRequest>,
) -> Result<Json<ControlView>, ApiError> {
    let row = at.find(&state, access.org).await?;
    Ok(Json(admit_compaction(&state, &row, request).await?.into()))
}
