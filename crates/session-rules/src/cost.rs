//! What tokens cost. Pure, in integers: sums of costs are exact whatever their order.

use domain::TurnUsage;

/// What a model's tokens cost, in pico-USD per token: 1 USD per million tokens is 1,000,000 of them, so any
/// price with six digits after the point is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Prices {
    /// Input that no cache had.
    pub input: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// Input read from the provider's cache.
    pub cache_read: u64,
    /// Input written to the provider's cache.
    pub cache_write: u64,
}

impl Prices {
    /// The cost of `usage` in nano-USD, rounded to the nearest; at most `i64::MAX`.
    #[must_use]
    pub fn cost(&self, usage: &TurnUsage) -> i64 {
        let fresh = usage.input.saturating_sub(usage.cache_read).saturating_sub(usage.cache_write);
        let of = |tokens: i64, price: u64| {
            u128::from(u64::try_from(tokens).unwrap_or(0)) * u128::from(price)
        };
        let pico = of(fresh, self.input)
            .saturating_add(of(usage.output, self.output))
            .saturating_add(of(usage.cache_read, self.cache_read))
            .saturating_add(of(usage.cache_write, self.cache_write));
        i64::try_from(pico.saturating_add(500) / 1_000).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_token_has_its_price_and_input_is_counted_once() {
        // USD per million: 2.50 in, 10 out, 0.0375 read, 3.125 written.
        let prices = Prices {
            input: 2_500_000,
            output: 10_000_000,
            cache_read: 37_500,
            cache_write: 3_125_000,
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
    }

    #[test]
    fn a_provider_that_miscounts_costs_no_negative_and_nothing_overflows() {
        let prices = Prices { input: u64::MAX, ..Prices::default() };
        let odd = TurnUsage { input: 5, cache_read: 9, output: -3, ..TurnUsage::default() };
        assert_eq!(prices.cost(&odd), 0);
        let huge = TurnUsage { input: i64::MAX, ..TurnUsage::default() };
        assert_eq!(prices.cost(&huge), i64::MAX);
        assert_eq!(Prices { input: 1, ..prices }.cost(&TurnUsage { input: 500, ..odd }), 0);
    }

    #[test]
    fn half_a_nano_is_rounded_up() {
        let prices = Prices { input: 1, ..Prices::default() };
        let of = |input| prices.cost(&TurnUsage { input, ..TurnUsage::default() });
        assert_eq!((of(499), of(500), of(1_499), of(1_500)), (0, 1, 1, 2));
    }
}
