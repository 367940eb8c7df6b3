use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::Value;

use crate::{ContextSnapshot, Observation, Observed, SystemContext};

/// The date's key.
pub const DATE_KEY: &str = "core/date";

/// Today's date in `zone`. It never goes back within an epoch: a clock that was set back, or a worker
/// whose clock is behind, does not take yesterday's date to the model again.
#[must_use]
pub fn date(now_ms: i64, zone: &TimeZone, told: Option<&ContextSnapshot>) -> SystemContext {
    let Ok(now) = Timestamp::from_millisecond(now_ms) else {
        return SystemContext::make(DATE_KEY, Observed::Unavailable);
    };
    let today = now.to_zoned(zone.clone()).date();
    let before = told
        .and_then(|snapshot| snapshot.0.get(DATE_KEY))
        .and_then(|state| state.value.as_str().and_then(|text| text.parse::<Date>().ok()));
    let date = before.map_or(today, |before| before.max(today));
    let shown = date.strftime("%a %b %d %Y");
    SystemContext::make(
        DATE_KEY,
        Observed::Value(Observation {
            value: Value::String(date.to_string()),
            baseline: format!("Today's date: {shown}"),
            update: format!("Today's date is now: {shown}"),
            removal: None,
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reconciled;

    const EVENING: i64 = 1_795_304_100_000; // 2026-11-21T23:35:00Z

    #[test]
    fn a_new_day_is_told_once_and_never_taken_back() {
        let first = date(EVENING, &TimeZone::UTC, None).initialize().expect("a date");
        assert_eq!(first.baseline, "Today's date: Sat Nov 21 2026");
        let next = date(EVENING + 3_600_000, &TimeZone::UTC, Some(&first.snapshot));
        let Reconciled::Updated { rendered, snapshot } = next.reconcile(&first.snapshot) else {
            panic!("a new day");
        };
        assert_eq!(rendered, "Today's date is now: Sun Nov 22 2026");
        let back = date(EVENING, &TimeZone::UTC, Some(&snapshot));
        assert_eq!(back.reconcile(&snapshot), Reconciled::Unchanged);
    }

    #[test]
    fn the_date_is_that_of_the_zone() {
        let tokyo = TimeZone::get("Asia/Tokyo").expect("a zone");
        let there = date(EVENING, &tokyo, None).initialize().expect("a date");
        assert_eq!(there.baseline, "Today's date: Sun Nov 22 2026");
    }
}
