//! Reads messages in the shape in which they are shown.

use store::{AdmittedPrompt, MessageRow, Messages, SessionRow};

use crate::ApiState;
use crate::changes::MessageChanges;
use crate::error::ApiError;
use crate::fold::user_row;
use crate::text::id;
use crate::view::{MessageView, SessionContext, all_as_stock, message};

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
    let (rows, next) = read_rows(state, session, (which, limit)).await?;
    let context = context(state, session);
    Ok((rows.iter().map(|row| message(&context, row)).collect(), next))
}

async fn read_rows(
    state: &ApiState,
    session: &SessionRow,
    (which, limit): (Messages, i64),
) -> Result<(Vec<MessageRow>, Option<String>), ApiError> {
    let (org, id) = (session.at.org, session.at.session.clone());
    let transcript = state.store().transcript(org, id, which, limit).await?;
    let oldest = transcript.messages.first().filter(|_| transcript.older);
    let next = oldest.map(|oldest| oldest.id.to_string());
    Ok((transcript.messages, next))
}

/// Does the same for stock clients: with the files that answers changed, and in their shape.
pub(crate) async fn stock_transcript(
    state: &ApiState,
    session: &SessionRow,
    page: (Messages, i64),
) -> Result<(Vec<MessageView>, Option<String>), ApiError> {
    let (rows, next) = read_rows(state, session, page).await?;
    let context = context(state, session);
    let mut changes = MessageChanges::read(state.store(), session, &rows).await?;
    let views = rows.iter().flat_map(|row| {
        let view = with_changes(message(&context, row), row, session, &mut changes);
        all_as_stock(&context, view)
    });
    Ok((views.collect(), next))
}

/// Adds the files that an answer changed, or the answers to a prompt.
fn with_changes(
    view: MessageView,
    row: &MessageRow,
    session: &SessionRow,
    changes: &mut MessageChanges,
) -> MessageView {
    let view = match changes.take_prompt(&row.id) {
        Some(diff) => view.with_diff(diff),
        None => view,
    };
    match changes.take_answer(&row.id) {
        Some(files) => {
            let paths: Vec<String> = files.paths.into_iter().collect();
            view.with_patch(files.tree.as_str().to_owned(), &paths, &session.directory)
        }
        None => view,
    }
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
