use anyhow::Result;
use journeys::{World, oracle};

#[tokio::test]
async fn up_answers() -> Result<()> {
    let world = World::new().await?;
    let up = world.up().await?;
    let session = up.api().session(&world.workspace("a")?).await?;
    assert_eq!(up.api().prompt(&session, "create a.txt containing hello", 20).await?, "completed");
    let verdict = oracle(up.api(), world.model()).await?;
    assert_eq!((verdict.sessions, verdict.turns, verdict.attempts), (1, 2, 2));
    up.stop(&world).await
}

#[tokio::test]
async fn cluster_answers() -> Result<()> {
    let world = World::new().await?;
    let cluster = world.cluster(&[]).await?;
    let session = cluster.gateway(0).session(&world.workspace("a")?).await?;
    assert_eq!(
        cluster.gateway(0).prompt(&session, "create a.txt containing hello", 20).await?,
        "completed"
    );
    let verdict = oracle(cluster.gateway(1), world.model()).await?;
    assert_eq!((verdict.sessions, verdict.turns, verdict.attempts), (1, 2, 2));
    cluster.stop(&world).await
}
