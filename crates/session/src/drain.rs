//! One Session Drain, from its claim to its end.

use domain::{Claim, DrainOutcome, FencingToken, SessionRef, Taken, ToolSettled};
use history::History;
use session_rules::{Closed, Draft, Next, Observation, Rules, Verdict};
use store::{DrainWrite, Hold, Started, StoreError};
use tracing::{Instrument, info_span, warn};

use crate::control::DrainControl;
use crate::files::{FileSlot, unless_ends};
use crate::live::Live;
use crate::log::Log;
use crate::observe::ObservedAt;
use crate::runtime::Runtime;
use crate::stage::Stage;
use crate::title::TitleSlot;
use crate::traced::Traced;
use crate::workspace::Workspace;

/// The end of a drain, for its owner.
#[derive(Debug)]
pub enum DrainExit {
    /// There was nothing to do.
    Idle,
    /// It ended durably. If somebody has woken the session since, it is *ready* again.
    Ended(DrainOutcome),
    /// It stopped at a boundary on request. The next holder continues.
    HandedOver,
    /// It gave up its slot at a boundary because others wait for one. Start it again at its turn.
    Yielded,
    /// The session sleeps until somebody answers an ask. Nothing of it is in memory.
    Waiting,
    /// The session continues at this other Location: wake its holder.
    Moved(SessionRef),
    /// The worker's budget of folds has no room for this many bytes. Nothing was claimed, or it stopped at a boundary
    /// because its log or its inbox has grown: start it again when there is room.
    NoRoom(usize),
    /// The claim has passed on.
    Fenced,
    /// The log is not the one that the drain knew: the database is another one, or came back without some commits.
    /// Nothing of it was written. The next drain reads the log from its first event.
    WentBack,
    /// The Location has passed on: give it up.
    Superseded,
    /// The store failed. The session stays *ready*, and a later drain recovers it.
    Failed(StoreError),
}

/// The reason why a drain cannot continue.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The budget of folds has no room for this many bytes.
    NoRoom(usize),
    Fenced,
    WentBack,
    Superseded,
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Fenced { .. } => Self::Fenced,
            StoreError::WentBack { .. } => Self::WentBack,
            StoreError::Superseded => Self::Superseded,
            error @ (StoreError::NotFound
            | StoreError::Conflict { .. }
            | StoreError::Busy { .. }
            | StoreError::InboxFull { .. }
            | StoreError::RolesChanged
            | StoreError::Feature { .. }
            | StoreError::Schema(_)
            | StoreError::Unreadable(_)
            | StoreError::Database(_)) => Self::Store(error),
        }
    }
}

/// Runs the session until nothing is left to do. `history` is the fold of a known prefix of its log, possibly empty;
/// it is returned for the next drain if it is still valid.
///
/// Cancel safety: if it is dropped between two writes, the session stays *open*, and a later drain recovers it.
pub async fn drain(
    runtime: &Runtime,
    session: &SessionRef,
    token: FencingToken,
    workspace: &Workspace,
    control: DrainControl,
    history: History,
) -> (DrainExit, Option<History>) {
    let span = info_span!("session.drain", org.id = %session.org, session.id = %session.session);
    let level = match runtime.store.feature_level().await {
        Ok(level) => level,
        Err(error) => return (DrainExit::Failed(error), Some(history)),
    };
    let models = match runtime.models.of_org(&runtime.store, session.org).await {
        Ok(models) => models,
        Err(error) => return (DrainExit::Failed(error), Some(history)),
    };
    let own = control.clone();
    let mut drain = Drain {
        stage: Stage::new(runtime, session, workspace, token, control, level, models),
        log: Log::new(runtime, session, history, own),
        live: Live::new(runtime.signals.clone(), session),
        title: TitleSlot::default(),
        traced: Traced::new(session),
        files: FileSlot::new(workspace.files().cloned()),
        paid_failures: 0,
    };
    // It applies wherever the drain waits: for a retry, a summary, a rate. The drain's parts listen too, so that
    // bodies stop in order.
    let fenced = drain.stage.control.fenced.clone();
    let ran = tokio::select! {
        biased;
        ran = Box::pin(drain.run(token)).instrument(span) => ran,
        () = fenced.cancelled() => Err(Stop::Fenced),
    };
    let failure = match &ran {
        // Without room it has not begun.
        Ok(_) | Err(Stop::NoRoom(_)) => None,
        Err(Stop::Fenced) => Some("fenced"),
        Err(Stop::WentBack) => Some("went_back"),
        Err(Stop::Superseded) => Some("superseded"),
        Err(Stop::Store(_)) => Some("store_failed"),
    };
    drain.traced.end(failure, runtime.clock.now_ms());
    match ran {
        // The room is what it gave up.
        Ok(exit @ DrainExit::NoRoom(_)) => (exit, None),
        Ok(exit) => (exit, Some(drain.log.into_history())),
        Err(Stop::NoRoom(bytes)) => (DrainExit::NoRoom(bytes), None),
        Err(Stop::Fenced) => (DrainExit::Fenced, None),
        Err(Stop::WentBack) => (DrainExit::WentBack, None),
        Err(Stop::Superseded) => (DrainExit::Superseded, None),
        Err(Stop::Store(error)) => (DrainExit::Failed(error), None),
    }
}

