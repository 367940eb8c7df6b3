//! A Revert that is staged: who commits it, who must wait for it, and what it takes away.

use std::sync::Arc;

use domain::{
    Control, ControlAdmitted, ControlDelivered, Delivery, DrainOutcome, EpochStarted, MessageId,
    PromptAdmitted, RevertCleared, RevertedTo, Seq, SessionRef,
};
use store::{Admission, ControlAdmission, DrainEnd, Hold, InboxChange, Messages, StoreError};
use tokio::task::JoinSet;

use crate::files::{control, last, stage, staged};
use crate::script::{TestTurn, ended, every_kind, promoted};
use crate::world::World;

fn is_busy<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Busy { .. }))
}

async fn commit(world: &World, session: &SessionRef) -> Result<InboxChange, StoreError> {
    world.store.commit_revert(world.org, session.session.clone(), world.tick()).await
}

fn synthetic(world: &World) -> PromptAdmitted {
    PromptAdmitted { synthetic: Some("A note".into()), ..world.prompt("b.rs is new") }
}

/// A prompt with its answer; the session is idle afterwards. The first begins the epoch.
async fn exchange(world: &World, session: &SessionRef, text: &str) -> PromptAdmitted {
    let prompt = world.admit(session, text).await;
    let turn = TestTurn::new(&mut world.mint(), &prompt.message);
    let mut events = Vec::new();
    if !world.kinds(session).await.contains(&"epoch.started".to_owned()) {
        let (baseline, snapshot) = ("You are here.".to_owned(), "first".to_owned());
        events.push(EpochStarted { epoch: 1, baseline, snapshot, reason: None }.into());
    }
    events.push(promoted(&prompt));
    events.extend(turn.start());
    let claim = world.drain(session, 1, &events, DrainEnd::Keep).await;
    let mut events = turn.reply(&mut world.mint()).to_vec();
    events.push(ended(DrainOutcome::Completed));
    world.resume(session, claim, &events, DrainEnd::Close).await.expect("the claim holds");
    prompt
}

fn first_epoch() -> RevertedTo {
    RevertedTo { epoch: Some(1), snapshot: Some("first".into()) }
}

/// A session with two exchanges, the second of which is to be reverted.
async fn with_staged(world: &World) -> (SessionRef, PromptAdmitted, PromptAdmitted) {
    let session = world.session().await;
    let kept = exchange(world, &session, "kept").await;
    let gone = exchange(world, &session, "gone").await;
    let from = last(world, &session, "prompt.promoted").await;
    stage(world, &session, &gone.message, from, &first_epoch()).await;
    (session, kept, gone)
}

async fn messages(world: &World, session: &SessionRef) -> Vec<MessageId> {
    let all =
        world.store.transcript(world.org, session.session.clone(), Messages::Newest, 100).await;
    all.expect("messages").messages.into_iter().map(|message| message.id).collect()
}

async fn is_staged(world: &World, session: &SessionRef) -> bool {
    let row = world.store.session(world.org, session.session.clone()).await.expect("a session");
    row.revert.is_some()
}

#[tokio::test]
async fn a_users_prompt_commits_what_is_staged_and_synthetic_input_waits() {
    let world = World::new().await;
    world.fence(1).await;
    let (session, kept, _) = with_staged(&world).await;
    assert!(is_staged(&world, &session).await);
    assert_eq!(messages(&world, &session).await.len(), 4, "it can still be brought back");
    for _ in 0..6 {
        let note = synthetic(&world);
        let held = world.try_admit(&session, &note).await.expect("admitted");
        assert_eq!((held.admission, held.prompt.wake), (Admission::First, false));
        let again = world.try_admit(&session, &note).await.expect("found");
        assert_eq!((again.admission, again.seq), (Admission::Retry, held.seq));
    }
    assert!(!world.head(&session).await.ready, "nothing that it holds wakes it");
    let known = world.kinds(&session).await.len();
    let prompt = world.prompt("otherwise");
    let admitted = world.try_admit(&session, &prompt).await.expect("admitted");
    assert_eq!(admitted.admission, Admission::First);
    let mut kinds = vec!["revert.committed"];
    kinds.extend(["input.cancelled"; 6]);
    kinds.push("prompt.admitted");
    assert_eq!(world.kinds(&session).await[known..], kinds);
    assert_eq!(admitted.seq.0, i64::try_from(known + kinds.len()).expect("small"));
    let head = world.head(&session).await;
    assert_eq!((head.pending, head.ready), (1, true));
    assert!(!is_staged(&world, &session).await);
    let left = messages(&world, &session).await;
    assert_eq!((left.len(), left.contains(&kept.message)), (2, true));
    let before = world.rows(&session).await;
    let again = world.try_admit(&session, &prompt).await.expect("found");
    assert_eq!((again.admission, again.seq), (Admission::Retry, admitted.seq));
    assert_eq!(world.rows(&session).await, before);
    world.assert_sound(false).await;
}

