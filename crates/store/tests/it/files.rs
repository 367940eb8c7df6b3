//! A drain's events of files, Reverts and Moves, and a session that has one of each.

use domain::{
    CallId, Control, ControlAdmitted, ControlDelivered, DrainOutcome, EpochReason, EpochStarted,
    FencingToken, FileChange, FileStatus, LocationId, LocationRef, MessageId, PromptAdmitted,
    RevertCleared, RevertPaths, RevertStaged, RevertStaging, RevertedTo, Seq, SessionEvent,
    SessionMoved, SessionRef, SnapshotTree, TurnId, WorkspaceRestored, WorkspaceSnapshotted,
};
use store::{Admission, DrainEnd};

use crate::script::{TestTurn, ended, promoted};
use crate::world::World;

/// A tree by a letter.
pub(crate) fn tree(letter: char) -> SnapshotTree {
    SnapshotTree::try_from(letter.to_string().repeat(64)).expect("hex")
}

/// A Workspace Snapshot under token 1.
pub(crate) fn snapshotted(
    ordinal: i64,
    of: char,
    parent: Option<char>,
    turn: Option<&TurnId>,
) -> SessionEvent {
    let patch = Some("@@ -1 +1,2 @@\n-a\n+b\n+\u{1F980}\n".to_owned());
    let change = FileChange {
        path: "src/a.rs".into(),
        status: FileStatus::Modified,
        additions: 2,
        deletions: 1,
        patch,
    };
    WorkspaceSnapshotted {
        token: FencingToken(1),
        ordinal,
        tree: tree(of),
        parent: parent.map(tree),
        pack: (of != 'a').then(|| format!("o/x/snapshot/1-{ordinal}")),
        bytes: 100 * ordinal,
        turn: turn.cloned(),
        base: turn.is_none(),
        files: parent.map(|_| change).into_iter().collect(),
        more: 0,
        directories: Vec::new(),
        skipped: Vec::new(),
    }
    .into()
}

/// A Revert to before `message`, whose event has the number `from`, with one file.
pub(crate) fn staged(message: &MessageId, from: Seq, back: &RevertedTo) -> SessionEvent {
    RevertStaged {
        message: message.clone(),
        from,
        original: Some(tree('b')),
        paths: RevertPaths::Only(vec!["src/a.rs".into()]),
        files: Vec::new(),
        more: 0,
        left: Vec::new(),
        back: back.clone(),
    }
    .into()
}

/// Admits a control of an idle session.
pub(crate) async fn control(world: &World, session: &SessionRef, control: Control) -> MessageId {
    let asked = ControlAdmitted { control, ..world.compaction() };
    world.try_control(session, &asked).await.expect("admitted");
    asked.message
}

/// A Revert, asked for and staged. The session is idle at the end.
pub(crate) async fn stage(
    world: &World,
    session: &SessionRef,
    message: &MessageId,
    from: Seq,
    back: &RevertedTo,
) {
    let asked = Control::Revert { message: message.clone(), files: true };
    let asked = control(world, session, asked).await;
    let events = [
        ControlDelivered { message: asked, error: None }.into(),
        staged(message, from, back),
        ended(DrainOutcome::Completed),
    ];
    world.drain(session, 1, &events, DrainEnd::Close).await;
}

/// The number of the log's last event of a kind.
pub(crate) async fn last(world: &World, session: &SessionRef, kind: &str) -> Seq {
    let kinds = world.kinds(session).await;
    let at = kinds.iter().rposition(|known| known == kind).expect("one of this kind");
    Seq(i64::try_from(at).expect("small") + 1)
}

/// That the session is at `to` from now on.
pub(crate) fn moved(
    world: &World,
    from: &SessionRef,
    to: &LocationId,
    carry: bool,
) -> SessionEvent {
    SessionMoved {
        from: from.location.clone(),
        to: to.clone(),
        project: world.project.clone(),
        directory: "/workspace/else".into(),
        carry,
        tree: carry.then(|| tree('b')),
    }
    .into()
}

