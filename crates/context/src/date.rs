use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::{ContextSource, Loaded, SourceKey, SystemContext};

/// The key of the date.
pub const DATE_KEY: SourceKey = SourceKey::fixed("core/date");

/// Today's date. It never goes back: if a clock is set back, or another worker's clock is behind, the model
/// does not get yesterday's date again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct Today(Date);

impl TryFrom<String> for Today {
    type Error = jiff::Error;

    fn try_from(text: String) -> Result<Self, jiff::Error> {
        text.parse().map(Self)
    }
}

impl From<Today> for String {
    fn from(today: Today) -> Self {
        today.0.to_string()
    }
}

impl Today {
    fn shown(self) -> impl std::fmt::Display {
        self.0.strftime("%a %b %d %Y")
    }
}

impl ContextSource for Today {
    type Told = Self;

    fn told(&self) -> Self {
        *self
    }

    fn baseline(&self) -> String {
        format!("Today's date: {}", self.shown())
    }

    fn update(&self, _told: &Self) -> String {
        format!("Today's date is now: {}", self.shown())
    }

    fn follow(self, told: &Self) -> Self {
        Self(self.0.max(told.0))
    }
}

/// Returns the source for today's date in `zone`.
#[must_use]
pub fn date(now_ms: i64, zone: &TimeZone) -> SystemContext {
    let loaded = match Timestamp::from_millisecond(now_ms) {
        Ok(now) => Loaded::Value(Today(now.to_zoned(zone.clone()).date())),
        Err(error) => Loaded::Unavailable(format!("this machine's clock is wrong: {error}")),
    };
    SystemContext::make(DATE_KEY, loaded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reconciled;

    const EVENING: i64 = 1_795_304_100_000; // 2026-11-21T23:35:00Z

    #[test]
    fn a_new_day_is_told_once_and_never_taken_back() {
        let first = date(EVENING, &TimeZone::UTC).initialize().expect("a date");
        assert_eq!(first.baseline, "Today's date: Sat Nov 21 2026");
        assert_eq!(first.snapshot.text(), r#"{"core/date":{"value":"2026-11-21"}}"#);
        let next = date(EVENING + 3_600_000, &TimeZone::UTC);
        let Reconciled::Updated { rendered, snapshot } = next.reconcile(&first.snapshot) else {
            panic!("a new day");
        };
        assert_eq!(rendered, "Today's date is now: Sun Nov 22 2026");
        let back = date(EVENING, &TimeZone::UTC);
        assert_eq!(back.reconcile(&snapshot), Reconciled::Unchanged);
    }

    #[test]
    fn the_date_is_that_of_the_zone() {
        let tokyo = TimeZone::get("Asia/Tokyo").expect("a zone");
        let there = date(EVENING, &tokyo).initialize().expect("a date");
        assert_eq!(there.baseline, "Today's date: Sun Nov 22 2026");
    }

    #[test]
    fn a_clock_beyond_all_dates_is_unavailable() {
        let blocked = date(i64::MAX, &TimeZone::UTC).initialize().expect_err("no date");
        assert!(
            blocked.to_string().contains("core/date (this machine's clock is wrong"),
            "{blocked}"
        );
    }
}
