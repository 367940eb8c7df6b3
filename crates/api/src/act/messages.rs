//! Reads messages in the shape in which they are shown.

use store::{AdmittedPrompt, MessageRow, Messages, SessionRow};

use crate::ApiState;
use crate::error::ApiError;
use crate::fold::user_row;
use crate::text::id;
use crate::view::{MessageView, SessionContext, message};

/// Returns the facts about a session that views of its messages need.
pub(crate) fn context(state: &ApiState, row: &SessionRow) -> SessionContext {
    SessionContext::of(row, || state.settings().default_model.get())
}

/// Returns a page of a session's messages, oldest first, and the message before which the next page ends, if there may be
/// one.
pub(crate) async fn transcript(
    state: &ApiState,
    session: &SessionRow,
    (which, limit): (Messages, i64),
) -> Result<(Vec<MessageView>, Option<String>), ApiError> {
    let (org, id) = (session.at.org, session.at.session.clone());
    let transcript = state.store().transcript(org, id, which, limit).await?;
    let context = context(state, session);
    let oldest = transcript.messages.first().filter(|_| transcript.older);
    let next = oldest.map(|oldest| oldest.id.to_string());
    Ok((transcript.messages.iter().map(|row| message(&context, row)).collect(), next))
}

/// Returns one message of a session. An admitted prompt becomes one when it is promoted.
pub(crate) async fn one(
    state: &ApiState,
    session: &SessionRow,
    text: &str,
) -> Result<MessageView, ApiError> {
    let (org, at) = (session.at.org, session.at.session.clone());
    let transcript = state.store().transcript(org, at, Messages::One(id(text)?), 1).await?;
    let row = transcript.messages.first().ok_or(ApiError::NotFound("message was"))?;
    Ok(message(&context(state, session), row))
}

/// Returns the user message that an admitted prompt will become.
pub(crate) fn prompt_row(admitted: &AdmittedPrompt) -> MessageRow {
    let AdmittedPrompt { prompt, seq, admitted_ms, .. } = admitted;
    MessageRow {
        agent: prompt.agent.clone(),
        model: prompt.model.clone(),
        ..user_row(&prompt.message, *seq, *admitted_ms, &prompt.parts, prompt.synthetic.as_ref())
    }
}