/// Files that are changed, put back, brought back and put back for good; then a Move with work in hand.
/// The session is idle at the end, at the Location that is returned, whose fence is 1.
pub(crate) async fn change_files(world: &World, session: &SessionRef) -> SessionRef {
    let mut mint = world.mint();
    let prompt = world.admit(session, "change a.rs").await;
    let turn = TestTurn::new(&mut mint, &prompt.message);
    let lost = vec![CallId::mint(&mut mint)];
    let (token, lost_files) = (FencingToken(1), Vec::new());
    let restored = WorkspaceRestored { token, tree: None, lost, lost_files };
    let message = MessageId::mint(&mut mint);
    let (rendered, snapshot) = ("It is late.".into(), "{\"core/date\":\"2026-11-24\"}".into());
    let mut events = vec![
        restored.into(),
        snapshotted(1, 'a', None, None),
        promoted(&prompt),
        domain::ContextUpdated { message, rendered, snapshot }.into(),
    ];
    events.extend(turn.start());
    let claim = world.drain(session, 1, &events, DrainEnd::Keep).await;
    let mut events = turn.reply(&mut mint).to_vec();
    events.push(snapshotted(2, 'b', Some('a'), Some(&turn.turn)));
    events.push(ended(DrainOutcome::Completed));
    world.resume(session, claim, &events, DrainEnd::Close).await.expect("the claim holds");

    let from = last(world, session, "prompt.promoted").await;
    let snapshot = Some("{\"core/date\":\"2026-11-23\"}".to_owned());
    let back = RevertedTo { epoch: Some(2), snapshot };
    let (boundary, files) = (prompt.message.clone(), true);
    let asked = control(world, session, Control::Revert { message: boundary.clone(), files }).await;
    let staging = RevertStaging {
        message: boundary.clone(),
        from,
        original: tree('b'),
        target: Some(tree('a')),
        paths: RevertPaths::Only(vec!["src/a.rs".into()]),
        undone: RevertPaths::default(),
        back: back.clone(),
    };
    let events = [ControlDelivered { message: asked, error: None }.into(), staging.into()];
    let claim = world.drain(session, 1, &events, DrainEnd::Keep).await;
    let events = [
        snapshotted(3, 'a', Some('b'), None),
        staged(&boundary, from, &back),
        ended(DrainOutcome::Completed),
    ];
    world.resume(session, claim, &events, DrainEnd::Close).await.expect("the claim holds");
    let asked = control(world, session, Control::Unrevert).await;
    let events = [
        ControlDelivered { message: asked, error: None }.into(),
        snapshotted(4, 'b', Some('a'), None),
        RevertCleared { error: None }.into(),
        ended(DrainOutcome::Completed),
    ];
    world.drain(session, 1, &events, DrainEnd::Close).await;

    stage(world, session, &boundary, from, &back).await;
    let held = PromptAdmitted { synthetic: Some("A note".into()), ..world.prompt("b.rs is new") };
    let held = world.try_admit(session, &held).await.expect("admitted");
    assert_eq!((held.admission, held.prompt.wake), (Admission::First, false));
    let next = world.admit(session, "change it otherwise").await;
    go_elsewhere(world, session, &next).await
}

/// A turn, and a Move after it with work in hand.
async fn go_elsewhere(world: &World, session: &SessionRef, prompt: &PromptAdmitted) -> SessionRef {
    let mut mint = world.mint();
    let to = world.another_location().await;
    let turn = TestTurn::new(&mut mint, &prompt.message);
    let mut events = vec![promoted(prompt)];
    events.extend(turn.start());
    let claim = world.drain(session, 1, &events, DrainEnd::Keep).await;
    let (project, location) = (world.project.clone(), to.clone());
    let directory = "/workspace/else".to_owned();
    let asked = Control::Move { project, location, directory, carry: true };
    let asked = control(world, session, asked).await;
    let mut events = turn.reply(&mut mint).to_vec();
    events.push(ControlDelivered { message: asked, error: None }.into());
    events.push(moved(world, session, &to, true));
    world.resume(session, claim, &events, DrainEnd::MovedOpen).await.expect("the claim holds");
    let there = SessionRef { location: to.clone(), ..session.clone() };
    let at = LocationRef { org: world.org, location: to };
    world.store.raise_fence(at, FencingToken(1)).await.expect("the first token there");
    let epoch = EpochStarted {
        epoch: 3,
        baseline: "You are elsewhere.\n".into(),
        snapshot: "{}".into(),
        reason: Some(EpochReason::Move),
    };
    let events = [epoch.into(), ended(DrainOutcome::Completed)];
    world.drain(&there, 1, &events, DrainEnd::Close).await;
    there
}
