//! The simulation's model of the store against Postgres: the same operations on both, the same outcomes,
//! heads and logs. What the simulation finds is evidence about the store as long as this holds.

use domain::{
    Claim, Delivery, DrainOutcome, FencingToken, IdMint, LocationRef, PromptAdmitted, Seq,
    SessionCreated, SessionEvent, SessionRef, TurnOutcome,
};
use sim::{Basis, Look, Mutant, Rng, SimStore, StoreMutant};
use store::{
    Admission, DrainEnd, DrainWrite, Hold, InboxChange, Interrupted, Started, StoreError, Written,
};

use crate::script::{TestTurn, ended, promoted};
use crate::world::{HeadRow, World};

const SEQUENCES: u64 = 60;
const OPERATIONS: usize = 40;
const SESSIONS: usize = 3;

/// A write that a drain has in hand, on both sides.
struct Held {
    session: usize,
    real: DrainWrite,
    model: Basis,
}

/// One sequence of operations.
struct Pair<'w> {
    world: &'w World,
    rng: Rng,
    model: SimStore,
    locations: Vec<LocationRef>,
    sessions: Vec<SessionRef>,
    sent: Vec<(usize, PromptAdmitted)>,
    /// The turn that each session has open.
    open: Vec<Option<TestTurn>>,
    held: Vec<Held>,
    /// Claims that drains have had, to go on under later.
    claims: Vec<(usize, i64)>,
    outcomes: std::collections::BTreeMap<String, usize>,
}

impl<'w> Pair<'w> {
    async fn new(world: &'w World, seed: u64, mutant: Option<Mutant>) -> Self {
        let mut model = SimStore::new(2, mutant);
        let mut locations = Vec::new();
        for _ in 0..2 {
            let location = world.another_location().await;
            locations.push(LocationRef { org: world.org, location });
        }
        let mut sessions = Vec::new();
        for index in 0..SESSIONS {
            let session = world.session_at(&locations[index % 2].location).await;
            let created = SessionCreated {
                project: world.project.clone(),
                location: session.location.clone(),
                directory: "/workspace".into(),
                title: "New session".into(),
                agent: "build".into(),
                model: None,
                parent: None,
                named: false,
            };
            model.create(index % 2, created.into(), &mut world.mint(), world.tick());
            sessions.push(session);
        }
        let open = vec![None; SESSIONS];
        let rng = Rng::new(seed);
        let (sent, held, claims) = (Vec::new(), Vec::new(), Vec::new());
        let outcomes = std::collections::BTreeMap::new();
        Self { world, rng, model, locations, sessions, sent, open, held, claims, outcomes }
    }

    fn mint(&self) -> IdMint {
        self.world.mint()
    }

    /// Both sides said the same.
    fn same(&mut self, operation: &str, real: &str, model: &str) {
        assert_eq!(real, model, "{operation}");
        *self.outcomes.entry(format!("{operation}: {real}")).or_default() += 1;
    }

    async fn operation(&mut self) {
        let session = self.rng.index(SESSIONS);
        match self.rng.below(100) {
            0..=19 => {
                let delivery = self.delivery();
                let wake = self.rng.chance(75);
                let prompt = PromptAdmitted { delivery, wake, ..self.world.prompt("anything") };
                self.admit("admit", session, prompt).await;
            }
            20..=27 => self.admit_again(session).await,
            28..=37 => self.interrupt(session).await,
            38..=43 => self.cancel(session).await,
            44..=49 => self.change(session).await,
            50..=56 => self.fence().await,
            57..=74 => self.look(session).await,
            75..=92 => self.commit_held().await,
            _ => self.resume().await,
        }
        for session in 0..SESSIONS {
            self.compare_head(session).await;
        }
    }

    fn delivery(&mut self) -> Delivery {
        if self.rng.chance(50) { Delivery::Steer } else { Delivery::Queue }
    }

    async fn admit(&mut self, operation: &str, session: usize, prompt: PromptAdmitted) {
        let real = match self.world.try_admit(&self.sessions[session], &prompt).await {
            Ok(admitted) => match admitted.admission {
                Admission::First => format!("admitted {}", admitted.seq),
                Admission::Retry => format!("retry {}", admitted.seq),
            },
            Err(StoreError::Conflict { .. }) => "conflict".into(),
            Err(error) => panic!("{error:?}"),
        };
        let mut mint = self.mint();
        let model = match self.model.admit(session, &prompt, &mut mint, self.world.tick()) {
            sim::Admission::Admitted(seq) => {
                self.sent.push((session, prompt));
                format!("admitted {seq}")
            }
            sim::Admission::Retry(seq) => format!("retry {seq}"),
            sim::Admission::Conflict => "conflict".into(),
        };
        assert_eq!(real, model, "{operation}");
        let word = real.split(' ').next().unwrap_or_default().to_owned();
        self.same(operation, &word, &word);
    }

