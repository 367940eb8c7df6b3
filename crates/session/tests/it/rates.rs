//! How much an organisation may ask of a provider, whoever of its workers asks.

use std::time::{Duration, Instant};

use anyhow::Result;
use domain::DrainOutcome::{Completed, Interrupted};
use simulated_model::Script;
use store::{ProviderSetting, RateGrant, RateLimit};

use crate::world::{ORG, World};

const PROVIDER: &str = "simulated";
const PER_MINUTE: u32 = 5;

async fn limited() -> Result<World> {
    let world = World::new().await?;
    let settings = format!(r#"{{"overrides":{{"limits":{{"requestsPerMinute":{PER_MINUTE}}}}}}}"#);
    let setting = ProviderSetting {
        provider: PROVIDER.into(),
        settings,
        sealed: None,
        version: 1,
        updated_ms: 1,
    };
    assert!(world.store().put_provider_setting(ORG, setting).await?);
    Ok(world)
}

async fn hold(world: &World, wait: Duration) -> Result<()> {
    Ok(world.store().hold_provider(ORG, PROVIDER.into(), wait).await?)
}

#[tokio::test]
async fn a_request_waits_until_its_organisation_may_ask_and_counts() -> Result<()> {
    let world = limited().await?;
    let session = world.session().await?;
    let asked = Instant::now();
    hold(&world, Duration::from_millis(2_000)).await?;
    world.prompt(&session, "say 2 words").await?;
    assert_eq!(world.settle(&session).await?, [Completed]);
    assert!(asked.elapsed() >= Duration::from_millis(2_000), "{:?}", asked.elapsed());
    assert_eq!(world.requests()?.len(), 1);
    let limit = RateLimit { requests_per_minute: Some(PER_MINUTE), tokens_per_minute: None };
    let mut granted = 1;
    while world.store().take_provider_rate(ORG, PROVIDER.into(), limit, 1).await?
        == RateGrant::Granted
    {
        granted += 1;
    }
    assert_eq!(granted, PER_MINUTE);
    world.check().await
}

#[tokio::test]
async fn whoever_waits_for_the_provider_is_interrupted_at_once() -> Result<()> {
    let world = limited().await?;
    let session = world.session().await?;
    hold(&world, Duration::from_mins(10)).await?;
    world.prompt(&session, "say 2 words").await?;
    let meanwhile = async {
        world.until_kind(&session, "attempt.started").await?;
        world.interrupt(&session).await
    };
    let (outcomes, asked) = tokio::join!(world.settle(&session), meanwhile);
    asked?;
    assert_eq!(outcomes?, [Interrupted]);
    assert_eq!(world.requests()?.len(), 0, "nothing was sent");
    world.check().await
}

#[tokio::test]
async fn what_a_provider_asks_one_to_wait_all_of_the_organisation_wait() -> Result<()> {
    let world = limited().await?;
    let (first, second) = (world.session().await?, world.session().await?);
    world.script(Script {
        matches: "say".into(),
        status: Some(429),
        retry_after_ms: Some(1_500),
        times: Some(1),
        ..Script::default()
    })?;
    world.prompt(&first, "say 2 words").await?;
    let other = async {
        world.until_kind(&first, "retry.scheduled").await?;
        world.prompt(&second, "say 3 words").await?;
        world.settle(&second).await
    };
    let (outcomes, others) = tokio::join!(world.settle(&first), other);
    assert_eq!(outcomes?, [Completed]);
    assert_eq!(others?, [Completed]);
    // However long it took until the other one came: none arrived sooner than that after the one that was refused.
    let asked = world.model().requests();
    assert_eq!(asked.len(), 3);
    for later in &asked[1..] {
        let waited = Duration::from_micros(later.arrived_us.saturating_sub(asked[0].arrived_us));
        assert!(waited >= Duration::from_millis(1_490), "{waited:?}: {later:?}");
    }
    world.check().await
}
