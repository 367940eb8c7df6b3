//! Monthly limits of cost, and what is spent of them.

use std::collections::BTreeMap;
use std::time::Duration;

use domain::{OrgId, TimestampMs};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use crate::{Store, StoreError};

/// Names the organisation's own limit.
pub const ORGANISATION: &str = "";
/// Names the limit of each person without one of their own.
pub const EACH_PERSON: &str = "*";
/// The most limits of an organisation.
pub const MAX_LIMITS: i64 = 1_000;

/// A calendar month of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Month {
    /// Its beginning.
    pub from: TimestampMs,
    /// Its end, which is the beginning of the next one.
    pub to: TimestampMs,
}

impl Month {
    /// The month of a time.
    #[must_use]
    pub fn of(now: TimestampMs) -> Self {
        let at =
            |day: Date| day.to_zoned(TimeZone::UTC).map(|day| day.timestamp().as_millisecond());
        let month = || {
            let day = Timestamp::from_millisecond(now).ok()?.to_zoned(TimeZone::UTC).date();
            let first = day.first_of_month();
            Some(Self { from: at(first).ok()?, to: at(first.checked_add(1.month()).ok()?).ok()? })
        };
        // A time outside of the calendar has a month of its own.
        month().unwrap_or(Self { from: now, to: now.saturating_add(1) })
    }

    /// Whether a time is in it.
    #[must_use]
    pub const fn has(self, now: TimestampMs) -> bool {
        self.from <= now && now < self.to
    }

    /// The first day of the next month, such as `2026-12-01`.
    #[must_use]
    pub fn next_day(self) -> String {
        let day = Timestamp::from_millisecond(self.to).map(|at| at.to_zoned(TimeZone::UTC).date());
        day.map_or_else(|_| "?".to_owned(), |day| day.to_string())
    }
}

/// The costs of a month, where there are limits. Amounts are in nano-USD.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spent {
    /// The month.
    pub month: Month,
    /// The limits: of [`ORGANISATION`], of [`EACH_PERSON`], and of people. Empty: nothing was summed up.
    pub limits: BTreeMap<String, i64>,
    /// The costs of all.
    pub total: i64,
    /// The costs for each person.
    pub people: BTreeMap<String, i64>,
    /// How long ago the costs were summed up; `None` before they ever were. A cost that is younger may be missing.
    pub age: Option<Duration>,
}

impl Spent {
    /// The limit of the organisation or of a person. Work of nobody known counts for the organisation alone.
    #[must_use]
    pub fn limit(&self, whose: &str) -> Option<i64> {
        let own = self.limits.get(whose);
        own.or_else(|| self.limits.get(EACH_PERSON).filter(|_| whose != ORGANISATION)).copied()
    }

    /// The costs of the organisation or of a person.
    #[must_use]
    pub fn of(&self, whose: &str) -> i64 {
        match whose {
            ORGANISATION => self.total,
            person => self.people.get(person).copied().unwrap_or(0),
        }
    }
}

