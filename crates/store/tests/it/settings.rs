//! Settings of organisations and Locations: who sees them, and who may publish them.

use domain::{FencingToken, LocationRef};
use store::{KnownSettings, SettingsOf, SettingsSeen, SettingsText, StoredSettings};

use crate::world::{World, organisation};

fn text(bytes: &str) -> SettingsText {
    SettingsText { bytes: bytes.to_owned(), hash: format!("hash of {bytes}") }
}

fn new(bytes: &str) -> SettingsSeen {
    SettingsSeen::New(text(bytes))
}

async fn publish(world: &World, at: LocationRef, token: i64, bytes: &str) -> bool {
    let (store, now) = (&world.store, world.tick());
    store.publish_settings(at, FencingToken(token), text(bytes), now).await.expect("an answer")
}

async fn read(world: &World, of: SettingsOf, known: KnownSettings) -> StoredSettings {
    world.store.settings(world.org, of, known).await.expect("an answer")
}

#[tokio::test]
async fn only_the_holder_of_a_location_publishes_its_settings() {
    let world = World::new().await;
    let here = || SettingsOf::Location(world.location.clone());
    world.fence(2).await;
    assert!(!publish(&world, world.at(), 1, "a zombie's").await);
    assert!(!publish(&world, world.at(), 3, "one that has not begun").await);
    let none = read(&world, here(), KnownSettings::default()).await;
    assert_eq!((none.organisation, none.location), (SettingsSeen::Nothing, SettingsSeen::Nothing));
    for bytes in ["{}", "{\"rules\": []}"] {
        assert!(publish(&world, world.at(), 2, bytes).await);
        assert_eq!(read(&world, here(), KnownSettings::default()).await.location, new(bytes));
    }
    world.fence(4).await;
    assert!(!publish(&world, world.at(), 2, "the old holder's").await);
    let known =
        KnownSettings { location: Some(text("{\"rules\": []}").hash), ..KnownSettings::default() };
    assert_eq!(read(&world, here(), known).await.location, SettingsSeen::Known);
}

#[tokio::test]
async fn a_location_is_found_by_its_session_project_or_directory() {
    let world = World::new().await;
    let session = world.session().await;
    let other = world.another_location().await;
    world.fence(1).await;
    assert!(publish(&world, world.at(), 1, "here").await);
    for of in [
        SettingsOf::Session(session.session.clone()),
        SettingsOf::Project(world.project.clone()),
        SettingsOf::Directory("/workspace".into()),
    ] {
        assert_eq!(
            read(&world, of.clone(), KnownSettings::default()).await.location,
            new("here"),
            "{of:?}"
        );
    }
    for of in [
        SettingsOf::Location(other),
        SettingsOf::Directory("/elsewhere".into()),
        SettingsOf::Organisation,
    ] {
        let found = read(&world, of.clone(), KnownSettings::default()).await;
        assert_eq!(found.location, SettingsSeen::Nothing, "{of:?}");
    }
}

#[tokio::test]
async fn settings_are_one_organisations_and_can_be_taken_back() {
    let world = World::new().await;
    let (stranger, project, location) = organisation(&world.store).await;
    world.fence(1).await;
    assert!(publish(&world, world.at(), 1, "ours").await);
    let theirs = LocationRef { org: stranger, location: world.location.clone() };
    assert!(!publish(&world, theirs, 1, "through another tenant").await);
    for bytes in ["{\"steps\": 1}", "{}"] {
        let now = world.tick();
        world
            .store
            .set_organisation_settings(world.org, Some(text(bytes)), now)
            .await
            .expect("set");
        let found = read(&world, SettingsOf::Organisation, KnownSettings::default()).await;
        assert_eq!((found.organisation, found.organisation_ms), (new(bytes), Some(now)));
    }
    let known = KnownSettings { organisation: Some(text("{}").hash), ..KnownSettings::default() };
    let found = read(&world, SettingsOf::Organisation, known).await;
    assert_eq!(found.organisation, SettingsSeen::Known);
    for of in [
        SettingsOf::Project(project),
        SettingsOf::Location(location),
        SettingsOf::Location(world.location.clone()),
    ] {
        let found =
            world.store.settings(stranger, of, KnownSettings::default()).await.expect("an answer");
        assert_eq!(
            (found.organisation, found.location),
            (SettingsSeen::Nothing, SettingsSeen::Nothing)
        );
    }
    world.store.set_organisation_settings(world.org, None, 1).await.expect("removed");
    let found = read(&world, SettingsOf::Organisation, KnownSettings::default()).await;
    assert_eq!((found.organisation, found.organisation_ms), (SettingsSeen::Nothing, None));
}

#[tokio::test]
async fn settings_go_with_their_location() {
    let world = World::new().await;
    world.fence(1).await;
    assert!(publish(&world, world.at(), 1, "here").await);
    let deleted = sqlx::query("DELETE FROM location WHERE org_id = $1").bind(world.org.0);
    deleted.execute(&world.root).await.expect("an unused Location");
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM location_settings")
        .fetch_one(&world.root)
        .await
        .expect("a count");
    assert_eq!(left, 0);
}
