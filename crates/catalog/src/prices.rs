//! Prices of tokens, in integers.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The price of each kind of token, in pico-USD per token; 1 USD per million tokens is 1,000,000. A kind
/// without a price, or with one that is not a number, costs nothing, as in models.dev's own consumers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rates {
    /// Input that was not cached.
    pub input: u64,
    /// Output, including reasoning unless that has its own price.
    pub output: u64,
    /// Reasoning, if its price differs from other output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// Input read from the provider's cache.
    pub cache_read: u64,
    /// Input written to the provider's cache.
    pub cache_write: u64,
}

/// The prices of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Prices {
    /// Rates for requests whose input is below all tiers.
    pub base: Rates,
    /// Rates for requests with more than this many input tokens, including cached ones; ascending, at most
    /// [`Prices::MAX_TIERS`]. A tier's rates apply to the whole request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<(u64, Rates)>,
}

impl Prices {
    /// The most tiers that are kept; the lowest ones win.
    pub const MAX_TIERS: usize = 4;

    /// Returns the rates of a request with this many input tokens.
    #[must_use]
    pub fn at(&self, input_tokens: u64) -> &Rates {
        let reached = self.tiers.iter().rev().find(|(above, _)| input_tokens > *above);
        reached.map_or(&self.base, |(_, rates)| rates)
    }

    /// Reads models.dev's `cost`. `None` if it has no valid price for input or output.
    pub(crate) fn read(cost: &Value) -> Option<Self> {
        let cost = cost.as_object()?;
        price(cost, "input").or(price(cost, "output"))?;
        let base = rates(cost);
        let tiers = cost.get("tiers").and_then(Value::as_array);
        let mut tiers: Vec<(u64, Rates)> =
            tiers.into_iter().flatten().filter_map(|tier| read_tier(tier, base)).collect();
        if tiers.is_empty()
            && let Some(over) = cost.get("context_over_200k").and_then(Value::as_object)
        {
            tiers.push((200_000, over_base(over, base)));
        }
        tiers.sort_by_key(|(above, _)| *above);
        tiers.dedup_by_key(|(above, _)| *above);
        tiers.truncate(Self::MAX_TIERS);
        Some(Self { base, tiers })
    }
}

fn read_tier(tier: &Value, base: Rates) -> Option<(u64, Rates)> {
    let tier = tier.as_object()?;
    let bound = tier.get("tier")?.as_object()?;
    (bound.get("type")?.as_str()? == "context").then_some(())?;
    Some((bound.get("size")?.as_u64()?, over_base(tier, base)))
}

fn rates(cost: &Map<String, Value>) -> Rates {
    over_base(cost, Rates::default())
}

/// Returns a tier's rates. Kinds that the tier does not list have the base price.
fn over_base(cost: &Map<String, Value>, base: Rates) -> Rates {
    Rates {
        input: price(cost, "input").unwrap_or(base.input),
        output: price(cost, "output").unwrap_or(base.output),
        reasoning: price(cost, "reasoning").or(base.reasoning),
        cache_read: price(cost, "cache_read").unwrap_or(base.cache_read),
        cache_write: price(cost, "cache_write").unwrap_or(base.cache_write),
    }
}

/// Converts USD per million tokens to pico-USD per token. Exact for up to six digits after the point.
fn price(cost: &Map<String, Value>, kind: &str) -> Option<u64> {
    /// The largest valid price. More than a million USD per million tokens is a mistake.
    const MAX_USD: f64 = 1_000_000.0;
    let usd = cost.get(kind)?.as_f64().filter(|usd| (0.0..=MAX_USD).contains(usd))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to 10^12, whole after rounding"
    )]
    Some((usd * 1e6).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn prices_are_read_with_their_tiers_and_a_tier_holds_above_its_size() {
        let prices = Prices::read(&json!({
            "input": 1.25, "output": 10, "cache_read": 0.0375,
            "tiers": [{ "input": 2.5, "output": 15, "tier": { "type": "context", "size": 272_000 } }],
            "context_over_200k": { "input": 99 },
        }))
        .unwrap();
        let base =
            Rates { input: 1_250_000, output: 10_000_000, cache_read: 37_500, ..Rates::default() };
        let tier = Rates { input: 2_500_000, output: 15_000_000, ..base };
        assert_eq!(prices, Prices { base, tiers: vec![(272_000, tier)] });
        assert_eq!((prices.at(272_000), prices.at(272_001)), (&base, &tier));
        let old =
            Prices::read(&json!({ "input": 1, "context_over_200k": { "input": 2 } })).unwrap();
        assert_eq!(old.at(200_001).input, 2_000_000);
        // Finding conformance costs: `cost.reasoning`.
        let dear = Prices::read(&json!({ "input": 1, "output": 2, "reasoning": 4 })).unwrap();
        assert_eq!(dear.base.reasoning, Some(4_000_000));
    }

    #[test]
    fn what_is_no_price_is_none() {
        let odd = json!({ "input": "free", "output": 2, "cache_read": -1, "cache_write": 1e300,
            "tiers": [{ "input": 1 }, 7, { "tier": { "type": "time", "size": 1 } }] });
        let rates = Rates { output: 2_000_000, ..Rates::default() };
        assert_eq!(Prices::read(&odd), Some(Prices { base: rates, tiers: vec![] }));
        for none in [json!({}), json!(3), json!({ "cache_read": 1 }), json!({ "input": null })] {
            assert_eq!(Prices::read(&none), None, "{none}");
        }
    }
}
