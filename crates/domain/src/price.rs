//! Prices of tokens. Pure, in integers: sums of costs are exact in any order.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TurnUsage;

/// Prices in pico-USD per token. 1 USD per million tokens is 1,000,000 pico-USD per token, so any price with six
/// digits after the point is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Rates {
    /// Input that was not in a cache.
    pub input: u64,
    /// Output, and reasoning unless that has its own price.
    pub output: u64,
    /// Reasoning, if its price differs from that of other output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// Input read from the provider's cache.
    pub cache_read: u64,
    /// Input written to the provider's cache.
    pub cache_write: u64,
}

/// The prices of a model's tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Prices {
    /// The rates of a request outside all tiers.
    #[serde(flatten)]
    pub base: Rates,
    /// The tiers for larger requests, ascending. The highest one that applies is the price of the whole request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<PriceTier>,
}

/// The price of a large request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PriceTier {
    /// The number of input tokens, cached or not, above which it applies.
    pub above: u64,
    /// The rates for all of the request's tokens.
    #[serde(flatten)]
    pub rates: Rates,
}

/// The prices of a wire request. They are stored with it, so that later changes of prices change no bill.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pricing {
    /// The version of the price table, such as `models.dev:0123456789abcdef`.
    pub version: String,
    /// The prices.
    pub prices: Prices,
    /// The estimate.
    pub estimate: Estimate,
}

/// The expected usage of a request, before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The input tokens, estimated from the length.
    pub input: i64,
    /// The most output tokens, if there is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_max: Option<i64>,
    /// The cost of that in nano-USD, with nothing cached; without a limit only that of the input.
    pub cost: i64,
}

impl Rates {
    /// Returns the cost of `usage` in nano-USD, rounded to the nearest; at most `i64::MAX`.
    #[must_use]
    pub fn cost(&self, usage: &TurnUsage) -> i64 {
        let fresh = usage.input.saturating_sub(usage.cache_read).saturating_sub(usage.cache_write);
        let reasoning = usage.reasoning.clamp(0, usage.output.max(0));
        let of = |tokens: i64, price: u64| {
            u128::from(u64::try_from(tokens).unwrap_or(0)) * u128::from(price)
        };
        let pico = of(fresh, self.input)
            .saturating_add(of(usage.output.saturating_sub(reasoning), self.output))
            .saturating_add(of(reasoning, self.reasoning.unwrap_or(self.output)))
            .saturating_add(of(usage.cache_read, self.cache_read))
            .saturating_add(of(usage.cache_write, self.cache_write));
        i64::try_from(pico.saturating_add(500) / 1_000).unwrap_or(i64::MAX)
    }
}

impl From<Rates> for Prices {
    /// Returns the same price for requests of any size.
    fn from(base: Rates) -> Self {
        Self { base, tiers: Vec::new() }
    }
}

/// The tokens of the longest answer that a model is expected to give whose bound nobody knows.
const ASSUMED_OUTPUT: i64 = 32_000;

impl Prices {
    /// Returns the rates of a request with this much input.
    #[must_use]
    pub fn rates(&self, input: i64) -> Rates {
        let input = u64::try_from(input).unwrap_or(0);
        let tier =
            self.tiers.iter().filter(|tier| input > tier.above).max_by_key(|tier| tier.above);
        tier.map_or(self.base, |tier| tier.rates)
    }

    /// Returns the cost of one request's `usage` in nano-USD.
    #[must_use]
    pub fn cost(&self, usage: &TurnUsage) -> i64 {
        self.rates(usage.input).cost(usage)
    }