pub(crate) struct Drain<'r> {
    pub(crate) stage: Stage<'r>,
    pub(crate) log: Log<'r>,
    pub(crate) live: Live,
    pub(crate) title: TitleSlot<'r>,
    pub(crate) traced: Traced<'r>,
    pub(crate) files: FileSlot,
    /// This drain's failed requests in a row that may have been charged.
    pub(crate) paid_failures: u32,
}

impl<'r> Drain<'r> {
    async fn run(&mut self, token: FencingToken) -> Result<DrainExit, Stop> {
        let Some(mut next) = self.take_up(token).await? else {
            return Ok(DrainExit::Idle);
        };
        loop {
            self.answering();
            next = match next {
                Next::End(Closed::Ended(outcome)) => return Ok(DrainExit::Ended(outcome)),
                Next::End(Closed::HandedOver) => return Ok(self.hand_over_exit()),
                Next::End(Closed::Yielded) => return Ok(DrainExit::Yielded),
                Next::End(Closed::Waiting) => {
                    let goes_on = self.cover_own_asks().await;
                    return Ok(if goes_on { DrainExit::Yielded } else { DrainExit::Waiting });
                }
                Next::Turn(plan) => {
                    let span = info_span!("session.turn", turn.id = %plan.turn);
                    Box::pin(self.turn(*plan)).instrument(span).await?
                }
                Next::Inbox => Box::pin(self.promote_rest()).await?,
                Next::Recover(recovery) => Box::pin(self.recover(*recovery)).await?,
                Next::Compact(plan) => {
                    let span = info_span!("session.compaction", turn.id = %plan.turn);
                    Box::pin(self.compact(*plan)).instrument(span).await?
                }
                Next::Title => Box::pin(self.await_title()).await?,
                Next::Files(plan) => {
                    let span = info_span!("session.revert");
                    Box::pin(self.revert_files(plan)).instrument(span).await?
                }
                Next::Move(plan) => Box::pin(self.move_on(plan)).await?,
                Next::Moved(location) => {
                    let session = self.stage.session;
                    return Ok(DrainExit::Moved(SessionRef { location, ..session.clone() }));
                }
            };
        }
    }

    /// Returns how a drain that has handed over ended: for want of room, unless the worker stops.
    fn hand_over_exit(&self) -> DrainExit {
        if self.log.is_cramped() && !self.stage.control.stopping.is_cancelled() {
            DrainExit::NoRoom(self.log.history().bytes())
        } else {
            DrainExit::HandedOver
        }
    }

    /// Crosses the next boundary, which promotes more of an inbox that was too large for one write.
    async fn promote_rest(&mut self) -> Result<Next, Stop> {
        let observed = self.observe(&[]).await;
        let next = self.write(|rules, draft| rules.cross(draft, true, &observed)).await?;
        self.written(&next);
        Ok(next)
    }