/// A prompt that is stored without a wake is a user's word too. Input that is no new prompt commits nothing.
#[tokio::test]
async fn only_a_new_prompt_commits() {
    let world = World::new().await;
    world.fence(1).await;
    let (session, kept, _) = with_staged(&world).await;
    let before = world.rows(&session).await;
    let again = world.try_admit(&session, &kept).await.expect("found");
    assert_eq!(again.admission, Admission::Retry);
    let other = PromptAdmitted { digest: "another".into(), ..kept };
    let answer = world.try_admit(&session, &other).await;
    assert!(matches!(answer, Err(StoreError::Conflict { .. })), "{answer:?}");
    assert_eq!(world.rows(&session).await, before);
    world.admit_only(&session, "stored").await;
    let kinds = world.kinds(&session).await;
    assert_eq!(kinds[kinds.len() - 2..], ["revert.committed", "prompt.admitted"]);
    assert!(!world.head(&session).await.ready);
    world.assert_sound(true).await;
}

#[tokio::test]
async fn it_is_committed_on_its_own_while_the_session_is_idle() {
    let world = World::new().await;
    world.fence(1).await;
    let (session, ..) = with_staged(&world).await;
    let idle = world.session().await;
    assert_eq!(commit(&world, &idle).await.expect("an answer"), InboxChange::Unchanged);
    let nobody = SessionRef { session: "ses_nobody".parse().expect("an id"), ..idle.clone() };
    assert!(matches!(commit(&world, &nobody).await, Err(StoreError::NotFound)));
    world.admit(&idle, "hello").await;
    assert!(is_busy(&commit(&world, &idle).await));

    for _ in 0..9 {
        world.try_admit(&session, &synthetic(&world)).await.expect("admitted");
    }
    let seq = Seq(world.head(&session).await.next_seq);
    let done = InboxChange::Done { seq, location: session.location.clone() };
    assert_eq!(commit(&world, &session).await.expect("an answer"), done);
    let head = world.head(&session).await;
    assert_eq!((head.pending, head.ready), (0, false));
    assert_eq!(messages(&world, &session).await.len(), 2);
    let before = world.rows(&session).await;
    assert_eq!(commit(&world, &session).await.expect("an answer"), InboxChange::Unchanged);
    assert_eq!(world.rows(&session).await, before);
    world.assert_sound(false).await;
}

#[tokio::test]
async fn a_revert_and_its_end_want_an_idle_session() {
    let world = World::new().await;
    world.fence(1).await;
    let (session, _, gone) = with_staged(&world).await;
    let revert = Control::Revert { message: gone.message.clone(), files: true };
    let ask = |control: Control| ControlAdmitted { control, ..world.compaction() };
    // Input that the staged Revert holds is not in the way of its end.
    world.try_admit(&session, &synthetic(&world)).await.expect("admitted");
    let end = ask(Control::Unrevert);
    world.try_control(&session, &end).await.expect("admitted");
    assert!(is_busy(&world.try_control(&session, &ask(revert.clone())).await), "it has work now");
    let again = world.try_control(&session, &end).await.expect("found");
    assert_eq!(again.admission, ControlAdmission::Retry);
    let events = [
        ControlDelivered { message: end.message, error: None }.into(),
        RevertCleared { error: None }.into(),
        ended(DrainOutcome::Completed),
    ];
    world.drain(&session, 1, &events, DrainEnd::Close).await;
    assert!(!is_staged(&world, &session).await);
    // The note sleeps until somebody wakes it; before it, nothing is reverted.
    assert!(!world.head(&session).await.ready);
    assert!(is_busy(&world.try_control(&session, &ask(revert.clone())).await));

    let busy = world.session().await;
    world.admit_only(&busy, "stored").await;
    assert!(is_busy(&world.try_control(&busy, &ask(revert)).await), "it would be promoted first");
    world.assert_sound(false).await;
}

