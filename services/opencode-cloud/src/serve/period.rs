//! Durations on the command line.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The shortest and the longest duration.
const BOUNDS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(10 * 365 * 24 * 3600);

/// A duration that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// Never.
    Off,
    /// The duration.
    Of(Duration),
}

impl Period {
    /// Returns the duration, or `None` if it is off.
    pub(crate) fn length(self) -> Option<Duration> {
        match self {
            Self::Off => None,
            Self::Of(length) => Some(length),
        }
    }

    /// Returns the word for the command line.
    pub(crate) fn word(self) -> String {
        match self {
            Self::Off => "off".to_owned(),
            Self::Of(length) => length.as_secs().to_string(),
        }
    }
}

/// Parses `3600`, `30m` or `off`.
pub(crate) fn period(text: &str) -> Result<Period, String> {
    let text = text.trim();
    if text == "off" {
        return Ok(Period::Off);
    }
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let seconds = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(24 * 3600),
        _ => None,
    };
    let number = digits.parse::<u64>().ok();
    let length = seconds.zip(number).and_then(|(seconds, number)| number.checked_mul(seconds));
    let length = length.map(Duration::from_secs).filter(|length| BOUNDS.contains(length));
    let wrong = || "write seconds, or such as 30m, 6h or 1d, at most ten years; or off".to_owned();
    length.map(Period::Of).ok_or_else(wrong)
}

/// Parses a duration that cannot be switched off: `20` or `30m`.
pub(crate) fn length(text: &str) -> Result<Duration, String> {
    let wrong = || "write seconds, or such as 30m, 6h or 1d, at most ten years".to_owned();
    period(text).ok().and_then(Period::length).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_minutes_hours_days_and_off() {
        let of = |seconds| Ok(Period::Of(Duration::from_secs(seconds)));
        for (text, read) in [
            ("1", of(1)),
            (" 90s ", of(90)),
            ("30m", of(1_800)),
            ("6h", of(21_600)),
            ("30d", of(2_592_000)),
        ] {
            assert_eq!(period(text), read, "{text}");
        }
        assert_eq!(period("off"), Ok(Period::Off));
        for wrong in ["", "0", "1w", "-1", "1.5h", "h", "1 h", "3651d", "99999999999999999999d"] {
            assert!(period(wrong).is_err(), "{wrong}");
            assert!(length(wrong).is_err(), "{wrong}");
        }
        assert_eq!(length("30m"), Ok(Duration::from_mins(30)));
        assert!(length("off").is_err(), "what has to end has a length");
    }
}
