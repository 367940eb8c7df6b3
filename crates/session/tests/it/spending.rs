//! A session that a limit of cost stops: by what its own prompts did cost.

use std::time::Duration;

use anyhow::{Result, ensure};
use domain::{Clock as _, DrainOutcome, Seq, SessionError, SessionEvent};
use session::{ModelFacts, Rates};
use store::ORGANISATION;
use tokio::time::sleep;

use crate::world::{ORG, World};

/// Sums usage up again and again, as the workers' chore does.
async fn count(world: &World) -> Result<std::convert::Infallible> {
    loop {
        world.store().count_usage(ORG).await?;
        sleep(Duration::from_millis(100)).await;
    }
}

/// Sends prompts until one is not answered. Returns the error of that end.
async fn prompt_until_it_stops(world: &World) -> Result<(usize, i64, SessionError)> {
    let session = world.session().await?;
    for nth in 0..40 {
        world.prompt(&session, "say 40 words").await?;
        let outcomes = world.settle(&session).await?;
        if outcomes == [DrainOutcome::Completed] {
            continue;
        }
        ensure!(outcomes == [DrainOutcome::Failed], "{outcomes:?}");
        let (mut spent, mut error) = (0, None);
        for event in world.events(&session).await? {
            match event.event {
                SessionEvent::TurnSettled(settled) => spent += settled.usage.cost,
                SessionEvent::DrainEnded(ended) => error = ended.error,
                _ => {}
            }
        }
        let waiting = world.store().inbox(ORG, session.at.session.clone(), Seq(0), 9).await?;
        ensure!(waiting.items.len() == 1, "the prompt waits: {:?}", waiting.items);
        return Ok((nth, spent, error.unwrap()));
    }
    anyhow::bail!("no limit was ever reached")
}

// Issue 30, part 7: no test reached a limit but by SQL.
#[tokio::test]
async fn prompts_and_prices_end_a_session_at_its_limit() -> Result<()> {
    let mut world = World::new().await?;
    // A tenth of a cent for each token that comes back.
    let prices = Rates { output: 1_000_000_000, ..Rates::default() };
    let facts = ModelFacts {
        prices: Some(prices.into()),
        output_limit: Some(100),
        ..ModelFacts::default()
    };
    world.model_is(facts);
    let limit = 250_000_000; // a quarter of a dollar: six answers of forty words
    let now = world.clock.now_ms();
    world.store().set_spending_limit(ORG, ORGANISATION.into(), Some(limit), now).await?;
    let (answers, spent, error) = tokio::select! {
        stopped = prompt_until_it_stops(&world) => stopped?,
        failed = count(&world) => return failed.map(|never| match never {}),
    };
    assert_eq!(error.code, domain::ErrorCode::LimitSpending.into());
    ensure!(error.message.contains("limit of 0.25 USD a month is reached"), "{}", error.message);
    let each = spent / i64::try_from(answers)?;
    ensure!(answers > 1 && spent >= limit && spent < limit + each, "{answers} cost {spent}");
    // A raised limit takes up what waits.
    world.store().set_spending_limit(ORG, ORGANISATION.into(), None, now).await?;
    world.check().await
}