/// A note about work that is gone twice over is in nobody's way, and goes with it.
pub(crate) async fn staged_again(world: &World) {
    world.fence(1).await;
    let (session, kept, gone) = with_staged(world).await;
    let first = last_promotion(world, &session).await;
    world.try_admit(&session, &synthetic(world)).await.expect("admitted");
    stage(world, &session, &kept.message, first, &first_epoch()).await;
    world.try_admit(&session, &synthetic(world)).await.expect("admitted");
    stage(world, &session, &gone.message, first, &first_epoch()).await;
    assert_eq!(world.head(&session).await.pending, 2);
    let known = world.kinds(&session).await.len();
    assert!(matches!(commit(world, &session).await, Ok(InboxChange::Done { .. })));
    let kinds = world.kinds(&session).await;
    assert_eq!(kinds[known..], ["revert.committed", "input.cancelled", "input.cancelled"]);
    assert_eq!(world.head(&session).await.pending, 0);
    world.assert_sound(true).await;
}

/// Input that was stored while nothing was staged, or while a Revert was that has ended, is not about the part that a
/// later one takes away.
pub(crate) async fn staged_anew(world: &World) {
    world.fence(1).await;
    let (session, _, gone) = with_staged(world).await;
    let first = last_promotion(world, &session).await;
    world.try_admit(&session, &synthetic(world)).await.expect("admitted");
    let end = ControlAdmitted { control: Control::Unrevert, ..world.compaction() };
    world.try_control(&session, &end).await.expect("admitted");
    let (message, error) = (end.message, None);
    let cleared = RevertCleared { error: None };
    // The Revert ends, and before anybody looks again it is staged once more.
    let events = [
        ControlDelivered { message, error }.into(),
        cleared.into(),
        staged(&gone.message, first, &first_epoch()),
        ended(DrainOutcome::Completed),
    ];
    world.drain(&session, 1, &events, DrainEnd::Close).await;
    let revert = Control::Revert { message: gone.message, files: true };
    let again = ControlAdmitted { control: revert, ..world.compaction() };
    assert!(is_busy(&world.try_control(&session, &again).await), "the note comes first");
    commit(world, &session).await.expect("committed");
    assert_eq!(world.head(&session).await.pending, 1, "it waits on");
    world.assert_sound(true).await;
}

async fn last_promotion(world: &World, session: &SessionRef) -> Seq {
    last(world, session, "prompt.promoted").await
}

#[tokio::test]
async fn nothing_wakes_what_a_staged_revert_holds() {
    let world = World::new().await;
    world.fence(1).await;
    let (session, ..) = with_staged(&world).await;
    let note = PromptAdmitted { delivery: Delivery::Queue, ..synthetic(&world) };
    world.try_admit(&session, &note).await.expect("admitted");
    let (org, id) = (world.org, || session.session.clone());
    let changed =
        world.store.change_delivery(org, id(), note.message.clone(), Delivery::Steer, world.tick());
    changed.await.expect("changed");
    let before = world.rows(&session).await;
    let woken = world.store.wake_session(org, id(), world.tick()).await.expect("an answer");
    assert_eq!(woken, InboxChange::Unchanged);
    let resumed = world.store.interrupt_and_resume(org, id(), None, world.tick()).await;
    let resumed = resumed.expect("an answer");
    assert_eq!((resumed.interrupt, resumed.wake), (None, None));
    assert_eq!(world.rows(&session).await, before);
    assert!(!world.head(&session).await.ready);
    world.assert_sound(true).await;
}

/// Back to before a Compaction, and to before anything.
#[tokio::test]
async fn the_epoch_that_comes_back_is_the_one_of_then() {
    let world = World::new().await;
    for (back, left) in [
        (RevertedTo { epoch: Some(1), snapshot: Some("then".into()) }, vec!["1 then"]),
        (RevertedTo { epoch: Some(2), snapshot: None }, vec!["1", "2"]),
        (RevertedTo::default(), vec![]),
    ] {
        let session = every_kind(&world).await;
        let first = last(&world, &session, "epoch.started").await; // what is told last
        let message = MessageId::mint(&mut world.mint());
        stage(&world, &session, &message, first, &back).await;
        commit(&world, &session).await.expect("committed");
        let epochs: Vec<String> = sqlx::query_scalar(
            "SELECT epoch || CASE snapshot WHEN 'then' THEN ' then' ELSE '' END FROM context_epoch
             WHERE incarnation = (SELECT incarnation FROM session_head WHERE id = $1) ORDER BY epoch",
        )
        .bind(session.session.as_str())
        .fetch_all(&world.root)
        .await
        .expect("epochs");
        assert_eq!(epochs, left);
        world.assert_sound(true).await;
    }
}

