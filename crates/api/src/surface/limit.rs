use schemars::JsonSchema;
use serde::Deserialize;
use store::Messages;

use crate::error::ApiError;
use crate::text::id;

/// The most sessions in one answer.
pub(crate) const MAX_SESSIONS: i64 = 1_000;

/// The most messages in one answer.
const MAX_MESSAGES: i64 = 10_000;

/// Which messages of a session are asked for: the newest, or the newest of those before one of them.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct MessageQuery {
    limit: Option<i64>,
    before: Option<String>,
}

impl MessageQuery {
    /// Returns the messages that the query names, and how many of them at most.
    ///
    /// # Errors
    /// When `before` is no message's id.
    pub(crate) fn parse(&self) -> Result<(Messages, i64), ApiError> {
        let limit = self.limit.unwrap_or(MAX_MESSAGES).clamp(1, MAX_MESSAGES);
        let which = match self.before.as_deref().filter(|before| !before.is_empty()) {
            Some(before) => Messages::Before(id(before)?),
            None => Messages::Newest,
        };
        Ok((which, limit))
    }
}
