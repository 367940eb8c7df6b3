use std::time::Duration;

use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use domain::SessionId;
use futures::stream;
use http::header::{CONTENT_TYPE, LINK};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use serde::Serialize;
use serde_json::json;

use super::answer::{Client, Held};
use crate::ApiState;
use crate::act::{
    AdmitRequest, CommandRequest, InitRequest, admit, context, one, prompt_of, prompt_row,
    stock_transcript,
};
use crate::error::ApiError;
use crate::principal::Principal;
use crate::surface::Trickle;
use crate::surface::extract::{Body, CanPrompt, CanRead, LargeRead, Params};
use crate::surface::limit::MessageQuery;
use crate::surface::paged::{JsonText, Paged, link_to_next};
use crate::text::id;
use crate::view::{MessageView, all_as_stock, as_stock, message};

/// After this time the answer begins with white space, which JSON allows, so that no proxy closes the connection.
/// From then on its status is 200.
const SILENT_FOR: Duration = Duration::from_secs(10);

pub(crate) async fn list(
    access: CanRead,
    _large: LargeRead,
    State(state): State<ApiState>,
    Path(session): Path<String>,
    uri: Uri,
    Params(query): Params<MessageQuery>,
) -> Result<Response, ApiError> {
    let row = state.store().session(access.org, id(&session)?).await?;
    let (items, next) = stock_transcript(&state, &row, query.parse()?).await?;
    let link = next.as_deref().and_then(|next| link_to_next(&uri, next));
    let mut response = Paged { items, next }.into_response();
    response.headers_mut().extend(link.map(|link| (LINK, link)));
    Ok(response)
}

pub(crate) async fn show(
    access: CanRead,
    State(state): State<ApiState>,
    Path((session, message)): Path<(String, String)>,
) -> Result<Json<MessageView>, ApiError> {
    let row = state.store().session(access.org, id(&session)?).await?;
    let message = one(&state, &row, &message).await?;
    let shown = all_as_stock(&context(&state, &row), message).into_iter().next();
    shown.map(Json).ok_or(ApiError::NotFound("message was"))
}

/// Admits a prompt and answers with the assistant message that ends the work on it. The work continues if the client
/// disconnects.
pub(crate) async fn post(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(session): Path<String>,
    headers: HeaderMap,
    Body(request): Body<AdmitRequest>,
) -> Result<Response, ApiError> {
    let session = id(&session)?;
    if request.no_reply.unwrap_or(false) {
        let row = state.store().session(access.org, session).await?;
        let admitted = admit(&state, &access, row.at.session.clone(), request).await?;
        let context = context(&state, &row);
        let view = as_stock(&context, message(&context, &prompt_row(&admitted)));
        return Ok(Json(view).into_response());
    }
    answered(state, &access, session, request, &headers, keep_message).await
}

/// Runs a command like a prompt.
pub(crate) async fn command(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(session): Path<String>,
    headers: HeaderMap,
    Body(request): Body<CommandRequest>,
) -> Result<Response, ApiError> {
    let session = id(&session)?;
    let prompt = prompt_of(&state, access.org, &session, request).await?;
    answered(state, &access, session, prompt, &headers, keep_message).await
}

/// Runs the command `init`, and answers `true` when the work on it has ended.
pub(crate) async fn init_route(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(session): Path<String>,
    headers: HeaderMap,
    Body(request): Body<InitRequest>,
) -> Result<Response, ApiError> {
    let session = id(&session)?;
    let prompt = prompt_of(&state, access.org, &session, request.into()).await?;
    answered(state, &access, session, prompt, &headers, |_| true).await
}

fn keep_message(message: MessageView) -> MessageView {
    message
}

/// Admits a prompt and answers with `shape` of the message that ends the work on it.
async fn answered<T: Serialize + 'static>(
    state: ApiState,
    principal: &Principal,
    session: SessionId,
    request: AdmitRequest,
    headers: &HeaderMap,
    shape: fn(MessageView) -> T,
) -> Result<Response, ApiError> {
    let held = Held::admit(&state, principal, session, request, Client::of(headers)).await?;
    let mut answer = Box::pin(async move {
        let message = held.answer(state).await?;
        serde_json::to_vec(&shape(message)).map_err(ApiError::internal)
    });
    match tokio::time::timeout(SILENT_FOR, &mut answer).await {
        Ok(answered) => Ok(JsonText::<T>::new(answered?).into_response()),
        Err(_) => Ok(slow(answer)),
    }
}

/// Streams white space until the answer is there, then the answer.
fn slow(answer: impl Future<Output = Result<Vec<u8>, ApiError>> + Send + 'static) -> Response {
    let body = stream::unfold(Some(Box::pin(answer)), async |waiting| {
        let mut waiting = waiting?;
        let bytes = match tokio::time::timeout(SILENT_FOR, &mut waiting).await {
            Err(_) => return Some((Ok(Bytes::from_static(b" ")), Some(waiting))),
            Ok(Ok(bytes)) => bytes,
            Ok(Err(error)) => {
                let failure = error.failure();
                if let Some(cause) = &failure.cause {
                    tracing::error!(error = %cause, "a held request failed");
                }
                let error =
                    json!({ "name": "UnknownError", "data": { "message": failure.message } });
                error.to_string().into_bytes()
            }
        };
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(bytes)), None))
    });
    let mut response = HttpBody::from_stream(body).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.extensions_mut().insert(Trickle);
    response
}

/// Admits a prompt. Its outcome comes with the events.
pub(crate) async fn post_async(
    access: CanPrompt,
    State(state): State<ApiState>,
    Path(session): Path<String>,
    Body(request): Body<AdmitRequest>,
) -> Result<StatusCode, ApiError> {
    admit(&state, &access, id(&session)?, request).await?;
    Ok(StatusCode::NO_CONTENT)
}
