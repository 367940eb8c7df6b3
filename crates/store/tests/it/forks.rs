//! Sessions that begin with the conversation of another.

use std::sync::Arc;

use domain::{
    DrainOutcome, EpochStarted, Finish, IdMint, MessageId, PartId, PromptPart, PromptPromoted,
    ReplyPart, Seq, SessionCreated, SessionEvent, SessionForked, SessionId, SessionRef, TurnId,
    TurnOutcome, TurnReplied, TurnSettled, TurnStarted, TurnUsage,
};
use store::{Creation, DrainEnd, NewFork, StoreError};
use tokio::task::JoinSet;

use crate::script::{TestTurn, ended, every_kind, model, promoted};
use crate::world::{NOW, World};

/// A Fork of `parent` as whoever serves would ask for it: one exchange, with ids of its own and old times.
pub(crate) fn new_fork(world: &World, parent: &SessionRef) -> NewFork {
    let mut mint = world.mint();
    let id = SessionId::mint(&mut mint);
    let events = exchange(&mut mint);
    let created = SessionCreated {
        by: None,
        project: world.project.clone(),
        location: parent.location.clone(),
        directory: "/workspace".into(),
        title: "Files (fork)".into(),
        agent: "build".into(),
        model: None,
        parent: None,
        named: true,
        rules: Vec::new(),
        metadata: None,
    };
    let forked = SessionForked {
        parent: parent.session.clone(),
        through: Seq(1),
        before: None,
        copied: 5,
        files: None,
    };
    let events = (NOW - 5..).zip(events).collect();
    NewFork { id, created, forked, events, last_id: mint.last(), now: world.tick() }
}

fn exchange(mint: &mut IdMint) -> [SessionEvent; 5] {
    let (prompt, message, turn) =
        (MessageId::mint(mint), MessageId::mint(mint), TurnId::mint(mint));
    let (agent, usage) = ("build".to_owned(), TurnUsage::default());
    let epoch = EpochStarted {
        epoch: 1,
        baseline: "You are \"here\".\n".into(),
        snapshot: "{}".into(),
        reason: None,
    };
    let promoted = PromptPromoted {
        message: prompt.clone(),
        parts: vec![PromptPart::Text { id: PartId::mint(mint), text: "list the files".into() }],
        agent: agent.clone(),
        model: model(),
        admitted: NOW - 9,
        synthetic: None,
    };
    let started = TurnStarted {
        turn: turn.clone(),
        message: message.clone(),
        parent: prompt,
        agent,
        model: model(),
        epoch: 1,
        step: 1,
        notice: None,
    };
    let parts = vec![ReplyPart::text(PartId::mint(mint), "a.rs")];
    let replied = TurnReplied {
        turn: turn.clone(),
        message: message.clone(),
        parts,
        finish: Finish::Stop.into(),
    };
    // It was interrupted there; the interrupt is not copied.
    let outcome = TurnOutcome::Interrupted;
    let settled = TurnSettled { turn, message, outcome, usage, error: None };
    [epoch.into(), promoted.into(), started.into(), replied.into(), settled.into()]
}

/// A Fork, made.
pub(crate) async fn fork_of(world: &World, parent: &SessionRef) -> SessionRef {
    let new = new_fork(world, parent);
    let session = new.id.clone();
    let made = world.store.fork(world.org, new).await.expect("an answer");
    assert_eq!(made, Creation::Created);
    SessionRef { session, ..parent.clone() }
}

#[tokio::test]
async fn a_fork_has_a_log_of_its_own_and_outlives_its_parent() {
    let world = World::new().await;
    let parent = every_kind(&world).await;
    let before = world.rows(&parent).await;
    let fork = fork_of(&world, &parent).await;
    assert_eq!(world.rows(&parent).await, before);
    let kinds = world.kinds(&fork).await;
    assert_eq!(kinds[..2], ["session.created", "session.forked"]);
    assert_eq!(kinds.len(), 7);
    let row = world.store.session(world.org, fork.session.clone()).await.expect("a session");
    assert_eq!((row.fork_of, row.parent), (Some(parent.session.clone()), None));
    assert_eq!((row.title.as_str(), row.busy, row.seq), ("Files (fork)", false, Seq(7)));
    assert_eq!(row.usage, TurnUsage::default());
    let log =
        world.store.events(world.org, fork.session.clone(), Seq(2), 9).await.expect("a log").items;
    let times: Vec<i64> = log.iter().map(|event| event.time).collect();
    assert_eq!(times, (NOW - 5..NOW).collect::<Vec<_>>(), "each with the time that it had");
    world.assert_sound(true).await;

    // It goes on, and is forked itself.
    world.store.delete_session(world.org, parent.session.clone()).await.expect("deleted");
    let prompt = world.admit(&fork, "and now?").await;
    let turn = TestTurn::new(&mut world.mint(), &prompt.message);
    let mut events = vec![promoted(&prompt)];
    events.extend(turn.start());
    let claim = world.drain(&fork, 1, &events, DrainEnd::Keep).await;
    let mut events = turn.reply(&mut world.mint()).to_vec();
    events.push(ended(DrainOutcome::Completed));
    world.resume(&fork, claim, &events, DrainEnd::Close).await.expect("the claim holds");
    let nested = fork_of(&world, &fork).await;
    world.store.delete_session(world.org, fork.session).await.expect("deleted");
    assert_eq!(world.kinds(&nested).await.len(), 7);
    world.assert_sound(true).await;
}

