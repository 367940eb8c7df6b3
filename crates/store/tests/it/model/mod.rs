//! The simulation's model of the store against Postgres: the same operations on both, the same outcomes,
//! heads and logs. A finding of the simulation is evidence about the store as long as this holds.

mod drain;
mod gateway;

use std::collections::BTreeMap;

use domain::{
    ControlAdmitted, Delivery, IdMint, LocationRef, MessageId, PromptAdmitted, Seq, SessionCreated,
    SessionRef,
};
use sim::{Basis, Mutant, Rng, SimStore, StoreMutant};
use store::DrainWrite;

use crate::script::TestTurn;
use crate::world::{HeadRow, World};

const SEQUENCES: u64 = 100;
const OPERATIONS: usize = 60;
const SESSIONS: usize = 3;

/// An input that a client has asked for.
#[derive(Clone)]
enum Sent {
    Prompt(PromptAdmitted),
    Control(ControlAdmitted),
}

impl Sent {
    fn message(&self) -> &MessageId {
        match self {
            Self::Prompt(prompt) => &prompt.message,
            Self::Control(control) => &control.message,
        }
    }
}

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
    sent: Vec<(usize, Sent)>,
    /// The turn that each session has open.
    open: Vec<Option<TestTurn>>,
    held: Vec<Held>,
    /// Claims that drains have had, and where, to go on under later.
    claims: Vec<(usize, usize, i64)>,
    outcomes: BTreeMap<String, usize>,
}

impl<'w> Pair<'w> {
    async fn new(world: &'w World, seed: u64, mutant: Option<Mutant>) -> Self {
        let mut locations = Vec::new();
        for _ in 0..2 {
            let location = world.another_location().await;
            locations.push(LocationRef { org: world.org, location });
        }
        let ids = locations.iter().map(|at| at.location.clone()).collect();
        let mut model = SimStore::new(ids, mutant);
        let mut sessions = Vec::new();
        for index in 0..SESSIONS {
            let session = world.session_at(&locations[index % 2].location).await;
            // Both sides give it the same number.
            model.incarnations = world.head(&session).await.incarnation - 1;
            let created = created(world, &session).into();
            model.create(index % 2, created, &mut world.mint(), world.tick());
            sessions.push(session);
        }
        let open = vec![None; SESSIONS];
        let rng = Rng::new(seed);
        let (sent, held, claims) = (Vec::new(), Vec::new(), Vec::new());
        let outcomes = BTreeMap::new();
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
            0..=15 => {
                let (delivery, wake) = (self.delivery(), self.rng.chance(75));
                let synthetic = self.rng.chance(25).then(|| "a job has ended".to_owned());
                let any = self.world.prompt("anything");
                let prompt = PromptAdmitted { delivery, wake, synthetic, ..any };
                self.admit("admit", session, Sent::Prompt(prompt)).await;
            }
            16..=23 => self.admit_control(session).await,
            24..=29 => self.admit_again(session).await,
            30..=35 => self.interrupt(session).await,
            36..=39 => self.interrupt_and_resume(session).await,
            40..=43 => self.wake(session).await,
            44..=47 => self.cancel(session).await,
            48..=49 => self.change(session).await,
            50..=54 => self.commit_revert(session).await,
            55 => self.describe(session).await,
            56..=57 => self.change_entry(session).await,
            58 => self.make_again(session).await,
            59..=63 => self.fence().await,
            64..=78 => self.look(session).await,
            79..=93 => self.commit_held().await,
            _ => self.resume().await,
        }
        for session in 0..SESSIONS {
            self.compare_head(session).await;
        }
    }

    fn delivery(&mut self) -> Delivery {
        if self.rng.chance(50) { Delivery::Steer } else { Delivery::Queue }
    }

    async fn compare_head(&self, session: usize) {
        let at = &self.sessions[session];
        let real = self.world.head(at).await;
        let model = self.model.sessions[session].head;
        let place: (String, i64) =
            sqlx::query_as("SELECT location_id, staged_seq FROM session_head WHERE id = $1")
                .bind(at.session.as_str())
                .fetch_one(&self.world.root)
                .await
                .expect("a head");
        let location = self.model.locations[model.location].to_string();
        assert_eq!(place, (location, model.staged_seq));
        let model = HeadRow {
            incarnation: model.incarnation,
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
            let real: Vec<_> =
                real.expect("a log").items.into_iter().map(|event| event.event).collect();
            let model = self.model.sessions[session].events.iter().skip(1);
            let model: Vec<_> = model.map(|event| event.event.clone()).collect();
            assert_eq!(real, model);
        }
    }
}

/// The first event of a session.
fn created(world: &World, session: &SessionRef) -> SessionCreated {
    SessionCreated {
        by: None,
        project: world.project.clone(),
        location: session.location.clone(),
        directory: "/workspace".into(),
        title: "New session".into(),
        agent: "build".into(),
        model: None,
        parent: None,
        named: false,
        rules: Vec::new(),
        metadata: None,
    }
}

fn compare_basis(real: &DrainWrite, model: &Basis) {
    let head = real.head();
    assert_eq!(
        (real.claim().0, head.next_seq.0, head.interrupt_seq.0),
        (model.claim(), model.first, model.interrupt_seq)
    );
}

/// Runs sequences of operations on both sides, and panics when they differ. How often each outcome came.
pub(crate) async fn sequences(
    world: &World,
    count: u64,
    mutant: Option<Mutant>,
) -> BTreeMap<String, usize> {
    let mut outcomes = BTreeMap::new();
    for seed in 1..=count {
        let mut pair = Pair::new(world, seed, mutant).await;
        for _ in 0..OPERATIONS {
            pair.operation().await;
        }
        pair.compare_logs().await;
        for (outcome, count) in pair.outcomes {
            *outcomes.entry(outcome).or_insert(0) += count;
        }
    }
    outcomes
}

#[tokio::test]
async fn the_model_of_the_simulation_answers_as_postgres_does() {
    let outcomes = sequences(&World::new().await, SEQUENCES, None).await;
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
        "commit a revert: busy",
        "commit a revert: done",
        "commit a revert: gone",
        "compaction: admitted",
        "compaction: pending",
        "entry: conflict",
        "entry: done",
        "entry: gone",
        "fence: ours",
        "fence: superseded",
        "interrupt: applied",
        "interrupt: idle",
        "interrupt and resume: applied, going on",
        "interrupt and resume: applied, not going on",
        "interrupt and resume: idle, going on",
        "interrupt and resume: idle, not going on",
        "locked write: written",
        "look: idle",
        "look: ready",
        "look: superseded",
        "make again: done",
        "move: admitted",
        "prove: fenced",
        "prove: held",
        "describe: done",
        "revert: admitted",
        "revert: busy",
        "unrevert: admitted",
        "unrevert: busy",
        "wake: done",
        "wake: gone",
        "write: fenced",
        "write: moved",
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
    let mutant = Some(Mutant::Store(StoreMutant::WakesNotSpent));
    sequences(&World::new().await, SEQUENCES, mutant).await;
}