    /// Returns the expected usage of a request with this much input and an answer of at most `output_max`; without a bound,
    /// the cost is that of an answer of 32,000 tokens.
    #[must_use]
    pub fn estimate(&self, input: u64, output_max: Option<u64>) -> Estimate {
        let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
        let (input, output_max) = (count(input), output_max.map(count));
        let output = output_max.unwrap_or(ASSUMED_OUTPUT);
        let usage = TurnUsage { input, output, ..TurnUsage::default() };
        Estimate { input, output_max, cost: self.cost(&usage) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_token_has_its_price_and_input_is_counted_once() {
        // USD per million: 2.50 in, 10 out, 0.0375 read, 3.125 written.
        let prices = Rates {
            input: 2_500_000,
            output: 10_000_000,
            cache_read: 37_500,
            cache_write: 3_125_000,
            reasoning: None,
        };
        let usage = TurnUsage {
            input: 1_000_000,
            output: 1_000,
            reasoning: 900,
            cache_read: 800_000,
            cache_write: 100_000,
            cost: 0,
        };
        // 0.25 + 0.01 + 0.03 + 0.3125 USD
        assert_eq!(prices.cost(&usage), 602_500_000);
        // Finding conformance costs: reasoning at its own price, 40 USD per million for 900 of the 1,000.
        let dear = Rates { reasoning: Some(40_000_000), ..prices };
        assert_eq!(dear.cost(&usage), 602_500_000 + 27_000_000);
        let odd = TurnUsage { reasoning: 5_000, ..usage };
        assert_eq!(dear.cost(&odd), 602_500_000 + 30_000_000, "never more than the output");
    }

    #[test]
    fn a_provider_that_miscounts_costs_no_negative_and_nothing_overflows() {
        let prices = Rates { input: u64::MAX, ..Rates::default() };
        let odd = TurnUsage { input: 5, cache_read: 9, output: -3, ..TurnUsage::default() };
        assert_eq!(prices.cost(&odd), 0);
        let huge = TurnUsage { input: i64::MAX, ..TurnUsage::default() };
        assert_eq!(prices.cost(&huge), i64::MAX);
        assert_eq!(Rates { input: 1, ..prices }.cost(&TurnUsage { input: 500, ..odd }), 0);
    }

    #[test]
    fn half_a_nano_is_rounded_up() {
        let prices = Rates { input: 1, ..Rates::default() };
        let of = |input| prices.cost(&TurnUsage { input, ..TurnUsage::default() });
        assert_eq!((of(499), of(500), of(1_499), of(1_500)), (0, 1, 1, 2));
    }

    #[test]
    fn a_request_above_a_tier_is_paid_with_it_as_a_whole() {
        let rates = |input| Rates { input, output: input, ..Rates::default() };
        let tier = |above, price| PriceTier { above, rates: rates(price) };
        let tiers = vec![tier(200, 3_000), tier(1_000, 7_000)];
        let prices = Prices { base: rates(1_000), tiers };
        let of = |input, cache_read| {
            prices.cost(&TurnUsage { input, output: 1, cache_read, ..TurnUsage::default() })
        };
        assert_eq!((of(200, 0), of(201, 0), of(1_001, 0)), (201, 606, 7_014));
        assert_eq!(of(201, 201), 3, "what was cached counts for the size");
        let expected = Estimate { input: 300, output_max: Some(100), cost: 1_200 };
        assert_eq!(prices.estimate(300, Some(100)), expected);
        assert_eq!(prices.estimate(100, None).cost, 100 + ASSUMED_OUTPUT);
    }

    #[test]
    fn rows_hold_prices_in_this_shape() {
        let text = r#"{"input":1,"output":2,"cache_read":3,"cache_write":4,"tiers":[{"above":5,"input":6,"output":7,"cache_read":8,"cache_write":9}]}"#;
        let prices: Prices = serde_json::from_str(text).expect("prices");
        assert_eq!(prices.rates(6), prices.tiers[0].rates);
        assert_eq!(serde_json::to_string(&prices).expect("JSON"), text);
        let base: Prices = serde_json::from_str(r#"{"input":1}"#).expect("prices");
        assert_eq!(base, Rates { input: 1, ..Rates::default() }.into());
    }
}
