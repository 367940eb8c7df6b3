use domain::{EntrySet, Seq, SessionId, SessionRef, SessionRenamed, TitledBy};
use store::{EntryChange, MAX_ENTRIES, StoreError};

use crate::world::{World, organisation};

async fn set(world: &World, session: &SessionRef, key: &str, value: &str) -> EntryChange {
    let entry = EntrySet { key: key.into(), value: value.into() };
    let id = session.session.clone();
    world.store.set_entry(world.org, id, entry, world.tick()).await.expect("an answer")
}

async fn remove(world: &World, session: &SessionRef, key: &str) -> EntryChange {
    let id = session.session.clone();
    world.store.remove_entry(world.org, id, key.into(), world.tick()).await.expect("an answer")
}

async fn entries(world: &World, session: &SessionRef) -> Vec<(String, String)> {
    world.store.entries(world.org, session.session.clone()).await.expect("entries")
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

#[tokio::test]
async fn entries_keep_the_clients_bytes_and_wake_nobody() {
    let world = World::new().await;
    let session = world.session().await;
    assert_eq!(entries(&world, &session).await, []);
    assert_eq!(set(&world, &session, "b", "{\"z\": 1.0,\"a\":2}").await, EntryChange::Done(Seq(2)));
    assert_eq!(set(&world, &session, "a", "null").await, EntryChange::Done(Seq(3)));
    let before = world.rows(&session).await;
    assert_eq!(set(&world, &session, "a", "null").await, EntryChange::Unchanged);
    assert_eq!(remove(&world, &session, "c").await, EntryChange::Unchanged);
    assert_eq!(world.rows(&session).await, before);
    let both = [pair("a", "null"), pair("b", "{\"z\": 1.0,\"a\":2}")];
    assert_eq!(entries(&world, &session).await, both);
    assert_eq!(remove(&world, &session, "b").await, EntryChange::Done(Seq(4)));
    assert_eq!(entries(&world, &session).await, [pair("a", "null")]);
    let head = world.head(&session).await;
    assert_eq!((head.next_seq, head.wake_seq, head.ready), (5, 0, false));
    world.assert_sound(true).await;
}

#[tokio::test]
async fn a_session_has_so_many_entries_and_those_may_still_change() {
    let world = World::new().await;
    let session = world.session().await;
    for n in 0..MAX_ENTRIES {
        assert!(matches!(set(&world, &session, &format!("k{n}"), "1").await, EntryChange::Done(_)));
    }
    let before = world.rows(&session).await;
    assert_eq!(set(&world, &session, "one more", "1").await, EntryChange::Full);
    assert_eq!(world.rows(&session).await, before);
    assert!(matches!(set(&world, &session, "k0", "2").await, EntryChange::Done(_)));
    remove(&world, &session, "k1").await;
    assert!(matches!(set(&world, &session, "one more", "1").await, EntryChange::Done(_)));
    world.assert_sound(true).await;
}

#[tokio::test]
async fn what_is_anothers_or_not_there_is_not_found() {
    let world = World::new().await;
    let session = world.session().await;
    let (stranger, ..) = organisation(&world.store).await;
    let nobody: SessionId = "ses_nobody".parse().expect("an id");
    let store = &world.store;
    for (org, id) in [(stranger, session.session.clone()), (world.org, nobody)] {
        let entry = EntrySet { key: "k".into(), value: "1".into() };
        let renamed = SessionRenamed { title: "Mine".into(), by: TitledBy::User };
        let now = world.tick();
        let input = world.prompt("x").message;
        let to = domain::Delivery::Steer;
        for answer in [
            store.entries(org, id.clone()).await.map(drop),
            store.set_entry(org, id.clone(), entry, now).await.map(drop),
            store.remove_entry(org, id.clone(), "k".into(), now).await.map(drop),
            store.edit_session(org, id.clone(), renamed.into(), now).await.map(drop),
            store.children(org, id.clone()).await.map(drop),
            store.tree_usage(org, id.clone()).await.map(drop),
            store.inbox(org, id.clone(), Seq(0), 1).await.map(drop),
            store.cancel_input(org, id.clone(), input.clone(), now).await.map(drop),
            store.change_delivery(org, id.clone(), input, to, now).await.map(drop),
            store.wake_session(org, id.clone(), now).await.map(drop),
            store.delete_session(org, id.clone()).await,
        ] {
            assert!(matches!(answer, Err(StoreError::NotFound)), "{answer:?}");
        }
    }
    assert_eq!(world.kinds(&session).await, ["session.created"]);
}

#[tokio::test]
async fn a_rename_is_the_sessions_title_until_the_next() {
    let world = World::new().await;
    let session = world.session().await;
    for (title, seq) in [("One", 2), ("Two", 3)] {
        let renamed = SessionRenamed { title: title.into(), by: TitledBy::User };
        let (id, now) = (session.session.clone(), world.tick());
        let at = world.store.edit_session(world.org, id.clone(), renamed.into(), now).await;
        assert_eq!(at.expect("renamed"), Seq(seq));
        let row = world.store.session(world.org, id).await.expect("a session");
        assert_eq!((row.title.as_str(), row.updated_ms, row.busy), (title, now, false));
    }
    world.assert_sound(true).await;
}

#[tokio::test]
async fn instructions_are_one_organisations_and_can_be_taken_back() {
    let world = World::new().await;
    let (stranger, ..) = organisation(&world.store).await;
    let read = async |org| world.store.organisation_instructions(org).await.expect("an answer");
    assert_eq!(read(world.org).await, None);
    for text in ["Be brief.", "Be kind.\n"] {
        let (text, now) = (text.to_owned(), world.tick());
        let set = world.store.set_organisation_instructions(world.org, Some(text.clone()), now);
        set.await.expect("set");
        let read = read(world.org).await.map(|found| (found.text, found.updated_ms));
        assert_eq!(read, Some((text, now)));
    }
    assert_eq!(read(stranger).await, None);
    world.store.set_organisation_instructions(world.org, None, 1).await.expect("removed");
    assert_eq!(read(world.org).await, None);
}
