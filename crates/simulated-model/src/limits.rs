//! The token limits of models. Larger requests are refused like a provider refuses them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use crate::protocol::{Protocol, TooLong};
use crate::request::Request;
use crate::script::ScriptError;

/// The name for every model without its own limits.
pub const ALL_MODELS: &str = "*";
/// The most models with their own limits.
pub const MAX_LIMITED_MODELS: usize = 1_000;

/// The token limits of a model. A token is four bytes of the request's body, as in [`Usage`](crate::Usage).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenLimits {
    /// The largest prompt, in tokens. Without it a prompt may fill the context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// The prompt and its answer together, in tokens. Chat, Anthropic and Bedrock count the answer that the request
    /// allows (`max_tokens`) in advance; responses and Gemini only count the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
}

impl TokenLimits {
    /// Returns a limit of the context.
    #[must_use]
    pub fn context(tokens: u64) -> Self {
        Self { context: Some(tokens), input: None }
    }

    /// Returns a limit of the prompt only.
    #[must_use]
    pub fn input(tokens: u64) -> Self {
        Self { input: Some(tokens), context: None }
    }

    /// Returns the refusal of a prompt of `tokens`, if it is too large.
    pub(crate) fn refusal(
        self,
        protocol: Protocol,
        tokens: u64,
        max_tokens: Option<u64>,
    ) -> Option<TooLong> {
        let input = self.input.into_iter().chain(self.context).min();
        if let Some(most) = input.filter(|most| tokens > *most) {
            return Some(TooLong { tokens, answer: None, most });
        }
        let answer = max_tokens.filter(|_| protocol.counts_the_answer())?;
        let most = self.context.filter(|most| tokens.saturating_add(answer) > *most)?;
        Some(TooLong { tokens, answer: Some(answer), most })
    }
}

/// The limits of all models. They may change while the server runs.
#[derive(Default)]
pub(crate) struct Limits(Mutex<BTreeMap<String, TokenLimits>>);

impl Limits {
    /// Starts with these limits.
    pub(crate) fn new(limits: BTreeMap<String, TokenLimits>) -> Self {
        Self(Mutex::new(limits))
    }

    /// Replaces all limits.
    pub(crate) fn replace(&self, limits: BTreeMap<String, TokenLimits>) -> Result<(), ScriptError> {
        if limits.len() > MAX_LIMITED_MODELS {
            return Err(ScriptError::TooMany { what: "limited models", limit: MAX_LIMITED_MODELS });
        }
        *self.lock() = limits;
        Ok(())
    }

    /// Returns the current limits.
    pub(crate) fn all(&self) -> BTreeMap<String, TokenLimits> {
        self.lock().clone()
    }

    /// Returns the refusal of a request, if it is too large for its model.
    pub(crate) fn refusal(
        &self,
        protocol: Protocol,
        request: &Request<'_>,
        tokens: u64,
    ) -> Option<TooLong> {
        let limits = self.lock();
        let of_model = limits.get(&request.model).or_else(|| limits.get(ALL_MODELS)).copied()?;
        drop(limits);
        of_model.refusal(protocol, tokens, request.max_tokens)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, TokenLimits>> {
        // Nothing panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_counts_where_the_protocol_counts_it() {
        let limits = TokenLimits::context(100);
        let refused = |protocol, tokens, most| limits.refusal(protocol, tokens, most).is_some();
        assert!(!refused(Protocol::Chat, 100, None));
        assert!(refused(Protocol::Chat, 101, None));
        assert!(refused(Protocol::Anthropic, 90, Some(11)));
        assert!(!refused(Protocol::Anthropic, 90, Some(10)));
        assert!(!refused(Protocol::Gemini, 90, Some(11)));
        let limits = TokenLimits { input: Some(50), context: Some(100) };
        let refusal = limits.refusal(Protocol::Responses, 51, Some(10)).expect("above its input");
        assert_eq!((refusal.tokens, refusal.most, refusal.answer), (51, 50, None));
    }
}
