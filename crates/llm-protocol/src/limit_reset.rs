//! Reads when a limit ends from headers such as `x-ratelimit-reset`, where no `retry-after` says it.

use crate::classify::{http_date_unix_ms, retry_after_ms, stated_error};
use crate::stated_wait::duration_ms;
use crate::surrogates::value_of;

/// The headers that say when a limit ends, each with the one that says how much of the limit is left.
const LIMITS: [(&str, &str); 5] = [
    ("x-ratelimit-reset", "x-ratelimit-remaining"),
    ("x-rate-limit-reset", "x-rate-limit-remaining"),
    ("ratelimit-reset", "ratelimit-remaining"),
    ("x-ratelimit-reset-requests", "x-ratelimit-remaining-requests"),
    ("x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"),
];

/// A number from here on is a time in milliseconds since 1970: as seconds it is after the year 5000.
const FIRST_UNIX_MS: f64 = 100_000_000_000.0;
/// A number from here on is a time in seconds since 1970: as a wait it is 31 years.
const FIRST_UNIX_S: f64 = 1_000_000_000.0;
/// The longest wait that is believed, in milliseconds: a month.
const LONGEST_MS: u64 = 31 * 86_400_000;

/// Returns the wait until the limit of a refused request ends, in milliseconds. `header` looks an answer's header up; OpenRouter
/// repeats the headers of the provider behind it in the error of the body. `now_unix_ms` is the provider's `date` or our
/// clock; a past time gives 0. A limit of which something is left does not count, and neither does nonsense.
#[must_use]
pub fn limit_reset_ms(
    header: impl Fn(&str) -> Option<String>,
    body: &str,
    now_unix_ms: u64,
) -> Option<u64> {
    wait_in_headers(header, now_unix_ms).or_else(|| {
        let json = value_of(body).ok()?;
        let json = json.get(0).unwrap_or(&json); // Gemini wraps its error in a list of one
        let members = stated_error(json)?.pointer("/metadata/headers")?.as_object()?;
        let member = |name: &str| {
            let (_, value) = members.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
            Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        };
        let (after, after_ms) = (member("retry-after"), member("retry-after-ms"));
        retry_after_ms(after.as_deref(), after_ms.as_deref(), now_unix_ms)
            .or_else(|| wait_in_headers(member, now_unix_ms))
    })
}

/// Returns the wait until the last of the limits ends that are used up.
fn wait_in_headers(header: impl Fn(&str) -> Option<String>, now_unix_ms: u64) -> Option<u64> {
    let left_of = |name: &str| header(name).and_then(|left| left.trim().parse::<f64>().ok());
    let used_up = LIMITS.iter().filter(|(_, left)| left_of(left).is_none_or(|left| left <= 0.0));
    used_up.filter_map(|(reset, _)| wait_until(&header(reset)?, now_unix_ms)).max()
}

/// Reads the end of a limit: a time or a wait as a number, a wait with units (`1m30s`), or an HTTP date.
fn wait_until(text: &str, now_unix_ms: u64) -> Option<u64> {
    let text = text.trim();
    let wait = match text.parse::<f64>() {
        Ok(at) if at >= FIRST_UNIX_MS => whole_ms(at)?.saturating_sub(now_unix_ms),
        Ok(at) if at >= FIRST_UNIX_S => whole_ms(at * 1_000.0)?.saturating_sub(now_unix_ms),
        Ok(wait) => whole_ms(wait * 1_000.0)?,
        Err(_) => duration_ms(&text.to_ascii_lowercase())
            .or_else(|| http_date_unix_ms(text).map(|at| at.saturating_sub(now_unix_ms)))?,
    };
    (wait <= LONGEST_MS).then_some(wait)
}

fn whole_ms(number: f64) -> Option<u64> {
    const LAST_MS: f64 = 253_402_300_799_000.0; // the end of the year 9999
    if !(0.0..=LAST_MS).contains(&number) {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 9999")]
    Some(number.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: u64 = 1_800_000_000_000;

    fn wait_of(headers: &[(&str, &str)], body: &str) -> Option<u64> {
        let header = |name: &str| {
            let (_, value) = headers.iter().find(|(key, _)| *key == name)?;
            Some((*value).to_owned())
        };
        limit_reset_ms(header, body, NOW_MS)
    }

    // Finding: report 30-a10 (everruns/everruns#2280).
    #[test]
    fn the_end_of_a_limit_is_read_in_every_form() {
        for (text, wait) in [
            ("1800000045000", Some(45_000)),
            ("1800000045", Some(45_000)),
            ("1800000000.5", Some(500)),
            ("1799999999", Some(0)),
            ("45", Some(45_000)),
            ("1.5", Some(1_500)),
            (" 1m30s ", Some(90_000)),
            ("120ms", Some(120)),
            ("Fri, 15 Jan 2027 08:00:45 GMT", Some(45_000)),
            ("1900000000", None),
            ("99999999", None),
            ("-1", None),
            ("nan", None),
            ("inf", None),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(wait_of(&[("x-ratelimit-reset", text)], ""), wait, "{text}");
        }
    }

    #[test]
    fn a_limit_of_which_something_is_left_is_not_waited_for() {
        let left = [("x-ratelimit-reset", "45"), ("x-ratelimit-remaining", "7")];
        assert_eq!(wait_of(&left, ""), None);
        let two = [
            ("x-ratelimit-reset-requests", "9s"),
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-tokens", "1h"),
            ("x-ratelimit-remaining-tokens", "3"),
        ];
        assert_eq!(wait_of(&two, ""), Some(9_000));
        assert_eq!(wait_of(&two[..1], ""), Some(9_000));
    }

    #[test]
    fn the_headers_in_an_errors_body_are_read_too() {
        let body = |headers: &str| {
            format!(r#"{{"error":{{"code":429,"metadata":{{"headers":{headers}}}}}}}"#)
        };
        let reset = body(r#"{"X-RateLimit-Remaining":"0","X-RateLimit-Reset":"1800000045000"}"#);
        assert_eq!(wait_of(&[], &reset), Some(45_000));
        assert_eq!(wait_of(&[("x-ratelimit-reset", "7")], &reset), Some(7_000));
        let number = body(r#"{"X-RateLimit-Reset":1800000045000,"Retry-After":3}"#);
        assert_eq!(wait_of(&[], &number), Some(3_000));
        for other in [String::new(), "odd".to_owned(), body("null"), body("[]"), body("{}")] {
            assert_eq!(wait_of(&[], &other), None, "{other}");
        }
    }
}
