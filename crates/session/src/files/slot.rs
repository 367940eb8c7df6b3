use std::future::pending;

use domain::{TurnId, WorkspaceSnapshotted};
use futures::future::BoxFuture;
use snapshots::Touched;
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, info_span};

use super::Files;
use super::capture::Capture;

/// The drain's running capture, if there is one. It only progresses while [`advance`](Self::advance) is awaited.
#[derive(Default)]
pub(crate) struct FileSlot {
    /// The files; `None` if nothing is captured here.
    files: Option<Files>,
    running: Option<BoxFuture<'static, Option<Capture>>>,
    /// The finished capture that is not written yet.
    done: Option<Capture>,
    /// The turn whose calls caused it.
    turn: Option<TurnId>,
    /// Whether all files were looked at.
    looked: bool,
    /// The time until which somebody waits for it.
    until: Option<Instant>,
    /// Whether a late capture was continued for the drain's end, so that nobody does so again.
    continued: bool,
    /// Whether the last capture was asked for, independently of a call.
    asked: bool,
}

impl FileSlot {
    pub(crate) fn new(files: Option<Files>) -> Self {
        Self { files, ..Self::default() }
    }

    /// Captures the state before a call that may change files, if nobody has looked yet. `any` means that the call
    /// may change any file. Where people work too, each drain looks before its first such call, so that their changes
    /// do not count as its own. `owed` is the turn whose calls are in no capture yet, whether it has ended or not;
    /// this capture has their changes and belongs to it.
    /// did is in this one, and is theirs.
    pub(crate) fn before_changes(&mut self, any: bool, owed: Option<TurnId>) {
        let Some(files) = &self.files else { return };
        let theirs = any && !self.looked && files.is_peoples();
        let idle = self.running.is_none() && !self.done.as_ref().is_some_and(Capture::has_changes);
        if (files.wants_base() || theirs) && idle {
            self.begin(owed, Touched::Anything);
        }
    }

    /// Captures after calls of `turn` that may have changed files.
    pub(crate) fn after_changes(&mut self, turn: TurnId, touched: Touched) {
        if self.files.is_some() && touched != Touched::Nothing {
            // An older capture does not know of these changes, so this one takes over what it owes.
            self.begin(Some(turn), touched);
        }
    }

    /// Captures changes of calls that no capture confirms yet, the last of them in `turn`, unless a capture is
    /// running. Earlier failed or abandoned changes are tried again with it.
    pub(crate) fn make_up(&mut self, turn: TurnId) {
        let Some(files) = &self.files else { return };
        if self.running.is_none() && self.done.is_none() {
            let touched = if files.wants_base() { Touched::Anything } else { Touched::Nothing };
            self.begin(Some(turn), touched);
        }
    }

    /// Looks at files independently of a call.
    pub(crate) fn around(&mut self, touched: Touched) {
        self.begin(None, touched);
        self.asked = true;
    }

    /// Continues a capture that nobody waited for any longer, once, since nobody captures after the drain's end. Waits for it
    /// longer than calls do. `owed` is the turn whose calls are in no capture yet.
    pub(crate) fn continue_late(&mut self, owed: Option<TurnId>) -> bool {
        let wants = self.wants_last(owed.is_some());
        let Some(files) = self.files.clone().filter(|_| wants) else { return false };
        self.continued = true;
        let wait = files.settings().last_wait;
        self.run(owed, async move { Box::pin(files.capture_now()).await });
        self.until = Some(Instant::now() + wait);
        true
    }

    fn begin(&mut self, turn: Option<TurnId>, touched: Touched) {
        let Some(files) = self.files.clone() else { return };
        self.looked |= touched == Touched::Anything;
        (self.continued, self.asked) = (false, false);
        self.run(turn, async move { Box::pin(files.capture(touched)).await });
    }

    fn run(
        &mut self,
        turn: Option<TurnId>,
        capture: impl Future<Output = Option<Capture>> + Send + 'static,
    ) {
        let span =
            info_span!("session.snapshot", turn.id = turn.as_ref().map(tracing::field::display));
        self.done = None;
        self.turn = turn;
        self.until = None;
        self.running = Some(Box::pin(capture.instrument(span)));
    }

    /// Returns the files, if captures are on.
    pub(crate) fn held(&self) -> Option<&Files> {
        self.files.as_ref()
    }

    /// Returns whether captures are on.
    pub(crate) fn is_on(&self) -> bool {
        self.files.is_some()
    }

    /// Returns whether a capture is running, so that later steps must wait.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Returns whether a drain must not end yet: a capture is running, or a late one should be continued. `unsaved`: some calls
    /// are in no capture yet.
    pub(crate) fn is_wanted(&self, unsaved: bool) -> bool {
        self.is_running() || self.wants_last(unsaved)
    }

    fn wants_last(&self, unsaved: bool) -> bool {
        let is_idle = self.running.is_none() && self.done.is_none() && !self.continued;
        is_idle && (unsaved || self.asked) && self.files.as_ref().is_some_and(Files::is_left_late)
    }

    /// Starts the time limit for a wait on the capture.
    pub(crate) fn hold(&mut self) {
        if let Some(files) = &self.files
            && self.running.is_some()
        {
            let wait = files.settings().wait;
            self.until.get_or_insert_with(|| Instant::now() + wait);
        }
    }

    /// Waits for nothing any longer. What the capture reads is read to its end, and the next one continues it.
    pub(crate) fn leave(&mut self) {
        self.running = None;
        self.until = None;
        self.continued = true;
    }

    /// Like [`hold`](Self::hold), with an earlier end.
    pub(crate) fn hold_until(&mut self, until: Instant) {
        self.hold();
        self.until = self.until.map(|known| known.min(until));
    }

    /// Returns once, when the capture has finished or nobody waits for it any longer. Without a capture it waits for
    /// ever. Cancel safe.
    pub(crate) async fn advance(&mut self) {
        let Self { files: Some(files), running: Some(running), done, until, .. } = self else {
            return pending().await;
        };
        let overdue = async {
            match until {
                Some(until) => sleep_until(*until).await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            capture = running => *done = capture,
            () = overdue => files.overdue(),
        }
        self.running = None;
        self.until = None;
    }

    /// Returns the event for the drain's next write. `unsaved`: some calls are in no capture yet; only then are
    /// unchanged files reported.
    pub(crate) fn event(&self, unsaved: bool) -> Option<WorkspaceSnapshotted> {
        let done = self.done.as_ref().filter(|done| unsaved || done.has_changes())?;
        done.event(self.turn.clone())
    }

    /// Notes that a write has the event.
    pub(crate) fn written(&mut self) {
        if let Some(capture) = self.done.take() {
            capture.written();
        }
    }
}
