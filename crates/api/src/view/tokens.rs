use std::borrow::Cow;

use domain::TurnUsage;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

/// A cost in nano-USD, shown as a number of USD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usd(pub(crate) i64);

impl Serialize for Usd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[expect(clippy::cast_precision_loss, reason = "2^53 nano-USD are nine million USD")]
        let usd = self.0 as f64 / 1e9;
        if self.0 == 0 { serializer.serialize_u8(0) } else { serializer.serialize_f64(usd) }
    }
}

impl JsonSchema for Usd {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Usd".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "description": "US dollars" })
    }
}

/// Converts pico-USD per token to USD per million tokens.
pub(crate) fn usd(pico: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "prices have some nine digits")]
    let pico = pico as f64;
    pico / 1e6
}

/// Token counts as stock clients add them up: no part overlaps another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct TokensView {
    /// All of them. A session of stock clients has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<i64>,
    input: i64,
    output: i64,
    reasoning: i64,
    cache: CacheView,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
struct CacheView {
    read: i64,
    write: i64,
}

impl TokensView {
    /// Leaves out the total.
    pub(crate) fn without_total(self) -> Self {
        Self { total: None, ..self }
    }
}

impl From<TurnUsage> for TokensView {
    /// Our counts overlap: input includes cached tokens, and output includes reasoning.
    fn from(usage: TurnUsage) -> Self {
        Self {
            total: Some(usage.input.saturating_add(usage.output)),
            input: usage
                .input
                .saturating_sub(usage.cache_read)
                .saturating_sub(usage.cache_write)
                .max(0),
            output: usage.output.saturating_sub(usage.reasoning).max(0),
            reasoning: usage.reasoning,
            cache: CacheView { read: usage.cache_read, write: usage.cache_write },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding core-3 H5: the total of a session with one odd count was below zero.
    #[test]
    fn sums_of_odd_counts_do_not_wrap() {
        let most = TurnUsage { input: i64::MAX, output: 5, ..TurnUsage::default() };
        assert_eq!(TokensView::from(most).total, Some(i64::MAX));
        let least = TurnUsage { input: i64::MIN, cache_read: 5, ..TurnUsage::default() };
        assert_eq!(TokensView::from(least).input, 0);
    }

    #[test]
    fn a_cost_is_shown_in_usd() {
        let shown = |nanos| serde_json::to_string(&Usd(nanos)).expect("a number");
        assert_eq!(shown(0), "0");
        assert_eq!(shown(1_500_000_000), "1.5");
        assert_eq!(shown(37_500), "0.0000375");
    }
}
