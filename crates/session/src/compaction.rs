//! Runs a Compaction: its summary is streamed like a turn's answer, and nobody sees it before it is committed.

use domain::SessionError;
use session_rules::{Compacted, Next, Said, TurnPlan};

use crate::drain::{Drain, Stop};
use crate::ending::provider_error;
use crate::spending::Allowed;
use crate::turn::{Streamed, Turn};

impl<'r> Drain<'r> {
    /// Requests the summary whose intent is committed, up to the boundary after it.
    pub(crate) async fn compact(&mut self, mut plan: TurnPlan) -> Result<Next, Stop> {
        loop {
            let mut turn = Turn::beside(Said::new(plan.turn.clone(), plan.message.clone()));
            let _counted = match self.allowed(&plan, &mut turn).await? {
                Allowed::Go(counted) => counted,
                Allowed::Wait | Allowed::Interrupted => {
                    return self.cancel_compaction(&turn.said).await;
                }
                Allowed::Stop(reached) => {
                    return self.fail_compaction(&plan, &turn.said, reached).await;
                }
            };
            match self.stream(&plan, &mut turn).await? {
                Streamed::Interrupted => return self.cancel_compaction(&turn.said).await,
                Streamed::Whole => {
                    let observed = self.observe(&[]).await;
                    let compacted = self
                        .write(|rules, draft| rules.summarised(draft, &plan, &turn.said, &observed))
                        .await?;
                    match compacted {
                        Compacted::Again(next) => plan = *next,
                        Compacted::Interrupted => return self.cancel_compaction(&turn.said).await,
                        Compacted::Crossed(next) => {
                            self.written(&next);
                            return Ok(next);
                        }
                    }
                }
                // A partial summary is useless, so the request is repeated whatever has arrived.
                Streamed::Failed(error) => {
                    let usage = turn.said.usage;
                    if self.leave_out_state(&mut plan, usage, &error).await? {
                        continue;
                    }
                    let Some(delay) = self.next_delay(&error) else {
                        let error = provider_error(&error);
                        return self.fail_compaction(&plan, &turn.said, error).await;
                    };
                    plan.started = self.schedule_retry(&plan.started, usage, &error, delay).await?;
                    if self.finish_bodies(&mut turn, delay).await? {
                        let nothing = Said::new(plan.turn.clone(), plan.message.clone());
                        return self.cancel_compaction(&nothing).await;
                    }
                }
            }
        }
    }

    async fn fail_compaction(
        &mut self,
        plan: &TurnPlan,
        said: &Said,
        error: SessionError,
    ) -> Result<Next, Stop> {
        let observed = self.observe(&[]).await;
        let next = self
            .write(|rules, draft| rules.compaction_failed(draft, plan, said, &error, &observed))
            .await?;
        self.written(&next);
        Ok(next)
    }

    async fn cancel_compaction(&mut self, said: &Said) -> Result<Next, Stop> {
        self.write(|rules, draft| rules.compaction_cancelled(draft, said)).await
    }
}