    /// Notes which prompt the next work answers, for its trace.
    fn answering(&mut self) {
        let now = self.stage.runtime.clock.now_ms();
        let message = self.log.history().last_prompt();
        self.stage.toolbox.traced = self.traced.answers(message, now);
    }

    /// Looks at the session and claims it with the drain's first write. Returns `None` if there is nothing to do.
    async fn take_up(&mut self, token: FencingToken) -> Result<Option<Next>, Stop> {
        if self.stage.workspace.is_unproven() {
            return Box::pin(self.take_up_unproven(token)).await;
        }
        // The files are looked at in parallel to the log, which seldom names other files; and only once while nothing
        // is locked, since a second look holds the head.
        let ahead = self.observed_at(&[]);
        let (looked, (), stored) = tokio::join!(
            self.log.look(token, Hold::Look),
            ahead.look_ahead(),
            self.stage.read_settings()
        );
        stored?;
        let Some((mut write, mut taken)) = ready(looked?)? else { return Ok(None) };
        let at = self.observed_at(&[]).with_files_of(&ahead);
        let observed = self.stage.look_at(at).await;
        self.stage.settle_settings();
        loop {
            self.stage.compare_tools(self.log.history()).await?;
            if let Some(next) = self.claim(*write, taken, &observed).await? {
                return Ok(Some(next));
            }
            let looked = self.log.look(token, Hold::Lock).await?;
            let Some(again) = ready(looked)? else { return Ok(None) };
            (write, taken) = again;
        }
    }

    /// Claims the session with a separate write before anybody looks at files that nobody has looked at yet. If they
    /// kill the worker, the session stays open, and the next drain counts that.
    async fn take_up_unproven(&mut self, token: FencingToken) -> Result<Option<Next>, Stop> {
        self.stage.read_settings().await?;
        let mut hold = Hold::Look;
        let (taken, stopped) = loop {
            let looked = self.log.look(token, hold).await?;
            let Some((write, taken)) = ready(looked)? else { return Ok(None) };
            let (claim, earlier) = (self.claiming(&write, taken), self.log.history().writer());
            let rules = self.stage.rules();
            let counted = self.log.try_write(*write, |draft| rules.count(draft, taken)).await?;
            if let Some(stopped) = counted {
                if !self.log.has_ended() {
                    self.stage.control.claimed(claim);
                }
                self.traced.claimed(claim, taken, earlier);
                break (taken, stopped);
            }
            hold = Hold::Lock;
        };
        if let Some(next) = stopped {
            self.opened(&next, taken);
            return Ok(Some(next));
        }
        let observed = self.observe(&[]).await;
        self.stage.workspace.proven();
        self.stage.settle_settings();
        self.stage.compare_tools(self.log.history()).await?;
        let next = self.write(|rules, draft| rules.open(draft, taken, &observed)).await?;
        self.opened(&next, taken);
        Ok(Some(next))
    }

    /// Makes the drain's first write: the claim, with the first boundary or a recovery. Returns `None` if the session
    /// has changed since the look.
    async fn claim(
        &mut self,
        write: DrainWrite,
        taken: Taken,
        observed: &Observation,
    ) -> Result<Option<Next>, Stop> {
        let (claim, earlier) = (self.claiming(&write, taken), self.log.history().writer());
        let rules = self.stage.rules();
        let decided = self.log.try_write(write, |draft| rules.open(draft, taken, observed)).await?;
        let Some(next) = decided else { return Ok(None) };
        if !self.log.has_ended() {
            self.stage.control.claimed(claim);
        }
        self.traced.claimed(claim, taken, earlier);
        self.opened(&next, taken);
        Ok(Some(next))
    }

    /// Returns the claim that a drain's first write raises. Interrupts up to the current head are not this drain's.
    fn claiming(&mut self, write: &DrainWrite, taken: Taken) -> Claim {
        let newest_interrupt = write.head().interrupt_seq;
        self.stage.interrupts_before =
            Rules::interrupts_before(self.log.history(), taken, newest_interrupt);
        write.claim()
    }

