//! Prices of a model, as people write them.

use session::{Prices, Rates};

/// The most digits after the point. More would be below one pico-USD per token.
const DIGITS: usize = 6;

/// Parses `IN,OUT[,CACHE_READ[,CACHE_WRITE]]`, in USD per million tokens. Cached input costs as much as other input
/// unless its price is given.
///
/// # Errors
/// A sentence that says what to write.
pub(crate) fn parse(text: &str) -> Result<Prices, String> {
    let prices = text.split(',').map(price).collect::<Result<Vec<_>, _>>()?;
    let (input, output, cached) = match prices.as_slice() {
        [input, output, cached @ ..] if cached.len() <= 2 => (*input, *output, cached),
        _ => return Err("give IN,OUT or IN,OUT,CACHE_READ,CACHE_WRITE in USD per 1M tokens".into()),
    };
    let cache_read = cached.first().copied().unwrap_or(input);
    let cache_write = cached.get(1).copied().unwrap_or(input);
    Ok(Rates { input, output, cache_read, cache_write, ..Rates::default() }.into())
}

/// Converts USD per million tokens to pico-USD per token by dropping the point. Exact, so no float is needed.
fn price(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let valid = !whole.is_empty() && digits(whole) && digits(fraction) && fraction.len() <= DIGITS;
    let price = format!("{whole}{fraction:0<DIGITS$}").parse().ok().filter(|_| valid);
    price.ok_or_else(|| format!("`{text}` is no price: write a number such as 2.5 or 0.0375"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_to_the_last_digit() {
        let all = Rates {
            input: 2_500_000,
            output: 10_000_000,
            cache_read: 37_500,
            cache_write: 3_125_000,
            ..Rates::default()
        };
        assert_eq!(parse("2.50, 10 ,0.0375,3.125"), Ok(all.into()));
        let two = Rates { cache_read: 2_500_000, cache_write: 2_500_000, ..all };
        assert_eq!(parse("2.5,10"), Ok(two.into()));
        assert_eq!(parse("0,0").map(|prices| prices.base.input), Ok(0));
    }

    #[test]
    fn what_is_no_price_is_refused() {
        for text in ["", "2.5", "1,2,3,4,5", "1,x", "-1,2", "1,2.", ".5,1", "1,0.0000001", "1,9e9"]
        {
            let refused = parse(text).is_err();
            assert_eq!(refused, text != "1,2.", "{text}");
        }
    }
}