#[tokio::test]
async fn asking_for_a_fork_again_makes_no_other_and_what_is_not_there_cannot_be_forked() {
    let world = World::new().await;
    let (parent, other) = (world.session().await, world.session().await);
    let new = new_fork(&world, &parent);
    let fork = |new: NewFork| world.store.fork(world.org, new);
    assert_eq!(fork(new.clone()).await.expect("an answer"), Creation::Created);
    let made = SessionRef { session: new.id.clone(), ..parent.clone() };
    let rows = world.rows(&made).await;
    let mut mint = world.mint();
    let again = NewFork { events: (NOW..).zip(exchange(&mut mint)).collect(), ..new.clone() };
    assert_eq!(fork(again).await.expect("an answer"), Creation::Exists);
    let before = Some(MessageId::mint(&mut mint));
    let differing = [
        SessionForked { parent: other.session.clone(), ..new.forked.clone() },
        SessionForked { before, ..new.forked.clone() },
    ];
    for forked in differing {
        let answer = fork(NewFork { forked, ..new.clone() }).await;
        assert!(matches!(answer, Err(StoreError::Conflict { .. })), "{answer:?}");
    }
    let taken = fork(NewFork { id: other.session.clone(), ..new.clone() }).await;
    assert!(matches!(taken, Err(StoreError::Conflict { .. })), "{taken:?}");
    assert_eq!(world.rows(&made).await, rows);

    let fresh = || NewFork { id: SessionId::mint(&mut world.mint()), ..new_fork(&world, &parent) };
    let (nobody, beyond) = (fresh(), fresh());
    let forked =
        SessionForked { parent: "ses_nobody".parse().expect("an id"), ..nobody.forked.clone() };
    let answer = fork(NewFork { forked, ..nobody.clone() }).await.expect("an answer");
    assert_eq!(answer, Creation::Orphan);
    let forked = SessionForked { through: Seq(2), ..beyond.forked.clone() };
    let answer = fork(NewFork { forked, ..beyond.clone() }).await.expect("an answer");
    assert_eq!(answer, Creation::Orphan, "its log has one event");
    let forked = SessionForked { copied: 4, ..nobody.forked.clone() };
    let answer = fork(NewFork { forked, ..fresh() }).await;
    assert!(matches!(answer, Err(StoreError::Unreadable(_))), "{answer:?}");
    for id in [nobody.id, beyond.id] {
        let nowhere = SessionRef { session: id, ..parent.clone() };
        assert_eq!(world.rows(&nowhere).await, Vec::<String>::new());
    }
    world.assert_sound(true).await;
}

/// Forks take no lock of their parent: neither writes nor a deletion of it hold them up, or are held up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_races_writes_and_the_deletion_of_its_parent() {
    let world = Arc::new(World::new().await);
    world.fence(1).await;
    let mut made = [0, 0];
    for _ in 0..15 {
        let parent = world.session().await;
        let mut calls = JoinSet::new();
        let shared = new_fork(&world, &parent);
        for n in 0..8 {
            let (world, parent) = (world.clone(), parent.clone());
            // Two ask for the same one.
            let new = if n < 2 { shared.clone() } else { new_fork(&world, &parent) };
            calls.spawn(async move {
                Some((new.id.clone(), world.store.fork(world.org, new).await.expect("an answer")))
            });
        }
        for n in 0..8 {
            let (world, parent) = (world.clone(), parent.clone());
            calls.spawn(async move {
                if n == 5 {
                    let deleted = world.store.delete_session(world.org, parent.session.clone());
                    deleted.await.expect("deleted once");
                } else {
                    match world.try_admit(&parent, &world.prompt("meanwhile")).await {
                        Ok(_) | Err(StoreError::NotFound) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
                None
            });
        }
        let mut same = Vec::new();
        while let Some(answer) = calls.join_next().await {
            let Some((id, answer)) = answer.expect("no panic") else { continue };
            if id == shared.id {
                same.push(answer);
            }
            let fork = SessionRef { session: id, ..parent.clone() };
            match answer {
                Creation::Created | Creation::Exists => {
                    made[0] += 1;
                    assert_eq!(world.kinds(&fork).await.len(), 7, "whole");
                }
                Creation::Orphan => made[1] += 1,
                Creation::TooDeep | Creation::TooMany => panic!("{answer:?}"),
            }
        }
        assert!(same.iter().filter(|answer| **answer == Creation::Created).count() <= 1);
    }
    assert!(made[0] > 0, "{made:?}");
    world.assert_sound(false).await;
}
