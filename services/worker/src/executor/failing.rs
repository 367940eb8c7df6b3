//! Sessions whose drains fail: they rest between their tries, and are given up in the end.

use domain::{ErrorCode, SessionError, SessionRef};
use session::DrainExit;
use signals::{Hint, SessionHint, Topic};
use store::{GivenUp, StoreError};
use tasks::{OnCancel, OnError, TaskKind};
use tracing::{error, info, warn};

use super::{Executor, Message, chain};
use crate::strikes::Strike;

const GIVE_UP: TaskKind = TaskKind::new("give a session up", OnError::Log, OnCancel::Wait);

impl Executor {
    /// Notes how a drain ended: whether its session rests before the next one, or is given up.
    pub(super) fn count(&mut self, session: &SessionRef, exit: Option<&DrainExit>, turns: u32) {
        let cause = match exit {
            Some(DrainExit::Failed(error)) => {
                error!(session.id = %session.session, error = %chain(error), "the drain failed");
                Some(error)
            }
            // A panic. A worker that stops drops the drains that take too long.
            None if !self.drains.token().is_cancelled() => None,
            None => return,
            Some(
                DrainExit::Idle
                | DrainExit::Ended(_)
                | DrainExit::HandedOver
                | DrainExit::Yielded
                | DrainExit::Waiting
                | DrainExit::NoRoom(_)
                | DrainExit::Moved(_)
                | DrainExit::Fenced
                | DrainExit::WentBack
                | DrainExit::Superseded,
            ) => return self.strikes.clear(session),
        };
        if let Some(sentence) = cause.and_then(StoreError::refused_data) {
            // A turn that is made again costs money, and ends as this one did.
            return self.give_up(session.clone(), &refused(sentence));
        }
        if turns > 0 {
            // It could begin its work: how often that may break off is counted durably.
            self.strikes.clear(session);
        }
        let now = self.parts.runtime.clock.monotonic();
        let is_its_own = !cause.is_some_and(StoreError::may_pass)
            || self.pulse.store_silent(now) < self.options.sweep.saturating_mul(3);
        match self.strikes.note(session, now, is_its_own) {
            Strike::Pause(pause) => {
                info!(session.id = %session.session, pause_ms = pause.as_millis(), "it rests");
            }
            Strike::Out(failures) => self.give_up(session.clone(), &told(cause, failures)),
        }
    }

    /// Ends the session's work durably, so that its user sees why nothing happens.
    fn give_up(&mut self, session: SessionRef, error: &SessionError) {
        let Some(held) = self.held.get(&session.location_ref()) else { return };
        warn!(session.id = %session.session, message = %error.message, "the session is given up");
        let (token, error) = (held.token, error.clone());
        let (runtime, inbox) = (self.parts.runtime.clone(), self.inbox.clone());
        self.tasks.spawn(GIVE_UP, async move {
            let now = runtime.clock.now_ms();
            let given_up = runtime.store.give_up(session.clone(), token, error, now).await;
            if let Ok(GivenUp::Parked(seq)) = given_up {
                let topic = Topic::Session(session.org, session.session.clone());
                let hint = SessionHint::Committed { seq, ends: true };
                runtime.signals.publish(&topic, Hint::Session(hint));
            }
            // The executor is gone only when the worker is.
            let _gone = inbox.send(Message::GivenUp(session, given_up));
            Ok::<(), std::convert::Infallible>(())
        });
    }

    pub(super) fn given_up(&mut self, session: &SessionRef, result: Result<GivenUp, StoreError>) {
        match result {
            Ok(GivenUp::Parked(_) | GivenUp::Idle) => self.strikes.clear(session),
            Ok(GivenUp::Superseded) => self.give_back(&session.location_ref()),
            Err(error) => warn!(
                session.id = %session.session,
                error = %chain(&error),
                "the session cannot be given up yet"
            ),
        }
    }
}

/// The most bytes of Postgres's sentence that a session's user gets.
const SENTENCE_BYTES: usize = 200;

/// Why a session was given up at once, for its user.
fn refused(sentence: &str) -> SessionError {
    let sentence = &sentence[..sentence.floor_char_boundary(SENTENCE_BYTES)];
    SessionError {
        code: ErrorCode::SessionDrainFailed.into(),
        message: format!(
            "the database refused what its work was to write ({sentence}), so that is not tried again; what was \
             written before is kept: send a prompt or resume the session to go on, and if that fails too, ask whoever \
             runs the service to look at the workers' logs"
        ),
    }
}

/// Why a session was given up, for its user.
fn told(cause: Option<&StoreError>, failures: u32) -> SessionError {
    let cause = cause.map_or_else(|| "its worker broke off".to_owned(), StoreError::to_string);
    SessionError {
        code: ErrorCode::SessionDrainFailed.into(),
        message: format!(
            "its work failed {failures} times in a row ({cause}), so it is not tried again by itself; nothing is lost: \
             send a prompt or resume the session to try again, and if that fails too, ask whoever runs the service to \
             look at the workers' logs"
        ),
    }
}
