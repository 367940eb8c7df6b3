//! Shows followers the output of a call while it runs. Nothing of it is durable.

use std::sync::Arc;
use std::time::Duration;

use domain::{MessageId, SessionRef, ToolIntent};
use sandbox::LiveOutput;
use signals::{CallOutput, Hint, SessionHint, Signals, Topic};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tools::as_terminal_shows;

use crate::runtime::Runtime;

/// How often new output is shown. Each time it is the last 8 KiB.
const SHOW_EVERY: Duration = Duration::from_millis(500);
/// The most bytes that are shown at once. A text in which the cursor moves may be much longer as a terminal shows it.
const MAX_SHOWN: usize = 8 * 1024;

/// A call whose output followers see.
pub(crate) struct WatchedCall {
    signals: Arc<dyn Signals>,
    topic: Topic,
    output: CallOutput,
}

impl WatchedCall {
    pub(crate) fn new(
        runtime: &Runtime,
        session: &SessionRef,
        message: MessageId,
        intent: &ToolIntent,
    ) -> Self {
        let output = CallOutput {
            message,
            part: intent.part.clone(),
            call: intent.call.clone(),
            omitted: 0,
            text: String::new(),
        };
        let topic = Topic::Session(session.org, session.session.clone());
        Self { signals: runtime.signals.clone(), topic, output }
    }

    /// Runs `body` to its end. A short one shows nothing before its result.
    pub(crate) async fn show_while<T>(
        mut self,
        live: &LiveOutput,
        body: impl Future<Output = T>,
    ) -> T {
        tokio::pin!(body);
        let mut ticks = interval_at(Instant::now() + SHOW_EVERY, SHOW_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                outcome = &mut body => return outcome,
                _ = ticks.tick() => self.show_output(live),
            }
        }
    }

    fn show_output(&mut self, live: &LiveOutput) {
        let Some(end) = live.take_new() else { return };
        self.output.omitted = end.omitted;
        let mut text = as_terminal_shows(end.text);
        let from = text.ceil_char_boundary(text.len().saturating_sub(MAX_SHOWN));
        text.drain(..from);
        self.output.text = text;
        let hint = SessionHint::Output(self.output.clone());
        self.signals.publish(&self.topic, Hint::Session(hint));
    }
}