/// Prompts, a commit of its own, synthetic input and the drain that clears it, all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_all_that_end_a_staged_revert_one_does() {
    let world = Arc::new(World::new().await);
    world.fence(1).await;
    let mut ends = [0, 0];
    for _ in 0..15 {
        let (session, ..) = with_staged(&world).await;
        let known = world.kinds(&session).await.len();
        let mut calls = JoinSet::new();
        for n in 0..9 {
            let (world, session) = (world.clone(), session.clone());
            calls.spawn(async move {
                match n {
                    0 | 1 => match commit(&world, &session).await {
                        Ok(_) | Err(StoreError::Busy { .. }) => {}
                        Err(error) => panic!("{error:?}"),
                    },
                    2 => {
                        let end =
                            ControlAdmitted { control: Control::Unrevert, ..world.compaction() };
                        match world.try_control(&session, &end).await {
                            Ok(_) => clear(&world, &session, end.message).await,
                            Err(StoreError::Busy { .. }) => {}
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                    3..6 => {
                        world.try_admit(&session, &synthetic(&world)).await.expect("admitted");
                    }
                    _ => {
                        world.admit(&session, "otherwise").await;
                    }
                }
            });
        }
        while let Some(call) = calls.join_next().await {
            call.expect("no panic");
        }
        let kinds = world.kinds(&session).await;
        let count = |kind: &str| kinds[known..].iter().filter(|known| *known == kind).count();
        let (committed, cleared) = (count("revert.committed"), count("revert.cleared"));
        assert_eq!(committed + cleared, 1, "{kinds:?}");
        ends[0] += committed;
        ends[1] += cleared;
        assert!(!is_staged(&world, &session).await);
        assert_eq!(count("prompt.admitted"), 6, "none is lost");
    }
    assert!(ends[0] > 0, "{ends:?}");
    world.assert_sound(false).await;
}

/// A drain that brings back what was reverted, if nobody has committed it meanwhile.
async fn clear(world: &World, session: &SessionRef, asked: MessageId) {
    loop {
        // A change after the look refuses the write.
        let (write, _) = world.look(session, 1, Hold::Look).await;
        let staged = is_staged(world, session).await;
        let mut events = vec![ControlDelivered { message: asked.clone(), error: None }.into()];
        if staged {
            events.push(RevertCleared { error: None }.into());
        }
        events.push(ended(DrainOutcome::Completed));
        match world.try_write(write, &events, DrainEnd::Close).await.expect("an answer") {
            store::Written::Next(_) => return,
            store::Written::Stale | store::Written::Superseded => {}
            store::Written::Unstored => panic!("a component is not stored"),
            store::Written::Unanswered(_, error) => panic!("{error:?}"),
        }
    }
}

/// A prompt that comes after the Revert's end was asked for is for the session as it will be then.
#[tokio::test]
async fn a_prompt_does_not_commit_what_a_drain_is_about_to_bring_back() {
    let world = World::new().await;
    world.fence(1).await;
    let (session, _, gone) = with_staged(&world).await;
    let asked = control(&world, &session, Control::Unrevert).await;
    let next = world.admit(&session, "go on").await;
    let note = world.try_admit(&session, &synthetic(&world)).await.expect("admitted");
    assert!(!note.prompt.wake, "it waits as before");
    assert!(is_staged(&world, &session).await);
    let events = [
        ControlDelivered { message: asked, error: None }.into(),
        RevertCleared { error: None }.into(),
        promoted(&next),
        promoted(&note.prompt),
        ended(DrainOutcome::Completed),
    ];
    world.drain(&session, 1, &events, DrainEnd::Close).await;
    assert!(messages(&world, &session).await.contains(&gone.message), "it is back");
    world.assert_sound(true).await;
}

/// A drain commits as well, when a prompt came after the control and before it was acted on.
#[tokio::test]
async fn a_drain_commits_what_it_has_staged_when_a_prompt_waits() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    exchange(&world, &session, "kept").await;
    let gone = exchange(&world, &session, "gone").await;
    let from = last(&world, &session, "prompt.promoted").await;
    let asked = Control::Revert { message: gone.message.clone(), files: false };
    let asked = control(&world, &session, asked).await;
    let next = world.admit(&session, "otherwise").await;
    let committed =
        domain::RevertCommitted { message: gone.message.clone(), from, back: first_epoch() };
    let events = [
        ControlDelivered { message: asked, error: None }.into(),
        staged(&gone.message, from, &first_epoch()),
        committed.into(),
        promoted(&next),
        ended(DrainOutcome::Completed),
    ];
    world.drain(&session, 1, &events, DrainEnd::Close).await;
    assert!(!is_staged(&world, &session).await);
    let left = messages(&world, &session).await;
    assert_eq!(
        (left.len(), left.contains(&next.message), left.contains(&gone.message)),
        (3, true, false)
    );
    world.assert_sound(true).await;
}
