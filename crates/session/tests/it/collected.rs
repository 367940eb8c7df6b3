//! Components that a worker knows to be stored, and that were deleted meanwhile.

use anyhow::{Result, ensure};
use domain::DrainOutcome::Completed;
use domain::OrgId;

use crate::world::World;

const ORG: OrgId = OrgId::FIRST;

/// Deletes all components that nothing names. Returns their number.
async fn collect(world: &World) -> Result<i32> {
    let mut deleted = 0;
    loop {
        let page = world.store().collect_components(ORG, Vec::new(), 1_000).await?;
        deleted += page.deleted;
        if page.deleted == 0 {
            return Ok(deleted);
        }
    }
}

// Finding store 21: components of deleted sessions are deleted, and a worker that knows them brings them again.
#[tokio::test]
async fn a_drain_brings_components_that_were_deleted() -> Result<()> {
    let world = World::new().await?;
    let gone = world.session().await?;
    world.prompt(&gone, "say 2 words").await?;
    assert_eq!(world.settle(&gone).await?, [Completed]);
    assert_eq!(collect(&world).await?, 0, "a session names them");
    world.store().delete_session(ORG, gone.at.session.clone()).await?;
    ensure!(collect(&world).await? > 1, "the list and its members");

    let session = world.session().await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert_eq!(collect(&world).await?, 0);
    // Each body is rebuilt from its components.
    let (attempts, _) = world.check_rows().await?;
    assert_eq!(attempts.values().sum::<u64>(), 1);
    Ok(())
}
