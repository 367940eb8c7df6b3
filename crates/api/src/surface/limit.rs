use serde::Deserialize;

/// The most sessions in one answer.
pub(crate) const MAX_SESSIONS: i64 = 1_000;

/// The most messages in one answer.
pub(crate) const MAX_MESSAGES: i64 = 10_000;

#[derive(Debug, Deserialize)]
pub(crate) struct Limit {
    pub(crate) limit: Option<i64>,
}

impl Limit {
    /// Returns the limit of the query, or `usual` without one: at least 1, at most `most`.
    pub(crate) fn within(&self, usual: i64, most: i64) -> i64 {
        self.limit.unwrap_or(usual).clamp(1, most)
    }
}
