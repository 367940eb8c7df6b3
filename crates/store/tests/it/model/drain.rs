//! Operations of workers, on both sides.

use domain::{
    Claim, ControlDelivered, DrainOutcome, FencingToken, MessageId, RevertCleared, RevertPaths,
    RevertStaged, RevertStaging, RevertedTo, Seq, SessionEvent, SessionMoved, SessionRef,
    SnapshotTree, TurnOutcome,
};
use sim::Look;
use store::{DrainEnd, Hold, Started, StoreError, Written};

use super::{Held, Pair, Sent, compare_basis};
use crate::script::{TestTurn, ended, promoted};

impl Pair<'_> {
    pub(super) async fn fence(&mut self) {
        let location = self.rng.index(2);
        let newest = self.model.fences[location];
        let token = (newest + 2).saturating_sub_unsigned(self.rng.below(4)).max(1);
        let at = self.locations[location].clone();
        let real = match self.world.store.raise_fence(at, FencingToken(token)).await {
            Ok(_) => "ours",
            Err(StoreError::Superseded) => "superseded",
            Err(error) => panic!("{error:?}"),
        };
        let ours = self.model.raise_fence(location, token);
        self.same("fence", real, if ours { "ours" } else { "superseded" });
    }

    pub(super) async fn look(&mut self, session: usize) {
        // Now and then where it was before, or will be.
        let here = self.model.sessions[session].head.location;
        let place = if self.rng.chance(90) { here } else { 1 - here };
        let fence = self.model.fences[place];
        let token = if self.rng.chance(85) { fence } else { fence + 1 };
        let at = self.at(session, place);
        let real = self
            .world
            .store
            .start_drain(at, FencingToken(token), store::KnownLog::NOTHING, Hold::Look)
            .await;
        let model = self.model.look(session, place, token, sim::Known::NOTHING);
        let word = match (real.expect("an answer"), model) {
            (Started::Ready(real, taken, log), Look::Ready(model, model_taken, model_log)) => {
                assert_eq!(taken, model_taken);
                assert_eq!(log.len(), model_log.len());
                compare_basis(&real, &model);
                self.held.push(Held { session, real: *real, model });
                "ready"
            }
            (Started::Superseded, Look::Superseded) => "superseded",
            (Started::Idle, Look::Idle) => "idle",
            (_, model) => panic!("a look gave another answer than {model:?}"),
        };
        self.same("look", word, word);
    }

    /// A session at one of the two Locations.
    fn at(&self, session: usize, place: usize) -> SessionRef {
        let location = self.locations[place].location.clone();
        SessionRef { location, ..self.sessions[session].clone() }
    }

    /// The next write of a drain at `place`.
    fn events(&mut self, session: usize, place: usize) -> (Vec<SessionEvent>, DrainEnd) {
        let row = &self.model.sessions[session];
        let waits = |input: &&sim::Input| input.status == sim::InputStatus::Admitted;
        let waiting: Vec<_> =
            row.inputs.iter().filter(waits).map(|input| input.id.clone()).collect();
        let mut events = Vec::new();
        if !waiting.is_empty() && self.rng.chance(40) {
            let id = &waiting[self.rng.index(waiting.len())];
            let sent = self.sent.iter().find(|(_, sent)| sent.message() == id);
            events.extend(sent.map(|(_, sent)| match sent {
                Sent::Prompt(prompt) => promoted(prompt),
                Sent::Control(control) => {
                    ControlDelivered { message: control.message.clone(), error: None }.into()
                }
            }));
        }
        match self.rng.below(20) {
            0 => {
                let message = MessageId::mint(&mut self.mint());
                events.push(staging(message));
                return (events, DrainEnd::Keep);
            }
            1..=3 => {
                let message = MessageId::mint(&mut self.mint());
                let from = Seq(i64::try_from(self.rng.within(2, 12)).expect("small"));
                events.push(staged(message, from));
                if self.open[session].is_some() || self.rng.chance(20) {
                    return (events, DrainEnd::Keep);
                }
                events.push(ended(DrainOutcome::Completed));
                return (events, DrainEnd::Close);
            }
            4 => {
                events.push(RevertCleared::default().into());
                return (events, DrainEnd::Keep);
            }
            5 | 6 => {
                events.push(self.moved(place));
                let ends = if self.rng.chance(50) { DrainEnd::Moved } else { DrainEnd::MovedOpen };
                return (events, ends);
            }
            _ => {}
        }
        match (self.open[session].clone(), self.rng.below(10)) {
            (None, 0..=4) => {
                let mut mint = self.mint();
                let parent = domain::MessageId::mint(&mut mint);
                let turn = TestTurn::new(&mut mint, &parent);
                events.extend(turn.start());
                (events, DrainEnd::Keep)
            }
            (Some(turn), 0..=2) => {
                events.extend(turn.stop(TurnOutcome::Lost));
                (events, DrainEnd::Keep)
            }
            (Some(turn), 3..=5) => {
                events.extend(turn.stop(TurnOutcome::Failed));
                (events, DrainEnd::Keep)
            }
            (None, 5..=6) => {
                events.push(ended(DrainOutcome::Completed));
                (events, DrainEnd::Close)
            }
            (None, 7) => {
                events.push(ended(DrainOutcome::Failed));
                (events, DrainEnd::Park)
            }
            (_, 8) => (events, DrainEnd::HandOver),
            _ => (events, DrainEnd::Keep),
        }
    }

    pub(super) async fn commit_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let index = self.rng.index(self.held.len());
        let held = self.held.swap_remove(index);
        self.commit("write", held).await;
    }

    async fn commit(&mut self, operation: &str, held: Held) {
        let Held { session, real, model } = held;
        let (events, end) = self.events(session, model.at);
        let taken =
            |event: &&SessionEvent| matches!(event.kind(), "prompt.promoted" | "control.delivered");
        let count = events.iter().filter(taken).count();
        let progress = events.iter().any(|event| match event {
            SessionEvent::TurnSettled(settled) => settled.outcome != TurnOutcome::Lost,
            _ => false,
        });
        let real = self.world.try_write(real, &events, end).await;
        let append = sim::Append {
            events: &events,
            promoted: i32::try_from(count).expect("few"),
            progress,
            end,
        };
        let mut mint = self.mint();
        let claim = model.claim();
        let written = self.model.write(session, model, &append, &mut mint, self.world.tick());
        let word = match (real, written) {
            (Ok(Written::Next(real)), sim::Written::Next(model)) => {
                compare_basis(&real, &model);
                for event in &events {
                    match event {
                        SessionEvent::TurnStarted(started) => {
                            self.open[session] = Some(TestTurn::started(started));
                        }
                        SessionEvent::AttemptStarted(started) => {
                            let turn = self.open[session].take();
                            self.open[session] =
                                turn.map(|turn| turn.with_attempt(&started.attempt));
                        }
                        SessionEvent::TurnSettled(_) => self.open[session] = None,
                        _ => {}
                    }
                }
                self.claims.push((session, model.at, claim));
                if end == DrainEnd::Keep || self.rng.chance(20) {
                    self.held.push(Held { session, real: *real, model });
                }
                if matches!(end, DrainEnd::Moved | DrainEnd::MovedOpen) {
                    "moved"
                } else {
                    "written"
                }
            }
            (Ok(Written::Stale), sim::Written::Stale) => "stale",
            (Ok(Written::Superseded), sim::Written::Superseded) => "superseded",
            (Err(StoreError::Fenced { .. }), sim::Written::Fenced) => "fenced",
            (Err(error), model) => panic!("{operation}: {error:?}, the model says {model:?}"),
            (Ok(_), model) => panic!("{operation}: the model says {model:?}"),
        };
        self.same(operation, word, word);
    }

    /// Goes on under a claim that some drain had.
    pub(super) async fn resume(&mut self) {
        if self.claims.is_empty() {
            return;
        }
        let (session, place, claim) = self.claims[self.rng.index(self.claims.len())];
        let at = self.at(session, place);
        let real = self.world.store.resume_drain(at, Claim(claim), store::KnownLog::NOTHING).await;
        match (real, self.model.prove(session, place, claim, sim::Known::NOTHING)) {
            (Ok((real, log)), sim::Proof::Held(model, model_log)) => {
                assert_eq!(log.len(), model_log.len());
                compare_basis(&real, &model);
                self.same("prove", "held", "held");
                self.commit("locked write", Held { session, real, model }).await;
            }
            (Err(StoreError::Fenced { .. }), sim::Proof::Fenced) => {
                self.same("prove", "fenced", "fenced")
            }
            (Err(error), _) => panic!("{error:?}"),
            (Ok(_), _) => panic!("the model says that claim {claim} is fenced"),
        }
    }

    /// The session leaves `place` for the other Location.
    fn moved(&self, place: usize) -> SessionEvent {
        let [from, to] = [place, 1 - place].map(|place| self.locations[place].location.clone());
        let project = self.world.project.clone();
        let directory = "/workspace".to_owned();
        SessionMoved { from, to, project, directory, carry: false, tree: None }.into()
    }
}

fn staging(message: MessageId) -> SessionEvent {
    RevertStaging {
        message,
        from: Seq(2),
        original: SnapshotTree::try_from("0".repeat(64)).expect("64 digits"),
        target: None,
        paths: RevertPaths::default(),
        undone: RevertPaths::default(),
        back: RevertedTo::default(),
    }
    .into()
}

fn staged(message: MessageId, from: Seq) -> SessionEvent {
    RevertStaged {
        message,
        from,
        original: None,
        paths: RevertPaths::default(),
        files: Vec::new(),
        more: 0,
        left: Vec::new(),
        back: RevertedTo::default(),
    }
    .into()
}
