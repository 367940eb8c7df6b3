//! A cluster in which builds of the version before may still run.

use anyhow::Result;
use domain::DrainOutcome::Completed;
use domain::{Feature, FeatureLevel};
use sqlx::{Connection, PgConnection};

use crate::world::World;

/// Their workers read no titles: a session is answered without.
#[tokio::test]
async fn below_its_level_a_drain_writes_nothing_that_others_cannot_read() -> Result<()> {
    for level in [FeatureLevel::OF_THIS_BUILD, FeatureLevel::FIRST] {
        let database = testkit::database().await?;
        let mut admin = PgConnection::connect(&database.superuser_url()).await?;
        sqlx::query("UPDATE cluster SET feature_level = $1")
            .bind(level.0)
            .execute(&mut admin)
            .await?;
        let world = World::on(database.store_url(), Some(database), |_| ()).await?;
        let session = world.session_titled("New session", false).await?;
        world.prompt(&session, "say 2 words").await?;
        assert_eq!(world.settle(&session).await?, [Completed]);
        let kinds = world.kinds(&session).await?;
        assert_eq!(kinds.contains(&"title.started"), level.has(Feature::Controls), "{kinds:?}");
        world.check().await?;
    }
    Ok(())
}
