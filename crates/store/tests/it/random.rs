//! Many workers, sessions and clients at once, doing anything at any time; the oracle judges.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use domain::{
    Control, ControlAdmitted, ControlDelivered, Delivery, DrainOutcome, EpochStarted, FencingToken,
    InputCancelled, InterruptTarget, LocationId, LocationRef, MessageId, PromptAdmitted,
    PromptPromoted, RevertCleared, RevertCommitted, RevertedTo, Seq, SessionEvent, SessionRef,
    TurnOutcome,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use store::{
    ControlAdmission, DrainEnd, DrainWrite, Hold, InboxChange, Started, StoreError, Written,
};
use tokio::task::JoinSet;

use crate::files::{moved, staged};
use crate::script::{TestTurn, ended, promoted};
use crate::world::{World, name};

const WORKERS: usize = 5;
const CLIENTS: usize = 4;
const SESSIONS: usize = 5;
const RUN: Duration = Duration::from_secs(3);
/// How much longer it goes on on a busy machine, until everything has happened.
const GRACE: Duration = Duration::from_secs(100);

/// Counts of what happened, so that a run in which nothing did is rejected.
#[derive(Debug, Default)]
struct Counts {
    admitted: AtomicUsize,
    controls: AtomicUsize,
    cancelled: AtomicUsize,
    changed: AtomicUsize,
    woken: AtomicUsize,
    interrupts: AtomicUsize,
    fences: AtomicUsize,
    commits: AtomicUsize,
    fenced: AtomicUsize,
    stale: AtomicUsize,
    superseded: AtomicUsize,
    recovered: AtomicUsize,
    abandoned: AtomicUsize,
    moved: AtomicUsize,
    resumed: AtomicUsize,
    staged: AtomicUsize,
    busy: AtomicUsize,
    committed: AtomicUsize,
}

impl Counts {
    /// Whether everything has happened.
    fn all(&self) -> bool {
        !format!("{self:?}").contains("(0)") && !format!("{self:?}").contains(": 0")
    }
}

struct Run {
    world: World,
    /// Where they were made; they may have moved.
    sessions: Vec<SessionRef>,
    locations: [LocationId; 2],
    /// The newest token that anybody minted, for both Locations.
    minted: AtomicI64,
    counts: Counts,
    until: Instant,
}

fn count(counter: &AtomicUsize) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Run {
    fn goes_on(&self) -> bool {
        let now = Instant::now();
        now < self.until || (now < self.until + GRACE && !self.counts.all())
    }

    fn any(&self, random: &mut StdRng) -> &SessionRef {
        &self.sessions[random.random_range(1..self.sessions.len())]
    }
}

/// A drain's knowledge of its session, from the log.
#[derive(Clone)]
struct Known {
    seq: Seq,
    open: Option<TestTurn>,
    /// The newest interrupt of work that has not ended.
    interrupt: Option<Seq>,
    interrupts_before: Seq,
    pending: Vec<Pending>,
    epochs: i32,
    /// It has moved, and no epoch has begun since.
    wants_epoch: bool,
    /// The boundary message of the Revert that is staged.
    staged: Option<MessageId>,
}

/// An input that waits: a prompt, or a control.
#[derive(Clone)]
struct Pending {
    message: MessageId,
    delivery: Delivery,
    prompt: Option<PromptAdmitted>,
    control: Option<Control>,
}

