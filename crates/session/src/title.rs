//! A title's request. It runs beside the drain's other work, and its result is part of the drain's next write.

use std::future::pending;
use std::sync::Arc;

use domain::{ErrorCode, IdMint, OrgId, SessionError, Stamp};
use futures::StreamExt;
use futures::future::BoxFuture;
use session_rules::{Next, Said, Titled, TurnPlan};
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, info_span, warn};

use crate::control::interrupted_after;
use crate::drain::{Drain, Stop};
use crate::ending::provider_error;
use crate::providers::{Blocked, OrgModels, Way};
use crate::rate::Asks;
use crate::runtime::Runtime;
use crate::turn::MISCOUNTED;

/// The title in progress, if there is one.
#[derive(Default)]
pub(crate) struct TitleSlot<'r> {
    running: Option<BoxFuture<'r, Titled>>,
    done: Option<Titled>,
}

impl<'r> TitleSlot<'r> {
    /// Begins the request, whose intent is committed. It only progresses while [`advance`](Self::advance) is awaited.
    pub(crate) fn start(
        &mut self,
        runtime: &'r Runtime,
        models: Arc<OrgModels>,
        org: OrgId,
        plan: TurnPlan,
    ) {
        let span = info_span!("session.title", turn.id = %plan.turn);
        self.running = Some(Box::pin(ask(runtime, models, org, plan).instrument(span)));
        self.done = None;
    }

    /// Returns the result that is not written yet.
    pub(crate) fn done(&self) -> Option<&Titled> {
        self.done.as_ref()
    }

    /// Forgets the title once it is written or lost.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns once, when the answer has come. Without a request it waits for ever. Cancel safe.
    pub(crate) async fn advance(&mut self) {
        let Some(running) = &mut self.running else { return pending().await };
        self.done = Some(running.await);
        self.running = None;
    }
}

/// Sends one request without retries: the next promotion tries again.
async fn ask(runtime: &Runtime, models: Arc<OrgModels>, org: OrgId, plan: TurnPlan) -> Titled {
    let asks = Asks::of(org, &plan, models.limit(&plan.model.provider));
    let mut said = Said::new(plan.turn.clone(), plan.message.clone());
    // Nobody sees the parts of its answer.
    let mut mint = IdMint::after(Stamp::default(), runtime.clock.now_ms());
    let attempt = plan.started.attempt.clone();
    let granted = match &asks {
        Some(asks) => asks.granted(runtime).await,
        None => Ok(()),
    };
    let way = match granted {
        Ok(()) => models.way(&plan).await,
        Err(error) => Err(Blocked::Store(error)),
    };
    let Way { route, as_whom, client } = match way {
        Ok(way) => way,
        Err(Blocked::Refused(error)) => {
            return Titled { attempt, said, error: Some(provider_error(&error)) };
        }
        Err(Blocked::Store(error)) => {
            warn!(%error, "a title's request could not be made");
            let error = SessionError {
                code: ErrorCode::ProviderTransport.into(),
                message: "the request for a title could not be made".into(),
            };
            return Titled { attempt, said, error: Some(error) };
        }
    };
    let llm = client.as_ref().unwrap_or(&runtime.llm).on(route);
    let opened = Box::pin(llm.send(plan.body)).await;
    let mut stream = match opened.map_err(|error| as_whom.told(error)) {
        Ok(stream) => stream,
        Err(error) => {
            if let Some(asks) = &asks {
                asks.refused(runtime, &error).await;
            }
            return Titled { attempt, said, error: Some(provider_error(&error)) };
        }
    };
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => {
                said.take(event, &mut mint);
            }
            Err(error) => return Titled { attempt, said, error: Some(provider_error(&error)) },
        }
    }
    if said.is_miscounted {
        warn!(turn.id = %plan.turn, "{MISCOUNTED}");
    }
    Titled { attempt, said, error: None }
}

impl Drain<'_> {
    /// Waits for a title within bounds when nothing else is left to do, then ends or continues.
    pub(crate) async fn await_title(&mut self) -> Result<Next, Stop> {
        self.finish_title().await?;
        let observed = self.observe(&[]).await;
        let next = self.write(|rules, draft| rules.title_waited(draft, &observed)).await?;
        self.written(&next);
        Ok(next)
    }

    /// Waits for the title in progress, within bounds.
    pub(crate) async fn finish_title(&mut self) -> Result<(), Stop> {
        if self.log.history().titling().is_none() {
            return Ok(());
        }
        let deadline = Instant::now() + self.stage.runtime.settings.title_wait;
        let control = self.stage.control.clone();
        let mut interrupts = control.interrupt.clone();
        let known = self.stage.interrupts_before;
        tokio::select! {
            biased;
            () = control.fenced.cancelled() => return Err(Stop::Fenced),
            () = interrupted_after(&mut interrupts, known) => {}
            () = control.stopping.cancelled() => {}
            () = self.title.advance() => {}
            () = sleep_until(deadline) => {}
        }
        Ok(())
    }
}
