//! Answers to asks.

use domain::{Answer, Ask, AskId, OrgId, ToolAsked};
use schemars::JsonSchema;
use serde::Deserialize;
use store::{Answering, AskRow};

use super::announce::announce;
use crate::ApiState;
use crate::error::ApiError;
use crate::principal::Principal;

/// The longest words with an answer, in bytes.
const MAX_WORDS: usize = 8 * 1024;

/// A person's answer to an ask: `reply` for a permission, `answers` for questions.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct AnswerRequest {
    pub(crate) reply: Option<Reply>,
    /// Words for the model, with `reject`: it goes on with them. Without them its work ends.
    pub(crate) message: Option<String>,
    /// For each question the chosen labels, or other words.
    pub(crate) answers: Option<Vec<Vec<String>>>,
}

/// A reply to an ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reply {
    /// The call may run.
    Once,
    /// It may, and so may later ones of the project that the saved patterns cover.
    Always,
    /// It may not; or nobody wants to answer the questions.
    Reject,
}

/// Answers an ask. The same answer again is no error.
///
/// # Errors
/// 404 without the ask; 409 when it has another answer, or nobody waits for one; 400 for an answer of another kind.
pub(crate) async fn answer(
    state: &ApiState,
    principal: &Principal,
    ask: AskId,
    request: AnswerRequest,
) -> Result<(), ApiError> {
    let (store, now) = (state.store(), state.clock().now_ms());
    let found = store.ask(principal.org, ask.clone()).await?;
    let AskRow { asked, .. } = found.ok_or(ApiError::NotFound("an ask with this id was"))?;
    let answer = meant(request, &asked)?;
    let saves = matches!(answer, Answer::Always { .. });
    let by = Some(principal.author.clone());
    match store.answer_ask(principal.org, ask, answer, by, now).await? {
        Answering::Answered { seq, session } => announce(state, &session, seq, true),
        Answering::Conflict => {
            return Err(ApiError::Conflict(
                "somebody else has answered this already, and differently: look at the session"
                    .to_owned(),
            ));
        }
        Answering::Gone => {
            return Err(ApiError::Conflict(
                "nobody waits for this answer any longer: the call has ended or was interrupted"
                    .to_owned(),
            ));
        }
    }
    if saves {
        cover(state, principal.org).await?;
    }
    Ok(())
}

/// Lets calls run that what was saved covers.
async fn cover(state: &ApiState, org: OrgId) -> Result<(), ApiError> {
    let store = state.store();
    for ask in store.covered_asks(org).await? {
        let now = state.clock().now_ms();
        let granted = store.answer_ask(org, ask, Answer::Granted, None, now).await?;
        if let Answering::Answered { seq, session } = granted {
            announce(state, &session, seq, true);
        }
    }
    Ok(())
}

/// Returns the answer that a request means.
fn meant(request: AnswerRequest, asked: &ToolAsked) -> Result<Answer, ApiError> {
    let AnswerRequest { reply, message, answers } = request;
    let message = message.filter(|words| !words.trim().is_empty());
    let words =
        message.iter().chain(answers.iter().flatten().flatten()).map(String::len).sum::<usize>();
    if words > MAX_WORDS {
        return Err(ApiError::Invalid(format!("an answer has at most {MAX_WORDS} bytes")));
    }
    if message.is_some() && reply != Some(Reply::Reject) {
        return Err(ApiError::invalid(
            "`message` goes with `\"reply\":\"reject\"`: steer the session with a prompt otherwise",
        ));
    }
    match (&asked.about, reply, answers) {
        (Ask::Permission { .. }, Some(Reply::Once), None) => Ok(Answer::Once),
        (Ask::Permission { save, .. }, Some(Reply::Always), None) if save.is_empty() => {
            Err(ApiError::invalid(
                "nothing can be saved for this call, since it is several commands or cannot be read: answer `once` or `reject`",
            ))
        }
        (Ask::Permission { save, .. }, Some(Reply::Always), None) => {
            Ok(Answer::Always { patterns: save.clone() })
        }
        (Ask::Permission { .. }, Some(Reply::Reject), None) => Ok(Answer::Reject { message }),
        (Ask::Permission { .. }, ..) => Err(ApiError::invalid(
            "this asks for a permission: `reply` is `once`, `always` or `reject`",
        )),
        (Ask::Question { .. }, Some(Reply::Reject), None) => match message {
            Some(message) => Ok(Answer::Reject { message: Some(message) }),
            None => Ok(Answer::Dismissed),
        },
        (Ask::Question { questions }, None, Some(answers)) if answers.len() == questions.len() => {
            Ok(Answer::Answers { answers })
        }
        (Ask::Question { questions }, ..) => Err(ApiError::Invalid(format!(
            "this asks {} questions: `answers` has a list of texts for each, or `reply` is `reject`",
            questions.len()
        ))),
    }
}
