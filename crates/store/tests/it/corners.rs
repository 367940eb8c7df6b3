//! Corners that sequences of operations hardly ever reach, or only after long: each with the one thing that must
//! hold in it, for every statement that may decide it. `mutants` proves of each that it fails where it should.

use domain::{
    Control, DrainOutcome, FencingToken, MessageId, NoticeKind, NoticeRecorded, PromptAdmitted,
    RevertedTo, Seq,
};
use store::{DrainEnd, Hold, InboxChange, StoreError};

use crate::deletion::what_is_not_there_is_not_deleted;
use crate::files::{control, last, moved, stage};
use crate::incarnation::{an_old_drain_is_fenced, an_old_look_is_stale};
use crate::reverts::{staged_again, staged_anew};
use crate::script::{TestTurn, ended, promoted};
use crate::went_back::a_log_that_grew_back;
use crate::world::{World, name};

/// With company or without a lock, and alone under it: two statements that must decide the same.
const HOLDS: [Hold; 2] = [Hold::Look, Hold::Lock];

#[derive(Debug, Clone, Copy)]
pub(crate) enum Corner {
    MadeAgain,
    Takeover,
    StoredOnly,
    ServedWake,
    LowerToken,
    WaitingPrompt,
    IdOfAReply,
    MoveWithWork,
    StagedAgain,
    StagedAnew,
    WentBack,
    NotThere,
}

impl Corner {
    /// Panics when it is not as it must be.
    pub(crate) async fn holds(self, world: &World) {
        match self {
            Self::MadeAgain => made_again(world).await,
            Self::Takeover => takeover(world).await,
            Self::StoredOnly => stored_only(world).await,
            Self::ServedWake => served_wake(world).await,
            Self::LowerToken => lower_token(world).await,
            Self::WaitingPrompt => waiting_prompt(world).await,
            Self::IdOfAReply => id_of_a_reply(world).await,
            Self::MoveWithWork => move_with_work(world).await,
            Self::StagedAgain => staged_again(world).await,
            Self::StagedAnew => staged_anew(world).await,
            Self::WentBack => a_log_that_grew_back(world).await,
            Self::NotThere => what_is_not_there_is_not_deleted(world).await,
        }
    }
}

/// Neither a look at the session before nor a drain of it has anything to do with this one.
async fn made_again(world: &World) {
    world.fence(1).await;
    an_old_look_is_stale(world).await;
    an_old_drain_is_fenced(world).await;
}

async fn takeover(world: &World) {
    world.fence(1).await;
    let session = world.session().await;
    let prompt = world.admit(&session, "hello").await;
    world.drain(&session, 1, &[promoted(&prompt)], DrainEnd::Keep).await;
    for (recoveries, hold) in (1..).zip(HOLDS) {
        let token = 1 + i64::from(recoveries);
        world.fence(token).await;
        let (write, _) = world.look(&session, token, hold).await;
        let (message, kind) = (MessageId::mint(&mut world.mint()), NoticeKind::Recovery);
        let notice = NoticeRecorded { message, kind, text: "A worker died.".into() };
        world.write(write, &[notice.into()], DrainEnd::Keep).await.expect("ours");
        assert_eq!(world.head(&session).await.recoveries, recoveries);
    }
}

async fn stored_only(world: &World) {
    world.fence(1).await;
    for hold in HOLDS {
        let session = world.session().await;
        let wakes = world.admit(&session, "wakes").await;
        world.admit_only(&session, "stored").await;
        let (write, _) = world.look(&session, 1, hold).await;
        let end = [promoted(&wakes), ended(DrainOutcome::Failed)];
        world.write(write, &end, DrainEnd::Close).await.expect("ours");
        let head = world.head(&session).await;
        assert_eq!((head.pending, head.ready, head.parked_seq), (1, false, head.wake_seq));
    }
}

async fn served_wake(world: &World) {
    world.fence(1).await;
    for hold in HOLDS {
        let session = world.session().await;
        let wakes = world.admit(&session, "wakes").await;
        let (write, _) = world.look(&session, 1, hold).await;
        let end = [promoted(&wakes), ended(DrainOutcome::Completed)];
        world.write(write, &end, DrainEnd::Close).await.expect("ours");
        world.admit_only(&session, "stored").await;
        let head = world.head(&session).await;
        assert_eq!((head.pending, head.ready), (1, false));
    }
}

/// Before it writes anything: it would read a whole log and ask its files first.
async fn lower_token(world: &World) {
    world.fence(2).await;
    let session = world.session().await;
    world.admit(&session, "hello").await;
    for hold in HOLDS {
        let (at, token) = (session.clone(), FencingToken(1));
        let started = world.store.start_drain(at, token, store::KnownLog::NOTHING, hold).await;
        assert_eq!(name(&started), "superseded", "{hold:?}");
    }
}

