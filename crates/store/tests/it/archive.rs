//! Archived sessions, and metadata of sessions.

use domain::{
    Feature, FeatureLevel, Seq, SessionArchived, SessionDescribed, SessionRef, SessionRenamed,
    TitledBy,
};
use store::{SessionEdit, SessionFilter, SessionRow, SessionsOf, StoreError};

use crate::features::at_level;
use crate::world::World;

fn archived(archived: Option<i64>) -> SessionEdit {
    SessionArchived { archived }.into()
}

fn described(metadata: &str) -> SessionEdit {
    SessionDescribed { metadata: metadata.into() }.into()
}

async fn change(world: &World, session: &SessionRef, change: SessionEdit) -> Seq {
    let (id, now) = (session.session.clone(), world.tick());
    world.store.edit_session(world.org, id, change, now).await.expect("changed")
}

async fn row(world: &World, session: &SessionRef) -> SessionRow {
    world.store.session(world.org, session.session.clone()).await.expect("a session")
}

/// The sessions of a list, without and with archived ones.
async fn listed(world: &World, of: SessionsOf) -> [Vec<SessionRow>; 2] {
    let mut lists = [Vec::new(), Vec::new()];
    for (list, with_archived) in lists.iter_mut().zip([false, true]) {
        let filter = SessionFilter { of: of.clone(), with_archived, ..SessionFilter::default() };
        *list = world.store.sessions(world.org, filter, 100).await.expect("a list").rows;
    }
    lists
}

#[tokio::test]
async fn a_change_is_one_commit_whose_rows_a_rebuild_gives_again() {
    let world = World::new().await;
    let session = world.session().await;
    let created = row(&world, &session).await;
    assert_eq!((created.archived_ms, created.metadata), (None, None));
    let metadata = r#"{ "b": 1.0, "a": ["\u0000", "\ud800"], "b": 2e3 }"#;
    let all = SessionEdit {
        renamed: Some(SessionRenamed { title: "One".into(), by: TitledBy::User }),
        ..SessionEdit { archived: archived(Some(5)).archived, ..described(metadata) }
    };
    assert_eq!(change(&world, &session, all).await, Seq(4));
    let kinds = ["session.created", "session.renamed", "session.archived", "session.described"];
    assert_eq!(world.kinds(&session).await, kinds);
    let now = row(&world, &session).await;
    assert_eq!((now.title.as_str(), now.archived_ms), ("One", Some(5)));
    assert_eq!(now.metadata.as_deref(), Some(metadata));
    assert!(!now.busy && now.seq == Seq(4));
    let rows = world.rows(&session).await;
    let id = session.session.clone();
    assert!(world.store.rebuild(world.org, id, false).await.expect("a rebuild").is_exact());
    assert_eq!(world.rows(&session).await, rows);
    // To archive it and to take that back is no work: it stays where it is among what changed.
    change(&world, &session, archived(None)).await;
    let taken_back = row(&world, &session).await;
    assert_eq!((taken_back.archived_ms, taken_back.updated_ms), (None, now.updated_ms));
    change(&world, &session, described("{}")).await;
    let replaced = row(&world, &session).await;
    assert_eq!(replaced.metadata.as_deref(), Some("{}"));
    assert!(replaced.updated_ms > now.updated_ms);
    world.assert_sound(true).await;
}

#[tokio::test]
async fn lists_leave_out_what_is_archived_unless_they_are_asked() {
    let world = World::new().await;
    let (first, second) = (world.session().await, world.session().await);
    let of = row(&world, &first).await;
    change(&world, &first, archived(Some(5))).await;
    for of in [
        SessionsOf::Organisation,
        SessionsOf::Project(of.project),
        SessionsOf::Directory(of.directory),
    ] {
        let [live, all] = listed(&world, of.clone()).await;
        let ids: Vec<_> = live.iter().map(|row| &row.at.session).collect();
        assert_eq!(ids, [&second.session], "{of:?}");
        assert_eq!(all.len(), 2, "{of:?}");
        assert!(all.iter().any(|row| row.archived_ms == Some(5)));
    }
    // It goes on working, and stays archived.
    world.admit(&first, "hello").await;
    let working = row(&world, &first).await;
    assert_eq!((working.archived_ms, working.busy), (Some(5), true));
}

#[tokio::test]
async fn a_cluster_that_may_run_older_builds_refuses_both() {
    let world = at_level(Feature::Archive.level().0 - 1).await;
    let session = world.session().await;
    let before = world.rows(&session).await;
    for change in [archived(Some(1)), described("{}")] {
        let (id, now) = (session.session.clone(), world.tick());
        let refused = world.store.edit_session(world.org, id, change, now).await;
        let Err(StoreError::Feature { feature, level }) = refused else { panic!("{refused:?}") };
        assert_eq!(
            (feature, level),
            (Feature::Archive, FeatureLevel(Feature::Archive.level().0 - 1))
        );
    }
    let renamed = SessionRenamed { title: "One".into(), by: TitledBy::User };
    assert_eq!(world.rows(&session).await, before);
    assert_eq!(change(&world, &session, renamed.into()).await, Seq(2));
}