impl Store {
    /// Returns the costs of the month of `now`, as far as usage is counted. Without limits it reads no costs.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn spent(&self, org: OrgId, now: TimestampMs) -> Result<Spent, StoreError> {
        let month = Month::of(now);
        let limits = self.spending_limits(org).await?;
        if limits.is_empty() {
            return Ok(Spent { month, ..Spent::default() });
        }
        let (people, age): (BTreeMap<String, i64>, Option<Duration>) = self
            .read(org, move |connection| {
                Box::pin(async move {
                    let rows = sqlx::query!(
                        r#"SELECT person, least(sum(cost_nanos), 9223372036854775807)::bigint AS "cost!" FROM usage_person
                           WHERE org_id = $1 AND starts_ms >= $2 AND starts_ms < $3 GROUP BY person"#,
                        org.0,
                        month.from,
                        month.to,
                    )
                    .fetch_all(&mut *connection)
                    .await?;
                    // Read after the costs: it is never too young.
                    let age = sqlx::query_scalar!(
                        r#"SELECT clock_ms() - read_ms AS "age!" FROM usage_cursor WHERE org_id = $1"#,
                        org.0
                    )
                    .fetch_optional(&mut *connection)
                    .await?;
                    let age = age.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)));
                    Ok((rows.into_iter().map(|row| (row.person, row.cost)).collect(), age))
                })
            })
            .await?;
        let total = people.values().fold(0, |sum: i64, cost| sum.saturating_add(*cost));
        Ok(Spent { month, limits, total, people, age })
    }

    /// The monthly limits, by whose they are.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn spending_limits(&self, org: OrgId) -> Result<BTreeMap<String, i64>, StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let rows = sqlx::query!(
                    "SELECT whose, monthly_nanos FROM spending_limit WHERE org_id = $1 ORDER BY whose",
                    org.0
                )
                .fetch_all(&mut *connection)
                .await?;
                Ok(rows.into_iter().map(|row| (row.whose, row.monthly_nanos)).collect())
            })
        })
        .await
    }

    /// Sets a limit, or removes it. Workers obey it within some seconds.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the organisation has [`MAX_LIMITS`] already; when the database fails.
    pub async fn set_spending_limit(
        &self,
        org: OrgId,
        whose: String,
        monthly: Option<i64>,
        now: TimestampMs,
    ) -> Result<(), StoreError> {
        self.in_tenant(org, move |tx| {
            Box::pin(async move {
                let Some(monthly) = monthly else {
                    sqlx::query!(
                        "DELETE FROM spending_limit WHERE org_id = $1 AND whose = $2",
                        org.0,
                        whose
                    )
                    .execute(&mut **tx)
                    .await?;
                    return Ok(());
                };
                let set = sqlx::query!(
                    "INSERT INTO spending_limit AS l (org_id, whose, monthly_nanos, set_ms)
                     SELECT $1, $2, $3, $4
                     WHERE (SELECT count(*) FROM spending_limit o WHERE o.org_id = $1 AND o.whose <> $2) < $5
                     ON CONFLICT (org_id, whose) DO UPDATE
                     SET monthly_nanos = excluded.monthly_nanos, set_ms = excluded.set_ms",
                    org.0,
                    whose,
                    monthly,
                    now,
                    MAX_LIMITS,
                )
                .execute(&mut **tx)
                .await?;
                if set.rows_affected() == 0 {
                    return Err(StoreError::Conflict { what: "one of 1,000 limits" });
                }
                Ok(())
            })
        })
        .await
    }

    /// The most that the requests which run now may cost together, of the organisation, in nano-USD, and how many there are.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn running_costs(&self, org: OrgId) -> Result<(i64, i64), StoreError> {
        self.read(org, move |connection| {
            Box::pin(async move {
                let row = sqlx::query!(
                    r#"SELECT least(coalesce(sum(r.estimate_nanos), 0), 9223372036854775807)::bigint AS "most!",
                           count(r.id) AS "count!"
                       FROM session_head h CROSS JOIN LATERAL (
                           SELECT a.id, a.estimate_nanos, a.turn_id FROM provider_attempt a
                           WHERE a.org_id = $1 AND a.incarnation = h.incarnation ORDER BY a.seq DESC LIMIT 2) AS r
                       JOIN provider_turn t ON t.org_id = $1 AND t.id = r.turn_id AND t.status = 'open'
                       WHERE h.org_id = $1 AND h.ready AND h.open"#,
                    org.0
                )
                .fetch_one(&mut *connection)
                .await?;
                Ok((row.most, row.count))
            })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_is_that_of_utc() {
        // 2026-11-21 and the first moment of a year.
        let november = Month::of(1_795_293_590_000);
        assert_eq!((november.from, november.to), (1_793_491_200_000, 1_796_083_200_000));
        assert_eq!(november.next_day(), "2026-12-01");
        assert!(november.has(november.from) && !november.has(november.to));
        assert_eq!(Month::of(1_798_761_600_000).from, 1_798_761_600_000);
        assert_eq!(Month::of(1_798_761_599_999).to, 1_798_761_600_000);
        let nowhere = Month::of(i64::MAX - 1);
        assert!(nowhere.has(i64::MAX - 1));
    }

    #[test]
    fn a_person_without_a_limit_has_that_of_each() {
        let limits = BTreeMap::from([(EACH_PERSON.to_owned(), 5), ("a".to_owned(), 9)]);
        let people = BTreeMap::from([("a".to_owned(), 3)]);
        let spent = Spent { limits, people, total: 4, ..Spent::default() };
        assert_eq!((spent.limit("a"), spent.limit("b")), (Some(9), Some(5)));
        assert_eq!(spent.limit(ORGANISATION), None, "each person's is nobody's limit together");
        assert_eq!((spent.of("a"), spent.of("b"), spent.of(ORGANISATION)), (3, 0, 4));
    }
}
