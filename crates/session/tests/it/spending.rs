//! A session that a limit of cost stops: by what its own prompts did cost.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use domain::{Clock as _, DrainOutcome, MessageId, Seq, SessionError, SessionEvent};
use session::{ModelFacts, Rates};
use store::ORGANISATION;
use tokio::time::sleep;

use crate::world::{ORG, Session, World};

/// How old a worker's look at what is spent may be.
const FRESH_FOR: Duration = Duration::from_secs(2);

/// Sums usage up again and again, as the workers' chore does.
async fn count_usage(world: &World) -> Result<std::convert::Infallible> {
    loop {
        world.store().count_usage(ORG).await?;
        sleep(Duration::from_millis(100)).await;
    }
}

/// Sends prompts until one is not answered. Returns how many were, what they did cost, and the error of that end.
async fn prompt_until_it_stops(
    world: &World,
    session: &Session,
) -> Result<(usize, i64, SessionError)> {
    for nth in 0..40 {
        world.prompt(session, "say 40 words").await?;
        let outcomes = world.settle(session).await?;
        if outcomes == [DrainOutcome::Completed] {
            continue;
        }
        ensure!(outcomes == [DrainOutcome::Failed], "{outcomes:?}");
        let (mut spent, mut error) = (0, None);
        for event in world.events(session).await? {
            match event.event {
                SessionEvent::TurnSettled(settled) => spent += settled.usage.cost,
                SessionEvent::DrainEnded(ended) => error = ended.error,
                _ => {}
            }
        }
        return Ok((nth, spent, error.context("the end has an error")?));
    }
    anyhow::bail!("no limit was ever reached")
}

/// Returns the prompts that wait.
async fn list_waiting(world: &World, session: &Session) -> Result<Vec<MessageId>> {
    let waiting = world.store().inbox(ORG, session.at.session.clone(), Seq(0), 9).await?;
    Ok(waiting.items.into_iter().map(|row| row.id).collect())
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
    let limit = 250_000_000; // a quarter of a dollar: seven answers of forty words
    let now = world.clock.now_ms();
    world.store().set_spending_limit(ORG, ORGANISATION.into(), Some(limit), now).await?;
    let session = world.session().await?;
    let (answers, spent, error) = tokio::select! {
        stopped = prompt_until_it_stops(&world, &session) => stopped?,
        failed = count_usage(&world) => return failed.map(|never| match never {}),
    };
    assert_eq!(error.code, domain::ErrorCode::LimitSpending);
    ensure!(error.message.contains("limit of 0.25 USD a month is reached"), "{}", error.message);
    let each = spent / i64::try_from(answers)?;
    ensure!(answers > 1 && spent >= limit && spent < limit + each, "{answers} cost {spent}");
    // By now it is known at the boundary: the next prompt waits.
    let next = world.prompt(&session, "say 3 words").await?;
    assert_eq!(world.settle(&session).await?, [DrainOutcome::Failed]);
    let waiting = list_waiting(&world, &session).await?;
    ensure!(waiting.last() == Some(&next), "{next} does not wait: {waiting:?}");
    // Without the limit, what waits is taken up with the next prompt.
    world.store().set_spending_limit(ORG, ORGANISATION.into(), None, now).await?;
    sleep(FRESH_FOR).await;
    world.prompt(&session, "say 4 words").await?;
    assert_eq!(world.settle(&session).await?, [DrainOutcome::Completed]);
    let waiting = list_waiting(&world, &session).await?;
    ensure!(waiting.is_empty(), "{waiting:?}");
    world.check().await
}
