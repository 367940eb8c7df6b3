//! The rate of an organisation's requests to a provider, shared by all workers. A request that is not granted waits.

use std::time::Duration;

use llm_client::LlmError;
use llm_protocol::ErrorReason;
use rand::RngExt;
use session_rules::TurnPlan;
use store::{GRANT_LIFE, RateGrant, RateLimit};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::drain::{Drain, Stop};
use crate::patience::patiently;
use crate::runtime::Runtime;
use crate::turn::Turn;

/// The bytes of a body that count as one token, where nobody has counted.
const BYTES_PER_TOKEN: usize = 4;

/// A request for a place within the rate.
#[derive(Debug, Clone)]
pub(crate) struct Asks {
    org: domain::OrgId,
    provider: String,
    limit: RateLimit,
    tokens: u64,
}

impl Asks {
    /// Returns `None` if there is no limit, so that nothing is asked.
    pub(crate) fn of(org: domain::OrgId, plan: &TurnPlan, limit: RateLimit) -> Option<Self> {
        limit.is_set().then(|| {
            let estimate = plan.started.pricing.as_ref().map(|pricing| {
                let counted = pricing.estimate.input + pricing.estimate.output_max.unwrap_or(0);
                u64::try_from(counted).unwrap_or(0)
            });
            let guessed = u64::try_from(plan.body.len() / BYTES_PER_TOKEN).unwrap_or(u64::MAX);
            let tokens = estimate.unwrap_or(guessed);
            Self { org, provider: plan.model.provider.clone(), limit, tokens }
        })
    }

    /// Asks once, after `waited` waits. Returns `None` if the request may be sent at once, otherwise the time to wait
    /// before asking again.
    async fn ask(
        &self,
        runtime: &Runtime,
        waited: i32,
    ) -> Result<Option<Duration>, store::StoreError> {
        let Self { org, provider, limit, tokens } = self;
        let mut asked = Instant::now();
        let grant = patiently(|| {
            asked = Instant::now();
            runtime.store.take_provider_rate(*org, provider.clone(), *limit, *tokens)
        });
        Ok(match grant.await? {
            // A grant that was delayed for too long may fall into another minute.
            RateGrant::Granted if asked.elapsed() < GRANT_LIFE => None,
            RateGrant::Granted => Some(Duration::ZERO),
            RateGrant::Wait(wait) => {
                debug!(
                    provider,
                    wait_ms = wait.as_millis(),
                    "a request waits for the provider's rate"
                );
                // Spreads the waiting requests, so that they do not all return at once. Those that have waited return
                // sooner.
                Some(wait + wait.mul_f64(rand::rng().random::<f64>().powi(waited + 1) / 10.0))
            }
        })
    }

    /// Waits for the grant of a request beside the drain.
    pub(crate) async fn granted(&self, runtime: &Runtime) -> Result<(), store::StoreError> {
        let mut waited = 0;
        while let Some(wait) = self.ask(runtime, waited).await? {
            sleep(wait).await;
            waited += 1;
        }
        Ok(())
    }

    /// If the provider refused with "too many", makes the whole organisation wait.
    pub(crate) async fn refused(&self, runtime: &Runtime, error: &LlmError) {
        let ErrorReason::RateLimit { retry_after_ms: Some(wait) } = error.reason else { return };
        let held = runtime.store.hold_provider(
            self.org,
            self.provider.clone(),
            Duration::from_millis(wait),
        );
        if let Err(error) = held.await {
            warn!(%error, "a provider's wait could not be told to other workers");
        }
    }
}

impl<'r> Drain<'r> {
    /// Waits until a request may be sent, while the rest of the turn continues. Returns whether the turn was
    /// interrupted.
    pub(crate) async fn await_rate(
        &mut self,
        asks: &Asks,
        turn: &mut Turn<'r>,
    ) -> Result<bool, Stop> {
        let mut waited = 0;
        while let Some(wait) = asks.ask(self.stage.runtime, waited).await? {
            if self.finish_bodies(turn, wait).await? {
                return Ok(true);
            }
            waited += 1;
        }
        Ok(false)
    }
}