/// A prompt that came while a Revert was about to be undone, and was interrupted with that: whoever commits the
/// Revert then takes away what the Revert holds, which is none of what users have asked for.
async fn waiting_prompt(world: &World) {
    world.fence(1).await;
    let session = world.session().await;
    let first = world.admit(&session, "hello").await;
    let end = [promoted(&first), ended(DrainOutcome::Completed)];
    world.drain(&session, 1, &end, DrainEnd::Close).await;
    let from = last(world, &session, "prompt.promoted").await;
    stage(world, &session, &first.message, from, &RevertedTo::default()).await;
    let undo = control(world, &session, Control::Unrevert).await;
    let next = world.admit(&session, "go on").await;
    let stored = world.admit_only(&session, "for later").await;
    let note = PromptAdmitted { synthetic: Some("CI".into()), ..world.prompt("CI is red") };
    world.try_admit(&session, &note).await.expect("admitted");
    let id = || session.session.clone();
    world.store.interrupt(world.org, id(), None, world.tick()).await.expect("applied");
    let done = world.store.commit_revert(world.org, id(), world.tick()).await;
    assert!(matches!(done, Ok(InboxChange::Done { .. })), "{done:?}");
    let waits = world.store.inbox(world.org, id(), Seq(0), 10).await.expect("an inbox").items;
    let waits: Vec<MessageId> = waits.into_iter().map(|input| input.id).collect();
    assert_eq!(waits, [undo, next.message, stored.message]);
    let kinds = world.kinds(&session).await;
    assert_eq!(kinds[kinds.len() - 2..], ["revert.committed", "input.cancelled"]);
    assert_eq!(world.head(&session).await.pending, 3);
}

/// Its row would stand in the way of the prompt's promotion, for good.
async fn id_of_a_reply(world: &World) {
    world.fence(1).await;
    let session = world.session().await;
    let first = world.admit(&session, "hello").await;
    let turn = TestTurn::new(&mut world.mint(), &first.message);
    let mut events = vec![promoted(&first)];
    events.extend(turn.start());
    world.drain(&session, 1, &events, DrainEnd::Keep).await;
    let before = world.rows(&session).await;
    let prompt = PromptAdmitted { message: turn.message.clone(), ..world.prompt("go on") };
    let answer = world.try_admit(&session, &prompt).await;
    assert!(matches!(answer, Err(StoreError::Conflict { .. })), "{answer:?}");
    assert_eq!(world.rows(&session).await, before);
}

/// It is taken up there, which is no recovery.
async fn move_with_work(world: &World) {
    world.fence(1).await;
    let session = world.session().await;
    let prompt = world.admit(&session, "hello").await;
    let claim = world.drain(&session, 1, &[promoted(&prompt)], DrainEnd::Keep).await;
    let to = world.another_location().await;
    let events = [moved(world, &session, &to, false)];
    world.resume(&session, claim, &events, DrainEnd::MovedOpen).await.expect("ours");
    let head = world.head(&session).await;
    assert_eq!((head.open, head.handed_over, head.recoveries), (true, true, 0));
}

async fn in_a_world_of_its_own(corner: Corner) {
    let world = World::new().await;
    corner.holds(&world).await;
    world.assert_sound(false).await;
}

#[tokio::test]
async fn a_session_that_was_made_again_is_another_one() {
    in_a_world_of_its_own(Corner::MadeAgain).await;
}

#[tokio::test]
async fn each_takeover_of_open_work_counts_however_its_head_was_seen() {
    in_a_world_of_its_own(Corner::Takeover).await;
}

#[tokio::test]
async fn a_drain_that_closes_leaves_asleep_what_was_only_stored() {
    in_a_world_of_its_own(Corner::StoredOnly).await;
}

#[tokio::test]
async fn a_wake_that_was_served_starts_nothing_for_what_is_stored_later() {
    in_a_world_of_its_own(Corner::ServedWake).await;
}

#[tokio::test]
async fn a_lower_token_is_told_so_when_it_looks() {
    in_a_world_of_its_own(Corner::LowerToken).await;
}

#[tokio::test]
async fn a_prompt_that_waits_outlives_the_commit_of_a_staged_revert() {
    in_a_world_of_its_own(Corner::WaitingPrompt).await;
}

#[tokio::test]
async fn a_prompt_under_the_id_of_a_reply_is_refused() {
    in_a_world_of_its_own(Corner::IdOfAReply).await;
}

#[tokio::test]
async fn a_session_that_moves_with_work_is_handed_over() {
    in_a_world_of_its_own(Corner::MoveWithWork).await;
}

#[tokio::test]
async fn what_a_revert_holds_is_held_when_it_is_staged_at_another_message() {
    in_a_world_of_its_own(Corner::StagedAgain).await;
}

#[tokio::test]
async fn what_waits_from_before_a_revert_is_not_held() {
    in_a_world_of_its_own(Corner::StagedAnew).await;
}