    /// An id that was used: the same again, or something else under it.
    async fn admit_again(&mut self, session: usize) {
        let turn = self.open[session].as_ref().map(|turn| turn.message.clone());
        if let Some(message) = turn.filter(|_| self.rng.chance(40)) {
            let prompt = PromptAdmitted { message, ..self.world.prompt("a reply's id") };
            return self.admit("admit under a reply's id", session, prompt).await;
        }
        if self.sent.is_empty() {
            return;
        }
        let (mut session, mut prompt) = self.sent[self.rng.index(self.sent.len())].clone();
        let operation = match self.rng.below(4) {
            0 => "admit again",
            1 => {
                prompt.digest = "another".into();
                "admit another"
            }
            2 => {
                session = (session + 1) % SESSIONS;
                "admit elsewhere"
            }
            _ => {
                let steers = prompt.delivery == Delivery::Steer;
                prompt.delivery = if steers { Delivery::Queue } else { Delivery::Steer };
                "admit otherwise"
            }
        };
        self.admit(operation, session, prompt).await;
    }

    async fn interrupt(&mut self, session: usize) {
        let id = self.sessions[session].session.clone();
        let real = self.world.store.interrupt(self.world.org, id, self.world.tick()).await;
        let real = match real.expect("an answer") {
            Interrupted::Applied { .. } => "applied",
            Interrupted::Idle => "idle",
        };
        let mut mint = self.mint();
        let model = match self.model.interrupt(session, &mut mint, self.world.tick()) {
            sim::Interrupted::Applied(_) => "applied",
            sim::Interrupted::Idle => "idle",
        };
        self.same("interrupt", real, model);
    }

    fn any_sent(&mut self) -> Option<PromptAdmitted> {
        let index = (!self.sent.is_empty()).then(|| self.rng.index(self.sent.len()))?;
        Some(self.sent[index].1.clone())
    }

    async fn cancel(&mut self, session: usize) {
        let Some(prompt) = self.any_sent() else { return };
        let (org, id) = (self.world.org, self.sessions[session].session.clone());
        let message = prompt.message.clone();
        let real = self.world.store.cancel_input(org, id, message, self.world.tick()).await;
        let real = match real.expect("an answer") {
            InboxChange::Done { .. } => "done",
            InboxChange::Unchanged => "gone",
        };
        let mut mint = self.mint();
        let model = self.model.cancel(session, &prompt.message, &mut mint, self.world.tick());
        self.same("cancel", real, if model == sim::Change::Done { "done" } else { "gone" });
    }

    async fn change(&mut self, session: usize) {
        let Some(prompt) = self.any_sent() else { return };
        let to = self.delivery();
        let (org, id) = (self.world.org, self.sessions[session].session.clone());
        let message = prompt.message.clone();
        let real = self.world.store.change_delivery(org, id, message, to, self.world.tick()).await;
        let real = match real {
            Ok(InboxChange::Done { .. }) => "done",
            Ok(InboxChange::Unchanged) | Err(StoreError::Conflict { .. }) => "conflict",
            Err(StoreError::NotFound) => "missing",
            Err(error) => panic!("{error:?}"),
        };
        let mut mint = self.mint();
        let model =
            match self.model.change(session, &prompt.message, to, &mut mint, self.world.tick()) {
                sim::Change::Done => "done",
                sim::Change::Conflict => "conflict",
                sim::Change::Missing | sim::Change::Gone => "missing",
            };
        self.same("change", real, model);
    }

    async fn fence(&mut self) {
        let location = self.rng.index(2);
        let newest = self.model.fences[location];
        let token = (newest + 2).saturating_sub_unsigned(self.rng.below(4)).max(1);
        let at = self.locations[location].clone();
        let real = match self.world.store.raise_fence(at, FencingToken(token)).await {
            Ok(()) => "ours",
            Err(StoreError::Superseded) => "superseded",
            Err(error) => panic!("{error:?}"),
        };
        let ours = self.model.raise_fence(location, token);
        self.same("fence", real, if ours { "ours" } else { "superseded" });
    }