impl Known {
    fn note(&mut self, event: &SessionEvent) {
        self.seq = Seq(self.seq.0 + 1);
        match event {
            SessionEvent::PromptAdmitted(prompt) => self.pending.push(Pending {
                message: prompt.message.clone(),
                delivery: prompt.delivery,
                prompt: Some(prompt.clone()),
                control: None,
            }),
            SessionEvent::ControlAdmitted(ControlAdmitted {
                message, delivery, control, ..
            }) => {
                let (message, delivery) = (message.clone(), *delivery);
                let control = Some(control.clone());
                self.pending.push(Pending { message, delivery, prompt: None, control });
            }
            SessionEvent::SessionMoved(_) => self.wants_epoch = true,
            SessionEvent::EpochStarted(epoch) => {
                self.epochs = epoch.epoch;
                self.wants_epoch = false;
            }
            SessionEvent::RevertStaged(staged) => self.staged = Some(staged.message.clone()),
            SessionEvent::RevertCleared(_) | SessionEvent::RevertCommitted(_) => self.staged = None,
            SessionEvent::DeliveryChanged(changed) => {
                let mut pending = self.pending.iter_mut();
                if let Some(input) = pending.find(|input| input.message == changed.message) {
                    input.delivery = changed.delivery;
                }
            }
            SessionEvent::PromptPromoted(PromptPromoted { message, .. })
            | SessionEvent::ControlDelivered(ControlDelivered { message, .. })
            | SessionEvent::InputCancelled(InputCancelled { message }) => {
                self.pending.retain(|input| input.message != *message);
            }
            SessionEvent::TurnStarted(started) => self.open = Some(TestTurn::started(started)),
            SessionEvent::AttemptStarted(started) => {
                self.open = self.open.take().map(|turn| turn.with_attempt(&started.attempt));
            }
            SessionEvent::TurnSettled(_) => self.open = None,
            SessionEvent::InterruptRequested(asked) if asked.target != InterruptTarget::Parked => {
                self.interrupt = Some(self.seq);
            }
            SessionEvent::DrainEnded(_) => self.interrupt = None,
            _ => {}
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_some_and(|seq| seq > self.interrupts_before)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_workers_and_clients_do_the_oracle_finds_nothing() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let world = World::new().await;
    let mut sessions = Vec::new();
    let locations = [world.location.clone(), world.another_location().await];
    for n in 0..SESSIONS {
        sessions.push(world.session_at(&locations[n % 2]).await);
    }
    for at in &locations {
        fence(&world, at, 1).await.expect("the first");
    }
    let until = Instant::now() + RUN;
    let (minted, counts) = (AtomicI64::new(1), Counts::default());
    let run = Arc::new(Run { world, sessions, locations, minted, counts, until });
    let mut tasks = JoinSet::new();
    for n in 0..WORKERS + CLIENTS {
        let run = run.clone();
        let random = StdRng::seed_from_u64(seed.wrapping_add(n as u64));
        tasks.spawn(async move {
            if n < WORKERS { worker(&run, random).await } else { client(&run, random).await }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    run.world.assert_sound(false).await;

    // Faults have stopped: one owner finishes what is left.
    let token = run.minted.load(Ordering::Relaxed) + 1;
    for at in &run.locations {
        fence(&run.world, at, token).await.expect("the highest");
    }
    let mut random = StdRng::seed_from_u64(seed);
    for session in &run.sessions {
        while run.world.head(session).await.ready {
            let at = usize::from(random.random_bool(0.5));
            drain(&run, session, at, token, &mut random, false).await;
        }
    }
    run.world.assert_sound(true).await;
    assert!(run.counts.all(), "seed {seed}: {:?}", run.counts);
}

async fn fence(world: &World, at: &LocationId, token: i64) -> Result<(), StoreError> {
    let at = LocationRef { org: world.org, location: at.clone() };
    world.store.raise_fence(at, FencingToken(token)).await.map(drop)
}

/// Reverts and what ends them, at a session that is seldom busy.
async fn quietly(run: &Run, random: &mut StdRng) {
    let quiet = &run.sessions[0];
    let now = run.world.tick();
    let message = MessageId::mint(&mut run.world.mint());
    let control = match random.random_range(0..40) {
        0..24 => Control::Revert { message, files: false },
        24..28 => Control::Unrevert,
        28..38 => {
            match run.world.store.commit_revert(run.world.org, quiet.session.clone(), now).await {
                Ok(InboxChange::Done { .. }) => count(&run.counts.committed),
                Ok(InboxChange::Unchanged) | Err(StoreError::Busy { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
            return;
        }
        38 => {
            let synthetic = Some("A note".to_owned());
            let note = PromptAdmitted { synthetic, ..run.world.prompt("anything") };
            run.world.try_admit(quiet, &note).await.expect("admitted");
            return;
        }
        _ => {
            run.world.admit(quiet, "anything").await;
            return;
        }
    };
    let control = ControlAdmitted { control, ..run.world.compaction() };
    match run.world.try_control(quiet, &control).await {
        Ok(_) => {}
        Err(StoreError::Busy { .. }) => count(&run.counts.busy),
        Err(error) => panic!("{error:?}"),
    }
}

/// A control of any kind, as far as the session takes it.
async fn ask(run: &Run, session: &SessionRef, random: &mut StdRng) {
    let control = match random.random_range(0..8) {
        0..3 => Control::Compaction,
        3..5 => Control::Move {
            project: run.world.project.clone(),
            location: run.locations[usize::from(random.random_bool(0.5))].clone(),
            directory: "/else".into(),
            carry: false,
        },
        5..7 => Control::Revert { message: MessageId::mint(&mut run.world.mint()), files: false },
        _ => Control::Unrevert,
    };
    let control = ControlAdmitted {
        delivery: any_delivery(random),
        wake: random.random_bool(0.8),
        control,
        ..run.world.compaction()
    };
    match run.world.try_control(session, &control).await {
        Ok(admitted) if admitted.admission == ControlAdmission::First => {
            count(&run.counts.controls);
        }
        Ok(_) => {}
        Err(StoreError::Busy { .. }) => count(&run.counts.busy),
        Err(error) => panic!("{error:?}"),
    }
}

async fn client(run: &Run, mut random: StdRng) {
    let mut sent = Vec::new();
    while run.goes_on() {
        let session = run.any(&mut random);
        match random.random_range(0..16) {
            0 => {
                let id = session.session.clone();
                run.world
                    .store
                    .interrupt(run.world.org, id, None, run.world.tick())
                    .await
                    .expect("an answer");
                count(&run.counts.interrupts);
            }
            1 => ask(run, session, &mut random).await,
            6 => {
                let (id, now) = (session.session.clone(), run.world.tick());
                let store = &run.world.store;
                let done = store.interrupt_and_resume(run.world.org, id, None, now).await;
                if done.expect("an answer").wake.is_some() {
                    count(&run.counts.resumed);
                }
            }
            7..10 => quietly(run, &mut random).await,
            2 => {
                let asked = run.world.store.wake_session(
                    run.world.org,
                    session.session.clone(),
                    run.world.tick(),
                );
                if asked.await.expect("an answer") != InboxChange::Unchanged {
                    count(&run.counts.woken);
                }
            }
            // The input that was sent last may still wait.
            3 if !sent.is_empty() => {
                let (session, prompt): &(SessionRef, PromptAdmitted) = &sent[sent.len() - 1];
                let (id, input) = (session.session.clone(), prompt.message.clone());
                let asked =
                    run.world.store.cancel_input(run.world.org, id, input, run.world.tick());
                if asked.await.expect("an answer") != InboxChange::Unchanged {
                    count(&run.counts.cancelled);
                }
            }
            4 if !sent.is_empty() => {
                let (session, prompt): &(SessionRef, PromptAdmitted) = &sent[sent.len() - 1];
                let (id, input, to) =
                    (session.session.clone(), prompt.message.clone(), any_delivery(&mut random));
                let store = &run.world.store;
                match store.change_delivery(run.world.org, id, input, to, run.world.tick()).await {
                    Ok(_) => count(&run.counts.changed),
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            5 if !sent.is_empty() => {
                let (session, prompt) = &sent[random.random_range(0..sent.len())];
                let again = run.world.try_admit(session, prompt).await.expect("found");
                assert_eq!(again.admission, store::Admission::Retry);
            }
            _ => {
                let prompt = PromptAdmitted {
                    delivery: any_delivery(&mut random),
                    wake: random.random_bool(0.8),
                    synthetic: random.random_bool(0.2).then(|| "A note".to_owned()),
                    ..run.world.prompt("anything")
                };
                run.world.try_admit(session, &prompt).await.expect("admitted");
                sent.push((session.clone(), prompt));
                count(&run.counts.admitted);
            }
        }
    }
}

async fn worker(run: &Run, mut random: StdRng) {
    let mut token = 1;
    while run.goes_on() {
        match random.random_range(0..12) {
            // A new lease; the other workers go on with theirs until they are told.
            0 => {
                token = run.minted.fetch_add(1, Ordering::Relaxed) + 1;
                for at in &run.locations {
                    match fence(&run.world, at, token).await {
                        Ok(()) => count(&run.counts.fences),
                        Err(StoreError::Superseded) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            }
            1..3 => token = run.minted.load(Ordering::Relaxed),
            3 => {
                // Others count at the same time, and this one may end before it has kept its place.
                let counted = run.world.store.count_usage(run.world.org);
                let _ = tokio::time::timeout(
                    Duration::from_millis(random.random_range(0..20)),
                    counted,
                )
                .await;
            }
            _ => {
                let session = run.sessions[random.random_range(0..SESSIONS)].clone();
                let at = usize::from(random.random_bool(0.5));
                drain(run, &session, at, token, &mut random, true).await;
            }
        }
    }
}

fn any_delivery(random: &mut StdRng) -> Delivery {
    if random.random_bool(0.4) { Delivery::Queue } else { Delivery::Steer }
}

fn any_hold(random: &mut StdRng) -> Hold {
    if random.random_bool(0.5) { Hold::Look } else { Hold::Lock }
}

/// One Session Drain at one of the Locations, if the session is there. With `faults` it may stop anywhere
/// without a word.
async fn drain(
    run: &Run,
    session: &SessionRef,
    at: usize,
    token: i64,
    random: &mut StdRng,
    faults: bool,
) {
    let session = &SessionRef { location: run.locations[at].clone(), ..session.clone() };
    let (token, hold) = (FencingToken(token), any_hold(random));
    let started =
        run.world.store.start_drain(session.clone(), token, store::KnownLog::NOTHING, hold).await;
    let (mut write, taken, log) = match started {
        Ok(Started::Ready(write, taken, log)) => (*write, taken, log),
        Ok(Started::Superseded) => return count(&run.counts.superseded),
        Ok(Started::Idle) => return,
        other => panic!("{}", name(&other)),
    };
    let mut known = Known {
        seq: Seq(0),
        open: None,
        interrupt: None,
        interrupts_before: write.head().interrupt_seq,
        pending: Vec::new(),
        epochs: 0,
        wants_epoch: false,
        staged: None,
    };
    log.iter().for_each(|recorded| known.note(&recorded.event));
    // An interrupt of the drain that was left open is ours to apply.
    if let Some(seq) = known.interrupt
        && taken.was_open
    {
        known.interrupts_before = Seq(seq.0 - 1);
    }
    if taken.was_open {
        count(&run.counts.recovered);
    }
    let claim = write.claim();
    let mut claimed = false;
    loop {
        if faults && random.random_bool(0.05) {
            // Its transaction, if it has one, is rolled back, and it is never heard of again.
            return count(&run.counts.abandoned);
        }
        let (events, end) = next_write(run, session, &write, &known, random, faults);
        let next = match run.world.try_write(write, &events, end).await {
            Ok(Written::Next(next)) => {
                claimed = true;
                events.iter().for_each(|event| known.note(event));
                count(&run.counts.commits);
                if matches!(end, DrainEnd::Moved | DrainEnd::MovedOpen) {
                    count(&run.counts.moved);
                }
                if events.iter().any(|event| matches!(event, SessionEvent::RevertStaged(_))) {
                    count(&run.counts.staged);
                }
                Some(*next)
            }
            Ok(Written::Stale) => {
                count(&run.counts.stale);
                None
            }
            Ok(Written::Superseded) => return count(&run.counts.superseded),
            Ok(Written::Unstored) => panic!("a component is not stored"),
            Ok(Written::Unanswered(_, error)) => panic!("{error:?}"),
            Err(StoreError::Fenced { .. }) => return count(&run.counts.fenced),
            Err(error) => panic!("{error:?}"),
        };
        // A start that was refused leaves it to a later drain.
        if !claimed || (next.is_some() && end != DrainEnd::Keep) {
            return;
        }
        let read = store::KnownLog { seq: known.seq, ..store::KnownLog::NOTHING };
        write = match next.filter(|_| any_hold(random) == Hold::Look) {
            Some(next) => next,
            None => match run.world.store.resume_drain(session.clone(), claim, read).await {
                Ok((locked, new)) => {
                    new.iter().for_each(|recorded| known.note(&recorded.event));
                    locked
                }
                Err(StoreError::Fenced { .. }) => return count(&run.counts.fenced),
                Err(error) => panic!("{error:?}"),
            },
        };
    }
}

/// The next write of a Session Drain, given its knowledge.
fn next_write(
    run: &Run,
    session: &SessionRef,
    write: &DrainWrite,
    known: &Known,
    random: &mut StdRng,
    faults: bool,
) -> (Vec<SessionEvent>, DrainEnd) {
    let mut mint = write.mint(run.world.tick());
    if known.is_interrupted() {
        let mut events = Vec::new();
        if let Some(turn) = &known.open {
            events.extend(turn.stop(TurnOutcome::Interrupted));
        }
        events.push(ended(DrainOutcome::Interrupted));
        return (events, DrainEnd::Close);
    }
    if let Some(turn) = &known.open {
        if faults && random.random_bool(0.3) {
            return (Vec::new(), DrainEnd::Keep);
        }
        let mut events = if random.random_bool(0.8) {
            turn.reply(&mut mint).to_vec()
        } else {
            turn.stop(TurnOutcome::Lost).to_vec()
        };
        if random.random_bool(0.1) {
            events.push(ended(DrainOutcome::Failed));
            return (events, DrainEnd::Close);
        }
        return (events, DrainEnd::Keep);
    }
    if faults && random.random_bool(0.1) {
        return (Vec::new(), DrainEnd::HandOver);
    }
    let pending: Vec<&Pending> = known.pending.iter().collect();
    if !pending.is_empty() && random.random_bool(0.05) {
        return (vec![ended(DrainOutcome::Failed)], DrainEnd::Park);
    }
    // Input that a staged Revert holds waits, unless a prompt commits it.
    let wakes = |input: &&Pending| input.prompt.as_ref().is_some_and(|prompt| prompt.wake);
    let commits = known.staged.is_some() && pending.iter().any(wakes);
    let holds = known.staged.is_some() && !commits;
    let pending = pending.into_iter().filter(|input| !holds || input.control.is_some());
    let (steers, queued): (Vec<&Pending>, Vec<&Pending>) =
        pending.partition(|input| input.delivery == Delivery::Steer);
    let inputs: Vec<&Pending> =
        if steers.is_empty() { queued.into_iter().take(1).collect() } else { steers };
    if let Some(Pending { message, control: Some(control), .. }) = inputs.first() {
        return act(run, session, known, message, control, random);
    }
    let prompts: Vec<_> = inputs.iter().map_while(|input| input.prompt.as_ref()).collect();
    let mut events = Vec::new();
    if let Some(message) = known.staged.clone().filter(|_| commits) {
        let (from, back) = (NOTHING, RevertedTo::default());
        events.push(RevertCommitted { message, from, back }.into());
    }
    if known.wants_epoch && !prompts.is_empty() {
        let (baseline, snapshot) = ("You are here.".into(), "{}".into());
        let epoch = known.epochs + 1;
        events.push(EpochStarted { epoch, baseline, snapshot, reason: None }.into());
    }
    events.extend(prompts.iter().copied().map(promoted));
    let Some(prompt) = prompts.last() else {
        return (vec![ended(DrainOutcome::Completed)], DrainEnd::Close);
    };
    let turn = TestTurn::new(&mut mint, &prompt.message);
    events.extend(turn.start());
    (events, DrainEnd::Keep)
}

/// Where a Revert begins that takes nothing away.
const NOTHING: Seq = Seq(i64::MAX);

/// The control of an input, and the events that its Session Drain then writes.
fn act(
    run: &Run,
    session: &SessionRef,
    known: &Known,
    message: &MessageId,
    control: &Control,
    random: &mut StdRng,
) -> (Vec<SessionEvent>, DrainEnd) {
    let mut events: Vec<SessionEvent> =
        vec![ControlDelivered { message: message.clone(), error: None }.into()];
    match control {
        Control::Compaction => {}
        Control::Revert { message, .. } => {
            events.push(staged(message, NOTHING, &RevertedTo::default()));
        }
        Control::Unrevert => {
            if known.staged.is_some() {
                events.push(RevertCleared { error: None }.into());
            }
        }
        Control::Move { location, .. } => {
            events.push(moved(&run.world, session, location, false));
            if random.random_bool(0.5) {
                return (events, DrainEnd::MovedOpen);
            }
            events.push(ended(DrainOutcome::Completed));
            return (events, DrainEnd::Moved);
        }
    }
    (events, DrainEnd::Keep)
}
