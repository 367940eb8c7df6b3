//! The rate at which an organisation may ask a provider, shared by all workers.
//!
//! ```text
//! newest                                            66 slots of a second
//! │open│ 60 of a minute …                              │ 5 for the way to the provider │
//! ```
//!
//! A grant is for a request that is written within [`GRANT_LIFE`]. Then any 60 seconds at the provider hold no more
//! requests than the limit: those who arrive in them were granted within the 60 seconds before the last of them and
//! the time that the first was on its way.

use std::time::Duration;

use domain::OrgId;

use crate::{Store, StoreError};

/// How long a grant is good for: a request that is not on its way by then takes another.
pub const GRANT_LIFE: Duration = Duration::from_secs(3);

/// How much an organisation may ask of a provider in a minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests; `None`: as many as there are.
    pub requests_per_minute: Option<u32>,
    /// Input tokens and the most output tokens, as estimated; `None`: as many as there are.
    pub tokens_per_minute: Option<u64>,
}

impl RateLimit {
    /// Whether anything is limited.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.requests_per_minute.is_some() || self.tokens_per_minute.is_some()
    }
}

/// Whether a request may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateGrant {
    /// It may, within [`GRANT_LIFE`].
    Granted,
    /// Not before this has passed: ask again then. Others may have come first.
    Wait(Duration),
}

impl Store {
    /// Asks to send a request of `tokens` to a provider. One round trip; a commit only when it is granted.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn take_provider_rate(
        &self,
        org: OrgId,
        provider: String,
        limit: RateLimit,
        tokens: u64,
    ) -> Result<RateGrant, StoreError> {
        let bounded = |n: u64| i64::try_from(n).unwrap_or(i64::MAX).min(MAX_TOKENS);
        let requests = limit.requests_per_minute.map(i64::from);
        let tokens_limit = limit.tokens_per_minute.map(bounded);
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    let wait = sqlx::query_scalar!(
                        r#"SELECT take_provider_rate($1, $2, $3, $4, $5) AS "wait!""#,
                        org.0,
                        provider,
                        requests,
                        tokens_limit,
                        bounded(tokens),
                    )
                    .fetch_one(&mut *connection)
                    .await?;
                    Ok(match u64::try_from(wait) {
                        Ok(wait @ 1..) => RateGrant::Wait(Duration::from_millis(wait)),
                        _ => RateGrant::Granted,
                    })
                })
            })
            .await
    }

    /// Lets nobody of an organisation ask a provider for `wait`, an hour at most: it has said "too many" to one.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn hold_provider(
        &self,
        org: OrgId,
        provider: String,
        wait: Duration,
    ) -> Result<(), StoreError> {
        let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX / 2);
        self.drain_lane()
            .run(move |connection| {
                Box::pin(async move {
                    sqlx::query!("SELECT hold_provider($1, $2, $3)", org.0, provider, wait)
                        .execute(&mut *connection)
                        .await?;
                    Ok(())
                })
            })
            .await
    }
}

/// Sums of 66 of them fit in 64 bits.
const MAX_TOKENS: i64 = 1 << 48;
