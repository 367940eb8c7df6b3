use std::future::pending;

use domain::{TurnId, WorkspaceSnapshotted};
use futures::future::BoxFuture;
use snapshots::Touched;
use tokio::time::{Instant, sleep_until};
use tracing::{Instrument, info_span};

use super::Files;
use super::capture::Capture;

/// The capture that a drain has under way, if it has one. It goes on only while [`advance`](Self::advance) waits.
#[derive(Default)]
pub(crate) struct FileSlot {
    /// `None`: nothing is captured here.
    files: Option<Files>,
    running: Option<BoxFuture<'static, Option<Capture>>>,
    /// What came of it, and is not written yet.
    done: Option<Capture>,
    /// The turn whose calls were the reason for it.
    turn: Option<TurnId>,
    /// All files were looked at.
    looked: bool,
    /// Until when someone waits for it.
    until: Option<Instant>,
}

impl FileSlot {
    pub(crate) fn new(files: Option<Files>) -> Self {
        Self { files, ..Self::default() }
    }

    /// A call that may change files has come, one of which nobody knows which if it may change `any`: what is before it
    /// is captured, if nobody has looked yet. Where people work too, each drain looks before its first that may change any:
    /// what they have changed is not its doing. `owed`: the turn whose calls no capture has yet, ended or still at it; what they
    /// did is in this one, and is theirs.
    pub(crate) fn before_changes(&mut self, any: bool, owed: Option<TurnId>) {
        let Some(files) = &self.files else { return };
        let theirs = any && !self.looked && files.is_peoples();
        let idle = self.running.is_none() && !self.done.as_ref().is_some_and(Capture::has_changes);
        if (files.wants_base() || theirs) && idle {
            self.begin(owed, Touched::Anything);
        }
    }

    /// Calls of `turn` have ended that may have changed files.
    pub(crate) fn after_changes(&mut self, turn: TurnId, touched: Touched) {
        if self.files.is_some() && touched != Touched::Nothing {
            // One that is older knows nothing of these: what it owes is this one's.
            self.begin(Some(turn), touched);
        }
    }

    /// No capture says yet that it has what calls did, the last of them in `turn`: it is looked for, unless somebody
    /// does. What failed or was given up before is tried again with it.
    pub(crate) fn make_up(&mut self, turn: TurnId) {
        let Some(files) = &self.files else { return };
        if self.running.is_none() && self.done.is_none() {
            let touched = if files.wants_base() { Touched::Anything } else { Touched::Nothing };
            self.begin(Some(turn), touched);
        }
    }

    /// Files are looked at for no call's sake.
    pub(crate) fn around(&mut self, touched: Touched) {
        self.begin(None, touched);
    }

    fn begin(&mut self, turn: Option<TurnId>, touched: Touched) {
        let Some(files) = self.files.clone() else { return };
        let span =
            info_span!("session.snapshot", turn.id = turn.as_ref().map(tracing::field::display));
        self.looked |= touched == Touched::Anything;
        self.done = None;
        self.turn = turn;
        self.until = None;
        let capture = async move { Box::pin(files.capture(touched)).await };
        self.running = Some(Box::pin(capture.instrument(span)));
    }

    /// What captures, if anything does.
    pub(crate) fn held(&self) -> Option<&Files> {
        self.files.as_ref()
    }

    /// Whether anything is captured here.
    pub(crate) fn is_on(&self) -> bool {
        self.files.is_some()
    }

    /// Whether a capture is under way: what is to come after it has to wait.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Someone waits for it from now on, at the most so long as is worth it.
    pub(crate) fn hold(&mut self) {
        if let Some(files) = &self.files
            && self.running.is_some()
        {
            let wait = files.settings().wait;
            self.until.get_or_insert_with(|| Instant::now() + wait);
        }
    }

    /// The same, and no longer than until then.
    pub(crate) fn hold_until(&mut self, until: Instant) {
        self.hold();
        self.until = self.until.map(|known| known.min(until));
    }

    /// Returns once, when the capture has come to its end or nobody waits for it any longer; forever waits
    /// without one. Cancel safe.
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

    /// What the drain's next write has to tell. `unsaved`: there are calls of which no capture says that it has what
    /// they did; only of those it is told that files are as before.
    pub(crate) fn event(&self, unsaved: bool) -> Option<WorkspaceSnapshotted> {
        let done = self.done.as_ref().filter(|done| unsaved || done.has_changes())?;
        done.event(self.turn.clone())
    }

    /// A write has been made, and has told it.
    pub(crate) fn written(&mut self) {
        if let Some(capture) = self.done.take() {
            capture.written();
        }
    }
}
