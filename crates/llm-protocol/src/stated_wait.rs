//! Reads the wait that a provider states in an error's own words, where no header and no member says it.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

/// The words before a wait, in lower case.
const BEFORE: [&str; 6] =
    ["again in ", "again after ", "retry in ", "retry after ", "please wait ", "reset in "];

/// Units of time in milliseconds, by their names.
const UNITS: [(f64, &[&str]); 5] = [
    (1.0, &["ms", "msec", "millisecond", "milliseconds"]),
    (1_000.0, &["s", "sec", "secs", "second", "seconds"]),
    (60_000.0, &["m", "min", "mins", "minute", "minutes"]),
    (3_600_000.0, &["h", "hr", "hrs", "hour", "hours"]),
    (86_400_000.0, &["d", "day", "days"]),
];

/// The longest wait that is believed.
const YEAR_MS: f64 = 366.0 * 86_400_000.0;
/// The last second of the year 9999.
const LAST_UNIX_S: u64 = 253_402_300_799;

/// Returns the wait in a message in lower case (`try again in 6.379s`, `retry after 30 seconds`, `1m30s`), in
/// milliseconds.
pub(crate) fn wait_in_words(message: &str) -> Option<u64> {
    BEFORE.iter().find_map(|before| {
        let (_, rest) = message.split_once(before)?;
        duration_ms(rest)
    })
}

/// Reads the numbers with units at the beginning of a text, and adds them up.
pub(crate) fn duration_ms(text: &str) -> Option<u64> {
    let mut rest = text.trim_start();
    let mut total = None;
    while let Some((ms, after)) = first_part(rest) {
        total = Some(total.unwrap_or(0.0) + ms);
        rest = after.trim_start();
    }
    let total = total.filter(|total| (0.0..=YEAR_MS).contains(total))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to a year")]
    Some(total.ceil() as u64)
}

/// Reads one number with its unit, in milliseconds; returns the text after them too.
fn first_part(text: &str) -> Option<(f64, &str)> {
    let after = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = text.strip_suffix(after)?.parse().ok()?;
    let after = after.trim_start();
    let rest = after.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let name = after.strip_suffix(rest)?;
    let (ms, _) = UNITS.iter().find(|(_, names)| names.contains(&name))?;
    Some((number * ms, rest))
}

/// Returns the wait in an error's members (`resets_in_seconds` of ChatGPT's plans), in milliseconds.
pub(crate) fn wait_in_members(error: &Value) -> Option<u64> {
    error.get("resets_in_seconds")?.as_u64()?.checked_mul(1_000)
}

/// Says when a limit ends, by the members of its error.
pub(crate) fn end_of_limit(error: &Value) -> Option<String> {
    if let Some(wait) = wait_in_members(error) {
        let minutes = (wait / 1_000).div_ceil(60);
        let (hours, rest) = (minutes / 60, minutes % 60);
        return Some(match hours {
            0 => format!("resets in {minutes} min"),
            1..48 => format!("resets in {hours} h {rest} min"),
            _ => format!("resets in {} days {} h", hours / 24, hours % 24),
        });
    }
    let at = error.get("resets_at")?.as_u64().filter(|at| (1..=LAST_UNIX_S).contains(at))?;
    let at = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at));
    Some(format!("resets at {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_in_words_are_read_with_their_units() {
        for (message, wait) in [
            ("rate limit is exceeded. try again in 17 seconds.", Some(17_000)),
            ("please try again in 6.379s. visit https://h", Some(6_379)),
            ("please try again in 20ms.", Some(20)),
            ("try again in 1m30s", Some(90_000)),
            ("please try again in 1h2m3.5s.", Some(3_723_500)),
            ("please retry after 30 seconds.", Some(30_000)),
            ("please wait 2 minutes", Some(120_000)),
            ("try again in 5", None),
            ("try again in a minute", None),
            ("try again in ..s", None),
            ("try again in 9999999 days", None),
            ("try again later", None),
        ] {
            assert_eq!(wait_in_words(message), wait, "{message}");
        }
    }
}
