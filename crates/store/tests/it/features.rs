//! While a build of the version before may run, nothing is written that it cannot read.

use domain::{
    Control, ControlAdmitted, Delivery, DrainOutcome, EntrySet, Feature, FeatureLevel,
    SessionEvent, SessionRenamed, TitledBy,
};
use store::{DrainEnd, Hold, Store, StoreError, StoreOptions};

use crate::files::snapshotted;
use crate::forks::new_fork;
use crate::script::{TestTurn, ended, promoted};
use crate::world::World;

fn is_refused<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(
        answer,
        Err(StoreError::Feature { feature: Feature::Controls, level: FeatureLevel::FIRST })
    )
}

pub(crate) async fn at_level(level: i32) -> World {
    let mut world = World::new().await;
    sqlx::query("UPDATE cluster SET feature_level = $1")
        .bind(level)
        .execute(&world.root)
        .await
        .expect("a level");
    // A process that starts now.
    world.store = Store::connect(&StoreOptions::new(world.database.store_url())).expect("a URL");
    world
}

#[tokio::test]
async fn a_level_below_ours_admits_prompts_and_refuses_what_is_new() {
    let world = at_level(1).await;
    assert_eq!(world.store.feature_level().await.expect("a level"), FeatureLevel::FIRST);
    world.fence(1).await;
    let session = world.session().await;
    let prompt = world.admit(&session, "hello").await;
    let before = world.rows(&session).await;
    let (org, id, now) = (world.org, || session.session.clone(), || world.tick());
    let store = &world.store;
    let control = |control| ControlAdmitted { control, ..world.compaction() };
    let entry = EntrySet { key: "plan".into(), value: "1".into() };
    let renamed = SessionRenamed { title: "Files".into(), by: TitledBy::User };
    assert!(is_refused(&world.try_control(&session, &control(Control::Compaction)).await));
    assert!(is_refused(&world.try_control(&session, &control(Control::Unrevert)).await));
    assert!(is_refused(&store.set_entry(org, id(), entry, now()).await));
    assert!(is_refused(&store.remove_entry(org, id(), "plan".into(), now()).await));
    assert!(is_refused(&store.edit_session(org, id(), renamed.clone().into(), now()).await));
    let message = || prompt.message.clone();
    assert!(is_refused(&store.cancel_input(org, id(), message(), now()).await));
    let changed = store.change_delivery(org, id(), message(), Delivery::Queue, now()).await;
    assert!(is_refused(&changed));
    assert!(is_refused(&store.wake_session(org, id(), now()).await));
    assert!(is_refused(&store.interrupt_and_resume(org, id(), None, now()).await));
    assert!(is_refused(&store.commit_revert(org, id(), now()).await));
    assert!(is_refused(&store.fork(org, new_fork(&world, &session)).await));
    let snapshot = snapshotted(1, 'a', None, None);
    for event in [snapshot, SessionEvent::from(renamed)] {
        let (write, _) = world.look(&session, 1, Hold::Look).await;
        assert!(is_refused(&world.try_write(write, &[event], DrainEnd::Keep).await.map(drop)));
    }
    assert_eq!(world.rows(&session).await, before);

    let turn = TestTurn::new(&mut world.mint(), &prompt.message);
    let mut events = vec![promoted(&prompt)];
    events.extend(turn.start());
    let claim = world.drain(&session, 1, &events, DrainEnd::Keep).await;
    store.interrupt(org, id(), None, now()).await.expect("applied");
    let mut events = turn.stop(domain::TurnOutcome::Interrupted).to_vec();
    events.push(ended(DrainOutcome::Interrupted));
    world.resume(&session, claim, &events, DrainEnd::Close).await.expect("the claim holds");
    world.assert_sound(true).await;
}

#[tokio::test]
async fn the_level_is_raised_to_what_this_build_writes_and_never_lowered() {
    let world = at_level(1).await;
    let migrate = world.database.url("oc_migrate");
    let before = Store::read_cluster(&migrate).await.expect("a row");
    assert_eq!(before.feature_level, FeatureLevel::FIRST);
    for _ in 0..2 {
        assert_eq!(
            Store::raise_feature_level(&migrate).await.expect("raised"),
            FeatureLevel::OF_THIS_BUILD
        );
    }
    let after = Store::read_cluster(&migrate).await.expect("a row");
    assert_eq!(after, store::ClusterRow { feature_level: FeatureLevel::OF_THIS_BUILD, ..before });
    sqlx::query("UPDATE cluster SET feature_level = $1")
        .bind(FeatureLevel::OF_THIS_BUILD.0 + 1)
        .execute(&world.root)
        .await
        .expect("a newer build's");
    let newer = FeatureLevel(FeatureLevel::OF_THIS_BUILD.0 + 1);
    assert_eq!(Store::raise_feature_level(&migrate).await.expect("an answer"), newer);
    for role in ["oc_app", "oc_sched"] {
        let raised = Store::raise_feature_level(&world.database.url(role)).await;
        assert!(raised.is_err(), "{role} serves, and ends no upgrade");
    }
}

#[tokio::test]
async fn a_level_that_was_raised_is_known_to_who_reads_it_next() {
    let mut world = at_level(1).await;
    let session = world.session().await;
    assert!(is_refused(&world.try_control(&session, &world.compaction()).await));
    sqlx::query("UPDATE cluster SET feature_level = $1")
        .bind(FeatureLevel::OF_THIS_BUILD.0)
        .execute(&world.root)
        .await
        .expect("a level");
    // Whoever has read it asks again in a minute.
    assert!(is_refused(&world.try_control(&session, &world.compaction()).await));
    let store = Store::connect(&StoreOptions::new(world.database.store_url())).expect("a URL");
    world.store = store;
    world.try_control(&session, &world.compaction()).await.expect("admitted");
}
