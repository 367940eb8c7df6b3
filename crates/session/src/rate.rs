//! The rate at which an organisation may ask a provider, shared by all workers: a request that is not granted waits.

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

/// Bytes of a body that stand for one token, where nobody has counted.
const BYTES_PER_TOKEN: usize = 4;

/// What a request asks its provider for.
#[derive(Debug, Clone)]
pub(crate) struct Asks {
    org: domain::OrgId,
    provider: String,
    limit: RateLimit,
    tokens: u64,
}

impl Asks {
    /// `None`: nothing is limited, and nothing is asked.
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

    /// Asks once, having waited so often. `None`: the request may be sent at once; else how long to wait before asking
    /// again.
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
            // One that has grown old on its way is another's minute.
            RateGrant::Granted if asked.elapsed() < GRANT_LIFE => None,
            RateGrant::Granted => Some(Duration::ZERO),
            RateGrant::Wait(wait) => {
                debug!(
                    provider,
                    wait_ms = wait.as_millis(),
                    "a request waits for the provider's rate"
                );
                // Those who wait do not all come back at the same moment: rather sooner, who has waited before.
                Some(wait + wait.mul_f64(rand::rng().random::<f64>().powi(waited + 1) / 10.0))
            }
        })
    }

    /// Waits for a request that runs beside the drain.
    pub(crate) async fn granted(&self, runtime: &Runtime) -> Result<(), store::StoreError> {
        let mut waited = 0;
        while let Some(wait) = self.ask(runtime, waited).await? {
            sleep(wait).await;
            waited += 1;
        }
        Ok(())
    }

    /// The provider has refused it: if it says "too many", all of the organisation wait.
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
    /// Waits until a request may be sent, while all else of the turn goes on. True: interrupted.
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
