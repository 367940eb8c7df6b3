use std::sync::Arc;

use domain::{DrainOutcome, SessionId, SessionRef, TurnUsage};
use store::{Creation, DrainEnd, MAX_CHILDREN, MAX_DEPTH, StoreError};
use tokio::task::JoinSet;

use crate::script::{TestTurn, USAGE, ended, promoted};
use crate::world::World;

fn id(world: &World) -> SessionId {
    SessionId::mint(&mut world.mint())
}

async fn children(world: &World, session: &SessionRef) -> Vec<SessionId> {
    let rows = world.store.children(world.org, session.session.clone()).await.expect("children");
    rows.into_iter().map(|row| row.at.session).collect()
}

#[tokio::test]
async fn children_are_listed_newest_first_and_name_their_parent() {
    let world = World::new().await;
    let parent = world.session().await;
    assert_eq!(children(&world, &parent).await, []);
    let (first, second) = (world.child(&parent).await, world.child(&parent).await);
    world.child(&first).await;
    assert_eq!(children(&world, &parent).await, [second.session.clone(), first.session.clone()]);
    let row = world.store.session(world.org, first.session.clone()).await.expect("a session");
    assert_eq!(row.parent.as_ref(), Some(&parent.session));
    let row = world.store.session(world.org, parent.session.clone()).await.expect("a session");
    assert_eq!(row.parent, None);
    world.assert_sound(true).await;
}

#[tokio::test]
async fn making_a_child_again_finds_it_and_another_parent_is_a_conflict() {
    let world = World::new().await;
    let (parent, other) = (world.session().await, world.session().await);
    let child = world.child(&parent).await;
    let again = world.create(child.session.clone(), &child.location, Some(&parent)).await;
    assert_eq!(again, (child.clone(), Creation::Exists));
    for parent in [None, Some(other.session.clone())] {
        let created = domain::SessionCreated {
            by: None,
            project: world.project.clone(),
            location: world.location.clone(),
            directory: "/workspace".into(),
            title: "Another".into(),
            agent: "build".into(),
            model: None,
            parent,
            named: false,
            rules: Vec::new(),
            metadata: None,
        };
        let new = store::NewSession { id: child.session.clone(), created, now: world.tick() };
        let answer = world.store.create_session(world.org, new).await;
        assert!(matches!(answer, Err(StoreError::Conflict { .. })), "{answer:?}");
    }
}

#[tokio::test]
async fn a_tree_has_so_many_generations_and_a_session_so_many_children() {
    let world = World::new().await;
    let root = world.session().await;
    let mut last = root.clone();
    for _ in 0..MAX_DEPTH {
        last = world.child(&last).await;
    }
    let (_, deeper) = world.create(id(&world), &world.location, Some(&last)).await;
    assert_eq!(deeper, Creation::TooDeep);
    for _ in 1..MAX_CHILDREN {
        world.child(&root).await;
    }
    let (_, more) = world.create(id(&world), &world.location, Some(&root)).await;
    assert_eq!(more, Creation::TooMany);
    let nobody = SessionRef { session: id(&world), ..root.clone() };
    let (orphan, made) = world.create(id(&world), &world.location, Some(&nobody)).await;
    assert_eq!(made, Creation::Orphan);
    assert_eq!(world.rows(&orphan).await, Vec::<String>::new());
    assert_eq!(children(&world, &root).await.len(), usize::try_from(MAX_CHILDREN).expect("few"));
}

#[tokio::test]
async fn deleting_a_session_deletes_all_below_it_and_fences_their_drains() {
    let world = World::new().await;
    world.fence(1).await;
    let (root, kept) = (world.session().await, world.session().await);
    let child = world.child(&root).await;
    let grandchild = world.child(&child).await;
    world.admit(&grandchild, "hello").await;
    let claim = world.drain(&grandchild, 1, &[], DrainEnd::Keep).await;
    let other = world.child(&kept).await;
    world.store.delete_session(world.org, child.session.clone()).await.expect("deleted");
    for session in [&child, &grandchild] {
        assert_eq!(world.rows(session).await, Vec::<String>::new());
    }
    let answer = world.resume(&grandchild, claim, &[], DrainEnd::Keep).await;
    assert!(crate::world::is_fenced(&answer), "{answer:?}");
    assert_eq!(children(&world, &root).await, []);
    assert_eq!(children(&world, &kept).await, [other.session]);
    world.assert_sound(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_made_while_its_parent_is_deleted_goes_with_it_or_is_not_made() {
    let world = Arc::new(World::new().await);
    let mut outcomes = [0, 0];
    for round in 0..40 {
        let root = world.session().await;
        let parent = world.child(&root).await;
        let mut both = JoinSet::new();
        both.spawn({
            let (world, root) = (world.clone(), root.clone());
            async move {
                for _ in 0..(round % 4) * 15 {
                    tokio::task::yield_now().await;
                }
                world.store.delete_session(world.org, root.session).await.expect("deleted");
                None
            }
        });
        both.spawn({
            let (world, parent) = (world.clone(), parent.clone());
            async move { Some(world.create(id(&world), &parent.location, Some(&parent)).await) }
        });
        let (child, made) =
            both.join_all().await.into_iter().flatten().next().expect("one was to be made");
        assert!(matches!(made, Creation::Created | Creation::Orphan), "{made:?}");
        outcomes[usize::from(made == Creation::Created)] += 1;
        for session in [&root, &parent, &child] {
            assert_eq!(world.rows(session).await, Vec::<String>::new(), "{made:?}");
        }
    }
    assert!(outcomes.iter().all(|count| *count > 0), "both orders must happen: {outcomes:?}");
    world.assert_sound(true).await;
}

#[tokio::test]
async fn a_tree_has_used_what_its_sessions_have() {
    let world = World::new().await;
    world.fence(1).await;
    let root = world.session().await;
    let child = world.child(&root).await;
    let grandchild = world.child(&child).await;
    for session in [&root, &grandchild] {
        let prompt = world.admit(session, "hello").await;
        let mut mint = world.mint();
        let turn = TestTurn::new(&mut mint, &prompt.message);
        let mut events = vec![promoted(&prompt)];
        events.extend(turn.start());
        events.extend(turn.reply(&mut mint));
        events.push(ended(DrainOutcome::Completed));
        world.drain(session, 1, &events, DrainEnd::Close).await;
    }
    let used = async |session: &SessionRef| {
        let id = session.session.clone();
        let used = world.store.tree_usage(world.org, id).await.expect("usage");
        (used.session, used.tree, used.sessions)
    };
    let twice = TurnUsage {
        input: 2 * USAGE.input,
        output: 2 * USAGE.output,
        reasoning: 2 * USAGE.reasoning,
        cache_read: 2 * USAGE.cache_read,
        cache_write: 2 * USAGE.cache_write,
        cost: 2 * USAGE.cost,
    };
    assert_eq!(used(&root).await, (USAGE, twice, 3));
    assert_eq!(used(&child).await, (TurnUsage::default(), USAGE, 2));
    assert_eq!(used(&grandchild).await, (USAGE, USAGE, 1));
    world.assert_sound(true).await;
}
