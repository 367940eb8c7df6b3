//! Rows of a Location's files, and of the changes that sessions made in them.

use domain::{DrainOutcome, FencingToken, FileChange, LocationRef, Seq};
use store::{CountedChange, DrainEnd, PackRow, Seed, StoreError};

use crate::files::{snapshotted, tree};
use crate::script::{TestTurn, ended, every_kind, promoted};
use crate::world::World;

async fn packs(world: &World) -> Vec<PackRow> {
    world.store.workspace_packs(world.at()).await.expect("a list")
}

#[tokio::test]
async fn packs_are_listed_in_the_order_of_their_capture_and_outlive_sessions() {
    let world = World::new().await;
    assert_eq!(packs(&world).await, []);
    let session = every_kind(&world).await;
    let listed = packs(&world).await;
    let known: Vec<_> = listed
        .iter()
        .map(|row| (row.token, row.ordinal, row.tree.clone(), row.parent.clone(), row.bytes))
        .collect();
    let row = |ordinal, of, parent: Option<char>| {
        (FencingToken(1), ordinal, tree(of), parent.map(tree), 100 * ordinal)
    };
    let rows =
        [row(1, 'a', None), row(2, 'b', Some('a')), row(3, 'a', Some('b')), row(4, 'b', Some('a'))];
    assert_eq!(known, rows);
    assert_eq!(listed[0].pack, None);
    assert_eq!(listed[1].pack.as_deref(), Some("o/x/snapshot/1-2"));

    // A later token comes after, whichever session's drain took it; a rebuild and a deletion change nothing.
    world.fence(2).await;
    let other = world.session().await;
    world.admit(&other, "hello").await;
    let late = domain::WorkspaceSnapshotted {
        token: FencingToken(2),
        ordinal: 1,
        tree: tree('c'),
        parent: Some(tree('b')),
        pack: Some("o/x/snapshot/2-1".into()),
        bytes: 9,
        turn: None,
        base: true,
        files: Vec::new(),
        more: 0,
        directories: Vec::new(),
        skipped: Vec::new(),
    };
    world.drain(&other, 2, &[late.into()], DrainEnd::HandOver).await;
    let all = packs(&world).await;
    assert_eq!(all[..4], listed);
    assert_eq!(all[4].tree, tree('c'));
    let id = session.session.clone();
    assert!(world.store.rebuild(world.org, id.clone(), false).await.expect("a rebuild").is_exact());
    assert_eq!(packs(&world).await, all);
    world.store.delete_session(world.org, id).await.expect("deleted");
    assert_eq!(packs(&world).await, all);
    let moved =
        world.store.workspace_packs(LocationRef { location: session.location, ..world.at() });
    assert_eq!(moved.await.expect("a list"), [], "none was taken where the session went");
}

#[tokio::test]
async fn changes_are_found_by_the_prompt_and_by_the_answer_that_they_belong_to() {
    let world = World::new().await;
    world.fence(1).await;
    let session = world.session().await;
    let mut messages = Vec::new();
    let letters = ['a', 'b', 'c'];
    for (n, before) in letters.iter().enumerate() {
        let prompt = world.admit(&session, "change it").await;
        let turn = TestTurn::new(&mut world.mint(), &prompt.message);
        let mut events = vec![promoted(&prompt)];
        if n == 0 {
            events.insert(0, snapshotted(1, 'a', None, None));
        }
        events.extend(turn.start());
        let claim = world.drain(&session, 1, &events, DrainEnd::Keep).await;
        let mut events = turn.reply(&mut world.mint()).to_vec();
        let (ordinal, of) = (i64::try_from(n).expect("small") + 2, ['b', 'c', 'd'][n]);
        events.push(snapshotted(ordinal, of, Some(*before), Some(&turn.turn)));
        events.push(ended(DrainOutcome::Completed));
        world.resume(&session, claim, &events, DrainEnd::Close).await.expect("the claim holds");
        messages.push((prompt.message, turn.message, turn.turn));
    }
    let id = || session.session.clone();
    let changes = async |message| {
        let page = world.store.changes(world.org, id(), message, Seq(0), 100).await?;
        assert!(!page.more);
        Ok::<_, StoreError>(page.items)
    };
    let all = changes(None).await.expect("changes");
    let trees: Vec<_> = all.iter().map(|row| row.tree.clone()).collect();
    assert_eq!(trees, ['a', 'b', 'c', 'd'].map(tree));
    assert!(all[0].base && all[0].files.is_empty() && all[0].turn.is_none());
    let file = &all[1].files[0];
    assert_eq!((file.path.as_str(), file.additions, file.deletions), ("src/a.rs", 2, 1));
    assert!(file.patch.as_ref().is_some_and(|patch| patch.ends_with("+\u{1F980}\n")));
    for (n, (prompt, answer, turn)) in messages.into_iter().enumerate() {
        for message in [prompt, answer] {
            let found = changes(Some(message)).await.expect("changes");
            assert_eq!(found, [all[n + 1].clone()]);
            assert_eq!(found[0].turn, Some(turn.clone()));
        }
    }
    // Counted, they are the same but for their patches and the first snapshot.
    let idle = world.session().await;
    let nobody = "ses_nobody".parse().expect("an id");
    let counted = world.store.counted_changes(world.org, vec![nobody, idle.session, id()]).await;
    let counted = counted.expect("changes");
    let expected = all[1..].iter().map(|row| CountedChange {
        session: id(),
        seq: row.seq,
        files: row.files.iter().cloned().map(|file| FileChange { patch: None, ..file }).collect(),
        more: row.more,
    });
    assert_eq!(counted, expected.collect::<Vec<_>>());
    let others = domain::OrgId::random();
    assert_eq!(world.store.counted_changes(others, vec![id()]).await.expect("none"), []);
    let nobody = domain::MessageId::mint(&mut world.mint());
    assert_eq!(changes(Some(nobody)).await.expect("none"), []);
    let nobody = "ses_nobody".parse().expect("an id");
    let nowhere = world.store.changes(world.org, nobody, None, Seq(0), 100).await;
    assert!(matches!(nowhere, Err(StoreError::NotFound)), "{nowhere:?}");
    world.assert_sound(true).await;
}

#[tokio::test]
async fn a_location_begins_with_one_seed_and_only_without_files_of_its_own() {
    let world = World::new().await;
    let location = world.another_location().await;
    let fresh = LocationRef { location: location.clone(), ..world.at() };
    let seed = Seed { location: world.location.clone(), tree: tree('a') };
    for _ in 0..2 {
        world.store.seed_location(fresh.clone(), seed.clone()).await.expect("seeded");
    }
    let row = world.store.location(world.org, location).await.expect("a Location");
    assert_eq!(row.seed, Some(seed.clone()));
    let other = Seed { tree: tree('b'), ..seed.clone() };
    let answer = world.store.seed_location(fresh, other).await;
    assert!(matches!(answer, Err(StoreError::Conflict { .. })), "{answer:?}");
    every_kind(&world).await;
    let answer = world.store.seed_location(world.at(), seed.clone()).await;
    assert!(matches!(answer, Err(StoreError::Conflict { .. })), "{answer:?}");
    let nowhere = LocationRef { location: "loc_nowhere".parse().expect("an id"), ..world.at() };
    let answer = world.store.seed_location(nowhere, seed).await;
    assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
}