    /// Tells followers of the drain's first boundary, and handles leftovers of an earlier drain.
    fn opened(&mut self, next: &Next, taken: Taken) {
        self.live.committed(self.log.history().seq(), self.log.has_ended());
        self.written(next);
        if let Next::Recover(_) = next
            && !taken.handed_over
        {
            let Taken { recoveries, .. } = taken;
            let session = &self.stage.session.session;
            warn!(session.id = %session, recoveries, "recovering what an earlier owner left");
        }
        if !matches!(next, Next::Recover(_) | Next::End(_) | Next::Moved(_)) {
            self.capture_what_is_left();
        }
    }

    /// Decides on the known log and writes the decision, with a finished capture and title, then tells followers. A
    /// write that ends the drain waits for the running capture.
    pub(crate) async fn write<T>(
        &mut self,
        mut decide: impl FnMut(&Rules<'_>, &mut Draft<'_>) -> Verdict<T>,
    ) -> Result<T, Stop> {
        loop {
            match self.write_once(&mut decide).await? {
                Some(decided) => return Ok(decided),
                None => self.finish_capture().await?,
            }
        }
    }

    /// Makes one attempt to write. Returns `None` without a write if it would end the drain before its capture.
    async fn write_once<T>(
        &mut self,
        mut decide: impl FnMut(&Rules<'_>, &mut Draft<'_>) -> Verdict<T>,
    ) -> Result<Option<T>, Stop> {
        let known = self.log.history().seq();
        let rules = self.stage.rules();
        let title = self.title.done();
        let unsaved = !self.log.history().unsaved().is_empty();
        let (captured, capturing) = (self.files.event(unsaved), self.files.is_wanted(unsaved));
        let mut is_written = false;
        let decided = self
            .log
            .write(|draft, has_room| {
                let rules = Rules { cramped: !has_room, ..rules };
                if let Some(captured) = &captured {
                    draft.push(captured.clone());
                }
                if let Some(title) = title {
                    rules.title_ended(draft, title);
                }
                let verdict = unless_ends(capturing, decide(&rules, draft));
                is_written = matches!(verdict, Verdict::Write(..));
                verdict
            })
            .await?;
        if is_written {
            self.files.written();
        }
        if self.log.history().titling().is_none() {
            self.title.forget();
        }
        if self.log.history().seq() > known {
            self.live.committed(self.log.history().seq(), self.log.has_ended());
        }
        Ok(decided)
    }

    /// Notes a boundary's write: a title can be requested.
    pub(crate) fn written(&mut self, next: &Next) {
        let (Next::Turn(plan) | Next::Compact(plan)) = next else { return };
        self.stage.control.begun();
        let runtime = self.stage.runtime;
        if let Some(title) = &plan.title {
            let (models, org) = (self.stage.models.clone(), self.stage.session.org);
            self.title.start(runtime, models, org, title.as_ref().clone());
        }
    }

    /// Looks at the Context Sources. `done` are results of the open turn that are not written yet. Does I/O, so never
    /// call it with a transaction open.
    pub(crate) async fn observe(&mut self, done: &[ToolSettled]) -> Observation {
        let runtime = self.stage.runtime;
        match runtime.models.of_org(&runtime.store, self.stage.session.org).await {
            Ok(models) => self.stage.models = models,
            Err(error) => {
                warn!(%error, "the organisation's providers cannot be read; those known last are used")
            }
        }
        self.stage.look_at(self.observed_at(done)).await
    }

    fn observed_at(&self, done: &[ToolSettled]) -> ObservedAt {
        let Stage { runtime, session, workspace, .. } = &self.stage;
        ObservedAt::now(runtime, session, workspace, self.log.history(), done)
    }

    /// Returns whether the known log has an interrupt that this drain must apply.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.stage.rules().is_interrupted(self.log.history())
    }
}

/// Returns the work that a look found.
fn ready(started: Started) -> Result<Option<(Box<DrainWrite>, Taken)>, Stop> {
    match started {
        Started::Ready(write, taken, _) => Ok(Some((write, taken))),
        Started::Superseded => Err(Stop::Superseded),
        Started::Idle | Started::Long(..) => Ok(None),
    }
}
