use domain::TurnUsage;
use serde::Serialize;

/// Token counts as stock clients add them up: parts that do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct TokensView {
    total: i64,
    input: i64,
    output: i64,
    reasoning: i64,
    cache: CacheView,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct CacheView {
    read: i64,
    write: i64,
}

impl From<TurnUsage> for TokensView {
    /// Ours are inclusive: input holds what was cached, output holds reasoning.
    fn from(usage: TurnUsage) -> Self {
        Self {
            total: usage.input + usage.output,
            input: (usage.input - usage.cache_read - usage.cache_write).max(0),
            output: (usage.output - usage.reasoning).max(0),
            reasoning: usage.reasoning,
            cache: CacheView { read: usage.cache_read, write: usage.cache_write },
        }
    }
}
