//! Carries out answers: calls that somebody has given leave for start, and a turn that waits for answers alone ends its
//! drain.

use domain::{Answer, ToolClass, ToolState};
use history::{CallState, Standing};
use session_rules::{Answered, Rules};
use store::{Answering, StoreError};
use tracing::warn;

use crate::drain::{Drain, Stop};
use crate::files::unless_ends;
use crate::turn::Turn;

impl<'r> Drain<'r> {
    /// Returns whether calls of the open turn wait for answers, or for the write that follows them.
    pub(crate) fn has_asked(&self) -> bool {
        let open = self.log.history().open_turn();
        open.is_some_and(|open| open.calls.iter().any(|(_, call)| call.state == ToolState::Asked))
    }

    /// Returns whether saved permissions may cover a call whose intent waits.
    pub(crate) fn wants_saved(&self, turn: &Turn<'r>) -> bool {
        let (rules, history) = (self.stage.rules(), self.log.history());
        turn.said.unintended.iter().any(|intent| rules.wants_saved(history, intent))
    }

    /// Reads the project's saved permissions.
    pub(crate) async fn look_at_saved(&mut self) -> Result<(), Stop> {
        let session = self.stage.session;
        let store = &self.stage.runtime.store;
        self.stage.saved = store.saved_permissions(session.org, &session.session).await?;
        Ok(())
    }

    /// Goes on with a turn that has asked calls, once every started body has ended. With [`Answered::Start`] bodies run
    /// again.
    pub(crate) async fn go_on(&mut self, turn: &mut Turn<'r>) -> Result<Answered, Stop> {
        if self.capture_before_leave(turn).await? {
            return Ok(Answered::Interrupted);
        }
        if self.standings().any(|(_, standing)| standing == Standing::Open) {
            self.finish_title().await?;
        }
        loop {
            let owed = self.files.is_on() && turn.has_touched();
            let answered = self
                .write(|rules, draft| unless_ends(owed, rules.answered(draft, &turn.said)))
                .await?;
            let Some(answered) = answered else {
                self.capture_before_end(turn).await?;
                continue;
            };
            if let Answered::Start(intents) = &answered {
                turn.results_written();
                self.start_bodies(turn, intents.clone());
            }
            return Ok(answered);
        }
    }

    /// Answers asks of this session that somebody has allowed for good in the moment in which they were committed. Whoever
    /// saved that may have looked for asks before these were there, and so each looks after its own commit. Returns whether
    /// the session goes on. If it dies here, somebody is asked once more than needed.
    pub(crate) async fn cover_own_asks(&mut self) -> bool {
        if !Rules::may_be_covered(self.log.history()) {
            return false;
        }
        match Box::pin(self.answer_covered()).await {
            Ok(goes_on) => goes_on,
            Err(error) => {
                let session = &self.stage.session.session;
                warn!(session.id = %session, %error, "saved permissions cannot be read; a person is asked");
                false
            }
        }
    }

    async fn answer_covered(&mut self) -> Result<bool, StoreError> {
        let (runtime, session) = (self.stage.runtime, self.stage.session);
        let store = &runtime.store;
        self.stage.saved = store.saved_permissions(session.org, &session.session).await?;
        let mut goes_on = false;
        for ask in self.stage.rules().covered(self.log.history()) {
            let now = runtime.clock.now_ms();
            let done = store.answer_ask(session.org, ask, Answer::Granted, None, now).await;
            goes_on |= match done {
                Ok(Answering::Answered { .. }) => true,
                // Somebody was faster, or the session is gone.
                Ok(Answering::Conflict | Answering::Gone) | Err(StoreError::NotFound) => false,
                Err(error) => return Err(error),
            };
        }
        Ok(goes_on)
    }

    /// Starts calls that somebody has given leave for, while others of the turn run.
    pub(crate) async fn start_answered(&mut self, turn: &mut Turn<'r>) -> Result<(), Stop> {
        let (starts, ended) =
            self.write_beside(turn, |rules, draft, said| rules.leave(draft, said)).await?;
        turn.results_written();
        self.start_bodies(turn, starts);
        self.take_in(turn, ended);
        Ok(())
    }

    /// Captures the files before calls with leave change them: people may have changed them while the session slept.
    /// Returns whether the turn was interrupted.
    async fn capture_before_leave(&mut self, turn: &mut Turn<'r>) -> Result<bool, Stop> {
        let leave = self.standings().filter(|(_, standing)| *standing == Standing::Leave);
        let classes: Vec<ToolClass> = leave.map(|(call, _)| call.class).collect();
        if classes.iter().all(|class| *class == ToolClass::Pure) {
            return Ok(false);
        }
        let any = classes.contains(&ToolClass::Unsafe);
        let owed = self.log.history().changing_turn().cloned();
        self.files.before_changes(any, owed);
        Ok(self.files.is_running() && self.await_capture(turn).await?)
    }

    /// Returns the open turn's calls that were asked about and have not started.
    fn standings(&self) -> impl Iterator<Item = (&CallState, Standing<'_>)> {
        let calls = self.log.history().open_turn().into_iter().flat_map(|open| &open.calls);
        calls.filter_map(|(_, call)| call.standing().map(|standing| (call, standing)))
    }
}
