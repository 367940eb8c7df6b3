//! Carries out a takeover: judged calls run again, or their effects are looked for first.

use domain::{ToolClass, ToolIntent};
use session_rules::{Next, Recovery, unclear};
use snapshots::Touched;

use crate::drain::{Drain, Stop};
use crate::toolbox::{Found, Ran};
use crate::turn::Turn;

impl<'r> Drain<'r> {
    /// Continues the open turn as it was judged.
    pub(crate) async fn recover(&mut self, recovery: Recovery) -> Result<Next, Stop> {
        let Recovery { said, run, probe, outcome } = recovery;
        let mut turn = Turn::of(said);
        let mut calls =
            self.log.history().open_turn().map(|open| open.calls.iter()).into_iter().flatten();
        let changes = calls.any(|(_, call)| call.class != ToolClass::Pure);
        if changes || !self.log.history().unsaved().is_empty() {
            // The dead worker cannot say which files its calls touched.
            turn.touched(Touched::Anything);
        }
        self.start_bodies(&mut turn, run);
        self.probe_all(&mut turn, probe).await?;
        self.settle(turn, outcome).await
    }

    /// Looks for the effects of *probe* calls, and runs those whose effect is missing.
    async fn probe_all(
        &mut self,
        turn: &mut Turn<'r>,
        calls: Vec<(ToolIntent, i32)>,
    ) -> Result<(), Stop> {
        let mut again = Vec::new();
        for (intent, body) in calls {
            match self.stage.toolbox.probe(turn.said.turn.clone(), &intent).await {
                Found::Done(ran) => {
                    turn.finished(ran, self.stage.runtime.settings.result_delay);
                }
                Found::NotDone => again.push((intent, body)),
                Found::Unclear => {
                    let now = self.stage.runtime.clock.now_ms();
                    let settled = unclear(turn.said.turn.clone(), intent.call, now);
                    let ran = Ran { settled, touched: Touched::Anything };
                    turn.finished(ran, self.stage.runtime.settings.result_delay);
                }
            }
        }
        if again.is_empty() {
            return Ok(());
        }
        let id = turn.said.turn.clone();
        self.write(|rules, draft| rules.start_again(draft, &id, &again)).await?;
        self.start_bodies(turn, again.into_iter().map(|(intent, _)| intent).collect());
        Ok(())
    }
}
