//! The title that is made beside the turn. Its end rides in the next write.

use domain::{IdMint, SessionError, Stamp};
use llm_protocol::ErrorReason;
use session_rules::{Said, Titled, TurnPlan};

use super::decide::Op;
use super::{Drain, Flow, Phase};
use crate::provider::{Frame, Purpose, Stream};
use crate::world::World;

/// How long an otherwise finished drain waits for it.
const TITLE_WAIT: i64 = 300;

/// The title that a model is making.
#[derive(Default)]
pub(super) struct TitleSlot {
    running: Option<(Titled, Stream)>,
    done: Option<Titled>,
}

impl TitleSlot {
    /// Returns the outcome that is not written yet.
    pub(super) fn done(&self) -> Option<&Titled> {
        self.done.as_ref()
    }

    /// The title is written, or lost.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// When more of it comes.
    pub(super) fn next(&self) -> Option<i64> {
        let (_, stream) = self.running.as_ref()?;
        stream.frames.front().map(|(at, _)| *at)
    }

    /// Takes in the frames that have come by `now`.
    pub(super) fn advance(&mut self, now: i64) {
        let Some((mut titled, mut stream)) = self.running.take() else { return };
        // Nobody sees the parts of its answer.
        let mut mint = IdMint::seeded(Stamp::default(), now, 1);
        while stream.frames.front().is_some_and(|(at, _)| *at <= now) {
            match stream.frames.pop_front() {
                Some((_, Frame::Event(event))) => {
                    titled.said.take(event, &mut mint);
                }
                Some((_, Frame::Broken(reason))) => {
                    titled.error = Some(provider_error(&reason));
                    self.done = Some(titled);
                    return;
                }
                Some((_, Frame::Whole)) | None => {
                    self.done = Some(titled);
                    return;
                }
            }
        }
        self.running = Some((titled, stream));
    }
}

/// A failure of the provider's, as rows hold it.
pub(super) fn provider_error(reason: &ErrorReason) -> SessionError {
    SessionError { code: reason.code().to_owned().into(), message: reason.user_message() }
}

impl Drain {
    /// Begins the request, whose intent is committed.
    pub(super) fn start_title(&mut self, plan: TurnPlan, world: &mut World) {
        let stream = world.request(self.whose(), &plan.started, &plan.body, Purpose::Title);
        let said = Said::new(plan.turn, plan.message);
        let titled = Titled { attempt: plan.started.attempt, said, error: None };
        self.title = TitleSlot { running: Some((titled, stream)), done: None };
    }

    /// Nothing is left to do but a title.
    pub(super) fn wait_for_title(&mut self, world: &World) -> Flow {
        self.enter(Phase::Title { deadline: world.now + TITLE_WAIT }, world)
    }

    pub(super) fn await_title(&mut self, deadline: i64, world: &mut World) -> Flow {
        self.title.advance(world.now);
        self.advance_files(world);
        let enough = self.title.next().is_none()
            || world.now >= deadline
            || world.is_stopping(self.worker)
            || self.is_interrupted(world);
        if enough {
            let observed = self.observe(world);
            return self.write(Op::TitleWaited(observed), world);
        }
        self.phase = Phase::Title { deadline };
        Flow::Poll(self.title.next().unwrap_or(deadline).min(deadline))
    }
}
