use std::sync::Arc;

use domain::{ModelRef, TurnUsage};

/// The largest request and answer that a model has completed in this session, by its provider's count.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct AcceptedSize {
    /// The model, whatever its variant.
    model: Option<Arc<ModelRef>>,
    tokens: u64,
}

impl AcceptedSize {
    /// Notes that a turn of `model` begins.
    pub(crate) fn turn_began(&mut self, model: &ModelRef) {
        if !self.model.as_ref().is_some_and(|known| is_same(known, model)) {
            *self = Self { model: Some(Arc::new(model.clone())), tokens: 0 };
        }
    }

    /// Notes that the turn completed.
    pub(crate) fn completed(&mut self, usage: TurnUsage) {
        let counted = u64::try_from(usage.input.saturating_add(usage.output)).unwrap_or(0);
        self.tokens = self.tokens.max(counted);
    }

    /// Returns the tokens that `model` completed; 0 if it was not the last one.
    pub(crate) fn by(&self, provider: &str, model: &str) -> u64 {
        let is_it = |known: &Arc<ModelRef>| known.provider == provider && known.model == model;
        self.model.as_ref().filter(|known| is_it(known)).map_or(0, |_| self.tokens)
    }
}

fn is_same(one: &ModelRef, other: &ModelRef) -> bool {
    one.provider == other.provider && one.model == other.model
}