    async fn look(&mut self, session: usize) {
        let fence = self.model.fences[session % 2];
        let token = if self.rng.chance(85) { fence } else { fence + 1 };
        let at = self.sessions[session].clone();
        let real = self.world.store.start_drain(at, FencingToken(token), Seq(0), Hold::Look).await;
        let model = self.model.look(session, token, Seq(0));
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

    /// What a drain would write now.
    fn events(&mut self, session: usize) -> (Vec<SessionEvent>, DrainEnd) {
        let row = &self.model.sessions[session];
        let waits = |input: &&sim::Input| input.status == sim::InputStatus::Admitted;
        let waiting: Vec<_> =
            row.inputs.iter().filter(waits).map(|input| input.id.clone()).collect();
        let mut events = Vec::new();
        if !waiting.is_empty() && self.rng.chance(40) {
            let id = &waiting[self.rng.index(waiting.len())];
            let sent = self.sent.iter().find(|(_, prompt)| prompt.message == *id);
            events.extend(sent.map(|(_, prompt)| promoted(prompt)));
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

    async fn commit_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let index = self.rng.index(self.held.len());
        let held = self.held.swap_remove(index);
        self.commit("write", held).await;
    }

    async fn commit(&mut self, operation: &str, held: Held) {
        let Held { session, real, model } = held;
        let (events, end) = self.events(session);
        let count = events.iter().filter(|event| event.kind() == "prompt.promoted").count();
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
                self.claims.push((session, claim));
                if end == DrainEnd::Keep || self.rng.chance(20) {
                    self.held.push(Held { session, real: *real, model });
                }
                "written"
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
    async fn resume(&mut self) {
        if self.claims.is_empty() {
            return;
        }
        let (session, claim) = self.claims[self.rng.index(self.claims.len())];
        let at = self.sessions[session].clone();
        let real = self.world.store.resume_drain(at, Claim(claim), Seq(0)).await;
        match (real, self.model.prove(session, claim, Seq(0))) {
            (Ok((real, log)), Some((model, model_log))) => {
                assert_eq!(log.len(), model_log.len());
                compare_basis(&real, &model);
                self.same("prove", "held", "held");
                self.commit("locked write", Held { session, real, model }).await;
            }
            (Err(StoreError::Fenced { .. }), None) => self.same("prove", "fenced", "fenced"),
            (Err(error), _) => panic!("{error:?}"),
            (Ok(_), None) => panic!("the model says that claim {claim} is fenced"),
        }
    }

    async fn compare_head(&self, session: usize) {
        let real = self.world.head(&self.sessions[session]).await;
        let model = self.model.sessions[session].head;
        let model = HeadRow {
            next_seq: model.next_seq,
            claim: model.claim,
            pending: model.pending,
            open: model.open,
            handed_over: model.handed_over,
            recoveries: model.recoveries,
            wake_seq: model.wake_seq,
            parked_seq: model.parked_seq,
            interrupt_seq: model.interrupt_seq,
            ready: model.ready(),
        };
        assert_eq!(real, model);
    }

    /// The logs say the same, from the first event after the session's creation.
    async fn compare_logs(&self) {
        for (session, at) in self.sessions.iter().enumerate() {
            let real = self.world.store.events(at.org, at.session.clone(), Seq(1), 10_000).await;
            let real: Vec<_> = real.expect("a log").into_iter().map(|event| event.event).collect();
            let model = self.model.sessions[session].events.iter().skip(1);
            let model: Vec<_> = model.map(|event| event.event.clone()).collect();
            assert_eq!(real, model);
        }
    }
}

fn compare_basis(real: &DrainWrite, model: &Basis) {
    let head = real.head();
    assert_eq!(
        (real.claim().0, head.next_seq.0, head.interrupt_seq.0),
        (model.claim(), model.first, model.interrupt_seq)
    );
}

#[tokio::test]
async fn the_model_of_the_simulation_answers_as_postgres_does() {
    let world = World::new().await;
    let mut outcomes = std::collections::BTreeMap::new();
    for seed in 1..=SEQUENCES {
        let mut pair = Pair::new(&world, seed, None).await;
        for _ in 0..OPERATIONS {
            pair.operation().await;
        }
        pair.compare_logs().await;
        for (outcome, count) in pair.outcomes {
            *outcomes.entry(outcome).or_insert(0) += count;
        }
    }
    // A run in which an outcome never came proves nothing about it.
    for wanted in [
        "admit: admitted",
        "admit again: retry",
        "admit another: conflict",
        "admit elsewhere: conflict",
        "admit otherwise: conflict",
        "admit under a reply's id: conflict",
        "cancel: done",
        "cancel: gone",
        "change: conflict",
        "change: done",
        "change: missing",
        "fence: ours",
        "fence: superseded",
        "interrupt: applied",
        "interrupt: idle",
        "locked write: written",
        "look: idle",
        "look: ready",
        "look: superseded",
        "prove: fenced",
        "prove: held",
        "write: fenced",
        "write: stale",
        "write: superseded",
        "write: written",
    ] {
        assert!(outcomes.contains_key(wanted), "`{wanted}` never came: {outcomes:?}");
    }
}

#[tokio::test]
#[should_panic(expected = "assertion `left == right` failed")]
async fn a_model_that_leaves_spent_wakes_is_told_from_postgres() {
    let world = World::new().await;
    for seed in 1..=SEQUENCES {
        let mutant = Some(Mutant::Store(StoreMutant::WakesNotSpent));
        let mut pair = Pair::new(&world, seed, mutant).await;
        for _ in 0..OPERATIONS {
            pair.operation().await;
        }
    }
}
